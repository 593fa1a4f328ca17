"""Minimum Bayes risk: of many translations the one that agrees best with the others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from transformer.decoding.results import Translation
from transformer.evaluation import sentence_metric

UTILITIES = ("chrf", "bleu")


def rank_by_utility(
    found: Sequence[Translation], utility: str, sampled: bool, target_language: str = ""
) -> list[Translation]:
    """Returns translations of one line by expected utility, the best first.

    The expected utility of a translation is the mean of its sentence scores against all of them as
    references, itself too. Samples count alike, each as often as it was drawn (Eikema and Aziz
    2020); translations that were searched for count by their probabilities, which are made to sum
    to 1 (Kumar and Byrne 2004).

    Args:
        found: the translations, which are both candidates and references.
        utility: one of `UTILITIES`, sacreBLEU's sentence score.
        sampled: whether they are samples.
        target_language: chooses the tokenizer of BLEU.
    """
    real = [t for t in found if t.ids]
    weights: dict[str, float] = {}
    greatest = max((sum(t.log_probs) for t in real), default=0.0)
    for t in real:
        weight = 1.0 if sampled else math.exp(sum(t.log_probs) - greatest)
        weights[t.text] = weights.get(t.text, 0.0) + weight
    score, _ = sentence_metric(utility, target_language)
    total = sum(weights.values())
    expected = {
        text: sum(weight * score(text, other) for other, weight in weights.items()) / total
        for text in weights
    }
    ranked = [replace(t, utility=expected[t.text]) for t in real]
    ranked.sort(key=lambda t: -expected[t.text])  # of equal ones the first stays first
    return [*ranked, *(t for t in found if not t.ids)]
