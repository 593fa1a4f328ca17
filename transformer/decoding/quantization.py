"""Models that compute in less than float32, for translating."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer.errors import UserError
from transformer.model.transformer import Transformer

LEVELS = 127
"""Greatest absolute value of a quantised number."""
IN_CACHE = 2**19
"""Numbers that are worked on together: so many stay in a core's cache from one pass over them to
the next."""
ROUND_ROWS = 32
"""On a CPU vectors are multiplied in bfloat16 in such multiples: PyTorch's library for it prepares
a kernel for each number of them, which takes longer than many a product."""


def in_precision(model: Transformer, precision: str) -> Transformer:
    """Turns a model into one that translates in `float32`, `bfloat16` or `int8`, in place.

    On a CPU only the products are narrower than float32; and in float32 the weights are laid out
    for products with few vectors, which then take half to all of the time.

    Raises:
        UserError: it is on a device that does not multiply so.
    """
    device = model.output.weight.device.type
    if precision == "int8" and device != "cpu":
        raise UserError(f"precision int8 is for CPUs; on {device} bfloat16 is fast")
    if device != "cpu":
        return model.to(torch.bfloat16) if precision == "bfloat16" else model
    kinds = {"int8": Int8Linear, "bfloat16": Bfloat16Linear}
    inputs = Inputs(quantize if precision == "int8" else narrowed)
    for module in list(model.modules()):
        for name, linear in module.named_children():
            if not isinstance(linear, nn.Linear):
                continue
            if precision in kinds:
                setattr(module, name, kinds[precision](linear, inputs))
            else:  # the output too, which may share its embedding's weight
                linear.weight = nn.Parameter(linear.weight.detach().t().contiguous().t())
    return model


class NarrowLinear(nn.Module):
    """A linear map whose weights are kept in other numbers, as buffers, an output feature a row."""

    def of_features(self, features: Tensor) -> Self:
        """Returns the map to some of the output features, (C,)."""
        part = copy.copy(self)
        part._buffers = {name: x[features] for name, x in self._buffers.items() if x is not None}
        return part


class Int8Linear(NarrowLinear):
    """A linear map whose products are of 8-bit integers, summed exactly in 32 bits.

    Each output feature's weights, and each input vector as it comes, are scaled so that the
    greatest is 127, and rounded (Jacob et al. 2018, section 2, without zero points). What comes out
    for a vector does not depend on the others.

    Args:
        linear: the map that this one stands for.
        inputs: rounds what it reads.
    """

    def __init__(self, linear: nn.Linear, inputs: Inputs) -> None:
        super().__init__()
        self.inputs = inputs
        rounded, scales = quantize(linear.weight.detach().float())
        self.rounded = nn.Buffer(rounded)
        self.scales = nn.Buffer(scales.squeeze(1))
        self.bias = None if linear.bias is None else nn.Buffer(linear.bias.detach())

    def forward(self, x: Tensor) -> Tensor:
        """(..., K) -> (..., N)."""
        rounded, scales = self.inputs.of(x)
        out_features = len(self.rounded)
        out = x.new_empty(len(rounded), out_features)
        rows = max(64, IN_CACHE // out_features)
        parts = (rounded, scales, out)
        for part, scale, y in zip(*(p.split(rows) for p in parts), strict=True):
            y.copy_(torch._int_mm(part, self.rounded.t()))  # faster than a product of both types
            y *= scale
            if self.bias is None:
                y *= self.scales
            else:
                torch.addcmul(self.bias, y, self.scales, out=y)
        return out.view(*x.shape[:-1], out_features)


class Bfloat16Linear(NarrowLinear):
    """A linear map that multiplies in bfloat16 and sums in float32, between vectors in float32.

    Args:
        linear: the map that this one stands for.
        inputs: narrows what it reads.
    """

    def __init__(self, linear: nn.Linear, inputs: Inputs) -> None:
        super().__init__()
        self.inputs = inputs
        self.weight = nn.Buffer(linear.weight.detach().bfloat16())
        bias = None if linear.bias is None else linear.bias.detach()
        self.bias = None if bias is None else nn.Buffer(bias.bfloat16())

    def forward(self, x: Tensor) -> Tensor:
        """(..., K) -> (..., N)."""
        (rows,) = self.inputs.of(x)
        y = F.linear(rows, self.weight, self.bias)[: x.numel() // x.size(-1)]
        return y.float().view(*x.shape[:-1], len(self.weight))


def of_features(linear: nn.Linear | NarrowLinear, features: Tensor) -> Callable[[Tensor], Tensor]:
    """Returns the map to some output features of a map without bias: (..., K) -> (..., C)."""
    if isinstance(linear, NarrowLinear):
        return linear.of_features(features)
    weight = linear.weight.t().index_select(1, features)  # (K, C)
    return lambda x: x @ weight


class Inputs:
    """Prepares the input of linear maps; the latest one is remembered, as several maps read the
    same: queries, keys and values.

    Args:
        prepare: what is to be done with vectors (M, K): `quantize` or `narrowed`.
    """

    def __init__(self, prepare: Callable[[Tensor], tuple[Tensor, ...]]) -> None:
        self._prepare = prepare
        self._latest: Callable[[], Tensor | None] = lambda: None
        self._prepared: tuple[Tensor, ...] = ()

    def of(self, x: Tensor) -> tuple[Tensor, ...]:
        """Returns what is prepared of the vectors of x, (..., K)."""
        if not self._prepared or self._latest() is not x:
            self._latest, self._prepared = weakref.ref(x), self._prepare(x.flatten(0, -2))
        return self._prepared


def narrowed(x: Tensor) -> tuple[Tensor]:
    """Returns vectors in bfloat16, with zeros after them for a round number: (M, K) -> (M', K)."""
    num_rows = len(x) + -len(x) % ROUND_ROWS
    rows = x.new_empty(num_rows, x.size(1), dtype=torch.bfloat16)
    rows[: len(x)] = x
    rows[len(x) :] = 0
    return (rows,)


def quantize(x: Tensor) -> tuple[Tensor, Tensor]:
    """Returns whole numbers from -127 to 127 and the scale of each row: (M, K) -> int8 (M, K), and
    (M, 1).
    """
    rounded = torch.empty_like(x, dtype=torch.int8)
    scales = x.new_empty(len(x), 1)
    rows = max(1, IN_CACHE // 8 // x.size(1))
    for part, whole, scale in zip(*(p.split(rows) for p in (x, rounded, scales)), strict=True):
        torch.amax(part.abs(), 1, keepdim=True, out=scale)
        scale.clamp_(min=torch.finfo(x.dtype).tiny).div_(LEVELS)
        whole.copy_((part / scale).round_())
    return rounded, scales
