"""What surrounds training: directories, locks, and what a failed start must leave alone."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from transformer.config import Config
from transformer.config_file import load_config
from transformer.errors import InterruptedRun, UserError
from transformer.training import validation
from transformer.training.checkpoint import (
    BEST,
    list_checkpoints,
    load_model,
    read_checkpoint,
    write_checkpoint,
)
from transformer.training.directory import hold_run
from transformer.training.resuming import newest_checkpoint
from transformer.training.run import train

Make = Callable[..., Config]


def test_a_signal_in_the_last_validation_loses_nothing(
    make_config: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = validation.Validator.run

    def interrupted(self: validation.Validator, model: torch.nn.Module) -> validation.Validation:
        os.kill(os.getpid(), signal.SIGTERM)
        return run(self, model)  # type: ignore[arg-type]

    config = make_config("training.max_steps=7", "training.save_every=100")
    with monkeypatch.context() as patch:
        patch.setattr(validation.Validator, "run", interrupted)
        with pytest.raises(InterruptedRun):
            train(config)
    assert [step for step, _ in list_checkpoints(Path(config.run_dir))] == [7]


def test_overwriting_deletes_nothing_until_the_new_run_can_start(make_config: Make) -> None:
    config = make_config("training.max_steps=3")
    train(config)
    before = (Path(config.run_dir) / BEST).read_bytes()
    with pytest.raises(UserError, match="no such file"):
        train(make_config("data.train.0.source=/nowhere"), overwrite=True)
    assert (Path(config.run_dir) / BEST).read_bytes() == before


def test_resuming_where_no_run_is_says_that_one_starts(
    make_config: Make, caplog: pytest.LogCaptureFixture
) -> None:
    config = make_config("training.max_steps=1", "validation.every=1000")
    with caplog.at_level(logging.INFO, "transformer"):
        train(config, resume=True)
    assert f"{config.run_dir}: holds no checkpoint yet; a new run begins" in caplog.text


def test_resuming_without_a_checkpoint_deletes_no_model(make_config: Make) -> None:
    config = make_config("training.max_steps=3", "validation.every=1000")
    train(config)
    run_dir = Path(config.run_dir)
    for _, path in list_checkpoints(run_dir):
        path.unlink()
    best = (run_dir / BEST).read_bytes()
    with pytest.raises(UserError, match="the loss is nan"):
        train(make_config("training.learning_rate=1e30", "training.clip_norm=null"), resume=True)
    assert (run_dir / BEST).read_bytes() == best


def test_a_run_can_be_overwritten_by_one_that_starts_from_its_weights(make_config: Make) -> None:
    config = make_config("training.max_steps=3")
    train(config)
    train(
        make_config("training.max_steps=5", f"init_from={config.run_dir}", "training.save_every=5"),
        overwrite=True,
    )
    assert [step for step, _ in list_checkpoints(Path(config.run_dir))] == [5]


def test_a_resume_that_fails_leaves_the_configuration_as_it_was(make_config: Make) -> None:
    config = make_config("training.max_steps=3")
    train(config)
    with pytest.raises(UserError, match="no such file"):
        train(make_config("data.validation.0.source=/nowhere"), resume=True)
    assert load_config(Path(config.run_dir) / "config.yaml") == config


@pytest.mark.parametrize(("side", "name"), [("source", "sources"), ("target", "references")])
def test_validation_on_blank_lines_is_refused(
    side: str, name: str, make_config: Make, tmp_path: Path
) -> None:
    file = tmp_path / "blank"
    file.write_text(" \n\n\t\n")
    other = tmp_path / "text"
    other.write_text("a\nb\nc\n")
    paths = {"source": other, "target": other, side: file}
    corpus = f"[{{source: {paths['source']}, target: {paths['target']}}}]"
    with pytest.raises(UserError, match=f"data.validation: all of its 3 {name} are blank"):
        train(make_config(f"data.validation={corpus}"))


def test_what_was_best_is_forgotten_when_validation_measures_something_else(
    make_config: Make, caplog: pytest.LogCaptureFixture
) -> None:
    train(make_config("training.max_steps=10"))
    config = make_config("validation.metric=loss")
    with caplog.at_level(logging.INFO, "transformer"):
        train(config, resume=True)
    assert "what was best so far is forgotten" in caplog.text
    assert load_model(config.run_dir).step == 20


def test_what_was_best_is_forgotten_when_the_validation_text_has_changed_and_not_when_it_moved(
    make_config: Make, corpus_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines = (corpus_folder / "valid.yy").read_text().splitlines(keepends=True)
    files = [tmp_path / name for name in ("one", "two")]
    for file in files:
        file.write_text("".join(lines))
    own = [f"data.validation.0.target={file}" for file in files]
    train(make_config("training.max_steps=5", own[0]))
    with caplog.at_level(logging.INFO, "transformer"):
        train(make_config("training.max_steps=6", own[1]), resume=True)
        assert "what was best so far is forgotten" not in caplog.text
        files[1].write_text("".join(reversed(lines)))
        train(make_config("training.max_steps=7", own[1]), resume=True)
    assert "what was best so far is forgotten" in caplog.text


def test_a_second_run_in_the_same_directory_is_refused_and_names_the_first(
    make_config: Make,
) -> None:
    config = make_config("training.max_steps=2")
    with (
        hold_run(Path(config.run_dir)),
        pytest.raises(UserError, match=rf"process {os.getpid()} on .* is training there"),
    ):
        train(config)
    train(config)


def test_what_a_killed_process_left_half_written_is_removed(make_config: Make) -> None:
    config = make_config("training.max_steps=2")
    train(config)
    folder = Path(config.run_dir) / "checkpoints"
    for name in (".tmpAbCdEf", "step-00000009.safetensors.partial"):
        (folder / name).write_bytes(b"half")
    train(make_config("training.max_steps=3"), resume=True)
    assert sorted(path.name for path in folder.iterdir()) == [
        "step-00000002.safetensors",
        "step-00000003.safetensors",
    ]


def test_checkpoints_can_be_read_by_whom_the_umask_allows(make_config: Make) -> None:
    config = make_config("training.max_steps=2")
    before = os.umask(0o022)
    try:
        train(config)
    finally:
        os.umask(before)
    assert stat.S_IMODE((Path(config.run_dir) / BEST).stat().st_mode) == 0o644


def test_an_exported_model_among_the_checkpoints_is_named_and_passed_over(
    make_config: Make, caplog: pytest.LogCaptureFixture
) -> None:
    config = make_config("training.max_steps=2")
    train(config)
    run_dir = Path(config.run_dir)
    intruder = run_dir / "checkpoints" / "step-00000008.safetensors"
    intruder.write_bytes((run_dir / BEST).read_bytes())
    found = newest_checkpoint(run_dir)
    assert found is not None
    assert found.step == read_checkpoint(found.path).step == 2
    assert f"{intruder}: holds a model, but not the state of its training" in caplog.text


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"step": "3"}, "its step is '3'"),
        ({"progress": [1]}, "its progress: "),
        ({"progress.step": None}, "its progress.step: Field required"),
        ({"progress.step": 2.5}, "its progress.step: "),
        ({"progress.seconds": "long"}, "its progress.seconds: "),
        ({"progress.best_value": None}, "its progress.best_value: Field required"),
        ({"progress.position": {}}, "its progress.position.epoch: Field required"),
        ({"data": None}, "does not say which data it was trained on"),
        ({"data": 5}, "does not say which data it was trained on"),
    ],
    ids=str,
)
def test_a_checkpoint_whose_state_is_not_right_is_named_and_the_one_before_it_used(
    trained_run: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    changes: dict[str, object],
    says: str,
) -> None:
    before, newest = list_checkpoints(trained_run)[-2:]
    (tmp_path / "checkpoints").mkdir()
    shutil.copy(before[1], tmp_path / "checkpoints")
    read, path = read_checkpoint(newest[1]), tmp_path / "checkpoints" / newest[1].name
    for name, value in changes.items():
        *above, key = name.split(".")
        section = read.metadata[above[0]] if above else read.metadata
        section.pop(key) if value is None else section.update({key: value})
    write_checkpoint(path, read.tensors, read.metadata)
    found = newest_checkpoint(tmp_path)
    assert found is not None
    assert found.step == before[0]
    assert f"{path}: {says}" in caplog.text


def test_a_checkpoint_without_its_optimizer_is_refused_by_what_is_missing(
    make_config: Make,
) -> None:
    config = make_config("training.max_steps=2", "training.ema_decay=0.9")
    train(config)
    ((_, path),) = list_checkpoints(Path(config.run_dir))
    read = read_checkpoint(path)
    for kind in ("optimizer.exp_avg_sq.", "ema."):
        lacking = next(name for name in read.tensors if name.startswith(kind))
        tensors = {name: x for name, x in read.tensors.items() if name != lacking}
        write_checkpoint(path, tensors, read.metadata)
        with pytest.raises(UserError, match=rf"{path.name}: holds no {lacking} of shape"):
            train(make_config("training.ema_decay=0.9"), resume=True)


def test_other_training_data_is_refused_by_what_differs(
    make_config: Make, corpus_folder: Path, tmp_path: Path
) -> None:
    config = make_config("training.max_steps=2")
    train(config)
    other = tmp_path / "other.xx"
    other.write_bytes((corpus_folder / "train.xx").read_bytes().replace(b"a", b"b"))
    with pytest.raises(UserError) as refused:
        train(make_config(f"data.train.0.source={other}"), resume=True)
    newest = list_checkpoints(Path(config.run_dir))[-1][1]
    assert str(refused.value) == (
        f"{newest}: the training data is not what it was when this run began (data.train.0.source:"
        f" '{corpus_folder}/train.xx' so far, '{other}' from here on); a run keeps what it was"
        " trained with. Start a new run on it with"
        f" init_from={config.run_dir}"
    )


def test_training_data_may_move(make_config: Make, corpus_folder: Path, tmp_path: Path) -> None:
    whole = make_config("training.max_steps=4", run="whole")
    train(whole)
    train(make_config("training.max_steps=2"))
    moved = shutil.copytree(corpus_folder, tmp_path / "moved")
    data = f"data.train=[{{source: {moved}/train.xx, target: {moved}/train.yy}}]"
    config = make_config("training.max_steps=4", data)
    train(config, resume=True)
    one, two = (read_checkpoint(list_checkpoints(Path(x.run_dir))[-1][1]) for x in (whole, config))
    assert all(torch.equal(x, two.tensors[name]) for name, x in one.tensors.items())


def test_very_many_changed_settings_are_counted(make_config: Make) -> None:
    train(make_config("training.max_steps=2"))
    changes = ["seed=4", "model.d_ff=64", "model.dropout=0", "model.norm=rms", "model.qk_norm=true"]
    with pytest.raises(UserError, match=r"^seed: 3 so far, 4 now; model.*; and 2 more; a run keep"):
        train(make_config(*changes), resume=True)


def test_a_file_where_the_run_directory_should_be_is_named(
    make_config: Make, tmp_path: Path
) -> None:
    (tmp_path / "run").write_text("a file")
    with pytest.raises(UserError, match="run: is a file; run_dir names a folder"):
        train(make_config())
    assert (tmp_path / "run").read_text() == "a file"


def test_a_model_too_large_for_this_machine_is_refused_in_a_sentence(make_config: Make) -> None:
    with pytest.raises(UserError, match="a model of this size cannot be made here"):
        train(make_config("model.d_model=2", "model.d_ff=10000000000000"))
