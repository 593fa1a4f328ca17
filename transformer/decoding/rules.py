"""What must not be said next."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from transformer.decoding.constraints import Constraints, Phrases
from transformer.decoding.options import SearchOptions
from transformer.ids import BOS, EOS, PAD, UNK


@dataclass(frozen=True)
class Rules:
    """What translations of B sentences must keep to, while they grow.

    Attributes:
        fewest: tokens before the end of sentence may come, (B,).
        most: tokens after which it must come, (B,).
        prefix: tokens that translations begin with, padded, (B, P).
        include: phrases that they contain.
        exclude: phrases that they do not contain.
        never: tokens that are never said.
        no_repeat_ngram: tokens of a sequence that is not said twice; 0 = any may be.
    """

    fewest: Tensor
    most: Tensor
    prefix: Tensor
    include: Phrases
    exclude: Phrases
    never: list[int]
    no_repeat_ngram: int

    @classmethod
    def start(
        cls,
        src: Tensor,
        options: SearchOptions,
        constraints: Sequence[Constraints] | None = None,
    ) -> Rules:
        """Returns the rules for source sentences (B, S), each with constraints of its own.

        Limits of length count what follows the prefix. Where phrases need more room, they have it.
        """
        each = constraints or [Constraints()] * len(src)
        limits = []
        for length, own in zip(((src != PAD) & (src != EOS)).sum(1).tolist(), each, strict=True):
            fewest, most = options.limits(length)
            most = max(most, sum(map(len, own.include)))
            limits.append((fewest + len(own.prefix), most + len(own.prefix)))
        bounds = torch.tensor(limits, device=src.device)
        width = max(len(own.prefix) for own in each)
        padded = [[*own.prefix, *[PAD] * (width - len(own.prefix))] for own in each]
        return cls(
            fewest=bounds[:, 0],
            most=bounds[:, 1],
            prefix=torch.tensor(padded, dtype=torch.long, device=src.device).view(len(src), width),
            include=Phrases.of([own.include for own in each], src.device),
            exclude=Phrases.of([own.exclude for own in each], src.device),
            never=[PAD, BOS, UNK] if options.ban_unknown else [PAD, BOS],
            no_repeat_ngram=options.no_repeat_ngram,
        )

    def select(self, sentences: Tensor) -> Rules:
        """Returns the rules of some of the sentences."""
        return replace(
            self,
            fewest=self.fewest[sentences],
            most=self.most[sentences],
            prefix=self.prefix[sentences],
            include=self.include.select(sentences),
            exclude=self.exclude.select(sentences),
        )

    def without_limit(self, sentences: Tensor) -> Rules:
        """Returns the rules for which these sentences, bool (B,), are never too long."""
        return replace(self, most=self.most.masked_fill(sentences, torch.iinfo(torch.int32).max))

    def forbid(self, log_probs: Tensor, ids: Tensor) -> Tensor:
        """Sets to -inf, in place, what must not be said next, and tells who ends willingly: (B, K).

        Within the prefix only the prefix counts.

        Args:
            log_probs: of each token after each hypothesis, (B, K, V).
            ids: of the hypotheses, from the beginning of sentence on, (B, K, T + 1).
        """
        length = ids.size(2) - 1
        in_prefix = length < self.prefix.size(1)
        given = self._given(log_probs, length) if in_prefix else log_probs
        log_probs[:, :, self.never] = -math.inf
        too_short = length < self.fewest
        if too_short.any():
            log_probs[:, :, EOS].masked_fill_(too_short[:, None], -math.inf)
        if self.include:
            missing = ~self.include.contained(ids).all(2)
            log_probs[:, :, EOS].masked_fill_(missing, -math.inf)
        if self.exclude:
            _forbid_phrases(log_probs, ids, self.exclude)
        if 0 < self.no_repeat_ngram <= length:
            _forbid_repeats(log_probs, ids, self.no_repeat_ngram)
        willing = self._end_at_limit(log_probs, length)
        if in_prefix:
            inside = (self.prefix[:, length] != PAD)[:, None, None]
            log_probs.copy_(torch.where(inside, given, log_probs))
        return willing

    def _given(self, log_probs: Tensor, length: int) -> Tensor:
        """Returns the log-probabilities of what the prefix says next, -inf for all else."""
        tokens = self.prefix[:, length, None, None].expand(-1, log_probs.size(1), -1)
        nothing = torch.full_like(log_probs, -math.inf)
        return nothing.scatter(2, tokens, log_probs.gather(2, tokens))

    def _end_at_limit(self, log_probs: Tensor, length: int) -> Tensor:
        """Leaves only the end to those at their limit; tells who would rather end: (B, K)."""
        at_limit = (length >= self.most)[:, None]
        willing = ~at_limit.expand(log_probs.shape[:2])
        if at_limit.any():
            end = log_probs[:, :, EOS].clone()
            willing = willing | (end >= log_probs.amax(-1))
            log_probs.masked_fill_(at_limit[:, :, None], -math.inf)
            log_probs[:, :, EOS] = end
        return willing


def _forbid_phrases(log_probs: Tensor, ids: Tensor, phrases: Phrases) -> None:
    """Forbids the last token of a phrase to those who have said the others, in place."""
    last = (phrases.lengths - 1).clamp(min=0)[:, None, :, None].expand(-1, ids.size(1), -1, -1)
    begun = phrases.begun(ids).gather(3, last)[..., 0] & (phrases.lengths > 0)[:, None]
    sentences, places, which = begun.nonzero(as_tuple=True)
    log_probs[
        sentences, places, phrases.tokens[sentences, which, last[sentences, 0, which, 0]]
    ] = -math.inf


def _forbid_repeats(log_probs: Tensor, ids: Tensor, num_tokens: int) -> None:
    """Forbids what would complete a sequence of n tokens that was said before, in place."""
    said = ids[:, :, 1:].unfold(2, num_tokens, 1)  # (B, K, T) -> (B, K, T - n + 1, n)
    tail = ids[:, :, ids.size(2) - num_tokens + 1 :]
    repeated = (said[..., :-1] == tail[:, :, None]).all(3)
    sentences, places, which = repeated.nonzero(as_tuple=True)
    log_probs[sentences, places, said[sentences, places, which, -1]] = -math.inf
