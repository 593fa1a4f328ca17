"""A small training run, in a process or several, that lives until it is done or killed."""

from __future__ import annotations

import math
import os
import random
import signal
import socket
import sys
import time
import traceback
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

from kill_moments import Killer, prepare_death

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
NO_PHASE = "between"


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


def live(task: Path, killer: Killer | None = None, num_processes: int = 1) -> Life:
    """Starts the run of a folder, or goes on with it, in processes; kills one if asked.

    Raises:
        RuntimeError: it ended by itself, but not well.
    """
    reader, writer = os.pipe()
    killer = killer or Killer()
    places = _places(num_processes)
    ranks = {_fork(task, writer, killer, rank, place): rank for rank, place in enumerate(places)}
    os.close(writer)
    watch = Watch()
    with open(reader, encoding="utf-8") as said:
        for line in said:
            watch.hear(line.rstrip("\n"))
    codes = _wait(ranks)
    seconds = time.monotonic() - watch.signalled_at
    code = codes.pop(killer.rank)
    was_killed = code in (-killer.signal_number, 128 + killer.signal_number)
    if not (was_killed or code == 0) or (any(codes.values()) and not was_killed):
        raise RuntimeError(f"{task}: {(task / 'output').read_text()}")
    return Life(was_killed, watch.died_in, seconds, watch.phase_seconds)


def _places(num_processes: int) -> list[dict[str, str]]:
    """Returns what torchrun tells each process of where it is; nothing to one alone."""
    if num_processes == 1:
        return [{}]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    meeting["WORLD_SIZE"] = str(num_processes)
    return [meeting | {"RANK": str(i), "LOCAL_RANK": str(i)} for i in range(num_processes)]


def _fork(task: Path, writer: int, killer: Killer, rank: int, place: dict[str, str]) -> int:
    """Starts one process of a run; only the one that may be killed says what it does."""
    process = os.fork()
    if process == 0:
        os.environ |= place
        if rank != killer.rank:
            os.close(writer)
        _train(task, writer if rank == killer.rank else None, killer)
    return process


def _wait(ranks: dict[int, int]) -> dict[int, int]:
    """Waits for processes; asks the others to stop when one has died, as torchrun does. Returns
    exit codes by rank.
    """
    codes: dict[int, int] = {}
    while len(codes) < len(ranks):
        process, status = os.wait()
        codes[ranks[process]] = os.waitstatus_to_exitcode(status)
        if codes[ranks[process]] != 0:
            for other, rank in ranks.items():
                if rank not in codes:
                    os.kill(other, signal.SIGTERM)
    return codes


def _train(task: Path, writer: int | None, killer: Killer) -> None:
    """Is the process: trains until the end or its death; says which phase it is in to `writer`, and
    is killed, if there is one.
    """
    status = 1
    try:
        output = os.open(task / "output", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(output, 1)
        os.dup2(output, 2)
        if writer is not None:
            prepare_death(task, writer, killer)
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
