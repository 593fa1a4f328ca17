"""Random choices that every Python version makes alike."""

import random
from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")


class Chooser:
    """Random choices that depend on the seed alone, in every Python version."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed).random

    def one(self, items: Sequence[Item]) -> Item:
        """One of the items."""
        return items[int(self._random() * len(items))]

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self._random() < probability

    def weighted(self, items: Sequence[tuple[Item, int]]) -> Item:
        """One of the items, in proportion to its weight."""
        point = self._random() * sum(weight for _, weight in items)
        for item, weight in items:
            point -= weight
            if point < 0:
                return item
        return items[-1][0]
