"""Lines of text to their translations: one for each line, in order, whatever the line."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import torch

from transformer.config import Config
from transformer.data.batching import even_batches
from transformer.data.tokenizer import Tokenizers
from transformer.decoding.alignment import align_pairs
from transformer.decoding.arrivals import arrivals, chunks
from transformer.decoding.batch_search import Task, search_batch
from transformer.decoding.beams import Hypothesis
from transformer.decoding.loading import load_models
from transformer.decoding.minimum_bayes_risk import rank_by_utility
from transformer.decoding.options import SearchOptions
from transformer.decoding.parts import Engine, Part, join, to_parts
from transformer.decoding.processes import Processes
from transformer.decoding.request import Request
from transformer.decoding.results import BLANK, NONE, Alignment, Summary, Translation
from transformer.decoding.sampling_options import SamplingOptions
from transformer.decoding.scoring import Score, score_pairs
from transformer.decoding.shortlist import Shortlist
from transformer.errors import UserError
from transformer.model.transformer import Transformer

log = logging.getLogger("transformer")

CHUNK_LINES = 4096
"""Lines of a stream that are sorted by length together."""
FEW_LINES = 8
"""Lines that are not worth a process of their own."""


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
        sampling: draws translations so instead of searching for them.
        utility: ranks the translations of a line by it, one of `minimum_bayes_risk.UTILITIES`.
        alignments: aligns the words of each translation.
        engine: searches instead of our own search, where it can do the same.
        split_sentences: splits a line that is longer than any of training at sentence ends.
        precision: numbers that the models compute with.
        shortlist: what may be said, if not everything.
        processes: searches with so many processes where there are several batches; on a CPU alone,
            and of models that do not change from then on.
        summary: what the latest call translated.
    """

    models: Sequence[Transformer]
    tokenizers: Tokenizers
    options: SearchOptions = field(default_factory=SearchOptions)
    batch_tokens: int = 4096
    run_config: Config | None = None
    warn: Callable[[str], object] | None = None
    check: Callable[[], object] | None = None
    sampling: SamplingOptions | None = None
    utility: str | None = None
    alignments: bool = False
    split_sentences: bool = False
    engine: Engine | None = None
    precision: str = "float32"
    shortlist: Shortlist | None = None
    processes: int = 1
    summary: Summary = field(default_factory=Summary, init=False)
    _running: Processes[Task, list[list[Hypothesis]]] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        for model in self.models:
            model.eval()

    @classmethod
    def load(
        cls, *paths: str | Path, device: str = "auto", precision: str | None = None
    ) -> Translator:
        """Loads a model from a run directory or a checkpoint file; several make an ensemble.

        Args:
            device: auto, cpu, cuda or mps.
            precision: float32, bfloat16 or int8; None = as the (first) model's configuration says.

        Raises:
            UserError: a model cannot be read, their vocabularies differ, or there is no such
                device, or none of that precision.
        """
        first, *others = load_models(paths, device, precision)
        decoding = first.config.decoding
        return cls(
            [first.model, *(other.model for other in others)],
            first.tokenizers,
            SearchOptions.from_config(decoding),
            decoding.batch_tokens,
            run_config=first.config,
            warn=log.warning,
            precision=precision or decoding.precision,
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

    def translate(
        self, lines: Sequence[str | Request], options: SearchOptions | None = None
    ) -> list[str]:
        """Returns the best translation of each line, or its first sample, in order; a blank line's
        is empty.

        A line is a string, or a `Request` with what holds for it alone.
        """
        return [found[0].text for found in self.translate_n_best(lines, options)]

    def translate_n_best(
        self, lines: Sequence[str | Request], options: SearchOptions | None = None
    ) -> list[list[Translation]]:
        """Returns the `n_best` translations of each line, the best first, or all of its samples.

        What a search found has distinct ids; texts are not if it finds two segmentations of one.
        """
        if isinstance(lines, str):
            raise TypeError("lines is a list of lines: pass a single one as [line]")
        self.summary = Summary()
        return self._translate(list(lines), options or self.options)

    def translate_stream(
        self,
        lines: Iterable[str | Request],
        options: SearchOptions | None = None,
        live: bool = False,
        chunk_lines: int = CHUNK_LINES,
    ) -> Iterator[list[Translation]]:
        """Yields the `n_best` translations of each line, in order, in memory that does not grow.

        Args:
            lines: may be endless.
            options: how to search; None = as the translator was told.
            live: translates what has arrived as soon as the model is free, so that a line that
                comes alone is answered at once; for pipes. Otherwise as many lines are taken as
                there should be, so that the batches, and with them the last digits of scores, are
                the same each time.
            chunk_lines: lines that are taken together, and sorted by length; with `live` at most.
        """
        self.summary = Summary()
        taken = arrivals(lines, chunk_lines) if live else chunks(lines, chunk_lines)
        for chunk in taken:
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
            (options or self.options).formula,
            self.batch_tokens,
            self.device,
        )
        for i, score in zip(asked, found, strict=True):
            scores[i] = score
        return scores

    def align(
        self, sources: Sequence[str], targets: Sequence[str], layer: int | None = None
    ) -> list[Alignment]:
        """Aligns the words of given translations with those of their lines, in order.

        Args:
            sources: the lines.
            targets: their translations.
            layer: layer of the decoder whose heads are averaged, counted from 1; None = all.

        Raises:
            UserError: there are not as many translations as lines, or there is no such layer.
        """
        if len(sources) != len(targets):
            raise UserError(
                f"{len(sources)} source lines, but {len(targets)} translations to align"
            )
        fewest = min(model.config.num_decoder_layers for model in self.models)
        if layer is not None and not 1 <= layer <= fewest:
            raise UserError(f"layer {layer}: the decoder has layers 1 to {fewest}")
        src = self.tokenizers.source.encode([line.strip() for line in sources])
        tgt = self.tokenizers.target.encode([line.strip() for line in targets])
        return align_pairs(self.models, self.tokenizers, src, tgt, self.batch_tokens, layer)

    def _translate(
        self, lines: Sequence[str | Request], options: SearchOptions
    ) -> list[list[Translation]]:
        """Translates lines that follow those of the summary."""
        started_at = time.perf_counter()
        requests = [Request(line) if isinstance(line, str) else line for line in lines]
        first = self.summary.num_lines + 1
        longest = self.run_config.data.max_length if self.run_config is not None else None
        most = longest if self.split_sentences else None
        sampled = self.sampling is not None
        parts = to_parts(requests, self.tokenizers, first, most, sampled, self._tags)
        found = iter(self._translate_parts([part for line in parts for part in line], options))
        results = []
        for line in parts:
            translations = join(line, list(islice(found, len(line))), options.formula, sampled)
            results.append(self._ranked(translations))
            lengths = [len(part.src) for part in line]
            self.summary.count(lengths, results[-1][0], longest, self.warn)
        self.summary.seconds += time.perf_counter() - started_at
        return results

    @property
    def _tags(self) -> list[str]:
        """What lines of training begin with, to tell directions apart."""
        if self.run_config is None:
            return []
        return [x.tag for x in self.run_config.data.corpora.values() if x.tag]

    def _translate_parts(
        self, parts: Sequence[Part], options: SearchOptions
    ) -> list[list[Translation]]:
        """Translates parts of lines in batches of like length."""
        num = self.sampling.sample if self.sampling else options.n_best
        nothing = Alignment((), (), 0) if self.alignments else None
        blank, none = (replace(x, alignment=nothing) for x in (BLANK, NONE))
        results = [
            [blank if part.is_blank and not part.asks_for_text else none] * num for part in parts
        ]
        asked = [i for i, part in enumerate(parts) if not part.is_blank]
        lengths = np.array([len(parts[i].src) for i in asked], dtype=np.int64)
        shares = self.processes if len(asked) >= FEW_LINES * self.processes else 1
        cut = even_batches(lengths, self._batch_tokens(options), shares)
        batches = [[asked[j] for j in batch] for batch in cut]
        tasks = [Task([parts[i] for i in rows], options, self.sampling) for rows in batches]
        for rows, hypotheses in zip(batches, self._search(tasks), strict=True):
            for i, translations in zip(rows, map(self._translations, hypotheses), strict=True):
                results[i][: len(translations)] = translations
        if self.alignments:
            self._align(parts, results)
        return results

    def _batch_tokens(self, options: SearchOptions) -> int:
        """Returns the source tokens of a batch: of many samples fewer, as each takes a row; and
        processes share them.
        """
        tokens = self.batch_tokens // self.processes
        if self.sampling is not None and self.sampling.sample > options.beam_size:
            tokens = tokens * options.beam_size // self.sampling.sample
        return max(1, tokens)

    def _search(self, tasks: Sequence[Task]) -> Iterator[list[list[Hypothesis]]]:
        """Searches for translations of batches, or draws them."""
        if self.processes > 1 and self.engine is None and len(tasks) > 1:
            if self._running is None or not self._running.is_open:
                work = partial(search_batch, self.models, self.tokenizers.target, self.shortlist)
                self._running = Processes(work, self.processes)
            yield from self._running.map(tasks, self.check)
            return
        for task in tasks:
            if self.check is not None:
                self.check()
            yield self._hypotheses(task)

    def _hypotheses(self, task: Task) -> list[list[Hypothesis]]:
        """Searches for translations of one batch, or draws them."""

        def search(parts: Sequence[Part]) -> list[list[Hypothesis]]:
            of_parts = task._replace(parts=parts)
            return search_batch(self.models, self.tokenizers.target, self.shortlist, of_parts)

        if self.engine is None:
            return search(task.parts)
        found = self.engine.search(task.parts, task.options)
        left = [part for part, each in zip(task.parts, found, strict=True) if each is None]
        ours = iter(search(left) if left else [])
        return [next(ours) if each is None else each for each in found]

    def _translations(self, hypotheses: Sequence[Hypothesis]) -> list[Translation]:
        texts = self.tokenizers.target.decode([h.ids for h in hypotheses])
        return [
            Translation(text, h.score, h.ids, h.log_probs, h.finished)
            for text, h in zip(texts, hypotheses, strict=True)
        ]

    def _align(self, parts: Sequence[Part], results: list[list[Translation]]) -> None:
        """Gives each translation its alignment, in place."""
        places = [(i, j) for i, each in enumerate(results) for j, t in enumerate(each) if t.ids]
        alignments = align_pairs(
            self.models,
            self.tokenizers,
            [parts[i].src for i, _ in places],
            [results[i][j].ids for i, j in places],
            self.batch_tokens,
        )
        for (i, j), alignment in zip(places, alignments, strict=True):
            results[i][j] = replace(results[i][j], alignment=alignment)

    def _ranked(self, translations: list[Translation]) -> list[Translation]:
        """Returns translations of a line by utility, if that was asked for."""
        if self.utility is None:
            return translations
        language = self.run_config.data.target_language if self.run_config is not None else ""
        return rank_by_utility(translations, self.utility, bool(self.sampling), language)
