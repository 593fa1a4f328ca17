"""A small training run as a process that says which phase it is in, and dies when it is told to."""

from __future__ import annotations

import ctypes
import math
import os
import random
import signal
import sys
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial, wraps
from importlib import import_module
from pathlib import Path
from typing import Any

TASK = """
run_dir: {folder}/run
seed: 5
data:
  source_language: xx
  target_language: yy
  train: [{{source: {folder}/train.xx, target: {folder}/train.yy}}]
  validation: [{{source: {folder}/valid.xx, target: {folder}/valid.yy}}]
  cache_dir: {folder}/cache
  num_threads: 1
tokenizer: {{vocab_size: 300, kind: bpe, source_sampling: 0.1, target_sampling: 0.1}}
model:
  d_model: 16
  num_heads: 2
  d_ff: 32
  num_encoder_layers: 1
  num_decoder_layers: 1
  dropout: 0.1
  attention_dropout: 0.1
training:
  max_steps: {max_steps}
  batch_tokens: 400
  max_tokens: 300
  learning_rate: 0.01
  warmup_steps: 5
  ema_decay: 0.9
  save_every: 5
  keep_checkpoints: 2
  log_every: 3
  device: cpu
  precision: float32
validation: {{every: 8, beam_size: 2, samples: 1, metric: chrf, patience: 3}}
decoding: {{max_length: 5, max_length_ratio: 1.0}}
"""
FILE_EVENTS = {
    *("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.truncate"),
    *("shutil.rmtree", "tempfile.mkdtemp"),
}
"""What Python's audit hooks call things that are done to files (PEP 578)."""
NO_PHASE = "between"


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
    """

    moments: tuple[Moment, ...] = ()
    operation: int = 0
    signal_number: int = signal.SIGKILL


@dataclass
class Life:
    """How one process of a run went.

    Attributes:
        was_killed: False if it came to its end.
        died_in: the phase that it was in when the signal came.
        seconds_to_end: time from the signal to its end.
        phase_seconds: mean time in each phase.
    """

    was_killed: bool
    died_in: str
    seconds_to_end: float
    phase_seconds: dict[str, float]


@dataclass
class Watch:
    """What a process has said of itself: phases that it entered and left, and when; and when the
    signal was to come.
    """

    events: list[tuple[str, str, float]] = field(default_factory=list)
    signalled_at: float = math.inf

    def hear(self, line: str) -> None:
        """Takes `+phase seconds` on entering, `-phase seconds` on leaving, `! seconds`."""
        what, said_at = line[1:].rsplit(" ", 1)
        if line[0] == "!":
            self.signalled_at = min(self.signalled_at, float(said_at))
        else:
            self.events.append((line[0], what, float(said_at)))

    @property
    def died_in(self) -> str:
        """The innermost phase that was open when the signal came."""
        open_phases = [NO_PHASE]
        for kind, phase, at in self.events:
            if kind == "+" and at <= self.signalled_at:
                open_phases.append(phase)
            elif kind == "-" and at <= self.signalled_at:
                open_phases.remove(phase)
        return open_phases[-1]

    @property
    def phase_seconds(self) -> dict[str, float]:
        """Mean time in each phase."""
        entries = Counter(phase for kind, phase, _ in self.events if kind == "+")
        seconds: dict[str, float] = defaultdict(float)
        for kind, phase, at in self.events:
            seconds[phase] += at if kind == "-" else -at
        return {phase: seconds[phase] / count for phase, count in entries.items()}


def write_task(folder: Path, max_steps: int = 300) -> Path:
    """Writes a corpus (a language turned around) and a configuration; returns the folder."""
    folder.mkdir(parents=True)
    rng = random.Random(7)
    words = ["".join(rng.choices("abcdefg", k=rng.randint(1, 4))) for _ in range(40)]
    for name, size in (("train", 150), ("valid", 12)):
        lines = [rng.choices(words, k=rng.randint(1, 9)) for _ in range(size)]
        (folder / f"{name}.xx").write_text("".join(" ".join(x) + "\n" for x in lines))
        (folder / f"{name}.yy").write_text("".join(" ".join(x[::-1]) + "\n" for x in lines))
    (folder / "config.yaml").write_text(TASK.format(folder=folder, max_steps=max_steps))
    return folder


def preload() -> None:
    """Imports what training uses, so that each life, a fork of this process, starts at once."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for name in (
        *("transformer.cli", "transformer.training.run", "datasets", "sacrebleu", "sentencepiece"),
        *("torch.utils.tensorboard.writer", "torch._dynamo", "pyarrow.parquet"),
    ):
        import_module(name)


def live(task: Path, killer: Killer | None = None) -> Life:
    """Starts the run of a folder, or goes on with it, in a process; kills it if asked.

    Raises:
        RuntimeError: it ended by itself, but not well.
    """
    reader, writer = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(reader)
        _train(task, writer, killer or Killer())
    os.close(writer)
    watch = Watch()
    with open(reader, encoding="utf-8") as said:
        for line in said:
            watch.hear(line.rstrip("\n"))
    _, status = os.waitpid(process, 0)
    seconds = time.monotonic() - watch.signalled_at
    code = os.waitstatus_to_exitcode(status)
    killed = killer.signal_number if killer else 0
    if code not in (0, -killed, 128 + killed):
        raise RuntimeError(f"{task}: {(task / 'output').read_text()}")
    return Life(code != 0, watch.died_in, seconds, watch.phase_seconds)


def _train(task: Path, writer: int, killer: Killer) -> None:
    """Is the process: trains until the end or its death, and says which phase it is in."""
    status = 1
    try:
        output = os.open(task / "output", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(output, 1)
        os.dup2(output, 2)
        if killer.operation:
            _die_before(killer, str(task))
        entries: Counter[str] = Counter()
        for phase, details in PHASES.items():
            enter = partial(_enter, phase, entries, killer, writer)
            for function in details.functions:
                _announce(function, phase, writer, enter)
        sys.argv = ["transformer", "train", str(task / "config.yaml"), "--resume"]
        import_module("transformer.cli").main()
        status = 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


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
