"""Another machine, another version, another cut of the work: what may change between two parts of a
run, and is said.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from small_task import Command

from transformer.config import Config
from transformer.errors import UserError
from transformer.training.checkpoint import (
    BEST,
    list_checkpoints,
    load_model,
    read_checkpoint,
    write_checkpoint,
)
from transformer.training.run import train

Make = Callable[..., Config]
OLD = {
    "code": "transformer 0.0.1 (0123456789ab), torch 1.0.0",
    "device": "NVIDIA H200",
    "processes": "8",
    "precision": "bfloat16",
}


def rewrite(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Writes a checkpoint anew, as another machine or version would have."""
    read = read_checkpoint(path)
    change(read.metadata)
    write_checkpoint(path, read.tensors, read.metadata)


def test_a_run_of_another_version_machine_and_number_of_processes_goes_on_and_says_so(
    make_config: Make, caplog: pytest.LogCaptureFixture
) -> None:
    whole = make_config("training.max_steps=4", run="whole")
    train(whole)
    train(make_config("training.max_steps=2"))
    config = make_config("training.max_steps=4", "training.log_every=7")
    ((_, path),) = list_checkpoints(Path(config.run_dir))
    rewrite(path, lambda metadata: metadata["environment"].update(OLD))
    with caplog.at_level(logging.INFO, "transformer"):
        train(config, resume=True)
    for name, before in OLD.items():
        assert f"{name}: {before} so far, " in caplog.text
    assert "training.log_every: 5 so far, 7 from here on" in caplog.text
    one, two = (read_checkpoint(list_checkpoints(Path(x.run_dir))[-1][1]) for x in (whole, config))
    assert all(torch.equal(x, two.tensors[name]) for name, x in one.tensors.items())


def test_a_run_goes_on_with_other_micro_batches_and_says_so(
    make_config: Make, caplog: pytest.LogCaptureFixture
) -> None:
    still = ("model.dropout=0", "training.epsilon=1e-4")
    whole = make_config(*still, "training.max_steps=6", run="whole")
    train(whole)
    train(make_config(*still, "training.max_steps=3"))
    config = make_config(*still, "training.max_steps=6", "training.max_tokens=4000")
    with caplog.at_level(logging.INFO, "transformer"):
        train(config, resume=True)
    assert "training.max_tokens: 300 so far, 4000 from here on" in caplog.text
    one, two = (read_checkpoint(list_checkpoints(Path(x.run_dir))[-1][1]) for x in (whole, config))
    for name, x in one.weights().items():
        torch.testing.assert_close(x, two.weights()[name], rtol=1e-4, atol=2e-5)


def trained_on_a_gpu(metadata: dict[str, Any]) -> None:
    """Turns metadata into those of a run on a GPU."""
    metadata["config"]["training"] |= {"device": "cuda", "precision": "bfloat16"}


def test_a_model_of_a_gpu_translates_on_a_cpu(
    trained_run: Path, command: Command, tmp_path: Path
) -> None:
    path = Path(shutil.copy(trained_run / BEST, tmp_path))
    rewrite(path, trained_on_a_gpu)
    assert {p.device.type for p in load_model(path).model.parameters()} == {"cpu"}
    lines = b"a b\nc d e\n"
    done = command("translate", path, "--device", "cpu", input=lines)
    assert done.status == 0, done.error
    assert done.output == command("translate", trained_run, input=lines).output


def test_a_run_of_a_gpu_goes_on_on_a_cpu_and_says_so(
    make_config: Make, caplog: pytest.LogCaptureFixture
) -> None:
    config = make_config("training.max_steps=2")
    train(config)
    ((_, path),) = list_checkpoints(Path(config.run_dir))
    rewrite(path, trained_on_a_gpu)
    with caplog.at_level(logging.INFO, "transformer"):
        train(make_config("training.max_steps=3"), resume=True)
    assert "training.device: 'cuda' so far, 'cpu' from here on" in caplog.text
    assert list_checkpoints(Path(config.run_dir))[-1][0] == 3


def test_a_start_from_another_model_takes_its_vocabulary_and_names_both_sizes(
    make_config: Make, caplog: pytest.LogCaptureFixture
) -> None:
    first = make_config("training.max_steps=1", run="first")
    train(first)
    other = make_config(f"init_from={first.run_dir}", "tokenizer.vocab_size=320")
    with caplog.at_level(logging.INFO, "transformer"):
        train(other)
    assert f"the vocabulary of {first.run_dir}/{BEST} has 300 pieces, not 320" in caplog.text
    models = [load_model(x.run_dir).tokenizers.source.model for x in (first, other)]
    assert models[0] == models[1]


def test_two_vocabularies_of_another_model_that_do_not_fit_are_named_with_both_sizes(
    make_config: Make, tmp_path: Path
) -> None:
    (tmp_path / "few").write_text("a b\n" * 150)
    few = f"data.train.0.target={tmp_path}/few"
    separate = ("tokenizer.joint=false", "model.tie_embeddings=none", few)
    first = make_config(*separate, "training.max_steps=1", run="first")
    train(first)
    tokenizers = load_model(first.run_dir).tokenizers
    sizes = tokenizers.source.vocab_size, tokenizers.target.vocab_size
    assert sizes[0] != sizes[1]
    with pytest.raises(UserError, match="of {} and {} cannot share one embedding".format(*sizes)):
        train(make_config(f"init_from={first.run_dir}", "model.tie_embeddings=all"))


def test_a_start_from_a_model_whose_vocabulary_lacks_a_tag_is_refused(
    make_config: Make, corpus_folder: Path
) -> None:
    """Else the tag would be spelled in letters, and stay in what is translated."""
    first = make_config("training.max_steps=1", run="first")
    train(first)
    pair = f"{{source: {corpus_folder}/train.xx, target: {corpus_folder}/train.yy, tag: <2yy>}}"
    tagged = (f"data.train=[{pair}]", "tokenizer.user_symbols=[<2yy>]")
    other = make_config(f"init_from={first.run_dir}", *tagged, run="other")
    with pytest.raises(UserError, match=rf"user_symbols: .*{first.run_dir}.* has no <2yy>, only"):
        train(other)
    assert not Path(other.run_dir).exists() or not list_checkpoints(Path(other.run_dir))
