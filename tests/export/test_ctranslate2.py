"""A converted model says in CTranslate2 what it says here, with the same scores."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from transformer.config import ModelConfig
from transformer.decoding.options import SearchOptions
from transformer.decoding.scoring import score_pairs
from transformer.decoding.search import beam_search
from transformer.errors import UserError
from transformer.export.ctranslate2 import load_ctranslate2, write_ctranslate2
from transformer.ids import BOS, EOS, PAD
from transformer.model.transformer import Transformer

PIECES = ["<pad>", "<unk>", "<s>", "</s>", *(f"word{i}" for i in range(36))]
SOURCES = [[9, 5, 17, EOS], [7, EOS], [8, 38, 6, 5, 4, 31, EOS]]
TARGETS = [[4, EOS], [5, 6, 7, 8, 9, 12, EOS], [30, 31, EOS]]


def make_model(seed: int = 0, **changes: object) -> Transformer:
    """A small model with enlarged weights, so that it prefers some words clearly."""
    torch.manual_seed(seed)
    sizes = {"d_model": 16, "num_heads": 2, "d_ff": 32}
    layers = {"num_encoder_layers": 1, "num_decoder_layers": 2}
    model = Transformer(ModelConfig(**{**sizes, **layers, **changes}), 40, 40).eval()
    for weights in model.parameters():
        weights.data.mul_(2)
    return model


def make_ending_model(seed: int) -> Transformer:
    """A model that ends most of its translations, and gives padding and beginning no chance.

    The features of each position sum to 16, so their logits are -16.
    """
    model = make_model(seed)
    model.decoder.norm.bias.data.fill_(1.0)
    model.output.weight.data[[PAD, BOS]] = -1.0
    model.output.weight.data[EOS] *= 4
    return model


def pieces(sequences: Sequence[Sequence[int]]) -> list[list[str]]:
    return [[PIECES[i] for i in ids] for ids in sequences]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm_first": False},
        {"norm": "rms"},
        {"norm": "rms", "norm_first": False, "activation": "gelu"},
        {"activation": "swiglu", "tie_embeddings": "none"},
        {"positions": "learned", "max_positions": 4, "tie_embeddings": "decoder"},
        {"positions": "rotary", "num_encoder_layers": 3},
    ],
)
def test_forced_scores_are_ours(changes: dict) -> None:
    model = make_model(**changes)
    engine = load_ctranslate2(model, PIECES, PIECES, intra_threads=1)
    found = engine.score_batch(pieces(SOURCES), pieces([ids[:-1] for ids in TARGETS]))
    expected = score_pairs([model], SOURCES, TARGETS)
    for ours, theirs in zip(expected, found, strict=True):
        assert theirs.log_probs == pytest.approx(ours.log_probs, abs=1e-4)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_translations_and_their_scores_are_ours(beam_size: int) -> None:
    """Of those that end before the limit: at it, CTranslate2 adds no end and counts none."""
    width = max(map(len, SOURCES))
    src = torch.tensor([[*ids, *[PAD] * (width - len(ids))] for ids in SOURCES])
    num_compared = 0
    for seed in range(4):
        model = make_ending_model(seed)
        engine = load_ctranslate2(model, PIECES, PIECES, intra_threads=1)
        found = engine.translate_batch(
            pieces(SOURCES),
            beam_size=beam_size,
            max_decoding_length=20,
            min_decoding_length=0,
            suppress_sequences=[[PIECES[PAD]], [PIECES[BOS]]],
            return_scores=True,
        )
        options = SearchOptions(beam_size, max_length=20, max_length_ratio=0.0)
        for (ours,), theirs in zip(beam_search([model], src, options), found, strict=True):
            if ours.finished and len(theirs.hypotheses[0]) < 20:
                assert pieces([ours.ids[:-1]]) == theirs.hypotheses
                assert theirs.scores[0] == pytest.approx(ours.score, abs=1e-4)
                num_compared += 1
    assert num_compared >= 6


def test_eight_bits_hold_nearly_the_same_scores(tmp_path: Path) -> None:
    model = make_model()
    write_ctranslate2(model, PIECES, PIECES, tmp_path, "int8")
    small = (tmp_path / "model.bin").stat().st_size
    write_ctranslate2(model, PIECES, PIECES, tmp_path, "float32")
    assert small < (tmp_path / "model.bin").stat().st_size
    engine = load_ctranslate2(model, PIECES, PIECES, "int8", intra_threads=1)
    found = engine.score_batch(pieces(SOURCES), pieces([ids[:-1] for ids in TARGETS]))
    for ours, theirs in zip(score_pairs([model], SOURCES, TARGETS), found, strict=True):
        assert theirs.log_probs == pytest.approx(ours.log_probs, abs=0.1)


def test_what_the_engine_cannot_do_is_refused() -> None:
    with pytest.raises(UserError, match=r"model\.qk_norm"):
        load_ctranslate2(make_model(qk_norm=True), PIECES, PIECES)
