"""What a run writes about itself: numbers that TensorBoard reads, and disks that fail."""

from __future__ import annotations

import io
import json
import logging
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from full_disk import full_disk
from small_task import Command
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from transformer.config import Config
from transformer.config_file import dump_config
from transformer.errors import UserError
from transformer.training.logger import ConsoleHandler, Metrics, log, log_to_file
from transformer.training.run import train

Make = Callable[..., Config]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [x.getMessage() for x in caplog.records if x.levelno == logging.WARNING]


def test_tensorboard_shows_each_step_once_with_the_numbers_of_the_metrics(
    make_config: Make,
) -> None:
    config = make_config("training.save_every=100")
    train(make_config("training.save_every=100", "training.max_steps=13"))
    run_dir = Path(config.run_dir)
    for path in (run_dir / "checkpoints").glob("*13.safetensors"):
        path.unlink()  # as if killed: what follows step 10 is done again
    train(config, resume=True)
    records = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    board = EventAccumulator(str(run_dir / "tensorboard")).Reload()
    for name in ("train/loss", "train/learning_rate", "validation/bleu"):
        kind, key = name.split("/")
        expected = {r["step"]: r[key] for r in records if r["kind"] == kind}
        assert {event.step: event.value for event in board.Scalars(name)} == pytest.approx(expected)
        assert len(board.Scalars(name)) == len(expected)
    *_, last = board.Tensors("samples/text_summary")
    assert last.step == 20
    assert b"reference: " in last.tensor_proto.string_val[0]


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_how_far_a_run_is_and_a_file_holds_lines_alone(
    make_config: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet = ("training.max_steps=3", "validation.translate=false", "validation.metric=loss")
    shown = []
    for number, stream in enumerate((Terminal(), io.StringIO())):
        monkeypatch.setattr(sys, "stderr", stream)
        train(make_config(*quiet, run=f"run{number}"))
        shown.append(stream.getvalue())
    assert "0/3" in shown[0]
    assert "update" in shown[0]
    assert shown[1] == ""


def test_a_run_on_a_full_disk_ends_in_a_sentence(
    make_config: Make, command: Command, tmp_path: Path
) -> None:
    train(make_config("training.max_steps=1", run="prepares"))
    config = make_config("training.max_steps=300", "training.log_every=1", "validation.every=1000")
    path = tmp_path / "config.yaml"
    path.write_text(dump_config(config))
    with full_disk(6000):
        done = command("train", path, "training.save_every=1000")
    assert done.status == 1
    assert "Traceback" not in done.error
    assert "Logging error" not in done.error
    *_, last = done.error.splitlines()
    metrics = f"{config.run_dir}/metrics.jsonl"
    assert last.startswith(f"transformer: {metrics}: could not be written: File too large")
    (board,) = (line for line in done.error.splitlines() if "TensorBoard" in line)
    assert board.startswith(f"warning: {config.run_dir}/tensorboard: File too large; training goes")


def test_a_full_disk_costs_tensorboard_one_warning_and_the_metrics_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    metrics = Metrics(tmp_path, 0, 0)
    with full_disk(5000):
        for step in (1, 2, 3):
            metrics.record_text("samples", step, "x" * 9000)
            metrics.record("train", step, {"loss": 0.5})
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 3
    assert len(warnings(caplog)) == 1


def test_a_run_trains_to_its_end_without_tensorboard(
    make_config: Make, caplog: pytest.LogCaptureFixture
) -> None:
    config = make_config()
    run_dir = Path(config.run_dir)
    run_dir.mkdir()
    (run_dir / "tensorboard").write_text("a file stands where the folder should")
    train(config, resume=True)
    assert [line for line in warnings(caplog) if "TensorBoard" in line] == warnings(caplog)
    assert len(warnings(caplog)) == 1
    assert '"step": 20' in (run_dir / "metrics.jsonl").read_text()


def test_metrics_of_a_run_directory_that_has_gone_are_refused_in_a_sentence(
    tmp_path: Path,
) -> None:
    run_dir = tmp_path / "run"
    with pytest.raises(UserError, match=r"metrics\.jsonl: could not be written: No such file"):
        Metrics(run_dir, 0, 0)
    run_dir.mkdir()
    metrics = Metrics(run_dir, 0, 0)
    shutil.rmtree(run_dir)
    with pytest.raises(UserError, match=r"metrics\.jsonl: could not be written: No such file"):
        metrics.record("train", 1, {"loss": 0.5})


def test_a_log_on_a_full_disk_costs_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture
) -> None:
    path = tmp_path / "train.log"
    with caplog.at_level(logging.INFO, "transformer"), log_to_file(path):
        with full_disk(1000):
            for number in range(50):
                log.info("line %d", number)
        log.info("the disk has room again")
    (warning,) = warnings(caplog)
    assert warning == f"{path}: could not be written: File too large; some lines are lost"
    assert path.read_text().startswith("20")
    assert path.read_text().endswith("INFO the disk has room again\n")
    assert capfd.readouterr().err == ""


def test_nothing_stops_because_stderr_is_closed_or_on_a_full_disk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    record = log.makeRecord("transformer", logging.INFO, "x.py", 1, "said", (), None)
    with suppress(OSError), open("/dev/full", "w", buffering=1) as full:
        for stream in (full, None):
            with monkeypatch.context() as patch:
                patch.setattr(sys, "stderr", stream)
                ConsoleHandler().emit(record)
