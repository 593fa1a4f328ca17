"""The directory of a run: one run at a time, and nothing in it is lost by mistake."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from transformer.config import Config
from transformer.config_file import dump_config
from transformer.errors import UserError
from transformer.training.checkpoint import BEST, FOLDER
from transformer.training.logger import log_to_file

LOCK = ".lock"
LOG = "train.log"
BEGUN = ".begun"
DELETED = ".deleted-"


@dataclass(frozen=True)
class Hold:
    """A run directory that no other run may use meanwhile.

    Attributes:
        run_dir: the directory.
        lock: its lock file, open and locked.
    """

    run_dir: Path
    lock: TextIO

    def check(self) -> None:
        """Makes sure that the directory is still there, and still the same.

        Raises:
            UserError: it was deleted, moved or replaced.
        """
        try:
            same = os.path.samestat(os.fstat(self.lock.fileno()), (self.run_dir / LOCK).stat())
        except OSError:
            same = False
        if not same:
            raise UserError(
                f"{self.run_dir}: was deleted, moved or replaced while a run was using it; if it"
                " was moved, `transformer resume` goes on from where it is now"
            )


@contextmanager
def hold_run(run_dir: Path) -> Iterator[Hold]:
    """Makes the run directory, keeps other runs out of it, and logs to its train.log.

    Raises:
        UserError: the directory cannot be written, or another run holds it.
    """
    is_new = not run_dir.exists()
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        lock = (run_dir / LOCK).open("a+", encoding="utf-8")
    except FileExistsError:
        raise UserError(f"{run_dir}: is a file; run_dir names a folder, new or of a run") from None
    except OSError as error:
        raise UserError(f"{run_dir}: cannot be written: {error.strerror}") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            holder = lock.read().strip() or "another process"
            raise UserError(f"{run_dir}: {holder} is training there; wait or stop it") from None
        lock.truncate(0)
        lock.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        lock.flush()
        for folder in (run_dir, run_dir / FOLDER):
            for left in (*folder.glob("*.partial"), *folder.glob(".tmp*")):
                left.unlink(missing_ok=True)  # of a process that was killed while it wrote
        _remove_deleted(run_dir)
        try:
            with log_to_file(run_dir / LOG):
                yield Hold(run_dir, lock)
        finally:
            if is_new:
                _remove_stub(run_dir)


def _remove_stub(run_dir: Path) -> None:
    """Removes a directory that was made for a run which then could not begin."""
    with suppress(OSError):
        left = list(run_dir.iterdir())
        if {path.name for path in left} <= {LOCK, LOG}:
            for path in left:
                path.unlink()
            run_dir.rmdir()


def _own_files(run_dir: Path) -> list[Path]:
    """Returns what a run has left in its directory, its log apart."""
    names = (FOLDER, BEST, "metrics.jsonl", "tensorboard")
    return [path for name in names if (path := run_dir / name).exists()]


def refuse_existing(run_dir: Path) -> None:
    """Makes sure that the directory holds no run.

    Raises:
        UserError: it does.
    """
    if _own_files(run_dir):
        raise UserError(
            f"{run_dir}: holds a run already; --resume goes on with it, --overwrite deletes it,"
            " run_dir=OTHER starts beside it"
        )


def delete_run(run_dir: Path) -> None:
    """Deletes what a run has left in its directory, and nothing else.

    Each thing is put aside first, so that a process that is killed leaves no part of it that
    counts.
    """
    for path in _own_files(run_dir):
        path.rename(path.with_name(DELETED + path.name))
    _remove_deleted(run_dir)


def _remove_deleted(run_dir: Path) -> None:
    for path in run_dir.glob(DELETED + "*"):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def write_config(config: Config) -> None:
    """Writes the configuration into the run directory, and who began the run.

    Raises:
        UserError: it cannot be written.
    """
    run_dir = Path(config.run_dir)
    try:
        aside = run_dir / "config.yaml.partial"
        aside.write_text(dump_config(config), encoding="utf-8")
        aside.replace(run_dir / "config.yaml")
        (run_dir / BEGUN).write_text(_starter(), encoding="utf-8")
    except OSError as error:
        raise UserError(f"{run_dir}: cannot be written: {error.strerror}") from None


def began_here(run_dir: Path) -> bool:
    """Says whether the torchrun that started this process has worked on this run before: then it
    has started its processes again, since one of them died or another machine came.
    """
    try:
        return _starter() == (run_dir / BEGUN).read_text(encoding="utf-8") != ""
    except OSError:
        return False


def _starter() -> str:
    """Names the torchrun that started this process; nothing if there is none."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return ""
    return f"{os.environ['TORCHELASTIC_RUN_ID']} {socket.gethostname()} {os.getppid()}"
