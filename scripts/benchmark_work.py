"""The benchmark's workloads, which are synthetic and fixed, and its clock and gauges.

Sentences have log-normal lengths (about 20 tokens on average) and random ids, the same for every
contender.
"""

from __future__ import annotations

import os
import platform
import resource
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from transformer import inspection
from transformer.config import Config, CorpusConfig, DataConfig, ModelConfig, TrainingConfig
from transformer.ids import EOS
from transformer.training.distributed import choose_device

Precision = Literal["float32", "bfloat16", "int8"]
MAX_LENGTH = 100
"""Most tokens of a side."""


@dataclass(frozen=True)
class Work:
    """A fixed piece of work: the command's options, by their names."""

    vocab_size: int
    batch_tokens: int
    threads: int
    seed: int
    d_model: int = 0
    layers: int = 0
    max_tokens: int = 0
    updates: int = 0
    sentences: int = 0
    pairs: int = 0
    precision: Precision = "float32"
    run: str | None = None
    lines: str | None = None
    references: str | None = None
    shortlist: str | None = None
    device: str = "cpu"

    @property
    def num_heads(self) -> int:
        """Heads of width 64."""
        return max(1, self.d_model // 64)

    @property
    def sizes(self) -> tuple[int, int, int, int, int]:
        """d_model, heads, d_ff, layers of a side, vocabulary."""
        return self.d_model, self.num_heads, 4 * self.d_model, self.layers, self.vocab_size

    def start(self) -> torch.device:
        """Sets threads and seed of this process and returns the device."""
        if self.threads:
            torch.set_num_threads(self.threads)
        torch.manual_seed(self.seed)
        return choose_device(self.device)

    def autocast(self, device: torch.device) -> AbstractContextManager[object]:
        """Returns the context in which a model computes in the precision asked for."""
        if self.precision == "float32":
            return nullcontext()
        return torch.autocast(device.type, dtype=torch.bfloat16)

    @property
    def model(self) -> ModelConfig:
        """Returns our model of these sizes."""
        d_model, num_heads, d_ff, layers, _ = self.sizes
        return ModelConfig(
            d_model=d_model,
            num_heads=num_heads,
            d_ff=d_ff,
            num_encoder_layers=layers,
            num_decoder_layers=layers,
        )

    def config(self, max_tokens: int) -> Config:
        """Returns the configuration of a training run of this work."""
        return Config(
            run_dir="unused",
            data=DataConfig(train=[CorpusConfig(hub="synthetic")], max_length=MAX_LENGTH),
            model=self.model,
            training=TrainingConfig(
                batch_tokens=self.batch_tokens,
                max_tokens=max_tokens,
                precision="bfloat16" if self.precision == "bfloat16" else "float32",
            ),
        )


class SyntheticCorpus:
    """Pairs of random ids, in the place of an encoded corpus."""

    digest = "random ids"

    def __init__(self, num_pairs: int, vocab_size: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.src_lengths, self.tgt_lengths = self.random_lengths(num_pairs, rng)
        self.lengths = np.maximum(self.src_lengths, self.tgt_lengths)
        self.src = _random_ids(self.src_lengths, vocab_size, rng)
        self.tgt = _random_ids(self.tgt_lengths, vocab_size, rng)

    @staticmethod
    def random_lengths(num_pairs: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Draws the lengths of source and target."""
        lengths = np.exp(rng.normal(np.log(18), 0.45, num_pairs))
        ratios = np.exp(rng.normal(0.0, 0.15, num_pairs))
        src, tgt = (np.clip(x, 3, MAX_LENGTH).astype(np.int32) for x in (lengths, lengths * ratios))
        return src, tgt

    def ids(self, indices: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Returns source and target ids of the pairs, end of sentence last."""
        return [self.src[i] for i in indices], [self.tgt[i] for i in indices]


def _random_ids(lengths: np.ndarray, vocab_size: int, rng: np.random.Generator) -> list[np.ndarray]:
    ends = np.cumsum(lengths)
    flat = rng.integers(EOS + 1, vocab_size, ends[-1], dtype=np.int32)
    flat[ends - 1] = EOS
    return np.split(flat, ends[:-1])


def training_flops(work: Work, src_lengths: np.ndarray, tgt_lengths: np.ndarray) -> float:
    """Returns the operations of the matrix products that training on these pairs needs."""
    return inspection.training_flops(work.model, work.vocab_size, src_lengths, tgt_lengths)


def now(device: torch.device) -> float:
    """Returns the seconds of a clock, when the device has done all it was asked."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
    return time.perf_counter()


def resident_peak(of_children: bool = False) -> float:
    """Returns the most memory that this process has held so far, or that the greatest of its
    children that have ended has held, in MiB.
    """
    units_per_mib = 2**20 if sys.platform == "darwin" else 2**10  # bytes there, else KiB
    who = resource.RUSAGE_CHILDREN if of_children else resource.RUSAGE_SELF
    return resource.getrusage(who).ru_maxrss / units_per_mib


def peak_mib(device: torch.device, before: float) -> float:
    """Returns the peak of memory since `before`: of the GPU if there is one, else resident."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    return resident_peak() - before


def _cpu_name() -> str:
    capability = torch.backends.cpu.get_cpu_capability()
    return f"{platform.machine()} CPU, {capability}"


def machine(work: Work) -> dict[str, str | int]:
    """Says what the figures were measured on."""
    device = work.start()
    cuda = device.type == "cuda"
    return {
        "device": torch.cuda.get_device_name(device) if cuda else _cpu_name(),
        "cores": os.cpu_count() or 1,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
