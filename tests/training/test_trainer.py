"""The training loop: what resumes, what is kept, what stops."""

from __future__ import annotations

import json
import logging
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from transformer.config import Config
from transformer.config_file import dump_config
from transformer.errors import InterruptedRun, UserError
from transformer.training import trainer, validation
from transformer.training.checkpoint import (
    BEST,
    checkpoint_path,
    list_checkpoints,
    load_model,
    read_checkpoint,
)
from transformer.training.run import train

Make = Callable[..., Config]


def final_tensors(config: Config) -> dict[str, torch.Tensor]:
    return read_checkpoint(list_checkpoints(Path(config.run_dir))[-1][1]).tensors


def records(config: Config, kind: str) -> list[dict]:
    lines = (Path(config.run_dir) / "metrics.jsonl").read_text().splitlines()
    return [x for x in map(json.loads, lines) if x["kind"] == kind]


def assert_equal(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)


STOCHASTIC = (
    "model.attention_dropout=0.1",
    "training.ema_decay=0.9",
    "tokenizer.source_sampling=0.1",
    "tokenizer.target_sampling=0.1",
)


FAST = ("training.precision=bfloat16", "training.activation_checkpointing=true")
TWO_PASSES = {
    "r_drop": ("training.r_drop=2", "data.max_length=100", "training.source_word_dropout=0.1"),
    "simcut": ("training.simcut=3", "data.max_length=100", "training.target_word_dropout=0.1"),
}


@pytest.mark.parametrize(
    ("stop_at", "settings"),
    [(7, ()), (10, FAST), (13, TWO_PASSES["r_drop"]), (7, TWO_PASSES["simcut"])],
)
def test_a_run_stopped_and_resumed_ends_in_the_same_bits(
    make_config: Make, stop_at: int, settings: tuple[str, ...]
) -> None:
    settings = (*STOCHASTIC, *settings)
    whole = make_config(*settings, run="whole")
    train(whole)
    parts = make_config(*settings, f"training.max_steps={stop_at}", run="parts")
    train(parts)
    train(make_config(*settings, run="parts"), resume=True)
    assert_equal(final_tensors(whole), final_tensors(parts))
    kept = [{k: r[k] for k in ("step", "bleu", "loss")} for r in records(whole, "validation")]
    again = [{k: r[k] for k in ("step", "bleu", "loss")} for r in records(parts, "validation")]
    assert [r for r in again if r["step"] != stop_at or stop_at == 10] == kept
    losses = {r["step"]: r["loss"] for r in records(whole, "train")}
    assert all(
        r["learning_rate"] == s["learning_rate"]
        for r in records(whole, "train")
        for s in records(parts, "train")
        if r["step"] == s["step"]
    )
    assert losses


def test_an_interrupted_run_saves_and_resumes_in_the_same_bits(
    make_config: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = ("tokenizer.sampling_until=0.5", "training.second_pass_from=0.6")
    settings = (*STOCHASTIC, *TWO_PASSES["r_drop"], *later)
    whole = make_config(*settings, run="whole")
    train(whole)
    config = make_config(*settings, run="parts")
    seed_random = trainer.seed_random

    def interrupt(seed: int, step: int, micro_batch: int) -> None:
        if step in (4, 17) and micro_batch == 0 and step not in interrupted:
            interrupted.append(step)
            os.kill(os.getpid(), signal.SIGTERM)
        seed_random(seed, step, micro_batch)

    interrupted: list[int] = []
    monkeypatch.setattr(trainer, "seed_random", interrupt)
    for stopped_after in (3, 16):  # the update in which the signal comes is left undone
        with pytest.raises(InterruptedRun):
            train(config, resume=True)
        assert list_checkpoints(Path(config.run_dir))[-1][0] == stopped_after
    train(config, resume=True)
    assert_equal(final_tensors(whole), final_tensors(config))


def test_resume_then_save_writes_new_steps_and_overwrites_none(make_config: Make) -> None:
    config = make_config("training.keep_checkpoints=9", "training.max_steps=10")
    train(config)
    before = checkpoint_path(Path(config.run_dir), 10).read_bytes()
    train(make_config("training.keep_checkpoints=9"), resume=True)
    assert [step for step, _ in list_checkpoints(Path(config.run_dir))] == [10, 20]
    assert checkpoint_path(Path(config.run_dir), 10).read_bytes() == before


def test_only_the_newest_and_the_best_checkpoints_remain(
    make_config: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = iter([1.0, 5.0, 2.0, 3.0, 4.0])
    run = validation.Validator.run

    def valued(self: validation.Validator, model: torch.nn.Module) -> validation.Validation:
        found = run(self, model)  # type: ignore[arg-type]
        object.__setattr__(found, "bleu", next(values))
        return found

    monkeypatch.setattr(validation.Validator, "run", valued)
    every = ("training.save_every=1", "validation.every=1", "training.keep_checkpoints=1")
    train(make_config(*every, "training.max_steps=3"))
    config = make_config(*every, "training.max_steps=5")
    train(config, resume=True)
    assert [step for step, _ in list_checkpoints(Path(config.run_dir))] == [2, 5]
    assert load_model(config.run_dir).step == 2


def test_early_stopping_counts_over_a_resume(
    make_config: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run = validation.Validator.run

    def constant(self: validation.Validator, model: torch.nn.Module) -> validation.Validation:
        found = run(self, model)  # type: ignore[arg-type]
        object.__setattr__(found, "bleu", 10.0)
        return found

    monkeypatch.setattr(validation.Validator, "run", constant)
    patient = ("validation.every=2", "validation.patience=3")
    train(make_config(*patient, "training.max_steps=5"))  # validates at 2, 4, 5
    config = make_config(*patient)
    with caplog.at_level(logging.INFO, "transformer"):
        train(config, resume=True)
    assert list_checkpoints(Path(config.run_dir))[-1][0] == 6
    assert "no better validation for 3 times" in caplog.text


def test_a_non_finite_loss_stops_before_the_update(make_config: Make) -> None:
    config = make_config(
        "model.norm_first=false",
        "model.num_encoder_layers=6",
        "model.num_decoder_layers=6",
        "training.schedule=constant",
        "training.warmup_steps=0",
        "training.learning_rate=1e30",
        "training.clip_norm=null",
        "training.save_every=1",
    )
    with pytest.raises(
        UserError, match=r"step \d+: the loss is .*Try a lower training.learning_rate"
    ):
        train(config)
    weights = read_checkpoint(list_checkpoints(Path(config.run_dir))[-1][1]).weights()
    assert all(x.isfinite().all() for x in weights.values())


def test_bfloat16_updates_do_not_depend_on_the_cut(make_config: Make) -> None:
    """Weights become bfloat16 once an update, which several backward passes share."""
    found = []
    for max_tokens in (260, 4000):
        config = make_config(
            "model.dropout=0",
            "training.precision=bfloat16",
            "training.max_steps=1",
            f"training.max_tokens={max_tokens}",
            run=f"cut{max_tokens}",
        )
        train(config)
        found.append(final_tensors(config))
    for name, cut in found[0].items():
        if name.startswith("optimizer.exp_avg.") and not name.endswith("w_k.bias"):
            torch.testing.assert_close(cut, found[1][name], rtol=0.05, atol=1e-4)


def spoil(loss: Tensor, what: str) -> Tensor:
    """Returns a loss that is not a number, or one whose gradient alone is not."""
    if what == "loss":
        return loss * math.nan
    loss.register_hook(lambda gradient: gradient * math.nan)
    return loss


@pytest.mark.parametrize(
    ("whole_steps", "what", "says"),
    [
        (3, "loss", "the loss is nan"),
        (4, "loss", "the loss is nan"),  # the next is reported
        (3, "gradient", r"the loss is \d.*, the norm of its gradient nan"),
    ],
)
def test_an_update_that_is_not_finite_changes_neither_weights_nor_optimizer(
    make_config: Make, monkeypatch: pytest.MonkeyPatch, whole_steps: int, what: str, says: str
) -> None:
    loss, calls = trainer.training_loss, []
    apply, found = trainer.TrainingState.apply_update, []

    def spoilt(*args: Any) -> Tensor:
        calls.append(args)
        value = loss(*args)
        return spoil(value, what) if len(calls) > whole_steps else value

    def noting(self: trainer.TrainingState, *args: Any) -> float:
        rate = apply(self, *args)
        found.append([x.clone() for _, x in self.tensors()])
        return rate

    monkeypatch.setattr(trainer, "training_loss", spoilt)
    monkeypatch.setattr(trainer.TrainingState, "apply_update", noting)
    one_part = ("training.max_tokens=4000", "training.log_every=5")
    config = make_config(*one_part, "training.save_every=1000", "validation.every=1000")
    with pytest.raises(UserError, match=f"step {whole_steps + 1}: {says}"):
        train(config)
    assert len(found) > whole_steps
    for state in found[whole_steps:]:
        assert all(map(torch.equal, state, found[whole_steps - 1]))
    assert not list_checkpoints(Path(config.run_dir))


def test_a_finished_run_says_so_when_resumed(
    make_config: Make, caplog: pytest.LogCaptureFixture
) -> None:
    config = make_config("training.max_steps=4")
    train(config)
    before = final_tensors(config)
    with caplog.at_level(logging.INFO, "transformer"):
        train(make_config("training.max_steps=2"), resume=True)
    assert "already done: step 4 of training.max_steps 2" in caplog.text
    assert_equal(before, final_tensors(config))


def test_a_directory_that_holds_a_run_is_refused(make_config: Make) -> None:
    config = make_config("training.max_steps=2")
    train(config)
    with pytest.raises(UserError, match=r"holds a run already; --resume .* --overwrite"):
        train(config)
    train(config, overwrite=True)


def test_a_changed_learning_rate_is_applied_and_said(
    make_config: Make, caplog: pytest.LogCaptureFixture
) -> None:
    train(make_config("training.max_steps=5"))
    config = make_config("training.learning_rate=0.001", "training.schedule=constant")
    with caplog.at_level(logging.INFO, "transformer"):
        train(config, resume=True)
    assert "training.learning_rate: 0.005 so far, 0.001 from here on" in caplog.text
    assert records(config, "train")[-1]["learning_rate"] == 0.001


@pytest.mark.parametrize(
    "change", ["seed=4", "training.batch_tokens=500", "model.d_ff=64", "tokenizer.vocab_size=310"]
)
def test_a_change_of_what_a_step_means_is_refused_by_name(make_config: Make, change: str) -> None:
    train(make_config("training.max_steps=2"))
    with pytest.raises(UserError, match=rf"{change.split('=')[0]}: .*init_from"):
        train(make_config(change), resume=True)


def test_changed_training_data_is_refused_on_resume(make_config: Make, tmp_path: Path) -> None:
    config = make_config("training.max_steps=2")
    (pair,) = config.data.train
    moved = []
    for side in (pair.source, pair.target):
        assert side is not None
        moved.append(tmp_path / Path(side).name)
        moved[-1].write_bytes(Path(side).read_bytes())
    data = f"data.train=[{{source: {moved[0]}, target: {moved[1]}}}]"
    train(make_config("training.max_steps=2", data))
    lines = moved[1].read_text().splitlines()
    moved[1].write_text("\n".join([*lines[:-1], "b a"]) + "\n")
    with pytest.raises(UserError, match="training data is not what it was"):
        train(make_config(data), resume=True)


def test_resume_names_a_damaged_checkpoint_and_uses_the_one_before(
    make_config: Make, caplog: pytest.LogCaptureFixture
) -> None:
    whole = make_config(run="whole")
    train(whole)
    train(make_config("training.max_steps=15"))
    config = make_config()
    newest = checkpoint_path(Path(config.run_dir), 15)
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 1
    newest.write_bytes(data)
    with caplog.at_level(logging.INFO, "transformer"):
        train(config, resume=True)
    assert f"{newest}: damaged" in caplog.text
    assert "resuming after step 10" in caplog.text
    assert_equal(final_tensors(whole), final_tensors(config))


def test_micro_batches_change_nothing_but_rounding(make_config: Make) -> None:
    still = ("model.dropout=0", "training.max_steps=6", "training.epsilon=1e-4")
    train(make_config(*still, "training.max_tokens=4000", run="whole"))
    train(make_config(*still, "training.max_tokens=256", run="parts"))
    a, b = (final_tensors(make_config(run=run)) for run in ("whole", "parts"))
    for name in a:
        if name.startswith("model."):
            torch.testing.assert_close(a[name], b[name], rtol=1e-4, atol=2e-5)


def test_each_example_is_seen_once_an_epoch_whatever_the_interruption(
    make_config: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[np.ndarray] = []
    update = trainer.Trainer.update

    def noted(self: trainer.Trainer, what: trainer.Update) -> bool:
        seen.append(what.examples)
        return update(self, what)

    monkeypatch.setattr(trainer.Trainer, "update", noted)
    quiet = ("validation.every=1000", "training.max_steps=1000")
    train(make_config(*quiet, "training.max_epochs=2", run="whole"))
    whole, seen[:] = list(seen), []
    per_epoch = len(whole) // 2
    train(make_config("validation.every=1000", f"training.max_steps={per_epoch * 37 // 100}"))
    train(make_config(*quiet, "training.max_epochs=2"), resume=True)
    assert [x.tolist() for x in seen] == [x.tolist() for x in whole]
    assert sorted(np.concatenate(seen).tolist()) == sorted([*range(150)] * 2)


def test_the_learning_rate_comes_down_by_the_end_of_the_last_epoch(make_config: Make) -> None:
    settings = ("training.schedule=linear", "training.log_every=1", "training.max_steps=1000")
    for epochs in (2, 3):  # the second time it goes on
        config = make_config(*settings, f"training.max_epochs={epochs}")
        train(config, resume=True)
        lines = (Path(config.run_dir) / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        found = [row for row in map(json.loads, lines) if "learning_rate" in row]
        assert found[-1]["epoch"] == epochs
        assert found[-1]["learning_rate"] == 0 < found[-2]["learning_rate"]


def test_fine_tuning_starts_from_the_weights_and_vocabulary_of_another_run(
    make_config: Make,
) -> None:
    first = make_config("training.max_steps=5", run="first")
    train(first)
    tuned = make_config(
        f"init_from={first.run_dir}", "training.max_steps=1", "training.learning_rate=1e-12"
    )
    train(tuned)
    a, b = load_model(first.run_dir), load_model(tuned.run_dir)
    assert a.tokenizers.source.model == b.tokenizers.source.model
    for (name, p), q in zip(a.model.named_parameters(), b.model.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=0, atol=1e-9, msg=name)
    with pytest.raises(UserError, match=r"weight .* is \(.*\), this model needs"):
        train(make_config(f"init_from={first.run_dir}", "model.d_ff=48", run="other"))


def test_a_start_from_a_whole_state_takes_no_more_than_what_translates(make_config: Make) -> None:
    """The moving average as weights, and nothing of the optimizer."""
    first = make_config("training.ema_decay=0.9", "training.max_steps=6", run="first")
    train(first)
    ((_, whole),) = list_checkpoints(Path(first.run_dir))
    found = []
    for run, start in (("whole", whole), ("best", first.run_dir)):
        config = make_config(f"init_from={start}", "training.max_steps=2", run=run)
        train(config)
        found.append(final_tensors(config))
    assert_equal(*found)


def test_sigterm_saves_and_exits_and_the_run_goes_on(make_config: Make, tmp_path: Path) -> None:
    config = make_config("training.max_steps=100000", "validation.every=100000")
    path = tmp_path / "config.yaml"
    path.write_text(dump_config(config))
    command = [sys.executable, "-m", "transformer", "train", str(path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("step 5/"):
                process.send_signal(signal.SIGTERM)
                break
        rest = process.stderr.read()
    assert process.returncode == 128 + signal.SIGTERM, rest
    assert "transformer resume" in rest
    step = list_checkpoints(Path(config.run_dir))[-1][0]
    assert step >= 5
    command = [sys.executable, "-m", "transformer", "resume", config.run_dir]
    done = subprocess.run(
        [*command, f"training.max_steps={step + 1}"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert f"resuming after step {step}" in done.stderr
    assert (Path(config.run_dir) / BEST).is_file()


def test_two_processes_train_what_one_does(make_config: Make, tmp_path: Path) -> None:
    """Dropout is on, and a second pass hides tokens: a micro-batch draws the same numbers on
    whatever rank it is computed.
    """
    settings = (*TWO_PASSES["simcut"], "training.max_steps=7", "training.epsilon=1e-4")
    alone = make_config(*settings, run="alone")
    train(alone)
    config = make_config(*settings, run="two")
    path = tmp_path / "config.yaml"
    path.write_text(dump_config(config))
    done = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"),
            *("--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0"),
            *("-m", "transformer", "train", str(path)),
        ],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    a, b = final_tensors(alone), final_tensors(config)
    for name in a:
        if name.startswith("model."):
            torch.testing.assert_close(a[name], b[name], rtol=1e-4, atol=2e-5)
    assert [r["bleu"] for r in records(alone, "validation")] == pytest.approx(
        [r["bleu"] for r in records(config, "validation")], abs=0.005
    )
