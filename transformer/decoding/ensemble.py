"""What search and scoring share: what they ask of a model, several models as one, and the score of
a translation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

Number = TypeVar("Number", float, Tensor)


class Decodes(Protocol):
    """A model that search can use. Its state is a value with `select(rows) -> state`, where rows
    may repeat or be left out.
    """

    def start(self, src: Tensor) -> Any:
        """Reads source sentences (B, S) and returns the state before any target token."""

    def decode(self, tgt: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Reads the next target tokens (B, T); returns logits (B, T, V) and the state after."""


def mean_probability(log_probs: Sequence[Tensor]) -> Tensor:
    """Returns the logarithm of the mean of the models' probabilities."""
    if len(log_probs) == 1:
        return log_probs[0]
    return torch.stack(tuple(log_probs)).logsumexp(0) - math.log(len(log_probs))


def normalize(total: Number, length: int, length_penalty: float) -> Number:
    """Returns the score of a translation: sum of log-probabilities / length ** alpha.

    The end of sentence counts, in the sum and in the length: log-probabilities -1, -1 and, for the
    end, -2 score -4 / 3 at alpha 1.
    """
    return total / length**length_penalty
