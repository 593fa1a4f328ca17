"""The mean of several checkpoints, which often translates better than any of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from transformer.errors import UserError
from transformer.training.checkpoint import list_checkpoints, read_checkpoint, write_checkpoint


def average_checkpoints(run_dir: Path, last: int, output: Path) -> list[int]:
    """Writes the mean of the weights of a run's newest checkpoints; returns their steps.

    Each checkpoint gives its moving average if it has one, else its weights.

    Raises:
        UserError: there is no such run, it has fewer than `last` checkpoints or such as do not go
            together, or `output` is a folder or one of its checkpoints.
    """
    if output.is_dir():
        raise UserError(
            f"{output}: is a folder; needs the name of a file, such as {output}/mean.safetensors"
        )
    if not run_dir.is_dir():
        raise UserError(f"{run_dir}: no such run directory")
    checkpoints = list_checkpoints(run_dir)
    if len(checkpoints) < last:
        raise UserError(
            f"{run_dir}: has {len(checkpoints)} checkpoints, {last} were asked for;"
            " training.keep_checkpoints says how many a run keeps"
        )
    if output.exists() and any(output.samefile(path) for _, path in checkpoints):
        raise UserError(f"{output}: is a checkpoint of the run, writing would destroy it")
    total: dict[str, Tensor] = {}
    for _, path in checkpoints[-last:]:
        checkpoint = read_checkpoint(path)
        found = checkpoint.weights("ema.") or checkpoint.weights()
        if total and _shapes(found) != _shapes(total):
            raise UserError(f"{path}: holds other weights than the checkpoints before it")
        for name, x in found.items():
            total[name] = total[name] + x.double() if name in total else x.double()
    weights = {f"model.{name}": (x / last).float() for name, x in total.items()}
    tokenizers = {k: x for k, x in checkpoint.tensors.items() if k.startswith("tokenizer")}
    steps = [step for step, _ in checkpoints[-last:]]
    metadata = {
        "step": steps[-1],
        "averaged_steps": steps,
        "config": checkpoint.metadata["config"],
    }
    write_checkpoint(output, weights | tokenizers, metadata)
    return steps


def _shapes(weights: Mapping[str, Tensor]) -> dict[str, torch.Size]:
    return {name: x.shape for name, x in weights.items()}
