"""What translations must not contain is in none of their texts, however cut into tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import nn

from transformer.config import TokenizerConfig
from transformer.data.tokenizer import Tokenizers
from transformer.data.tokenizer_training import train_tokenizer
from transformer.decoding.options import SearchOptions
from transformer.decoding.request import Request
from transformer.decoding.sampling_options import SamplingOptions
from transformer.decoding.translator import Translator
from transformer.decoding.wording import contains
from transformer.errors import UserError
from transformer.model.transformer import Transformer

Recites = Callable[..., nn.Module]
CORPUS = ["the old dog sleeps", "a small cat sees the red house", "who lives there"] * 9
LINES = ["the old dog", "a small cat sees the house", "who lives there"]


def speller(
    recites: Recites, tokenizers: Tokenizers, steps: Sequence[dict[str, float]]
) -> Translator:
    """Says at each step one of some pieces, with these logits."""
    target = tokenizers.target
    ids = {piece: i for i, piece in enumerate(target.pieces(range(target.vocab_size)))}
    logits = torch.full((len(steps), len(ids)), -30.0, dtype=torch.float64)
    for row, pieces in zip(logits, steps, strict=True):
        for piece, logit in pieces.items():
            row[ids[piece]] = logit
    options = SearchOptions(30, 30, 0.0, max_length=6)
    return Translator([recites(logits)], tokenizers, options)  # type: ignore[list-item]


def test_a_text_is_kept_out_in_each_way_to_cut_it_into_tokens(
    recites: Recites, tokenizers: Tokenizers
) -> None:
    """Here the model spells in two ways what is one piece of the vocabulary."""
    assert len(tokenizers.target.encode(["dog"])[0]) == 2
    steps = [{"▁do": 2, "▁": 1}, {"g": 2, "d": 1}, {"</s>": 2, "o": 1}, {"</s>": 1, "g": 2}]
    translator = speller(recites, tokenizers, [*steps, {"</s>": 2}])
    free, kept = translator.translate_n_best(["x", Request("x", must_not_contain=("dog",))])
    assert [t.text for t in free].count("dog") == 2
    texts = [t.text for t in kept]
    assert "dog" not in texts
    assert {"dod", "g", "do"} & set(texts)


@pytest.mark.parametrize("sampling", [None, SamplingOptions(sample=5)])
def test_none_of_the_translations_holds_a_text_that_it_must_not(
    make_model: Callable[..., Transformer],
    tokenizers: Tokenizers,
    sampling: SamplingOptions | None,
) -> None:
    """Neighbours are translated as ever."""
    model = make_model(1, tokenizers.source.vocab_size, double=False)
    options = SearchOptions(4, 4, max_length=8, max_length_ratio=0.0)
    translator = Translator([model], tokenizers, options, sampling=sampling)
    free = translator.translate_n_best(LINES)
    words = tuple(word for t in free[1] for word in t.text.split()[:2] if "\ufffd" not in word)
    assert words, "else the claim is empty"
    asked = [LINES[0], Request(LINES[1], must_not_contain=words), LINES[2]]
    kept = translator.translate_n_best(asked)
    assert not any(contains(t.text, word) for t in kept[1] for word in words)
    assert [[t.ids for t in each] for each in (kept[0], kept[2])] == [
        [t.ids for t in each] for each in (free[0], free[2])
    ]


def test_a_text_of_the_prefix_may_stand_there_and_only_there(
    recites: Recites, tokenizers: Tokenizers
) -> None:
    request = Request("x", prefix="dog", must_not_contain=("dog",))
    steps = [{"▁dog": 2}, {"▁dog": 2, "▁the": 1}, {"</s>": 2}]
    assert speller(recites, tokenizers, steps).translate([request]) == ["dog the"]
    steps = [{"▁dog": 2}, {"s": 2}, {"▁dog": 2, "▁the": 1}, {"</s>": 2}]
    assert speller(recites, tokenizers, steps).translate([request]) == ["dogs the"]


def test_texts_are_compared_as_the_vocabulary_writes_them(
    copies: Callable[..., nn.Module], tokenizers: Tokenizers
) -> None:
    config = TokenizerConfig(vocab_size=320, kind="bpe", normalization="nmt_nfkc_cf")
    folded = train_tokenizer(CORPUS, config, warn=lambda _: None)
    model = copies(folded.vocab_size)
    translator = Translator([model], Tokenizers(folded, folded))  # type: ignore[list-item]
    asked = [
        Request("The old DOG"),
        Request("The old DOG", must_contain=("Old  dog", "\uff24og")),
        Request("The old DOG", must_not_contain=("DOG",)),
    ]
    free, same, without = (each[0] for each in translator.translate_n_best(asked))
    assert (free.text, same.ids) == ("the old dog", free.ids)
    assert "dog" not in without.text.split()


def test_translations_that_contain_a_text_in_other_tokens_stay_beside_forced_ones(
    recites: Recites, tokenizers: Tokenizers
) -> None:
    steps = [{"▁": 2, "▁the": 1}, {"d": 2}, {"o": 2}, {"g": 2}, {"</s>": 2}]
    translator = speller(recites, tokenizers, steps)
    translator.options = SearchOptions(2, 2, 0.0, max_length=6)
    free = translator.translate_n_best(["x"])[0]
    assert [t.text for t in free] == ["dog", "thedog"]
    kept = translator.translate_n_best([Request("x", must_contain=("dog",))])[0]
    assert kept[0].ids == free[0].ids
    assert all("dog" in t.text for t in kept)


@pytest.mark.parametrize(
    ("text", "wanted", "is_there"),
    [
        ("the dog.", "dog", True),
        ("the dogs", "dog", False),
        ("hotdog", "dog", False),
        ("a (dog)", "dog", True),
        ("说我们不知道", "我们", True),
        ("100 % sure", "%", True),
        ("the dog.", ".", True),
        ("a dog, a cat", "dog,", True),
        ("a hotdog.", "dog.", False),
    ],
)
def test_a_text_is_contained_as_whole_words(text: str, wanted: str, is_there: bool) -> None:
    assert contains(text, wanted) is is_there


@pytest.mark.parametrize("field", ["must_contain", "must_not_contain"])
def test_a_text_that_is_only_space_to_the_vocabulary_is_refused_by_line(
    make_model: Callable[..., Transformer], tokenizers: Tokenizers, field: str
) -> None:
    """U+2581 is SentencePiece's space."""
    model = make_model(0, tokenizers.source.vocab_size, double=False)
    requests = ["a", Request("b", **{field: ("\u2581",)})]  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"line 2: '\u2581' has no tokens"):
        Translator([model], tokenizers).translate(requests)


@pytest.mark.parametrize("field", ["prefix", "must_contain"])
def test_what_the_vocabulary_cannot_say_is_refused_by_line(
    make_model: Callable[..., Transformer], bare_tokenizers: Tokenizers, field: str
) -> None:
    model = make_model(0, bare_tokenizers.source.vocab_size, double=False)
    value = "Ж" if field == "prefix" else ("Ж",)
    requests = ["a", Request("b", **{field: value})]  # type: ignore[arg-type]
    with pytest.raises(UserError, match="line 2: 'Ж' holds something that the target vocabulary"):
        Translator([model], bare_tokenizers).translate(requests)


@pytest.mark.parametrize(
    ("line", "included", "excluded"),
    [
        ("the dog, the cat", (",",), ()),
        ("the old (dog) sleeps.", (".", "dog"), ()),
        ("we do not know 俇俇 who", ("俇俇",), ()),
        ("the dogs", (), ("dog", "do", "th")),
        ("hotdogs sleep", ("hotdogs",), ("dogs", "hot")),
    ],
)
def test_a_translation_that_is_as_it_should_be_stays_as_it_is(
    copies: Callable[..., nn.Module],
    tokenizers: Tokenizers,
    line: str,
    included: tuple[str, ...],
    excluded: tuple[str, ...],
) -> None:
    model = copies(tokenizers.source.vocab_size)
    translator = Translator([model], tokenizers)  # type: ignore[list-item]
    request = Request(line, must_contain=included, must_not_contain=excluded)
    (free,), (kept,) = translator.translate_n_best([line, request])
    assert kept.text == line
    assert (kept.ids, kept.score) == (free.ids, free.score)


def test_punctuation_that_is_missing_is_said_without_a_space_if_that_is_likelier(
    recites: Recites, tokenizers: Tokenizers
) -> None:
    comma = "<0x2C>"  # the vocabulary spells it
    steps = [{"▁dog": 2}, {"</s>": 3, comma: 1, "▁": 0}, {"</s>": 2, comma: 1}, {"</s>": 2}]
    found = speller(recites, tokenizers, steps).translate(["x", Request("x", must_contain=(",",))])
    assert found == ["dog", "dog,"]


@pytest.mark.parametrize("wanted", ["dog", ",", "俇", "the house", "s."])
def test_all_translations_contain_what_they_must(
    make_model: Callable[..., Transformer], tokenizers: Tokenizers, wanted: str
) -> None:
    """Neighbours are translated as ever."""
    model = make_model(1, tokenizers.source.vocab_size, double=False)
    translator = Translator([model], tokenizers, SearchOptions(4, 4, max_length=12))
    free = translator.translate_n_best(LINES)
    asked = [LINES[0], Request(LINES[1], must_contain=(wanted, "cat")), LINES[2]]
    kept = translator.translate_n_best(asked)
    there = [t for t in kept[1] if t.ids]
    assert there, "else the claim is empty"
    assert all(wanted in t.text and "cat" in t.text for t in there)
    assert len({tuple(t.ids) for t in there}) == len(there)
    assert [[t.ids for t in each] for each in (kept[0], kept[2])] == [
        [t.ids for t in each] for each in (free[0], free[2])
    ]
