"""What the translation of a line must or must not contain, as tokens."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer.decoding.beams import Extensions
from transformer.ids import BOS, EOS, PAD

NONE = -1
"""Stands where a phrase has no token."""


@dataclass(frozen=True)
class Constraints:
    """What holds for the translation of one line.

    Attributes:
        prefix: what it begins with.
        include: phrases that it contains, each as tokens that follow each other.
        exclude: phrases that it does not contain; within the prefix they may stand.

    Raises:
        ValueError: a phrase is empty, or holds padding, beginning or end of sentence.
    """

    prefix: tuple[int, ...] = ()
    include: tuple[tuple[int, ...], ...] = ()
    exclude: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        if not all(self.include) or not all(self.exclude):
            raise ValueError("a phrase is empty")
        if {PAD, BOS, EOS} & {
            x for ids in (self.prefix, *self.include, *self.exclude) for x in ids
        }:
            raise ValueError("a prefix or phrase holds padding, beginning or end of sentence")


@dataclass(frozen=True)
class Phrases:
    """Up to P phrases of each of B sentences, of up to L tokens.

    Attributes:
        tokens: (B, P, L), `NONE` behind the last token of a phrase.
    """

    tokens: Tensor

    @classmethod
    def of(
        cls, phrases: Sequence[Sequence[Sequence[int]]], device: torch.device | str = "cpu"
    ) -> Phrases:
        """Returns the phrases of each sentence."""
        most = max(map(len, phrases), default=0)
        longest = max((len(ids) for each in phrases for ids in each), default=0)
        padded = [
            [[*ids, *[NONE] * (longest - len(ids))] for ids in [*each, *[()] * (most - len(each))]]
            for each in phrases
        ]
        tokens = torch.tensor(padded, dtype=torch.long, device=device)
        return cls(tokens.view(len(phrases), most, longest))

    def __bool__(self) -> bool:
        return self.tokens.size(1) > 0

    @property
    def lengths(self) -> Tensor:
        """Tokens of each phrase: (B, P)."""
        return (self.tokens != NONE).sum(2)

    def select(self, sentences: Tensor) -> Phrases:
        """Returns the phrases of some of the sentences."""
        return Phrases(self.tokens[sentences])

    def begun(self, ids: Tensor) -> Tensor:
        """Tells where hypotheses end with the first j tokens of a phrase, for each j: (B, N, T) ->
        bool (B, N, P, L + 1); False where the phrase is not so long.
        """
        longest = self.tokens.size(2)
        tails = F.pad(ids, (longest, 0), value=NONE - 1)
        found = [
            (tails[:, :, None, tails.size(2) - j :] == self.tokens[:, None, :, :j]).all(3)
            for j in range(longest + 1)
        ]
        begun = torch.stack(found, dim=3)
        possible = torch.arange(longest + 1, device=ids.device) <= self.lengths[:, :, None]
        return begun & possible[:, None]

    def contained(self, ids: Tensor) -> Tensor:
        """Tells which phrases hypotheses contain: (B, N, T) -> bool (B, N, P); True if there is no
        such phrase.
        """
        longest = self.tokens.size(2)
        windows = F.pad(ids, (0, longest), value=NONE - 1).unfold(2, longest, 1)  # (B, N, T', L)
        tokens = self.tokens[:, None, :, None]
        return ((windows[:, :, None] == tokens) | (tokens == NONE)).all(4).any(3)

    def next_tokens(self, ids: Tensor) -> Tensor:
        """Returns the token that brings each phrase forward, after the longest part of it that
        hypotheses end with: (B, N, T) -> (B, N, P); `NONE` if the phrase is complete.
        """
        matched = _longest(self.begun(ids))
        tokens = F.pad(self.tokens, (0, 1), value=NONE)[:, None].expand(-1, ids.size(1), -1, -1)
        following = tokens.gather(3, matched[..., None])[..., 0]
        return following.masked_fill(self.contained(ids), NONE)

    def num_said(self, ids: Tensor) -> Tensor:
        """Counts the tokens of all phrases that hypotheses have said, of a phrase that is not
        complete those that they end with: (B, N, T) -> (B, N).
        """
        lengths = self.lengths[:, None].expand(-1, ids.size(1), -1)
        return _longest(self.begun(ids)).where(~self.contained(ids), lengths).sum(2)


def _longest(begun: Tensor) -> Tensor:
    """Returns the greatest j that holds: (B, N, P, L + 1) -> (B, N, P)."""
    return (begun * torch.arange(begun.size(3), device=begun.device)).amax(3)


def extensions_towards(
    phrases: Phrases, ids: Tensor, totals: Tensor, log_probs: Tensor, num: int
) -> Extensions:
    """Returns `num` extensions such that some of them bring the phrases forward.

    As in Post and Vilar 2018, section 3, but for how places are shared out: extensions are ranked
    among those that have said as many tokens of the phrases; the best of each rank come first, and
    in a rank those that have said more. Without phrases these are the most probable ones.

    Args:
        phrases: what the sentences must contain.
        ids: of the hypotheses, (B, K, T).
        totals: of the hypotheses, (B, K).
        log_probs: of each token after each hypothesis, (B, K, V).
        num: how many.
    """
    steps, tokens = log_probs.topk(min(num, log_probs.size(2)))  # (B, K, V) -> (B, K, M)
    needed = phrases.next_tokens(ids)
    known = (needed[..., None] == tokens[:, :, None]).any(3) | (needed == NONE)
    twice = (needed[..., None] == needed[:, :, None]).tril(-1).any(3)
    needed_steps = log_probs.gather(2, needed.clamp(min=0)).masked_fill(known | twice, -math.inf)
    steps = torch.cat((steps, needed_steps), dim=2)
    tokens = torch.cat((tokens, needed.clamp(min=0)), dim=2).flatten(1)  # (B, K * (M + P))
    sums = (totals[:, :, None] + steps).flatten(1)
    parents = torch.arange(totals.size(1), device=ids.device).repeat_interleave(steps.size(2))
    longer = torch.cat((ids[:, parents], tokens[:, :, None]), dim=2)
    order = sums.argsort(dim=1, descending=True, stable=True)
    said = phrases.num_said(longer).gather(1, order)
    rank = _rank_among_equals(said)
    key = rank * (said.amax() + 1) - said
    key = key.masked_fill(sums.gather(1, order) == -math.inf, torch.iinfo(key.dtype).max)
    order = order.gather(1, key.argsort(dim=1, stable=True)[:, :num])
    return Extensions(parents[order], tokens.gather(1, order), steps.flatten(1).gather(1, order))


def _rank_among_equals(values: Tensor) -> Tensor:
    """Returns how many equal values stand before each one: (B, N) -> (B, N)."""
    order = values.argsort(dim=1, stable=True)
    ordered = values.gather(1, order)
    places = torch.arange(values.size(1), device=values.device).expand_as(values)
    is_first = ordered != ordered.roll(1, dims=1)
    firsts = torch.where(is_first, places, 0).cummax(dim=1).values
    return torch.zeros_like(values).scatter(1, order, places - firsts)
