"""Settings reach what they are for, in a run from its configuration to its checkpoint."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from transformer import Translator
from transformer.config import Config
from transformer.model import attention, transformer
from transformer.training.checkpoint import list_checkpoints, read_checkpoint
from transformer.training.run import train

Make = Callable[..., Config]
QUIET = ("validation.translate=false", "validation.metric=loss")


@pytest.mark.parametrize("on", [True, False])
def test_activation_checkpointing_recomputes_layers_only_when_on(
    make_config: Make, monkeypatch: pytest.MonkeyPatch, on: bool
) -> None:
    checkpoint, calls = transformer.checkpoint, []

    def counted(*args: Any, **kwargs: Any) -> Any:
        calls.append(args)
        return checkpoint(*args, **kwargs)

    monkeypatch.setattr(transformer, "checkpoint", counted)
    setting = f"training.activation_checkpointing={str(on).lower()}"
    train(make_config(setting, "training.max_steps=1", "training.max_tokens=4000", *QUIET))
    assert len(calls) == (2 if on else 0)  # one update; one layer a side


def test_attention_dropout_is_on_in_training_and_off_in_validation(
    make_config: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    attend, chances = attention.F.scaled_dot_product_attention, []

    def noting(*args: Any, **kwargs: Any) -> Any:
        chances.append((torch.is_grad_enabled(), kwargs["dropout_p"]))
        return attend(*args, **kwargs)

    monkeypatch.setattr(attention.F, "scaled_dot_product_attention", noting)
    train(make_config("model.attention_dropout=0.25", "training.max_steps=1", *QUIET))
    assert set(chances) == {(True, 0.25), (False, 0.0)}


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("norm", ["rms", "layer"])
def test_precision_is_that_of_the_products_and_weights_stay_float32(
    make_config: Make, monkeypatch: pytest.MonkeyPatch, precision: str, norm: str
) -> None:
    multiply, attend, types = attention.F.linear, attention._attend, set()

    def noting(multiply: Callable[..., torch.Tensor], x: torch.Tensor, *others: Any) -> Any:
        product = multiply(x, *others)
        types.add(product.dtype)
        return product

    def noting_heads(*args: Any) -> torch.Tensor:
        types.update(x.dtype for x in args[:3])
        return noting(attend, *args)

    monkeypatch.setattr(attention.F, "linear", partial(noting, multiply))
    monkeypatch.setattr(attention, "_attend", noting_heads)
    config = make_config(
        f"training.precision={precision}",
        f"model.norm={norm}",
        "model.qk_norm=true",
        "model.positions=rotary",
        "model.activation=swiglu",
        "training.max_steps=2",
        *QUIET,
    )
    train(config)
    assert types == {getattr(torch, precision)}
    (_, path), *_ = list_checkpoints(Path(config.run_dir))
    weights = read_checkpoint(path).weights()
    assert {x.dtype for x in weights.values()} == {torch.float32}


def test_the_papers_learning_rate_goes_by_the_width_of_the_model(make_config: Make) -> None:
    settings = ("training.learning_rate=paper", "training.warmup_steps=3", "training.log_every=1")
    config = make_config(*settings, "training.max_steps=5", *QUIET)
    train(config)
    lines = (Path(config.run_dir) / "metrics.jsonl").read_text().splitlines()
    rates = [r["learning_rate"] for r in map(json.loads, lines) if r["kind"] == "train"]
    formula = [16**-0.5 * min(step**-0.5, step * 3**-1.5) for step in range(1, 6)]  # equation 3
    assert rates == pytest.approx(formula, rel=1e-9)


@pytest.mark.parametrize("ties", ["decoder", "none"])
def test_separate_vocabularies_train_resume_and_translate(
    make_config: Make, ties: str, corpus_folder: Path, tmp_path: Path
) -> None:
    text = (corpus_folder / "train.yy").read_text().upper()
    (tmp_path / "upper").write_text(text)
    train_pair = f"{{source: {corpus_folder}/train.xx, target: {tmp_path}/upper}}"
    settings = (
        f"data.train=[{train_pair}]",
        "tokenizer.joint=false",
        f"model.tie_embeddings={ties}",
    )
    config = make_config(*settings, "training.max_steps=10")
    train(config)
    train(make_config(*settings, "training.max_steps=12"), resume=True)
    translator = Translator.load(config.run_dir)
    source, target = translator.tokenizers.source, translator.tokenizers.target
    assert source.model != target.model
    (model,) = translator.models
    assert model.src_embedding.tokens.num_embeddings == source.vocab_size
    assert model.output.out_features == target.vocab_size
    lines = text.splitlines()
    assert target.decode(target.encode(lines)) == lines
    assert len(translator.translate(["ab", "", "fg"])) == 3


def test_character_coverage_leaves_rare_characters_to_bytes(
    make_config: Make, corpus_folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "rare.xx").write_text("abc abd abe\n" * 500 + "☃ abc\n")
    (tmp_path / "rare.yy").write_text("abc abd abe\n" * 500 + "abc\n")
    rare = f"data.train=[{{source: {tmp_path}/rare.xx, target: {tmp_path}/rare.yy}}]"
    pieces = {}
    for coverage in (1.0, 0.999):
        config = make_config(
            rare,
            f"tokenizer.character_coverage={coverage}",
            "training.max_steps=1",
            "validation.translate=false",
            "validation.metric=loss",
            run=f"coverage{coverage}",
        )
        train(config)
        tokenizer = Translator.load(config.run_dir).tokenizers.source
        pieces[coverage] = tokenizer.pieces(tokenizer.encode(["☃"])[0])
        assert tokenizer.decode(tokenizer.encode(["☃ abc"])) == ["☃ abc"]
    assert "☃" in pieces[1.0][-2]
    assert pieces[0.999][-4:-1] == ["<0xE2>", "<0x98>", "<0x83>"]


def test_a_second_pass_that_begins_late_leaves_the_updates_before_as_they_are(
    make_config: Make,
) -> None:
    losses = {}
    for name, settings in {
        "once": (),
        "late": ("training.r_drop=2", "training.second_pass_from=0.5"),
        "twice": ("training.r_drop=2",),
    }.items():
        steps = ("training.max_steps=6", "training.log_every=1", "data.max_length=100")
        config = make_config(*steps, *settings, *QUIET, run=name)
        train(config)
        lines = (Path(config.run_dir) / "metrics.jsonl").read_text().splitlines()
        losses[name] = [r["loss"] for r in map(json.loads, lines) if r["kind"] == "train"]
    assert losses["late"][:3] == losses["once"][:3]
    assert all(a > b for a, b in zip(losses["late"][3:], losses["once"][3:], strict=True))
    assert losses["twice"][0] > losses["once"][0]
