"""Which tokens translate which, learned from pairs: IBM model 1 (Brown et al. 1993, sec. 4.1)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch

from transformer.data.tokenizer import Tokenizer, Tokenizers
from transformer.decoding.shortlist import Shortlist
from transformer.errors import UserError
from transformer.ids import BOS, EOS, PAD, UNK

MOST_LINKS = 40_000_000
"""Pairs of tokens that are looked at, which take some 40 bytes each."""
NUM_ROUNDS = 5
"""Rounds of expectation and maximisation."""


def learn_shortlist(
    pairs: Iterable[tuple[str, str]], tokenizers: Tokenizers, per_token: int, num_always: int
) -> Shortlist:
    """Learns which target tokens go with which source token.

    Args:
        pairs: source and target sentences.
        tokenizers: the vocabularies.
        per_token: most target tokens for each source token.
        num_always: most frequent target tokens, which go with every source.

    Raises:
        UserError: there are no pairs.
    """
    links = _Links.of(_encoded(pairs, tokenizers))
    if not len(links.words):
        raise UserError("no pairs to learn a shortlist from")
    probability = links.train()
    source_size = tokenizers.source.vocab_size
    order = np.lexsort((-probability, links.pair_source))
    source, target = links.pair_source[order], links.pair_target[order]
    firsts = np.searchsorted(source, np.arange(source_size))
    chosen = np.arange(len(source)) - firsts[source] < per_token
    found = list(zip(source[chosen].tolist(), target[chosen].tolist(), strict=True))
    if tokenizers.joint:  # names and numbers, which are translated by themselves
        found += [(token, token) for token in range(source_size)]
    found += product(_byte_tokens(tokenizers.source), _byte_tokens(tokenizers.target))
    every = np.array(sorted(set(found)))
    starts = np.searchsorted(every[:, 0], np.arange(source_size + 1))
    frequent = np.argsort(-np.bincount(links.words), kind="stable")[:num_always]
    always = {PAD, UNK, BOS, EOS, *frequent.tolist()}
    return Shortlist(
        torch.tensor(sorted(always)), torch.from_numpy(starts), torch.from_numpy(every[:, 1].copy())
    )


def _encoded(
    pairs: Iterable[tuple[str, str]], tokenizers: Tokenizers
) -> list[tuple[list[int], list[int]]]:
    """Returns the ids of pairs, until they have as many links as may be; without those that are
    blank or have a hundredth of all links alone.
    """
    found, num_links = [], 0
    for source, target in pairs:
        src, tgt = tokenizers.source.encode([source])[0], tokenizers.target.encode([target])[0]
        num = len(src) * len(tgt)
        if min(len(src), len(tgt)) == 1 or num > MOST_LINKS // 100:
            continue
        num_links += num
        if num_links > MOST_LINKS:
            break
        found.append((src, tgt))
    return found


def _byte_tokens(tokenizer: Tokenizer) -> Sequence[int]:
    """Returns the tokens that spell what the vocabulary has no other tokens for."""
    pieces = tokenizer.pieces(range(tokenizer.vocab_size))
    return [i for i, piece in enumerate(pieces) if piece.startswith("<0x")]


@dataclass(frozen=True)
class _Links:
    """Every source token of a pair with every target token of it, L links.

    Attributes:
        words: the target tokens of all pairs, one after the other, (W,).
        word: the number in `words` of each link's target token, (L,).
        pair: the number of each link's pair of tokens, (L,).
        pair_source: the source token of each of the P pairs of tokens, (P,).
        pair_target: the target token, (P,).
    """

    words: np.ndarray
    word: np.ndarray
    pair: np.ndarray
    pair_source: np.ndarray
    pair_target: np.ndarray

    @classmethod
    def of(cls, pairs: Sequence[tuple[list[int], list[int]]]) -> _Links:
        """Links sentences. The end of the source stands for nothing: it takes what no word says."""
        words = np.array([token for _, tgt in pairs for token in tgt], dtype=np.int64)
        source_lengths = np.array([len(src) for src, tgt in pairs for _ in tgt], dtype=np.int64)
        word = np.repeat(np.arange(len(words), dtype=np.int32), source_lengths)
        sources = [np.tile(np.array(src, dtype=np.int64), len(tgt)) for src, tgt in pairs]
        source = np.concatenate(sources) if sources else np.zeros(0, dtype=np.int64)
        size = int(words.max(initial=0)) + 1
        every, pair = np.unique(source * size + words[word], return_inverse=True)
        return cls(words, word, pair.astype(np.int32), every // size, every % size)

    def train(self) -> np.ndarray:
        """Returns the probability of the target token given the source token, of each pair (P,)."""
        probability = np.ones(len(self.pair_source))
        for _ in range(NUM_ROUNDS):
            of_links = probability[self.pair]
            of_words = np.bincount(self.word, of_links)
            counts = np.bincount(self.pair, of_links / of_words[self.word])
            of_sources = np.bincount(self.pair_source, counts)
            probability = counts / of_sources[self.pair_source]
        return probability
