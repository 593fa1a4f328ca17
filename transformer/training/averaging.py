"""The mean of several checkpoints, of one run or of several, which often translates better than
any of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import Tensor

from transformer.config import Config
from transformer.errors import UserError
from transformer.training.checkpoint import (
    BEST,
    find_checkpoint,
    list_checkpoints,
    read_checkpoint,
    write_checkpoint,
)


def average_checkpoints(run_dir: Path, last: int, output: Path) -> list[int]:
    """Writes the mean of the weights of a run's newest checkpoints; returns their steps.

    Raises:
        UserError: there is no such run, it has fewer than `last` checkpoints or such as do not go
            together, or `output` is a folder, one of its checkpoints, or a file that is none.
    """
    if not run_dir.is_dir():
        raise UserError(f"{run_dir}: no such run directory")
    checkpoints = list_checkpoints(run_dir)
    if len(checkpoints) < last:
        raise UserError(
            f"{run_dir}: has {len(checkpoints)} checkpoints, {last} were asked for;"
            " training.keep_checkpoints says how many a run keeps"
        )
    _refuse_output(output, _checkpoints_of(run_dir))
    return _write_mean([path for _, path in checkpoints[-last:]], output)


def average_models(models: Sequence[Path], output: Path) -> list[int]:
    """Writes the mean of the weights of several models; returns their steps.

    Models that began with the same weights, such as one fine-tuned with several settings, lie so
    near to each other that their mean can translate better than each (Wortsman et al. 2022, model
    soups).

    Args:
        models: run directories, of which each gives its best checkpoint, or files.
        output: the file.

    Raises:
        UserError: there is no such model, they do not go together, or `output` is a folder, one of
            them, or a file that is no checkpoint.
    """
    paths = [find_checkpoint(model) for model in models]
    runs = [Path(model) for model in models if Path(model).is_dir()]
    _refuse_output(output, [*paths, *(path for run in runs for path in _checkpoints_of(run))])
    return _write_mean(paths, output)


def _checkpoints_of(run_dir: Path) -> list[Path]:
    return [run_dir / BEST, *(path for _, path in list_checkpoints(run_dir))]


def _refuse_output(output: Path, checkpoints: Sequence[Path]) -> None:
    if output.is_dir():
        raise UserError(
            f"{output}: is a folder; needs the name of a file, such as {output}/mean.safetensors"
        )
    if output.exists() and any(path.exists() and output.samefile(path) for path in checkpoints):
        raise UserError(f"{output}: is a checkpoint of a run, writing would destroy it")
    if output.exists() and not _is_checkpoint(output):
        raise UserError(f"{output}: is no checkpoint, writing would destroy it; name another file")


def _is_checkpoint(path: Path) -> bool:
    """Says whether a path is a whole checkpoint; of a device nothing is read."""
    try:
        return path.is_file() and bool(read_checkpoint(path))
    except UserError:
        return False


def _write_mean(paths: Sequence[Path], output: Path) -> list[int]:
    """Writes the mean of checkpoints; each gives its moving average if it has one, else its
    weights. Returns their steps.
    """
    total: dict[str, Tensor] = {}
    first: dict[str, object] = {}
    steps = []
    for path in paths:
        checkpoint = read_checkpoint(path)
        found = checkpoint.weights("ema.") or checkpoint.weights()
        tokenizers = {k: x for k, x in checkpoint.tensors.items() if k.startswith("tokenizer")}
        own = _what_must_agree(checkpoint.config, found, tokenizers)
        for name, value in own.items():
            if value != first.get(name, value):
                raise UserError(f"{path}: {name} is not that of the checkpoints before it")
        first = first or own
        for name, x in found.items():
            total[name] = total[name] + x.double() if name in total else x.double()
        steps.append(checkpoint.step)
    weights = {f"model.{name}": (x / len(paths)).float() for name, x in total.items()}
    metadata = {
        "step": steps[-1],
        "averaged_steps": steps,
        "config": checkpoint.metadata["config"],
    }
    write_checkpoint(output, weights | tokenizers, metadata)
    return steps


def _what_must_agree(
    config: Config, weights: Mapping[str, Tensor], tokenizers: Mapping[str, Tensor]
) -> dict[str, object]:
    """Returns what a mean makes sense for, by what it is called in a sentence."""
    return {
        "the size of its vocabulary or model": {name: x.shape for name, x in weights.items()},
        "its vocabulary": {name: x.numpy().tobytes() for name, x in tokenizers.items()},
        **{f"model.{name}": x for name, x in config.model.architecture.items()},
        "data.source_language": config.data.source_language,
        "data.target_language": config.data.target_language,
    }
