"""Which numbers are computed with."""

from __future__ import annotations

import torch
from torch import Tensor


def widen(x: Tensor) -> Tensor:
    """Returns x in float32 or wider: half precision cannot hold a log-probability well."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def choose_precision(name: str, device: torch.device) -> str:
    """Returns `float32` or `bfloat16`; auto takes bfloat16 where the hardware multiplies it
    fast.
    """
    if name != "auto":
        return name
    if device.type == "cuda":
        fast = torch.cuda.is_bf16_supported(including_emulation=False)
    elif device.type == "cpu":
        flags = torch.cpu.get_capabilities()
        fast = bool(flags.get("avx512_bf16") or flags.get("amx_bf16"))
    else:
        fast = False
    return "bfloat16" if fast else "float32"
