"""CTranslate2 as the engine: the same translations, and what it lacks is named or done by us."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace

import pytest

from transformer.data.tokenizer import Tokenizers
from transformer.decoding.ctranslate2_engine import CTranslate2Engine
from transformer.decoding.options import SearchOptions
from transformer.decoding.parts import to_parts
from transformer.decoding.request import Request
from transformer.decoding.results import Translation
from transformer.decoding.translator import Translator
from transformer.errors import UserError
from transformer.ids import BOS, EOS, PAD
from transformer.model.transformer import Transformer

WORDS = ["the", "old", "dog", "cat", "sees", "a", "small", "red", "house", "and", "her", "friend"]
LINES = [" ".join(WORDS[(i * 7 + j) % 12] for j in range(1 + i * i % 6)) for i in range(20)]
OPTIONS = SearchOptions(4, 3, max_length=10, max_length_ratio=1.0)


@pytest.fixture
def model(make_model: Callable[..., Transformer], tokenizers: Tokenizers) -> Transformer:
    """A model that ends most of its translations before their limits, and gives padding and
    beginning no chance, whose share CTranslate2 gives to the other tokens.

    The features of each position sum to 16, so their logits are -16.
    """
    model = make_model(5, tokenizers.source.vocab_size, double=False)
    model.decoder.norm.bias.data.fill_(1.0)
    weight = model.output.weight.data
    weight[[PAD, BOS]] = -1.0
    weight[EOS] += (7 - weight[EOS].sum()) / 16
    return model


@pytest.fixture
def translator(model: Transformer, tokenizers: Tokenizers) -> Translator:
    translator = Translator([model], tokenizers, OPTIONS)
    translator.engine = CTranslate2Engine(model, tokenizers)
    return translator


def assert_same(found: list[list[Translation]], expected: list[list[Translation]]) -> None:
    for ours, theirs in zip(expected, found, strict=True):
        assert [t.ids for t in theirs] == [t.ids for t in ours]
        assert [t.finished for t in theirs] == [t.finished for t in ours]
        assert [t.score for t in theirs] == pytest.approx([t.score for t in ours], abs=1e-4)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"beam_size": 1, "n_best": 1},
        {"length_penalty": 0.0},
        {"length_penalty": 0.6, "n_best": 1},
        {"beam_size": 5, "n_best": 5},
    ],
)
def test_translations_and_scores_are_those_of_our_own_search(
    translator: Translator, changes: dict
) -> None:
    options = replace(OPTIONS, **changes)
    parts = [
        each[0] for each in to_parts([Request(x) for x in LINES], translator.tokenizers, 1, None)
    ]
    assert translator.engine is not None
    answered = translator.engine.search(parts, options)
    assert sum(found is not None for found in answered) >= 10, "else the claim is empty"
    found = translator.translate_n_best([*LINES, "", "  "], options)
    translator.engine = None
    assert_same(found, translator.translate_n_best([*LINES, "", "  "], options))


def test_what_comes_to_its_limit_is_searched_by_us(translator: Translator) -> None:
    options = replace(OPTIONS, max_length=1, max_length_ratio=0.0)
    found = translator.translate_n_best(LINES, options)
    assert not all(t.finished for each in found for t in each)
    translator.engine = None
    assert_same(found, translator.translate_n_best(LINES, options))


def test_lines_with_a_prefix_are_searched_by_us(translator: Translator) -> None:
    parts = to_parts(
        [Request("the dog", prefix="a"), Request("a cat")], translator.tokenizers, 1, None
    )
    assert translator.engine is not None
    found = translator.engine.search([each[0] for each in parts], OPTIONS)
    assert found[0] is None


@pytest.mark.parametrize(
    "changes",
    [
        {"coverage_penalty": 0.2},
        {"no_repeat_ngram": 3},
        {"min_length": 1},
        {"ban_unknown": True},
        {"beam_groups": 2},
    ],
)
def test_an_option_that_it_lacks_is_refused_by_name(translator: Translator, changes: dict) -> None:
    with pytest.raises(UserError, match=f"ctranslate2 has no {next(iter(changes))}"):
        translator.translate(["the dog"], replace(OPTIONS, **changes))


def test_without_the_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    monkeypatch.delitem(sys.modules, "transformer.export.ctranslate2")
    monkeypatch.delitem(sys.modules, "transformer.decoding.ctranslate2_engine")
    with pytest.raises(UserError, match=r"pip install 'transformer\[ctranslate2\]'"):
        import transformer.decoding.ctranslate2_engine  # noqa: F401
