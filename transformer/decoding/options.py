"""How to search."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import get_args

from transformer.config import DecodingConfig
from transformer.decoding.formula import LengthNormalization, ScoreFormula

BOUNDS = (
    ("beam_size", 1, 10**4),
    ("n_best", 1, 10**4),
    ("length_penalty", 0, 10),
    ("coverage_penalty", 0, 10),
    ("min_length", 0, 10**6),
    ("min_length_ratio", 0, 1000),
    ("max_length", 1, 10**6),
    ("max_length_ratio", 0, 1000),
    ("no_repeat_ngram", 0, 10**6),
    ("beam_groups", 1, 10**6),
    ("diversity", 0, 1000),
)
"""Settings with their least and greatest values."""


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
    length_normalization: LengthNormalization = "power"
    coverage_penalty: float = 0.0
    no_repeat_ngram: int = 0
    ban_unknown: bool = False
    beam_groups: int = 1
    diversity: float = 0.5

    def __post_init__(self) -> None:
        for name, least, most in BOUNDS:
            value = getattr(self, name)
            if value > most:
                raise ValueError(f"{name} {value} exceeds {most}")
            if not value >= least:
                raise ValueError(f"{name} {value} is not {least} or more")
        for low, high in (
            ("n_best", "beam_size"),
            ("min_length", "max_length"),
            ("min_length_ratio", "max_length_ratio"),
        ):
            if getattr(self, low) > getattr(self, high):
                raise ValueError(f"{low} {getattr(self, low)} exceeds {high} {getattr(self, high)}")
        if self.length_normalization not in get_args(LengthNormalization):
            raise ValueError(f"length_normalization {self.length_normalization} is unknown")
        if self.beam_size % self.beam_groups:
            raise ValueError(
                f"beam_groups {self.beam_groups} does not divide beam_size {self.beam_size}"
            )

    @classmethod
    def from_config(cls, config: DecodingConfig) -> SearchOptions:
        """Returns the options that a configuration names."""
        others = {"batch_tokens", "processes", "shortlist", "precision"}
        return cls(**config.model_dump(exclude=others))

    @property
    def formula(self) -> ScoreFormula:
        """What hypotheses are ranked by."""
        return ScoreFormula(self.length_penalty, self.length_normalization, self.coverage_penalty)

    @property
    def group_size(self) -> int:
        """Hypotheses kept of each group."""
        return self.beam_size // self.beam_groups

    def limits(self, source_length: int) -> tuple[int, int]:
        """Returns the fewest and the most tokens of a translation, its end not counted.

        `source_length` counts the source's tokens without its end.
        """
        tiny = 1e-9  # 0.1 * 30 is a little more than 3
        fewest = max(self.min_length, math.ceil(self.min_length_ratio * source_length - tiny))
        most = self.max_length + math.floor(self.max_length_ratio * source_length + tiny)
        return fewest, most
