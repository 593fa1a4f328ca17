"""One line out for each line in, in order, whatever the lines."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from transformer.config import Config
from transformer.data.tokenizer import Tokenizer, Tokenizers
from transformer.decoding.options import SearchOptions
from transformer.decoding.request import Request
from transformer.decoding.scoring import score_pairs
from transformer.decoding.translator import Translator
from transformer.errors import UserError
from transformer.model.transformer import DecoderState, Transformer
from transformer.training.checkpoint import model_tensors, tokenizer_tensors, write_checkpoint

Make = Callable[..., Transformer]
SHORT = SearchOptions(beam_size=3, max_length=4, max_length_ratio=0.5)
WORDS = ["the", "old", "dog", "cat", "sees", "a", "small", "red", "house", "and", "her", "friend"]
MIXED = [" ".join(WORDS[(i * 7 + j) % 12] for j in range(1 + i * i % 9)) for i in range(40)]
CONFIG = Config.model_validate(
    {
        "run_dir": "runs/test",
        "data": {"train": [{"path": "train.tsv"}], "max_length": 30},
        "model": {
            "d_model": 16,
            "num_heads": 2,
            "d_ff": 32,
            "num_encoder_layers": 1,
            "num_decoder_layers": 2,
        },
        "decoding": {"beam_size": 2, "max_length": 4, "max_length_ratio": 0.5, "batch_tokens": 99},
    }
)


@pytest.fixture
def model(make_model: Make, tokenizers: Tokenizers) -> Transformer:
    return make_model(0, tokenizers.source.vocab_size, double=False)


@pytest.fixture
def translator(model: Transformer, tokenizers: Tokenizers) -> Translator:
    return Translator([model], tokenizers, SHORT)


@pytest.fixture
def copier(copies: Callable[..., nn.Module], tokenizers: Tokenizers) -> Translator:
    """Translates each line to itself."""
    vocab_size = tokenizers.source.vocab_size
    return Translator([copies(vocab_size)], tokenizers)  # type: ignore[list-item]


class Unasked(Transformer):
    """A model that must not be asked."""

    def start(self, src: Tensor) -> DecoderState:
        raise AssertionError("the model was asked")


def test_an_empty_line_gives_an_empty_line(copier: Translator) -> None:
    assert copier.translate(["a", "", "b"]) == ["a", "", "b"]


def test_blank_lines_do_not_ask_the_model(tokenizers: Tokenizers) -> None:
    size = tokenizers.source.vocab_size
    translator = Translator([Unasked(CONFIG.model, size, size)], tokenizers, SHORT)
    blank = ["", "   ", "\t", "\u00a0", "\u3000 \t"]
    assert translator.translate(blank) == [""] * 5
    n_best = translator.translate_n_best(blank, replace(SHORT, n_best=3))
    assert [len(found) for found in n_best] == [3] * 5
    assert translator.summary.num_lines == 5
    assert translator.summary.num_empty == 0


def test_a_blank_line_that_asks_for_text_has_no_translation_and_a_warning(
    copier: Translator,
) -> None:
    warnings: list[str] = []
    copier.warn = warnings.append
    lines = [Request("", must_contain=["dog"]), Request(" ", prefix="the"), Request("")]
    first, second, third = (found[0] for found in copier.translate_n_best(lines))
    assert (first.score, second.score, third.score) == (-math.inf, -math.inf, 0.0)
    assert [w.split(":")[0] for w in warnings] == ["line 1", "line 2"]


def test_an_empty_line_among_others_changes_none_of_them(translator: Translator) -> None:
    translator.batch_tokens = 60
    lines = [f"{line} {i}" for i, line in enumerate(MIXED)]
    lines[23] = ""
    with_it = translator.translate(lines)
    without = translator.translate(lines[:23] + lines[24:])
    assert with_it[23] == ""
    assert with_it[:23] + with_it[24:] == without


def test_each_translation_belongs_to_its_line(copier: Translator) -> None:
    copier.batch_tokens = 50
    lines = [f"{MIXED[i % 40]} {WORDS[i % 12]}" for i in range(100)]
    assert copier.translate(lines) == lines
    assert [found[0].text for found in copier.translate_stream(lines)] == lines
    assert [found[0].text for found in copier.translate_stream(lines, live=True)] == lines


def test_a_line_of_5000_words_changes_none_of_its_neighbours(translator: Translator) -> None:
    """It is much longer than the batch budget, and than a table of positions would be."""
    translator.batch_tokens = 100
    options = replace(SHORT, max_length=12, max_length_ratio=0.0, beam_size=1)
    found = translator.translate(["the dog", " ".join(["house"] * 5000), "the cat"], options)
    assert len(found) == 3
    assert found[::2] == translator.translate(["the dog", "the cat"], options)


def test_a_line_longer_than_in_training_gets_one_warning_that_names_it(copier: Translator) -> None:
    warnings: list[str] = []
    copier.run_config, copier.warn = CONFIG, warnings.append
    options = SearchOptions(max_length=12, max_length_ratio=0.0)
    found = copier.translate(["the dog", " ".join(["house"] * 5000), "the cat"], options)
    assert found[0] == "the dog"
    assert found[1].startswith("house")
    assert found[2] == "the cat"
    assert len(warnings) == 1
    assert warnings[0].startswith("line 2: its ")
    assert "more than the 30 of training; its translation was cut at 12" in warnings[0]


def test_a_cut_translation_is_named_and_counted(copier: Translator) -> None:
    warnings: list[str] = []
    copier.warn = warnings.append
    options = SearchOptions(max_length=3, max_length_ratio=0.0)
    found = copier.translate(["a", "the old dog sleeps in the garden", "b"], options)
    assert len(found) == 3
    (warning,) = warnings
    assert warning.startswith("line 2: its translation was cut at 3 tokens (max_length + max_")
    assert copier.summary.num_cut == 1
    assert any(
        "cut at their limit" in line and line.endswith("1") for line in copier.summary.lines()
    )


def test_many_warnings_are_counted_and_not_all_named(copier: Translator) -> None:
    warnings: list[str] = []
    copier.warn = warnings.append
    copier.translate(["the old dog"] * 100, SearchOptions(max_length=1, max_length_ratio=0.0))
    assert len(warnings) == 11
    assert copier.summary.num_cut == 100


def test_equal_lines_get_equal_translations(translator: Translator) -> None:
    translator.batch_tokens = 64
    found = translator.translate(["the old dog sees the cat"] * 50)
    assert len(found) == 50
    assert len(set(found)) == 1


def test_batch_size_changes_no_text_and_no_score(translator: Translator) -> None:
    options = replace(SHORT, n_best=3)
    translator.batch_tokens = 1
    alone = translator.translate_n_best(MIXED, options)
    for batch_tokens in (70, 640):
        translator.batch_tokens = batch_tokens
        for one, other in zip(alone, translator.translate_n_best(MIXED, options), strict=True):
            assert [t.text for t in one] == [t.text for t in other]
            assert [t.score for t in one] == pytest.approx([t.score for t in other], abs=1e-4)


def test_the_score_of_a_translation_is_the_one_it_was_found_with(
    translator: Translator, model: Transformer, tokenizers: Tokenizers
) -> None:
    found = [t[0] for t in translator.translate_n_best(MIXED)]
    ids = tokenizers.source.encode(MIXED)
    forced = score_pairs([model], ids, [t.ids for t in found], batch_tokens=100)
    assert [s.score for s in forced] == pytest.approx([t.score for t in found], abs=1e-4)


def test_text_scores_as_it_was_found(copier: Translator) -> None:
    lines = [*MIXED, "", "  the dog  "]
    found = [t[0] for t in copier.translate_n_best(lines)]
    scores = copier.score(lines, [t.text for t in found])
    assert [s.score for s in scores] == pytest.approx([t.score for t in found], abs=1e-4)
    worse = copier.score(["the dog", "the dog"], ["the dog", "the cat"])
    assert worse[0].score > worse[1].score
    with pytest.raises(UserError, match=r"2 source lines.* 1 "):
        copier.score(["a", "b"], ["a"])


def test_a_live_stream_answers_a_line_before_the_next_has_come(copier: Translator) -> None:
    answered = threading.Event()

    def lines() -> Iterator[str]:
        yield "the dog"
        assert answered.wait(10)
        yield "the cat"

    stream = copier.translate_stream(lines(), live=True)
    assert next(stream)[0].text == "the dog"
    answered.set()
    assert [found[0].text for found in stream] == ["the cat"]
    assert copier.summary.num_lines == 2


def test_an_empty_translation_is_counted_and_min_length_prevents_it(
    recites: Callable[..., nn.Module], tokenizers: Tokenizers
) -> None:
    logits = torch.zeros(1, tokenizers.target.vocab_size)
    logits[0, 3], logits[0, tokenizers.target.encode(["dog"])[0][0]] = 20.0, 10.0
    translator = Translator([recites(logits)], tokenizers, SHORT)  # type: ignore[list-item]
    assert translator.translate(["the dog", "", "a cat"]) == ["", "", ""]
    assert translator.summary.num_empty == 2
    assert any("empty translations" in line for line in translator.summary.lines())
    assert translator.translate(["the dog"], replace(SHORT, min_length=1)) != [""]
    assert translator.summary.num_empty == 0


def test_what_check_raises_ends_the_call(model: Transformer, tokenizers: Tokenizers) -> None:
    def check() -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        Translator([model], tokenizers, SHORT, check=check).translate(["the dog"])


def test_a_single_string_is_no_list_of_lines(translator: Translator) -> None:
    with pytest.raises(TypeError, match=r"\[line\]"):
        translator.translate("the dog")


def save(path: Path, model: Transformer, tokenizers: Tokenizers) -> Path:
    tensors = model_tensors(model) | tokenizer_tensors(tokenizers)
    write_checkpoint(path, tensors, {"step": 1, "config": CONFIG.model_dump(mode="json")})
    return path


def test_a_loaded_model_translates_as_it_did_and_twins_make_the_same_ensemble(
    tmp_path: Path, model: Transformer, tokenizers: Tokenizers
) -> None:
    one = save(tmp_path / "one.safetensors", model, tokenizers)
    two = save(tmp_path / "two.safetensors", model, tokenizers)
    loaded = Translator.load(one, device="cpu")
    assert loaded.options == SearchOptions.from_config(CONFIG.decoding)
    assert loaded.batch_tokens == 99
    assert loaded.config == CONFIG
    expected = Translator([model], tokenizers, loaded.options).translate(MIXED)
    assert loaded.translate(MIXED) == expected
    assert Translator.load(one, two, device="cpu").translate(MIXED) == expected


def test_models_of_different_vocabularies_make_no_ensemble(
    tmp_path: Path,
    make_model: Make,
    model: Transformer,
    tokenizers: Tokenizers,
    other_tokenizer: Tokenizer,
) -> None:
    one = save(tmp_path / "one.safetensors", model, tokenizers)
    size = other_tokenizer.vocab_size
    other = make_model(1, size, double=False)
    two = save(tmp_path / "two.safetensors", other, Tokenizers(other_tokenizer, other_tokenizer))
    sizes = rf"\({tokenizers.source.vocab_size} pieces\).*\({size} pieces\)"
    with pytest.raises(UserError, match=rf"{sizes} have different source vocabularies"):
        Translator.load(one, two, device="cpu")


def test_no_model_at_all_is_a_clear_error() -> None:
    with pytest.raises(UserError, match="no model"):
        Translator.load()
