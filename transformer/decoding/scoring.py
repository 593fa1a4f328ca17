"""Forced scores: how probable models find given translations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from transformer.data.batching import collate, micro_batches
from transformer.decoding.ensemble import Decodes, mean_coverage, mean_probability
from transformer.decoding.formula import DEFAULT_FORMULA, ScoreFormula
from transformer.ids import PAD
from transformer.precision import widen


@dataclass(frozen=True)
class Score:
    """The score of a given translation, by the formula that search ranks by.

    Attributes:
        score: by the formula that was asked for.
        log_probs: of each token, the end of sentence too.
    """

    score: float
    log_probs: list[float]


@torch.inference_mode()
def score_pairs(
    models: Sequence[Decodes],
    src: Sequence[Sequence[int]],
    tgt: Sequence[Sequence[int]],
    formula: ScoreFormula = DEFAULT_FORMULA,
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
        if formula.coverage_penalty:
            states = [state.watch() for state in states]
        answers = [model.decode(batch.tgt, x) for model, x in zip(models, states, strict=True)]
        log_probs = mean_probability([chosen_log_probs(x, batch.labels) for x, _ in answers])
        missed: list[float | None] = [None] * len(indices)
        if formula.coverage_penalty:
            missed = mean_coverage([state for _, state in answers])[:, 0].tolist()
        lengths_of = (batch.labels != PAD).sum(1).tolist()
        rows = zip(indices.tolist(), log_probs.tolist(), lengths_of, missed, strict=True)
        for i, row, length, left_out in rows:
            scores[i] = Score(formula.score(sum(row[:length]), length, left_out), row[:length])
    return [scores[i] for i in range(len(lengths))]


def chosen_log_probs(logits: Tensor, labels: Tensor) -> Tensor:
    """Returns the log-probabilities of the labels: (B, T, V), (B, T) -> (B, T)."""
    logits = widen(logits)
    return logits.gather(-1, labels[:, :, None])[:, :, 0] - logits.logsumexp(-1)
