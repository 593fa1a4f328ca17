"""Asking a run to stop: SIGTERM and Ctrl-C are noted, and heeded when the state is whole."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopRequest:
    """The signal that asked this process to stop, if one did.

    Attributes:
        signal_number: the signal; None = go on.
    """

    def __init__(self) -> None:
        self.signal_number: int | None = None

    def __bool__(self) -> bool:
        return self.signal_number is not None

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Notes SIGTERM and Ctrl-C until the block ends; a second Ctrl-C stops at once.

        Does nothing outside the main thread: there signals are somebody else's.
        """
        try:
            before = {n: signal.signal(n, self._note) for n in (signal.SIGTERM, signal.SIGINT)}
        except ValueError:
            yield
            return
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.signal_number is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal_number = number
