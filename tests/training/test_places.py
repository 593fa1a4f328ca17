"""Directories of runs that cannot be written, fill up, vanish or move: one sentence, and the
checkpoint before is intact.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from no_privileges import no_privileges
from small_task import Command

from transformer.config import Config
from transformer.config_file import dump_config
from transformer.errors import UserError
from transformer.training import trainer
from transformer.training.checkpoint import checkpoint_path, list_checkpoints, read_checkpoint
from transformer.training.run import train

Make = Callable[..., Config]


def test_a_run_directory_that_may_not_be_written_is_named(
    make_config: Make, tmp_path: Path
) -> None:
    config = make_config(run="closed/run")
    (tmp_path / "closed").mkdir(mode=0o555)
    with no_privileges(), pytest.raises(UserError, match=r"run: cannot be written: Permission"):
        train(config)


def test_a_checkpoint_folder_that_became_read_only_ends_the_run_and_spoils_nothing(
    make_config: Make,
) -> None:
    train(make_config("training.max_steps=10"))
    config = make_config()
    folder = Path(config.run_dir) / "checkpoints"
    folder.chmod(0o555)
    try:
        with (
            no_privileges(),
            pytest.raises(UserError, match=r"20\.safetensors: could not be written: Permission"),
        ):
            train(config, resume=True)
    finally:
        folder.chmod(0o755)
    assert read_checkpoint(checkpoint_path(Path(config.run_dir), 10)).step == 10
    train(config, resume=True)
    assert list_checkpoints(Path(config.run_dir))[-1][0] == 20


def test_a_run_that_may_only_be_read_translates(
    trained_run: Path, command: Command, tmp_path: Path
) -> None:
    run = shutil.copytree(trained_run, tmp_path / "run")
    before = command("translate", run, input=b"a b\nc d\n")
    for path in (*run.rglob("*"), run):
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        with no_privileges():
            after = command("translate", run, input=b"a b\nc d\n")
    finally:
        for path in (run, *run.rglob("*")):
            path.chmod(0o755)
    assert (after.status, after.output) == (0, before.output)


def at_step(monkeypatch: pytest.MonkeyPatch, step: int, happens: Callable[[], object]) -> None:
    """Lets something happen to the world before an update."""
    update = trainer.Trainer.update

    def updated(self: trainer.Trainer, what: trainer.Update) -> bool:
        if self.state.progress.step + 1 == step:
            happens()
        return update(self, what)

    monkeypatch.setattr(trainer.Trainer, "update", updated)


def test_a_run_whose_directory_is_deleted_ends_in_a_sentence(
    make_config: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config("training.log_every=1000", "validation.every=1000")
    at_step(monkeypatch, 7, lambda: shutil.rmtree(config.run_dir))
    with pytest.raises(UserError, match="was deleted, moved or replaced while a run was using it"):
        train(config)
    assert not Path(config.run_dir).exists()


def test_a_run_writes_nothing_into_the_directory_of_the_run_that_took_its_place(
    make_config: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config("training.log_every=1000", "validation.every=1000")
    run_dir = Path(config.run_dir)

    def replace() -> None:
        shutil.rmtree(run_dir)
        (run_dir / "checkpoints").mkdir(parents=True)
        (run_dir / ".lock").touch()

    at_step(monkeypatch, 7, replace)
    with pytest.raises(UserError, match="was deleted, moved or replaced"):
        train(config)
    assert not list_checkpoints(run_dir)


def test_a_run_that_is_moved_while_it_trains_goes_on_from_its_last_checkpoint(
    make_config: Make, command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = make_config("training.log_every=1000", "validation.every=1000")
    with monkeypatch.context() as patch:
        at_step(patch, 17, lambda: shutil.move(config.run_dir, tmp_path / "moved"))
        with pytest.raises(UserError, match="if it was moved, `transformer resume` goes on"):
            train(config)
    done = command("resume", tmp_path / "moved")
    assert done.status == 0, done.error
    assert "resuming after step 10" in done.error
    assert list_checkpoints(tmp_path / "moved")[-1][0] == 20


ON_A_SMALL_DISK = """
mount -t tmpfs -o size=1m none "$DISK" || smaller="ulimit -f 100"  # where mounting is forbidden
cp -r "$STARTED" "$DISK/run"
( $smaller; "$PYTHON" -m transformer train "$CONFIG" --resume )
echo "status $?"
"$PYTHON" -m transformer translate "$DISK/run" --input "$LINES" && echo "it translates"
"$PYTHON" -m transformer train "$CONFIG" --resume training.max_steps=5
ls "$DISK/run/checkpoints"
"""


@pytest.mark.slow
def test_a_disk_that_fills_up_ends_the_run_in_a_sentence_and_spoils_nothing(
    make_config: Make, corpus_folder: Path, tmp_path: Path
) -> None:
    """The disk is a tmpfs of 1 MB, mounted in a name space of its own."""
    started = make_config("training.max_steps=5", run="started")
    train(started)
    often = ("training.save_every=1", "training.keep_checkpoints=50", "training.max_steps=1000")
    (tmp_path / "config.yaml").write_text(dump_config(make_config(*often, run="disk/run")))
    (tmp_path / "disk").mkdir()
    own = ["unshare", "-rm"]
    alone = own if subprocess.run([*own, "true"], check=False).returncode == 0 else []
    done = subprocess.run(
        [*alone, "sh", "-c", ON_A_SMALL_DISK],
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "DISK": str(tmp_path / "disk"),
            "STARTED": started.run_dir,
            "CONFIG": str(tmp_path / "config.yaml"),
            "LINES": str(corpus_folder / "valid.xx"),
            "PYTHON": sys.executable,
        },
    )
    assert "Traceback" not in done.stderr
    assert "status 1\n" in done.stdout
    assert "it translates" in done.stdout
    (said,) = (x for x in done.stderr.splitlines() if x.startswith("transformer: "))
    assert re.search(
        r"\.safetensors: could not be written: (No space left on device|File too large);", said
    )
    assert "checkpoints written before are intact" in said
    assert "resuming after step" in done.stderr
    assert ".partial" not in done.stdout
