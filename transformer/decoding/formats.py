"""The forms in which lines come and translations go: plain text, or an object of JSON a line."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, Protocol

from transformer.data.tokenizer import Tokenizers
from transformer.decoding.parts import check_request
from transformer.decoding.request import Request, read_requests
from transformer.decoding.results import Translation


class Format(Protocol):
    """How lines are read and translations written."""

    def read(self, lines: Iterable[str], name: str, first: int = 1) -> Iterator[Request]:
        """Yields what each line asks for; `name` is what errors call their origin,
        `first` the number of the first line.
        """

    def write(self, found: Sequence[Translation]) -> str:
        """Returns the translations of the next line, with a line feed after each of theirs."""


@dataclass(frozen=True)
class TextFormat:
    """Lines are text; of each translation a line of [score, tab,] text [, tab, alignment].

    Attributes:
        scores: whether scores are written.
        alignments: whether pairs of words are written, alone or with their weights.
        most: translations that are written of a line; None = all.
    """

    scores: bool = False
    alignments: Literal["hard", "soft"] | None = None
    most: int | None = None

    def read(self, lines: Iterable[str], name: str, first: int = 1) -> Iterator[Request]:
        """Yields each line as it is."""
        return map(Request, lines)

    def write(self, found: Sequence[Translation]) -> str:
        """Returns a line for each translation."""
        return "".join(f"{self._line(t)}\n" for t in found[: self.most])

    def _line(self, t: Translation) -> str:
        fields = [f"{t.score:.4f}", t.text] if self.scores else [t.text]
        if self.alignments and t.alignment is not None:
            hard = self.alignments == "hard"
            fields.append(t.alignment.hard() if hard else t.alignment.soft())
        elif self.alignments:
            fields.append("")
        return "\t".join(fields)


@dataclass(frozen=True)
class JsonFormat:
    """Lines are objects of JSON with the names of `Request`; so is what is written.

    Attributes:
        tokenizers: the vocabularies.
        soft: whether alignments are written with all their weights too.
        sampled: whether translations are drawn, not searched for.
        waiting: the ids of requests that were read, but whose translations were not yet written.
    """

    tokenizers: Tokenizers
    soft: bool = False
    sampled: bool = False
    waiting: deque[object] = field(default_factory=deque)

    def read(self, lines: Iterable[str], name: str, first: int = 1) -> Iterator[Request]:
        """Yields the request of each line.

        Raises:
            UserError: a line holds none, or one that the vocabularies cannot meet.
        """
        check = partial(check_request, tokenizers=self.tokenizers, sampled=self.sampled)
        for request in read_requests(lines, name, first, check):
            self.waiting.append(request.id)
            yield request

    def write(self, found: Sequence[Translation]) -> str:
        """Returns one object: the first translation, and the others as its `alternatives`."""
        best, *others = (t.to_json(self.tokenizers.target.pieces(t.ids), self.soft) for t in found)
        request_id = self.waiting.popleft()
        value = ({} if request_id is None else {"id": request_id}) | best
        if others:
            value["alternatives"] = [other for other in others if other["score"] is not None]
        return json.dumps(value, ensure_ascii=False) + "\n"
