"""Beam search: the most probable translations that a model can be made to say.

At each step every live hypothesis is extended by every token, and of all these candidates of a
sentence the K best go on. A candidate that ends the sentence and is among the K best is finished.
The search of a sentence stops when K hypotheses are finished, or sooner when no live one can still
be better; then it leaves the batch. Finished hypotheses are ranked by `ScoreFormula`.

With several groups (Vijayakumar et al. 2018) each is a search of its own with its share of the K
places, and what a group says at a step is made less attractive to those after it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from transformer.decoding.beams import Beams, Extensions, Hypothesis, best_extensions
from transformer.decoding.constraints import Constraints, extensions_towards
from transformer.decoding.ensemble import Decodes, mean_coverage, mean_probability
from transformer.decoding.options import SearchOptions
from transformer.decoding.rules import Rules
from transformer.ids import EOS

MOST_IDLE = 1 / 6
"""Share of the sentences that may be over and still in the batch: to take some out copies the keys
and values of all others."""


@dataclass(frozen=True)
class Search:
    """The sentences that are still searched: where they stand and what they must keep to.

    Attributes:
        live: their live hypotheses, group by group.
        sentences: their numbers in the batch that search was given, (B,).
        rules: what they must keep to.
        best: scores of the best finished hypotheses of each group, the best first, (B, G, K / G);
            -inf where there is none yet.
    """

    live: Beams
    sentences: Tensor
    rules: Rules
    best: Tensor

    @classmethod
    def start(
        cls,
        src: Tensor,
        options: SearchOptions,
        constraints: Sequence[Constraints] | None = None,
    ) -> Search:
        """Returns the search of source sentences (B, S) before its first step."""
        live = Beams.start(len(src), options.beam_groups, src.device)
        best = live.totals.new_full((len(src), options.beam_groups, options.group_size), -math.inf)
        sentences = torch.arange(len(src), device=src.device)
        return cls(live, sentences, Rules.start(src, options, constraints), best)

    def select(self, rows: Tensor) -> Search:
        """Returns the search of some of its sentences."""
        return Search(
            self.live.select(rows),
            self.sentences[rows],
            self.rules.select(rows),
            self.best[rows],
        )

    @property
    def is_full(self) -> Tensor:
        """Tells which groups have found as many hypotheses as they have places: (B, G)."""
        return self.best[:, :, -1].isfinite()

    def is_over(self, options: SearchOptions) -> Tensor:
        """Tells which sentences need no further step: (B,).

        All groups are full, or nothing is left to extend. A single group may also stop when the
        `n_best` asked for are finished and no live one can beat them: a sum of log-probabilities
        only falls, and counts for most at the greatest length.
        """
        total = self.live.totals.amax(1)
        over = self.is_full.all(1) | (total == -math.inf)
        if options.beam_groups > 1:
            return over
        reachable = total / options.formula.norm((self.rules.most + 1).to(total.dtype))
        return over | (self.best[:, 0, options.n_best - 1] >= reachable)


@torch.inference_mode()
def beam_search(
    models: Sequence[Decodes],
    src: Tensor,
    options: SearchOptions,
    constraints: Sequence[Constraints] | None = None,
) -> list[list[Hypothesis]]:
    """Translates source sentences (B, S) and returns the `n_best` hypotheses of each, best first.

    Several models make an ensemble: their probabilities are averaged. The result of a sentence does
    not depend on the others. A beam that holds all there are finds the exhaustive optimum; beam
    size 1 is greedy search. Fewer than `n_best`, or none, come only if there are no more that keep
    to the rules. What several groups find is given once; then a search without groups finds more.

    Args:
        models: they read the same vocabularies.
        src: source ids, each with its end of sentence.
        options: how to search.
        constraints: what holds for each sentence alone.
    """
    found: list[dict[tuple[int, ...], Hypothesis]] = [{} for _ in range(len(src))]
    if not found:
        return []
    search = Search.start(src, options, constraints)
    states = start_states(models, src, options)
    while len(search.sentences):
        log_probs, states = next_log_probs(models, search.live, states)  # (B, K, V)
        willing = search.rules.forbid(log_probs, search.live.ids)
        chosen = choose(search, log_probs, options)
        candidates = search.live.extend(chosen)
        missed = (
            mean_coverage(states).gather(1, chosen.parents) if options.coverage_penalty else None
        )
        scores = final_scores(search, candidates, missed, options)
        for row, hypothesis in finish(candidates, scores, willing.gather(1, chosen.parents)):
            found[int(search.sentences[row])].setdefault(tuple(hypothesis.ids), hypothesis)
        num_rows = search.live.totals.numel()
        search, rows = advance(search, candidates, chosen.parents, scores, options)
        states = reorder(states, rows, num_rows)
    if options.beam_groups > 1:
        _fill(found, models, src, options, constraints)
    return [sorted(each.values(), key=lambda h: -h.score)[: options.n_best] for each in found]


def _fill(
    found: list[dict[tuple[int, ...], Hypothesis]],
    models: Sequence[Decodes],
    src: Tensor,
    options: SearchOptions,
    constraints: Sequence[Constraints] | None,
) -> None:
    """Adds, where groups found fewer than `n_best`, the best that a search without groups finds."""
    short = [i for i, each in enumerate(found) if len(each) < options.n_best]
    if not short:
        return
    own = None if constraints is None else [constraints[i] for i in short]
    plain = replace(options, beam_groups=1)
    for i, hypotheses in zip(short, beam_search(models, src[short], plain, own), strict=True):
        for hypothesis in hypotheses:
            if len(found[i]) < options.n_best:
                found[i].setdefault(tuple(hypothesis.ids), hypothesis)


def start_states(models: Sequence[Decodes], src: Tensor, options: SearchOptions) -> list[Any]:
    """Returns the models' states for an empty hypothesis of each group: B * G rows."""
    states = [model.start(src) for model in models]
    if options.coverage_penalty:
        states = [state.watch() for state in states]
    rows = torch.arange(len(src), device=src.device).repeat_interleave(options.beam_groups)
    return reorder(states, rows, len(src))


def next_log_probs(
    models: Sequence[Decodes], live: Beams, states: Sequence[Any]
) -> tuple[Tensor, list[Any]]:
    """Asks the models for the next token: log-probabilities (B, K, V) and the states after it."""
    last = live.ids[:, :, -1].reshape(-1, 1)
    answers = [model.log_probs(last, state) for model, state in zip(models, states, strict=True)]
    log_probs = mean_probability([found for found, _ in answers])
    return log_probs.view(*live.totals.shape, -1), [state for _, state in answers]


def choose(search: Search, log_probs: Tensor, options: SearchOptions) -> Extensions:
    """Returns twice as many candidates as there are places, of which at most half end the sentence.

    They come group by group, and in a group the preferred ones first.
    """
    live, num_each = search.live, 2 * options.group_size
    if options.beam_groups == 1:
        return _choose_of_group(search, live.ids, live.totals, log_probs, num_each)
    said = torch.zeros_like(log_probs[:, 0])  # how often groups have said each token now: (B, V)
    size = live.totals.size(1) // options.beam_groups
    found = []
    for first in range(0, live.totals.size(1), size):
        part = slice(first, first + size)
        steps = log_probs[:, part] - options.diversity * said[:, None]
        best = _choose_of_group(search, live.ids[:, part], live.totals[:, part], steps, num_each)
        true_steps = best.log_probs + options.diversity * said.gather(1, best.tokens)
        found.append(Extensions(best.parents + first, best.tokens, true_steps))
        goes_on = (best.tokens != EOS) & best.log_probs.isfinite()
        goes_on &= goes_on.cumsum(1) <= options.group_size
        said.scatter_add_(1, best.tokens, goes_on.to(said.dtype))
    return Extensions(
        torch.cat([best.parents for best in found], dim=1),
        torch.cat([best.tokens for best in found], dim=1),
        torch.cat([best.log_probs for best in found], dim=1),
    )


def _choose_of_group(
    search: Search, ids: Tensor, totals: Tensor, log_probs: Tensor, num: int
) -> Extensions:
    """Returns the preferred extensions of one group's hypotheses."""
    if search.rules.include:
        return extensions_towards(search.rules.include, ids, totals, log_probs, num)
    return best_extensions(totals, log_probs, num)


def final_scores(
    search: Search, candidates: Beams, missed: Tensor | None, options: SearchOptions
) -> Tensor:
    """Returns the scores of the candidates that are finished, -inf for all others: (B, N).

    Those are finished that end the sentence and are among the preferred ones of a group that is not
    full. `missed` is the coverage of each, where it counts.
    """
    scores = options.formula.score(candidates.totals, candidates.length, missed)
    ended = (candidates.ids[:, :, -1] == EOS) & candidates.totals.isfinite()
    in_groups = ended.unflatten(1, (options.beam_groups, -1)).clone()
    in_groups[:, :, options.group_size :] = False
    in_groups &= ~search.is_full[:, :, None]
    return scores.masked_fill(~in_groups.flatten(1), -math.inf)


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
    """Goes on with the preferred candidates that do not end, of the sentences that are not over.

    Returns the search after this step, and for each of its hypotheses the row of its parent in the
    state: (B * K,).
    """
    num_groups = options.beam_groups
    ended = candidates.ids[:, :, -1] == EOS
    goes_on = (~ended & candidates.totals.isfinite()).unflatten(1, (num_groups, -1))
    places = goes_on.byte().argsort(dim=2, descending=True, stable=True)
    places = places[:, :, : options.group_size]  # (B, G, N / G) -> (B, G, K / G)
    firsts = torch.arange(num_groups, device=places.device)[:, None] * goes_on.size(2)
    places = (places + firsts).flatten(1)  # -> (B, K)
    live = replace(candidates, totals=candidates.totals.masked_fill(ended, -math.inf)).pick(places)
    both = torch.cat((search.best, scores.unflatten(1, (num_groups, -1))), dim=2)
    best = both.topk(options.group_size).values
    num_parents = search.live.totals.size(1)
    search = replace(search, live=live, best=best)
    over = search.is_over(options)
    rows = torch.arange(len(over), device=over.device)[:, None] * num_parents
    rows = rows + parents.gather(1, places)
    if over.sum() < MOST_IDLE * len(over):
        live.totals[over] = -math.inf
        return replace(search, rules=search.rules.without_limit(over)), rows.flatten()
    stay = (~over).nonzero()[:, 0]
    return search.select(stay), rows[stay].flatten()


def reorder(states: Sequence[Any], rows: Tensor, num_rows: int) -> list[Any]:
    """Returns the states of these rows, of `num_rows` that there are."""
    if rows.equal(torch.arange(num_rows, device=rows.device)):  # greedy search, mostly
        return list(states)
    return [state.select(rows) for state in states]
