"""SentencePiece vocabularies from text, of a size that is given or that suits the text's."""

from __future__ import annotations

import io
import logging
import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized

import sentencepiece

from transformer.config import TokenizerConfig
from transformer.data.segmentation import SPACE
from transformer.data.tokenizer import SPECIAL, Tokenizer, valid_text
from transformer.errors import UserError
from transformer.ids import BOS, EOS, PAD, UNK

TRAINING_CHARACTERS = 4096
"""A longer line is cut for training: it would be skipped otherwise, or take much memory."""
FEWEST_PIECES = len(SPECIAL) + 1
SAMPLE_CHARACTERS = 32_000_000
"""Most characters to train on. SentencePiece takes 20 bytes for each, in its suffix arrays."""
TRAINING_THREADS = 16
"""The sums of unigram training depend on it, so it is not the number of cores."""

log = logging.getLogger("transformer")


def train_tokenizer(
    lines: Iterable[str],
    config: TokenizerConfig,
    warn: Callable[[str], object] = log.warning,
    name: str = "this text",
    num_pairs: int = 0,
) -> Tokenizer:
    """Trains a tokenizer; the same lines and settings give the same bytes on any machine.

    Args:
        lines: the text; of more than `config.sample_lines` a random sample, ever the same, is used.
        config: kind and size of the vocabulary. A text too small for the size gets a smaller one.
        warn: takes the sentence that says so.
        name: what an error calls a text that is none.
        num_pairs: pairs of the training data, by which `vocab_size: auto` chooses; it reads the
            lines twice.

    Raises:
        UserError: there is no text, the vocabulary is too small for its characters, or a user
            symbol cannot be one.
    """
    _check_symbols(config.user_symbols)
    if config.vocab_size == "auto":
        size = _fewest_pieces(lines, config, name) + num_merges(num_pairs)
        return Tokenizer(_train(lines, config, size, config.kind, name))
    tokenizer = Tokenizer(_train(lines, config, config.vocab_size, config.kind, name))
    if tokenizer.vocab_size < config.vocab_size:
        warn(
            f"tokenizer.vocab_size is {config.vocab_size}, but this text yields only"
            f" {tokenizer.vocab_size} pieces: the vocabulary has {tokenizer.vocab_size}"
        )
    return tokenizer


def num_merges(num_pairs: int) -> int:
    """Returns how many pieces `vocab_size: auto` takes beyond characters, bytes and special ones.

    It grows as the third root: 5,400 at 10,000 pairs, 7,700 at 29,000, where 8,000 pieces were
    measured to learn faster than 4,000 (configs/multi30k_experiments.md), 13,600 at the 160,000 of
    IWSLT 2014, for which 10,000 are usual, and the 32,000 usual for millions.
    """
    return round(min(max(250 * num_pairs ** (1 / 3), 500), 32_000))


class _TooFewPieces(UserError):
    """The vocabulary is smaller than what the text cannot do without.

    Attributes:
        least: pieces that it needs.
    """

    def __init__(self, message: str, least: int) -> None:
        super().__init__(message)
        self.least = least


def _fewest_pieces(lines: Iterable[str], config: TokenizerConfig, name: str) -> int:
    """Returns the number of pieces that the text cannot do without.

    SentencePiece counts its characters, after normalisation and by their coverage, before it trains
    and refuses a vocabulary of one piece.
    """
    try:
        return Tokenizer(_train(lines, config, FEWEST_PIECES, "bpe", name)).vocab_size
    except _TooFewPieces as error:
        return error.least


def _train(
    lines: Iterable[str], config: TokenizerConfig, vocab_size: int, kind: str, name: str
) -> bytes:
    """Returns the model file that SentencePiece makes of the lines."""
    source = _Lines(lines, config.sample_lines)
    out = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(source),
            model_writer=out,
            model_type=kind,
            vocab_size=vocab_size,
            hard_vocab_limit=False,
            byte_fallback=config.byte_fallback,
            normalization_rule_name=config.normalization,
            remove_extra_whitespaces=config.normalization != "identity",
            character_coverage=config.character_coverage,
            user_defined_symbols=config.user_symbols,
            max_sentence_length=5 * TRAINING_CHARACTERS,
            num_threads=TRAINING_THREADS,
            minloglevel=2,
            pad_id=PAD,
            unk_id=UNK,
            bos_id=BOS,
            eos_id=EOS,
        )
    except RuntimeError as error:
        if source.error is not None:
            raise source.error from None
        raise _explain(str(error), config, vocab_size, name) from error
    return out.getvalue()


class _Lines:
    """Hands SentencePiece what it can train on, and keeps an error of the source that it would
    lose."""

    def __init__(self, lines: Iterable[str], limit: int) -> None:
        self.error: Exception | None = None
        self._lines = lines
        self._limit = limit

    def __iter__(self) -> Iterator[str]:
        try:
            for line in thin_out(sample_evenly(self._lines, self._limit), SAMPLE_CHARACTERS):
                # SentencePiece skips any line that holds a tab, which it uses itself.
                text = valid_text([line])[0].replace("\t", " ")
                for start in range(0, len(text), TRAINING_CHARACTERS):
                    yield text[start : start + TRAINING_CHARACTERS]
        except Exception as error:
            self.error = error
            raise


def sample_evenly(lines: Iterable[str], limit: int) -> Iterable[str]:
    """Returns at most `limit` lines, all alike likely, in their order; always the same ones.

    The lines themselves come back if their number is known and small enough; else it is a reservoir
    sample (Vitter 1985, algorithm R), which holds `limit` lines.
    """
    if isinstance(lines, Sized) and len(lines) <= limit:
        return lines
    rng = random.Random(0)
    kept: list[tuple[int, str]] = []
    for i, line in enumerate(lines):
        if i < limit:
            kept.append((i, line))
        elif (place := rng.randrange(i + 1)) < limit:
            kept[place] = (i, line)
    kept.sort()
    return [line for _, line in kept]


def thin_out(lines: Iterable[str], num_characters: int) -> Iterator[str]:
    """Yields lines, read twice, that have about so many characters; all alike likely, always the
    same ones."""
    share = num_characters / max(1, sum(map(len, lines)))
    rng = random.Random(0)
    return (line for line in lines if share >= 1 or rng.random() < share)


def _check_symbols(symbols: Sequence[str]) -> None:
    for symbol in symbols:
        if symbol in SPECIAL:
            raise UserError(f"tokenizer.user_symbols: {symbol} is a special piece already")
        if symbols.count(symbol) > 1:
            raise UserError(f"tokenizer.user_symbols: {symbol} is there twice")
        if SPACE in symbol or len(symbol.split()) != 1 or symbol != symbol.strip():
            raise UserError(
                f"tokenizer.user_symbols: {symbol!r} holds a space, which no symbol can"
            )


def _explain(message: str, config: TokenizerConfig, vocab_size: int, name: str) -> UserError:
    """Turns a message of SentencePiece's trainer into one about settings."""
    if "sentences_.empty()" in message:
        return UserError(f"{name}: holds no text to train a tokenizer on, only blank lines or none")
    if match := re.search(r"smaller than required_chars\. \d+ vs (\d+)", message):
        minimum, num_bytes = int(match[1]), 256 if config.byte_fallback else 0
        num_symbols = len(config.user_symbols)
        num_characters = minimum - len(SPECIAL) - num_bytes - num_symbols
        return _TooFewPieces(
            f"tokenizer.vocab_size is {vocab_size}, but this text needs at least {minimum}:"
            f" {len(SPECIAL)} special pieces, {num_bytes} bytes (byte_fallback), {num_symbols} user"
            f" symbols and {num_characters} characters (character_coverage"
            f" {config.character_coverage:g})",
            minimum,
        )
    return UserError(f"SentencePiece could not train a tokenizer: {message}")
