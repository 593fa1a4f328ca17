"""From the corpora of a configuration to vocabularies and ids, each step prepared once and kept.

The cache knows files by path, size and time, and everything after reading by content: `cache_dir`
may be deleted at any time, and data that moves keeps its digest.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import sentencepiece

from transformer.config import Config, CorpusConfig, DataConfig
from transformer.data.cache import cache_dir, fingerprint, stored
from transformer.data.encoding import (
    EncodedCorpus,
    FilterReport,
    Filters,
    corpus_names,
    encode_rows,
    read_batches,
)
from transformer.data.reading import read_pairs
from transformer.data.sources import corpus_files, corpus_name, load_hub
from transformer.data.tokenizer import Tokenizer, Tokenizers
from transformer.data.tokenizer_training import num_merges, train_tokenizer
from transformer.errors import UserError

if TYPE_CHECKING:
    import pyarrow
    from datasets import Dataset

__all__ = ["EncodedCorpus", "FilterReport", "encode_corpus", "load_corpora", "prepare_tokenizers"]

OF_TRAINING = ("source_sampling", "target_sampling", "sampling_until")
"""Settings of the tokenizer that do not change what it is."""
FORMAT = 2
"""Counts up when prepared data changes its form or meaning."""

log = logging.getLogger("transformer")


def load_corpora(corpora: Sequence[CorpusConfig], data: DataConfig) -> Dataset:
    """Reads parallel corpora, once: a second call maps what the first one wrote.

    Returns:
        A memory-mapped data set with the columns src, tgt, corpus (its place in `corpora`) and
        line (in its file, from 1). Sentences are stripped of spaces at both ends.

    Raises:
        UserError: a corpus cannot be read, is not parallel, or all are empty.
    """
    from datasets import Dataset, DatasetInfo
    from datasets.table import MemoryMappedTable

    key = fingerprint(FORMAT, [_identity(corpus, data) for corpus in corpora])
    folder = cache_dir(data.cache_dir) / "corpora" / key
    stored(folder, partial(_write_pairs, corpora, data))
    table = MemoryMappedTable.from_file(str(folder / "pairs.arrow"))
    digest = (folder / "digest").read_text(encoding="utf-8")
    names = "\n".join(corpus_name(corpus) for corpus in corpora)
    return Dataset(table, info=DatasetInfo(description=names), fingerprint=digest)


def _identity(corpus: CorpusConfig, data: DataConfig) -> list[object]:
    """Returns what tells a corpus and its present content from others."""
    try:
        files = [
            [str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns]
            for path in corpus_files(corpus)
        ]
    except OSError as error:
        raise UserError(f"{error.filename}: cannot be read: {error.strerror}") from error
    columns = [data.source_language, data.target_language]
    if corpus.hub is not None and not files:
        files = [[load_hub(corpus, data)._fingerprint]]
    return [corpus.model_dump(), columns, files]


def _write_pairs(corpora: Sequence[CorpusConfig], data: DataConfig, folder: Path) -> None:
    """Writes the pairs of all corpora into one Arrow file, and beside it a digest of the texts."""
    import pyarrow as pa

    schema = pa.schema(
        {"src": pa.string(), "tgt": pa.string(), "corpus": pa.int32(), "line": pa.int64()}
    )
    digest = hashlib.sha256()
    num_pairs = 0

    def write(batch: pa.RecordBatch) -> None:
        for column in batch.columns[:2]:
            for content in _content(column):
                digest.update(content)
        out.write_batch(batch)

    with (
        pa.OSFile(str(folder / "pairs.arrow"), "wb") as sink,
        pa.ipc.new_stream(sink, schema) as out,
        ThreadPoolExecutor(1) as writer,  # while this thread reads on
    ):
        written: Future[None] | None = None
        for number, corpus in enumerate(corpora):
            for pairs in read_pairs(corpus, data):
                src, tgt, lines = pairs.columns
                places = [np.full(len(pairs), number), lines]
                batch = pa.record_batch([src, tgt, *places], schema=schema)
                if written is not None:
                    written.result()
                written = writer.submit(write, batch)
                num_pairs += len(pairs)
        if written is not None:
            written.result()
    if num_pairs == 0:
        names = ", ".join(map(corpus_name, corpora))
        raise UserError(f"{names}: there are no pairs of sentences")
    (folder / "digest").write_text(digest.hexdigest(), encoding="utf-8")


def _content(texts: pyarrow.StringArray) -> Iterator[pyarrow.Buffer]:
    """Yields ends and characters of an array of strings, as far as they are its own."""
    _, offsets, characters = texts.buffers()
    offsets = offsets.slice(4 * texts.offset, 4 * (len(texts) + 1))
    ends = np.frombuffer(offsets, np.int32)
    first, last = int(ends[0]), int(ends[-1])
    yield offsets
    if characters is not None:
        yield characters.slice(first, last - first)


def prepare_tokenizers(config: Config, corpus: Dataset) -> Tokenizers:
    """Trains the vocabularies on a corpus, once.

    Raises:
        UserError: the text does not suit the settings.
    """
    settings = config.tokenizer
    wanted = settings.model_dump(exclude=set(OF_TRAINING))
    if settings.vocab_size == "auto":
        wanted["vocab_size"] = ["auto", num_merges(len(corpus))]
    key = fingerprint(FORMAT, corpus._fingerprint, wanted, sentencepiece.__version__)
    folder = cache_dir(config.data.cache_dir) / "tokenizers" / key
    stored(folder, partial(_train_tokenizers, config, corpus))
    for warning in json.loads((folder / "warnings.json").read_text(encoding="utf-8")):
        log.warning("%s", warning)
    source = target = Tokenizer((folder / "source.model").read_bytes())
    if not settings.joint:
        target = Tokenizer((folder / "target.model").read_bytes())
    if settings.vocab_size == "auto":
        sizes = dict.fromkeys(f"{each.vocab_size:,}" for each in (source, target))
        log.info(
            "tokenizer.vocab_size auto: %s pieces for %s pairs",
            " and ".join(sizes),
            f"{len(corpus):,}",
        )
    return Tokenizers(source, target)


def _train_tokenizers(config: Config, corpus: Dataset, folder: Path) -> None:
    sides = (
        {"source": ["src", "tgt"]}
        if config.tokenizer.joint
        else {"source": ["src"], "target": ["tgt"]}
    )
    warnings: list[str] = []
    for side, columns in sides.items():
        lines = _Sample(corpus, columns, config.tokenizer.sample_lines)
        name = _names(config.data.train, columns)
        tokenizer = train_tokenizer(lines, config.tokenizer, warnings.append, name, len(corpus))
        (folder / f"{side}.model").write_bytes(tokenizer.model)
    (folder / "warnings.json").write_text(json.dumps(warnings), encoding="utf-8")


def _names(corpora: Sequence[CorpusConfig], columns: list[str]) -> str:
    """Returns what messages call the text in some columns: the files, each once."""
    names = [
        {"src": corpus.source, "tgt": corpus.target}[column] or corpus_name(corpus)
        for corpus in corpora
        for column in columns
    ]
    return ", ".join(dict.fromkeys(names))


class _Sample:
    """Some columns of a data set, line by line, of rows spread evenly so that `limit` lines
    suffice."""

    def __init__(self, dataset: Dataset, columns: list[str], limit: int) -> None:
        self._dataset = dataset
        self._columns = columns
        self._total = len(dataset)
        self._taken = min(self._total, max(1, limit // len(columns)))

    def __len__(self) -> int:
        return self._taken * len(self._columns)

    def __iter__(self) -> Iterator[str]:
        for start, batch in read_batches(self._dataset):
            rows = np.arange(start, start + batch.num_rows + 1) * self._taken // self._total
            chosen = batch.take(np.flatnonzero(rows[1:] > rows[:-1]))
            sides = [chosen.column(name).to_pylist() for name in self._columns]
            yield from chain.from_iterable(zip(*sides, strict=True))


def encode_corpus(
    dataset: Dataset, tokenizers: Tokenizers, data: DataConfig, filters: bool
) -> EncodedCorpus:
    """Turns a corpus into ids, once.

    Args:
        dataset: what `load_corpora` returned.
        tokenizers: the vocabularies.
        data: the limits of the filters.
        filters: true for training; false keeps every pair, even empty ones, as validation and
        tests must.

    Raises:
        UserError: no pair passes the filters.
    """
    limits = Filters(data.max_length, data.max_ratio, data.drop_duplicates) if filters else None
    models = [tokenizers.source.digest, tokenizers.target.digest]
    digest = fingerprint(FORMAT, dataset._fingerprint, models, vars(limits) if limits else None)
    folder = cache_dir(data.cache_dir) / "encoded" / digest
    stored(folder, partial(encode_rows, dataset, tokenizers, limits, data.num_threads))
    corpus = EncodedCorpus(folder, dataset, digest)
    if len(corpus) == 0:
        reasons = "\n".join(corpus.report.lines())
        raise UserError(
            f"{', '.join(corpus_names(dataset))}: no pair is left to train on\n{reasons}"
        )
    return corpus
