"""Samples keep to what is asked of them, whatever is asked together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_rules import batch, formulas, keeps_to, rules

from transformer.decoding.constraints import Constraints
from transformer.decoding.formula import ScoreFormula
from transformer.decoding.options import SearchOptions
from transformer.decoding.sampling import sample
from transformer.decoding.sampling_options import SamplingOptions
from transformer.decoding.scoring import score_pairs
from transformer.ids import EOS
from transformer.model.transformer import Transformer

V = 20
POOL = [[(7 * i + j * j) % 16 + 4 for j in range(i % 7 + 1)] + [EOS] for i in range(8)]
words = st.integers(4, V - 1)
constraints = st.builds(
    Constraints,
    prefix=st.lists(words, max_size=3).map(tuple),
    exclude=st.lists(st.lists(words, min_size=1, max_size=2).map(tuple), max_size=4).map(tuple),
)
draws = st.builds(
    SamplingOptions,
    sample=st.integers(1, 3),
    temperature=st.sampled_from([0.0, 0.5, 1.0, 3.0]),
    top_k=st.sampled_from([0, 1, 4]),
    top_p=st.sampled_from([0.3, 1.0]),
    seed=st.integers(0, 9),
)


@settings(max_examples=12, deadline=None)
@given(
    own=st.lists(constraints, min_size=len(POOL), max_size=len(POOL)),
    formula=formulas,
    asked=rules,
    sampling=draws,
    order=st.permutations(range(len(POOL))),
    first=st.integers(1, len(POOL) - 1),
)
def test_samples_keep_to_the_rules_score_as_forced_and_do_not_mind_their_neighbours(
    make_model: Callable[..., Transformer],
    own: list[Constraints],
    formula: ScoreFormula,
    asked: dict,
    sampling: SamplingOptions,
    order: list[int],
    first: int,
) -> None:
    """Where nothing is left to say, one is cut before its least length."""
    model = make_model(2, vocab_size=V)
    options = replace(SearchOptions(1, 1, max_length=4, **asked), **vars(formula))
    free = replace(options, min_length=0, min_length_ratio=0.0)
    found = sample([model], batch(POOL), options, sampling, own)
    for source, each, samples in zip(POOL, own, found, strict=True):
        assert len(samples) == sampling.sample
        for h in samples:
            assert h.ids[-1] == EOS
            kept = options if h.finished else free
            assert keeps_to(h.ids[:-1], kept, each, len(source) - 1)
        ids = [h.ids for h in samples]
        forced = score_pairs([model], [source] * len(ids), ids, formula)
        assert [h.score for h in samples] == pytest.approx([s.score for s in forced], abs=1e-10)
    again = []
    for rows in (order[:first], order[first:]):
        sources, constraints = batch([POOL[i] for i in rows]), [own[i] for i in rows]
        again += sample([model], sources, options, sampling, constraints)
    for i, samples in zip(order, again, strict=True):
        assert [h.ids for h in samples] == [h.ids for h in found[i]]
