"""Models from files, ready to translate together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from transformer.decoding.quantization import in_precision
from transformer.errors import UserError
from transformer.training.checkpoint import LoadedModel, load_model
from transformer.training.distributed import choose_device


def load_models(
    paths: Sequence[str | Path], device: str, precision: str | None
) -> list[LoadedModel]:
    """Loads models of one vocabulary.

    Args:
        paths: run directories or checkpoint files.
        device: auto, cpu, cuda or mps.
        precision: float32, bfloat16 or int8; None = as the first model's configuration says.

    Raises:
        UserError: there are no paths, a model cannot be read, their vocabularies differ, or there
            is no such device, or none of that precision.
    """
    if not paths:
        raise UserError("no model to translate with: name a run directory or a checkpoint")
    for path in paths[1:]:
        if Path(path).is_file() and Path(path).suffix != ".safetensors":
            raise UserError(
                f"{path}: is no model, and several models make an ensemble; --input FILE names text"
            )
    where = choose_device(device)
    loaded = [load_model(path, where) for path in paths]
    for other in loaded[1:]:
        _check_vocabularies(loaded[0], other)
    for each in loaded:
        in_precision(each.model, precision or loaded[0].config.decoding.precision)
    return loaded


def _check_vocabularies(first: LoadedModel, other: LoadedModel) -> None:
    for side in ("source", "target"):
        ours, theirs = getattr(first.tokenizers, side), getattr(other.tokenizers, side)
        if ours.digest != theirs.digest:
            raise UserError(
                f"{first.path} ({ours.vocab_size} pieces) and {other.path}"
                f" ({theirs.vocab_size} pieces) have different {side} vocabularies, so they make"
                " no ensemble"
            )
