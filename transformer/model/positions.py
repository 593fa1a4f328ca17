"""How a Transformer knows the order of tokens: sinusoids, learned vectors, or rotation of queries
and keys.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor, nn


def sinusoids(x: Tensor, start: int = 0) -> Tensor:
    """Returns the sinusoids of the positions of x from `start` on: (..., T, D) -> (T, D).

    Vaswani et al. 2017, section 3.5, laid out [sin | cos], which Marian and Hugging Face read. Of
    the kind and on the device of x.
    """
    return torch.cat(_sin_cos(x, start), dim=-1)


def rotate(x: Tensor, start: int = 0) -> Tensor:
    """Turns each pair of features by an angle that grows with its position: (B, H, T, Dh) -> same.

    The product of two turned vectors depends only on how far apart they stand (Su et al. 2021).
    """
    sin, cos = _sin_cos(x, start)
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def _sin_cos(x: Tensor, start: int) -> tuple[Tensor, Tensor]:
    """Returns sine and cosine of position / 10000^(2i / D) for i < D / 2: two of (T, D / 2)."""
    end, width = start + x.size(-2), x.size(-1)
    if end > 8192:
        return _compute_sin_cos(start, end, width, x.dtype, x.device)
    length = max(128, 1 << (end - 1).bit_length())  # few tables, each as long as it must be
    sin, cos = _keep_sin_cos(0, length, width, x.dtype, x.device)
    return sin[start:end], cos[start:end]


@torch.inference_mode(False)
def _compute_sin_cos(
    start: int, end: int, width: int, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor]:
    positions = torch.arange(start, end, dtype=torch.float64)
    angles = positions[:, None] / 10000.0 ** (torch.arange(0, width, 2).double() / width)
    return angles.sin().to(device, dtype), angles.cos().to(device, dtype)


_keep_sin_cos = lru_cache(maxsize=32)(_compute_sin_cos)  # so that a GPU waits for no CPU


class Sinusoidal(nn.Module):
    """Adds the paper's sinusoids to embeddings, for any length."""

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """Adds positions from `start` on: (B, T, D) -> (B, T, D)."""
        return x + sinusoids(x, start)


class Learned(nn.Module):
    """Adds a learned vector for each position (Gehring et al. 2017); those past the table share its
    last entry.
    """

    def __init__(self, max_positions: int, d_model: int) -> None:
        super().__init__()
        self.table = make_embedding(max_positions, d_model)

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """Adds positions from `start` on: (B, T, D) -> (B, T, D)."""
        positions = torch.arange(start, start + x.size(1), device=x.device)
        return x + self.table(positions.clamp(max=self.table.num_embeddings - 1))


class Unmarked(nn.Module):
    """Adds nothing: with rotary positions the attention itself knows them."""

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """Returns x."""
        return x


def make_embedding(num: int, width: int) -> nn.Embedding:
    """Returns a table of vectors. On the meta device, where a model is built that gets its weights
    from a file, none are drawn: PyTorch would load its compiler for that, which takes two seconds.
    """
    if torch.get_default_device().type == "meta":
        return nn.Embedding.from_pretrained(torch.empty(num, width), freeze=False)
    return nn.Embedding(num, width)
