"""What the training loop consumes: updates, cut into this rank's micro-batches, from any point of
any epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np

from transformer.config import Config
from transformer.data.batching import Batch, collate, micro_batches, plan_epoch
from transformer.data.corpus import EncodedCorpus
from transformer.data.tokenizer import Tokenizer, Tokenizers
from transformer.errors import UserError
from transformer.ids import EOS, PAD


@dataclass(frozen=True)
class Position:
    """A point of the training data: so many updates of this epoch are done. Epochs count from 1."""

    epoch: int
    updates_done: int


START = Position(epoch=1, updates_done=0)


@dataclass(frozen=True)
class Update:
    """What one optimizer step sees.

    Attributes:
        after: the position when it is done.
        batches: this rank's micro-batches with their number in the update; with two passes each
            holds its sentences twice, one copy after the other.
        examples: all indices of the update, on whatever rank.
        num_tokens: target tokens of the whole update, over all ranks.
        num_source_tokens: source tokens of the whole update.
    """

    after: Position
    batches: list[tuple[int, Batch]]
    examples: np.ndarray
    num_tokens: int
    num_source_tokens: int


def settle_steps(config: Config, lengths: np.ndarray) -> Config:
    """Returns the configuration with the number of updates that there will be.

    Args:
        config: of the run.
        lengths: tokens of each pair's longer side.

    Raises:
        UserError: they are too few for the schedule.
    """
    training = config.training
    steps = training.max_steps
    if training.max_epochs is not None:
        epochs = (
            plan_epoch(lengths, training.batch_tokens, config.seed, epoch)
            for epoch in range(1, training.max_epochs + 1)
        )
        in_epochs = sum(1 for _ in islice(chain.from_iterable(epochs), steps))
        steps = min(steps, max(in_epochs, training.min_steps))
    try:
        return config.model_copy(update={"training": training.lasting(steps)})
    except ValueError as error:
        raise UserError(f"training: {error}") from None


def iterate_updates(
    corpus: EncodedCorpus,
    tokenizers: Tokenizers,
    config: Config,
    position: Position,
    step: int = 0,
    rank: int = 0,
    num_ranks: int = 1,
) -> Iterator[Update]:
    """Yields the updates after `position`, epoch after epoch, without end.

    Every rank sees the same updates in the same order, cut into the same micro-batches, and keeps
    each num_ranks-th of these. `step` is the number of updates before them: position and step are
    two names of one point of the run, so what depends on either is the same after a resume.
    """
    training = config.training
    epoch, done = position.epoch, position.updates_done
    while True:
        plan = plan_epoch(corpus.lengths, training.batch_tokens, config.seed, epoch)
        for examples in islice(plan, done, None):
            done, step = done + 1, step + 1
            if step <= config.tokenizer.sampling_until * training.total_steps:
                src, tgt = _sampled_ids(corpus, tokenizers, config, epoch, examples)
            else:
                src, tgt = corpus.ids(examples)
            lengths = np.array([max(len(s), len(t)) for s, t in zip(src, tgt, strict=True)])
            passes = training.at(step).num_passes
            parts = micro_batches(lengths, training.micro_batch_tokens // passes)
            batches = [
                (i, _batch(src, tgt, parts[i], passes)) for i in range(rank, len(parts), num_ranks)
            ]
            if training.sharding == "full" and rank >= len(parts) % num_ranks > 0:
                batches.append((len(parts), _padding(passes)))
            yield Update(
                Position(epoch, done),
                batches,
                examples,
                sum(len(ids) for ids in tgt),
                sum(len(ids) for ids in src),
            )
        epoch, done = epoch + 1, 0


def _batch(src: list[np.ndarray], tgt: list[np.ndarray], part: np.ndarray, passes: int) -> Batch:
    """Lays out some pairs of an update, so many times one after the other."""
    return collate([src[i] for i in part] * passes, [tgt[i] for i in part] * passes)


def _padding(passes: int) -> Batch:
    """Returns a micro-batch of padding alone. A rank that has none must take one where the model is
    spread over the ranks, since it computes with all of them or not at all.
    """
    return _batch([np.array([EOS])], [np.array([PAD])], np.array([0]), passes)


def _sampled_ids(
    corpus: EncodedCorpus,
    tokenizers: Tokenizers,
    config: Config,
    epoch: int,
    examples: np.ndarray,
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Returns the ids of both sides, freshly segmented where subword sampling is on."""
    src, tgt = corpus.ids(examples)
    rates = (config.tokenizer.source_sampling, config.tokenizer.target_sampling)
    if rates == (None, None):
        return src, tgt
    src_texts, tgt_texts = corpus.texts(examples)
    if rates[0] is not None:
        seeds = example_seeds(config.seed, epoch, examples, side=0)
        src = _sampled(tokenizers.source, src_texts, src, rates[0], seeds, config)
    if rates[1] is not None:
        seeds = example_seeds(config.seed, epoch, examples, side=1)
        tgt = _sampled(tokenizers.target, tgt_texts, tgt, rates[1], seeds, config)
    return src, tgt


def _sampled(
    tokenizer: Tokenizer,
    texts: list[str],
    best: list[np.ndarray],
    rate: float,
    seeds: np.ndarray,
    config: Config,
) -> list[np.ndarray]:
    """Segments texts at random; one that became very long keeps its best segmentation.

    What is too long does not depend on the device, so that an update does not.
    """
    sampled = tokenizer.encode_sampled(texts, rate, seeds.tolist())
    longest = 2 * config.data.max_length
    return [
        np.asarray(ids, dtype=np.int32) if len(ids) <= longest else usual
        for ids, usual in zip(sampled, best, strict=True)
    ]


def example_seeds(seed: int, epoch: int, examples: np.ndarray, side: int) -> np.ndarray:
    """Returns a random seed below 2**31 for each example, a function of its arguments alone.

    The mixing is that of SplitMix64 (Steele et al. 2014).
    """
    start = np.random.SeedSequence((seed, epoch, side)).generate_state(1, np.uint64)[0]
    with np.errstate(over="ignore"):
        z = start + (examples.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(33)).astype(np.int64)
