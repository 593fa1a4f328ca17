"""Forced scores: how probable models find given translations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from transformer.data.batching import collate, micro_batches
from transformer.decoding.ensemble import Decodes, mean_probability, normalize
from transformer.ids import PAD
from transformer.precision import widen


@dataclass(frozen=True)
class Score:
    """The score of a given translation, by the formula that search ranks by.

    Attributes:
        score: sum of `log_probs` / number of them ** length penalty.
        log_probs: of each token, the end of sentence too.
    """

    score: float
    log_probs: list[float]


@torch.inference_mode()
def score_pairs(
    models: Sequence[Decodes],
    src: Sequence[Sequence[int]],
    tgt: Sequence[Sequence[int]],
    length_penalty: float = 1.0,
    batch_tokens: int = 4096,
    device: torch.device | str = "cpu",
) -> list[Score]:
    """Scores pairs of source and target ids, each with its end of sentence, in order.

    Several models make an ensemble, as in search. `batch_tokens` bounds what is scored at once:
    rows times the longest side.
    """
    lengths = np.array([max(len(s), len(t)) for s, t in zip(src, tgt, strict=True)], dtype=int)
    scores: dict[int, Score] = {}
    for indices in micro_batches(lengths, batch_tokens):
        batch = collate(
            [np.asarray(src[i]) for i in indices], [np.asarray(tgt[i]) for i in indices]
        ).to(torch.device(device))
        states = [model.start(batch.src) for model in models]
        log_probs = mean_probability(
            [
                chosen_log_probs(model.decode(batch.tgt, state)[0], batch.labels)
                for model, state in zip(models, states, strict=True)
            ]
        )
        for i, row, length in zip(
            indices.tolist(), log_probs.tolist(), (batch.labels != PAD).sum(1).tolist(), strict=True
        ):
            total = sum(row[:length])
            scores[i] = Score(normalize(total, length, length_penalty), row[:length])
    return [scores[i] for i in range(len(lengths))]


def chosen_log_probs(logits: Tensor, labels: Tensor) -> Tensor:
    """Returns the log-probabilities of the labels: (B, T, V), (B, T) -> (B, T)."""
    logits = widen(logits)
    return logits.gather(-1, labels[:, :, None])[:, :, 0] - logits.logsumexp(-1)
