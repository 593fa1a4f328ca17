"""Searches over the words that may translate a source."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from small_task import Command
from torch import Tensor

from transformer import Translator
from transformer.config import TokenizerConfig
from transformer.data.tokenizer import Tokenizer, Tokenizers
from transformer.data.tokenizer_training import train_tokenizer
from transformer.decoding.lexicon import learn_shortlist
from transformer.decoding.options import SearchOptions
from transformer.decoding.quantization import in_precision
from transformer.decoding.request import Request
from transformer.decoding.sampling_options import SamplingOptions
from transformer.decoding.search import beam_search
from transformer.decoding.shortlist import Shortlist, Shortlisted
from transformer.errors import UserError
from transformer.model.transformer import Transformer

ALWAYS = [0, 1, 2, 3]
NONE = torch.zeros(0, dtype=torch.long)
LISTS = {4: [5, 9], 5: [6, 7, 8], 6: [], 7: [11, 4]}


def small_shortlist() -> Shortlist:
    lists = [LISTS.get(token, []) for token in range(12)]
    starts = torch.tensor([0, *map(len, lists)]).cumsum(0)
    words = torch.tensor([word for each in lists for word in each])
    return Shortlist(torch.tensor(ALWAYS), starts, words)


SRC = torch.tensor([[4, 5, 3], [7, 3, 0], [6, 3, 0]])
ALLOWED = [{5, 9, 6, 7, 8}, {11, 4}, set()]


def test_a_sentence_may_be_said_in_the_words_of_its_tokens_and_those_of_all() -> None:
    for row, words in zip(small_shortlist().allows(SRC), ALLOWED, strict=True):
        assert set(row.nonzero()[:, 0].tolist()) == words | set(ALWAYS)


class Silenced(torch.nn.Module):
    """A model over its whole vocabulary, in which what a sentence may not say is impossible."""

    def __init__(self, model: Transformer, allowed: list[set[int]]) -> None:
        super().__init__()
        self.model = model
        self.allowed = allowed

    def start(self, src: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return src, src[:, :0], torch.arange(len(src))

    def decode(self, tgt: Tensor, state: Any) -> tuple[Tensor, Any]:
        src, seen, sentences = state.parts
        seen = torch.cat((seen, tgt), dim=1)
        logits = self.model(src, seen)[:, -1:].clone()
        for row, sentence in enumerate(sentences.tolist()):
            silent = [i for i in range(12) if i not in self.allowed[sentence] | set(ALWAYS)]
            logits[row, :, silent] = -torch.inf
        return logits, Rows((src, seen, sentences))


class Rows:
    def __init__(self, parts: tuple[Tensor, ...]) -> None:
        self.parts = parts

    def select(self, rows: Tensor) -> Rows:
        return Rows(tuple(x[rows] for x in self.parts))


class SilencedStart(Silenced):
    def start(self, src: Tensor) -> Any:
        return Rows(super().start(src))

    def log_probs(self, tgt: Tensor, state: Any) -> tuple[Tensor, Any]:
        logits, after = self.decode(tgt, state)
        return logits.log_softmax(-1), after


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("groups", [1, 2])
def test_search_finds_what_it_finds_where_all_else_is_impossible(
    make_model: Callable[..., Transformer], beam_size: int, groups: int
) -> None:
    if groups > beam_size:
        groups = 1
    model = make_model(3, 12)
    options = SearchOptions(
        beam_size, beam_size, max_length=4, max_length_ratio=0.0, beam_groups=groups
    )
    tokens = small_shortlist().allows(SRC).any(0).nonzero()[:, 0]
    found = beam_search([Shortlisted(model, small_shortlist(), tokens)], SRC, options)
    expected = beam_search([SilencedStart(model, ALLOWED)], SRC, options)
    assert any(len(each) > 1 for each in expected) or beam_size == 1
    for ours, theirs in zip(found, expected, strict=True):
        assert [[int(tokens[i]) for i in h.ids] for h in ours] == [h.ids for h in theirs]
        assert [h.score for h in ours] == pytest.approx([h.score for h in theirs])


def everything(tokenizers: Tokenizers) -> Shortlist:
    size = tokenizers.target.vocab_size
    starts = torch.zeros(tokenizers.source.vocab_size + 1, dtype=torch.long)
    return Shortlist(torch.arange(size), starts, NONE)


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_a_list_of_all_words_changes_nothing(
    make_model: Callable[..., Transformer], tokenizers: Tokenizers, precision: str
) -> None:
    model = in_precision(make_model(1, tokenizers.source.vocab_size, double=False), precision)
    translator = Translator([model], tokenizers, SearchOptions(max_length=9, max_length_ratio=0))
    lines = ["the old dog sleeps", "a cat", "", "we do not know"]
    expected = translator.translate_n_best(lines)
    translator.shortlist = everything(tokenizers)
    found = translator.translate_n_best(lines)
    for one, other in zip(found, expected, strict=True):
        assert [t.ids for t in one] == [t.ids for t in other]
        assert [t.score for t in one] == pytest.approx([t.score for t in other], abs=1e-5)


def test_what_is_asked_for_is_said_though_it_is_on_no_list(
    make_model: Callable[..., Transformer], tokenizers: Tokenizers
) -> None:
    size = tokenizers.source.vocab_size
    shortlist = Shortlist(torch.arange(40), torch.zeros(size + 1, dtype=torch.long), NONE)
    options = SearchOptions(max_length=9, max_length_ratio=0)
    models = [make_model(1, size)]
    translator = Translator(models, tokenizers, options, shortlist=shortlist)
    requests = [
        Request("a cat", must_contain=("Hund",)),
        Request("the dog", prefix="der alte"),
        Request("the dog"),
    ]
    contained, begun, free = translator.translate_n_best(requests)
    assert "Hund" in contained[0].text
    assert begun[0].text.startswith("der alte")
    assert max(free[0].ids) < 40
    alone = translator.translate_n_best(requests[2:])[0]
    assert alone[0].ids == free[0].ids
    said = next(token for token in free[0].ids if token > 3)
    avoided = Request("the dog", must_not_contain=(tokenizers.target.decode([[said]])[0],))
    assert said not in translator.translate_n_best([avoided])[0][0].ids


def test_samples_are_drawn_from_all_words(
    make_model: Callable[..., Transformer], tokenizers: Tokenizers
) -> None:
    models = [make_model(1, tokenizers.source.vocab_size)]
    options = SearchOptions(max_length=9, max_length_ratio=0)
    translator = Translator(models, tokenizers, options, sampling=SamplingOptions(sample=3, seed=2))
    expected = translator.translate_n_best(["the dog", "a cat"])
    translator.shortlist = Shortlist(
        torch.arange(40), torch.zeros(tokenizers.source.vocab_size + 1, dtype=torch.long), NONE
    )
    assert translator.translate_n_best(["the dog", "a cat"]) == expected


def words_tokenizer(lines: list[str], size: int) -> Tokenizer:
    config = TokenizerConfig(vocab_size=size, kind="bpe", byte_fallback=False)
    return train_tokenizer(lines * 20, config, warn=lambda _: None)


def test_words_that_go_together_are_learned_from_pairs() -> None:
    """The corpus by which textbooks explain IBM model 1 (Koehn 2010, section 4.2)."""
    source, target = ["das Haus", "das Buch", "ein Buch"], ["the house", "the book", "a book"]
    tokenizers = Tokenizers(words_tokenizer(source, 30), words_tokenizer(target, 27))
    pairs = list(zip(source, target, strict=True)) * 3
    shortlist = learn_shortlist(pairs, tokenizers, per_token=1, num_always=0)
    for word, translation in {"Haus": "house", "Buch": "book", "das": "the", "ein": "a"}.items():
        (token, _), (expected, _) = (
            t.encode([w])[0]
            for t, w in ((tokenizers.source, word), (tokenizers.target, translation))
        )
        a, b = shortlist.starts[token : token + 2].tolist()
        assert shortlist.words[a:b].tolist() == [expected], word
    assert shortlist.always.tolist() == ALWAYS


@pytest.mark.parametrize("pairs", [[], [("", ""), ("a cat", "")]])
def test_there_must_be_pairs(tokenizers: Tokenizers, pairs: list[tuple[str, str]]) -> None:
    with pytest.raises(UserError, match="no pairs"):
        learn_shortlist(pairs, tokenizers, 5, 5)


def test_a_giant_pair_does_not_stand_in_the_way_of_others(tokenizers: Tokenizers) -> None:
    giant = ("the dog " * 7000, "der Hund " * 7000)
    usual = [("a cat", "eine Katze"), ("the dog", "der Hund")]
    found = [learn_shortlist(pairs, tokenizers, 5, 0) for pairs in ([giant, *usual], usual)]
    for one, other in zip(*(vars(each).values() for each in found), strict=True):
        assert torch.equal(one, other)


def test_groups_that_find_too_few_are_filled_by_the_words_of_their_own_sentences(
    make_model: Callable[..., Transformer], tokenizers: Tokenizers
) -> None:
    """Some sentences of a batch are searched again: whose words are whose is known then as well."""
    size = tokenizers.source.vocab_size
    lists = [[(7 * i + j) % (size - 4) + 4 for j in range(6)] for i in range(size)]
    starts = torch.arange(0, 6 * size + 1, 6)
    shortlist = Shortlist(torch.tensor(ALWAYS), starts, torch.tensor(lists).flatten())
    options = SearchOptions(6, 6, max_length=3, max_length_ratio=0, beam_groups=3, diversity=0.01)
    models = [make_model(1, size)]
    translator = Translator(models, tokenizers, options, shortlist=shortlist)
    lines = [f"the {w} sleeps" for w in ("dog", "cat", "old cat", "garden", "dog and cat", "x y z")]
    together = translator.translate_n_best(lines)
    alone = [translator.translate_n_best([line])[0] for line in lines]
    assert [[t.ids for t in x] for x in together] == [[t.ids for t in x] for x in alone]
    for line, found in zip(lines, together, strict=True):
        src = torch.tensor(tokenizers.source.encode([line]))
        allowed = set(shortlist.allows(src)[0].nonzero()[:, 0].tolist())
        assert all(set(t.ids) <= allowed for t in found)


def test_a_file_holds_it_all_and_names_its_vocabularies(
    tokenizers: Tokenizers, other_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    path = tmp_path / "list.safetensors"
    shortlist = small_shortlist()
    shortlist.save(path, tokenizers)
    read = Shortlist.load(path, tokenizers)
    for name, expected in vars(shortlist).items():
        torch.testing.assert_close(getattr(read, name), expected)
    with pytest.raises(
        UserError, match=r"list\.safetensors: is a shortlist for other vocabularies"
    ):
        Shortlist.load(path, Tokenizers(other_tokenizer, other_tokenizer))
    damaged = bytearray(path.read_bytes())
    damaged[-5] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(UserError, match=r"list\.safetensors: is damaged"):
        Shortlist.load(path, tokenizers)
    save_file({"x": torch.zeros(2)}, path)
    with pytest.raises(UserError, match=r"list\.safetensors: is no shortlist;"):
        Shortlist.load(path, tokenizers)
    path.write_bytes(b"nonsense" * 9)
    with pytest.raises(UserError, match=r"list\.safetensors: cannot be read as a shortlist"):
        Shortlist.load(path, tokenizers)
    with pytest.raises(UserError, match="cannot be read as a shortlist"):
        Shortlist.load(tmp_path / "nothing", tokenizers)
    with pytest.raises(UserError, match="cannot be written"):
        shortlist.save(tmp_path / "no" / "folder", tokenizers)


def test_the_commands_make_and_use_one(
    trained_run: Path, corpus_folder: Path, command: Command, tmp_path: Path
) -> None:
    path = tmp_path / "list.safetensors"
    made = command("shortlist", trained_run, "--output", path)
    assert made.status == 0
    given = ("translate", trained_run, "--input", corpus_folder / "valid.xx")
    usual, narrow = command(*given), command(*given, "--shortlist", path)
    assert narrow.status == 0
    same = [a == b for a, b in zip(usual.lines, narrow.lines, strict=True)]
    assert sum(same) > 0.7 * len(same)
    told = command(
        "shortlist", trained_run, "-o", path, "--source", corpus_folder / "valid.xx",
        "--target", corpus_folder / "valid.yy", "--per-token", 2, "--always", 0,
    )  # fmt: skip
    assert told.status == 0
    assert "4 always" in told.error
    model = trained_run / "best.safetensors"
    refused = command("shortlist", model, "-o", model)
    assert refused.status == 1
    assert "is an input too" in refused.error
