"""Beam search against enumeration, greedy search and itself in other company."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from transformer.config import DecodingConfig
from transformer.decoding.beams import Hypothesis
from transformer.decoding.formula import ScoreFormula
from transformer.decoding.options import SearchOptions
from transformer.decoding.scoring import score_pairs
from transformer.decoding.search import MOST_IDLE, beam_search
from transformer.ids import BOS, EOS, PAD, UNK
from transformer.model.transformer import Transformer

Make = Callable[..., Transformer]
SOURCES = [[4, 5, 4, EOS], [5, EOS], [4, 4, UNK, 5, 5, EOS]]


def batch(sources: Sequence[Sequence[int]]) -> Tensor:
    width = max(map(len, sources))
    return torch.tensor([[*ids, *[PAD] * (width - len(ids))] for ids in sources])


def all_translations(words: Sequence[int], most: int) -> list[list[int]]:
    lengths = range(most + 1)
    return [[*ids, EOS] for n in lengths for ids in itertools.product(words, repeat=n)]


@torch.no_grad()
def sum_log_probs(
    models: Sequence[Transformer], source: Sequence[int], ids: Sequence[int]
) -> float:
    """The sum of the log-probabilities of a translation, from whole forward passes."""
    src, tgt = torch.tensor([source]), torch.tensor([[BOS, *ids[:-1]]])
    probs = torch.stack([model(src, tgt).softmax(-1) for model in models]).mean(0)
    return probs[0, range(len(ids)), list(ids)].log().sum().item()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("num_models", [1, 2])
def test_a_beam_that_holds_all_finds_what_enumeration_finds(
    make_model: Make, seed: int, num_models: int
) -> None:
    """Four tokens can be said (unk, two words, the end), four at most: 40 translations."""
    models = [make_model(10 * seed + i) for i in range(num_models)]
    every = all_translations([UNK, 4, 5], most=3)
    totals = [[sum_log_probs(models, source, ids) for ids in every] for source in SOURCES]
    for alpha in (0.0, 0.4, 1.0, 2.0):
        options = SearchOptions(64, 64, alpha, max_length=3, max_length_ratio=0.0)
        for found, sums in zip(beam_search(models, batch(SOURCES), options), totals, strict=True):
            scored = [(s / len(ids) ** alpha, ids) for s, ids in zip(sums, every, strict=True)]
            expected = sorted(scored, reverse=True)
            assert [h.ids for h in found] == [ids for _, ids in expected]
            assert [h.score for h in found] == pytest.approx([s for s, _ in expected], abs=1e-12)


@torch.no_grad()
def textbook_search(
    model: Transformer, source: Sequence[int], beam_size: int, alpha: float, most: int
) -> list[tuple[float, list[int]]]:
    """Beam search of one sentence in plain loops: the finished hypotheses, the best first."""
    live: list[tuple[float, list[int]]] = [(0.0, [])]
    finished: list[tuple[float, list[int]]] = []
    for length in range(most + 1):
        candidates = []
        for total, ids in live:
            logits = model(torch.tensor([source]), torch.tensor([[BOS, *ids]]))[0, -1]
            for token, log_prob in enumerate(logits.log_softmax(-1).tolist()):
                allowed = token == EOS if length == most else token not in (PAD, BOS)
                if allowed:
                    candidates.append((total + log_prob, [*ids, token]))
        candidates.sort(reverse=True)
        for total, ids in candidates[:beam_size]:
            if ids[-1] == EOS:
                finished.append((total / len(ids) ** alpha, ids))
        if len(finished) >= beam_size:
            break
        live = [candidate for candidate in candidates if candidate[1][-1] != EOS][:beam_size]
    return sorted(finished, reverse=True)


@pytest.mark.parametrize("beam_size", [2, 3, 5])
def test_a_small_beam_finds_what_the_textbook_finds(make_model: Make, beam_size: int) -> None:
    for seed in range(5):
        model = make_model(seed, vocab_size=9)
        options = SearchOptions(beam_size, beam_size, 1.0, max_length=5, max_length_ratio=0.0)
        found = beam_search([model], batch(SOURCES), options)
        for source, hypotheses in zip(SOURCES, found, strict=True):
            expected = textbook_search(model, source, beam_size, 1.0, most=5)[:beam_size]
            assert [h.ids for h in hypotheses] == [ids for _, ids in expected]
            scores = [score for score, _ in expected]
            assert [h.score for h in hypotheses] == pytest.approx(scores, abs=1e-10)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_stopping_early_loses_no_better_translation(make_model: Make, alpha: float) -> None:
    """The one best of the search that stops is the best of the search that goes on to the end."""
    for seed in range(6):
        model = make_model(seed)
        limits = {"max_length": 4, "max_length_ratio": 0.0}
        one = beam_search([model], batch(SOURCES), SearchOptions(100, 1, alpha, **limits))
        every = beam_search([model], batch(SOURCES), SearchOptions(100, 100, alpha, **limits))
        assert [found[0].ids for found in one] == [found[0].ids for found in every]


def test_beam_size_1_is_greedy_search(make_model: Make) -> None:
    model = make_model(3, vocab_size=30)
    sources = [[5, 9, 17, EOS], [28, EOS], [6, 7, 8, 9, 10, EOS]]
    found = beam_search([model], batch(sources), SearchOptions(1, 1, 0.0, max_length=12))
    for source, hypotheses in zip(sources, found, strict=True):
        most = 12 + 2 * (len(source) - 1)
        ids: list[int] = []
        while EOS not in ids and len(ids) < most:
            with torch.no_grad():
                logits = model(torch.tensor([source]), torch.tensor([[BOS, *ids]]))[0, -1]
            logits[[PAD, BOS]] = -math.inf
            ids.append(int(logits.argmax()))
        expected = ids if EOS in ids else [*ids, EOS]
        assert hypotheses[0].ids == expected
        total = sum_log_probs([model], source, expected)
        assert hypotheses[0].score == pytest.approx(total, abs=1e-10)


def test_the_score_counts_the_end_of_sentence(recites: Callable[..., nn.Module]) -> None:
    """Log-probabilities -1, -1 and -2 for the end score -4 / 3 at length penalty 1."""
    table = torch.full((3, 5), -40.0, dtype=torch.float64)
    table[:2, 4], table[2, EOS] = -1.0, -2.0
    table[:, PAD] = (1 - table.exp().sum(1)).log()  # the rest, which is never said
    found = beam_search([recites(table)], torch.tensor([[4, EOS]]), SearchOptions(2, 1, 1.0))
    assert found[0][0].ids == [4, 4, EOS]
    assert found[0][0].score == pytest.approx(-4 / 3, abs=1e-9)
    assert found[0][0].log_probs == pytest.approx([-1, -1, -2], abs=1e-9)


def test_cached_search_finds_what_recomputing_finds(
    make_model: Make, recomputes: Callable[..., nn.Module]
) -> None:
    for positions in ("sinusoidal", "rotary"):
        model = make_model(1, vocab_size=20, positions=positions)
        options = SearchOptions(4, 4, max_length=9, max_length_ratio=0.0)
        sources = batch([[9, 5, 17, EOS], [7, EOS]])
        cached = beam_search([model], sources, options)
        whole = beam_search([recomputes(model)], sources, options)
        assert ids_of(cached) == ids_of(whole)
        assert scores_of(cached) == pytest.approx(scores_of(whole), abs=1e-12)


def ids_of(found: Sequence[Sequence[Hypothesis]]) -> list[list[list[int]]]:
    return [[h.ids for h in hypotheses] for hypotheses in found]


def scores_of(found: Sequence[Sequence[Hypothesis]]) -> list[float]:
    return [h.score for hypotheses in found for h in hypotheses]


POOL = [[(7 * i + j * j) % 16 + 4 for j in range(i % 7 + 1)] + [EOS] for i in range(12)]


@settings(max_examples=12, deadline=None)
@given(order=st.permutations(range(len(POOL))), size=st.integers(1, len(POOL)))
def test_a_result_depends_on_neither_order_nor_neighbours(
    make_model: Make, order: list[int], size: int
) -> None:
    model = make_model(2, vocab_size=20)
    options = SearchOptions(3, 3, max_length=4, max_length_ratio=1.0)
    alone = [beam_search([model], batch([source]), options)[0] for source in POOL]
    for first in range(0, len(order), size):
        chosen = order[first : first + size]
        together = beam_search([model], batch([POOL[i] for i in chosen]), options)
        expected = [alone[i] for i in chosen]
        assert ids_of(together) == ids_of(expected)
        assert scores_of(together) == pytest.approx(scores_of(expected), abs=1e-12)


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_n_best_are_distinct_sorted_and_scored_as_forced(make_model: Make, alpha: float) -> None:
    model = make_model(4, vocab_size=20)
    sources = [[9, 5, 17, EOS], [7, EOS]]
    found = beam_search([model], batch(sources), SearchOptions(6, 6, alpha, max_length=6))
    for source, hypotheses in zip(sources, found, strict=True):
        assert len(hypotheses) == 6
        assert len({tuple(h.ids) for h in hypotheses}) == 6
        scores = [h.score for h in hypotheses]
        assert scores == sorted(scores, reverse=True)
        formula = ScoreFormula(alpha)
        forced = score_pairs([model], [source] * 6, [h.ids for h in hypotheses], formula)
        assert scores == pytest.approx([s.score for s in forced], abs=1e-10)
        for h, s in zip(hypotheses, forced, strict=True):
            assert h.log_probs == pytest.approx(s.log_probs, abs=1e-10)


def test_an_ensemble_of_twins_is_the_model(make_model: Make) -> None:
    model, twin = make_model(5, vocab_size=20), make_model(5, vocab_size=20)
    options = SearchOptions(4, 4, max_length=6)
    one = beam_search([model], batch([[9, 5, EOS]]), options)
    two = beam_search([model, twin], batch([[9, 5, EOS]]), options)
    assert ids_of(one) == ids_of(two)
    assert scores_of(one) == pytest.approx(scores_of(two), abs=1e-12)


@pytest.mark.parametrize("beam_size", [1, 5])
def test_finished_sentences_leave_the_batch(
    copies: Callable[..., nn.Module], beam_size: int
) -> None:
    """2,000 lines of up to 10 tokens take 11 steps, not 500, and few rows are computed after their
    end; also where the model is so unsure that a very long translation might still score better.
    """
    model = copies(20, certainty=4.0)
    sources = [[4 + (i + j) % 16 for j in range(1 + i % 10)] + [EOS] for i in range(2000)]
    options = SearchOptions(beam_size, 1, 1.0, max_length=500, max_length_ratio=0.0)
    found = beam_search([model], batch(sources), options)
    assert [hypotheses[0].ids for hypotheses in found] == sources
    steps = len(model.rows_by_step)
    assert steps == 11 if beam_size == 1 else steps <= 13
    if beam_size == 1:
        assert sum(model.rows_by_step) <= sum(map(len, sources)) / (1 - MOST_IDLE)


def test_a_long_source_is_not_cut_by_default(copies: Callable[..., nn.Module]) -> None:
    source = [4 + i % 16 for i in range(300)] + [EOS]
    found = beam_search([copies(20)], torch.tensor([source]), SearchOptions())
    assert found[0][0].ids == source
    assert found[0][0].finished


def test_a_search_at_its_limit_ends_and_says_so(recites: Callable[..., nn.Module]) -> None:
    """The end is added where the limit is; the score is that of the text as it stands."""
    logits = torch.tensor([[0.0, 0.0, 0.0, -9.0, 1.0, 0.3]], dtype=torch.float64)
    model = recites(logits)
    sources = [[4, 5, 4, EOS], [5, EOS]]
    options = SearchOptions(2, 2, 1.0, max_length=3, max_length_ratio=1.0)
    found = beam_search([model], batch(sources), options)
    for source, hypotheses in zip(sources, found, strict=True):
        for h in hypotheses:
            assert not h.finished
            assert len(h.ids) == 3 + len(source) - 1 + 1
            assert h.ids[-1] == EOS
            forced = score_pairs([model], [source], [h.ids])[0].score
            assert h.score == pytest.approx(forced, abs=1e-12)


def test_ending_of_its_own_at_the_limit_is_not_cut(copies: Callable[..., nn.Module]) -> None:
    options = SearchOptions(2, 1, max_length=3, max_length_ratio=0.0)
    found = beam_search([copies(20)], batch([[5, 6, 7, EOS], [5, 6, 7, 8, EOS]]), options)
    assert [hypotheses[0].finished for hypotheses in found] == [True, False]
    assert [hypotheses[0].ids for hypotheses in found] == [[5, 6, 7, EOS]] * 2


def test_no_translation_is_shorter_than_its_least_length(make_model: Make) -> None:
    model = make_model(6, vocab_size=20)
    model.output.weight.data[EOS] *= 3
    sources = [[9, 5, 17, 6, EOS], [7, EOS], [8, 8, EOS]]
    options = SearchOptions(3, 3, 0.0, min_length=2, min_length_ratio=1.5, max_length=20)
    plain = beam_search([model], batch(sources), SearchOptions(3, 3, 0.0, max_length=20))
    assert any(len(h.ids) - 1 < 2 for hypotheses in plain for h in hypotheses)
    for source, hypotheses in zip(
        sources, beam_search([model], batch(sources), options), strict=True
    ):
        least = max(2, math.ceil(1.5 * (len(source) - 1)))
        assert min(len(h.ids) - 1 for h in hypotheses) >= least


def test_padding_and_beginning_are_never_said(recites: Callable[..., nn.Module]) -> None:
    logits = torch.zeros(1, 6)
    logits[0, [PAD, BOS]] = 9.0
    options = SearchOptions(4, 4, max_length=3)
    for h in beam_search([recites(logits)], torch.tensor([[4, EOS]]), options)[0]:
        assert PAD not in h.ids
        assert BOS not in h.ids


def test_a_source_of_only_padding_gives_finite_scores(make_model: Make) -> None:
    src = batch([[9, 5, EOS], [PAD]])
    found = beam_search([make_model(vocab_size=20)], src, SearchOptions(3, 3, max_length=4))
    assert all(map(math.isfinite, scores_of(found)))
    assert all(len(hypotheses) == 3 for hypotheses in found)


def test_half_precision_scores_are_those_of_float32_arithmetic(make_model: Make) -> None:
    """Log-probabilities are taken in float32, whatever the logits."""
    model = make_model(vocab_size=20, double=False).bfloat16()
    found = beam_search([model], batch([[9, 5, EOS]]), SearchOptions(1, 1, 0.0, max_length=4))
    h = found[0][0]
    with torch.no_grad():
        logits = model(torch.tensor([[9, 5, EOS]]), torch.tensor([[BOS]]))[0, 0]
    expected = logits.float().log_softmax(-1)[h.ids[0]].item()
    assert h.log_probs[0] == pytest.approx(expected, abs=1e-6)


def test_nothing_to_search_gives_nothing(make_model: Make) -> None:
    assert beam_search([make_model()], torch.zeros(0, 3, dtype=torch.long), SearchOptions()) == []


def test_options_are_those_of_the_configuration() -> None:
    config = DecodingConfig(beam_size=7, n_best=2, length_penalty=0.6, max_length=9)
    options = SearchOptions.from_config(config)
    assert (options.beam_size, options.n_best, options.length_penalty) == (7, 2, 0.6)
    assert SearchOptions.from_config(DecodingConfig()) == SearchOptions()


@pytest.mark.parametrize(
    "wrong",
    [
        {"beam_size": 0},
        {"beam_size": 2, "n_best": 3},
        {"length_penalty": -1.0},
        {"min_length": 60},
        {"min_length_ratio": 3.0},
    ],
)
def test_options_that_cannot_be_are_refused(wrong: dict) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        SearchOptions(**wrong)


def test_limits_follow_the_source_without_rounding_errors() -> None:
    options = SearchOptions(min_length_ratio=0.1, max_length=5, max_length_ratio=0.7)
    assert options.limits(30) == (3, 26)  # in floats 0.1 * 30 is above 3, 0.7 * 30 below 21
    assert options.limits(0) == (0, 5)
