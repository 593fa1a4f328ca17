"""The optimizer, the learning rate as a function of the step, and the moving average of the
weights.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from transformer.config import TrainingConfig


def make_optimizer(model: nn.Module, config: TrainingConfig) -> torch.optim.Optimizer:
    """Returns Adam or AdamW in torch's fused form; matrices decay, vectors (biases, norms) do
    not.
    """
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() <= 1]
    groups = [
        {"params": matrices, "weight_decay": config.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    kind = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
    device = next(model.parameters()).device.type
    return kind(
        groups,
        lr=1.0,  # set before each update
        betas=config.betas,
        eps=config.epsilon,
        fused=device in ("cpu", "cuda"),
    )


def is_fused(optimizer: torch.optim.Optimizer) -> bool:
    """Tells whether the optimizer does its step in torch's fused form."""
    return bool(optimizer.defaults.get("fused"))


def learning_rate(step: int, config: TrainingConfig, d_model: int) -> float:
    """Returns the learning rate of an update.

    Args:
        step: the update, counted from 1.
        config: schedule, peak, warm-up.
        d_model: width of the model, for the paper's peak.
    """
    warmup = config.warmup_steps
    if config.learning_rate == "paper":
        peak = (d_model * max(warmup, 1)) ** -0.5
    else:
        peak = config.learning_rate
    if step <= warmup:
        return peak * step / warmup
    if config.schedule == "constant":
        return peak
    if config.schedule == "inverse_square_root":
        return peak * math.sqrt(max(warmup, 1) / step)
    if config.schedule == "warmup_stable_decay":
        progress = (step - (config.max_steps - config.descent)) / config.descent
    else:
        progress = (step - warmup) / max(1, config.max_steps - warmup)
    progress = min(max(progress, 0.0), 1.0)
    left = (1 + math.cos(math.pi * progress)) / 2 if config.schedule == "cosine" else 1 - progress
    return config.min_learning_rate + (peak - config.min_learning_rate) * left


@torch.no_grad()
def update_ema(ema: list[Tensor], weights: list[Tensor], decay: float, step: int) -> None:
    """Moves the average towards the weights, in place: ema = decay * ema + (1 - decay) * weights.

    Early on the decay is (1 + step) / (10 + step) if that is less, so that the initial weights are
    soon forgotten.
    """
    decay = min(decay, (1 + step) / (10 + step))
    torch._foreach_lerp_(ema, weights, 1 - decay)
