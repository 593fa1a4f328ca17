"""How a Transformer knows the order of tokens: sinusoids, learned vectors, or rotation of queries
and keys.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


def sinusoids(length: int, d_model: int, start: int = 0) -> Tensor:
    """Returns the sinusoids of positions start … start + length - 1, laid out [sin | cos]: (T, D).

    Vaswani et al. 2017, section 3.5; the halves are what Marian and Hugging Face read. Float64, on
    the CPU.
    """
    angles = _angles(length, d_model, start)
    return torch.cat((angles.sin(), angles.cos()), dim=-1)


def rotate(x: Tensor, start: int = 0) -> Tensor:
    """Turns each pair of features by an angle that grows with its position: (B, H, T, Dh) -> same.

    The product of two turned vectors depends only on how far apart they stand (Su et al. 2021).
    """
    angles = _angles(x.size(-2), x.size(-1), start)
    sin, cos = angles.sin().to(x), angles.cos().to(x)
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def _angles(length: int, width: int, start: int) -> Tensor:
    """Returns position / 10000^(2i / width) for i < width / 2: (T, width / 2)."""
    positions = torch.arange(start, start + length, dtype=torch.float64)
    exponents = torch.arange(0, width, 2, dtype=torch.float64) / width
    return positions[:, None] / 10000.0**exponents


class Sinusoidal(nn.Module):
    """Adds the paper's sinusoids to embeddings, for any length."""

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """Adds positions from `start` on: (B, T, D) -> (B, T, D)."""
        return x + sinusoids(x.size(1), x.size(2), start).to(x)


class Learned(nn.Module):
    """Adds a learned vector for each position (Gehring et al. 2017); those past the table share its
    last entry.
    """

    def __init__(self, max_positions: int, d_model: int) -> None:
        super().__init__()
        self.table = nn.Embedding(max_positions, d_model)

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """Adds positions from `start` on: (B, T, D) -> (B, T, D)."""
        positions = torch.arange(start, start + x.size(1), device=x.device)
        return x + self.table(positions.clamp(max=self.table.num_embeddings - 1))


class Unmarked(nn.Module):
    """Adds nothing: with rotary positions the attention itself knows them."""

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """Returns x."""
        return x
