"""Random segmentations of a line into subwords, a function of the line and a seed alone.

SentencePiece draws from generators of its own, which give other numbers in every process; a run
that resumes needs the same ones. So the two sampling rules stand here, over the pieces of a
trained model: BPE-dropout (Provilkov et al. 2020, section 3, with SentencePiece's rule that a
dropped merge is not tried again) and sampling from the unigram lattice (Kudo 2018, section 3.2).

Pieces never span a space, so a line falls into words that are segmented independently; what is
computed for a word is kept for its next occurrence.
"""

from __future__ import annotations

import math
import random
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from heapq import heapify, heappop, heappush
from itertools import accumulate

from transformer.ids import UNK

SPACE = "\u2581"
CACHED_WORDS = 1 << 16
CACHED_LENGTH = 32


@dataclass(frozen=True)
class Pieces:
    """What a trained model knows.

    Attributes:
        normal: id and score of each ordinary piece.
        symbols: id of each user symbol.
        byte_ids: ids of the 256 byte pieces; empty without byte fallback.
        is_bpe: scores are the order of merges, not log-probabilities.
        longest: characters of the longest ordinary piece.
        lowest: the lowest score of one.
    """

    normal: dict[str, tuple[int, float]]
    symbols: dict[str, int]
    byte_ids: list[int]
    is_bpe: bool
    longest: int = field(init=False)
    lowest: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "longest", max(map(len, self.normal), default=1))
        scores = (score for _, score in self.normal.values())
        object.__setattr__(self, "lowest", min(scores, default=0.0))

    def ids(self, text: str) -> list[int]:
        """Returns the id of a piece, or the bytes that spell it."""
        if text in self.normal:
            return [self.normal[text][0]]
        return [self.byte_ids[b] for b in text.encode()] if self.byte_ids else [UNK]


WordSampler = Callable[[str, random.Random], Sequence[int]]


def make_sampler(pieces: Pieces, rate: float) -> Callable[[str, int], list[int]]:
    """Returns a function that segments a normalised line at random, decided by a seed.

    Args:
        pieces: the model.
        rate: bpe: probability of dropping a merge; unigram: the exponent alpha of the
        probabilities.
    """
    sample_word = _bpe_sampler(pieces, rate) if pieces.is_bpe else _unigram_sampler(pieces, rate)
    words = re.compile(f"{SPACE}?[^{SPACE}]+|{SPACE}")
    longest_first = sorted(pieces.symbols, key=len, reverse=True)
    symbols = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def sample(line: str, seed: int) -> list[int]:
        rng = random.Random(seed)
        ids: list[int] = []
        for part, symbol in _split(line, symbols):
            for word in words.findall(part):
                ids.extend(sample_word(word, rng))
            if symbol:
                ids.append(pieces.symbols[symbol])
        return ids if pieces.byte_ids else _merge_unknown(ids)

    return sample


def _split(line: str, symbols: re.Pattern[str] | None) -> Iterator[tuple[str, str]]:
    """Yields each stretch of text with the user symbol that ends it, the last with none."""
    start = 0
    if symbols is not None:
        for match in symbols.finditer(line):
            yield line[start : match.start()], match.group()
            start = match.end()
    yield line[start:], ""


def _merge_unknown(ids: list[int]) -> list[int]:
    """Makes one unknown of several in a row, as SentencePiece does."""
    return [x for i, x in enumerate(ids) if x != UNK or i == 0 or ids[i - 1] != UNK]


def _bpe_sampler(pieces: Pieces, rate: float) -> WordSampler:
    """BPE-dropout. Merges are dropped independently, so the gaps between dropped ones are
    geometric: most words meet none of them and cost one look-up."""
    keep = math.log1p(-rate) if rate < 1 else -math.inf

    def gap(rng: random.Random) -> int:
        return int(math.log(1.0 - rng.random()) / keep) if rate > 0 else 1 << 60

    @lru_cache(CACHED_WORDS)
    def undisturbed(word: str) -> tuple[tuple[int, ...], int]:
        return merge(pieces, word, iter(()))

    def drops(first: int, rng: random.Random) -> Iterator[int]:
        while True:
            yield first
            first += 1 + gap(rng)

    def sample(word: str, rng: random.Random) -> Sequence[int]:
        first = gap(rng)
        if len(word) <= CACHED_LENGTH:
            ids, num_merges = undisturbed(word)
            if first >= num_merges:
                return ids
        return merge(pieces, word, drops(first, rng))[0]

    return sample


def merge(pieces: Pieces, word: str, drops: Iterator[int]) -> tuple[tuple[int, ...], int]:
    """Merges the characters of a word by byte-pair encoding, best merge first, leftmost of equals.

    Args:
        pieces: the model; a piece's score says how early its merge comes.
        word: what to segment.
        drops: which of the possible merges, counted as they come up, are left out; increasing.

    Returns:
        The ids, and how many merges came up.
    """
    symbols = list(word)
    before = list(range(-1, len(word) - 1))
    after = [*range(1, len(word)), -1]
    known = pieces.normal
    agenda = [
        (-known[pair][1], i, i + 1, pair)
        for i in range(len(word) - 1)
        if (pair := word[i : i + 2]) in known
    ]
    heapify(agenda)
    count, drop = 0, next(drops, -1)
    while agenda:
        _, left, right, pair = heappop(agenda)
        if not symbols[left] or not symbols[right] or symbols[left] + symbols[right] != pair:
            continue
        count += 1
        if count - 1 == drop:
            drop = next(drops, -1)
            continue
        symbols[left], symbols[right] = pair, ""
        follower, leader = after[right], before[left]
        after[left] = follower
        if follower >= 0:
            before[follower] = left
            if (new := pair + symbols[follower]) in known:
                heappush(agenda, (-known[new][1], left, follower, new))
        if leader >= 0 and (new := symbols[leader] + pair) in known:
            heappush(agenda, (-known[new][1], leader, left, new))
    return tuple(x for symbol in symbols if symbol for x in pieces.ids(symbol)), count


Step = tuple[list[float], list[tuple[int, list[int]]]]


def _unigram_sampler(pieces: Pieces, alpha: float) -> WordSampler:
    """Forward filtering, backward sampling: exact over all segmentations of a word."""
    cached = lru_cache(CACHED_WORDS)(lambda word: lattice(pieces, word, alpha))

    def sample(word: str, rng: random.Random) -> Sequence[int]:
        steps = cached(word) if len(word) <= CACHED_LENGTH else lattice(pieces, word, alpha)
        parts: list[list[int]] = []
        end = len(word)
        while end > 0:
            cumulative, choices = steps[end]
            chosen = 0
            if len(choices) > 1:
                chosen = bisect_right(cumulative, rng.random(), 0, len(choices) - 1)
            end, ids = choices[chosen]
            parts.append(ids)
        return parts[0] if len(parts) == 1 else [x for ids in reversed(parts) for x in ids]

    return sample


def lattice(pieces: Pieces, word: str, alpha: float) -> list[Step]:
    """Returns, for each end in a word, where its last piece may start, with what probability.

    A character that is no piece counts as an unknown one, 10 below the lowest score, as in
    SentencePiece.

    Returns:
        For each position the cumulative probabilities, and beside them the starts and ids.
    """
    unknown = alpha * (pieces.lowest - 10.0)
    total = [0.0] + [-math.inf] * len(word)
    steps: list[Step] = [([], [])]
    for end in range(1, len(word) + 1):
        choices: list[tuple[int, list[int]]] = []
        scores: list[float] = []
        for start in range(max(0, end - pieces.longest), end):
            text = word[start:end]
            if text in pieces.normal:
                choices.append((start, [pieces.normal[text][0]]))
                scores.append(total[start] + alpha * pieces.normal[text][1])
            elif start == end - 1:
                choices.append((start, pieces.ids(text)))
                scores.append(total[start] + unknown)
        highest = max(scores)
        weights = [math.exp(score - highest) for score in scores]
        sum_ = math.fsum(weights)
        total[end] = highest + math.log(sum_)
        steps.append(([w / sum_ for w in accumulate(weights)], choices))
    return steps
