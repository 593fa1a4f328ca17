"""Pairs of sentences to pairs of ids on disk: segmented, filtered, counted."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from transformer.data.duplicates import first_of_equals, hash_pairs
from transformer.data.parallel import in_parallel
from transformer.data.tokenizer import Tokenizer, Tokenizers

if TYPE_CHECKING:
    import pyarrow
    from datasets import Dataset

EXAMPLES = 3
MANY_DROPPED = 0.05
LINES_AT_ONCE = 500
"""Their ids stay in the cache of the core until they are numbers in an array."""
EMPTY, TOO_LONG, RATIO, DUPLICATE = "empty", "too long", "ratio", "duplicate"


@dataclass(frozen=True)
class Filters:
    """Which pairs to leave out; the settings of `data` that say so."""

    max_length: int
    max_ratio: float | None
    drop_duplicates: bool

    def meaning(self, reason: str) -> str:
        """Returns a reason in words."""
        return {
            EMPTY: "with an empty side",
            TOO_LONG: f"longer than {self.max_length} tokens (data.max_length)",
            RATIO: f"with a side more than {self.max_ratio} times the other (data.max_ratio)",
            DUPLICATE: "that came before (data.drop_duplicates)",
        }[reason]


@dataclass
class FilterReport:
    """What became of the pairs.

    Attributes:
        total: pairs read.
        kept: pairs left.
        dropped: how many pairs were left out, by reason.
        examples: `file:line` of the first few of them, by reason.
        meanings: each reason in words.
        names: of the corpora when they were read, which may since have moved.
    """

    total: int = 0
    kept: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[str]] = field(default_factory=dict)
    meanings: dict[str, str] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)

    def add(self, chunk: Chunk, filters: Filters | None) -> None:
        """Counts the pairs of one chunk."""
        self.total += chunk.num_rows
        self.kept += len(chunk.rows)
        for reason, (count, places) in chunk.dropped.items():
            assert filters is not None
            self.meanings[reason] = filters.meaning(reason)
            self.dropped[reason] = self.dropped.get(reason, 0) + count
            examples = self.examples.setdefault(reason, [])
            for corpus, line in places[: EXAMPLES - len(examples)]:
                examples.append(f"{self.names[corpus]}:{line}")

    def rename(self, names: Sequence[str]) -> None:
        """Names the corpora as they are called now."""
        called = dict(zip(self.names, names, strict=False))
        for examples in self.examples.values():
            for number, example in enumerate(examples):
                name, line = example.rsplit(":", 1)
                examples[number] = f"{called.get(name, name)}:{line}"
        self.names = list(names)

    @property
    def many_dropped(self) -> bool:
        """Whether so many pairs are left out that something may be wrong."""
        return self.total - self.kept > MANY_DROPPED * self.total

    def lines(self) -> list[str]:
        """Returns the report as sentences; nothing where nothing was left out."""
        if self.kept == self.total:
            return []
        gone = self.total - self.kept
        lines = [f"{gone:,} of {self.total:,} pairs are left out ({gone / self.total:.1%}):"]
        for reason, count in sorted(self.dropped.items(), key=lambda item: -item[1]):
            examples = ", ".join(self.examples[reason]) + (", …" if count > EXAMPLES else "")
            share = f"{count / self.total:.1%}"
            lines.append(f"  {count:,} pairs ({share}) {self.meanings[reason]}: {examples}")
        if self.many_dropped:
            lines.append(f"  that is more than {MANY_DROPPED:.0%}: are the files and limits right?")
        return lines


class Chunk(NamedTuple):
    """The kept pairs of some rows: flat ids and lengths of each side, and the rows; and how many
    pairs were dropped by which reason, with corpus and line of the first ones."""

    src: np.ndarray
    src_lengths: np.ndarray
    tgt: np.ndarray
    tgt_lengths: np.ndarray
    rows: np.ndarray
    num_rows: int
    dropped: dict[str, tuple[int, list[tuple[int, int]]]]


def read_batches(dataset: Dataset) -> Iterator[tuple[int, pyarrow.RecordBatch]]:
    """Yields the rows of a data set as they were written, some thousands at a time, each with the
    number of its first row.

    They are read into memory that is freed: of a mapped file all that was read would stay resident.
    """
    import pyarrow as pa

    start = 0
    path = dataset.cache_files[0]["filename"]
    with pa.OSFile(path) as file, pa.ipc.open_stream(file) as batches:
        for batch in batches:
            yield start, batch
            start += batch.num_rows


def encode_rows(
    dataset: Dataset,
    tokenizers: Tokenizers,
    filters: Filters | None,
    num_threads: int,
    folder: Path,
) -> None:
    """Encodes a data set into files in `folder`; what is in memory does not grow with it.

    Only the search for duplicates holds a byte for each pair. SentencePiece works outside Python's
    lock, so threads use all cores.
    """
    first_seen = None
    if filters is not None and filters.drop_duplicates:
        hashes = in_parallel(_hash_batch, read_batches(dataset), num_threads)
        first_seen = first_of_equals(hashes, len(dataset), folder)
    encode = partial(_encode_batch, tokenizers, filters, first_seen)
    report = FilterReport(names=corpus_names(dataset))
    kinds = file_types(tokenizers)
    with ExitStack() as stack:
        files = {
            name: stack.enter_context(open(folder / f"{name}.{kind}", "wb"))
            for name, kind in kinds.items()
        }
        ends = {"src": 0, "tgt": 0}
        for chunk in in_parallel(encode, read_batches(dataset), num_threads):
            for name, array in _file_arrays(chunk, ends).items():
                files[name].write(array.astype(kinds[name], copy=False).data)
            report.add(chunk, filters)
    (folder / "report.json").write_text(json.dumps(asdict(report)), encoding="utf-8")


def file_types(tokenizers: Tokenizers) -> dict[str, str]:
    """Returns the type of the numbers in each file."""
    ids = {
        "src": type_of_ids(tokenizers.source.vocab_size),
        "tgt": type_of_ids(tokenizers.target.vocab_size),
    }
    return {**ids, "src_ends": "int64", "tgt_ends": "int64", "lengths": "int32", "rows": "int64"}


def type_of_ids(vocab_size: int) -> str:
    """Returns the type that holds the ids of a vocabulary, of two bytes if they suffice."""
    return "uint16" if vocab_size <= 1 << 16 else "int32"


def _file_arrays(chunk: Chunk, ends: dict[str, int]) -> dict[str, np.ndarray]:
    """Returns what a chunk adds to each file, and moves the ends of the ids on."""
    src_ends = ends["src"] + np.cumsum(chunk.src_lengths, dtype=np.int64)
    tgt_ends = ends["tgt"] + np.cumsum(chunk.tgt_lengths, dtype=np.int64)
    ends["src"] += len(chunk.src)
    ends["tgt"] += len(chunk.tgt)
    return {
        "src": chunk.src,
        "tgt": chunk.tgt,
        "src_ends": src_ends,
        "tgt_ends": tgt_ends,
        "lengths": np.maximum(chunk.src_lengths, chunk.tgt_lengths),
        "rows": chunk.rows,
    }


def corpus_names(dataset: Dataset) -> list[str]:
    """Returns the names of the corpora that a data set was read from."""
    return dataset.info.description.split("\n")


def _encode_batch(
    tokenizers: Tokenizers,
    filters: Filters | None,
    first_seen: np.ndarray | None,
    numbered: tuple[int, pyarrow.RecordBatch],
) -> Chunk:
    start, batch = numbered
    src_texts, tgt_texts = (batch.column(name).to_pylist() for name in ("src", "tgt"))
    src, src_lengths = _flat(tokenizers.source, src_texts)
    tgt, tgt_lengths = _flat(tokenizers.target, tgt_texts)
    every = np.arange(start, start + len(src_texts))
    if filters is None:
        return Chunk(src, src_lengths, tgt, tgt_lengths, every, len(every), {})
    longer, shorter = np.maximum(src_lengths, tgt_lengths), np.minimum(src_lengths, tgt_lengths)
    blank = shorter == 1  # the end of sentence alone; so is what normalisation takes away
    for i in np.flatnonzero(blank):
        blank[i] = not (src_texts[i] and tgt_texts[i])
    wrong = {EMPTY: blank, TOO_LONG: longer > filters.max_length}
    if filters.max_ratio is not None:
        wrong[RATIO] = longer - 1 > filters.max_ratio * (shorter - 1)
    if first_seen is not None:
        wrong[DUPLICATE] = ~first_seen[every]
    keep, dropped = np.ones(len(every), dtype=bool), {}
    for reason, is_wrong in wrong.items():
        found = np.flatnonzero(keep & is_wrong)
        if len(found):
            first = batch.select(["corpus", "line"]).take(found[:EXAMPLES]).to_pylist()
            dropped[reason] = len(found), [(row["corpus"], row["line"]) for row in first]
        keep &= ~is_wrong
    if not dropped:
        return Chunk(src, src_lengths, tgt, tgt_lengths, every, len(every), {})
    return Chunk(
        src[np.repeat(keep, src_lengths)],
        src_lengths[keep],
        tgt[np.repeat(keep, tgt_lengths)],
        tgt_lengths[keep],
        every[keep],
        len(every),
        dropped,
    )


def _flat(tokenizer: Tokenizer, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the ids of some texts end to end, and their lengths."""
    parts, counts = [], []
    for start in range(0, len(texts), LINES_AT_ONCE):
        ids = tokenizer.encode(texts[start : start + LINES_AT_ONCE])
        lengths = np.fromiter(map(len, ids), np.int32, len(ids))
        parts.append(np.fromiter(chain.from_iterable(ids), np.int32, int(lengths.sum())))
        counts.append(lengths)
    return np.concatenate(parts), np.concatenate(counts)


def _hash_batch(numbered: tuple[int, pyarrow.RecordBatch]) -> np.ndarray:
    _, batch = numbered
    return hash_pairs(batch.column("src").to_pylist(), batch.column("tgt").to_pylist())


class EncodedCorpus:
    """Pairs of ids, memory-mapped, and the text that they come from.

    Attributes:
        lengths: tokens of the longer side of each pair, the end of sentence counted; int32.
        report: which pairs were left out.
        digest: names what the corpus was made from: texts, vocabularies, filters.
    """

    def __init__(self, folder: Path, dataset: Dataset, digest: str) -> None:
        self.digest = digest
        self._dataset = dataset.select_columns(["src", "tgt"])
        self._src, self._src_ends = _mapped(folder, "src"), _mapped(folder, "src_ends")
        self._tgt, self._tgt_ends = _mapped(folder, "tgt"), _mapped(folder, "tgt_ends")
        self.lengths, self._rows = _mapped(folder, "lengths"), _mapped(folder, "rows")
        report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
        self.report = FilterReport(**report)
        self.report.rename(corpus_names(dataset))

    def __len__(self) -> int:
        return len(self.lengths)

    def ids(self, indices: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Returns source and target ids of some pairs, each with its end of sentence: views."""
        return (
            _slices(self._src, self._src_ends, indices),
            _slices(self._tgt, self._tgt_ends, indices),
        )

    def texts(self, indices: np.ndarray) -> tuple[list[str], list[str]]:
        """Returns source and target text of some pairs."""
        rows = self._dataset[self._rows[indices].tolist()]
        return rows["src"], rows["tgt"]


def digest_of(corpus: EncodedCorpus | None) -> str:
    """Returns the digest of a corpus that may not be there."""
    return "none" if corpus is None else corpus.digest


def _mapped(folder: Path, name: str) -> np.ndarray:
    """Maps an array whose file is named for the type of its numbers, such as `src.uint16`."""
    (path,) = folder.glob(f"{name}.*")
    kind = path.suffix.removeprefix(".")
    if path.stat().st_size == 0:
        return np.empty(0, dtype=kind)
    return np.asarray(np.memmap(path, dtype=kind, mode="r"))


def _slices(values: np.ndarray, ends: np.ndarray, indices: Sequence[int] | np.ndarray) -> list:
    indices = np.asarray(indices, dtype=np.int64)
    last = ends[indices]
    first = np.where(indices > 0, ends[indices - 1], 0)
    return [values[i:j] for i, j in zip(first.tolist(), last.tolist(), strict=True)]
