"""Minimum Bayes risk against the double sum over sacreBLEU's own sentence scores."""

from __future__ import annotations

import math

import pytest
import sacrebleu

from transformer.decoding.minimum_bayes_risk import rank_by_utility
from transformer.decoding.results import NONE, Translation

TEXTS = [
    "the old dog sleeps in the garden",
    "an old dog sleeps in a garden",
    "the old dog sleeps in the garden",
    "the old cat sits in the garden",
    "",
    "we know nothing",
]
TOTALS = [-1.0, -1.2, -2.5, -1.1, -3.0, -0.4]


def translation(text: str, total: float) -> Translation:
    return Translation(text, total / 2, [4, 3], [total / 2, total / 2], True)


FOUND = [translation(text, total) for text, total in zip(TEXTS, TOTALS, strict=True)]


def sentence_score(utility: str, text: str, reference: str) -> float:
    if utility == "chrf":
        return sacrebleu.sentence_chrf(text, [reference]).score
    return sacrebleu.sentence_bleu(text, [reference], use_effective_order=True).score


@pytest.mark.parametrize("utility", ["chrf", "bleu"])
@pytest.mark.parametrize("sampled", [True, False])
def test_the_order_is_that_of_the_double_sum(utility: str, sampled: bool) -> None:
    probs = [1.0 if sampled else math.exp(total) for total in TOTALS]
    expected = [
        sum(p * sentence_score(utility, text, other) for p, other in zip(probs, TEXTS, strict=True))
        / sum(probs)
        for text in TEXTS
    ]
    found = rank_by_utility(FOUND, utility, sampled)
    assert sorted(t.text for t in found) == sorted(TEXTS)
    assert [t.utility for t in found] == pytest.approx(sorted(expected, reverse=True))
    for t in found:
        assert t.utility == pytest.approx(expected[TEXTS.index(t.text)])


def test_the_winner_need_not_be_the_most_probable() -> None:
    assert max(FOUND, key=lambda t: t.score).text == "we know nothing"
    for sampled in (True, False):
        best = rank_by_utility(FOUND, "chrf", sampled)[0]
        assert best.text == "the old dog sleeps in the garden"
        assert best.score == -0.5  # the score stays the model's


def test_what_was_not_found_comes_last_and_counts_for_nothing() -> None:
    with_it = rank_by_utility([FOUND[0], NONE, FOUND[1], NONE], "chrf", False)
    assert with_it[2:] == [NONE, NONE]
    assert with_it[:2] == rank_by_utility(FOUND[:2], "chrf", False)
    assert rank_by_utility([NONE], "bleu", True) == [NONE]


def test_the_tokenizer_goes_by_the_language() -> None:
    """Without spaces, words are characters for Chinese; elsewhere the whole text is one word."""
    found = [translation("我们什么都不知道", -1.0), translation("我们什么都不懂", -1.0)]
    assert rank_by_utility(found, "bleu", True, "zh")[0].utility > 60
    assert rank_by_utility(found, "bleu", True)[0].utility == pytest.approx(50)
