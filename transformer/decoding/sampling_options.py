"""How to sample."""

from __future__ import annotations

from pydantic import Field

from transformer.config import Count, Positive, Section, Seed


class SamplingOptions(Section):
    """How to draw translations at random.

    Raises:
        ValueError: a value is out of range.
    """

    sample: Positive = 1
    """Translations drawn for each line at random, instead of a search."""
    temperature: float = Field(default=1.0, ge=0.0, le=1000.0)
    """Log-probabilities are divided by it before a draw; 0 takes the most probable token."""
    top_k: Count = 0
    """Draws among so many of the most probable tokens; 0 is all."""
    top_p: float = Field(default=1.0, gt=0.0, le=1.0)
    """Draws among the fewest most probable tokens that have this probability together."""
    seed: Seed = 1
    """Decides the draws, together with the line's text and the number of the sample."""
