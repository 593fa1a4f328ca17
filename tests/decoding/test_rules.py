"""What is asked of translations holds in all of them, whatever is asked together."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_rules import batch, contains, formulas, keeps_to, rules
from torch import Tensor, nn

from transformer.decoding.constraints import Constraints
from transformer.decoding.formula import ScoreFormula
from transformer.decoding.options import SearchOptions
from transformer.decoding.scoring import score_pairs
from transformer.decoding.search import beam_search
from transformer.ids import BOS, EOS, PAD, UNK
from transformer.model.transformer import Transformer

Make = Callable[..., Transformer]
WORDS = [UNK, 4, 5]
SOURCES = [[4, 5, 4, EOS], [5, EOS], [4, 4, UNK, 5, 5, EOS]]

phrases = st.lists(st.sampled_from(WORDS), min_size=1, max_size=2).map(tuple)
few_phrases = st.lists(phrases, max_size=2).map(tuple)
constraints = st.builds(
    Constraints,
    prefix=st.lists(st.sampled_from(WORDS), max_size=2).map(tuple),
    include=few_phrases,
    exclude=few_phrases,
)


@torch.no_grad()
def watched(
    model: Transformer, source: Sequence[int], targets: Sequence[Sequence[int]]
) -> tuple[Tensor, Tensor]:
    """Reads whole translations at once: probabilities (B, T, V), and what each target token gives
    to each source token in the last layer, as the mean of its heads (B, T, S).
    """
    attention = model.decoder.layers[-1].cross_attention
    attend, seen = attention.attend, []

    def watch(q, keys_values, mask=None, **rest):  # type: ignore[no-untyped-def]
        seen.append(attention.weights(q, keys_values, mask).mean(1))
        return attend(q, keys_values, mask, **rest)

    attention.attend = watch
    try:
        src, tgt = batch([source] * len(targets)), batch([[BOS, *ids[:-1]] for ids in targets])
        return model(src, tgt).softmax(-1), seen[0]
    finally:
        del attention.attend


def scores_of(
    models: Sequence[Transformer],
    source: Sequence[int],
    targets: Sequence[Sequence[int]],
    formula: ScoreFormula,
) -> list[float]:
    """Scores translations by the formulas of Wu et al. 2016, section 7, written out."""
    if not targets:
        return []
    probs, weights = zip(*(watched(model, source, targets) for model in models), strict=True)
    log_probs = torch.stack(probs).mean(0).log()
    found = []
    for row, ids in enumerate(targets):
        total = log_probs[row, range(len(ids)), list(ids)].sum().item()
        n, alpha = len(ids), formula.length_penalty
        norm = ((5 + n) / 6) ** alpha if formula.length_normalization == "gnmt" else n**alpha
        received = [each[row, :n].sum(0).tolist() for each in weights]
        missed = sum(math.log(min(1.0, x)) for each in received for x in each) / len(models)
        found.append(total / norm + formula.coverage_penalty * missed)
    return found


def every_translation(options: SearchOptions, own: Constraints, length: int) -> list[list[int]]:
    """Enumerates what may be found, each with its end."""
    most = max(options.limits(length)[1], sum(map(len, own.include)))
    return [
        [*own.prefix, *rest, EOS]
        for n in range(most + 1)
        for rest in itertools.product(WORDS, repeat=n)
        if keeps_to([*own.prefix, *rest], options, own, length)
    ]


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 3),
    own=st.tuples(constraints, constraints, constraints),
    formula=formulas,
    asked=rules,
    num_models=st.integers(1, 2),
    num_groups=st.integers(1, 2),
)
def test_a_beam_that_holds_all_finds_what_enumeration_with_the_rules_finds(
    make_model: Make,
    seed: int,
    own: tuple[Constraints, ...],
    formula: ScoreFormula,
    asked: dict,
    num_models: int,
    num_groups: int,
) -> None:
    """Four tokens can be said (unk, two words, the end), up to four words after a prefix, each
    sentence of the batch under constraints of its own; also by two models of other shapes, and by
    groups, of which each holds all.
    """
    other = make_model(seed, d_model=8, num_heads=1, num_decoder_layers=1)
    models = [make_model(seed), other][:num_models]
    size = 130 * num_groups
    options = SearchOptions(size, size, max_length=1, beam_groups=num_groups, **asked)
    check_against_enumeration(models, replace(options, **vars(formula)), own)


def check_against_enumeration(
    models: Sequence[Transformer], options: SearchOptions, own: Sequence[Constraints]
) -> None:
    found = beam_search(models, batch(SOURCES), options, own)
    for source, each, hypotheses in zip(SOURCES, own, found, strict=True):
        every = every_translation(options, each, len(source) - 1)
        scores = scores_of(models, source, every, options.formula)
        expected = dict(zip(map(tuple, every), scores, strict=True))
        assert {tuple(h.ids) for h in hypotheses} == set(expected)
        assert [h.score for h in hypotheses] == sorted((h.score for h in hypotheses), reverse=True)
        for h in hypotheses:
            assert h.score == pytest.approx(expected[tuple(h.ids)], abs=1e-10)


@pytest.mark.slow
def test_every_combination_of_options_finds_what_enumeration_finds(make_model: Make) -> None:
    """All of them at once, with and without prefixes, phrases to say and phrases not to say."""
    choices = {
        "length_normalization": ["power", "gnmt"],
        "coverage_penalty": [0.0, 0.3],
        "no_repeat_ngram": [0, 2],
        "ban_unknown": [False, True],
        "min_length": [0, 1],
        "min_length_ratio": [0.0, 0.4],
        "beam_groups": [1, 2],
    }
    prefixes, include, exclude = ((), (5,), (4, UNK)), ((4, 5), (5,)), ((5, 4), (UNK,))
    plain = [Constraints(), Constraints(), Constraints()]
    full = [Constraints(x, include[: i + 1], exclude[:i]) for i, x in enumerate(prefixes)]
    model = make_model(1)
    for values in itertools.product(*choices.values()):
        asked = dict(zip(choices, values, strict=True))
        size = 130 * asked["beam_groups"]
        options = SearchOptions(size, size, max_length=1, max_length_ratio=0.4, **asked)
        for own in (plain, full):
            check_against_enumeration([model], options, own)


V = 20
POOL = [[(7 * i + j * j) % 16 + 4 for j in range(i % 7 + 1)] + [EOS] for i in range(9)]
many_phrases = st.lists(
    st.lists(st.integers(4, V - 1), min_size=1, max_size=3).map(tuple), max_size=2
).map(tuple)
own_constraints = st.builds(
    Constraints,
    prefix=st.lists(st.integers(4, V - 1), max_size=3).map(tuple),
    include=many_phrases,
    exclude=many_phrases,
)


@settings(max_examples=12, deadline=None)
@given(
    own=st.lists(own_constraints, min_size=len(POOL), max_size=len(POOL)),
    formula=formulas,
    beam=st.sampled_from([(1, 1), (3, 1), (4, 2), (4, 4)]),
    asked=rules,
    order=st.permutations(range(len(POOL))),
    first=st.integers(1, len(POOL) - 1),
)
def test_with_a_small_beam_too_rules_hold_scores_are_forced_and_neighbours_do_not_matter(
    make_model: Make,
    own: list[Constraints],
    formula: ScoreFormula,
    beam: tuple[int, int],
    asked: dict,
    order: list[int],
    first: int,
) -> None:
    """Whatever is asked together; in another order and in other batches the same is found."""
    model = make_model(2, vocab_size=V)
    options = SearchOptions(beam[0], beam[0], beam_groups=beam[1], max_length=4, **asked)
    options = replace(options, **vars(formula))
    found = beam_search([model], batch(POOL), options, own)
    for source, each, hypotheses in zip(POOL, own, found, strict=True):
        assert all(h.ids[-1] == EOS for h in hypotheses)
        assert all(keeps_to(h.ids[:-1], options, each, len(source) - 1) for h in hypotheses)
        assert len({tuple(h.ids) for h in hypotheses}) == len(hypotheses)
        scores = [h.score for h in hypotheses]
        assert scores == sorted(scores, reverse=True)
        forced = score_pairs([model], [source] * len(scores), [h.ids for h in hypotheses], formula)
        assert scores == pytest.approx([s.score for s in forced], abs=1e-10)
    again = []
    for rows in (order[:first], order[first:]):
        sources, constraints = batch([POOL[i] for i in rows]), [own[i] for i in rows]
        again += beam_search([model], sources, options, constraints)
    for i, hypotheses in zip(order, again, strict=True):
        assert [h.ids for h in hypotheses] == [h.ids for h in found[i]]
        scores = [h.score for h in found[i]]
        assert [h.score for h in hypotheses] == pytest.approx(scores, abs=1e-10)


def test_prefixes_of_other_lengths_stand_in_one_batch_and_none_is_plain_search(
    make_model: Make,
) -> None:
    """Limits count what follows them."""
    model = make_model(2, vocab_size=V)
    options = SearchOptions(3, 3, min_length=2, max_length=2, max_length_ratio=0.0)
    prefixes = [(), (7,), (9, 9, UNK)]
    found = beam_search([model], batch(POOL[:3]), options, [Constraints(x) for x in prefixes])
    for prefix, hypotheses in zip(prefixes, found, strict=True):
        assert len(hypotheses) == 3
        for h in hypotheses:
            assert h.ids[: len(prefix)] == list(prefix)
            assert len(h.ids) == len(prefix) + 2 + 1
    plain = beam_search([model], batch(POOL[:1]), options)[0]
    assert [h.ids for h in found[0]] == [h.ids for h in plain]


def test_the_number_of_threads_changes_nothing(make_model: Make) -> None:
    model = make_model(2, vocab_size=V)
    options = SearchOptions(2, 2, max_length=3, no_repeat_ngram=2, coverage_penalty=0.2)
    own = [Constraints(include=((7, 8),))] * 3
    before, found = torch.get_num_threads(), []
    try:
        for num in (1, 2):
            torch.set_num_threads(num)
            found.append(beam_search([model], batch(POOL[4:7]), options, own))
    finally:
        torch.set_num_threads(before)
    for ours, theirs in zip(*found, strict=True):
        assert [h.ids for h in ours] == [h.ids for h in theirs]
        scores = [h.score for h in theirs]
        assert [h.score for h in ours] == pytest.approx(scores, abs=1e-12)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_model_that_repeats_itself_says_no_sequence_twice_and_ends(
    recites: Callable[..., nn.Module], beam_size: int
) -> None:
    """It would say two words for ever; none of the translations is empty or left out."""
    logits = torch.full((1, V), -5.0, dtype=torch.float64)
    logits[0, [7, 8]], logits[0, EOS] = 3.0, -9.0
    options = SearchOptions(beam_size, beam_size, max_length=50, no_repeat_ngram=3)
    for hypotheses in beam_search([recites(logits)], batch(POOL), options):
        assert len(hypotheses) == beam_size
        for h in hypotheses:
            triples = list(zip(h.ids, h.ids[1:], h.ids[2:], strict=False))
            assert len(triples) == len(set(triples))
            assert len(h.ids) > 8


@pytest.mark.parametrize("beam_size", [1, 2, 5])
def test_phrases_are_said_however_small_the_beam(make_model: Make, beam_size: int) -> None:
    """Also several, overlapping ones, and at the limit."""
    model = make_model(1, vocab_size=V)
    options = SearchOptions(beam_size, beam_size, max_length=5, max_length_ratio=0.0)
    asked = [(7, 8, 9), (9, 9), (15,)]
    found = beam_search([model], batch(POOL), options, [Constraints(include=tuple(asked))] * 9)
    for hypotheses in found:
        assert hypotheses
        for h in hypotheses:
            assert all(contains(h.ids, phrase) for phrase in asked)


def test_what_cannot_be_said_gives_no_translation_and_leaves_the_others_alone(
    make_model: Make,
) -> None:
    model = make_model(1, vocab_size=V)
    own = [Constraints(include=((5, 6),), exclude=((6,),)), Constraints()]
    found = beam_search([model], batch(POOL[:2]), SearchOptions(3, 3), own)
    assert found[0] == []
    alone = beam_search([model], batch(POOL[1:2]), SearchOptions(3, 3))[0]
    assert [h.ids for h in found[1]] == [h.ids for h in alone]


def test_the_two_length_normalizations_are_their_formulas() -> None:
    assert ScoreFormula(0.6, "power").score(-3.0, 9) == pytest.approx(-3 / 9**0.6)
    assert ScoreFormula(0.6, "gnmt").score(-3.0, 9) == pytest.approx(-3 / (14 / 6) ** 0.6)
    assert ScoreFormula(0.0, "gnmt").score(-3.0, 9) == -3.0


@pytest.mark.parametrize(
    "wrong", [{"include": ((),)}, {"exclude": ((),)}, {"prefix": (EOS,)}, {"include": ((4, PAD),)}]
)
def test_constraints_that_cannot_be_are_refused(wrong: dict) -> None:
    with pytest.raises(ValueError, match="phrase"):
        Constraints(**wrong)
