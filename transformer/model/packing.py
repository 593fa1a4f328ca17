"""Packed sentences: the real tokens of a padded batch one after another, so that no work goes into
padding (after Portes et al. 2023, MosaicBERT, section 3.1, "unpadding").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Packing:
    """Which places of a padded batch (B, T) hold real tokens, of which there are N.

    All that concerns a token alone is computed on packed tokens, (N, ...); attention, which
    concerns sentences, on padded ones, (B, T, ...). Some padding may stay behind the real tokens:
    N counts it then, and nothing depends on it.

    Attributes:
        mask: bool (B, T), True = a real token.
        places: of each packed token in the flattened batch, (N,).
        sources: for each place of the flattened batch its token's number, N for padding: (B * T,).
        num_padding: how many of the packed tokens, the last ones, are padding.
    """

    mask: Tensor
    places: Tensor
    sources: Tensor
    num_padding: int = 0

    @classmethod
    def of(cls, mask: Tensor) -> Packing:
        """Returns the packing of a batch, given where its real tokens are: bool (B, T).

        On a GPU this waits for the device, as N must be known.
        """
        flat = mask.flatten()
        places = flat.nonzero()[:, 0]
        sources = flat.cumsum(0).sub_(1).masked_fill_(~flat, len(places))
        return cls(mask, places, sources)

    @property
    def num_tokens(self) -> int:
        """Number of real tokens."""
        return self.places.numel() - self.num_padding

    @property
    def is_full(self) -> bool:
        """Tells whether there is no padding."""
        return self.num_tokens == self.sources.numel()

    @property
    def attention_mask(self) -> Tensor | None:
        """What attention to these tokens may look at: bool (B, 1, 1, T), None = at everything."""
        return None if self.is_full else self.mask[:, None, None, :]

    def rounded(self, multiple: int) -> Packing:
        """Returns a packing that keeps so much padding that N is a multiple, if there is enough."""
        missing = -self.num_tokens % multiple
        padding = (~self.mask).flatten().nonzero()[:missing, 0]
        places = torch.cat((self.places[: self.num_tokens], padding))
        sources = self.sources.clamp(max=self.num_tokens)
        sources = sources.masked_fill(sources == self.num_tokens, len(places))
        return Packing(self.mask, places, sources, len(padding))

    def real(self, x: Tensor) -> Tensor:
        """Drops the padding that stayed behind packed tokens: (N, ...) -> (real tokens, ...)."""
        return x[: self.num_tokens] if self.num_padding else x

    def pack(self, x: Tensor) -> Tensor:
        """Leaves the padding out: (B, T, ...) -> (N, ...)."""
        flat = x.flatten(0, 1)
        return flat if self.is_full else _Pack.apply(flat, self)

    def pad(self, x: Tensor) -> Tensor:
        """Puts tokens back in their places, zeros into padding: (N, ...) -> (B, T, ...)."""
        padded = x if self.is_full else _Pad.apply(x, self)
        return padded.unflatten(0, self.mask.shape)

    def to(self, device: torch.device) -> Packing:
        """Copies the packing to a device."""
        mask, places, sources = (copy_to(x, device) for x in (self.mask, self.places, self.sources))
        return Packing(mask, places, sources, self.num_padding)


def copy_to(x: Tensor, device: torch.device) -> Tensor:
    """Copies a tensor of the CPU to a device, without waiting for it."""
    if device.type == "cuda":
        return x.pin_memory().to(device, non_blocking=True)
    return x.to(device)


def _pack(flat: Tensor, packing: Packing) -> Tensor:
    return flat.index_select(0, packing.places)


def _pad(x: Tensor, packing: Packing) -> Tensor:
    with_zeros = torch.cat((x, x.new_zeros(1, *x.shape[1:])))
    return with_zeros.index_select(0, packing.sources)


class _Pack(torch.autograd.Function):
    """Packing, whose gradient is padding: reading it costs less than adding at an index."""

    @staticmethod
    def forward(ctx: Any, flat: Tensor, packing: Packing) -> Tensor:
        ctx.packing = packing
        return _pack(flat, packing)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _pad(grad, ctx.packing), None


class _Pad(torch.autograd.Function):
    """Padding, whose gradient is packing."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, packing: Packing) -> Tensor:
        ctx.packing = packing
        return _pad(x, packing)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _pack(grad, ctx.packing), None
