"""Models that compute in less than float32, for translating."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from transformer.errors import UserError
from transformer.model.transformer import Transformer

LEVELS = 127
"""Greatest absolute value of a quantised number."""
ROWS_AT_ONCE = 256
"""Rows whose products are scaled while they are in the cache: a tenth of the time where there are
thousands of columns."""


def in_precision(model: Transformer, precision: str) -> Transformer:
    """Turns a model into one that computes in `float32`, `bfloat16` or `int8`, in place.

    Raises:
        UserError: it is on a device that does not multiply so.
    """
    if precision == "bfloat16":
        return model.to(torch.bfloat16)
    if precision == "int8":
        device = model.output.weight.device
        if device.type != "cpu":
            raise UserError(f"precision int8 is for CPUs; on {device.type} bfloat16 is fast")
        for module in list(model.modules()):
            for name, linear in module.named_children():
                if isinstance(linear, nn.Linear):
                    setattr(module, name, Int8Linear(linear))
    return model


class Int8Linear(nn.Module):
    """A linear map whose products are of 8-bit integers, summed exactly in 32 bits.

    Each output feature's weights, and each input vector as it comes, are scaled so that the
    greatest is 127, and rounded (Jacob et al. 2018, section 2, without zero points). What comes out
    for a vector does not depend on the others.

    Args:
        linear: the map that this one stands for.
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        rounded, scales = quantize(linear.weight.detach().float())
        self.rounded = nn.Buffer(rounded)
        self.scales = nn.Buffer(scales.squeeze(1))
        self.bias = None if linear.bias is None else nn.Buffer(linear.bias.detach())

    def forward(self, x: Tensor) -> Tensor:
        """(..., K) -> (..., N)."""
        rounded, scales = quantize(x.flatten(0, -2))
        out = x.new_empty(len(rounded), self.out_features)
        parts = (rounded, scales, out)
        for part, scale, y in zip(*(p.split(ROWS_AT_ONCE) for p in parts), strict=True):
            y.copy_(torch._int_mm(part, self.rounded.t()))  # faster than a product of both types
            y *= scale
            if self.bias is None:
                y *= self.scales
            else:
                torch.addcmul(self.bias, y, self.scales, out=y)
        return out.view(*x.shape[:-1], self.out_features)


def quantize(x: Tensor) -> tuple[Tensor, Tensor]:
    """Returns whole numbers from -127 to 127 and the scale of each row: (M, K) -> int8 (M, K), and
    (M, 1).
    """
    scales = x.abs().amax(1, keepdim=True).clamp(min=torch.finfo(x.dtype).tiny) / LEVELS
    return (x / scales).round_().to(torch.int8), scales
