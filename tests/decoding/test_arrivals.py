"""Items are given as they come: at once if they come alone, together if they come fast."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import islice

import pytest

from transformer.decoding.arrivals import arrivals, chunks


def test_all_items_come_in_order_in_lists_of_bounded_size() -> None:
    chunks = list(arrivals(iter(range(1000)), 7))
    assert [x for chunk in chunks for x in chunk] == list(range(1000))
    assert max(map(len, chunks)) <= 7
    assert min(map(len, chunks)) >= 1


def test_an_item_is_given_before_the_next_has_come() -> None:
    answered = threading.Event()

    def items() -> Iterator[str]:
        yield "a"
        assert answered.wait(10)
        yield "b"

    chunks = arrivals(items(), 100)
    assert next(chunks) == ["a"]
    answered.set()
    assert list(chunks) == [["b"]]


def test_items_that_came_meanwhile_are_given_together() -> None:
    came = threading.Event()

    def items() -> Iterator[int]:
        yield 0
        yield from range(1, 6)
        came.set()  # the reader asks for more only after it has taken the last one

    chunks = arrivals(items(), 100)
    first = next(chunks)
    assert came.wait(10)
    assert first + next(chunks, []) == list(range(6))


def test_an_error_comes_after_the_items_before_it() -> None:
    def items() -> Iterator[int]:
        yield 1
        yield 2
        raise ValueError("the third")

    seen: list[int] = []
    with pytest.raises(ValueError, match="the third"):
        seen.extend(x for chunk in arrivals(items(), 10) for x in chunk)
    assert seen == [1, 2]


def test_it_reads_ahead_only_so_far_and_stops_when_left() -> None:
    taken: list[int] = []
    ended = threading.Event()

    def items() -> Iterator[int]:
        try:
            for i in range(10**9):
                taken.append(i)
                yield i
        finally:
            ended.set()

    chunks = arrivals(items(), 5)
    next(chunks)
    chunks.close()  # type: ignore[attr-defined]
    assert ended.wait(10)
    assert len(taken) <= 5 + 5 + 2


@pytest.mark.parametrize("num", [1, 2, 3, 4, 5])
def test_chunks_hold_all_items_before_an_error(num: int) -> None:
    def items() -> Iterator[int]:
        yield from range(4)
        raise ValueError("the fifth")

    seen: list[int] = []
    taken = chunks(items(), num)
    for chunk in islice(taken, -(-4 // num)):
        assert 1 <= len(chunk) <= num
        seen += chunk
    with pytest.raises(ValueError, match="the fifth"):
        next(taken)
    assert seen == [0, 1, 2, 3]
    assert list(chunks(range(5), 2)) == [[0, 1], [2, 3], [4]]
