"""Lines of text to their translations: one for each line, in order, whatever the line."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np
import torch

from transformer.config import Config
from transformer.data.batching import micro_batches, pad
from transformer.data.tokenizer import Tokenizers
from transformer.decoding.arrivals import arrivals
from transformer.decoding.beams import Hypothesis
from transformer.decoding.options import SearchOptions
from transformer.decoding.scoring import Score, score_pairs
from transformer.decoding.search import beam_search
from transformer.errors import UserError
from transformer.model.transformer import Transformer
from transformer.training.checkpoint import LoadedModel, load_model
from transformer.training.distributed import choose_device

log = logging.getLogger("transformer")

CHUNK_LINES = 4096
"""Lines of a stream that are sorted by length together."""
MOST_WARNINGS = 10
"""Warnings about single lines before they are only counted."""


@dataclass(frozen=True)
class Translation:
    """One translation of a line.

    Attributes:
        text: the translation.
        score: sum of `log_probs` / number of them ** length penalty; 0 for a blank line.
        ids: its tokens, the end of sentence last; none for a blank line.
        log_probs: of each token.
        finished: False if it was cut at the greatest length.
    """

    text: str
    score: float
    ids: list[int]
    log_probs: list[float]
    finished: bool


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
        num_source_tokens: tokens of the lines, ends of sentence included.
        num_target_tokens: tokens of the best translations, ends of sentence included.
        seconds: time that translating took, without waiting for input.
        num_warnings: lines that were warned about, or would have been.
    """

    num_lines: int = 0
    num_empty: int = 0
    num_cut: int = 0
    num_long: int = 0
    num_source_tokens: int = 0
    num_target_tokens: int = 0
    seconds: float = 0.0
    num_warnings: int = 0

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
        ):
            if number:
                told.append(f"{what}: {number:,}")
        return told


@dataclass
class Translator:
    """Translates lines of text with one model, or with several of one vocabulary as an ensemble.

    Attributes:
        models: the models, which are put into evaluation mode.
        tokenizers: their vocabularies.
        options: how to search, unless a call says otherwise.
        batch_tokens: source tokens that are translated at once, padding included; a longer line
            goes alone.
        run_config: the configuration of the run that made the (first) model, if it is known.
        warn: takes a sentence about a line that may be translated badly.
        check: called between batches; what it raises ends the call.
        summary: what the latest call translated.
    """

    models: Sequence[Transformer]
    tokenizers: Tokenizers
    options: SearchOptions = field(default_factory=SearchOptions)
    batch_tokens: int = 4096
    run_config: Config | None = None
    warn: Callable[[str], object] | None = None
    check: Callable[[], object] | None = None
    summary: Summary = field(default_factory=Summary, init=False)

    def __post_init__(self) -> None:
        for model in self.models:
            model.eval()

    @classmethod
    def load(cls, *paths: str | Path, device: str = "auto") -> Translator:
        """Loads a model from a run directory or a checkpoint file; several make an ensemble.

        Raises:
            UserError: a model cannot be read, their vocabularies differ, or there is no such
                device.
        """
        if not paths:
            raise UserError("no model to translate with: name a run directory or a checkpoint")
        where = choose_device(device)
        first, *others = (load_model(path, where) for path in paths)
        for other in others:
            _check_vocabularies(first, other)
        decoding = first.config.decoding
        return cls(
            [first.model, *(other.model for other in others)],
            first.tokenizers,
            SearchOptions.from_config(decoding),
            decoding.batch_tokens,
            run_config=first.config,
            warn=log.warning,
        )

    @property
    def config(self) -> Config:
        """The configuration of the run that made the (first) model."""
        if self.run_config is None:
            raise ValueError("this translator was made without a configuration")
        return self.run_config

    @property
    def device(self) -> torch.device:
        """Where the models are."""
        return next(self.models[0].parameters()).device

    def translate(self, lines: Sequence[str], options: SearchOptions | None = None) -> list[str]:
        """Returns the best translation of each line, in order; a blank line's is empty."""
        return [found[0].text for found in self.translate_n_best(lines, options)]

    def translate_n_best(
        self, lines: Sequence[str], options: SearchOptions | None = None
    ) -> list[list[Translation]]:
        """Returns the `n_best` translations of each line, the best first.

        Their ids are distinct; texts are not if the search finds two segmentations of one.
        """
        if isinstance(lines, str):
            raise TypeError("lines is a list of lines: pass a single one as [line]")
        self.summary = Summary()
        return self._translate(list(lines), options or self.options)

    def translate_stream(
        self, lines: Iterable[str], options: SearchOptions | None = None, live: bool = False
    ) -> Iterator[list[Translation]]:
        """Yields the `n_best` translations of each line, in order, in memory that does not grow.

        Args:
            lines: may be endless.
            options: how to search; None = as the translator was told.
            live: translates what has arrived as soon as the model is free, so that a line that
                comes alone is answered at once; for pipes and terminals. Otherwise lines are taken
                by `CHUNK_LINES`, so that the batches, and with them the last digits of scores, are
                the same each time.
        """
        self.summary = Summary()
        for chunk in arrivals(lines, CHUNK_LINES) if live else _chunks(lines):
            yield from self._translate(chunk, options or self.options)

    def score(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        options: SearchOptions | None = None,
    ) -> list[Score]:
        """Scores given translations by the formula that search ranks by, in order.

        A translation that `translate` found gets the score that it had there, provided that the
        tokenizer segments its text into the tokens that it was found as. A blank translation of a
        blank line scores 0.

        Raises:
            UserError: there are not as many translations as lines.
        """
        if len(sources) != len(targets):
            raise UserError(
                f"{len(sources)} source lines, but {len(targets)} translations to score"
            )
        src = self.tokenizers.source.encode([line.strip() for line in sources])
        tgt = self.tokenizers.target.encode([line.strip() for line in targets])
        asked = [i for i in range(len(src)) if len(src[i]) > 1 or len(tgt[i]) > 1]
        scores = [Score(0.0, [])] * len(src)
        found = score_pairs(
            self.models,
            [src[i] for i in asked],
            [tgt[i] for i in asked],
            (options or self.options).length_penalty,
            self.batch_tokens,
            self.device,
        )
        for i, score in zip(asked, found, strict=True):
            scores[i] = score
        return scores

    def _translate(self, lines: list[str], options: SearchOptions) -> list[list[Translation]]:
        """Translates lines that follow those of the summary, in batches of like length."""
        started_at = time.perf_counter()
        src = self.tokenizers.source.encode([line.strip() for line in lines])
        asked = [i for i, ids in enumerate(src) if len(ids) > 1]  # more than the end of sentence
        results = [[BLANK if len(ids) == 1 else NONE] * options.n_best for ids in src]
        lengths = np.array([len(src[i]) for i in asked], dtype=np.int64)
        for batch in micro_batches(lengths, self.batch_tokens):
            if self.check is not None:
                self.check()
            rows = [asked[j] for j in batch]
            ids = pad([np.array(src[i]) for i in rows]).to(self.device)
            for i, hypotheses in zip(rows, beam_search(self.models, ids, options), strict=True):
                results[i][: len(hypotheses)] = self._translations(hypotheses)
        for ids_of_line, found in zip(src, results, strict=True):
            self._count(len(ids_of_line), found[0])
        self.summary.seconds += time.perf_counter() - started_at
        return results

    def _translations(self, hypotheses: Sequence[Hypothesis]) -> list[Translation]:
        texts = self.tokenizers.target.decode([h.ids for h in hypotheses])
        return [
            Translation(text, h.score, h.ids, h.log_probs, h.finished)
            for text, h in zip(texts, hypotheses, strict=True)
        ]

    def _count(self, length: int, best: Translation) -> None:
        """Adds a line to the summary, and warns if its translation may be bad."""
        summary = self.summary
        summary.num_lines += 1
        if not best.ids:
            return
        summary.num_source_tokens += length
        summary.num_target_tokens += len(best.ids)
        summary.num_empty += not best.text.strip()
        reasons = []
        if self.run_config is not None and length > self.run_config.data.max_length:
            summary.num_long += 1
            longest = self.run_config.data.max_length
            reasons.append(f"its {length:,} tokens are more than the {longest:,} of training")
        if not best.finished:
            summary.num_cut += 1
            reasons.append(f"its translation was cut at {len(best.ids) - 1:,} tokens (max_length)")
        if reasons:
            self._warn(f"line {summary.num_lines:,}: {'; '.join(reasons)}")

    def _warn(self, sentence: str) -> None:
        """Passes a warning on, unless there were too many."""
        self.summary.num_warnings += 1
        if self.warn is None or self.summary.num_warnings > MOST_WARNINGS:
            return
        self.warn(sentence)
        if self.summary.num_warnings == MOST_WARNINGS:
            self.warn("further lines of that kind are counted, not named")


def _chunks(lines: Iterable[str]) -> Iterator[list[str]]:
    iterator = iter(lines)
    while chunk := list(islice(iterator, CHUNK_LINES)):
        yield chunk


def _check_vocabularies(first: LoadedModel, other: LoadedModel) -> None:
    for side in ("source", "target"):
        ours, theirs = getattr(first.tokenizers, side), getattr(other.tokenizers, side)
        if ours.digest != theirs.digest:
            raise UserError(
                f"{first.path} ({ours.vocab_size} pieces) and {other.path}"
                f" ({theirs.vocab_size} pieces) have different {side} vocabularies, so they make"
                " no ensemble"
            )
