"""What a configuration would train, and how long that takes here, said before it does."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import islice

import numpy as np

from transformer.allocator import keep_freed_memory
from transformer.config import Config, ModelConfig
from transformer.data.batching import micro_batches, plan_epoch
from transformer.data.encoding import EncodedCorpus
from transformer.data.tokenizer import Tokenizers
from transformer.data.updates import START, iterate_updates, settle_steps
from transformer.model.transformer import Transformer
from transformer.training.distributed import Ranks, choose_device
from transformer.training.logger import clock
from transformer.training.max_tokens import choose_max_tokens
from transformer.training.run import make_model, model_to_start_from, prepare_data
from transformer.training.state import TrainingState
from transformer.training.trainer import Trainer
from transformer.training.trial import Trial, run_trial

UPDATES_COUNTED = 100
"""Updates of which padding and tokens are counted."""


@dataclass(frozen=True)
class UpdateCounts:
    """Means over some updates.

    Attributes:
        source_tokens: of an update, padding not counted.
        target_tokens: the same.
        micro_batches: of an update.
        padding: share of the places in micro-batches, both sides, that hold none.
        flops: floating-point operations of an update's matrix products.
    """

    source_tokens: float
    target_tokens: float
    micro_batches: float
    padding: float
    flops: float


@dataclass(frozen=True)
class Inspection:
    """What training would do.

    Attributes:
        pairs: of sentences, after the filters.
        filters: lines about the pairs that are left out.
        vocabularies: sizes of source and target vocabulary.
        parameters: numbers of weights, by part of the model.
        device: where the trial ran.
        precision: what it computed in.
        max_tokens: padded tokens of a micro-batch.
        updates_an_epoch: so many.
        total_steps: updates to train for.
        limit: the setting that they come from.
        counts: what an update holds.
        trial: how fast it went.
    """

    pairs: int
    filters: list[str]
    vocabularies: tuple[int, int]
    parameters: dict[str, int]
    device: str
    precision: str
    max_tokens: int
    updates_an_epoch: int
    total_steps: int
    limit: str
    counts: UpdateCounts
    trial: Trial

    @property
    def update_seconds(self) -> float:
        """Time of an update."""
        return self.counts.target_tokens * self.trial.token_seconds + self.trial.step_seconds

    def to_json(self) -> dict[str, object]:
        """Returns all numbers, those that follow from others too."""
        counts, seconds = self.counts, self.update_seconds
        return asdict(self) | {
            "parameters": {"total": sum(self.parameters.values()), **self.parameters},
            "epochs": self.total_steps / self.updates_an_epoch,
            "flops_per_target_token": counts.flops / counts.target_tokens,
            "target_tokens_per_second": counts.target_tokens / seconds,
            "tokens_per_second": (counts.source_tokens + counts.target_tokens) / seconds,
            "gflops_per_second": counts.flops / seconds / 1e9,
            "source_tokens": counts.source_tokens * self.total_steps,
            "target_tokens": counts.target_tokens * self.total_steps,
            "seconds": seconds * self.total_steps,
        }

    def lines(self) -> list[str]:
        """Returns the same as sentences."""
        numbers, counts = self.to_json(), self.counts
        parts = ", ".join(f"{name} {count:,}" for name, count in self.parameters.items())
        sizes = dict.fromkeys(f"{size:,}" for size in self.vocabularies)
        return [
            f"{self.pairs:,} pairs; vocabulary {' and '.join(sizes)}",
            f"{sum(self.parameters.values()):,} parameters: {parts}",
            f"{self.updates_an_epoch:,} updates an epoch, each of {counts.source_tokens:,.0f}"
            f" source and {counts.target_tokens:,.0f} target tokens in {counts.micro_batches:.1f}"
            f" micro-batches of {self.max_tokens:,}, padding {counts.padding:.1%}",
            f"{numbers['flops_per_target_token']:.3g} floating-point operations for a target token",
            f"a trial on {self.device} in {self.precision}:"
            f" {numbers['target_tokens_per_second']:,.0f} target tokens/s,"
            f" {numbers['tokens_per_second']:,.0f} source and target tokens/s,"
            f" {numbers['gflops_per_second']:,.1f} GFLOP/s;"
            f" {self.trial.memory_bytes / 2**20:,.0f} MiB of memory",
            f"{self.total_steps:,} updates (training.{self.limit}) are"
            f" {numbers['epochs']:.1f} epochs,"
            f" {numbers['target_tokens']:,.0f} target tokens, about"
            f" {clock(self.update_seconds * self.total_steps)} here without validation",
        ]


def inspect_config(config: Config) -> Inspection:
    """Prepares the data, makes the model and trains it for some seconds; keeps only the data.

    Raises:
        UserError: data or model are not right, or the device is not there.
    """
    ranks = Ranks(0, 1, choose_device(config.training.device))
    tokenizers, corpus, _ = prepare_data(config, model_to_start_from(config))
    model = make_model(config, tokenizers).to(ranks.device)
    config = choose_max_tokens(config, model, int(corpus.lengths.max()), ranks)
    config = settle_steps(config, corpus.lengths)
    if ranks.device.type == "cpu":
        keep_freed_memory()
    trainer, trial = _trial(config, model, corpus, tokenizers, ranks)
    training = config.training
    num_updates = sum(1 for _ in plan_epoch(corpus.lengths, training.batch_tokens, config.seed, 1))
    return Inspection(
        pairs=len(corpus),
        filters=corpus.report.lines(),
        vocabularies=(tokenizers.source.vocab_size, tokenizers.target.vocab_size),
        parameters=count_parameters(model),
        device=ranks.device.type,
        precision=trainer.precision,
        max_tokens=training.micro_batch_tokens,
        updates_an_epoch=num_updates,
        total_steps=training.total_steps,
        limit=training.limit,
        counts=count_updates(config, corpus, tokenizers.target.vocab_size),
        trial=trial,
    )


def _trial(
    config: Config,
    model: Transformer,
    corpus: EncodedCorpus,
    tokenizers: Tokenizers,
    ranks: Ranks,
) -> tuple[Trainer, Trial]:
    """Trains on updates of a few micro-batches: whole ones may take minutes."""
    training = config.training
    few = min(training.batch_tokens, 3 * training.micro_batch_tokens)
    changes = {"batch_tokens": few, "second_pass_from": 0.0}
    short = training.model_copy(update=changes)
    config = config.model_copy(update={"training": short})
    trainer = Trainer(TrainingState(model, config), corpus, None, tokenizers, ranks)
    return trainer, run_trial(trainer, iterate_updates(corpus, tokenizers, config, START))


def count_parameters(model: Transformer) -> dict[str, int]:
    """Returns the numbers of weights of the model's parts; a shared matrix counts once."""
    parts = {"embeddings": 0, "encoder": 0, "decoder": 0}
    for name, p in model.named_parameters():
        part = name.split(".")[0]
        parts[part if part in parts else "embeddings"] += p.numel()
    return parts


def count_updates(config: Config, corpus: EncodedCorpus, vocab_size: int) -> UpdateCounts:
    """Counts what the first updates of the first epoch hold."""
    training = config.training
    plan = plan_epoch(corpus.lengths, training.batch_tokens, config.seed, epoch=1)
    totals, passes = np.zeros(5), training.num_passes
    num_updates = 0
    for examples in islice(plan, UPDATES_COUNTED):
        src, tgt = (np.array([len(ids) for ids in side]) for side in corpus.ids(examples))
        parts = micro_batches(np.maximum(src, tgt), training.micro_batch_tokens // passes)
        places = sum(len(part) * (src[part].max() + tgt[part].max()) for part in parts)
        flops = passes * training_flops(config.model, vocab_size, src, tgt)
        totals += src.sum(), tgt.sum(), len(parts), places, flops
        num_updates += 1
    source, target, num_parts, places, flops = totals.tolist()
    return UpdateCounts(
        source_tokens=source / num_updates,
        target_tokens=target / num_updates,
        micro_batches=num_parts / num_updates,
        padding=1 - (source + target) / places,
        flops=flops / num_updates,
    )


def training_flops(
    model: ModelConfig, vocab_size: int, src_lengths: np.ndarray, tgt_lengths: np.ndarray
) -> float:
    """Returns the floating-point operations of the matrix products that training on some pairs
    needs: forward once, backward twice that.

    A product of (m, k) and (k, n) counts 2mkn. Padding counts nothing, causal attention half.
    """
    s, t = src_lengths.astype(np.float64), tgt_lengths.astype(np.float64)
    d = model.d_model
    feed_forward = (6 if model.activation == "swiglu" else 4) * d * model.d_ff
    encoder = s * (8 * d * d + feed_forward) + 4 * d * s * s
    memory = s * 4 * d * d
    decoder = t * (12 * d * d + feed_forward) + 2 * d * t * (t + 1) + 4 * d * s * t
    of_layers = model.num_encoder_layers * encoder + model.num_decoder_layers * (memory + decoder)
    return 3 * float((of_layers + 2 * d * vocab_size * t).sum())
