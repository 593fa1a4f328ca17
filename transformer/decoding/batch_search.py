"""One batch of parts to their hypotheses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from transformer.data.batching import pad
from transformer.data.tokenizer import Tokenizer
from transformer.decoding.beams import Hypothesis
from transformer.decoding.constraints import Constraints
from transformer.decoding.exclusion import search_without
from transformer.decoding.options import SearchOptions
from transformer.decoding.parts import Part
from transformer.decoding.sampling import sample
from transformer.decoding.sampling_options import SamplingOptions
from transformer.decoding.search import beam_search
from transformer.model.transformer import Transformer


class Task(NamedTuple):
    """What is searched at once.

    Attributes:
        parts: whose translations are sought.
        options: how to search.
        sampling: how to draw translations instead, if that is asked for.
    """

    parts: Sequence[Part]
    options: SearchOptions
    sampling: SamplingOptions | None = None


def search_batch(
    models: Sequence[Transformer], target: Tokenizer, task: Task
) -> list[list[Hypothesis]]:
    """Searches for the translations of a batch, or draws them: `n_best` or all samples of each."""
    device = next(models[0].parameters()).device

    def search(rows: Sequence[int], own: Sequence[Constraints]) -> list[list[Hypothesis]]:
        src = pad([np.array(task.parts[i].src) for i in rows]).to(device)
        if task.sampling is not None:
            return sample(models, src, task.options, task.sampling, own)
        return beam_search(models, src, task.options, own)

    constraints = [part.constraints for part in task.parts]
    excluded = [part.excluded for part in task.parts]
    return search_without(search, constraints, excluded, target)
