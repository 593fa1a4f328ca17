"""Muon: momentum that is made orthogonal, matrix by matrix, before it is applied (Jordan et al.
2024).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

import torch
from torch import Tensor

COEFFICIENTS = (3.4445, -4.775, 2.0315)
"""Of the quintic iteration, chosen to bring small singular values up fast (Jordan et al. 2024)."""
NUM_ITERATIONS = 5


class Muon(torch.optim.Optimizer):
    """Muon with Nesterov momentum and decoupled weight decay, for matrices inside the layers.

    An update has the size that Adam's usually has, 0.2 a weight (Liu et al. 2025, section 2.2), so
    one learning rate serves both. `torch.optim.Muon` computes the same in bfloat16 always, which a
    CPU without such arithmetic does several times more slowly than float32.

    Args:
        weights: the matrices.
        weight_decay: as in AdamW.
        momentum: decay of the running mean of the gradients.
        dtype: in which the mean is made orthogonal; it and the weights stay in their own.
    """

    def __init__(
        self,
        weights: Iterable[Tensor],
        weight_decay: float = 0.0,
        momentum: float = 0.95,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__(weights, {"lr": 1.0, "weight_decay": weight_decay, "momentum": momentum})
        self.dtype = dtype
        self.found_inf: Tensor | None = None  # as in torch's fused optimizers: 1 skips the step

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Applies the gradients, matrices of one shape together."""
        for group in self.param_groups:
            weights = sorted((p for p in group["params"] if p.grad is not None), key=_shape)
            for _, alike in groupby(weights, key=_shape):
                self._step_alike(list(alike), group)

    def _step_alike(self, weights: list[Tensor], group: dict) -> None:
        rate, momentum = group["lr"], group["momentum"]
        for p in weights:
            if p not in self.state:
                self.state[p]["momentum_buffer"] = torch.zeros_like(p)
        means = [self.state[p]["momentum_buffer"] for p in weights]
        stacked = torch.stack(means)
        grads = torch.stack([p.grad for p in weights if p.grad is not None])
        new = stacked.lerp(grads, 1 - momentum)
        change = orthogonalize(grads.lerp(new, momentum).to(self.dtype)).to(stacked.dtype)
        rows, columns = change.shape[-2:]
        change *= 0.2 * max(rows, columns) ** 0.5
        change += group["weight_decay"] * torch.stack(weights)
        if self.found_inf is not None:
            skips = self.found_inf > 0
            new, change = new.where(~skips, stacked), change.where(~skips, 0.0)
        torch._foreach_copy_(means, list(new))
        torch._foreach_add_(weights, list(change), alpha=-rate)


def _shape(p: Tensor) -> tuple[int, ...]:
    return tuple(p.shape)


def orthogonalize(matrices: Tensor) -> Tensor:
    """Returns about U V^T for matrices U S V^T: (K, m, n) -> (K, m, n).

    Newton-Schulz iterations bring the singular values into about [0.7, 1.2] without computing them.
    """
    a, b, c = COEFFICIENTS
    is_tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if is_tall else matrices
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    for _ in range(NUM_ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if is_tall else x
