"""Measures the preparation of data: reading, vocabulary, encoding, and the start of a run on it.

Each measurement runs in a process of its own; `start` in a fresh interpreter, as a user's does.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import tracemalloc
from collections import deque
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import sentencepiece
from benchmark_work import SyntheticCorpus, Work, resident_peak

from transformer.config import Config, CorpusConfig, DataConfig, ModelConfig, TokenizerConfig
from transformer.config import TrainingConfig as Training
from transformer.data.batching import plan_epoch
from transformer.data.corpus import encode_corpus, load_corpora, prepare_tokenizers
from transformer.data.parallel import in_parallel

LINES_AT_ONCE = 10_000
UPDATES = 10
"""Updates over which the waiting for data is measured, after the first."""


def write_text(work: Work, folder: Path) -> None:
    """Writes a parallel corpus of made-up words, whose frequencies follow Zipf's law, unless it is
    there."""
    rng = np.random.default_rng(work.seed)
    letters = np.array(list("etaoinshrdlucmfwypvbgkjqxz"))
    likely = 1 / np.arange(1, 27)
    for path, lengths in zip(
        text_files(work, folder), SyntheticCorpus.random_lengths(work.pairs, rng), strict=True
    ):
        spelled = rng.choice(letters, (20_000, 9), p=likely / likely.sum())
        sizes = rng.integers(2, 10, len(spelled))
        words = ["".join(word[:size]) for word, size in zip(spelled, sizes, strict=True)]
        if not path.exists():
            aside = path.with_suffix(".partial")
            _write_lines(words, lengths, rng, aside)
            aside.rename(path)


def text_files(work: Work, folder: Path) -> tuple[Path, Path]:
    """Returns the files of source and target."""
    name = f"{work.pairs}-{work.seed}"
    return folder / f"{name}.src", folder / f"{name}.tgt"


def _write_lines(
    words: list[str], lengths: np.ndarray, rng: np.random.Generator, path: Path
) -> None:
    table = np.array([f"{x} " for x in words] + [f"{x}\n" for x in words], dtype=object)
    with open(path, "w", encoding="utf-8") as file:
        for start in range(0, len(lengths), LINES_AT_ONCE):
            part = lengths[start : start + LINES_AT_ONCE]
            ranks = np.exp(rng.uniform(0, np.log(len(words)), part.sum())).astype(int)
            ranks[np.cumsum(part) - 1] += len(words)  # the last of a line
            file.write("".join(table[ranks]))


def config_of(work: Work, text: Path, cache: Path) -> Config:
    """Returns the configuration of a small run on the text."""
    source, target = text_files(work, text)
    return Config(
        run_dir="unused",
        data=DataConfig(
            train=[CorpusConfig(source=str(source), target=str(target))],
            cache_dir=str(cache),
            num_threads=work.threads,
        ),
        tokenizer=TokenizerConfig(vocab_size=work.vocab_size),
        model=ModelConfig(
            d_model=128, num_heads=2, d_ff=512, num_encoder_layers=3, num_decoder_layers=3
        ),
        training=Training(batch_tokens=work.batch_tokens, max_tokens=min(1000, work.batch_tokens)),
    )


def measure_preparation(work: Work, contender: str, text: Path, cache: Path) -> dict[str, float]:
    """Prepares the corpus: `ours`; `start` is a run on what is prepared; `spm` is SentencePiece
    alone, encoding the same lines in one thread (`spm-all-cores`: in as many as there are cores).
    """
    work.start()
    config = config_of(work, text, cache)
    if contender == "ours":
        return _prepare(work, config, cache)
    if contender == "start":
        arguments = [json.dumps(vars(work)), str(text), str(cache), str(time.time())]
        command = [sys.executable, __file__, *arguments]
        return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    raw = load_corpora(config.data.train, config.data)
    model = prepare_tokenizers(config, raw).source.model
    seconds = spm_seconds(model, text_files(work, text), 1 if contender == "spm" else work.threads)
    return {"pairs_per_s": work.pairs / seconds, "encode_s": seconds, "total_s": seconds}


def _prepare(work: Work, config: Config, cache: Path) -> dict[str, float]:
    times = [time.perf_counter()]
    raw = load_corpora(config.data.train, config.data)
    times.append(time.perf_counter())
    tokenizers = prepare_tokenizers(config, raw)
    times.append(time.perf_counter())
    encode_corpus(raw, tokenizers, config.data, filters=True)
    times.append(time.perf_counter())
    read, tokenizer, encode = np.diff(times).tolist()
    size = sum(path.stat().st_size for path in cache.rglob("*") if path.is_file())
    return {
        "pairs_per_s": work.pairs / (read + encode),
        "read_s": read,
        "tokenizer_s": tokenizer,
        "encode_s": encode,
        "total_s": read + tokenizer + encode,
        "resident_mib": resident_peak(),
        "disk_bytes": size / work.pairs,
    }


def spm_seconds(model: bytes, files: tuple[Path, Path], num_threads: int) -> float:
    """Times SentencePiece's own encoding of both sides, reading included."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)

    def chunks() -> Iterator[list[str]]:
        for path in files:
            with open(path, encoding="utf-8") as file:
                while lines := [line.rstrip("\n") for line in islice(file, LINES_AT_ONCE)]:
                    yield lines

    def encode(lines: list[str]) -> int:
        return len(processor.encode(lines, num_threads=1))

    started_at = time.perf_counter()
    deque(in_parallel(encode, chunks(), num_threads), maxlen=0)
    return time.perf_counter() - started_at


def start(work: Work, text: Path, cache: Path, started_at: float) -> dict[str, float]:
    """Starts a run on prepared data; `started_at` is when its process did, as `time.time()`."""
    import torch

    from transformer.data.batching import Prefetcher
    from transformer.data.updates import START, iterate_updates
    from transformer.model.transformer import Transformer
    from transformer.training.distributed import Ranks
    from transformer.training.run import TrainingState
    from transformer.training.trainer import Trainer

    device = work.start()
    config = config_of(work, text, cache)
    raw = load_corpora(config.data.train, config.data)
    tokenizers = prepare_tokenizers(config, raw)
    corpus = encode_corpus(raw, tokenizers, config.data, filters=True)
    ready_at = time.time()
    size = tokenizers.source.vocab_size
    state = TrainingState(Transformer(config.model, size, size), config)
    trainer = Trainer(state, corpus, None, tokenizers, Ranks(0, 1, torch.device(device)))
    waited = 0.0
    with Prefetcher(lambda: iterate_updates(corpus, tokenizers, config, START)) as updates:
        coming = iter(updates)
        trainer.update(next(coming))
        first_at = time.time()
        for _ in range(UPDATES):
            asked_at = time.perf_counter()
            update = next(coming)
            waited += time.perf_counter() - asked_at
            trainer.update(update)
        done_at = time.time()
    return {
        "start_s": ready_at - started_at,
        "first_update_s": first_at - ready_at,
        "waiting": waited / (done_at - first_at),
        "resident_mib": resident_peak(),
        **measure_plan(corpus.lengths, work),
    }


def measure_plan(lengths: np.ndarray, work: Work) -> dict[str, float]:
    """Measures an epoch's plan: seconds for a million pairs, and bytes in memory for a pair."""
    started_at = time.perf_counter()
    deque(plan_epoch(lengths, work.batch_tokens, work.seed, epoch=1), maxlen=0)
    seconds = time.perf_counter() - started_at
    tracemalloc.start()
    deque(islice(plan_epoch(lengths, work.batch_tokens, work.seed, epoch=1), 1), maxlen=0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return {
        "plan_s": seconds / len(lengths) * 1e6,
        "plan_bytes": peak / len(lengths) + lengths.itemsize,  # the lengths are mapped
    }


if __name__ == "__main__":
    settings, text, cache, started_at = sys.argv[1:]
    work = Work(**json.loads(settings))
    print(json.dumps(start(work, Path(text), Path(cache), float(started_at))))
