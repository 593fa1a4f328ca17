"""Text to ids and back."""

import io
import pickle
import random
import subprocess
import sys
from collections.abc import Iterator

import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer.config import TokenizerConfig
from transformer.data.tokenizer import (
    BOS,
    EOS,
    PAD,
    UNK,
    Tokenizer,
    Tokenizers,
)
from transformer.data.tokenizer_training import sample_evenly, thin_out, train_tokenizer
from transformer.errors import UserError

WORDS = ["a", "boy", "sees", "the", "big", "dog", "and", "walks", "home"]
WORDS += ["der", "kleine", "Hund", "läuft", "nach", "Hause", "<x>"]


def text(count: int = 300) -> list[str]:
    rng = random.Random(0)
    return [" ".join(rng.choices(WORDS, k=8)) for _ in range(count)]


def trained(lines: list[str] | None = None, **options: object) -> Tokenizer:
    config = TokenizerConfig(**{"vocab_size": 320, **options})
    return train_tokenizer(text() if lines is None else lines, config, lambda message: None)


@pytest.fixture(scope="module", params=["unigram", "bpe"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return trained(kind=request.param, user_symbols=["<2de>", "<2en>"])


def test_special_ids_are_0_to_3(tokenizer: Tokenizer) -> None:
    assert (PAD, UNK, BOS, EOS) == (0, 1, 2, 3)
    assert tokenizer.pieces(range(4)) == ["<pad>", "<unk>", "<s>", "</s>"]


def test_a_model_with_other_special_ids_is_refused() -> None:
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text()), model_writer=out, vocab_size=40, minloglevel=2
    )
    with pytest.raises(UserError, match="special ids"):
        Tokenizer(out.getvalue())
    with pytest.raises(UserError, match="not a SentencePiece model"):
        Tokenizer(b"no model")


@given(line=st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\n▁")))
@settings(max_examples=300, deadline=None)
def test_any_line_comes_back_unchanged(tokenizer: Tokenizer, line: str) -> None:
    if "<2de>" not in line and "<2en>" not in line:
        assert tokenizer.decode(tokenizer.encode([line])) == [line]


@pytest.mark.parametrize("line", ["ﬁsh ½ … Ⅳ ² ｈｅ", "  two  spaces ", "\ttab\u00a0no-break", ""])
def test_text_is_not_normalised_by_default(tokenizer: Tokenizer, line: str) -> None:
    assert tokenizer.decode(tokenizer.encode([line])) == [line]


def test_nfkc_is_there_for_those_who_ask() -> None:
    tokenizer = trained(normalization="nfkc")
    assert tokenizer.decode(tokenizer.encode(["ﬁsh ½ … Ⅳ ² ｈｅ"])) == ["fish 1⁄2 ... IV 2 he"]


def test_unseen_characters_are_spelled_as_bytes(tokenizer: Tokenizer) -> None:
    lower = trained([line.lower() for line in text()])
    for one in (tokenizer, lower):
        ids = one.encode(["Y dog 犬"])[0]
        assert UNK not in ids
        assert one.decode([ids]) == ["Y dog 犬"]


def test_no_ids_at_all_decode_to_an_unknown_sign(tokenizer: Tokenizer) -> None:
    for i in range(tokenizer.vocab_size):
        assert "⁇" not in tokenizer.decode([[i, i]])[0]


def test_bytes_that_are_no_utf8_decode_to_replacement_characters(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode(["犬"])[0]
    assert tokenizer.decode([ids[:-2]])[0].strip("\ufffd") == ""
    assert "\ufffd" in tokenizer.decode([ids[:-2]])[0]


def test_a_decoded_line_is_one_line(tokenizer: Tokenizer) -> None:
    assert tokenizer.decode(tokenizer.encode(["a\nb"])) == ["a b"]


def test_half_a_surrogate_pair_does_not_stop_it(tokenizer: Tokenizer) -> None:
    assert tokenizer.decode(tokenizer.encode(["x\ud800y", "é"])) == ["x\ufffdy", "é"]


def test_decoding_stops_at_the_end_of_sentence_and_drops_special_ids(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode(["the dog"])[0]
    assert ids[-1] == EOS
    assert tokenizer.decode([[BOS, PAD, *ids, *ids]]) == ["the dog"]
    assert tokenizer.decode([]) == []
    assert tokenizer.decode([[], [EOS]]) == ["", ""]


@pytest.mark.parametrize("wrong", [-1, 100_000])
def test_an_id_outside_the_vocabulary_is_refused(tokenizer: Tokenizer, wrong: int) -> None:
    with pytest.raises(ValueError, match=f"id {wrong} is outside"):
        tokenizer.decode([[5, wrong]])


@pytest.mark.parametrize("line", ["a </s> b", "</s>", "<s><pad><unk>", "a<unk>b", "<0x0A>"])
def test_text_never_makes_a_special_id(tokenizer: Tokenizer, line: str) -> None:
    ids = tokenizer.encode([line])[0]
    assert not {PAD, UNK, BOS, EOS} & set(ids[:-1])
    assert tokenizer.decode([ids]) == [line]


@pytest.mark.parametrize(
    ("line", "stripped"),
    [
        ("<2de> the dog", "the dog"),
        ("<2de>the dog", "the dog"),
        ("the <2de> dog", "the dog"),
        ("the dog <2en>", "the dog "),
        ("a<2de><2en>b", "ab"),
        ("<2de>", ""),
    ],
)
def test_a_user_symbol_is_one_id_and_leaves_the_output(
    tokenizer: Tokenizer, line: str, stripped: str
) -> None:
    ids = tokenizer.encode([line])[0]
    pieces = tokenizer.pieces(ids)
    for symbol in ("<2de>", "<2en>"):
        assert pieces.count(symbol) == line.count(symbol)
    assert tokenizer.decode([ids]) == [stripped]


@pytest.mark.parametrize("symbols", [["</s>"], ["<t>", "<t>"], ["of the"], ["▁x"], [" "]])
def test_a_user_symbol_that_cannot_be_one_is_named(symbols: list[str]) -> None:
    with pytest.raises(UserError, match=r"tokenizer\.user_symbols"):
        trained(user_symbols=symbols)


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_a_vocabulary_too_large_for_the_text_is_lowered_with_a_warning(kind: str) -> None:
    lines = [f"{a} {b}" for a in ("cat", "dog", "cow") for b in ("sat", "ran", "saw")] * 34
    warnings: list[str] = []
    config = TokenizerConfig(kind=kind, vocab_size=8000)
    tokenizer = train_tokenizer(lines[:300], config, warnings.append)
    assert 256 < tokenizer.vocab_size < 8000
    assert len(warnings) == 1
    assert f"vocab_size is 8000, but this text yields only {tokenizer.vocab_size}" in warnings[0]


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_a_vocabulary_too_small_is_refused_with_the_minimum(kind: str) -> None:
    lines = ["abcdefghij klmnopqrst"] * 300
    with pytest.raises(UserError, match="at least 281: 4 special pieces, 256 bytes"):
        trained(lines, kind=kind, vocab_size=60)
    assert trained(lines, kind=kind, vocab_size=281).vocab_size == 281


def test_no_text_is_refused() -> None:
    with pytest.raises(UserError, match="no text"):
        trained([])


def test_an_error_of_the_lines_is_not_lost() -> None:
    def lines() -> Iterator[str]:
        yield "one line"
        raise UserError("x:2: not valid UTF-8")

    with pytest.raises(UserError, match="x:2: not valid UTF-8"):
        train_tokenizer(lines(), TokenizerConfig())


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_long_lines_and_tabs_are_trained_on(kind: str) -> None:
    long = " ".join(["zebra"] * 20_000)
    tokenizer = trained([long, "quokka\tquokka"] * 3, kind=kind)
    assert set("zebraquok") <= set(tokenizer._pieces.normal)


def test_training_prints_nothing_and_does_not_depend_on_the_cores() -> None:
    code = f"""
import os, sys
os.sched_setaffinity(0, [next(iter(os.sched_getaffinity(0)))])
from transformer.config import TokenizerConfig
from transformer.data.tokenizer_training import train_tokenizer
for kind in ("unigram", "bpe"):
    config = TokenizerConfig(kind=kind, vocab_size=300)
    print(train_tokenizer({text()!r}, config).digest)
"""
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert other.stdout.split() == [
        trained(kind=kind, vocab_size=300).digest for kind in ("unigram", "bpe")
    ]
    assert other.stderr == ""


def test_what_is_too_much_text_is_thinned_out_evenly_and_always_the_same() -> None:
    lines = [f"{i} " + "x" * (i % 50) for i in range(5000)]
    total = sum(map(len, lines))
    assert list(thin_out(lines, total)) == lines
    kept = list(thin_out(lines, total // 4))
    assert kept == list(thin_out(lines, total // 4))
    assert 0.22 < sum(map(len, kept)) / total < 0.28
    for first in range(0, 5000, 1000):  # of every stretch, and of both sides of pairs
        share = sum(first <= int(x.split()[0]) < first + 1000 for x in kept)
        assert 180 < share < 320
    assert 0.4 < sum(int(x.split()[0]) % 2 for x in kept) / len(kept) < 0.6


def test_a_sample_is_even_ordered_and_always_the_same() -> None:
    numbers = [f"{i:05d}" for i in range(10_000)]
    sample = list(sample_evenly(iter(numbers), 1000))
    assert sample == list(sample_evenly(iter(numbers), 1000))
    assert sample == sorted(set(sample))
    assert len(sample) == 1000
    for first in range(0, 10_000, 1000):
        share = sum(first <= int(x) < first + 1000 for x in sample)
        assert 60 <= share <= 140
    assert list(sample_evenly(iter(numbers[:10]), 1000)) == numbers[:10]


def test_pickling_keeps_the_model(tokenizer: Tokenizer) -> None:
    twin = pickle.loads(pickle.dumps(tokenizer))
    assert twin.model == tokenizer.model
    assert twin.encode(text()) == tokenizer.encode(text())
    assert Tokenizers(tokenizer, twin).joint
    assert not Tokenizers(tokenizer, trained(vocab_size=300)).joint


@given(st.text(alphabet="Hundgobys ,.läß俇", min_size=1, max_size=12).map(str.strip).filter(bool))
def test_inside_a_line_a_text_is_cut_as_behind_a_symbol(tokenizer: Tokenizer, line: str) -> None:
    """SentencePiece never joins what stands behind a symbol with what stands before it."""
    symbol, *expected = tokenizer.encode([f"<2de>{line}"])[0][1:-1]
    assert tokenizer.pieces([symbol]) == ["<2de>"]
    assert tokenizer.encode_inside(line) == expected
