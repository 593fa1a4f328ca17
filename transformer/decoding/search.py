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

from transformer.config import DecodingConfig
from transformer.decoding.ensemble import Decodes, mean_probability, normalize
from transformer.ids import BOS, EOS, PAD
from transformer.precision import widen


@dataclass(frozen=True)
class SearchOptions:
    """How to search; the names and meanings are those of `DecodingConfig`.

    Raises:
        ValueError: a value is out of range, or two contradict each other.
    """

    beam_size: int = 5
    n_best: int = 1
    length_penalty: float = 1.0
    min_length: int = 0
    min_length_ratio: float = 0.0
    max_length: int = 50
    max_length_ratio: float = 2.0

    def __post_init__(self) -> None:
        if min(self.beam_size, self.n_best, self.max_length) < 1:
            raise ValueError("beam_size, n_best and max_length must be at least 1")
        if min(self.length_penalty, self.min_length, self.min_length_ratio) < 0:
            raise ValueError("length_penalty, min_length and min_length_ratio must not be negative")
        for name, most in (
            ("length_penalty", 10),
            ("max_length", 10**6),
            ("max_length_ratio", 1000),
        ):
            if not getattr(self, name) <= most:
                raise ValueError(f"{name} {getattr(self, name)} exceeds {most}")
        for low, high in (
            ("n_best", "beam_size"),
            ("min_length", "max_length"),
            ("min_length_ratio", "max_length_ratio"),
        ):
            if getattr(self, low) > getattr(self, high):
                raise ValueError(f"{low} {getattr(self, low)} exceeds {high} {getattr(self, high)}")

    @classmethod
    def from_config(cls, config: DecodingConfig) -> SearchOptions:
        """Returns the options that a configuration names."""
        return cls(**config.model_dump(exclude={"batch_tokens"}))

    def limits(self, source_length: int) -> tuple[int, int]:
        """Returns the fewest and the most tokens of a translation, its end not counted.

        `source_length` counts the source's tokens without its end.
        """
        tiny = 1e-9  # 0.1 * 30 is a little more than 3
        fewest = max(self.min_length, math.ceil(self.min_length_ratio * source_length - tiny))
        most = self.max_length + math.floor(self.max_length_ratio * source_length + tiny)
        return fewest, most


@dataclass(frozen=True)
class Hypothesis:
    """A translation that the search found.

    Attributes:
        ids: its tokens, the end of sentence last.
        score: sum of `log_probs` / number of them ** length penalty.
        log_probs: of each token, the end of sentence too.
        finished: False if it was cut: it came to its limit, where the model would rather have gone
            on than ended. Its end and score are then those of the text as it stands.
    """

    ids: list[int]
    score: float
    log_probs: list[float]
    finished: bool


@dataclass(frozen=True)
class Beams:
    """Hypotheses of the same length, K for each of B sentences.

    Attributes:
        ids: from the beginning of sentence on, (B, K, T + 1).
        log_probs: of each token after that, (B, K, T).
        totals: their sums, (B, K); -inf marks a place without a hypothesis.
    """

    ids: Tensor
    log_probs: Tensor
    totals: Tensor

    @classmethod
    def start(cls, num_sentences: int, device: torch.device) -> Beams:
        """Returns the one empty hypothesis of each sentence."""
        wide = torch.float32 if device.type == "mps" else torch.float64
        return cls(
            torch.full((num_sentences, 1, 1), BOS, device=device),
            torch.zeros(num_sentences, 1, 0, device=device),
            torch.zeros(num_sentences, 1, dtype=wide, device=device),
        )

    def select(self, sentences: Tensor) -> Beams:
        """Returns the beams of some of the sentences."""
        return Beams(self.ids[sentences], self.log_probs[sentences], self.totals[sentences])

    def pick(self, places: Tensor) -> Beams:
        """Returns the hypotheses at `places` (B, N) of each sentence."""
        wide = places[:, :, None]
        return Beams(
            self.ids.gather(1, wide.expand(-1, -1, self.ids.size(2))),
            self.log_probs.gather(1, wide.expand(-1, -1, self.log_probs.size(2))),
            self.totals.gather(1, places),
        )

    def expand(self, log_probs: Tensor, num: int) -> tuple[Beams, Tensor]:
        """Returns the `num` best candidates, the best first, and each one's parent place (B, N).

        `log_probs` (B, K, V) are those of the next token of each hypothesis.
        """
        steps, tokens = log_probs.topk(min(num, log_probs.size(2)))  # (B, K, V) -> (B, K, N)
        totals = (self.totals[:, :, None] + steps).flatten(1)
        totals, best = totals.topk(min(num, totals.size(1)))  # (B, K * N) -> (B, N)
        parents = best // steps.size(2)
        before = self.pick(parents)
        step, token = (x.flatten(1).gather(1, best)[:, :, None] for x in (steps, tokens))
        ids = torch.cat((before.ids, token), dim=2)
        return Beams(ids, torch.cat((before.log_probs, step), dim=2), totals), parents


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
        live = Beams.start(len(src), src.device)
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
        candidates, parents = search.live.expand(log_probs, 2 * options.beam_size)
        scores = final_scores(candidates, options)
        for row, hypothesis in finish(candidates, scores, willing.gather(1, parents)):
            found[int(search.sentences[row])].append(hypothesis)
        num_rows = search.live.totals.numel()
        search, rows = advance(search, candidates, parents, scores, options)
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
    length = search.live.log_probs.size(2)
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
    scores = normalize(candidates.totals, candidates.log_probs.size(2), options.length_penalty)
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
