"""The loss: a sum over real tokens, divided later by whoever holds the whole update."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer.data.batching import Batch
from transformer.model.transformer import Transformer
from transformer.precision import widen

MOST_LOGITS = 2**20
"""Logits that are in memory at a time, on a CPU, so that its caches hold most of them; 64 times as
many on a GPU."""


def batch_loss(model: Transformer, batch: Batch, label_smoothing: float = 0.0) -> Tensor:
    """Returns the `token_loss` of a model's predictions, summed over a batch's real tokens: ()."""
    hidden = model.hidden(batch.src, batch.tgt, batch.src_packing, batch.tgt_packing)
    labels = batch.tgt_packing.real(batch.tgt_packing.pack(batch.labels))
    return token_loss(hidden, model.output.weight, labels, label_smoothing)


def token_loss(
    hidden: Tensor, weight: Tensor, labels: Tensor, label_smoothing: float = 0.0
) -> Tensor:
    """Returns the cross-entropy in nats, summed over N tokens: (N, D), (V, D), (N,) -> ().

    The logits are hidden @ weight^T, but only those of some tokens are in memory at a time. With
    label smoothing e, the target puts 1 - e on the label and spreads e evenly over the vocabulary
    (Szegedy et al. 2016, section 7): that adds e times the `smoothing_loss` to the plain
    cross-entropy. Log-probabilities and sums are float32 or wider.
    """
    loss = _CrossEntropy.apply(hidden, weight, labels, torch.is_grad_enabled())
    if label_smoothing:
        loss = loss + label_smoothing * smoothing_loss(hidden, weight, labels)
    return loss


def smoothing_loss(hidden: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
    """Returns the sum of (logit of the label - mean logit), a linear function of `hidden`."""
    hidden, weight = widen(hidden), widen(weight)
    of_labels = (hidden * F.embedding(labels, weight)).sum()
    of_all = (hidden.sum(0) * weight.mean(0)).sum()
    return of_labels - of_all


def token_chunks(
    tensors: Sequence[Tensor], vocab_size: int, passes: int = 1
) -> Iterator[tuple[Tensor, ...]]:
    """Cuts tensors of tokens (N, ...) alike, so that a chunk's logits, of so many passes, are no
    more than `MOST_LOGITS`.
    """
    most = MOST_LOGITS if tensors[0].device.type == "cpu" else 64 * MOST_LOGITS
    num_tokens = max(1, most // (passes * vocab_size))
    return zip(*(x.split(num_tokens) for x in tensors), strict=True)


class _CrossEntropy(torch.autograd.Function):
    """Cross-entropy of logits that are never all in memory: each chunk of tokens gives its part of
    the loss, and of the gradients at once, before the next chunk is looked at.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, labels: Tensor, needs_gradients: bool
    ) -> Tensor:
        loss = widen(hidden).new_zeros(())
        d_hidden = torch.empty_like(hidden)
        d_weight = torch.zeros_like(weight)
        parts = (hidden, labels[:, None], d_hidden)
        for h, label, d_h in token_chunks(parts, len(weight)):
            log_probs = widen(F.linear(h, weight)).log_softmax(-1)  # (n, D) -> (n, V)
            loss -= log_probs.gather(1, label).sum()
            if needs_gradients:
                d_logits = log_probs.exp_()  # softmax - one-hot label
                d_logits.scatter_add_(1, label, d_logits.new_full(label.shape, -1.0))
                d_logits = d_logits.to(hidden.dtype)
                d_h.copy_(d_logits @ weight)
                d_weight += d_logits.t() @ h
        ctx.save_for_backward(d_hidden, d_weight)
        return loss

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        d_hidden, d_weight = ctx.saved_tensors
        return d_hidden * grad.to(d_hidden.dtype), d_weight * grad, None, None
