"""The best extensions are those that sorting all of them finds."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer.decoding.beams import GROUP, best_extensions


@settings(max_examples=60, deadline=None)
@given(
    size=st.sampled_from([1, 5, GROUP, 4 * GROUP, 4 * GROUP + 1, 20 * GROUP - 1, 1000]),
    num_hypotheses=st.integers(1, 4),
    num=st.integers(1, 12),
    forbidden=st.sampled_from([0.0, 0.5, 0.99]),
    seed=st.integers(0, 2**31),
)
def test_the_best_extensions_are_the_greatest_sums(
    size: int, num_hypotheses: int, num: int, forbidden: float, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    log_probs = torch.randn(3, num_hypotheses, size, generator=generator).log_softmax(-1)
    log_probs[torch.rand(log_probs.shape, generator=generator) < forbidden] = -math.inf
    totals = -torch.rand(3, num_hypotheses, generator=generator, dtype=torch.float64)
    found = best_extensions(totals, log_probs, num)
    every = (totals[:, :, None] + log_probs).flatten(1)
    expected = every.sort(dim=1, descending=True).values[:, :num]
    places = found.parents * size + found.tokens
    assert torch.equal(every.gather(1, places), expected)
    assert torch.equal(log_probs.flatten(1).gather(1, places), found.log_probs)
    assert all(len(set(row)) == len(row) for row in places.tolist())


@pytest.mark.parametrize("size", [7, 1000])
def test_hypotheses_without_a_total_are_extended_last(size: int) -> None:
    totals = torch.tensor([[-math.inf, -3.0]], dtype=torch.float64)
    log_probs = torch.full((1, 2, size), -1.0)
    found = best_extensions(totals, log_probs, 5)
    assert found.parents.tolist() == [[1] * 5]
