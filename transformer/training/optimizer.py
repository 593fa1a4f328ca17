"""The optimizer, the learning rate as a function of the step, and the moving average of the
weights.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from transformer.config import TrainingConfig
from transformer.model.layers import DecoderLayer, EncoderLayer
from transformer.precision import choose_precision
from transformer.training.muon import Muon


def make_optimizers(model: nn.Module, config: TrainingConfig) -> list[torch.optim.Optimizer]:
    """Returns Adam or AdamW in torch's fused form, or Muon for the matrices inside encoder and
    decoder and AdamW for all else; matrices decay, vectors (biases, norms) do not.
    """
    hidden: list[Tensor] = []
    if config.optimizer == "muon":
        layers = [m for m in model.modules() if isinstance(m, EncoderLayer | DecoderLayer)]
        hidden = [p for layer in layers for p in layer.parameters() if p.dim() == 2]
    is_hidden = set(hidden)
    rest = [p for p in model.parameters() if p not in is_hidden]
    groups = [
        {"params": [p for p in rest if p.dim() > 1], "weight_decay": config.weight_decay},
        {"params": [p for p in rest if p.dim() <= 1], "weight_decay": 0.0},
    ]
    kind = torch.optim.Adam if config.optimizer == "adam" else torch.optim.AdamW
    adam = kind(
        groups,
        lr=1.0,  # set before each update
        betas=config.betas,
        eps=config.epsilon,
        fused=next(model.parameters()).device.type in ("cpu", "cuda"),
    )
    if not hidden:
        return [adam]
    is_narrow = choose_precision(config.precision, hidden[0].device) == "bfloat16"
    dtype = torch.bfloat16 if is_narrow else torch.float32
    return [adam, Muon(hidden, config.weight_decay, dtype=dtype)]


def takes_flag(optimizer: torch.optim.Optimizer) -> bool:
    """Tells whether the optimizer looks at its `found_inf` on the device, as fused ones do."""
    return isinstance(optimizer, Muon) or bool(optimizer.defaults.get("fused"))


def moments(optimizer: torch.optim.Optimizer) -> tuple[str, ...]:
    """Returns the names of what the optimizer remembers of each weight, its step apart."""
    return ("momentum_buffer",) if isinstance(optimizer, Muon) else ("exp_avg", "exp_avg_sq")


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
        progress = (step - (config.total_steps - config.descent)) / config.descent
    else:
        progress = (step - warmup) / max(1, config.total_steps - warmup)
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
