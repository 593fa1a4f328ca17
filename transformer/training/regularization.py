"""The loss that training minimises: cross-entropy with label smoothing, and on request hidden
tokens and a second pass whose predictions must agree with the first (R-Drop, SimCut).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer.config import TrainingConfig
from transformer.data.batching import Batch
from transformer.ids import BOS, EOS
from transformer.model.transformer import Transformer
from transformer.precision import widen
from transformer.training.loss import smoothing_loss, token_chunks, token_loss


class PassWeights(NamedTuple):
    """What two passes of the same sentences add to the loss.

    Attributes:
        first: weight of the first pass's cross-entropy.
        second: weight of the second pass's.
        first_second: weight of the divergence KL(first || second).
        second_first: weight of KL(second || first).
    """

    first: float
    second: float
    first_second: float
    second_first: float

    @classmethod
    def of(cls, config: TrainingConfig) -> PassWeights:
        """Returns the weights of R-Drop (Wu et al. 2021, equation 4, halved) or SimCut (Gao et al.
        2022, section 3).
        """
        if config.simcut:
            return cls(1.0, 0.0, config.simcut, 0.0)
        return cls(0.5, 0.5, config.r_drop / 2, config.r_drop / 2)


def training_loss(model: Transformer, batch: Batch, config: TrainingConfig) -> Tensor:
    """Returns the loss of a micro-batch, summed over its real target tokens: ().

    With two passes the batch holds its sentences twice, one copy after the other, and each counts
    once. Which tokens are hidden is drawn from torch's generator.
    """
    src_cutoff = tgt_cutoff = 0.0
    if config.simcut:
        src_cutoff = tgt_cutoff = config.token_cutoff
    hidden = model.hidden(
        batch.src,
        batch.tgt,
        batch.src_packing,
        batch.tgt_packing,
        keep_tokens(batch.src, config.source_word_dropout, src_cutoff),
        keep_tokens(batch.tgt, config.target_word_dropout, tgt_cutoff),
    )
    labels = batch.tgt_packing.real(batch.tgt_packing.pack(batch.labels))
    if config.num_passes == 1:
        return token_loss(hidden, model.output.weight, labels, config.label_smoothing)
    weights = PassWeights.of(config)
    return paired_loss(hidden, model.output.weight, labels, config.label_smoothing, weights)


def keep_tokens(ids: Tensor, dropout: float, cutoff: float) -> Tensor | None:
    """Draws which tokens of a batch are seen and which hidden: bool (B, T), None = all are seen.

    Beginnings and ends of sentences are always seen.

    Args:
        ids: the batch (B, T).
        dropout: probability of hiding a token.
        cutoff: probability of hiding one of those left, in the second half of the rows alone.
    """
    if dropout == 0 and cutoff == 0:
        return None
    kept = torch.rand(ids.shape, device=ids.device) >= dropout
    if cutoff:
        second = kept[len(ids) // 2 :]
        second &= torch.rand(second.shape, device=ids.device) >= cutoff
    return kept | (ids == BOS) | (ids == EOS)


def paired_loss(
    hidden: Tensor, weight: Tensor, labels: Tensor, label_smoothing: float, weights: PassWeights
) -> Tensor:
    """Returns the loss of N tokens that passed twice: (2N, D), (V, D), (2N,) -> ().

    The first N rows are the first pass. The Kullback-Leibler divergences send their gradient into
    both passes. As in `token_loss`, the logits of only some tokens are in memory at a time.
    """
    loss = _PairedLoss.apply(hidden, weight, labels, weights, torch.is_grad_enabled())
    if label_smoothing:
        passes = zip(hidden.chunk(2), labels.chunk(2), weights[:2], strict=True)
        for half, half_labels, share in passes:
            if share:
                loss = loss + label_smoothing * share * smoothing_loss(half, weight, half_labels)
    return loss


class _PairedLoss(torch.autograd.Function):
    """Cross-entropies of both passes and the divergences between their predictions; each chunk of
    tokens gives its part of the loss and of the gradients at once.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        labels: Tensor,
        weights: PassWeights,
        needs_gradients: bool,
    ) -> Tensor:
        loss = widen(hidden).new_zeros(())
        d_hidden = torch.empty_like(hidden)
        d_weight = torch.zeros_like(weight)
        halves = (*hidden.chunk(2), *d_hidden.chunk(2), labels.chunk(2)[0][:, None])
        for h_1, h_2, d_h_1, d_h_2, label in token_chunks(halves, len(weight), passes=2):
            log_p, log_q = (widen(F.linear(h, weight)).log_softmax(-1) for h in (h_1, h_2))
            part, d_p, d_q = _chunk_loss(log_p, log_q, label, weights)
            loss += part
            if not needs_gradients:
                continue
            for h, d_h, d_logits in ((h_1, d_h_1, d_p), (h_2, d_h_2, d_q)):
                d_logits = d_logits.to(hidden.dtype)
                d_h.copy_(d_logits @ weight)
                d_weight += d_logits.t() @ h
        ctx.save_for_backward(d_hidden, d_weight)
        return loss

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        d_hidden, d_weight = ctx.saved_tensors
        return d_hidden * grad.to(d_hidden.dtype), d_weight * grad, None, None, None


def _chunk_loss(
    log_p: Tensor, log_q: Tensor, label: Tensor, weights: PassWeights
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the loss of n tokens and its gradients by the logits of both passes.

    With p and q the two predictions and r = log p - log q, the gradient of KL(p || q) is
    p * (r - KL(p || q)) by the logits of p and q - p by those of q.

    Args:
        log_p: log-probabilities of the first pass (n, V).
        log_q: those of the second.
        label: (n, 1).
        weights: of the parts.
    """
    first, second, pq, qp = weights
    ratio = log_p - log_q
    loss = -first * log_p.gather(1, label).sum() - second * log_q.gather(1, label).sum()
    p, q = log_p.exp_(), log_q.exp_()
    kl_pq = torch.linalg.vecdot(p, ratio)[:, None]  # (n, V) -> (n, 1)
    kl_qp = -torch.linalg.vecdot(q, ratio)[:, None]
    loss = loss + pq * kl_pq.sum() + qp * kl_qp.sum()
    d_p = torch.add(first + qp - pq * kl_pq, ratio, alpha=pq).mul_(p)
    d_q = torch.add(second + pq - qp * kl_qp, ratio, alpha=-qp).mul_(q)
    d_p.sub_(q, alpha=qp).scatter_add_(1, label, d_p.new_full(label.shape, -first))
    d_q.sub_(p, alpha=pq).scatter_add_(1, label, d_q.new_full(label.shape, -second))
    return loss, d_p, d_q
