"""From a line to what is searched at once, and back: mostly that is the whole line, of a long one
it may be each sentence.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Protocol

from transformer.data.tokenizer import Tokenizers
from transformer.decoding.beams import Hypothesis
from transformer.decoding.formula import ScoreFormula
from transformer.decoding.options import SearchOptions
from transformer.decoding.request import Request
from transformer.decoding.results import NONE, Alignment, Translation
from transformer.decoding.sentences import split_sentences
from transformer.decoding.wording import is_unspaced, may_touch
from transformer.errors import UserError
from transformer.ids import UNK


@dataclass(frozen=True)
class Part:
    """What is searched at once, as tokens.

    Attributes:
        src: the source, its end of sentence last; that alone if it is blank.
        prefix: tokens that its translation begins with.
        included: texts that its translation contains.
        forms: ways to say all of them, each as the tokens of each text; the tokens depend on what
            stands before a text.
        excluded: texts that its translation does not contain.
        gap: the space between this part and the next one.
    """

    src: list[int]
    prefix: tuple[int, ...] = ()
    included: tuple[str, ...] = ()
    forms: tuple[tuple[tuple[int, ...], ...], ...] = ()
    excluded: tuple[str, ...] = ()
    gap: str = ""

    @property
    def is_blank(self) -> bool:
        """Whether there is nothing to translate."""
        return len(self.src) == 1

    @property
    def asks_for_text(self) -> bool:
        """Whether its translation must hold some text."""
        return bool(self.prefix or self.included)

    @property
    def is_free(self) -> bool:
        """Whether it may be translated in any words."""
        return not self.asks_for_text and not self.excluded


class Engine(Protocol):
    """Another program that searches."""

    def search(
        self, parts: Sequence[Part], options: SearchOptions
    ) -> list[list[Hypothesis] | None]:
        """Returns the `n_best` hypotheses of each part, the best first, or None where it cannot do
        what our own search does.
        """


def to_parts(
    requests: Sequence[Request],
    tokenizers: Tokenizers,
    first: int,
    longest: int | None,
    sampled: bool = False,
    tags: Collection[str] = (),
) -> list[list[Part]]:
    """Returns the parts of each line.

    Args:
        requests: the lines.
        tokenizers: the vocabularies.
        first: number of the first line, for errors.
        longest: most source tokens of a part; a line of more is split at its sentence ends, unless
            its translation must contain something, which might belong to any of them. None = lines
            are not split.
        sampled: whether translations are drawn, not searched for.
        tags: what a line may begin with that holds for each of its sentences.

    Raises:
        UserError: a request cannot be met; the line is named by its number.
    """
    plain = tokenizers.source.encode([request.text.strip() for request in requests])
    found = []
    for number, (request, src) in enumerate(zip(requests, plain, strict=True), first):
        try:
            check_request(request, tokenizers, sampled)
        except ValueError as error:
            raise UserError(f"line {number:,}: {error}") from None
        whole = _part(request, src, tokenizers)
        if longest is None or len(whole.src) <= longest or request.must_contain:
            found.append([whole])
        else:
            found.append(_sentences(request, tokenizers, tags))
    return found


def check_request(request: Request, tokenizers: Tokenizers, sampled: bool = False) -> None:
    """Checks whether a request can be met.

    Raises:
        ValueError: its tag is no symbol of the source vocabulary, a text cannot be said, or samples
            must contain one.
    """
    if sampled and request.must_contain:
        raise ValueError("must_contain is for a search, not for samples")
    symbols = tokenizers.source.symbols
    if request.tag and request.tag not in symbols:
        there = f"it has {', '.join(symbols)}" if symbols else "it has none"
        raise ValueError(
            f"tag {request.tag}: no symbol of the source vocabulary; {there}"
            " (tokenizer.user_symbols)"
        )
    for text in (*request.must_contain, *request.must_not_contain):
        if not tokenizers.target.normalized(text):
            raise ValueError(f"{text!r} has no tokens: it cannot be looked for")
    for text in (request.prefix, *request.must_contain):
        if UNK in _target_ids(text, tokenizers):
            raise ValueError(
                f"{text!r} holds something that the target vocabulary cannot say"
                " (tokenizer.byte_fallback)"
            )


def _sentences(request: Request, tokenizers: Tokenizers, tags: Collection[str]) -> list[Part]:
    """Returns each sentence of a line as a part; all have its tag, be it that it was typed."""
    text, tag = request.text.strip(), request.tag
    typed = next((x for x in tags if text.startswith(f"{x} ")), "")
    if typed and not tag:
        text, tag = text.removeprefix(typed).strip(), typed
    parts = []
    for i, (sentence, gap) in enumerate(split_sentences(text)):
        prefix = "" if i else request.prefix
        one = replace(request, text=sentence, prefix=prefix, tag=tag)
        src = tokenizers.source.encode([sentence])[0]
        parts.append(replace(_part(one, src, tokenizers), gap=gap))
    return parts


def _part(request: Request, src: list[int], tokenizers: Tokenizers) -> Part:
    """Returns a line as one part; `src` is its text without a tag."""
    if request.tag and len(src) > 1:
        src = tokenizers.source.encode([f"{request.tag} {request.text.strip()}"])[0]
    target = tokenizers.target
    included, excluded = (
        tuple(map(target.normalized, x)) for x in (request.must_contain, request.must_not_contain)
    )
    words = tuple(_target_ids(text, tokenizers) for text in included)
    inside = tuple(
        tuple(target.encode_inside(text)) if may_touch(text) else ids
        for text, ids in zip(included, words, strict=True)
    )
    return Part(
        src,
        _target_ids(request.prefix, tokenizers),
        included,
        (words,) if words == inside else (words, inside),
        excluded,
    )


def _target_ids(text: str, tokenizers: Tokenizers) -> tuple[int, ...]:
    """Returns the tokens of a text that stands in a translation, without an end."""
    return tuple(tokenizers.target.encode([text.strip()])[0][:-1]) if text else ()


def join(
    parts: Sequence[Part],
    found: Sequence[Sequence[Translation]],
    formula: ScoreFormula,
    sampled: bool,
) -> list[Translation]:
    """Returns the translations of a line, as many as of each of its parts.

    Those of samples are joined by their numbers; of those that were searched for, the combinations
    with the best scores are taken. The tokens are those of the parts one after the other, the end
    of each included, and count for the score as one translation, without coverage.
    """
    joined, num, gap = list(found[0]), len(found[0]), parts[0].gap
    for part, others in zip(parts[1:], found[1:], strict=True):
        if sampled:
            pairs = zip(joined, others, strict=True)
            joined = [_concatenate(a, b, gap, formula) for a, b in pairs]
        else:
            every = (_concatenate(*pair, gap, formula) for pair in product(joined, others))
            joined = heapq.nlargest(num, every, key=lambda t: t.score)
        gap = part.gap
    return joined


def _concatenate(a: Translation, b: Translation, gap: str, formula: ScoreFormula) -> Translation:
    alignment = _concatenate_alignments(a.alignment, b.alignment)
    if NONE.score in (a.score, b.score):
        return replace(NONE, alignment=alignment and Alignment((), (), 0))
    log_probs = a.log_probs + b.log_probs
    score = formula.score(sum(log_probs), max(1, len(log_probs)))
    return Translation(
        a.text + _gap(a.text, gap) + b.text,
        score,
        a.ids + b.ids,
        log_probs,
        a.finished and b.finished,
        alignment,
    )


def _gap(before: str, gap: str) -> str:
    """Returns the space behind a translation: what the source has, as its own script has it."""
    if not before:
        return gap
    return "" if any(map(is_unspaced, before[-3:])) else gap or " "  # `。”` is an end too


def _concatenate_alignments(a: Alignment | None, b: Alignment | None) -> Alignment | None:
    """Returns the alignment of two parts, whose words have nothing to do with each other."""
    if a is None or b is None:
        return None
    before, after = a.num_source_words, b.num_source_words
    rows = [(*row, *[0.0] * after) for row in a.weights]
    rows += [(*[0.0] * before, *row) for row in b.weights]
    return Alignment(tuple(rows), a.unaligned + b.unaligned, before + after)
