"""Beam search: the most probable translations that a model can be made to say.

At each step every live hypothesis is extended by every token, and of all these candidates of a
sentence the K best go on. A candidate that ends the sentence and is among the K best is finished.
The search of a sentence stops when K hypotheses are finished, or sooner when no live one can still
be better; then it leaves the batch. Finished hypotheses are ranked by
sum of log-probabilities / length ** alpha (Wu et al. 2016, section 7, with the plain power).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from transformer.decoding.beams import Beams, Hypothesis, best_extensions
from transformer.decoding.ensemble import Decodes, mean_probability, normalize
from transformer.decoding.options import SearchOptions
from transformer.ids import BOS, EOS, PAD
from transformer.precision import widen


@dataclass(frozen=True)
class Search:
    """The sentences that are still searched: where they stand and what they must keep to.

    Attributes:
        live: their live hypotheses.
        sentences: their numbers in the batch that search was given, (B,).
        fewest: tokens before the end of sentence may come, (B,).
        most: tokens after which it must come, (B,).
        best: scores of the K best finished hypotheses, the best first, (B, K); -inf where there is
            none yet.
    """

    live: Beams
    sentences: Tensor
    fewest: Tensor
    most: Tensor
    best: Tensor

    @classmethod
    def start(cls, src: Tensor, options: SearchOptions) -> Search:
        """Returns the search of source sentences (B, S) before its first step."""
        lengths = ((src != PAD) & (src != EOS)).sum(1).tolist()
        limits = torch.tensor([options.limits(n) for n in lengths], device=src.device)
        live = Beams.start(len(src), 1, src.device)
        best = live.totals.new_full((len(src), options.beam_size), -math.inf)
        sentences = torch.arange(len(src), device=src.device)
        return cls(live, sentences, limits[:, 0], limits[:, 1], best)

    def select(self, rows: Tensor) -> Search:
        """Returns the search of some of its sentences."""
        return Search(
            self.live.select(rows),
            self.sentences[rows],
            self.fewest[rows],
            self.most[rows],
            self.best[rows],
        )

    def is_over(self, options: SearchOptions) -> Tensor:
        """Tells which sentences need no further step: (B,).

        K hypotheses are finished, or the `n_best` asked for are and no live one can beat them: a
        sum of log-probabilities only falls, and counts for most at the greatest length.
        """
        longest = (self.most + 1).to(self.live.totals.dtype)
        reachable = self.live.totals[:, 0] / longest**options.length_penalty
        none_better = self.best[:, options.n_best - 1] >= reachable
        return none_better | self.best[:, -1].isfinite()


@torch.inference_mode()
def beam_search(
    models: Sequence[Decodes], src: Tensor, options: SearchOptions
) -> list[list[Hypothesis]]:
    """Translates source sentences (B, S) and returns the `n_best` hypotheses of each, best first.

    Several models make an ensemble: their probabilities are averaged. The result of a sentence does
    not depend on the others. A beam that holds all there are finds the exhaustive optimum; beam
    size 1 is greedy search. Fewer than `n_best` come only if there are no more.
    """
    found: list[list[Hypothesis]] = [[] for _ in range(len(src))]
    if not found:
        return found
    search = Search.start(src, options)
    states = [model.start(src) for model in models]
    while len(search.sentences):
        log_probs, states = next_log_probs(models, search.live, states)  # (B, K, V)
        willing = apply_limits(log_probs, search)
        chosen = best_extensions(search.live.totals, log_probs, 2 * options.beam_size)
        candidates = search.live.extend(chosen)
        scores = final_scores(candidates, options)
        for row, hypothesis in finish(candidates, scores, willing.gather(1, chosen.parents)):
            found[int(search.sentences[row])].append(hypothesis)
        num_rows = search.live.totals.numel()
        search, rows = advance(search, candidates, chosen.parents, scores, options)
        states = reorder(states, rows, num_rows)
    return [sorted(each, key=lambda h: -h.score)[: options.n_best] for each in found]


def next_log_probs(
    models: Sequence[Decodes], live: Beams, states: Sequence[Any]
) -> tuple[Tensor, list[Any]]:
    """Asks the models for the next token: log-probabilities (B, K, V) and the states after it."""
    last = live.ids[:, :, -1].reshape(-1, 1)
    answers = [model.decode(last, state) for model, state in zip(models, states, strict=True)]
    log_probs = mean_probability([widen(logits).log_softmax(-1) for logits, _ in answers])
    return log_probs.view(*live.totals.shape, -1), [state for _, state in answers]


def apply_limits(log_probs: Tensor, search: Search) -> Tensor:
    """Forbids, in place, what must not be said next, and tells who ends willingly: (B, K).

    Padding and the beginning of sentence are never said, the end not before `fewest` tokens, and
    nothing else after `most`.
    """
    length = search.live.length
    log_probs[:, :, [PAD, BOS]] = -math.inf
    log_probs[:, :, EOS].masked_fill_((length < search.fewest)[:, None], -math.inf)
    at_limit = (length >= search.most)[:, None]
    willing = ~at_limit.expand(log_probs.shape[:2])
    if at_limit.any():
        end = log_probs[:, :, EOS].clone()
        willing = willing | (end >= log_probs.amax(-1))
        log_probs.masked_fill_(at_limit[:, :, None], -math.inf)
        log_probs[:, :, EOS] = end
    return willing


def final_scores(candidates: Beams, options: SearchOptions) -> Tensor:
    """Returns the scores of the candidates that are finished, -inf for all others: (B, N)."""
    scores = normalize(candidates.totals, candidates.length, options.length_penalty)
    finished = candidates.ids[:, :, -1] == EOS
    finished[:, options.beam_size :] = False
    return scores.masked_fill(~finished, -math.inf)


def finish(candidates: Beams, scores: Tensor, willing: Tensor) -> list[tuple[int, Hypothesis]]:
    """Returns the finished candidates, each with the row of its sentence."""
    finished = scores.isfinite()
    rows = finished.nonzero()[:, 0].tolist()
    values = zip(
        candidates.ids[finished][:, 1:].tolist(),
        scores[finished].tolist(),
        candidates.log_probs[finished].tolist(),
        willing[finished].tolist(),
        strict=True,
    )
    return [(row, Hypothesis(*value)) for row, value in zip(rows, values, strict=True)]


def advance(
    search: Search, candidates: Beams, parents: Tensor, scores: Tensor, options: SearchOptions
) -> tuple[Search, Tensor]:
    """Goes on with the best candidates that do not end, of the sentences that are not over.

    Returns the search after this step, and for each of its hypotheses the row of its parent in the
    state: (B * K,).
    """
    ended = candidates.ids[:, :, -1] == EOS
    unfinished = replace(candidates, totals=candidates.totals.masked_fill(ended, -math.inf))
    places = unfinished.totals.topk(min(options.beam_size, ended.size(1))).indices  # (B, K)
    best = torch.cat((search.best, scores), dim=1).topk(options.beam_size).values
    num_parents = search.live.totals.size(1)
    search = replace(search, live=unfinished.pick(places), best=best)
    stay = (~search.is_over(options)).nonzero()[:, 0]
    rows = stay[:, None] * num_parents + parents.gather(1, places)[stay]
    return search.select(stay), rows.flatten()


def reorder(states: Sequence[Any], rows: Tensor, num_rows: int) -> list[Any]:
    """Returns the states of these rows, of `num_rows` that there are."""
    if rows.equal(torch.arange(num_rows, device=rows.device)):  # greedy search, mostly
        return list(states)
    return [state.select(rows) for state in states]
