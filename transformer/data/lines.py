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
from pathlib import Path
from typing import BinaryIO, cast

from transformer.errors import UserError


def open_lines(path: str | Path) -> Iterator[str]:
    """Yields the lines of a UTF-8 file, plain or .gz, whatever the locale.

    Raises:
        UserError: the file cannot be read, is a damaged .gz, or is not UTF-8.
    """
    with open_bytes(path) as stream:
        yield from read_lines(stream, str(path))


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
    for number, raw in enumerate(raw_lines(stream, name), 1):
        if number == 1:
            raw = raw.removeprefix(codecs.BOM_UTF8)
        try:
            yield raw.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
        except UnicodeDecodeError as error:
            byte = raw[error.start]
            raise UserError(
                f"{name}:{number}: not valid UTF-8 (byte 0x{byte:02x} at byte {error.start + 1} of"
                " the line); convert the file, for instance with iconv -f LATIN1 -t UTF-8"
            ) from None


def raw_lines(stream: BinaryIO, name: str) -> Iterator[bytes]:
    """Yields the lines of a binary stream as they stand, line feeds included.

    Raises:
        UserError: the stream cannot be read, or is a damaged .gz.
    """
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
