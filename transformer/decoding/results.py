"""What translating a line gives, and what is told of many lines."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

MOST_WARNINGS = 10
"""Warnings about single lines before they are only counted."""


@dataclass(frozen=True)
class Alignment:
    """Where the words of a translation come from; a word is what stands between spaces.

    Attributes:
        weights: for each target word the weight of each source word (T', S'); those of a target
            word sum to 1 together with `unaligned`.
        unaligned: for each target word the weight of what is no source word, the end of sentence
            above all, (T',).
        num_source_words: S', also where there is no target word.
    """

    weights: tuple[tuple[float, ...], ...]
    unaligned: tuple[float, ...]
    num_source_words: int

    def links(self) -> list[tuple[int, int]]:
        """Returns the pairs (source word, target word), by target word.

        A target word goes with the source word of the greatest weight, or with none if the end of
        sentence weighs more.
        """
        found = []
        for j, row in enumerate(self.weights):
            if row and max(row) >= self.unaligned[j]:
                found.append((row.index(max(row)), j))
        return found

    def hard(self) -> str:
        """Returns the pairs in Pharaoh format, such as `0-0 1-2`: source word, target word."""
        return " ".join(f"{i}-{j}" for i, j in self.links())

    def soft(self, least: float = 0.01) -> str:
        """Returns all pairs that weigh `least` or more, with their weights: `0-0:0.97 1-2:0.84`."""
        return " ".join(
            f"{i}-{j}:{weight:.2f}"
            for j, row in enumerate(self.weights)
            for i, weight in enumerate(row)
            if weight >= least
        )


@dataclass(frozen=True)
class Translation:
    """One translation of a line.

    Attributes:
        text: the translation.
        score: sum of `log_probs` / number of them ** length penalty; 0 for a blank line.
        ids: its tokens, the end of sentence last; none for a blank line.
        log_probs: of each token.
        finished: False if it was cut at the greatest length.
        alignment: where its words come from, if that was asked for.
        utility: mean score against the other translations of the line, if that was asked for.
    """

    text: str
    score: float
    ids: list[int]
    log_probs: list[float]
    finished: bool
    alignment: Alignment | None = None
    utility: float | None = None

    def to_json(self, tokens: Sequence[str], soft: bool = False) -> dict[str, Any]:
        """Returns it for machines; the score of what was not found is None.

        Args:
            tokens: the pieces of its ids.
            soft: adds the weights of the alignment.
        """
        value: dict[str, Any] = {
            "text": self.text,
            "score": self.score if self.score > -math.inf else None,
            "tokens": list(tokens),
            "log_probs": self.log_probs,
            "finished": self.finished,
        }
        if self.utility is not None:
            value["utility"] = self.utility
        if self.alignment is not None:
            value["alignment"] = self.alignment.links()
            if soft:
                value["weights"] = [[round(x, 4) for x in row] for row in self.alignment.weights]
        return value


BLANK = Translation("", 0.0, [], [], True)
NONE = Translation("", -math.inf, [], [], True)
"""Stands in for translations that were asked for but that the search did not find."""


@dataclass
class Summary:
    """What a call translated.

    Attributes:
        num_lines: lines, blank ones too.
        num_empty: lines that are not blank, but whose translation is.
        num_cut: lines whose translation was cut at the greatest length.
        num_long: lines longer than any that the model was trained on.
        num_missing: lines of which no translation keeps to what was asked for.
        num_split: lines that were split at the ends of their sentences.
        num_source_tokens: tokens of the lines, ends of sentence included.
        num_target_tokens: tokens of the best translations, ends of sentence included.
        seconds: time that translating took, without waiting for input.
        num_warnings: lines that were warned about, or would have been.
    """

    num_lines: int = 0
    num_empty: int = 0
    num_cut: int = 0
    num_long: int = 0
    num_split: int = 0
    num_missing: int = 0
    num_source_tokens: int = 0
    num_target_tokens: int = 0
    seconds: float = 0.0
    num_warnings: int = 0

    def count(
        self,
        lengths: Sequence[int],
        best: Translation,
        longest: int | None,
        warn: Callable[[str], object] | None,
    ) -> None:
        """Adds a line, and warns if its translation may be bad.

        Args:
            lengths: source tokens of each part that was translated by itself; mostly of one.
            best: the first of its translations.
            longest: most source tokens that the model was trained on, if that is known.
            warn: takes the sentence; after `MOST_WARNINGS` lines are only counted.
        """
        self.num_lines += 1
        self.num_split += len(lengths) > 1
        if best.score == NONE.score:
            self.num_missing += 1
            self._warn(["no translation keeps to what was asked for"], warn)
        if not best.ids:
            return
        self.num_source_tokens += sum(lengths)
        self.num_target_tokens += len(best.ids)
        self.num_empty += not best.text.strip()
        reasons = []
        if longest is not None and max(lengths) > longest:
            self.num_long += 1
            reasons.append(f"its {max(lengths):,} tokens are more than the {longest:,} of training")
        if not best.finished:
            self.num_cut += 1
            reasons.append(
                f"its translation was cut at {len(best.ids) - 1:,} tokens (max_length +"
                " max_length_ratio times the source's)"
            )
        if reasons:
            self._warn(reasons, warn)

    def _warn(self, reasons: list[str], warn: Callable[[str], object] | None) -> None:
        """Passes a warning about the last line on, unless there were too many."""
        self.num_warnings += 1
        if warn is None or self.num_warnings > MOST_WARNINGS:
            return
        warn(f"line {self.num_lines:,}: {'; '.join(reasons)}")
        if self.num_warnings == MOST_WARNINGS:
            warn("further lines of that kind are counted, not named")

    def lines(self) -> list[str]:
        """Returns the summary for people."""
        rate = self.num_target_tokens / max(self.seconds, 1e-9)
        told = [
            f"lines translated: {self.num_lines:,} in {self.seconds:.1f} s,"
            f" {self.num_target_tokens:,} tokens, {rate:,.0f} tokens/s"
        ]
        for number, what in (
            (self.num_empty, "empty translations of lines that are not (min_length 1 prevents it)"),
            (self.num_cut, "translations cut at their limit (max_length and max_length_ratio)"),
            (self.num_long, "lines longer than any that the model was trained on"),
            (self.num_missing, "lines of which no translation keeps to what was asked for"),
            (self.num_split, "lines split at the ends of their sentences"),
        ):
            if number:
                told.append(f"{what}: {number:,}")
        return told
