"""What a validation measures, which model it chooses, and what it says."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from transformer import Translator
from transformer.config import Config
from transformer.data.batching import collate
from transformer.data.corpus import encode_corpus, load_corpora
from transformer.evaluation import evaluate
from transformer.ids import PAD
from transformer.training.checkpoint import BEST, list_checkpoints, load_model, read_checkpoint
from transformer.training.run import train

Make = Callable[..., Config]
NOISY = ("model.dropout=0.3", "model.attention_dropout=0.3", "training.label_smoothing=0.2")


def records(config: Config, kind: str) -> list[dict[str, Any]]:
    lines = (Path(config.run_dir) / "metrics.jsonl").read_text().splitlines()
    return [record for line in lines if (record := json.loads(line))["kind"] == kind]


def loss_written_out(config: Config, model_file: str | Path) -> float:
    """Returns the mean cross-entropy of a stored model over the validation pairs."""
    loaded = load_model(model_file)
    raw = load_corpora(config.data.validation, config.data)
    pairs = encode_corpus(raw, loaded.tokenizers, config.data, filters=False)
    batch = collate(*pairs.ids(range(len(pairs))))
    with torch.no_grad():
        logits = loaded.model.eval()(batch.src, batch.tgt)
    loss = nn.functional.cross_entropy(
        logits.flatten(0, 1), batch.labels.flatten(), ignore_index=PAD
    )
    return loss.item()


def test_its_loss_is_the_plain_cross_entropy_without_dropout_and_smoothing(
    make_config: Make,
) -> None:
    config = make_config(*NOISY, "validation.translate=false", "validation.metric=loss")
    train(config)
    (found, *_), last = records(config, "validation"), list_checkpoints(Path(config.run_dir))
    (first,) = [path for step, path in last if step == 10]
    assert found["step"] == 10
    assert found["loss"] == pytest.approx(loss_written_out(config, first), rel=1e-5)
    assert found["perplexity"] == pytest.approx(math.exp(found["loss"]), rel=1e-6)


def test_the_moving_average_is_what_is_validated_and_what_is_kept_as_best(
    make_config: Make,
) -> None:
    config = make_config(
        "training.ema_decay=0.9",
        "training.max_steps=10",
        "validation.translate=false",
        "validation.metric=loss",
    )
    train(config)
    (found,) = records(config, "validation")
    run_dir = Path(config.run_dir)
    ((_, path),) = list_checkpoints(run_dir)
    full, best = read_checkpoint(path), read_checkpoint(run_dir / BEST)
    for name, weight in best.weights().items():
        assert torch.equal(weight, full.tensors[f"ema.{name}"])
        assert not torch.equal(weight, full.weights()[name])
    assert found["loss"] == pytest.approx(loss_written_out(config, run_dir / BEST), rel=1e-5)


def test_the_best_by_loss_is_the_lowest(make_config: Make) -> None:
    config = make_config(
        "validation.translate=false",
        "validation.metric=loss",
        "validation.every=5",
        "training.learning_rate=0.1",  # so that the loss goes up and down
        "training.max_steps=40",
    )
    train(config)
    losses = {r["step"]: r["loss"] for r in records(config, "validation")}
    assert losses[40] > min(losses.values())
    best = read_checkpoint(Path(config.run_dir) / BEST)
    assert best.step == min(losses, key=lambda step: losses[step])


def test_reports_and_samples_stand_in_the_log(
    make_config: Make, caplog: pytest.LogCaptureFixture
) -> None:
    config = make_config("validation.samples=2", "training.max_steps=10")
    with caplog.at_level(logging.INFO, "transformer"):
        train(config)
    log = (Path(config.run_dir) / "train.log").read_text()
    report, *_ = [r for r in records(config, "train") if r["step"] == 10]
    line = rf"step 10/10  epoch {report['epoch']}  loss {report['loss']:.3f}"
    assert line + f"  lr {report['learning_rate']:.2e}" in log
    assert "target tokens/s  time left 0:00" in log
    (found,) = records(config, "validation")
    assert f"validation at step 10  loss {found['loss']:.3f}" in log
    assert f"BLEU {found['bleu']:.2f}  chrF {found['chrf']:.2f}" in log
    sources = Path(config.data.validation[0].source).read_text().splitlines()  # type: ignore[union-attr]
    references = Path(config.data.validation[0].target).read_text().splitlines()  # type: ignore[union-attr]
    for i in (0, -1):
        assert f"source    {sources[i]}\n  reference {references[i]}\n  output    " in log
    assert log.count("  output    ") == 2


@pytest.mark.parametrize(
    "setting",
    ["training.precision=bfloat16", "decoding.precision=int8", "validation.beam_size=null"],
)
def test_its_scores_are_those_of_translating_later_whatever_is_computed_with(
    make_config: Make, setting: str
) -> None:
    often = ("validation.every=10", "training.save_every=10", "training.keep_checkpoints=9")
    config = make_config(setting, *often, "training.max_steps=30")
    train(config)
    found = {r["step"]: (r["bleu"], r["chrf"]) for r in records(config, "validation")}
    assert max(chrf for _, chrf in found.values()) > 1, "else the claim is empty"
    sources, references = (
        Path(str(name)).read_text().splitlines()
        for name in (config.data.validation[0].source, config.data.validation[0].target)
    )
    for step, path in list_checkpoints(Path(config.run_dir)):
        translator = Translator.load(path)
        beam = config.validation.beam_size or config.decoding.beam_size
        options = replace(translator.options, beam_size=beam)
        scores = evaluate(translator.translate(sources, options), [references]).metrics
        later = scores["bleu"].score, scores["chrf"].score
        assert found[step] == pytest.approx(later, abs=0.005), step
