"""What translations must keep to, in plain loops; and what may be asked of them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from hypothesis import strategies as st
from torch import Tensor

from transformer.decoding.constraints import Constraints
from transformer.decoding.formula import ScoreFormula
from transformer.decoding.options import SearchOptions
from transformer.ids import PAD, UNK

Phrase = tuple[int, ...]
formulas = st.builds(
    ScoreFormula,
    length_penalty=st.sampled_from([0.0, 0.6, 1.0]),
    length_normalization=st.sampled_from(["power", "gnmt"]),
    coverage_penalty=st.sampled_from([0.0, 0.3]),
)
rules = st.fixed_dictionaries(
    {
        "no_repeat_ngram": st.sampled_from([0, 1, 2]),
        "ban_unknown": st.booleans(),
        "min_length": st.sampled_from([0, 1]),
        "min_length_ratio": st.sampled_from([0.0, 0.4]),
        "max_length_ratio": st.sampled_from([0.4, 0.6]),
    }
)


def batch(sources: Sequence[Sequence[int]]) -> Tensor:
    width = max(map(len, sources))
    return torch.tensor([[*ids, *[PAD] * (width - len(ids))] for ids in sources])


def contains(ids: Sequence[int], phrase: Phrase) -> bool:
    return any(tuple(ids[i : i + len(phrase)]) == phrase for i in range(len(ids)))


def keeps_to(ids: Sequence[int], options: SearchOptions, own: Constraints, length: int) -> bool:
    """Tells in plain loops whether a translation without its end is one that may be found."""
    start = len(own.prefix)
    if tuple(ids[:start]) != own.prefix or not all(contains(ids, x) for x in own.include):
        return False
    fewest, most = options.limits(length)
    if not fewest <= len(ids) - start <= max(most, sum(map(len, own.include))):
        return False
    for i in range(start, len(ids)):
        if options.ban_unknown and ids[i] == UNK:
            return False
        if any(tuple(ids[: i + 1][-len(x) :]) == x for x in own.exclude):
            return False
        n = options.no_repeat_ngram
        if n and contains(ids[:i], tuple(ids[i + 1 - n : i + 1])) and i + 1 >= n:
            return False
    return True
