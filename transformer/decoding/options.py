"""How to search."""

from __future__ import annotations

import math
from dataclasses import dataclass

from transformer.config import DecodingConfig


@dataclass(frozen=True)
class SearchOptions:
    """How to search; the names and meanings are those of `DecodingConfig`.

    Raises:
        ValueError: a value is out of range, or two contradict each other.
    """

    beam_size: int = 5
    n_best: int = 1
    length_penalty: float = 1.0
    min_length: int = 0
    min_length_ratio: float = 0.0
    max_length: int = 50
    max_length_ratio: float = 2.0

    def __post_init__(self) -> None:
        if min(self.beam_size, self.n_best, self.max_length) < 1:
            raise ValueError("beam_size, n_best and max_length must be at least 1")
        if min(self.length_penalty, self.min_length, self.min_length_ratio) < 0:
            raise ValueError("length_penalty, min_length and min_length_ratio must not be negative")
        for name, most in (
            ("length_penalty", 10),
            ("max_length", 10**6),
            ("max_length_ratio", 1000),
        ):
            if not getattr(self, name) <= most:
                raise ValueError(f"{name} {getattr(self, name)} exceeds {most}")
        for low, high in (
            ("n_best", "beam_size"),
            ("min_length", "max_length"),
            ("min_length_ratio", "max_length_ratio"),
        ):
            if getattr(self, low) > getattr(self, high):
                raise ValueError(f"{low} {getattr(self, low)} exceeds {high} {getattr(self, high)}")

    @classmethod
    def from_config(cls, config: DecodingConfig) -> SearchOptions:
        """Returns the options that a configuration names."""
        return cls(**config.model_dump(exclude={"batch_tokens", "precision"}))

    def limits(self, source_length: int) -> tuple[int, int]:
        """Returns the fewest and the most tokens of a translation, its end not counted.

        `source_length` counts the source's tokens without its end.
        """
        tiny = 1e-9  # 0.1 * 30 is a little more than 3
        fewest = max(self.min_length, math.ceil(self.min_length_ratio * source_length - tiny))
        most = self.max_length + math.floor(self.max_length_ratio * source_length + tiny)
        return fewest, most
