"""Equal pairs are found however many there are."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from transformer.data.duplicates import first_occurrences, first_of_equals, hash_pairs

some_values = st.lists(st.lists(st.integers(0, 9), max_size=8), max_size=8)


def unseen(values: list[int]) -> list[bool]:
    seen: set[int] = set()
    return [not (value in seen or seen.add(value)) for value in values]


@given(values=st.lists(st.integers(0, 9)))
def test_only_the_first_of_equal_values_is_first(values: list[int]) -> None:
    assert first_occurrences(np.array(values, dtype=np.uint64)).tolist() == unseen(values)


@given(chunks=some_values, in_part=st.integers(1, 20))
def test_the_first_is_found_in_any_number_of_parts_and_no_file_stays(
    chunks: list[list[int]], in_part: int
) -> None:
    flat = [value for chunk in chunks for value in chunk]
    arrays = (np.array(chunk, dtype=np.uint64) for chunk in chunks)
    with TemporaryDirectory() as folder:
        found = first_of_equals(arrays, len(flat), Path(folder), in_part)
        assert list(Path(folder).iterdir()) == []
    assert found.tolist() == unseen(flat)


def test_pairs_are_equal_in_both_sides_or_not_at_all() -> None:
    src, tgt = ["a", "a", "a b", "a", "ä"], ["b", "b", "", "c", "b"]
    hashes = hash_pairs(src, tgt).tolist()
    assert hashes[0] == hashes[1]
    assert len(set(hashes)) == 4
