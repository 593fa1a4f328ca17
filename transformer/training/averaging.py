"""The mean of several checkpoints, of one run or of several, which often translates better than
any of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from transformer.errors import UserError
from transformer.training.checkpoint import (
    find_checkpoint,
    list_checkpoints,
    read_checkpoint,
    write_checkpoint,
)


def average_checkpoints(run_dir: Path, last: int, output: Path) -> list[int]:
    """Writes the mean of the weights of a run's newest checkpoints; returns their steps.

    Raises:
        UserError: there is no such run, it has fewer than `last` checkpoints or such as do not go
            together, or `output` is a folder or one of its checkpoints.
    """
    if not run_dir.is_dir():
        raise UserError(f"{run_dir}: no such run directory")
    checkpoints = list_checkpoints(run_dir)
    if len(checkpoints) < last:
        raise UserError(
            f"{run_dir}: has {len(checkpoints)} checkpoints, {last} were asked for;"
            " training.keep_checkpoints says how many a run keeps"
        )
    _refuse_output(output, [path for _, path in checkpoints])
    return _write_mean([path for _, path in checkpoints[-last:]], output)


def average_models(models: Sequence[Path], output: Path) -> list[int]:
    """Writes the mean of the weights of several models; returns their steps.

    Models that began with the same weights, such as one fine-tuned with several seeds, lie so near
    to each other that their mean translates better than each (Wortsman et al. 2022, model soups).

    Args:
        models: run directories, of which each gives its best checkpoint, or files.
        output: the file.

    Raises:
        UserError: there is no such model, they do not go together, or `output` is a folder or one
            of them.
    """
    paths = [find_checkpoint(model) for model in models]
    _refuse_output(output, paths)
    return _write_mean(paths, output)


def _refuse_output(output: Path, checkpoints: Sequence[Path]) -> None:
    if output.is_dir():
        raise UserError(
            f"{output}: is a folder; needs the name of a file, such as {output}/mean.safetensors"
        )
    if output.exists() and any(path.exists() and output.samefile(path) for path in checkpoints):
        raise UserError(f"{output}: is a checkpoint of the run, writing would destroy it")


def _write_mean(paths: Sequence[Path], output: Path) -> list[int]:
    """Writes the mean of checkpoints; each gives its moving average if it has one, else its
    weights. Returns their steps.
    """
    total: dict[str, Tensor] = {}
    tokenizers: dict[str, Tensor] = {}
    steps = []
    for path in paths:
        checkpoint = read_checkpoint(path)
        found = checkpoint.weights("ema.") or checkpoint.weights()
        if total and _shapes(found) != _shapes(total):
            raise UserError(f"{path}: holds other weights than the checkpoints before it")
        own = {k: x for k, x in checkpoint.tensors.items() if k.startswith("tokenizer")}
        if tokenizers and _bytes(own) != _bytes(tokenizers):
            raise UserError(f"{path}: has another vocabulary than the checkpoints before it")
        for name, x in found.items():
            total[name] = total[name] + x.double() if name in total else x.double()
        tokenizers = own
        steps.append(checkpoint.step)
    weights = {f"model.{name}": (x / len(paths)).float() for name, x in total.items()}
    metadata = {
        "step": steps[-1],
        "averaged_steps": steps,
        "config": checkpoint.metadata["config"],
    }
    write_checkpoint(output, weights | tokenizers, metadata)
    return steps


def _bytes(tensors: Mapping[str, Tensor]) -> dict[str, bytes]:
    return {name: x.numpy().tobytes() for name, x in tensors.items()}


def _shapes(weights: Mapping[str, Tensor]) -> dict[str, torch.Size]:
    return {name: x.shape for name, x in weights.items()}
