"""Lines translated in parts, and lines with a tag, a prefix or constraints of their own."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
from torch import nn

from transformer.config import Config, TokenizerConfig
from transformer.data.tokenizer import Tokenizers
from transformer.data.tokenizer_training import train_tokenizer
from transformer.decoding.formula import ScoreFormula
from transformer.decoding.options import SearchOptions
from transformer.decoding.parts import Part, join, to_parts
from transformer.decoding.request import Request
from transformer.decoding.results import Translation
from transformer.decoding.sampling_options import SamplingOptions
from transformer.decoding.translator import Translator
from transformer.errors import UserError
from transformer.ids import EOS
from transformer.model.transformer import Transformer

CONFIG = Config.model_validate(
    {"run_dir": "runs/test", "data": {"train": [{"path": "train.tsv"}], "max_length": 20}}
)
SENTENCES = ["The old dog sleeps.", "A small cat!", "Who lives in the house?"]
LONG = "The old dog sleeps.  A small cat! Who lives in the house?"
SHORT = SearchOptions(4, 4, max_length=4, max_length_ratio=0.5)


@pytest.fixture
def copier(copies: Callable[..., nn.Module], tokenizers: Tokenizers) -> Translator:
    """Translates each line to itself, and was trained on lines of up to 20 tokens."""
    model = copies(tokenizers.source.vocab_size)
    translator = Translator([model], tokenizers, run_config=CONFIG)  # type: ignore[list-item]
    translator.split_sentences = True
    return translator


@pytest.fixture
def translator(make_model: Callable[..., Transformer], tokenizers: Tokenizers) -> Translator:
    """Real, and trained on lines of up to 20 tokens."""
    model = make_model(0, tokenizers.source.vocab_size, double=False)
    translator = Translator([model], tokenizers, SHORT, run_config=CONFIG)
    translator.split_sentences = True
    return translator


def joined(parts: list[Translation]) -> tuple[float, list[int]]:
    """The score of parts as one translation at length penalty 1, and their tokens."""
    log_probs = [x for part in parts for x in part.log_probs]
    return sum(log_probs) / len(log_probs), [i for part in parts for i in part.ids]


def test_a_long_line_is_translated_sentence_by_sentence_and_rejoined(copier: Translator) -> None:
    warnings: list[str] = []
    copier.warn = warnings.append
    assert copier.translate(["a cat", LONG, ""]) == ["a cat", LONG, ""]
    assert len(to_parts([Request(LONG)], copier.tokenizers, 1, 20)[0]) == 3
    assert copier.summary.num_lines == 3
    assert copier.summary.num_split == 1
    assert (copier.summary.num_long, warnings) == (0, [])


def test_only_lines_longer_than_in_training_are_split_and_only_when_asked(
    copier: Translator,
) -> None:
    short = "A cat. A dog."
    assert copier.translate([short]) == [short]
    assert copier.summary.num_split == 0
    copier.split_sentences = False
    copier.warn = None
    assert copier.translate([LONG]) == [LONG]
    assert (copier.summary.num_split, copier.summary.num_long) == (0, 1)


def test_a_sentence_that_is_too_long_itself_is_named(copier: Translator) -> None:
    warnings: list[str] = []
    copier.warn = warnings.append
    copier.translate(["A cat. " + "a dog and " * 20 + "a cat."])
    assert len(warnings) == 1
    assert warnings[0].startswith("line 1: its ")


def test_the_best_of_all_combinations_are_given_with_the_scores_of_all_tokens(
    translator: Translator,
) -> None:
    found = translator.translate_n_best([LONG])[0]
    parts = translator.translate_n_best(SENTENCES)
    expected = sorted((joined(list(each)) for each in product(*parts)), reverse=True)[:4]
    assert [t.score for t in found] == pytest.approx([score for score, _ in expected], abs=1e-5)
    assert [t.ids for t in found] == [ids for _, ids in expected]
    assert found[0].text == "{}  {} {}".format(*(part[0].text for part in parts))


def test_samples_are_joined_by_their_numbers(translator: Translator) -> None:
    translator.sampling = SamplingOptions(sample=3)
    found = translator.translate_n_best([LONG])[0]
    parts = translator.translate_n_best(SENTENCES)
    expected = ["{}  {} {}".format(*(part[i].text for part in parts)) for i in range(3)]
    assert [t.text for t in found] == expected


def test_words_of_a_joined_line_are_counted_through(translator: Translator) -> None:
    translator.alignments = True
    whole = translator.translate_n_best([LONG])[0][0].alignment
    parts = [each[0].alignment for each in translator.translate_n_best(SENTENCES)]
    assert whole is not None
    expected, source, target = [], 0, 0
    for part in parts:
        assert part is not None
        expected += [(i + source, j + target) for i, j in part.links()]
        source += part.num_source_words
        target += len(part.weights)
    assert whole.links() == expected
    assert whole.num_source_words == len(LONG.split())


def test_a_line_that_must_contain_something_stays_whole(tokenizers: Tokenizers) -> None:
    request = Request(LONG, prefix="Der", must_contain=("Katze",), must_not_contain=("x", "y z"))
    (whole,) = to_parts([request], tokenizers, 1, 20)[0]
    encode = tokenizers.target.encode
    assert whole.src == tokenizers.source.encode([LONG])[0]
    prefix, include = (tuple(x[:-1]) for x in encode(["Der", "Katze"]))
    assert (whole.prefix, whole.included, whole.forms) == (prefix, ("Katze",), ((include,),))
    assert whole.excluded == ("x", "y z")


def test_the_first_part_has_the_prefix_and_all_have_what_they_must_not_contain(
    tokenizers: Tokenizers,
) -> None:
    request = Request(LONG, prefix="Der", must_not_contain=("x",))
    parts = to_parts([request], tokenizers, 1, 20)[0]
    assert [bool(part.prefix) for part in parts] == [True, False, False]
    assert all(part.excluded == ("x",) for part in parts)


def test_a_tag_stands_before_each_part_and_must_be_a_symbol() -> None:
    lines = [f"{tag} {line}" for tag in ("<2de>", "<2fr>") for line in SENTENCES * 9]
    config = TokenizerConfig(vocab_size=340, kind="bpe", user_symbols=["<2de>", "<2fr>"])
    both = train_tokenizer(lines, config, warn=lambda _: None)
    tokenizers = Tokenizers(both, both)
    parts = to_parts([Request(LONG, tag="<2de>"), Request("", tag="<2fr>")], tokenizers, 1, 12)
    expected = both.encode([f"<2de> {sentence}" for sentence in SENTENCES])
    assert [part.src for part in parts[0]] == expected
    assert parts[1][0].is_blank
    with pytest.raises(UserError, match=r"line 8: tag <2es>: no symbol .* it has <2de>, <2fr>"):
        to_parts([Request("a"), Request("a", tag="<2es>")], tokenizers, 7, None)


def test_a_tag_that_no_vocabulary_has_is_refused(tokenizers: Tokenizers) -> None:
    with pytest.raises(UserError, match=r"line 1: tag <2de>: .* it has none"):
        to_parts([Request("a", tag="<2de>")], tokenizers, 1, None)


def test_a_tag_that_was_typed_stands_before_each_part() -> None:
    lines = [f"<2de> {line}" for line in SENTENCES * 9]
    config = TokenizerConfig(vocab_size=340, kind="bpe", user_symbols=["<2de>"])
    both = train_tokenizer(lines, config, warn=lambda _: None)
    vocabularies = Tokenizers(both, both)
    typed, given = to_parts(
        [Request(f"<2de> {LONG}"), Request(LONG, tag="<2de>")], vocabularies, 1, 12, tags=["<2de>"]
    )
    assert len(typed) == len(SENTENCES)
    assert typed == given
    (name, *others) = to_parts([Request(f"<2de> {LONG}")], vocabularies, 1, 12)[0]
    symbol = both.encode(["<2de>"])[0][1]
    assert both.pieces([symbol]) == ["<2de>"]
    assert symbol in name.src
    assert not any(symbol in part.src for part in others), "a symbol that is no tag is a word"


@pytest.mark.parametrize(
    ("a", "gap", "b", "text"),
    [
        ("A dog.", "", "A cat.", "A dog. A cat."),
        ("A dog.", "  ", "A cat.", "A dog.  A cat."),
        ("一只狗。", " ", "一只猫。", "一只狗。一只猫。"),
        ("他说：“走。”", "", "她走。", "他说：“走。”她走。"),
        ("개다.", "", "고양이다.", "개다. 고양이다."),
        ("", "", "A cat.", "A cat."),
    ],
)
def test_translations_are_joined_as_their_own_script_has_it(
    a: str, gap: str, b: str, text: str
) -> None:
    parts = [Part([EOS], gap=gap), Part([EOS])]
    found = [[Translation(x, -1.0, [EOS], [-1.0], True)] for x in (a, b)]
    assert join(parts, found, ScoreFormula(1.0), sampled=False)[0].text == text
