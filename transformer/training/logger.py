"""What a run says: lines for people on stderr and in train.log, numbers for machines in
metrics.jsonl and TensorBoard.
"""

from __future__ import annotations

import json
import logging
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tqdm import tqdm

from transformer.errors import UserError

log = logging.getLogger("transformer")


class ConsoleHandler(logging.Handler):
    """Prints messages to stderr above any progress bar; warnings say that they are."""

    def emit(self, record: logging.LogRecord) -> None:
        """Prints one message; nothing stops because stderr is closed or its disk is full."""
        if sys.stderr is None:
            return
        prefix = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        with suppress(OSError):
            tqdm.write(prefix + record.getMessage(), file=sys.stderr)


class LogFile(logging.Handler):
    """Appends messages to a file, with the time; one that cannot be written costs a warning.

    Args:
        path: the file; it is opened for each message, so that a folder that has gone is noticed.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        self._path = path
        self._warned = False

    def emit(self, record: logging.LogRecord) -> None:
        """Appends one message."""
        try:
            with self._path.open("a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(self.format(record) + "\n")
        except OSError as error:
            if not self._warned:
                self._warned = True  # before it is said: this handler hears it too
                reason = error.strerror or error
                log.warning("%s: could not be written: %s; some lines are lost", self._path, reason)


def log_to_console(level: int = logging.INFO) -> None:
    """Sends what the package says to stderr; calling it again changes only the level."""
    log.setLevel(level)
    log.propagate = False
    if not any(isinstance(handler, ConsoleHandler) for handler in log.handlers):
        log.addHandler(ConsoleHandler())


@contextmanager
def log_to_file(path: Path) -> Iterator[None]:
    """Also appends what the package says to a file, with the time, until the block ends."""
    handler = LogFile(path)
    log.addHandler(handler)
    if log.level == logging.NOTSET:
        log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)


class Metrics:
    """Numbers by step, in `metrics.jsonl` and TensorBoard; each step stands there once, however
    often a run resumes.

    Args:
        run_dir: the run.
        after_step: the run goes on from here: records of later steps are dropped,
        validated_step: and those of later validations.
        check: called before writing; raises `UserError` if the directory is not the run's any more.

    Raises:
        UserError: here and when recording: `metrics.jsonl` cannot be written.
    """

    def __init__(
        self,
        run_dir: Path,
        after_step: int,
        validated_step: int,
        check: Callable[[], object] = lambda: None,
    ) -> None:
        from transformer.training.event_file import EventFile

        self._check = check
        self._path = run_dir / "metrics.jsonl"
        with self._writing():
            last = {"validation": validated_step}
            kept = [x for x in _lines(self._path) if _step(x) <= last.get(_kind(x), after_step)]
            aside = self._path.with_name(self._path.name + ".partial")
            aside.write_text("".join(kept), encoding="utf-8")
            aside.replace(self._path)
        self._events = EventFile(run_dir / "tensorboard", after_step, validated_step)

    def record(self, kind: str, step: int, values: Mapping[str, Any]) -> None:
        """Writes numbers of a kind, such as `train` or `validation`; None stands for no value."""
        line = json.dumps({"kind": kind, "step": step, **values}, ensure_ascii=False)
        with self._writing(), self._path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
        numbers = {f"{kind}/{k}": x for k, x in values.items() if isinstance(x, (int, float))}
        self._events.write_numbers(step, numbers)

    def record_text(self, name: str, step: int, text: str) -> None:
        """Writes a text to TensorBoard, such as sample translations."""
        self._events.write_text(step, name, text)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        self._check()
        try:
            yield
        except OSError as error:
            raise UserError(
                f"{self._path}: could not be written: {error.strerror or error}; once it can be,"
                f" `transformer resume {self._path.parent}` goes on from the last checkpoint"
            ) from None


def _lines(path: Path) -> list[str]:
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8", errors="replace")
    return [line + "\n" for line in text.split("\n")[:-1]]  # without one that was cut short


def _step(line: str) -> float:
    """Returns the step of a record; infinity for what is none."""
    try:
        return int(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return math.inf


def _kind(line: str) -> str:
    """Returns the kind of a record; nothing for what is none."""
    try:
        return str(json.loads(line)["kind"])
    except (ValueError, KeyError, TypeError):
        return ""


def clock(seconds: float) -> str:
    """Returns a duration as h:mm:ss."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"
