"""Forced scores against the formula and whole forward passes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from transformer.decoding.formula import ScoreFormula
from transformer.decoding.scoring import score_pairs
from transformer.ids import BOS, EOS, PAD
from transformer.model.transformer import Transformer

SOURCES = [[9, 5, 17, EOS], [7, EOS], [8, 8, 6, 5, 4, EOS]]
TARGETS = [[4, EOS], [5, 6, 7, 8, 9, EOS], [EOS]]


@pytest.mark.parametrize(("alpha", "expected"), [(0.0, -4.0), (1.0, -4 / 3), (0.5, -4 / 3**0.5)])
def test_the_score_is_the_sum_over_the_length_to_the_power_of_alpha(
    recites: Callable[..., nn.Module], alpha: float, expected: float
) -> None:
    table = torch.full((3, 5), -40.0, dtype=torch.float64)
    table[:2, 4], table[2, EOS] = -1.0, -2.0
    table[:, PAD] = (1 - table.exp().sum(1)).log()
    found = score_pairs([recites(table)], [[4, EOS]], [[4, 4, EOS]], ScoreFormula(alpha))
    assert found[0].score == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("batch_tokens", [1, 8, 1000])
def test_scores_are_those_of_single_sentences_whatever_the_batches(
    make_model: Callable[..., Transformer], batch_tokens: int
) -> None:
    """Two models of other shapes: their probabilities are averaged, token by token."""
    models = [make_model(1, vocab_size=20), make_model(2, vocab_size=20, d_model=8, num_heads=1)]
    found = score_pairs(models, SOURCES, TARGETS, batch_tokens=batch_tokens)
    for source, target, score in zip(SOURCES, TARGETS, found, strict=True):
        src, tgt = torch.tensor([source]), torch.tensor([[BOS, *target[:-1]]])
        with torch.no_grad():
            probs = sum(model(src, tgt)[0].softmax(-1) for model in models) / 2
        expected = probs[range(len(target)), target].log().tolist()
        assert score.log_probs == pytest.approx(expected, abs=1e-12)
        assert score.score == pytest.approx(sum(expected) / len(expected), abs=1e-12)
