"""Equal pairs, found in any number of pairs with little memory."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

PAIRS_IN_PART = 4_000_000


def hash_pairs(src: Sequence[str], tgt: Sequence[str]) -> np.ndarray:
    """Returns a number of 64 bits for each pair; equal pairs have equal ones."""
    digests = (
        hashlib.blake2b(f"{s}\n{t}".encode(), digest_size=8).digest()
        for s, t in zip(src, tgt, strict=True)
    )
    return np.frombuffer(b"".join(digests), dtype=np.uint64)


def first_of_equals(
    chunks: Iterable[np.ndarray], total: int, folder: Path, in_part: int = PAIRS_IN_PART
) -> np.ndarray:
    """Returns True for each value that did not come before.

    The values are dealt out to files, equal ones to the same, and each file is sorted by itself:
    memory holds one byte for each value, and one file.

    Args:
        chunks: the values, uniformly distributed, a stretch at a time.
        total: how many there are.
        folder: where the files are while this lasts.
        in_part: how many values a file is to hold.
    """
    first = np.ones(total, dtype=bool)
    num_parts = np.uint64(total // in_part + 1)
    with TemporaryDirectory(dir=folder) as name, ExitStack() as stack:
        paths = [Path(name) / str(i) for i in range(int(num_parts))]
        files = [stack.enter_context(open(path, "w+b")) for path in paths]
        start = 0
        for values in chunks:
            positions = np.arange(start, start + len(values), dtype=np.uint64)
            records = np.stack([values, positions], axis=1)
            parts = values % num_parts
            for i, file in enumerate(files):
                file.write(records[parts == i].tobytes())
            start += len(values)
        for file in files:
            file.seek(0)
            records = np.fromfile(file, dtype=np.uint64).reshape(-1, 2)
            first[records[~first_occurrences(records[:, 0]), 1]] = False
    return first


def first_occurrences(values: np.ndarray) -> np.ndarray:
    """Returns True for each value that did not come before."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    first = np.ones(len(values), dtype=bool)
    first[order[1:][ordered[1:] == ordered[:-1]]] = False
    return first
