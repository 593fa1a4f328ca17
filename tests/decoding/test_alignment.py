"""Alignments: words counted as people count them, and weights summed over their tokens."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer.config import TokenizerConfig
from transformer.data.tokenizer import Tokenizer, Tokenizers
from transformer.data.tokenizer_training import train_tokenizer
from transformer.decoding.alignment import align_pairs, words_of
from transformer.decoding.results import Alignment
from transformer.ids import BOS, EOS
from transformer.model.attention_maps import attention_maps
from transformer.model.transformer import Transformer

SOURCES = ["the old dog sleeps", "a cat", "we do not know who lives in the  garden", "und"]
TARGETS = ["der alte Hund schläft", "eine Katze sitzt hier", "", "a b c"]


@pytest.fixture(scope="module")
def tagged() -> Tokenizer:
    lines = ["<2de> the old dog", "<2de> a small cat sees the house"] * 9
    config = TokenizerConfig(vocab_size=310, kind="bpe", user_symbols=["<2de>"])
    return train_tokenizer(lines, config, warn=lambda _: None)


@settings(max_examples=60, deadline=None)
@given(line=st.text(alphabet="the odg字é\u00a0  ", max_size=20))
def test_each_token_belongs_to_the_word_that_its_text_is_in(
    tokenizers: Tokenizers, line: str
) -> None:
    """Bytes, double and unusual spaces included."""
    ids = tokenizers.source.encode([line])[0]
    words = words_of(tokenizers.source, ids)
    assert len(words) == len(ids)
    assert words[-1] == -1  # the end
    assert sorted({word for word in words if word >= 0}) == list(range(len(line.split())))
    real = [word for word in words if word >= 0]
    assert real == sorted(real)


def test_a_tag_is_no_word(tagged: Tokenizer) -> None:
    ids = tagged.encode(["<2de> the dog"])[0]
    words = words_of(tagged, ids)
    assert words[tagged.pieces(ids).index("<2de>")] == -1
    assert max(words) == 1


def align(model: Transformer, tokenizers: Tokenizers, **options: int) -> list[Alignment]:
    src, tgt = tokenizers.source.encode(SOURCES), tokenizers.target.encode(TARGETS)
    return align_pairs([model], tokenizers, src, tgt, **options)


@pytest.mark.parametrize("layer", [None, 1, 2])
def test_weights_of_a_word_sum_to_1_and_do_not_depend_on_the_batch(
    make_model: Callable[..., Transformer], tokenizers: Tokenizers, layer: int | None
) -> None:
    model = make_model(1, tokenizers.source.vocab_size)
    together = align(model, tokenizers, layer=layer)
    for source, target, found in zip(SOURCES, TARGETS, together, strict=True):
        assert found.num_source_words == len(source.split())
        assert len(found.weights) == len(target.split())
        for row, rest in zip(found.weights, found.unaligned, strict=True):
            assert len(row) == len(source.split())
            assert sum(row) + rest == pytest.approx(1, abs=1e-6)
    for one, other in zip(
        align(model, tokenizers, layer=layer, batch_tokens=1), together, strict=True
    ):
        assert one.links() == other.links()
        for row, same in zip(one.weights, other.weights, strict=True):
            assert row == pytest.approx(same, abs=1e-6)


def test_weights_are_summed_over_a_source_word_and_taken_where_a_target_word_begins(
    make_model: Callable[..., Transformer], tokenizers: Tokenizers
) -> None:
    model = make_model(1, tokenizers.source.vocab_size)
    src, tgt = tokenizers.source.encode(SOURCES[:1])[0], tokenizers.target.encode(TARGETS[:1])[0]
    maps = attention_maps(model, torch.tensor([src]), torch.tensor([[BOS, *tgt[:-1]]]))
    heads = maps.cross[1][0].mean(0).numpy()
    source, target = words_of(tokenizers.source, src), words_of(tokenizers.target, tgt)
    (found,) = align_pairs([model], tokenizers, [src], [tgt], layer=2)
    for j in range(4):
        begins = target.index(j)
        for i in range(4):
            columns = [s for s, word in enumerate(source) if word == i]
            expected = sum(heads[begins, s] for s in columns)
            assert found.weights[j][i] == pytest.approx(expected, abs=1e-6)


def test_an_ensemble_of_twins_aligns_as_one(
    make_model: Callable[..., Transformer], tokenizers: Tokenizers
) -> None:
    models = [make_model(1, tokenizers.source.vocab_size) for _ in range(2)]
    src, tgt = tokenizers.source.encode(SOURCES), tokenizers.target.encode(TARGETS)
    one, two = (align_pairs(models[:n], tokenizers, src, tgt) for n in (1, 2))
    assert one == two


def test_hard_and_soft_are_pharaohs_pairs() -> None:
    alignment = Alignment(((0.7, 0.2), (0.1, 0.3), (0.004, 0.99)), (0.1, 0.6, 0.006), 2)
    assert alignment.links() == [(0, 0), (1, 2)]  # the second word looks at the end
    assert alignment.hard() == "0-0 1-2"
    assert alignment.soft() == "0-0:0.70 1-0:0.20 0-1:0.10 1-1:0.30 1-2:0.99"
    assert Alignment((), (), 3).hard() == ""
    assert Alignment(((), ()), (1.0, 1.0), 0).links() == []


def test_nothing_but_ends_gives_nothing(
    make_model: Callable[..., Transformer], tokenizers: Tokenizers
) -> None:
    model = make_model(1, tokenizers.source.vocab_size)
    assert align_pairs([model], tokenizers, [[EOS]], [[EOS]]) == [Alignment((), (), 0)]
    assert align_pairs([model], tokenizers, [], []) == []
