"""Samples against the probabilities they are drawn from, and against themselves elsewhere."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise, product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from torch import Tensor, nn

from transformer.decoding.beams import Hypothesis
from transformer.decoding.constraints import Constraints
from transformer.decoding.options import SearchOptions
from transformer.decoding.sampling import GOLDEN, _mix, draw, gumbel, sample
from transformer.decoding.sampling_options import SamplingOptions
from transformer.decoding.scoring import score_pairs
from transformer.decoding.search import beam_search
from transformer.ids import BOS, EOS, PAD, UNK
from transformer.model.transformer import Transformer

Make = Callable[..., Transformer]
SHORT = SearchOptions(1, 1, max_length=4, max_length_ratio=1.0)
POOL = [[(7 * i + j * j) % 16 + 4 for j in range(i % 7 + 1)] + [EOS] for i in range(10)]


def batch(sources: Sequence[Sequence[int]]) -> Tensor:
    width = max(map(len, sources))
    return torch.tensor([[*ids, *[PAD] * (width - len(ids))] for ids in sources])


def texts(found: Sequence[Sequence[Hypothesis]]) -> list[list[list[int]]]:
    return [[h.ids for h in hypotheses] for hypotheses in found]


def frequencies(log_probs: Tensor, sampling: SamplingOptions, num: int = 20_000) -> Tensor:
    """How often each token is drawn by so many different keys."""
    keys = _mix(torch.arange(num))
    tokens = draw(log_probs.expand(num, -1), keys, sampling)
    return torch.bincount(tokens, minlength=len(log_probs)) / num


def assert_close(found: Tensor, expected: Tensor, num: int = 20_000) -> None:
    """Frequencies lie within five standard deviations of probabilities."""
    assert ((found - expected).abs() <= 5 * (expected * (1 - expected) / num).sqrt()).all()


def test_the_random_bits_are_those_of_splitmix64() -> None:
    """The first numbers of seed 1234567, as published with implementations of the generator."""
    steps = torch.arange(1, 6) * GOLDEN
    bits = [x % 2**64 for x in _mix(1234567 + steps).tolist()]
    assert bits == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


def test_the_noise_has_the_gumbel_distribution() -> None:
    noise = gumbel(_mix(torch.arange(300))[:, None], torch.arange(300)).flatten().sort().values
    ranks = (torch.arange(len(noise)) + 0.5) / len(noise)
    distance = ((-(-noise).exp()).exp() - ranks).abs().max()
    assert distance < 1.63 / math.sqrt(len(noise))  # Kolmogorov and Smirnov, at 1 %


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_tokens_are_drawn_as_often_as_they_are_probable(temperature: float) -> None:
    log_probs = torch.tensor([0.4, 0.3, 0.2, 0.06, 0.04], dtype=torch.float64).log()
    found = frequencies(log_probs, SamplingOptions(temperature=temperature))
    assert_close(found, (log_probs / temperature).softmax(-1))


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({"top_k": 2}, [1, 3]),
        ({"top_k": 9}, [0, 1, 2, 3, 4]),
        ({"top_p": 0.69}, [1, 3]),
        ({"top_p": 0.71}, [1, 3, 0]),
        ({"top_p": 0.01}, [1]),
        ({"top_k": 3, "top_p": 0.75}, [1, 3]),  # 0.4 and 0.3 of the 0.9 that top_k leaves
    ],
)
def test_only_the_most_probable_are_drawn_in_their_proportions(
    options: dict, kept: list[int]
) -> None:
    probs = torch.tensor([0.2, 0.4, 0.06, 0.3, 0.04], dtype=torch.float64)
    expected = torch.zeros_like(probs)
    expected[kept] = probs[kept] / probs[kept].sum()
    assert_close(frequencies(probs.log(), SamplingOptions(**options)), expected)


@torch.no_grad()
def test_translations_are_drawn_as_often_as_they_are_probable(make_model: Make) -> None:
    """The model may say unk, two words and the end, two words at most: 13 translations."""
    model, source, num = make_model(3), [4, 5, 4, EOS], 4000
    options = SearchOptions(1, 1, max_length=2, max_length_ratio=0.0)
    found = sample([model], batch([source]), options, SamplingOptions(sample=num))[0]
    counts = Counter(tuple(h.ids) for h in found)
    for ids in (list(x) for n in range(3) for x in product([UNK, 4, 5], repeat=n)):
        logits = model(torch.tensor([source]), torch.tensor([[BOS, *ids]]))[0]
        logits[:, [PAD, BOS]] = -math.inf
        steps = logits.log_softmax(-1)[range(len(ids) + 1), [*ids, EOS]]
        if len(ids) == 2:
            steps[-1] = 0.0  # the end has to come
        share, expected = counts[(*ids, EOS)] / num, steps.sum().exp().item()
        assert abs(share - expected) <= 5 * math.sqrt(expected * (1 - expected) / num) + 1e-9


def test_temperature_0_is_greedy_search(make_model: Make) -> None:
    model = make_model(3, vocab_size=20)
    greedy = beam_search([model], batch(POOL), SHORT)
    cold = sample([model], batch(POOL), SHORT, SamplingOptions(sample=2, temperature=0.0))
    assert texts(cold) == [ids * 2 for ids in texts(greedy)]
    for samples, (best,) in zip(cold, greedy, strict=True):
        assert [h.score for h in samples] == pytest.approx([best.score] * 2, abs=1e-12)
        assert [h.finished for h in samples] == [best.finished] * 2


@settings(max_examples=10, deadline=None)
@given(order=st.permutations(range(len(POOL))), size=st.integers(1, len(POOL)))
def test_a_sample_depends_on_neither_order_nor_neighbours(
    make_model: Make, order: list[int], size: int
) -> None:
    model = make_model(2, vocab_size=20)
    sampling = SamplingOptions(sample=2, top_p=0.95, seed=7)
    alone = [sample([model], batch([source]), SHORT, sampling)[0] for source in POOL]
    for first in range(0, len(order), size):
        chosen = order[first : first + size]
        together = sample([model], batch([POOL[i] for i in chosen]), SHORT, sampling)
        assert texts(together) == texts([alone[i] for i in chosen])


def test_more_samples_begin_with_those_of_fewer(make_model: Make) -> None:
    model = make_model(2, vocab_size=20)
    few, many = (sample([model], batch(POOL), SHORT, SamplingOptions(sample=num)) for num in (3, 8))
    assert texts(few) == [ids[:3] for ids in texts(many)]
    assert len({tuple(ids) for ids in texts(many)[6]}) > 1


def test_another_seed_gives_other_samples(make_model: Make) -> None:
    model = make_model(2, vocab_size=20)
    one, again, other = (
        texts(sample([model], batch(POOL), SHORT, SamplingOptions(seed=seed))) for seed in (1, 1, 2)
    )
    assert one == again
    assert sum(a != b for a, b in zip(one, other, strict=True)) > 5


def test_samples_score_as_forced_whatever_they_were_drawn_from(make_model: Make) -> None:
    models = [make_model(4, vocab_size=20), make_model(5, vocab_size=20)]
    sampling = SamplingOptions(sample=3, temperature=1.7, top_k=9)
    options = SearchOptions(1, 1, 0.6, max_length=4)
    found = sample(models, batch(POOL), options, sampling)
    for source, samples in zip(POOL, found, strict=True):
        ids = [h.ids for h in samples]
        forced = score_pairs(models, [source] * 3, ids, options.formula)
        for h, s in zip(samples, forced, strict=True):
            assert h.score == pytest.approx(s.score, abs=1e-10)
            assert h.log_probs == pytest.approx(s.log_probs, abs=1e-10)


def test_samples_keep_to_the_limits_and_say_when_they_were_cut(
    recites: Callable[..., nn.Module],
) -> None:
    logits = torch.zeros(1, 20, dtype=torch.float64)
    logits[0, [PAD, BOS]], logits[0, EOS] = 9.0, -1.0
    options = SearchOptions(1, 1, min_length=2, max_length=3, max_length_ratio=1.0)
    found = sample([recites(logits)], batch(POOL), options, SamplingOptions(sample=20))
    for source, samples in zip(POOL, found, strict=True):
        most = 3 + len(source) - 1
        for h in samples:
            assert {PAD, BOS}.isdisjoint(h.ids)
            assert h.ids.index(EOS) == len(h.ids) - 1
            assert 2 <= len(h.ids) - 1 <= most
            assert h.finished == (len(h.ids) - 1 < most)
    assert {h.finished for samples in found for h in samples} == {False, True}


def test_samples_contain_nothing_that_they_must_not(recites: Callable[..., nn.Module]) -> None:
    """With three words and the end left, some come to where nothing may follow, and are cut."""
    logits = torch.full((1, 20), -50.0, dtype=torch.float64)
    logits[0, [7, 8, 9]], logits[0, [UNK, EOS]] = 0.0, -1.0
    options = SearchOptions(1, 1, max_length=9, no_repeat_ngram=2, ban_unknown=True)
    own = [Constraints((8,), exclude=((7, 8), (9, 9))) for _ in POOL]
    found = sample([recites(logits)], batch(POOL), options, SamplingOptions(sample=20), own)
    for h in (h for samples in found for h in samples):
        pairs = list(pairwise(h.ids))
        assert h.ids[0] == 8
        assert len(pairs) == len(set(pairs))
        assert {(7, 8), (9, 9)}.isdisjoint(pairs)
        assert UNK not in h.ids


def test_where_nothing_may_be_said_a_sample_is_cut(recites: Callable[..., nn.Module]) -> None:
    logits = torch.zeros(1, 6, dtype=torch.float64)
    options = SearchOptions(1, 1, min_length=5, no_repeat_ngram=1, ban_unknown=True)
    found = sample([recites(logits)], batch(POOL[:1]), options, SamplingOptions(sample=4))
    assert all(sorted(h.ids) == [EOS, 4, 5] and not h.finished for h in found[0])


def test_each_sample_begins_with_its_prefix_and_limits_count_what_follows(
    recites: Callable[..., nn.Module],
) -> None:
    logits = torch.zeros(1, 20, dtype=torch.float64)
    logits[0, EOS] = -50.0
    prefixes = [(), (7,), (9, 9, UNK)]
    options = SearchOptions(1, 1, max_length=2, max_length_ratio=0.0)
    sampling = SamplingOptions(sample=4)
    own = [Constraints(prefix) for prefix in prefixes]
    found = sample([recites(logits)], batch(POOL[:3]), options, sampling, own)
    for prefix, samples in zip(prefixes, found, strict=True):
        for h in samples:
            assert h.ids[: len(prefix)] == list(prefix)
            assert len(h.ids) == len(prefix) + 2 + 1


def test_no_prefix_changes_nothing(make_model: Make) -> None:
    model, sampling = make_model(2, vocab_size=20), SamplingOptions(sample=2)
    without = sample([model], batch(POOL), SHORT, sampling)
    own = [Constraints((5, 6, 7) if i == 4 else ()) for i in range(len(POOL))]
    others = sample([model], batch(POOL), SHORT, sampling, own)
    assert texts(others)[:4] + texts(others)[5:] == texts(without)[:4] + texts(without)[5:]


def test_nothing_to_sample_gives_nothing(make_model: Make) -> None:
    empty = torch.zeros(0, 3, dtype=torch.long)
    assert sample([make_model()], empty, SHORT, SamplingOptions()) == []


@pytest.mark.parametrize(
    "wrong", [{"sample": 0}, {"temperature": -1.0}, {"top_k": -1}, {"top_p": 0.0}, {"top_p": 1.5}]
)
def test_options_that_cannot_be_are_refused(wrong: dict) -> None:
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        SamplingOptions(**wrong)


def test_many_samples_take_several_turns_and_are_the_same(
    make_model: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, src = make_model(0, 20), batch(POOL[:3])
    own = [Constraints(), Constraints((5,)), Constraints(exclude=((6,),))]
    sampling = SamplingOptions(sample=7)
    at_once = sample([model], src, SHORT, sampling, own)
    monkeypatch.setattr("transformer.decoding.sampling.MOST_ROWS", 7)
    assert texts(sample([model], src, SHORT, sampling, own)) == texts(at_once)
