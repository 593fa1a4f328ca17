"""Text to ids and back: SentencePiece, trained in this process from the training text.

With the default `normalization: identity` and byte fallback, decoding what was encoded gives the
same line back, spaces at its ends and between words included. Two exceptions: U+2581, which
SentencePiece uses for the space, comes back as a space; and a line break, which no line holds,
comes back as one too.
"""

from __future__ import annotations

import hashlib
import io
import logging
import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from transformer.config import TokenizerConfig
from transformer.data.segmentation import SPACE, Pieces, make_sampler
from transformer.errors import UserError
from transformer.ids import BOS, EOS, PAD, UNK

__all__ = ["BOS", "EOS", "PAD", "UNK", "Tokenizer", "Tokenizers", "train_tokenizer"]

SPECIAL = {"<pad>": PAD, "<unk>": UNK, "<s>": BOS, "</s>": EOS}
TRAINING_CHARACTERS = 4096
"""A longer line is cut for training: it would be skipped otherwise, or take much memory."""
TRAINING_THREADS = 16
"""The sums of unigram training depend on it, so it is not the number of cores."""

log = logging.getLogger("transformer")


class Tokenizer:
    """A trained SentencePiece model. Its ids 0 to 3 are pad, unk, bos and eos.

    Args:
        model: the bytes of the model file.

    Raises:
        UserError: the bytes are no such model, or the special ids are others.
    """

    def __init__(self, model: bytes) -> None:
        self.model = model
        self.digest = hashlib.sha256(model).hexdigest()
        sentencepiece.SetMinLogLevel(2)
        self._processor = sentencepiece.SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(model)
        except (RuntimeError, ValueError) as error:
            raise UserError(f"this is not a SentencePiece model ({error})") from error
        found = {piece: self._processor.piece_to_id(piece) for piece in SPECIAL}
        if found != SPECIAL:
            raise UserError(f"the SentencePiece model has special ids {found}, not {SPECIAL}")
        self.vocab_size: int = len(self._processor)

    def __reduce__(self) -> tuple[type[Tokenizer], tuple[bytes]]:
        return Tokenizer, (self.model,)

    @cached_property
    def _pieces(self) -> Pieces:
        messages: Any = sentencepiece_model_pb2
        proto = messages.ModelProto.FromString(self.model)
        kind = messages.ModelProto.SentencePiece
        normal, symbols, byte_ids = {}, {}, []
        for i, piece in enumerate(proto.pieces):
            if piece.type == kind.NORMAL:
                normal[piece.piece] = (i, piece.score)
            elif piece.type == kind.USER_DEFINED:
                symbols[piece.piece] = i
            elif piece.type == kind.BYTE:
                byte_ids.append(i)
        is_bpe = proto.trainer_spec.model_type == messages.TrainerSpec.BPE
        return Pieces(normal, symbols, byte_ids, is_bpe)

    @cached_property
    def _never_text(self) -> frozenset[int]:
        """Ids that leave no trace in decoded text, apart from eos and user symbols."""
        return frozenset({PAD, BOS, UNK} if self._pieces.byte_ids else {PAD, BOS})

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """Returns the ids of each line, the end of sentence last; text never makes a special id."""
        return self._processor.encode(_valid(lines), num_threads=1, add_eos=True)

    def encode_sampled(
        self, lines: Sequence[str], sampling: float, seeds: Sequence[int]
    ) -> list[list[int]]:
        """Returns the ids of a random segmentation of each line, which its seed alone decides.

        Args:
            lines: the text.
            sampling: bpe: probability of dropping a merge; unigram: the exponent alpha of the
                probabilities, 0 being uniform.
            seeds: one for each line.
        """
        sample = self._sampler(sampling)
        normalized = self._processor.normalize(_valid(lines))
        return [[*sample(x, seed), EOS] for x, seed in zip(normalized, seeds, strict=True)]

    @cached_property
    def _sampler(self) -> Callable[[float], Callable[[str, int], list[int]]]:
        return lru_cache(2)(lambda sampling: make_sampler(self._pieces, sampling))

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """Returns the text of each sequence of ids up to its first eos.

        Special ids and user symbols are left out; bytes that are not UTF-8 become U+FFFD, a line
        break a space.

        Raises:
            ValueError: an id is outside the vocabulary.
        """
        texts = [self._decode(self._content(sequence)) for sequence in ids]
        return [text.replace("\n", " ") for text in texts]

    def _content(self, sequence: Sequence[int]) -> list[int]:
        """Returns the ids before the first eos without those that are no text."""
        content: list[int] = []
        for i in map(int, sequence):
            if not 0 <= i < self.vocab_size:
                raise ValueError(f"id {i} is outside the vocabulary of {self.vocab_size}")
            if i == EOS:
                break
            if i not in self._never_text:
                content.append(i)
        return content

    def _decode(self, ids: list[int]) -> str:
        """Decodes the stretches between user symbols; of two spaces around a symbol one stays."""
        symbols = set(self._pieces.symbols.values())
        if symbols.isdisjoint(ids):
            return self._processor.decode(ids)
        text, start = "", 0
        for end in [*(i for i, x in enumerate(ids) if x in symbols), len(ids)]:
            part = ids[start:end]
            if part:
                opens_word = self._processor.id_to_piece(part[0]).startswith(SPACE)
                gap = " " if opens_word and text and not text.endswith(" ") else ""
                text += gap + self._processor.decode(part)
            start = end + 1
        return text

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Returns the pieces of a vocabulary that ids stand for."""
        return [self._processor.id_to_piece(int(i)) for i in ids]


@dataclass(frozen=True)
class Tokenizers:
    """The vocabularies of both languages, which may be one."""

    source: Tokenizer
    target: Tokenizer

    @property
    def joint(self) -> bool:
        """Whether both are the same vocabulary."""
        return self.source.model == self.target.model


def train_tokenizer(
    lines: Iterable[str],
    config: TokenizerConfig,
    warn: Callable[[str], object] = log.warning,
    name: str = "this text",
) -> Tokenizer:
    """Trains a tokenizer; the same lines and settings give the same bytes on any machine.

    Args:
        lines: the text; of more than `config.sample_lines` a random sample, ever the same, is used.
        config: kind and size of the vocabulary. A text too small for the size gets a smaller one.
        warn: takes the sentence that says so.
        name: what an error calls a text that is none.

    Raises:
        UserError: there is no text, the vocabulary is too small for its characters, or a user
            symbol cannot be one.
    """
    _check_symbols(config.user_symbols)
    source = _Lines(lines, config.sample_lines)
    out = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(source),
            model_writer=out,
            model_type=config.kind,
            vocab_size=config.vocab_size,
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
        raise UserError(_explain(str(error), config, name)) from error
    tokenizer = Tokenizer(out.getvalue())
    if tokenizer.vocab_size < config.vocab_size:
        warn(
            f"tokenizer.vocab_size is {config.vocab_size}, but this text yields only"
            f" {tokenizer.vocab_size} pieces: the vocabulary has {tokenizer.vocab_size}"
        )
    return tokenizer


class _Lines:
    """Hands SentencePiece what it can train on, and keeps an error of the source that it would
    lose."""

    def __init__(self, lines: Iterable[str], limit: int) -> None:
        self.error: Exception | None = None
        self._lines = lines
        self._limit = limit

    def __iter__(self) -> Iterator[str]:
        try:
            for line in sample_evenly(self._lines, self._limit):
                # SentencePiece skips any line that holds a tab, which it uses itself.
                text = _valid([line])[0].replace("\t", " ")
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
    return (line for _, line in kept)


def _valid(lines: Sequence[str]) -> list[str]:
    """Returns the lines with U+FFFD for lone surrogates, which have no UTF-8."""
    return [
        x if x.isascii() else x.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        for x in lines
    ]


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


def _explain(message: str, config: TokenizerConfig, name: str) -> str:
    """Turns a message of SentencePiece's trainer into one about settings."""
    if "sentences_.empty()" in message:
        return f"{name}: holds no text to train a tokenizer on, only blank lines or none"
    if match := re.search(r"smaller than required_chars\. \d+ vs (\d+)", message):
        minimum, num_bytes = int(match[1]), 256 if config.byte_fallback else 0
        num_symbols = len(config.user_symbols)
        num_characters = minimum - len(SPECIAL) - num_bytes - num_symbols
        return (
            f"tokenizer.vocab_size is {config.vocab_size}, but this text needs at least {minimum}:"
            f" {len(SPECIAL)} special pieces, {num_bytes} bytes (byte_fallback), {num_symbols} user"
            f" symbols and {num_characters} characters (character_coverage"
            f" {config.character_coverage:g})"
        )
    return f"SentencePiece could not train a tokenizer: {message}"
