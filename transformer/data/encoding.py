"""Pairs of sentences to pairs of ids on disk: segmented, filtered, counted."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from transformer.data.tokenizer import Tokenizers

if TYPE_CHECKING:
    from datasets import Dataset

T = TypeVar("T")

ROWS_AT_ONCE = 10_000
EXAMPLES = 3
MANY_DROPPED = 0.05
FILES = {"src": np.int32, "tgt": np.int32, "src_ends": np.int64, "tgt_ends": np.int64}
FILES |= {"lengths": np.int32, "rows": np.int64}
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
    """

    total: int = 0
    kept: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[str]] = field(default_factory=dict)
    meanings: dict[str, str] = field(default_factory=dict)

    def add(self, chunk: Chunk, filters: Filters | None, names: Sequence[str]) -> None:
        """Counts the pairs of one chunk, of corpora with these names."""
        self.total += chunk.num_rows
        self.kept += len(chunk.rows)
        for reason, places in chunk.dropped.items():
            assert filters is not None
            self.meanings[reason] = filters.meaning(reason)
            self.dropped[reason] = self.dropped.get(reason, 0) + len(places)
            examples = self.examples.setdefault(reason, [])
            for corpus, line in places[: EXAMPLES - len(examples)]:
                examples.append(f"{names[corpus]}:{line}")

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
    """The kept pairs of some rows: flat ids and lengths of each side, and the rows; and what was
    dropped."""

    src: np.ndarray
    src_lengths: np.ndarray
    tgt: np.ndarray
    tgt_lengths: np.ndarray
    rows: np.ndarray
    num_rows: int
    dropped: dict[str, list[tuple[int, int]]]


class Rows:
    """Reads stretches of a data set. Each is mapped anew, so that memory does not fill with what
    was read."""

    def __init__(self, dataset: Dataset) -> None:
        self._pickled = pickle.dumps(dataset.with_format("arrow"))
        self._size = len(dataset)

    def starts(self) -> range:
        """Returns where each stretch starts."""
        return range(0, self._size, ROWS_AT_ONCE)

    def columns(self, start: int, *names: str) -> list[list]:
        """Returns columns of one stretch as lists."""
        table = pickle.loads(self._pickled)[start : start + ROWS_AT_ONCE]
        return [table.column(name).to_pylist() for name in names]


def encode_rows(
    dataset: Dataset,
    tokenizers: Tokenizers,
    filters: Filters | None,
    num_threads: int,
    folder: Path,
) -> None:
    """Encodes a data set into files in `folder`; what is in memory does not grow with it.

    Only the search for duplicates holds 25 bytes for each pair while it lasts. SentencePiece works
    outside Python's lock, so threads use all cores.
    """
    rows = Rows(dataset)
    first_seen = None
    if filters is not None and filters.drop_duplicates:
        hashes = list(in_parallel(partial(_hash_chunk, rows), rows.starts(), num_threads))
        first_seen = first_occurrences(np.concatenate(hashes))
    encode = partial(_encode_chunk, rows, tokenizers, filters, first_seen)
    report = FilterReport()
    names = corpus_names(dataset)
    with ExitStack() as stack:
        files = {name: stack.enter_context(open(folder / f"{name}.bin", "wb")) for name in FILES}
        ends = {"src": 0, "tgt": 0}
        for chunk in in_parallel(encode, rows.starts(), num_threads):
            for name, array in _file_arrays(chunk, ends).items():
                files[name].write(array.astype(FILES[name], copy=False).data)
            report.add(chunk, filters, names)
    (folder / "report.json").write_text(json.dumps(asdict(report)), encoding="utf-8")


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


def _encode_chunk(
    rows: Rows,
    tokenizers: Tokenizers,
    filters: Filters | None,
    first_seen: np.ndarray | None,
    start: int,
) -> Chunk:
    src_texts, tgt_texts, corpora, lines = rows.columns(start, "src", "tgt", "corpus", "line")
    src, src_lengths = _flat(tokenizers.source.encode(src_texts))
    tgt, tgt_lengths = _flat(tokenizers.target.encode(tgt_texts))
    every = np.arange(len(src_texts))
    if filters is None:
        return Chunk(src, src_lengths, tgt, tgt_lengths, start + every, len(every), {})
    longer, shorter = np.maximum(src_lengths, tgt_lengths), np.minimum(src_lengths, tgt_lengths)
    blank = np.array([not (s and t) for s, t in zip(src_texts, tgt_texts, strict=True)], dtype=bool)
    wrong = {EMPTY: blank, TOO_LONG: longer > filters.max_length}
    if filters.max_ratio is not None:
        wrong[RATIO] = longer - 1 > filters.max_ratio * (shorter - 1)
    if first_seen is not None:
        wrong[DUPLICATE] = ~first_seen[start : start + len(every)]
    keep, dropped = np.ones(len(every), dtype=bool), {}
    for reason, is_wrong in wrong.items():
        found = np.flatnonzero(keep & is_wrong)
        if len(found):
            dropped[reason] = [(corpora[i], lines[i]) for i in found]
        keep &= ~is_wrong
    return Chunk(
        src[np.repeat(keep, src_lengths)],
        src_lengths[keep],
        tgt[np.repeat(keep, tgt_lengths)],
        tgt_lengths[keep],
        start + every[keep],
        len(every),
        dropped,
    )


def _flat(sequences: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Returns sequences end to end, and their lengths."""
    lengths = np.fromiter(map(len, sequences), np.int32, len(sequences))
    flat = np.fromiter(chain.from_iterable(sequences), np.int32, int(lengths.sum()))
    return flat, lengths


def _hash_chunk(rows: Rows, start: int) -> np.ndarray:
    pairs = zip(*rows.columns(start, "src", "tgt"), strict=True)
    digests = (
        hashlib.blake2b(f"{src}\n{tgt}".encode(), digest_size=8).digest() for src, tgt in pairs
    )
    return np.frombuffer(b"".join(digests), dtype=np.uint64)


def first_occurrences(values: np.ndarray) -> np.ndarray:
    """Returns True for each value that did not come before."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    first = np.ones(len(values), dtype=bool)
    first[order[1:][ordered[1:] == ordered[:-1]]] = False
    return first


def in_parallel(work: Callable[[int], T], tasks: Iterable[int], num_threads: int) -> Iterator[T]:
    """Yields the results in order, computing only a few ahead.

    Args:
        work: a function of one task.
        tasks: what to call it with.
        num_threads: how many to do at once; 0 takes all cores.
    """
    num_threads = num_threads or num_cores()
    if num_threads == 1:
        yield from map(work, tasks)
        return
    with ThreadPoolExecutor(num_threads) as pool:
        pending: deque[Future[T]] = deque()
        try:
            for task in tasks:
                pending.append(pool.submit(work, task))
                if len(pending) > 2 * num_threads:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()


def num_cores() -> int:
    """Returns how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


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
        arrays = {name: _mapped(folder / f"{name}.bin", kind) for name, kind in FILES.items()}
        self._src, self._src_ends = arrays["src"], arrays["src_ends"]
        self._tgt, self._tgt_ends = arrays["tgt"], arrays["tgt_ends"]
        self.lengths, self._rows = arrays["lengths"], arrays["rows"]
        report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
        self.report = FilterReport(**report)

    def __len__(self) -> int:
        return len(self.lengths)

    def ids(self, indices: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Returns source and target ids of some pairs, each with its end of sentence; int32
        views."""
        return (
            _slices(self._src, self._src_ends, indices),
            _slices(self._tgt, self._tgt_ends, indices),
        )

    def texts(self, indices: np.ndarray) -> tuple[list[str], list[str]]:
        """Returns source and target text of some pairs."""
        rows = self._dataset[self._rows[indices].tolist()]
        return rows["src"], rows["tgt"]


def _mapped(path: Path, kind: type) -> np.ndarray:
    if path.stat().st_size == 0:
        return np.empty(0, dtype=kind)
    return np.asarray(np.memmap(path, dtype=kind, mode="r"))


def _slices(values: np.ndarray, ends: np.ndarray, indices: Sequence[int] | np.ndarray) -> list:
    indices = np.asarray(indices, dtype=np.int64)
    last = ends[indices]
    first = np.where(indices > 0, ends[indices - 1], 0)
    return [values[i:j] for i, j in zip(first.tolist(), last.tolist(), strict=True)]
