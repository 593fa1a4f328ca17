"""How a run comes to the number of tokens that a device takes at once."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from transformer.config import Config
from transformer.config_file import load_config
from transformer.model.transformer import Transformer
from transformer.training.checkpoint import list_checkpoints, read_checkpoint
from transformer.training.max_tokens import CPU_TOKENS, largest, try_micro_batch
from transformer.training.run import train

Make = Callable[..., Config]
AUTO = "training.max_tokens=auto"


@given(least=st.integers(1, 500), room=st.integers(0, 100_000), extra=st.integers(0, 100_000))
def test_the_largest_is_found_within_an_eighth(least: int, room: int, extra: int) -> None:
    limit, most = least + room, least + extra
    tried = []

    def fits(number: int) -> bool:
        tried.append(number)
        return number <= limit

    found = largest(fits, least, most)
    assert least <= found <= min(limit, most)
    assert found >= min(limit, most) * 8 / 9 - 1
    assert all(least < number <= most for number in tried)
    assert len(tried) <= 24


def checkpoints(config: Config) -> list[dict[str, torch.Tensor]]:
    return [read_checkpoint(path).tensors for _, path in list_checkpoints(Path(config.run_dir))]


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_auto_trains_as_the_number_that_it_chose_does(
    make_config: Make, caplog: pytest.LogCaptureFixture
) -> None:
    more = ("training.batch_tokens=3000", "training.max_steps=2")
    auto = make_config(AUTO, *more, run="auto")
    with caplog.at_level(logging.INFO, "transformer"):
        train(auto)
    assert f"training.max_tokens auto: {CPU_TOKENS:,} padded tokens at a time" in caplog.text
    explicit = make_config(f"training.max_tokens={CPU_TOKENS}", *more, run="explicit")
    train(explicit)
    assert same(checkpoints(auto)[-1], checkpoints(explicit)[-1])
    (_, path) = list_checkpoints(Path(auto.run_dir))[-1]
    assert read_checkpoint(path).config.training.max_tokens == CPU_TOKENS


def test_auto_is_no_more_than_an_update_and_no_less_than_the_longest_pair(
    make_config: Make,
) -> None:
    for batch_tokens, longest, expected in ((400, 256, 400), (3000, 2500, 2500)):
        run = f"{batch_tokens}"
        config = make_config(
            AUTO,
            f"training.batch_tokens={batch_tokens}",
            f"data.max_length={longest}",
            "training.max_steps=1",
            run=run,
        )
        train(config)
        (_, path) = list_checkpoints(Path(config.run_dir))[-1]
        assert read_checkpoint(path).config.training.max_tokens == expected


def test_a_run_keeps_the_number_it_began_with(
    make_config: Make, caplog: pytest.LogCaptureFixture
) -> None:
    whole = make_config("training.max_tokens=300", "training.max_steps=6", run="whole")
    train(whole)
    train(make_config("training.max_tokens=300", "training.max_steps=3"))
    with caplog.at_level(logging.INFO, "transformer"):
        resumed = make_config(AUTO, "training.max_steps=6")
        train(resumed, resume=True)
    assert "max_tokens" not in caplog.text  # it is no change
    assert load_config(Path(resumed.run_dir) / "config.yaml").training.max_tokens == "auto"
    assert same(checkpoints(whole)[-1], checkpoints(resumed)[-1])


def test_a_trial_micro_batch_computes_what_training_does(make_config: Make) -> None:
    config = make_config()
    model = Transformer(config.model, 300, 300)
    loss = try_micro_batch(config, model, longest=7, num_tokens=60)
    assert torch.isfinite(loss)
    assert all(p.grad is not None for p in model.parameters())
