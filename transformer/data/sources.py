"""Where a corpus comes from: files, or a data set of the hub."""

from __future__ import annotations

import codecs
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from transformer.config import CorpusConfig, DataConfig
from transformer.data.cache import cache_dir
from transformer.data.lines import open_bytes, raw_lines
from transformer.errors import UserError


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
