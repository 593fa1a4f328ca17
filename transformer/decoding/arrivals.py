"""Taking items as they come: whatever has arrived by the time that one is ready for more."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


class _End:
    """What comes after the last item: nothing, or the error that ended them."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


def arrivals(items: Iterable[T], most: int) -> Iterator[list[T]]:
    """Yields lists of 1 to `most` items: those that have come since the last list, in order.

    A thread reads on while the caller works, up to `most` items ahead: an item that comes alone is
    given at once, and those that come fast are given together. An error of the iterable is raised
    after the items before it. The thread may outlive an early end of this iterator while its
    iterable has it wait; it never keeps the process from ending.
    """
    waiting: queue.Queue[T | _End] = queue.Queue(maxsize=most)
    stopped = threading.Event()
    threading.Thread(target=_read, args=(items, waiting, stopped), daemon=True).start()
    try:
        while True:
            arrived, end = _take(waiting, most)
            if arrived:
                yield arrived
            if end is not None:
                if end.error is not None:
                    raise end.error
                return
    finally:
        stopped.set()
        while not waiting.empty():  # so that a thread that waits for room sees the flag
            waiting.get_nowait()


def chunks(items: Iterable[T], num: int) -> Iterator[list[T]]:
    """Yields lists of `num` items, the last of fewer, in order.

    An error of the iterable is raised after the items before it.
    """
    chunk: list[T] = []
    try:
        for item in items:
            chunk.append(item)
            if len(chunk) == num:
                yield chunk
                chunk = []
    except Exception:
        if chunk:
            yield chunk
        raise
    if chunk:
        yield chunk


def _read(items: Iterable[T], waiting: queue.Queue[T | _End], stopped: threading.Event) -> None:
    end = _End()
    try:
        for item in items:
            waiting.put(item)
            if stopped.is_set():
                return
    except BaseException as error:
        end = _End(error)
    waiting.put(end)


def _take(waiting: queue.Queue[T | _End], most: int) -> tuple[list[T], _End | None]:
    """Waits for an item, then takes all that are there: the items, and the end if it has come."""
    taken: list[T] = []
    while len(taken) < most:
        try:
            item = waiting.get(block=not taken)
        except queue.Empty:
            break
        if isinstance(item, _End):
            return taken, item
        taken.append(item)
    return taken, None
