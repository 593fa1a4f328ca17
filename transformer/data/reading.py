"""Parallel corpora in the formats people have them in, read as a stream of pairs."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from transformer.config import CorpusConfig, DataConfig
from transformer.data.cache import cache_dir
from transformer.data.lines import open_bytes, open_lines, raw_lines
from transformer.errors import UserError

if TYPE_CHECKING:
    import pyarrow

ROWS_AT_ONCE = 10_000


class Pair(NamedTuple):
    """A sentence and its translation, stripped, and the line or row that they stand in, from 1."""

    src: str
    tgt: str
    line: int


def corpus_name(corpus: CorpusConfig) -> str:
    """Returns what messages call a corpus."""
    if corpus.hub is not None:
        return f"{corpus.hub} ({corpus.split})"
    return str(corpus.source or corpus.path)


def corpus_files(corpus: CorpusConfig) -> list[Path]:
    """Returns the local files that a corpus is read from; none for a data set of the hub.

    Raises:
        UserError: one does not exist.
    """
    if corpus.hub is not None:
        folder = Path(corpus.hub)
        if not folder.is_dir():
            return []
        return sorted(
            path
            for path in folder.rglob("*")
            if path.is_file() and not path.relative_to(folder).parts[0].startswith(".")
        )
    names = [corpus.path] if corpus.path is not None else [corpus.source, corpus.target]
    paths = [Path(name) for name in names if name is not None]
    for path in paths:
        if not path.is_file():
            found = "not a file" if path.exists() else "no such file"
            start = "" if path.is_absolute() else f"; paths start from {Path.cwd()}"
            raise UserError(f"{path}: {found}{start}")
    return paths


def read_pairs(corpus: CorpusConfig, data: DataConfig) -> Iterator[Pair]:
    """Yields the pairs of a corpus. Spaces around a sentence are dropped, line breaks in it made
    spaces, and its tag put before a source sentence that is not empty.

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
    for src, tgt, line in readers[corpus.format](corpus, data):
        src = _sentence(src)
        if corpus.tag is not None and src:
            src = f"{corpus.tag} {src}"
        yield Pair(src, _sentence(tgt), line)


def _sentence(text: str) -> str:
    text = text.strip()
    return " ".join(text.split("\n")) if "\n" in text else text


def _read_text(corpus: CorpusConfig, data: DataConfig) -> Iterator[Pair]:
    source, target = str(corpus.source), str(corpus.target)
    num_src = num_tgt = 0
    sides = zip_longest(open_lines(source), open_lines(target))
    for line, (src, tgt) in enumerate(sides, 1):
        num_src += src is not None
        num_tgt += tgt is not None
        if src is not None and tgt is not None:
            yield Pair(src, tgt, line)
    if num_src != num_tgt:
        raise UserError(
            f"{source} has {num_src} lines, {target} has {num_tgt}: they are no parallel corpus"
        )


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


def _read_tsv(corpus: CorpusConfig, data: DataConfig) -> Iterator[Pair]:
    """Yields the rows of a file in which tabs, and nothing else, part the fields: quotes are
    text."""
    name = str(corpus.path)
    rows = enumerate(open_lines(name), 1)
    where, num_fields = (0, 1), 2
    if corpus.source_column or corpus.target_column:
        header = next(rows, (1, ""))[1].split("\t")
        num_fields = len(header)
        columns = _columns(corpus, data)
        for column in columns:
            if column not in header:
                raise UserError(
                    f"{name}: no column {column!r} in its first line: {_listed(header)}"
                )
        where = (header.index(columns[0]), header.index(columns[1]))
    for line, row in rows:
        fields = row.split("\t")
        if len(fields) != num_fields:
            raise UserError(
                f"{name}:{line}: fields: {len(fields)} found, {num_fields} expected; tabs part"
                " them, quotes are ordinary characters"
            )
        yield Pair(fields[where[0]], fields[where[1]], line)


def _read_json_lines(corpus: CorpusConfig, data: DataConfig) -> Iterator[Pair]:
    name = str(corpus.path)
    columns = _columns(corpus, data)
    for line, text in enumerate(open_lines(name), 1):
        if not text.strip():
            continue
        try:
            row = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{name}:{line}: not JSON ({error})") from error
        if not isinstance(row, dict):
            raise UserError(f"{name}:{line}: a JSON object is expected on each line")
        src, tgt = (_text_of(_reach(row, column), column, f"{name}:{line}") for column in columns)
        yield Pair(src, tgt, line)


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


def _read_parquet(corpus: CorpusConfig, data: DataConfig) -> Iterator[Pair]:
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


def _read_hub(corpus: CorpusConfig, data: DataConfig) -> Iterator[Pair]:
    name, columns = corpus_name(corpus), _columns(corpus, data)
    dataset = load_hub(corpus, data)
    try:
        batches = dataset.with_format("arrow").iter(ROWS_AT_ONCE)
        yield from _read_batches(batches, columns, dataset.column_names or [], name)
    except UserError:
        raise
    except Exception as error:  # of their own kinds, by format
        raise UserError(f"{name}: cannot be read ({error})") from error


def load_hub(corpus: CorpusConfig, data: DataConfig) -> Any:
    """Opens a data set of the hub, or a local folder laid out like one.

    The folder is read as a stream, without a copy and without the network. Returns what
    `datasets.load_dataset` does.

    Raises:
        UserError: it cannot be loaded.
    """
    import datasets

    datasets.disable_progress_bars()
    is_local = Path(str(corpus.hub)).is_dir()
    for path in corpus_files(corpus) if is_local else []:
        if path.name.removesuffix(".gz").endswith((".json", ".jsonl")):
            _refuse_null_rows(path)
    try:
        return datasets.load_dataset(
            str(Path(str(corpus.hub)).resolve()) if is_local else corpus.hub,
            corpus.name,
            split=corpus.split,
            revision=corpus.revision,
            cache_dir=str(cache_dir(data.cache_dir) / "hub") if is_local else None,
            streaming=is_local,
        )
    except Exception as error:  # whatever kind it is, it says what is wrong with this data set
        raise UserError(f"{corpus_name(corpus)}: cannot be loaded ({error})") from error


def _refuse_null_rows(path: Path) -> None:
    """Makes sure that no row of a JSON file is null: Arrow's reader, which `datasets` calls, ends
    the process at one.

    Raises:
        UserError: one is, named by its line.
    """
    with open_bytes(path) as stream:
        for number, line in enumerate(raw_lines(stream, str(path)), 1):
            start = line.removeprefix(codecs.BOM_UTF8).lstrip()
            is_null = start.startswith(b"null")
            if number == 1 and start.startswith(b"["):  # one array over all lines
                with suppress(ValueError, RecursionError):  # `datasets` says what is wrong
                    is_null = None in json.loads(b"".join([start, *stream]))
            if is_null:
                raise UserError(f"{path}:{number}: null found, a JSON object is expected")


def _read_batches(
    batches: Iterator[pyarrow.RecordBatch | pyarrow.Table],
    columns: tuple[str, str],
    available: Sequence[str],
    name: str,
) -> Iterator[Pair]:
    """Yields the pairs of Arrow tables, taking nested columns apart."""
    line = 0
    for batch in batches:
        known = available or batch.column_names
        for column in columns:
            if column not in known and column.split(".")[0] not in known:
                raise UserError(f"{name}: no column {column!r}; there are {_listed(known)}")
        sides = [_arrow_texts(batch, column, name, line) for column in columns]
        for src, tgt in zip(*sides, strict=True):
            line += 1
            yield Pair(src, tgt, line)


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
        value if type(value) is str else _text_of(value, column, f"{name}: row {start + i}")
        for i, value in enumerate(values, 1)
    ]


def _listed(names: Sequence[str] | dict[str, object]) -> str:
    return ", ".join(map(repr, names))
