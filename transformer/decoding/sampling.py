"""Sampling: translations drawn at random as the model's probabilities say.

A draw adds Gumbel noise to the log-probabilities and takes the greatest sum, which draws from their
distribution (Maddison et al. 2014). The noise of a token is a hash of (seed, source ids, number of
the sample, position, token). So a sample depends neither on batch nor order nor neighbours: equal
lines get equal samples, and other ones come with another seed or by asking for more.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from transformer.decoding.beams import Hypothesis
from transformer.decoding.constraints import Constraints
from transformer.decoding.ensemble import Decodes, mean_coverage, mean_probability
from transformer.decoding.options import SearchOptions
from transformer.decoding.rules import Rules
from transformer.decoding.sampling_options import SamplingOptions
from transformer.ids import BOS, EOS, PAD

GOLDEN = 0x9E3779B97F4A7C15 - 2**64
"""Steps of splitmix64: 2^64 / golden ratio, as a signed number."""
MOST_ROWS = 1024
"""Translations that are drawn at once; many samples of a line take several turns."""


@dataclass(frozen=True)
class Draws:
    """The translations that are not complete yet, R of them, all of the same length.

    Attributes:
        ids: from the beginning of sentence on, (R, T + 1).
        log_probs: of each token after that, (R, T).
        keys: decides the draws of each, (R,).
        places: number of the translation among all, (R,).
        rules: what each must keep to.
    """

    ids: Tensor
    log_probs: Tensor
    keys: Tensor
    places: Tensor
    rules: Rules

    def select(self, rows: Tensor) -> Draws:
        """Returns some of the translations."""
        return Draws(
            self.ids[rows],
            self.log_probs[rows],
            self.keys[rows],
            self.places[rows],
            self.rules.select(rows),
        )


@torch.inference_mode()
def sample(
    models: Sequence[Decodes],
    src: Tensor,
    options: SearchOptions,
    sampling: SamplingOptions,
    constraints: Sequence[Constraints] | None = None,
) -> list[list[Hypothesis]]:
    """Draws translations of source sentences (B, S), for each in the order of their numbers.

    Args:
        models: several make an ensemble: their probabilities are averaged.
        src: source ids, each with its end of sentence.
        options: what must not be said, and how to score.
        sampling: how many, and how to draw.
        constraints: prefix and excluded phrases of each sentence; none may have included ones.

    Log-probabilities and scores are those of the model itself, whatever temperature, `top_k` and
    `top_p` make of them for the draws: forced scoring gives the same. A translation is not finished
    if it was cut at its limit, or where nothing was left that could be said.
    """
    found: list[list[Hypothesis]] = [[] for _ in src]
    step = max(1, MOST_ROWS // max(1, len(src)))
    for first in range(0, sampling.sample if len(src) else 0, step):
        numbers = range(first, min(first + step, sampling.sample))
        some = _sample(models, src, options, sampling, constraints, numbers)
        for all_of_line, of_line in zip(found, some, strict=True):
            all_of_line += of_line
    return found


def _sample(
    models: Sequence[Decodes],
    src: Tensor,
    options: SearchOptions,
    sampling: SamplingOptions,
    constraints: Sequence[Constraints] | None,
    numbers: range,
) -> list[list[Hypothesis]]:
    """Draws the samples of these numbers for each sentence."""
    draws = _start(src, options, sampling.seed, constraints, numbers)
    num_draws = len(draws.places)
    states: list[Any] = [
        model.start(src.repeat_interleave(len(numbers), dim=0)) for model in models
    ]
    if options.coverage_penalty:
        states = [state.watch() for state in states]
    found: dict[int, Hypothesis] = {}
    while len(draws.places):
        last = draws.ids[:, -1:]
        answers = [
            model.log_probs(last, state) for model, state in zip(models, states, strict=True)
        ]
        log_probs = mean_probability([x[:, -1] for x, _ in answers])
        states = [state for _, state in answers]
        draws, willing = _extend(draws, log_probs, sampling)
        ended = draws.ids[:, -1] == EOS
        missed = mean_coverage(states).flatten().tolist() if options.coverage_penalty else None
        for row in ended.nonzero()[:, 0].tolist():
            steps = draws.log_probs[row].tolist()
            score = options.formula.score(sum(steps), len(steps), missed[row] if missed else None)
            ids = draws.ids[row, 1:].tolist()
            found[int(draws.places[row])] = Hypothesis(ids, score, steps, bool(willing[row]))
        if ended.any():
            stay = (~ended).nonzero()[:, 0]
            draws, states = draws.select(stay), [state.select(stay) for state in states]
    every = [found[place] for place in range(num_draws)]
    return [every[i : i + len(numbers)] for i in range(0, len(every), len(numbers))]


def _start(
    src: Tensor,
    options: SearchOptions,
    seed: int,
    constraints: Sequence[Constraints] | None,
    numbers: range,
) -> Draws:
    """Returns the translations before their first token."""
    keys = []
    for row in src.tolist():
        ids = [token for token in row if token not in (PAD, EOS)]
        keys += [_key(seed, ids, number) for number in numbers]
    num_rows, device = len(keys), src.device
    each = [own for own in constraints or [Constraints()] * len(src) for _ in numbers]
    return Draws(
        torch.full((num_rows, 1), BOS, device=device),
        torch.zeros(num_rows, 0, device=device),
        torch.tensor(keys, device=device),
        torch.arange(num_rows, device=device),
        Rules.start(src.repeat_interleave(len(numbers), dim=0), options, each),
    )


def _key(seed: int, ids: Sequence[int], number: int) -> int:
    """Returns 64 bits that decide all draws of one sample of one sentence."""
    text = f"{seed} {number} {' '.join(map(str, ids))}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little", signed=True)


def _extend(draws: Draws, log_probs: Tensor, sampling: SamplingOptions) -> tuple[Draws, Tensor]:
    """Adds a token to each translation; tells also which, if they end now, would end anyway."""
    allowed = log_probs[:, None].clone()  # one hypothesis of each: (R, V) -> (R, 1, V)
    willing = draws.rules.forbid(allowed, draws.ids[:, None])[:, 0]
    stuck = allowed[:, 0].amax(-1) == -math.inf
    position = torch.full_like(draws.keys, draws.ids.size(1))
    tokens = draw(allowed[:, 0], _mix(draws.keys + position * GOLDEN), sampling)
    tokens = tokens.masked_fill(stuck, EOS)
    steps = log_probs.gather(1, tokens[:, None])
    longer = replace(
        draws,
        ids=torch.cat((draws.ids, tokens[:, None]), dim=1),
        log_probs=torch.cat((draws.log_probs.to(steps.dtype), steps), dim=1),
    )
    return longer, willing & ~stuck


def draw(log_probs: Tensor, keys: Tensor, sampling: SamplingOptions) -> Tensor:
    """Draws a token from each row of log-probabilities (R, V): (R,).

    The temperature comes first, then `top_k` (Fan et al. 2018), then `top_p` of what that left
    (Holtzman et al. 2020). At temperature 0 it is the most probable token.

    Args:
        log_probs: -inf is never drawn; need not be normalised.
        keys: 64 bits for each row, (R,).
        sampling: how to draw.
    """
    if sampling.temperature == 0:
        return log_probs.argmax(-1)
    scores = (log_probs / sampling.temperature).log_softmax(-1)
    tokens = torch.arange(scores.size(1), device=scores.device).expand_as(scores)
    if 0 < sampling.top_k < scores.size(1) or sampling.top_p < 1:
        scores, tokens = scores.topk(min(sampling.top_k or scores.size(1), scores.size(1)))
    if sampling.top_p < 1:
        probs = scores.softmax(-1)
        before = probs.cumsum(-1) - probs  # of the tokens that are more probable
        before[:, 0] = 0
        scores = scores.masked_fill(before >= sampling.top_p, -math.inf)
    best = (scores + gumbel(keys[:, None], tokens)).argmax(-1, keepdim=True)
    return tokens.gather(1, best)[:, 0]


def gumbel(keys: Tensor, numbers: Tensor) -> Tensor:
    """Returns noise with the standard Gumbel distribution, a function of key and number alone."""
    bits = _mix(keys + (numbers + 1) * GOLDEN)
    wide = torch.float32 if bits.device.type == "mps" else torch.float64
    uniform = (_shift(bits, 11).to(wide) + 0.5) * 2.0**-53  # never 0; 1 only in float32
    return -(-uniform.clamp(max=1 - torch.finfo(wide).eps).log()).log()


def _mix(x: Tensor) -> Tensor:
    """Mixes 64 bits thoroughly: the output function of splitmix64 (Steele et al. 2014)."""
    x = (x ^ _shift(x, 30)) * (0xBF58476D1CE4E5B9 - 2**64)
    x = (x ^ _shift(x, 27)) * (0x94D049BB133111EB - 2**64)
    return x ^ _shift(x, 31)


def _shift(x: Tensor, num_bits: int) -> Tensor:
    """Shifts to the right and fills with zeros, where `>>` alone fills with the sign."""
    return (x >> num_bits) & ((1 << (64 - num_bits)) - 1)
