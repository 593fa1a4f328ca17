"""What the benchmark measures; each function runs in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import cast

import numpy as np
import torch
from benchmark_baselines import MarianLogits, PlainLoop, PlainTransformer, plain_greedy
from benchmark_work import SyntheticCorpus, Work, now, peak_mib, resident_peak, training_flops
from torch import Tensor, nn

from transformer.config import Config
from transformer.data.batching import Prefetcher, micro_batches, pad
from transformer.data.corpus import EncodedCorpus
from transformer.data.tokenizer import Tokenizers
from transformer.data.updates import START, Update, iterate_updates
from transformer.decoding.options import SearchOptions
from transformer.decoding.search import beam_search
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


def measure_translation(work: Work, contender: str) -> dict[str, float]:
    """Translates sentences with untrained weights; returns speeds and peak memory.

    Every translation is made as long as its source. Sentences of like length share a batch, for
    every contender the same.
    """
    device = work.start()
    corpus = SyntheticCorpus(work.sentences, work.vocab_size, work.seed)
    parts = micro_batches(corpus.src_lengths, work.batch_tokens)
    batches = [pad([corpus.src[i] for i in part]).to(device) for part in parts]
    before = resident_peak()
    translate = _translation(work, contender, device)
    with torch.inference_mode(), work.autocast(device):
        translate(batches[-1])
        started_at = now(device)
        num_tokens = sum(translate(src) for src in batches)
        seconds = now(device) - started_at
    return {
        "sentences_per_s": work.sentences / seconds,
        "tokens_per_s": num_tokens / seconds,
        "peak_mib": peak_mib(device, before),
    }


def _translation(work: Work, contender: str, device: torch.device) -> Callable[[Tensor], int]:
    """Builds a contender's model; returns what translates a batch and counts its tokens."""
    if contender == "plain":
        plain = PlainTransformer(*work.sizes).to(device).eval()
        return lambda src: int((plain_greedy(plain, src) != 0).sum())
    model = Transformer(work.model, work.vocab_size, work.vocab_size).to(device).eval()
    options = SearchOptions(
        beam_size=5 if contender == "beam5" else 1,
        min_length_ratio=1.0,
        max_length=1,
        max_length_ratio=1.0,
    )

    def translate(src: Tensor) -> int:
        return sum(len(found[0].ids) for found in beam_search([model], src, options))

    return translate


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
