"""What is translated together does not matter."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from transformer.decoding.translator import Translator

RANDOM = random.Random(3)
LINES = [
    " ".join("".join(RANDOM.choices("abcdefg", k=1 + i % 4)) for _ in range(1 + i * i % 13))
    for i in range(200)
]


@pytest.fixture(scope="module")
def translator(trained_run: Path) -> Translator:
    """Translates with a trained model."""
    return Translator.load(trained_run)


def test_two_hundred_lines_are_translated_the_same_one_by_one_and_together(
    translator: Translator,
) -> None:
    """The lines have about 10 tokens on average: batches of 1, some 7 and some 64 lines."""
    options, found = replace(translator.options, beam_size=2), []
    for batch_tokens in (1, 70, 640):
        translator.batch_tokens = batch_tokens
        found.append([best[0] for best in translator.translate_n_best(LINES, options)])
    alone, *others = found
    for other in others:
        assert [t.text for t in other] == [t.text for t in alone]
        assert [t.score for t in other] == pytest.approx([t.score for t in alone], abs=1e-4)


def test_an_empty_line_among_a_hundred_changes_none_of_the_others(translator: Translator) -> None:
    translator.batch_tokens = 320
    lines = LINES[:100]
    whole = translator.translate(lines)
    lines[56] = ""
    found = translator.translate(lines)
    assert len(found) == 100
    assert found[56] == ""
    assert found[:56] + found[57:] == whole[:56] + whole[57:]
