"""What a run says: lines for people on stderr and in train.log, numbers for machines in
metrics.jsonl and TensorBoard.
"""

from __future__ import annotations

import json
import logging
import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tqdm import tqdm

log = logging.getLogger("transformer")


class ConsoleHandler(logging.Handler):
    """Prints messages to stderr above any progress bar; warnings say that they are."""

    def emit(self, record: logging.LogRecord) -> None:
        """Prints one message."""
        prefix = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        tqdm.write(prefix + record.getMessage(), file=sys.stderr)


def log_to_console(level: int = logging.INFO) -> None:
    """Sends what the package says to stderr; calling it again changes only the level."""
    log.setLevel(level)
    log.propagate = False
    if not any(isinstance(handler, ConsoleHandler) for handler in log.handlers):
        log.addHandler(ConsoleHandler())


@contextmanager
def log_to_file(path: Path) -> Iterator[None]:
    """Also appends what the package says to a file, with the time, until the block ends."""
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    log.addHandler(handler)
    if log.level == logging.NOTSET:
        log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        handler.close()


class Metrics:
    """Numbers by step, in `metrics.jsonl` and TensorBoard; each step stands there once, however
    often a run resumes.

    Args:
        run_dir: the run.
        after_step: records of later steps are dropped: the run goes on from here.
    """

    def __init__(self, run_dir: Path, after_step: int) -> None:
        from torch.utils.tensorboard.writer import SummaryWriter

        path = run_dir / "metrics.jsonl"
        kept = [line for line in _lines(path) if _step(line) <= after_step]
        aside = path.with_name(path.name + ".partial")
        aside.write_text("".join(kept), encoding="utf-8")
        aside.replace(path)
        self._file = path.open("a", encoding="utf-8")
        self._board = SummaryWriter(str(run_dir / "tensorboard"), purge_step=after_step + 1)

    def record(self, kind: str, step: int, values: Mapping[str, Any]) -> None:
        """Writes numbers of a kind, such as `train` or `validation`; None stands for no value."""
        self._file.write(
            json.dumps({"kind": kind, "step": step, **values}, ensure_ascii=False) + "\n"
        )
        self._file.flush()
        for name, value in values.items():
            if isinstance(value, (int, float)):
                self._board.add_scalar(f"{kind}/{name}", value, step)

    def record_text(self, name: str, step: int, text: str) -> None:
        """Writes a text to TensorBoard, such as sample translations."""
        self._board.add_text(name, text, step)

    def close(self) -> None:
        """Brings all to disk."""
        self._file.close()
        self._board.close()


def _lines(path: Path) -> list[str]:
    if not path.exists():
        return []
    return path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)


def _step(line: str) -> float:
    """Returns the step of a record; infinity for one that was cut short."""
    try:
        return int(json.loads(line)["step"]) if line.endswith("\n") else math.inf
    except (ValueError, KeyError, TypeError):
        return math.inf


def clock(seconds: float) -> str:
    """Returns a duration as h:mm:ss."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"
