"""The small task that tests train on, and what a command that they run gives back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from transformer.config import Config
from transformer.config_file import parse_config

SETTINGS = """
run_dir: {folder}/run
seed: 3
data:
  source_language: xx
  target_language: yy
  train: [{{source: {folder}/train.xx, target: {folder}/train.yy}}]
  validation: [{{source: {folder}/valid.xx, target: {folder}/valid.yy}}]
  cache_dir: {folder}/cache
tokenizer: {{vocab_size: 300, kind: bpe}}
model:
  d_model: 16
  num_heads: 2
  d_ff: 32
  num_encoder_layers: 1
  num_decoder_layers: 1
  dropout: 0.1
training:
  max_steps: 20
  batch_tokens: 400
  max_tokens: 300
  learning_rate: 0.005
  warmup_steps: 5
  save_every: 10
  log_every: 5
  device: cpu
  precision: float32
validation: {{every: 10, beam_size: 1, samples: 1}}
decoding: {{max_length: 5, max_length_ratio: 1.0}}
"""


def small_config(folder: Path, run_dir: Path, *overrides: str) -> Config:
    """Returns the small task's configuration, with overrides."""
    text = SETTINGS.format(folder=folder)
    return parse_config(text, "test.yaml", [f"run_dir={run_dir}", *overrides])


@dataclass(frozen=True)
class Done:
    """How a command ended: exit status, standard output and standard error."""

    status: int
    output: bytes
    error: str

    @property
    def lines(self) -> list[str]:
        """The lines of standard output."""
        return self.output.decode().split("\n")[:-1]


Command = Callable[..., Done]
