"""Lines of text: what `wc -l` counts, and nothing else, ends one.

Python's own `splitlines` also splits at U+2028, U+0085, form feeds and others, which shifts one
side of a parallel corpus against the other.
"""

from __future__ import annotations

import codecs
import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import BinaryIO, cast

from transformer.errors import UserError

LINES_AT_ONCE = 10_000


def open_lines(path: str | Path) -> Iterator[str]:
    """Yields the lines of a UTF-8 file, plain or .gz, whatever the locale.

    Raises:
        UserError: the file cannot be read, is a damaged .gz, or is not UTF-8.
    """
    for lines in open_line_lists(path):
        yield from lines


def open_line_lists(path: str | Path) -> Iterator[list[str]]:
    """Yields the lines of a file as `open_lines` does, `LINES_AT_ONCE` in a list, and fewer in the
    last; that is several times as fast as line by line.
    """
    number = 1
    with open_bytes(path) as stream:
        raw_lines = _raw_lines(stream, str(path))
        while raw := list(islice(raw_lines, LINES_AT_ONCE)):
            yield _decode_all(raw, str(path), number)
            number += len(raw)


def read_lines(stream: BinaryIO, name: str) -> Iterator[str]:
    """Yields the lines of a binary stream, each as soon as it has arrived.

    Only a line feed ends a line; a carriage return before it and a byte order mark at the start of
    the stream are dropped.

    Args:
        stream: UTF-8.
        name: what errors call it.

    Raises:
        UserError: the stream cannot be read, or a line is not UTF-8, which is named by its number,
            counted from 1.
    """
    for number, raw in enumerate(_raw_lines(stream, name), 1):
        yield _decode(raw, name, number)


def _decode_all(raw: list[bytes], name: str, number: int) -> list[str]:
    """Returns the texts of some lines, of which the first has this number."""
    try:
        text = b"".join(raw).decode("utf-8")
    except UnicodeDecodeError:
        return [_decode(line, name, i) for i, line in enumerate(raw, number)]
    if number == 1:
        text = text.removeprefix("\ufeff")
    lines = text.split("\n")
    if raw[-1].endswith(b"\n"):
        lines.pop()  # what follows the last line feed
    return [line.removesuffix("\r") for line in lines] if "\r" in text else lines


def _decode(raw: bytes, name: str, number: int) -> str:
    """Returns the text of a line; its number, from 1, is for the error."""
    if number == 1:
        raw = raw.removeprefix(codecs.BOM_UTF8)
    try:
        return raw.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
    except UnicodeDecodeError as error:
        byte = raw[error.start]
        raise UserError(
            f"{name}:{number}: not valid UTF-8 (byte 0x{byte:02x} at byte {error.start + 1} of"
            " the line); convert the file, for instance with iconv -f LATIN1 -t UTF-8"
        ) from None


def _raw_lines(stream: BinaryIO, name: str) -> Iterator[bytes]:
    try:
        yield from stream
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{name}: damaged .gz file ({error})") from error
    except OSError as error:
        raise UserError(f"{name}: cannot be read: {error.strerror or error}") from error


@contextmanager
def open_bytes(path: str | Path) -> Iterator[BinaryIO]:
    """Opens a file to read bytes, unpacked if its name ends in .gz.

    Raises:
        UserError: the file cannot be opened.
    """
    opener = gzip.open if str(path).endswith(".gz") else open
    try:
        stream = opener(path, "rb")
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from error
    with stream:
        yield cast(BinaryIO, stream)
