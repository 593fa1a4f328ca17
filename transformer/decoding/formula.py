"""The score of a translation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeVar

import torch
from torch import Tensor

Number = TypeVar("Number", float, Tensor)
LengthNormalization = Literal["power", "gnmt"]


@dataclass(frozen=True)
class ScoreFormula:
    """What search ranks by, and forced scoring gives: total / norm(length) + beta * coverage.

    The total is the sum of the log-probabilities. The end of sentence counts, in the sum and in the
    length: log-probabilities -1, -1 and, for the end, -2 score -4 / 3 at alpha 1. The parts are
    those of Wu et al. 2016, section 7.

    Attributes:
        length_penalty: alpha.
        length_normalization: norm: `power` is length ** alpha, `gnmt` ((5 + length) / 6) ** alpha.
        coverage_penalty: beta.
    """

    length_penalty: float = 1.0
    length_normalization: LengthNormalization = "power"
    coverage_penalty: float = 0.0

    def norm(self, length: Number) -> Number:
        """Returns what a total is divided by; it does not fall with the length."""
        if self.length_normalization == "gnmt":
            return ((5 + length) / 6) ** self.length_penalty
        return length**self.length_penalty

    def score(self, total: Number, length: int, coverage: Number | None = None) -> Number:
        """Returns the score, given the coverage if beta is not 0."""
        score = total / self.norm(float(length))
        return score if coverage is None else score + self.coverage_penalty * coverage


DEFAULT_FORMULA = ScoreFormula()


def coverage(attention: Tensor, mask: Tensor | None) -> Tensor:
    """Returns how far source tokens were left out: the sum of log(min(1, attention)) over them.

    Args:
        attention: that each source token received from all target tokens, (..., S).
        mask: bool, broadcasts to it, True = a real source token.
    """
    logs = attention.clamp(torch.finfo(attention.dtype).tiny, 1.0).log()
    return (logs if mask is None else logs.masked_fill(~mask, 0.0)).sum(-1)
