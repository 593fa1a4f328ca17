"""A short trial of training: how fast this machine is, and how much memory it takes."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import torch

from transformer.data.updates import Update
from transformer.training.trainer import Trainer

TRIAL_SECONDS = 10.0
MOST_UPDATES = 20


@dataclass(frozen=True)
class Trial:
    """What a trial measured.

    Attributes:
        token_seconds: for a target token, forward and backward.
        step_seconds: for what an update takes besides: clipping, the optimizer.
        memory_bytes: most memory: of the GPU, or of the whole process.
    """

    token_seconds: float
    step_seconds: float
    memory_bytes: int


def run_trial(trainer: Trainer, updates: Iterator[Update]) -> Trial:
    """Trains on some updates, of any size, for about `TRIAL_SECONDS`; the first warms up.

    What an update takes besides its tokens is found by updates without any.
    """
    device = trainer.ranks.device
    trainer.state.model.train()
    reset_peak_memory(device)
    warm_up = next(updates)
    trainer.update(warm_up)
    empty = replace(warm_up, batches=[], num_tokens=1)
    step_seconds = min(_seconds(trainer, empty) for _ in range(3))
    seconds = num_tokens = 0.0
    for update in islice(updates, MOST_UPDATES):
        seconds += _seconds(trainer, update) - step_seconds
        num_tokens += update.num_tokens
        if seconds > TRIAL_SECONDS:
            break
    return Trial(max(seconds, 1e-9) / num_tokens, step_seconds, peak_memory(device))


def _seconds(trainer: Trainer, update: Update) -> float:
    started_at = time.perf_counter()
    trainer.update(update)
    if trainer.ranks.device.type == "cuda":
        torch.cuda.synchronize(trainer.ranks.device)
    return time.perf_counter() - started_at


def reset_peak_memory(device: torch.device) -> None:
    """Makes `peak_memory` count from here, where that can be."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    elif sys.platform == "linux":
        with suppress(OSError):  # some containers forbid it
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def peak_memory(device: torch.device) -> int:
    """Returns the most bytes that were in use: of the GPU, or resident in the process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if sys.platform == "linux":
        status = Path("/proc/self/status").read_text(encoding="ascii")
        (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
