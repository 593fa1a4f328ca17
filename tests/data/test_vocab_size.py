"""`vocab_size: auto`: a small text gets a small vocabulary, whatever its script."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest

from transformer.config import Config, TokenizerConfig
from transformer.data import corpus as corpus_module
from transformer.data import tokenizer_training
from transformer.data.corpus import load_corpora, prepare_tokenizers
from transformer.data.tokenizer_training import num_merges, train_tokenizer
from transformer.errors import UserError

Kind = Literal["bpe", "unigram"]


def sentences(count: int, alphabet: str, seed: int = 0) -> list[str]:
    rng = random.Random(seed)
    words = ["".join(rng.choices(alphabet, k=rng.randint(2, 7))) for _ in range(3000)]
    return [" ".join(rng.choices(words, k=rng.randint(3, 12))) for _ in range(count)]


@pytest.mark.parametrize(
    ("num_pairs", "merges"),
    [(0, 500), (8_000, 5_000), (27_000, 7_500), (64_000, 10_000), (1_000_000, 25_000)],
)
def test_merges_grow_as_the_third_root_of_the_number_of_pairs(num_pairs: int, merges: int) -> None:
    assert num_merges(num_pairs) == merges


def test_no_number_of_pairs_asks_for_more_than_32000_merges() -> None:
    assert num_merges(10**9) == num_merges(10**12) == 32_000


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_characters_bytes_and_special_pieces_come_on_top(kind: Kind) -> None:
    lines = sentences(2000, "abcdefghijklmnopqrstuvwxyzäöüß")
    config = TokenizerConfig(kind=kind, vocab_size="auto", user_symbols=["<2de>"])
    tokenizer = train_tokenizer(lines, config, print, num_pairs=1000)
    characters = set("".join(lines).replace(" ", "\u2581"))
    assert tokenizer.vocab_size == len(characters) + 256 + 4 + 1 + num_merges(1000)


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_a_script_of_thousands_of_characters_has_room(kind: Kind) -> None:
    lines = sentences(500, "".join(map(chr, range(0x4E00, 0x4E00 + 2000))))
    tokenizer = train_tokenizer(lines, TokenizerConfig(kind=kind, vocab_size="auto"), print, 500)
    num_characters = len(set("".join(lines)))
    assert num_characters > 1900
    assert tokenizer.vocab_size > num_characters + 256
    assert tokenizer.decode(tokenizer.encode(lines[:20])) == lines[:20]


def test_a_text_too_small_for_500_merges_gets_what_it_yields_without_a_warning() -> None:
    warnings: list[str] = []
    config = TokenizerConfig(kind="bpe", vocab_size="auto", byte_fallback=False)
    tokenizer = train_tokenizer(["a a a"], config, warnings.append, num_pairs=1)
    assert tokenizer.vocab_size < 20
    assert not warnings


def test_no_text_is_refused() -> None:
    with pytest.raises(UserError, match="holds no text"):
        train_tokenizer([], TokenizerConfig(vocab_size="auto"), print, num_pairs=1)


def test_each_language_gets_its_own_size_and_the_log_says_it(
    make_config: Callable[..., Config], caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    texts = {"train.xx": sentences(600, "abcdefgh"), "train.yy": sentences(600, "ijklmnopqrstuv")}
    for name, lines in texts.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    pair = f"{{source: {tmp_path}/train.xx, target: {tmp_path}/train.yy}}"
    config = make_config(
        f"data.train=[{pair}]",
        "tokenizer.vocab_size=auto",
        "tokenizer.joint=false",
        "model.tie_embeddings=none",
    )
    with caplog.at_level(logging.INFO, "transformer"):
        tokenizers = prepare_tokenizers(config, load_corpora(config.data.train, config.data))
    sizes = tokenizers.source.vocab_size, tokenizers.target.vocab_size
    assert sizes == (2109 + 8 + 1 + 260, 2109 + 14 + 1 + 260)
    assert "tokenizer.vocab_size auto: 2,378 and 2,384 pieces for 600 pairs" in caplog.text


def test_another_rule_makes_another_vocabulary_of_the_same_data(
    make_config: Callable[..., Config], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config("tokenizer.vocab_size=auto")
    corpus = load_corpora(config.data.train, config.data)
    sizes = []
    for merges in (30, 20, 30):
        for module in (corpus_module, tokenizer_training):
            monkeypatch.setattr(module, "num_merges", lambda _, merges=merges: merges)
        sizes.append(prepare_tokenizers(config, corpus).source.vocab_size)
    assert sizes[0] == sizes[2] == sizes[1] + 10
