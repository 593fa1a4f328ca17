"""What the benchmark measures; each function runs in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import cast

import numpy as np
import torch
from benchmark_baselines import MarianLogits, PlainLoop, PlainTransformer
from benchmark_work import SyntheticCorpus, Work, now, peak_mib, resident_peak, training_flops
from torch import nn

from transformer.allocator import keep_freed_memory
from transformer.config import Config
from transformer.data.batching import Prefetcher
from transformer.data.corpus import EncodedCorpus
from transformer.data.tokenizer import Tokenizers
from transformer.data.updates import START, Update, iterate_updates
from transformer.model.transformer import Transformer
from transformer.training.distributed import Ranks
from transformer.training.state import TrainingState
from transformer.training.trainer import Trainer

WARM_UP = 2
"""Updates before the clock starts."""


def measure_training(work: Work, contender: str) -> dict[str, float]:
    """Trains for some updates; returns speeds, peak memory and the share of padding.

    Every contender sees the same pairs in the same updates. `ours` and `sorted` cut an update into
    micro-batches of like length, the others pad it as it comes.
    """
    device = work.start()
    if contender == "ours" and device.type == "cpu":
        keep_freed_memory()  # as a run does
    corpus = SyntheticCorpus(20 * work.batch_tokens, work.vocab_size, work.seed)
    config = work.config(work.max_tokens if contender in ("ours", "sorted") else 10**9)

    def updates() -> Iterator[Update]:
        data = cast(EncodedCorpus, corpus)
        return iterate_updates(data, cast(Tokenizers, None), config, START)

    before = resident_peak()
    do_update = make_updater(work, contender, corpus, config, device)
    num_src = num_tgt = num_padded = 0
    flops = 0.0
    with Prefetcher(updates) as prefetcher:
        upcoming = iter(prefetcher)
        for update in islice(upcoming, WARM_UP):
            do_update(update)
        started_at = now(device)
        for update in islice(upcoming, work.updates):
            do_update(update)
            num_src += update.num_source_tokens
            num_tgt += update.num_tokens
            num_padded += sum(b.src.numel() + b.tgt.numel() for _, b in update.batches)
            seen = update.examples
            flops += training_flops(work, corpus.src_lengths[seen], corpus.tgt_lengths[seen])
        seconds = now(device) - started_at
    return {
        "target_tokens_per_s": num_tgt / seconds,
        "tokens_per_s": (num_src + num_tgt) / seconds,
        "gflop_per_s": flops / seconds / 1e9,
        "peak_mib": peak_mib(device, before),
        "padding": 1 - (num_src + num_tgt) / num_padded,
    }


def make_updater(
    work: Work, contender: str, corpus: SyntheticCorpus, config: Config, device: torch.device
) -> Callable[[Update], object]:
    """Builds a contender's model and optimizer; returns what does an update with them."""
    if contender == "ours":
        ours = Transformer(config.model, work.vocab_size, work.vocab_size).to(device).train()
        data, tokenizers = cast(EncodedCorpus, corpus), cast(Tokenizers, None)
        trainer = Trainer(TrainingState(ours, config), data, None, tokenizers, Ranks(0, 1, device))
        return trainer.update
    model: nn.Module = (
        MarianLogits(*work.sizes) if contender == "marian" else PlainTransformer(*work.sizes)
    )
    model.to(device).train()
    if contender == "compiled":
        model = cast(nn.Module, torch.compile(model, dynamic=True))
    return PlainLoop(model, device, lambda: work.autocast(device))


def measure_ceiling(work: Work) -> dict[str, float]:
    """Measures how fast this device multiplies matrices of the model's shapes, the best of them."""
    device = work.start()
    d, _, f, _, v = work.sizes
    dtype = torch.float32 if work.precision == "float32" else torch.bfloat16
    best = 0.0
    for k, n in ((d, d), (d, f), (f, d), (d, v)):
        a, b = torch.randn(work.batch_tokens, k), torch.randn(k, n)
        a, b = a.to(device, dtype), b.to(device, dtype)
        out = a @ b
        seconds = []
        for _ in range(10):
            started_at = now(device)
            torch.matmul(a, b, out=out)
            seconds.append(now(device) - started_at)
        best = max(best, 2 * work.batch_tokens * k * n / float(np.median(seconds)) / 1e9)
    return {"gflop_per_s": best}
