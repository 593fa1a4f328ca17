"""Parallel corpora in the formats people have them in, read as a stream of pairs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np

from transformer.config import CorpusConfig, DataConfig
from transformer.data.lines import open_line_arrays, open_line_lists
from transformer.data.sources import corpus_name, load_hub
from transformer.errors import UserError

if TYPE_CHECKING:
    import pyarrow

ROWS_AT_ONCE = 10_000


def read_pairs(corpus: CorpusConfig, data: DataConfig) -> Iterator[pyarrow.RecordBatch]:
    """Yields the pairs of a corpus, `ROWS_AT_ONCE` in a batch and fewer in the last.

    Spaces around a sentence are dropped, line breaks in it made spaces, and its tag put before a
    source sentence that is not empty. The columns are src, tgt and line, the number of the line or
    row where a pair stands, from 1.

    Raises:
        UserError: the corpus cannot be read, or is not what its format asks for.
    """
    readers = {
        "text": _read_text,
        "tsv": _read_tsv,
        "jsonl": _read_json_lines,
        "parquet": _read_parquet,
        "hub": _read_hub,
    }
    for batch in _even(readers[corpus.format](corpus, data)):
        src, tgt, lines = batch.columns
        src = _sentences(src)
        yield _pairs(_tagged(src, corpus.tag) if corpus.tag else src, _sentences(tgt), lines)


def _pairs(
    src: list[str] | pyarrow.StringArray,
    tgt: list[str] | pyarrow.StringArray,
    lines: Sequence[int] | np.ndarray | pyarrow.Int64Array,
) -> pyarrow.RecordBatch:
    import pyarrow as pa

    schema = pa.schema({"src": pa.string(), "tgt": pa.string(), "line": pa.int64()})
    return pa.record_batch([src, tgt, lines], schema=schema)


def _even(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """Yields the same rows, `ROWS_AT_ONCE` in a batch and fewer in the last."""
    held: list[pyarrow.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(map(len, held)) >= ROWS_AT_ONCE:
            *full, last = _cut(held)
            yield from full
            held = [last]
            if len(last) == ROWS_AT_ONCE:
                yield held.pop()
    yield from _cut(held)


def _cut(batches: list[pyarrow.RecordBatch]) -> list[pyarrow.RecordBatch]:
    import pyarrow as pa

    if not batches or (len(batches) == 1 and len(batches[0]) == ROWS_AT_ONCE):
        return batches
    return pa.Table.from_batches(batches).combine_chunks().to_batches(ROWS_AT_ONCE)


def _sentences(texts: pyarrow.StringArray) -> pyarrow.StringArray:
    import pyarrow.compute as pc

    texts = pc.utf8_trim_whitespace(texts)  # what `str.strip` drops
    characters = texts.buffers()[2]
    if characters is not None and b"\n" in characters.to_pybytes():
        texts = pc.replace_substring(texts, "\n", " ")
    return texts


def _tagged(texts: pyarrow.StringArray, tag: str) -> pyarrow.StringArray:
    import pyarrow.compute as pc

    return pc.if_else(pc.equal(texts, ""), texts, pc.binary_join_element_wise(tag, texts, " "))


def _read_text(corpus: CorpusConfig, data: DataConfig) -> Iterator[pyarrow.RecordBatch]:
    import pyarrow as pa

    source, target = str(corpus.source), str(corpus.target)
    num_src = num_tgt = 0
    none = pa.record_batch({"line": pa.array([], pa.string())})
    for src, tgt in zip_longest(_line_batches(source), _line_batches(target), fillvalue=none):
        both = min(len(src), len(tgt))
        lines = np.arange(num_src + 1, num_src + 1 + both)
        yield _pairs(src.column(0)[:both], tgt.column(0)[:both], lines)
        num_src += len(src)
        num_tgt += len(tgt)
    if num_src != num_tgt:
        raise UserError(
            f"{source} has {num_src} lines, {target} has {num_tgt}: they are no parallel corpus"
        )


def _line_batches(path: str) -> Iterator[pyarrow.RecordBatch]:
    import pyarrow as pa

    return _even(pa.record_batch([lines], names=["line"]) for lines in open_line_arrays(path))


def _columns(corpus: CorpusConfig, data: DataConfig) -> tuple[str, str]:
    """Returns the names of both columns: those set, or else the languages."""
    columns = (
        corpus.source_column or data.source_language,
        corpus.target_column or data.target_language,
    )
    if not all(columns):
        raise UserError(
            f"{corpus_name(corpus)}: which columns hold the sentences? Set source_column and"
            " target_column, or data.source_language and data.target_language"
        )
    return columns


def _read_tsv(corpus: CorpusConfig, data: DataConfig) -> Iterator[pyarrow.RecordBatch]:
    """Yields the rows of a file in which tabs, and nothing else, part the fields: quotes are
    text."""
    name = str(corpus.path)
    where, num_fields, line = (0, 1), 2, 1
    has_header = bool(corpus.source_column or corpus.target_column)
    for rows in open_line_lists(name):
        if has_header and line == 1:
            where, num_fields = _tsv_columns(rows[0].split("\t"), corpus, data)
            rows, line = rows[1:], 2
        fields = [row.split("\t") for row in rows]
        for i, found in enumerate(fields, line):
            if len(found) != num_fields:
                raise UserError(
                    f"{name}:{i}: fields: {len(found)} found, {num_fields} expected; tabs part"
                    " them, quotes are ordinary characters"
                )
        src, tgt = ([found[column] for found in fields] for column in where)
        yield _pairs(src, tgt, np.arange(line, line + len(rows)))
        line += len(rows)


def _tsv_columns(
    header: list[str], corpus: CorpusConfig, data: DataConfig
) -> tuple[tuple[int, int], int]:
    """Returns the places of both columns in the header, and how many columns there are."""
    src, tgt = _columns(corpus, data)
    for column in (src, tgt):
        if column not in header:
            raise UserError(
                f"{corpus.path}: no column {column!r} in its first line: {_listed(header)}"
            )
    return (header.index(src), header.index(tgt)), len(header)


def _read_json_lines(corpus: CorpusConfig, data: DataConfig) -> Iterator[pyarrow.RecordBatch]:
    name, columns = str(corpus.path), _columns(corpus, data)
    first = 1
    for texts in open_line_lists(name):
        lines = [i for i, text in enumerate(texts, first) if text.strip()]
        rows = [_parse(texts[i - first], f"{name}:{i}") for i in lines]
        src, tgt = (
            [_text_of(_reach(x, c), c, f"{name}:{i}") for x, i in zip(rows, lines, strict=True)]
            for c in columns
        )
        yield _pairs(src, tgt, lines)
        first += len(texts)


def _parse(text: str, where: str) -> dict[str, object]:
    try:
        row = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: not JSON ({error})") from error
    if not isinstance(row, dict):
        raise UserError(f"{where}: a JSON object is expected on each line")
    return row


def _reach(row: dict[str, object], column: str) -> object:
    """Returns the value of a column; a dotted one reaches into nested objects."""
    if column in row or "." not in column:
        return row.get(column, row)
    first, rest = column.split(".", 1)
    inner = row.get(first)
    return _reach(inner, rest) if isinstance(inner, dict) else row


def _text_of(value: object, column: str, where: str) -> str:
    """Returns a field's text; null is an empty sentence."""
    if value is None:
        return ""
    if isinstance(value, dict):
        raise UserError(f"{where}: no text in column {column!r}; there are {_listed(value)}")
    if not isinstance(value, str):
        raise UserError(f"{where}: column {column!r} holds {type(value).__name__}, not text")
    if not value.isascii() and any("\ud800" <= c <= "\udfff" for c in value):
        raise UserError(f"{where}: column {column!r} holds half a surrogate pair, which is no text")
    return value


def _read_parquet(corpus: CorpusConfig, data: DataConfig) -> Iterator[pyarrow.RecordBatch]:
    import pyarrow as pa
    from pyarrow import parquet

    name, columns = str(corpus.path), _columns(corpus, data)
    try:
        with parquet.ParquetFile(name) as file:
            available = file.schema_arrow.names
            wanted = {c if c in available else c.split(".")[0] for c in columns}
            batches = file.iter_batches(ROWS_AT_ONCE, columns=sorted(wanted & set(available)))
            yield from _read_batches(batches, columns, available, name)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise UserError(f"{name}: not a Parquet file that can be read ({error})") from error


def _read_hub(corpus: CorpusConfig, data: DataConfig) -> Iterator[pyarrow.RecordBatch]:
    name, columns = corpus_name(corpus), _columns(corpus, data)
    dataset = load_hub(corpus, data)
    try:
        batches = dataset.with_format("arrow").iter(ROWS_AT_ONCE)
        yield from _read_batches(batches, columns, dataset.column_names or [], name)
    except UserError:
        raise
    except Exception as error:  # of their own kinds, by format
        raise UserError(f"{name}: cannot be read ({error})") from error


def _read_batches(
    batches: Iterator[pyarrow.RecordBatch | pyarrow.Table],
    columns: tuple[str, str],
    available: Sequence[str],
    name: str,
) -> Iterator[pyarrow.RecordBatch]:
    """Yields the pairs of Arrow tables, taking nested columns apart."""
    line = 1
    for batch in batches:
        known = available or batch.column_names
        for column in columns:
            if column not in known and column.split(".")[0] not in known:
                raise UserError(f"{name}: no column {column!r}; there are {_listed(known)}")
        src, tgt = (_arrow_texts(batch, column, name, line) for column in columns)
        yield _pairs(src, tgt, np.arange(line, line + len(src)))
        line += len(src)


def _arrow_texts(
    batch: pyarrow.RecordBatch | pyarrow.Table, column: str, name: str, start: int
) -> list[str]:
    if column in batch.column_names:
        values = batch.column(column).to_pylist()
    else:
        first, rest = column.split(".", 1)
        inner = batch.column(first).to_pylist()
        if not all(x is None or isinstance(x, dict) for x in inner):
            raise UserError(f"{name}: column {first!r} holds no {rest!r}: it is not nested")
        values = [_reach(x or {}, rest) for x in inner]
    return [
        value if type(value) is str else _text_of(value, column, f"{name}: row {i}")
        for i, value in enumerate(values, start)
    ]


def _listed(names: Sequence[str] | dict[str, object]) -> str:
    return ", ".join(map(repr, names))
