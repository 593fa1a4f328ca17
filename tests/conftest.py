"""Settings of all tests, and a small task that trains in a second: a language turned around."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from transformer.config import Config
from transformer.config_file import parse_config

# The models of the tests are tiny: one thread computes them faster than several that wait for each
# other, in this process and in those that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")

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
validation: {{every: 10, beam_size: 1, samples: 1}}
decoding: {{max_length: 5, max_length_ratio: 1.0}}
"""


@pytest.fixture(scope="session")
def corpus_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with train and valid files of both languages."""
    folder = tmp_path_factory.mktemp("corpus")
    rng = random.Random(7)
    words = ["".join(rng.choices("abcdefg", k=rng.randint(1, 4))) for _ in range(40)]
    for name, size in (("train", 150), ("valid", 12)):
        lines = [rng.choices(words, k=rng.randint(1, 9)) for _ in range(size)]
        (folder / f"{name}.xx").write_text("".join(" ".join(x) + "\n" for x in lines))
        (folder / f"{name}.yy").write_text("".join(" ".join(x[::-1]) + "\n" for x in lines))
    return folder


@pytest.fixture
def make_config(corpus_folder: Path, tmp_path: Path) -> Callable[..., Config]:
    """Makes the small task's configuration, with overrides and a run directory of its own."""

    def make(*overrides: str, run: str = "run") -> Config:
        text = SETTINGS.format(folder=corpus_folder)
        return parse_config(text, "test.yaml", [f"run_dir={tmp_path / run}", *overrides])

    return make
