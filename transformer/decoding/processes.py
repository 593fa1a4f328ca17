"""Several processes that work on batches, one for each core.

An operator that is split over cores ends with its slowest part, thousands of times a second;
batches of their own need no such meetings, and Python runs on each core.
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, TypeVar

import torch

from transformer.errors import UserError

T = TypeVar("T")
R = TypeVar("R")


def num_processes(asked: int) -> int:
    """Returns how many processes to use: 0 asks for as many as PyTorch would use threads.

    There is one where a process cannot take over a model as it stands in memory.
    """
    return (asked or torch.get_num_threads()) if sys.platform == "linux" else 1


class Processes(Generic[T, R]):
    """Copies of this process, each with one thread, which do the same work on different tasks. They
    share its memory until they write to it, and end when it ends, however that comes about.

    Args:
        work: what they do; all that it needs is in memory when they are started.
        num: how many there are.
    """

    def __init__(self, work: Callable[[T], R], num: int) -> None:
        self.num = num
        context = multiprocessing.get_context("fork")
        self._connections: list[Connection] = []
        self._processes = []
        try:
            for _ in range(num):
                ours, theirs = context.Pipe()
                self._connections.append(ours)
                of_parent = tuple(self._connections)
                process = context.Process(
                    target=_serve, args=(work, theirs, of_parent), daemon=True
                )
                self._processes.append(process)
                with warnings.catch_warnings():  # of threads, which have no part in the work
                    warnings.simplefilter("ignore", DeprecationWarning)
                    process.start()
                theirs.close()
        except OSError as error:
            raise UserError(
                f"--processes {num}: they cannot be started: {error.strerror}; try fewer"
            ) from None

    def map(self, tasks: Sequence[T], check: Callable[[], object] | None = None) -> Iterator[R]:
        """Yields what comes of each task, in order; whoever is free takes the next one.

        Args:
            tasks: what is to be done.
            check: called before a task is given out; what it raises ends the work.

        Raises:
            UserError: work raised one, or a process was killed.
        """
        upcoming = iter(enumerate(tasks))
        busy: dict[Any, int] = {}  # connections, and the numbers of their tasks
        done: dict[int, R] = {}

        def give(connection: Any) -> None:
            if check is not None:
                check()
            if (numbered := next(upcoming, None)) is not None:
                with suppress(OSError):  # a lost process is noticed when its answer is read
                    connection.send(numbered[1])
                busy[connection] = numbered[0]

        try:
            for one in self._connections:
                give(one)
            for number in range(len(tasks)):
                while number not in done:
                    for connection in wait(list(busy)):
                        done[busy.pop(connection)] = self._answer(connection)
                        give(connection)
                yield done.pop(number)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Ends the processes."""
        for process, connection in zip(self._processes, self._connections, strict=True):
            connection.close()
            process.terminate()
        for process in self._processes:
            process.join()
        self._processes, self._connections = [], []

    @property
    def is_open(self) -> bool:
        """Tells whether there are processes."""
        return bool(self._processes)

    def _answer(self, connection: Any) -> R:
        try:
            answer = connection.recv()
        except (EOFError, OSError):
            process = self._processes[self._connections.index(connection)]
            process.join()
            message = f"a process that translates was ended (exit status {process.exitcode})"
            if process.exitcode == -signal.SIGKILL:
                message += (
                    "; memory may have run out: try a smaller --batch-tokens, or --processes 1"
                )
            raise UserError(message) from None
        if isinstance(answer, _Failure):
            raise answer.error
        return answer


class _Failure:
    """Stands for a result: what was raised instead."""

    def __init__(self, error: Exception) -> None:
        self.error = error


def _serve(
    work: Callable[[Any], Any], connection: Connection, of_parent: Sequence[Connection]
) -> None:
    """Works on what comes, until the parent closes its end or is gone."""
    for (
        other
    ) in of_parent:  # while they are open here as well, the end of the parent goes unnoticed
        other.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; the parent ends the others
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    torch.set_num_threads(1)
    with suppress(EOFError, OSError):
        while True:
            task = connection.recv()
            answer: Any
            try:
                answer = work(task)
            except UserError as error:
                answer = _Failure(error)
            except Exception:
                answer = _Failure(RuntimeError(traceback.format_exc()))
            connection.send(answer)
