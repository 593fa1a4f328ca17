"""Batches: a plan is a function of its arguments, no example is lost, nothing is too large."""

import itertools
import threading
import time
import tracemalloc
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from transformer.data import batching
from transformer.data.batching import (
    Prefetcher,
    collate,
    even_batches,
    micro_batches,
    pad,
    plan_epoch,
)
from transformer.ids import BOS, EOS, PAD

some_lengths = st.lists(st.integers(1, 60), max_size=80).map(lambda x: np.array(x, dtype=np.int32))
budgets = st.integers(1, 200)


def plan(
    lengths: np.ndarray, batch_tokens: int = 500, seed: int = 1, epoch: int = 1
) -> list[list[int]]:
    return [update.tolist() for update in plan_epoch(lengths, batch_tokens, seed, epoch)]


def zipf_lengths(count: int) -> np.ndarray:
    return np.random.default_rng(0).geometric(0.05, count).clip(2, 100).astype(np.int32)


@given(some_lengths, budgets, st.integers(0, 2**32), st.integers(1, 1000))
def test_an_epoch_has_each_example_once(
    lengths: np.ndarray, batch_tokens: int, seed: int, epoch: int
) -> None:
    updates = plan(lengths, batch_tokens, seed, epoch)
    assert sorted(i for update in updates for i in update) == list(range(len(lengths)))
    assert all(updates)


@given(some_lengths, budgets, st.integers(1, 30))
def test_the_plan_takes_shuffled_examples_one_by_one(
    lengths: np.ndarray, batch_tokens: int, at_once: int
) -> None:
    expected: list[list[int]] = []
    room = 0
    for i in np.random.default_rng((1, 1)).permutation(len(lengths)).tolist():
        if lengths[i] > room or not expected:
            expected.append([])
            room = batch_tokens
        expected[-1].append(i)
        room -= lengths[i]
    with pytest.MonkeyPatch.context() as patch:  # however many are laid out at a time
        patch.setattr(batching, "EXAMPLES_AT_ONCE", at_once)
        assert plan(lengths, batch_tokens) == expected


def test_a_plan_takes_at_most_12_bytes_for_an_example() -> None:
    lengths = np.full(1_000_000, 20, dtype=np.int32)
    tracemalloc.start()
    next(plan_epoch(lengths, 25_000, seed=1, epoch=1))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak <= 12 * len(lengths)


@given(some_lengths, budgets)
def test_an_update_is_within_its_budget_and_has_no_room_for_the_next_example(
    lengths: np.ndarray, batch_tokens: int
) -> None:
    updates = plan(lengths, batch_tokens)
    for i, update in enumerate(updates):
        size = lengths[update].sum()
        assert size <= batch_tokens or len(update) == 1
        if i + 1 < len(updates):
            assert size + lengths[updates[i + 1][0]] > batch_tokens


def test_the_plan_is_a_function_of_its_arguments() -> None:
    lengths = zipf_lengths(500)
    first = plan(lengths)
    np.random.seed(3)  # global generators must not matter
    np.random.rand(10)
    torch.manual_seed(3)
    assert plan(lengths) == first
    assert plan(lengths.astype(np.int64)) == first
    assert plan(lengths, epoch=2) != first
    assert plan(lengths, seed=2) != first
    assert plan(lengths, seed=1, epoch=2) != plan(lengths, seed=2, epoch=1)
    order = list(itertools.chain(*first))
    assert list(itertools.chain(*plan(lengths, epoch=2))) != order


def test_an_update_is_a_random_sample_of_the_corpus() -> None:
    lengths = zipf_lengths(20_000)
    updates = plan(lengths, batch_tokens=4000)
    means = np.array([lengths[update].mean() for update in updates[:-1]])
    expected = lengths.std() / np.sqrt(4000 / lengths.mean())  # of means of independent draws
    assert 0.7 * expected < means.std() < 1.3 * expected
    assert abs(np.corrcoef(means[:-1], means[1:])[0, 1]) < 0.3
    positions = np.array([np.mean(update) for update in updates[:-1]]) / len(lengths)
    assert abs(positions - 0.5).max() < 0.15  # of all the corpus, not of a stretch of it


@given(
    st.lists(st.integers(1, 40), max_size=200).map(np.array),
    st.integers(1, 500),
    st.integers(1, 5),
)
def test_even_batches_hold_each_example_once_within_the_budget_and_are_no_more_than_they_must(
    lengths: np.ndarray, max_tokens: int, shares: int
) -> None:
    batches = even_batches(lengths, max_tokens, shares)
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * lengths[batch].max() <= max_tokens
    least = len(micro_batches(lengths, max_tokens))
    assert least <= len(batches) < least + shares


def test_even_batches_are_even_and_shared() -> None:
    lengths = np.random.default_rng(1).poisson(14, 200) + 1
    last = micro_batches(lengths, 2048)[-1]
    assert len(last) * lengths[last].max() < 2048 / 8  # what there is to even out
    for shares in (1, 2, 3, 4):
        batches = even_batches(lengths, 2048, shares)
        padded = [len(batch) * lengths[batch].max() for batch in batches]
        assert len(batches) % shares == 0
        assert max(padded) < 1.25 * min(padded)


@given(some_lengths, budgets)
def test_micro_batches_hold_each_example_once_within_what_a_device_takes(
    lengths: np.ndarray, max_tokens: int
) -> None:
    batches = micro_batches(lengths, max_tokens)
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) * lengths[batch].max() <= max_tokens or len(batch) == 1
    longest = [lengths[batch].max() for batch in batches]
    assert longest == sorted(longest, reverse=True)
    for batch, following in itertools.pairwise(batches):
        assert lengths[batch].min() >= lengths[following].max()


def test_little_of_a_micro_batch_is_padding() -> None:
    lengths = zipf_lengths(1500)
    padded = sum(len(batch) * lengths[batch].max() for batch in micro_batches(lengths, 2048))
    assert padded < 1.15 * lengths.sum()


def test_collate_lays_out_what_the_decoder_reads_and_what_it_should_say() -> None:
    src = [np.array([7, 8, EOS], dtype=np.int32), np.array([EOS], dtype=np.int32)]
    tgt = [np.array([9, EOS], dtype=np.int32), np.array([5, 6, 4, EOS], dtype=np.int32)]
    batch = collate(src, tgt)
    assert batch.src.tolist() == [[7, 8, EOS], [EOS, PAD, PAD]]
    assert batch.tgt.tolist() == [[BOS, 9, PAD, PAD], [BOS, 5, 6, 4]]
    assert batch.labels.tolist() == [[9, EOS, PAD, PAD], [5, 6, 4, EOS]]
    assert batch.num_tokens == 6
    assert {x.dtype for x in batch[:3]} == {torch.int64}


@given(st.lists(st.lists(st.integers(1, 99), max_size=9), min_size=1, max_size=9))
def test_padding_is_only_at_the_end_and_no_wider_than_needed(sequences: list[list[int]]) -> None:
    rows = pad([np.array(ids, dtype=np.int32) for ids in sequences]).tolist()
    width = max(1, *(len(ids) for ids in sequences)) if len(sequences) > 1 else len(rows[0])
    assert len(sequences) > 1 or width == max(1, len(sequences[0]))
    assert rows == [ids + [PAD] * (width - len(ids)) for ids in sequences]


def test_a_batch_moves_to_a_device_whole() -> None:
    batch = collate([np.array([7, EOS])], [np.array([9, EOS])])
    moved = batch.to(torch.device("meta"))
    packings = [(p.mask, p.places, p.sources) for p in moved[3:]]
    for tensors in (moved[:3], *packings):
        assert {x.device.type for x in tensors} == {"meta"}
    assert [x.shape for x in moved[:3]] == [x.shape for x in batch[:3]]


def test_prefetched_items_come_in_order() -> None:
    with Prefetcher(lambda: iter(range(100)), ahead=3) as items:
        assert list(items) == list(range(100))


def test_an_error_comes_where_its_item_would_have_come() -> None:
    def fails_at_third() -> Iterator[int]:
        yield from (1, 2)
        raise OSError("disk is gone")

    with Prefetcher(fails_at_third) as items:
        coming = iter(items)
        assert [next(coming), next(coming)] == [1, 2]
        with pytest.raises(OSError, match="disk is gone"):
            next(coming)


def test_waiting_for_an_item_ends_when_the_check_says_so() -> None:
    never = threading.Event()

    def stuck() -> Iterator[int]:
        never.wait()
        yield 1

    def check() -> None:
        never.set()  # else leaving would wait for the thread
        raise InterruptedError

    with Prefetcher(stuck, check=check) as items, pytest.raises(InterruptedError):
        next(iter(items))


@pytest.mark.parametrize("num_taken", [0, 1, 5])
def test_leaving_early_stops_the_thread_and_closes_the_iterator(num_taken: int) -> None:
    closed = threading.Event()

    def endless() -> Iterator[int]:
        try:
            while True:
                yield 1
        finally:
            closed.set()

    before = set(threading.enumerate())
    with Prefetcher(endless, ahead=2) as items:
        for _, _item in zip(range(num_taken), items, strict=False):
            pass
    assert set(threading.enumerate()) == before
    assert num_taken == 0 or closed.wait(1)


def test_the_thread_works_ahead_but_not_without_bound() -> None:
    made = []

    def count() -> Iterator[int]:
        for i in range(1000):
            made.append(i)
            yield i

    with Prefetcher(count, ahead=4) as items:
        first = next(iter(items))
        until = time.monotonic() + 10
        while len(made) < 6 and time.monotonic() < until:
            threading.Event().wait(0.001)
        assert first == 0
        assert len(made) == 6  # one taken, four that wait, one in hand
