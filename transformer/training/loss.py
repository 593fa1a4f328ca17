"""The loss: a sum over real tokens, divided later by whoever holds the whole update."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from transformer.ids import PAD


def token_loss(logits: Tensor, labels: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Returns the cross-entropy in nats, summed over real tokens: (B, T, V), (B, T) -> ().

    With label smoothing e, the target puts 1 - e on the label and spreads e evenly over the
    vocabulary (Szegedy et al. 2016, section 7). Padding adds exactly nothing; computed in float32
    or better.
    """
    if logits.dtype.itemsize < 4:
        logits = logits.float()
    return F.cross_entropy(
        logits.flatten(0, 1),
        labels.flatten(),
        ignore_index=PAD,
        reduction="sum",
        label_smoothing=label_smoothing,
    )
