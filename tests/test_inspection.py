"""What is said before training is what training then does."""

from __future__ import annotations

import json
import mmap
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from small_task import Command
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from transformer.config import Config, ModelConfig
from transformer.config_file import dump_config
from transformer.data.corpus import encode_corpus, load_corpora, prepare_tokenizers
from transformer.data.updates import START, iterate_updates, settle_steps
from transformer.inspection import inspect_config, training_flops
from transformer.model.transformer import Transformer
from transformer.training.checkpoint import load_model
from transformer.training.run import train
from transformer.training.trial import peak_memory, reset_peak_memory

CPU = torch.device("cpu")


@pytest.mark.parametrize("r_drop", [0, 2])
def test_counts_are_those_of_the_updates_of_an_epoch(
    make_config: Callable[..., Config], r_drop: int
) -> None:
    settings = ("training.max_epochs=1", f"training.r_drop={r_drop}", "data.max_length=100")
    config = make_config(*settings)
    found = inspect_config(config)
    raw = load_corpora(config.data.train, config.data)
    tokenizers = prepare_tokenizers(config, raw)
    corpus = encode_corpus(raw, tokenizers, config.data, filters=True)
    config = settle_steps(config, corpus.lengths)
    updates = list(islice(iterate_updates(corpus, tokenizers, config, START), found.total_steps))
    batches = [batch for update in updates for _, batch in update.batches]
    assert found.updates_an_epoch == len(updates)
    assert {update.after.epoch for update in updates} == {1}
    assert sorted(np.concatenate([x.examples for x in updates])) == [*range(len(corpus))]
    counts = found.counts
    source = sum(update.num_source_tokens for update in updates)
    target = sum(update.num_tokens for update in updates)
    assert counts.source_tokens * len(updates) == pytest.approx(source)
    assert counts.target_tokens * len(updates) == pytest.approx(target)
    assert counts.micro_batches * len(updates) == pytest.approx(len(batches))
    places = sum(batch.src.numel() + batch.tgt.numel() for batch in batches)
    passes = 2 if r_drop else 1
    assert counts.padding == pytest.approx(1 - passes * (source + target) / places)
    lengths = ([(x > 0).sum(1).numpy() for x in (b.src, b.labels)] for b in batches)
    vocab_size = tokenizers.target.vocab_size
    flops = sum(training_flops(config.model, vocab_size, *each) for each in lengths)
    assert counts.flops * len(updates) == pytest.approx(flops)


@pytest.mark.parametrize("share", [0.02, 0.5])
def test_a_second_pass_that_begins_late_is_inspected_as_what_an_update_takes_then(
    make_config: Callable[..., Config], share: float
) -> None:
    settings = ("training.max_steps=100", "training.r_drop=1", "data.max_length=60")
    late = inspect_config(make_config(*settings, f"training.second_pass_from={share}"))
    assert late.counts == inspect_config(make_config(*settings)).counts


def test_a_start_from_another_run_is_inspected_with_its_vocabulary(
    make_config: Callable[..., Config],
) -> None:
    first = make_config("training.max_steps=1", run="first")
    train(first)
    config = make_config(f"init_from={first.run_dir}", "tokenizer.vocab_size=320", run="second")
    found = inspect_config(config)
    train(config)
    model = load_model(config.run_dir).model
    assert found.vocabularies == (300, 300)
    assert sum(found.parameters.values()) == model.num_parameters


def test_inspect_prints_numbers_that_agree_and_leaves_no_run(
    make_config: Callable[..., Config], command: Command, tmp_path: Path
) -> None:
    config = make_config("training.max_tokens=auto")
    (tmp_path / "config.yaml").write_text(dump_config(config), encoding="utf-8")
    done = command("inspect", tmp_path / "config.yaml", "--json")
    assert done.status == 0, done.error
    found = json.loads(done.output)
    model = Transformer(config.model, *found["vocabularies"])
    assert found["parameters"]["total"] == model.num_parameters
    assert found["max_tokens"] == config.training.batch_tokens
    counts, trial = found["counts"], found["trial"]
    assert trial["memory_bytes"] > 4 * model.num_parameters
    update_seconds = counts["target_tokens"] * trial["token_seconds"] + trial["step_seconds"]
    assert found["seconds"] == pytest.approx(update_seconds * config.training.max_steps)
    speed = found["target_tokens"] / found["seconds"]
    assert found["target_tokens_per_second"] == pytest.approx(speed)
    flops = found["flops_per_target_token"] * speed
    assert found["gflops_per_second"] == pytest.approx(flops / 1e9)
    assert not Path(config.run_dir).exists()


@pytest.mark.parametrize("activation", ["relu", "swiglu"])
def test_the_operations_are_those_that_torch_counts(activation: str) -> None:
    config = ModelConfig(
        d_model=32,
        num_heads=2,
        d_ff=48,
        num_encoder_layers=1,
        num_decoder_layers=2,
        activation=activation,
    )
    model = Transformer(config, 50, 50)
    src, tgt = torch.randint(4, 50, (3, 7)), torch.randint(4, 50, (3, 9))
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        model(src, tgt)
    forward = training_flops(config, 50, np.full(3, 7), np.full(3, 9)) / 3
    hidden = 3 * 2 * (2 * 32 * 9 * (9 - 1))  # torch also counts what the causal mask hides
    assert forward + hidden == counter.get_total_flops()


def use_memory(num_bytes: int) -> None:
    """Takes memory from the system, writes to each of its pages, and gives it back."""
    with mmap.mmap(-1, num_bytes) as memory:
        for start in range(0, num_bytes, mmap.PAGESIZE):
            memory[start] = 1


def test_the_peak_of_memory_counts_from_where_it_is_reset() -> None:
    use_memory(240_000_000)
    reset_peak_memory(CPU)
    before = peak_memory(CPU)
    use_memory(80_000_000)
    assert 70_000_000 < peak_memory(CPU) - before < 120_000_000
