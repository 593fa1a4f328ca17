"""Text to ids and back, with a trained SentencePiece model.

With the default `normalization: identity` and byte fallback, decoding what was encoded gives the
same line back, spaces at its ends and between words included. Two exceptions: U+2581, which
SentencePiece uses for the space, comes back as a space; and a line break, which no line holds,
comes back as one too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import sentencepiece
from google.protobuf.message import DecodeError
from sentencepiece import sentencepiece_model_pb2

from transformer.data.segmentation import SPACE, Pieces, make_sampler
from transformer.errors import UserError
from transformer.ids import BOS, EOS, PAD, UNK

__all__ = ["BOS", "EOS", "PAD", "UNK", "Tokenizer", "Tokenizers"]

SPECIAL = {"<pad>": PAD, "<unk>": UNK, "<s>": BOS, "</s>": EOS}
messages: Any = sentencepiece_model_pb2
ALMOST_CERTAIN = 1e3
"""Exponent at which sampling from the unigram lattice gives its best segmentation."""


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
            self._proto = messages.ModelProto.FromString(model)  # stricter than the other
        except (RuntimeError, ValueError, DecodeError) as error:
            raise UserError(f"this is not a SentencePiece model ({error})") from error
        found = {piece: self._processor.piece_to_id(piece) for piece in SPECIAL}
        if found != SPECIAL:
            raise UserError(f"the SentencePiece model has special ids {found}, not {SPECIAL}")
        self.vocab_size: int = len(self._processor)

    def __reduce__(self) -> tuple[type[Tokenizer], tuple[bytes]]:
        return Tokenizer, (self.model,)

    @cached_property
    def _pieces(self) -> Pieces:
        proto = self._proto
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
        return self._processor.encode(valid_text(lines), num_threads=1, add_eos=True)

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
        normalized = self._processor.normalize(valid_text(lines))
        return [[*sample(x, seed), EOS] for x, seed in zip(normalized, seeds, strict=True)]

    def normalized(self, text: str) -> str:
        """Returns a text as the model reads and writes it, without space at its ends."""
        return self._processor.normalize(valid_text([text]))[0].replace(SPACE, " ").strip()

    def encode_inside(self, text: str) -> list[int]:
        """Returns the ids of a text as it stands behind another sign, no space between and no end
        of sentence after it: `,` instead of `▁,`.
        """
        inside = self._processor.normalize(valid_text([text]))[0].removeprefix(SPACE)
        return self._sampler(0.0 if self._pieces.is_bpe else ALMOST_CERTAIN)(inside, 0)

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

    @property
    def symbols(self) -> list[str]:
        """The symbols that are always one piece, such as tags."""
        return list(self._pieces.symbols)

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


def valid_text(lines: Sequence[str]) -> list[str]:
    """Returns the lines with U+FFFD for lone surrogates, which have no UTF-8."""
    return [
        x if x.isascii() else x.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        for x in lines
    ]
