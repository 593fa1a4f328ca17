"""When a training process is to die: in a phase of training, or before a file operation."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, wraps
from importlib import import_module
from pathlib import Path
from typing import Any

FILE_EVENTS = {
    *("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.truncate"),
    *("shutil.rmtree", "tempfile.mkdtemp"),
}
"""What Python's audit hooks call things that are done to files (PEP 578)."""


@dataclass(frozen=True)
class Phase:
    """A part of training to be killed in.

    Attributes:
        functions: `module:name` of the functions that do it.
        most_entries: how often a life may enter it before it is killed.
    """

    functions: tuple[str, ...]
    most_entries: int


PHASES = {
    "data preparation": Phase(
        ("transformer.data.corpus:_write_pairs", "transformer.data.corpus:encode_rows"), 1
    ),
    "tokenizer training": Phase(("transformer.data.corpus:train_tokenizer",), 1),
    "updates": Phase(("transformer.training.trainer:Trainer.update",), 20),
    "saves": Phase(
        (
            "transformer.training.saving:write_checkpoint",
            "transformer.training.saving:rotate_checkpoints",
        ),
        6,
    ),
    "validation": Phase(("transformer.training.validation:Validator.run",), 3),
    "resuming": Phase(
        (
            "transformer.training.run:newest_checkpoint",
            "transformer.training.run:write_config",
            "transformer.training.trainer:Metrics",
        ),
        3,
    ),
}


@dataclass(frozen=True)
class Moment:
    """When to kill a run: so long after it enters a phase for the so manyth time, from 1."""

    phase: str
    entry: int
    delay_seconds: float


@dataclass(frozen=True)
class Killer:
    """What kills a process of a run.

    Attributes:
        moments: it gets the signal at the first of these that comes.
        operation: it gets it before its so manyth file operation, from 1; 0 = it does not.
        signal_number: the signal.
        rank: of several processes, the one that gets it.
    """

    moments: tuple[Moment, ...] = ()
    operation: int = 0
    signal_number: int = signal.SIGKILL
    rank: int = 0


def prepare_death(task: Path, writer: int, killer: Killer) -> None:
    """Has this process say which phase it is in, and die when it is to.

    Args:
        task: folder of its run.
        writer: pipe for what it says.
        killer: when and how it dies.
    """
    if killer.operation:
        _die_before(killer, str(task))
    entries: Counter[str] = Counter()
    for phase, details in PHASES.items():
        enter = partial(_enter, phase, entries, killer, writer)
        for function in details.functions:
            _announce(function, phase, writer, enter)


def _announce(function: str, phase: str, writer: int, enter: Callable[[], None]) -> None:
    """Lets a function say when it is entered and left, and call `enter` in between."""
    module, names = function.split(":")
    owner: Any = import_module(module)
    *outer, name = names.split(".")
    for part in outer:
        owner = getattr(owner, part)
    original: Callable[..., Any] = getattr(owner, name)

    @wraps(original, updated=())
    def announced(*args: Any, **kwargs: Any) -> Any:
        os.write(writer, f"+{phase} {time.monotonic()}\n".encode())
        enter()
        try:
            return original(*args, **kwargs)
        finally:
            os.write(writer, f"-{phase} {time.monotonic()}\n".encode())

    setattr(owner, name, announced)


def _enter(phase: str, entries: Counter[str], killer: Killer, writer: int) -> None:
    """Counts an entry into a phase; sets the clock that kills, if this is the moment."""
    entries[phase] += 1
    for moment in killer.moments:
        if (moment.phase, moment.entry) == (phase, entries[phase]):
            at = time.monotonic() + moment.delay_seconds
            os.write(writer, f"! {at}\n".encode())
            _die_in(moment.delay_seconds, killer.signal_number)


class _Event(ctypes.Structure):
    """`struct sigevent` of <signal.h>."""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signal", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("rest", ctypes.c_char * 48),
    )


def _die_in(seconds: float, signal_number: int) -> None:
    """Has the kernel send this process a signal after some time, whatever it does then."""
    libc, timer = ctypes.CDLL(None, use_errno=True), ctypes.c_void_p()
    event = _Event(signal=signal_number)
    if libc.timer_create(time.CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(timer)) != 0:
        raise OSError(ctypes.get_errno(), "timer_create")
    whole, nanoseconds = divmod(max(1, round(seconds * 1e9)), 10**9)
    once = (ctypes.c_long * 4)(0, 0, whole, nanoseconds)  # struct itimerspec: interval, value
    if libc.timer_settime(timer, 0, once, None) != 0:
        raise OSError(ctypes.get_errno(), "timer_settime")


def _die_before(killer: Killer, folder: str) -> None:
    """Sends this process a signal before its so manyth change of a file below `folder`."""
    count = 0

    def hook(event: str, args: tuple[Any, ...]) -> None:
        nonlocal count
        if event not in FILE_EVENTS or not str(args[0]).startswith(folder):
            return
        if event == "open" and not args[2] & (os.O_WRONLY | os.O_RDWR):
            return
        count += 1
        if count == killer.operation:
            os.kill(os.getpid(), killer.signal_number)

    sys.addaudithook(hook)
