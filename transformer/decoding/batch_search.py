"""One batch of parts to their hypotheses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from torch import Tensor

from transformer.data.batching import pad
from transformer.data.tokenizer import Tokenizer
from transformer.decoding.beams import Hypothesis
from transformer.decoding.constraints import Constraints
from transformer.decoding.ensemble import Decodes
from transformer.decoding.options import SearchOptions
from transformer.decoding.part_search import search_parts
from transformer.decoding.parts import Part
from transformer.decoding.sampling import sample
from transformer.decoding.sampling_options import SamplingOptions
from transformer.decoding.search import beam_search
from transformer.decoding.shortlist import Shortlist, Shortlisted
from transformer.model.transformer import Transformer


class Task(NamedTuple):
    """What is searched at once.

    Attributes:
        parts: whose translations are sought.
        options: how to search.
        sampling: how to draw translations instead, if that is asked for.
    """

    parts: Sequence[Part]
    options: SearchOptions
    sampling: SamplingOptions | None = None


def search_batch(
    models: Sequence[Transformer],
    target: Tokenizer,
    shortlist: Shortlist | None,
    task: Task,
) -> list[list[Hypothesis]]:
    """Searches for the translations of a batch, or draws them: `n_best` or all samples of each.

    With a shortlist a search finds only what it allows, except where a translation must hold some
    text.
    """
    device = next(models[0].parameters()).device
    if task.sampling is not None:  # what is drawn depends on the numbers of the tokens
        shortlist = None

    def search_alike(rows: Sequence[int], own: Sequence[Constraints]) -> list[list[Hypothesis]]:
        src = pad([np.array(task.parts[i].src) for i in rows]).to(device)
        if shortlist is None or task.parts[rows[0]].asks_for_text:
            return _search(models, src, task, own)
        tokens = shortlist.allows(src).any(0).nonzero()[:, 0]
        narrowed = [Shortlisted(model, shortlist, tokens) for model in models]
        numbers = {token: number for number, token in enumerate(tokens.tolist())}
        found = _search(narrowed, src, task, [_renumbered(x, numbers) for x in own])
        names = tokens.tolist()
        return [[replace(h, ids=[names[i] for i in h.ids]) for h in each] for each in found]

    def search(rows: Sequence[int], own: Sequence[Constraints]) -> list[list[Hypothesis]]:
        found: dict[int, list[Hypothesis]] = {}
        for asks in {task.parts[i].asks_for_text for i in rows}:
            alike = [k for k, i in enumerate(rows) if task.parts[i].asks_for_text == asks]
            results = search_alike([rows[k] for k in alike], [own[k] for k in alike])
            found |= zip(alike, results, strict=True)
        return [found[k] for k in range(len(rows))]

    return search_parts(search, task.parts, target)


def _search(
    models: Sequence[Decodes], src: Tensor, task: Task, own: Sequence[Constraints]
) -> list[list[Hypothesis]]:
    if task.sampling is not None:
        return sample(models, src, task.options, task.sampling, own)
    return beam_search(models, src, task.options, own)


def _renumbered(constraints: Constraints, numbers: dict[int, int]) -> Constraints:
    """Returns what must not be said in the numbers of a smaller vocabulary, where it can be."""
    excluded = [x for x in constraints.exclude if all(token in numbers for token in x)]
    phrases = tuple(tuple(numbers[token] for token in phrase) for phrase in excluded)
    return Constraints(exclude=phrases)
