"""From lengths to updates to batches: which examples an update sees, and how they are laid out on a
device.

The order of an epoch is a function of (lengths, batch_tokens, seed, epoch) and nothing else: no
state, no number of devices, no number of workers.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from transformer.ids import BOS, PAD
from transformer.model.packing import Packing, copy_to

T = TypeVar("T")

EXAMPLES_AT_ONCE = 1 << 17
"""So many examples of an epoch are laid out at a time."""


class Batch(NamedTuple):
    """Sentences side by side, padded at the end with 0.

    Attributes:
        src: source ids (B, S), the end of sentence included.
        tgt: what the decoder reads: the beginning of sentence, then the target ids: (B, T).
        labels: what it should say: the target ids, then the end of sentence: (B, T).
        src_packing: where the real source tokens are.
        tgt_packing: where the real target tokens are.
    """

    src: Tensor
    tgt: Tensor
    labels: Tensor
    src_packing: Packing
    tgt_packing: Packing

    @property
    def num_tokens(self) -> int:
        """Number of target tokens, padding not counted."""
        return self.tgt_packing.num_tokens

    def to(self, device: torch.device) -> Batch:
        """Copies the batch to a device, without waiting."""
        src, tgt, labels = (copy_to(x, device) for x in (self.src, self.tgt, self.labels))
        return Batch(src, tgt, labels, self.src_packing.to(device), self.tgt_packing.to(device))

    def rounded(self, multiple: int) -> Batch:
        """Returns the same with packings of so round numbers of tokens."""
        src, tgt = (x.rounded(multiple) for x in (self.src_packing, self.tgt_packing))
        return self._replace(src_packing=src, tgt_packing=tgt)


def plan_epoch(
    lengths: np.ndarray, batch_tokens: int, seed: int, epoch: int
) -> Iterator[np.ndarray]:
    """Yields the updates of an epoch: arrays of example indices, each example once.

    The examples are shuffled and taken in that order, as many as `batch_tokens` allows: an update
    is a random sample. One example longer than the budget is an update of its own.

    Args:
        lengths: tokens of each example's longer side.
        batch_tokens: most tokens of an update.
        seed: the run's seed.
        epoch: counts from 1.
    """
    kind = np.uint32 if len(lengths) < 1 << 32 else np.uint64  # half the memory, the same order
    order = np.arange(len(lengths), dtype=kind)
    np.random.default_rng((seed, epoch)).shuffle(order)
    first = 0
    while first < len(order):
        # An example has a token at least, so an update ends within batch_tokens of them.
        stretch = order[first : first + batch_tokens + EXAMPLES_AT_ONCE]
        is_last = first + len(stretch) == len(order)
        ends = np.cumsum(lengths[stretch], dtype=np.int64)
        start, taken = 0, 0
        while start < len(stretch):
            after = int(np.searchsorted(ends, taken + batch_tokens, side="right"))
            after = max(after, start + 1)
            if after == len(stretch) and not is_last:
                break  # it may go on beyond the stretch
            yield stretch[start:after]
            start, taken = after, int(ends[after - 1])
        first += start


def micro_batches(lengths: np.ndarray, max_tokens: int) -> list[np.ndarray]:
    """Cuts an update into micro-batches of examples of like length; returns positions in the
    update.

    Rows times the longest is at most `max_tokens`, unless one example alone exceeds it. The longest
    come first, so that a device that is too small says so at once.
    """
    order = np.argsort(-lengths, kind="stable")
    batches, first = [], 0
    while first < len(order):
        rows = max(1, max_tokens // int(lengths[order[first]]))
        batches.append(order[first : first + rows])
        first += rows
    return batches


def even_batches(lengths: np.ndarray, max_tokens: int, shares: int = 1) -> list[np.ndarray]:
    """Cuts examples into micro-batches as `micro_batches` does, but so that they are about equal,
    and as many for each of `shares` workers, as far as lengths allow.
    """
    least, most = int(lengths.max(initial=1)), max_tokens
    num_batches = len(micro_batches(lengths, most))
    num_batches += -num_batches % shares
    while least < most:  # the lowest budget that makes no more of them
        middle = (least + most) // 2
        if len(micro_batches(lengths, middle)) > num_batches:
            least = middle + 1
        else:
            most = middle
    return micro_batches(lengths, most)


def pad(sequences: Sequence[np.ndarray]) -> Tensor:
    """Lays sequences side by side, filled up with padding: n of (T_i,) -> (n, max T_i)."""
    lengths = np.array([len(ids) for ids in sequences])
    out = np.full((len(sequences), int(lengths.max(initial=1))), PAD, dtype=np.int64)
    out[np.arange(out.shape[1]) < lengths[:, None]] = np.concatenate(sequences)
    return torch.from_numpy(out)


def collate(src: Sequence[np.ndarray], tgt: Sequence[np.ndarray]) -> Batch:
    """Makes a batch of pairs of ids, each with its end of sentence."""
    labels = pad(tgt)
    shifted = torch.full_like(labels, BOS)
    shifted[:, 1:] = labels[:, :-1]
    shifted[labels == PAD] = PAD
    padded = pad(src)
    return Batch(padded, shifted, labels, Packing.of(padded != PAD), Packing.of(labels != PAD))


class Prefetcher(Generic[T]):
    """Computes the items of an iterator in a thread, some ahead, so that the training loop does not
    wait.

    Use it as a context manager: leaving the block stops the thread. An error of the iterator is
    raised where its item would have come.

    Args:
        make: makes the iterator, in the thread.
        ahead: items to compute ahead.
        check: called now and then while an item is waited for; what it raises ends the waiting.
    """

    def __init__(
        self,
        make: Callable[[], Iterator[T]],
        ahead: int = 4,
        check: Callable[[], object] = lambda: None,
    ) -> None:
        self._check = check
        self._queue: queue.Queue[tuple[str, object]] = queue.Queue(maxsize=ahead)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._fill, args=(make,), daemon=True)

    def _fill(self, make: Callable[[], Iterator[T]]) -> None:
        try:
            for item in make():
                if not self._put("item", item):
                    return
            self._put("end", None)
        except BaseException as error:
            self._put("error", error)

    def _put(self, kind: str, value: object) -> bool:
        while not self._stopped.is_set():
            try:
                self._queue.put((kind, value), timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def __enter__(self) -> Prefetcher[T]:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _take(self) -> tuple[str, object]:
        while True:
            try:
                return self._queue.get(timeout=0.1)
            except queue.Empty:
                self._check()

    def __iter__(self) -> Iterator[T]:
        while True:
            kind, value = self._take()
            if kind == "end":
                return
            if kind == "error":
                raise value  # type: ignore[misc]
            yield value  # type: ignore[misc]
