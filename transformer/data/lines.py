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
from typing import TYPE_CHECKING, BinaryIO, NoReturn, cast

import numpy as np

from transformer.errors import UserError

if TYPE_CHECKING:
    import pyarrow

BLOCK_BYTES = 1 << 22


def open_lines(path: str | Path) -> Iterator[str]:
    """Yields the lines of a UTF-8 file, plain or .gz, whatever the locale.

    Raises:
        UserError: the file cannot be read, is a damaged .gz, or is not UTF-8.
    """
    for lines in open_line_lists(path):
        yield from lines


def open_line_lists(path: str | Path) -> Iterator[list[str]]:
    """Yields the lines of a file as `open_lines` does, those of some megabytes in a list."""
    for number, block in _blocks(path):
        try:
            text = block.decode("utf-8")
        except UnicodeDecodeError:
            _refuse(block, str(path), number)
        lines = text.split("\n")
        lines.pop()  # what follows the last line feed
        yield [line.removesuffix("\r") for line in lines] if "\r" in text else lines


def open_line_arrays(path: str | Path) -> Iterator[pyarrow.StringArray]:
    """Yields the lines of a file, those of some megabytes in an array, each with its line end.

    No line becomes an object of its own, and most of the work is done outside Python's lock.
    """
    import pyarrow as pa

    for number, block in _blocks(path):
        ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n")) + 1
        offsets = np.concatenate([[0], ends]).astype(np.int32)
        array = pa.StringArray.from_buffers(len(ends), pa.py_buffer(offsets), pa.py_buffer(block))
        try:
            array.validate(full=True)
        except pa.ArrowInvalid:
            _refuse(block, str(path), number)
        yield array


def _blocks(path: str | Path) -> Iterator[tuple[int, bytes]]:
    """Yields some megabytes of whole lines at a time, each ended by a line feed, and the number of
    the first."""
    number = 1
    with open_bytes(path) as stream:
        for block in _whole_lines(stream, str(path)):
            block = block.removeprefix(codecs.BOM_UTF8) if number == 1 else block
            yield number, block
            number += block.count(b"\n")


def _whole_lines(stream: BinaryIO, name: str) -> Iterator[bytes]:
    parts: list[bytes] = []
    with _named_errors(name):
        while block := stream.read(BLOCK_BYTES):
            if end := block.rfind(b"\n") + 1:
                yield b"".join([*parts, block[:end]])
                parts = []
            parts.append(block[end:])
    if rest := b"".join(parts):
        yield rest + b"\n"


def _refuse(block: bytes, name: str, number: int) -> NoReturn:
    """Raises the error of the first line that is not UTF-8."""
    for i, line in enumerate(block.split(b"\n"), number):
        _decode(line, name, i)
    raise AssertionError(f"{name}: all lines from {number} are UTF-8")


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
        yield _decode(raw, name, number)


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


def raw_lines(stream: BinaryIO, name: str) -> Iterator[bytes]:
    """Yields the lines of a binary stream as they stand, line feeds included.

    Raises:
        UserError: the stream cannot be read, or is a damaged .gz.
    """
    with _named_errors(name):
        yield from stream


@contextmanager
def _named_errors(name: str) -> Iterator[None]:
    """Turns errors of reading into sentences."""
    try:
        yield
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
