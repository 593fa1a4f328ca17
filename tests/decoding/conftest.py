"""Small models to search: real Transformers with random weights, and modules that say what they are
told to.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer.config import ModelConfig, TokenizerConfig
from transformer.data.tokenizer import Tokenizer, Tokenizers
from transformer.data.tokenizer_training import train_tokenizer
from transformer.ids import EOS, PAD
from transformer.model.transformer import Transformer

# Models are taken over by processes on Linux alone.
collect_ignore = [] if sys.platform == "linux" else ["test_processes.py"]

LINES = [
    "the old dog sleeps in the garden",
    "a small cat sees the red house",
    "we do not know who lives there",
    "the child reads a book to her friend",
    "tomorrow they will buy bread and milk",
    "the dog and the cat are friends",
] * 5


@pytest.fixture(scope="session")
def tokenizers() -> Tokenizers:
    """One small vocabulary for both sides."""
    both = train_tokenizer(LINES, TokenizerConfig(vocab_size=320, kind="bpe"), warn=lambda _: None)
    return Tokenizers(both, both)


@pytest.fixture(scope="session")
def bare_tokenizers() -> Tokenizers:
    """A vocabulary without bytes to fall back on."""
    config = TokenizerConfig(vocab_size=60, kind="bpe", byte_fallback=False)
    both = train_tokenizer(LINES, config, warn=lambda _: None)
    return Tokenizers(both, both)


@pytest.fixture(scope="session")
def other_tokenizer() -> Tokenizer:
    """Another vocabulary."""
    config = TokenizerConfig(vocab_size=300, kind="bpe")
    return train_tokenizer(LINES[:6], config, warn=lambda _: None)


@pytest.fixture(scope="session")
def make_model() -> Callable[..., Transformer]:
    """Makes 16-wide Transformers, whose random weights are enlarged so that they prefer some words
    clearly.
    """

    def make(seed: int = 0, vocab_size: int = 6, double: bool = True, **changes: object):  # type: ignore[no-untyped-def]
        torch.manual_seed(seed)
        sizes = {"d_model": 16, "num_heads": 2, "d_ff": 32, "dropout": 0.0}
        layers = {"num_encoder_layers": 1, "num_decoder_layers": 2}
        config = ModelConfig(**{**sizes, **layers, **changes})
        model = Transformer(config, vocab_size, vocab_size).eval()
        for weights in model.parameters():
            weights.data.mul_(2)
        return model.double() if double else model

    return make


@dataclass(frozen=True)
class ScriptState:
    """What is to be said, by row, and how much of it has been."""

    script: Tensor
    length: int

    def select(self, rows: Tensor) -> ScriptState:
        return ScriptState(self.script[rows], self.length)


class Script(nn.Module):
    """A model by its logits."""

    def log_probs(self, tgt: Tensor, state: Any) -> tuple[Tensor, Any]:
        logits, after = self.decode(tgt, state)
        return logits.log_softmax(-1), after


class Copies(Script):
    """Says the source again, then ends, with logit `certainty` for that and 0 for all else; and
    counts the rows of each step.
    """

    def __init__(self, vocab_size: int, certainty: float = 12.0) -> None:
        super().__init__()
        self.words = nn.Parameter(certainty * torch.eye(vocab_size))
        self.rows_by_step: list[int] = []

    def start(self, src: Tensor) -> ScriptState:
        return ScriptState(src.masked_fill(src == PAD, EOS), 0)

    def decode(self, tgt: Tensor, state: ScriptState) -> tuple[Tensor, ScriptState]:
        self.rows_by_step.append(len(tgt))
        end = state.length + tgt.size(1)
        script = F.pad(state.script, (0, max(0, end - state.script.size(1))), value=EOS)
        return self.words[script[:, state.length : end]], ScriptState(state.script, end)


class Recites(Script):
    """Gives the same log-probabilities (T, V), whatever the source and whatever was said; the last
    row again and again.
    """

    def __init__(self, log_probs: Tensor) -> None:
        super().__init__()
        self.table = nn.Parameter(log_probs)

    def start(self, src: Tensor) -> ScriptState:
        return ScriptState(src, 0)

    def decode(self, tgt: Tensor, state: ScriptState) -> tuple[Tensor, ScriptState]:
        end = state.length + tgt.size(1)
        steps = torch.arange(state.length, end).clamp(max=len(self.table) - 1)
        return self.table[steps].expand(len(tgt), -1, -1), ScriptState(state.script, end)


class Recomputes(Script):
    """A Transformer without caches: each step reads source and target again from the start."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def start(self, src: Tensor) -> Prefixes:
        return Prefixes(src, src[:, :0])

    def decode(self, tgt: Tensor, state: Prefixes) -> tuple[Tensor, Prefixes]:
        seen = torch.cat((state.tgt, tgt), dim=1)
        return self.model(state.src, seen)[:, -tgt.size(1) :], Prefixes(state.src, seen)


@dataclass(frozen=True)
class Prefixes:
    """Source and target so far."""

    src: Tensor
    tgt: Tensor

    def select(self, rows: Tensor) -> Prefixes:
        return Prefixes(self.src[rows], self.tgt[rows])


@pytest.fixture
def copies() -> type[Copies]:
    return Copies


@pytest.fixture
def recites() -> type[Recites]:
    return Recites


@pytest.fixture
def recomputes() -> type[Recomputes]:
    return Recomputes
