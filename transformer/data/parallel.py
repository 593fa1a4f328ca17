"""Work in threads, in order, with little held at a time."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

S = TypeVar("S")
T = TypeVar("T")


def in_parallel(work: Callable[[S], T], tasks: Iterable[S], num_threads: int) -> Iterator[T]:
    """Yields the results in order, computing only a few ahead.

    Args:
        work: a function of one task.
        tasks: what to call it with.
        num_threads: how many to do at once; 0 takes all cores.
    """
    num_threads = num_threads or num_cores()
    if num_threads == 1:
        yield from map(work, tasks)
        return
    with ThreadPoolExecutor(num_threads) as pool:
        pending: deque[Future[T]] = deque()
        try:
            for task in tasks:
                pending.append(pool.submit(work, task))
                if len(pending) > 2 * num_threads:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()


def num_cores() -> int:
    """Returns how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
