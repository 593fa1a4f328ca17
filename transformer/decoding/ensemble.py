"""What search and scoring share: what they ask of a model, and several models as one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from transformer.decoding.formula import coverage


class Decodes(Protocol):
    """A model that search can use. Its state is a value with `select(rows) -> state`, where rows
    may repeat or be left out.
    """

    def start(self, src: Tensor) -> Any:
        """Reads source sentences (B, S) and returns the state before any target token."""

    def decode(self, tgt: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Reads the next target tokens (B, T); returns logits (B, T, V) and the state after."""

    def log_probs(self, tgt: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Does the same, but returns log-probabilities."""


def mean_probability(log_probs: Sequence[Tensor]) -> Tensor:
    """Returns the logarithm of the mean of the models' probabilities."""
    if len(log_probs) == 1:
        return log_probs[0]
    return torch.stack(tuple(log_probs)).logsumexp(0) - math.log(len(log_probs))


def mean_coverage(states: Sequence[Any]) -> Tensor:
    """Returns the mean of the coverages that the models' states have watched: (B, K)."""
    found = []
    for state in states:
        mask = None if state.memory_mask is None else state.memory_mask[:, 0]
        found.append(coverage(state.received, mask))
    return torch.stack(found).mean(0)
