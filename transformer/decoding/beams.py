"""Hypotheses of one length, and how the best of those one token longer are found."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from transformer.ids import BOS

GROUP = 32
"""Tokens of a long vocabulary whose greatest log-probability is looked at first."""


@dataclass(frozen=True)
class Hypothesis:
    """A translation that the search found.

    Attributes:
        ids: its tokens, the end of sentence last.
        score: by the formula of the options that it was found with.
        log_probs: of each token, the end of sentence too.
        finished: False if it was cut: it came to its limit, where the model would rather have gone
            on than ended. Its end and score are then those of the text as it stands.
    """

    ids: list[int]
    score: float
    log_probs: list[float]
    finished: bool


@dataclass(frozen=True)
class Beams:
    """Hypotheses of the same length, K for each of B sentences.

    Attributes:
        ids: from the beginning of sentence on, (B, K, T + 1).
        log_probs: of each token after that, (B, K, T).
        totals: their sums, (B, K); -inf marks a place without a hypothesis.
    """

    ids: Tensor
    log_probs: Tensor
    totals: Tensor

    @classmethod
    def start(cls, num_sentences: int, num_each: int, device: torch.device) -> Beams:
        """Returns empty hypotheses, so many of each sentence."""
        wide = torch.float32 if device.type == "mps" else torch.float64
        return cls(
            torch.full((num_sentences, num_each, 1), BOS, device=device),
            torch.zeros(num_sentences, num_each, 0, device=device),
            torch.zeros(num_sentences, num_each, dtype=wide, device=device),
        )

    @property
    def length(self) -> int:
        """Tokens of each hypothesis, T."""
        return self.log_probs.size(2)

    def select(self, sentences: Tensor) -> Beams:
        """Returns the beams of some of the sentences."""
        return Beams(self.ids[sentences], self.log_probs[sentences], self.totals[sentences])

    def pick(self, places: Tensor) -> Beams:
        """Returns the hypotheses at `places` (B, N) of each sentence."""
        wide = places[:, :, None]
        return Beams(
            self.ids.gather(1, wide.expand(-1, -1, self.ids.size(2))),
            self.log_probs.gather(1, wide.expand(-1, -1, self.log_probs.size(2))),
            self.totals.gather(1, places),
        )

    def extend(self, extensions: Extensions) -> Beams:
        """Returns hypotheses that are one token longer."""
        before = self.pick(extensions.parents)
        ids = torch.cat((before.ids, extensions.tokens[:, :, None]), dim=2)
        log_probs = torch.cat((before.log_probs, extensions.log_probs[:, :, None]), dim=2)
        return Beams(ids, log_probs, before.totals + extensions.log_probs)


@dataclass(frozen=True)
class Extensions:
    """Hypotheses by one token: N of each of B sentences, the most probable first.

    Attributes:
        parents: the places of the hypotheses, (B, N).
        tokens: what each says next, (B, N).
        log_probs: of those tokens, (B, N).
    """

    parents: Tensor
    tokens: Tensor
    log_probs: Tensor


def best_extensions(totals: Tensor, log_probs: Tensor, num: int) -> Extensions:
    """Returns the `num` extensions with the greatest totals, or as many as there are.

    Args:
        totals: of the hypotheses, (B, K).
        log_probs: of each token after each hypothesis, (B, K, V).
        num: how many.

    To look for the best of a whole vocabulary takes about as long as to compute it. A maximum is
    found far sooner: so the vocabulary is cut into groups, and only the groups with the greatest
    maxima are searched, which hold the best there are.
    """
    num_sentences, _, size = log_probs.shape
    num = min(num, log_probs[0].numel())
    num_groups = size // GROUP
    flat = log_probs.flatten(1)
    if num_groups < 4 * num:
        best = (totals[:, :, None] + log_probs).flatten(1).topk(num).indices
        return Extensions(best // size, best % size, flat.gather(1, best))
    device = log_probs.device
    grouped = log_probs[:, :, : num_groups * GROUP].unflatten(2, (GROUP, num_groups))
    maxima = (totals[:, :, None] + grouped.amax(2)).flatten(1)  # (B, K * G)
    groups = maxima.topk(num).indices
    first = groups // num_groups * size + groups % num_groups  # their first tokens in `flat`
    members = first[:, :, None] + torch.arange(GROUP, device=device) * num_groups
    rest = torch.arange(num_groups * GROUP, size, device=device)  # of no group
    rest = rest + torch.arange(totals.size(1), device=device)[:, None] * size
    places = torch.cat((members.flatten(1), rest.flatten().expand(num_sentences, -1)), dim=1)
    steps = flat.gather(1, places)
    best = (totals.gather(1, places // size) + steps).topk(num).indices
    places = places.gather(1, best)
    return Extensions(places // size, places % size, steps.gather(1, best))
