"""The training loss of a model on ids that a test made."""

from __future__ import annotations

from torch import Tensor

from transformer.data.batching import Batch
from transformer.ids import PAD
from transformer.model.packing import Packing
from transformer.model.transformer import Transformer
from transformer.training.loss import batch_loss


def model_loss(
    model: Transformer, src: Tensor, tgt: Tensor, labels: Tensor, smoothing: float = 0.0
) -> Tensor:
    """Returns the loss, summed over the labels that are not padding."""
    packings = Packing.of(src != PAD), Packing.of(labels != PAD)
    return batch_loss(model, Batch(src, tgt, labels, *packings), smoothing)
