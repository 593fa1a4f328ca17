"""Normalisation of features."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class RMSNorm(nn.RMSNorm):
    """RMS normalisation with a learned gain (Zhang and Sennrich 2019).

    The gain takes the type of what it scales: torch's own norm is slow, and says so, where autocast
    gives it bfloat16 beside its float32 gain.
    """

    def __init__(self, width: int) -> None:
        super().__init__(width, eps=1e-6)

    def forward(self, x: Tensor) -> Tensor:
        """(..., width) -> (..., width)."""
        return F.rms_norm(x, self.normalized_shape, self.weight.to(x.dtype), self.eps)
