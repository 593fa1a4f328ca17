"""Where sentences end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer.decoding.sentences import split_sentences


@pytest.mark.parametrize(
    "sentences",
    [
        ["Hello there.", "How are you?", "Fine!"],
        ["Dr. Smith met J. R. Tolkien on 3. May.", "He paid 3.50 euros.", "7 of them left..."],
        ["Das ist z.B. gut.", "„Komm her!“", "Über allem lag Schnee."],
        ["“Why?” she asked.", "(It is so.)", "‘No.’", "¿Qué?", "¡Sí!"],
        ["He said “Go!” and went.", "“Go.”", "Nobody went."],
        ["Привет.", "Как дела? хорошо."],
        ["No capital follows. so it is one"],
        [
            "no capital at all.",
            "so it tells nothing.",
            "two of them, e.g. these, etc. and mr. smith",
        ],
        ["यह एक घर है।", "वह सोता है।"],
    ],
)
def test_sentences_end_where_people_say_they_do(sentences: list[str]) -> None:
    assert [text for text, _ in split_sentences(" ".join(sentences))] == sentences


def test_chinese_and_japanese_need_no_space() -> None:
    assert split_sentences("今日は。「元気ですか？」はい。") == [
        ("今日は。", ""),
        ("「元気ですか？」", ""),
        ("はい。", ""),
    ]


@given(st.text(alphabet="aB .!?。”\u00a0\t", max_size=40))
def test_joined_again_they_are_the_line(line: str) -> None:
    found = split_sentences(line)
    assert "".join(text + gap for text, gap in found) == line
    assert all(text for text, _ in found)
