"""Checkpoints: one safetensors file each, whole or not there, and runnable by strangers without
risk.

A full checkpoint holds tensors `model.*`, `ema.*`, `optimizer.exp_avg.*`, `optimizer.exp_avg_sq.*`
and the tokenizer's bytes; an exported one holds `model.*` and the tokenizer. One metadata entry,
`transformer`, is JSON: format number, step, config, metrics, progress, digest.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from transformer.config import Config, ModelConfig
from transformer.data.tokenizer import Tokenizer, Tokenizers
from transformer.errors import UserError
from transformer.model.transformer import Transformer
from transformer.training.sharding import spread_like

FORMAT = 1
BEST = "best.safetensors"
FOLDER = "checkpoints"


@dataclass(frozen=True)
class Checkpoint:
    """What one file holds: tensors by name, and metadata."""

    path: Path
    tensors: dict[str, Tensor]
    metadata: dict[str, Any]

    @property
    def step(self) -> int:
        """The last update done."""
        return self.metadata["step"]

    @property
    def config(self) -> Config:
        """The configuration that made it."""
        try:
            return Config.model_validate(self.metadata["config"])
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            what = first["msg"]
            if first["type"] == "extra_forbidden":
                what = "this version has no such setting; another version has made the file"
            raise UserError(f"{self.path}: its configuration: {where}: {what}") from None

    @property
    def tokenizers(self) -> Tokenizers:
        """The vocabularies."""
        if "tokenizer" in self.tensors:
            both = self._tokenizer("tokenizer")
            return Tokenizers(both, both)
        return Tokenizers(self._tokenizer("tokenizer.source"), self._tokenizer("tokenizer.target"))

    def _tokenizer(self, name: str) -> Tokenizer:
        if name not in self.tensors or self.tensors[name].dtype != torch.uint8:
            raise UserError(f"{self.path}: holds no {name}")
        try:
            return Tokenizer(self.tensors[name].numpy().tobytes())
        except UserError as error:
            raise UserError(f"{self.path}: its {name}: {error}") from None

    def tensor(self, name: str, shape: torch.Size) -> Tensor:
        """Returns one tensor.

        Raises:
            UserError: it is missing or of another shape.
        """
        if name not in self.tensors or self.tensors[name].shape != shape:
            raise UserError(f"{self.path}: holds no {name} of shape {tuple(shape)}")
        return self.tensors[name]

    def weights(self, prefix: str = "model.") -> dict[str, Tensor]:
        """Returns the tensors whose name starts with `prefix`, without it."""
        return {k.removeprefix(prefix): x for k, x in self.tensors.items() if k.startswith(prefix)}


def tokenizer_tensors(tokenizers: Tokenizers) -> dict[str, Tensor]:
    """Returns the vocabularies as tensors of bytes."""

    def tensor(tokenizer: Tokenizer) -> Tensor:
        return torch.frombuffer(bytearray(tokenizer.model), dtype=torch.uint8)

    if tokenizers.joint:
        return {"tokenizer": tensor(tokenizers.source)}
    return {
        "tokenizer.source": tensor(tokenizers.source),
        "tokenizer.target": tensor(tokenizers.target),
    }


def write_checkpoint(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, Any]) -> None:
    """Writes a checkpoint aside, brings it to disk, and gives it its name: whole or not there.

    Raises:
        UserError: the disk is full or the folder cannot be written; an older file of that name is
        intact.
    """
    tensors = {name: x.detach().cpu().contiguous() for name, x in tensors.items()}
    metadata = {"format": FORMAT, **metadata}
    metadata["digest"] = _digest(tensors, metadata)
    aside = path.with_name(path.name + ".partial")
    try:
        path.parent.mkdir(exist_ok=True)
        save_file(tensors, aside, {"transformer": json.dumps(metadata, ensure_ascii=False)})
        aside.chmod(0o666 & ~_umask())
        with aside.open("rb") as file:
            os.fsync(file.fileno())
        aside.replace(path)
        _sync_folder(path.parent)
    except (OSError, SafetensorError) as error:
        with suppress(OSError):
            aside.unlink(missing_ok=True)
        raise UserError(
            f"{path}: could not be written: {_reason(error)}; checkpoints written before are intact"
        ) from None


def _reason(error: OSError | SafetensorError) -> str:
    """Returns what the system said, without the rest of the library's message."""
    said = re.search(r"I/O error: (.*?) \(os error", str(error))
    if said is not None:
        return said[1]
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_checkpoint(path: Path) -> Checkpoint:
    """Reads a checkpoint and checks its digest; runs no code from it.

    Raises:
        UserError: no such file, damaged, not one of ours, without step or configuration, or of a
            format this version does not know.
    """
    if not path.is_file():
        raise UserError(f"{path}: no such checkpoint")
    try:
        with safe_open(path, framework="pt") as file:
            header = (file.metadata() or {}).get("transformer")
            if header is None:
                raise UserError(f"{path}: a safetensors file, but not a checkpoint of transformer")
            metadata = json.loads(header)
            if metadata.get("format") != FORMAT:
                raise UserError(
                    f"{path}: checkpoint format {metadata.get('format')}; this version reads format"
                    f" {FORMAT}"
                )
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, AttributeError, RecursionError) as error:
        raise UserError(f"{path}: damaged or not a checkpoint: {error}") from None
    if _digest(tensors, metadata) != metadata.get("digest"):
        raise UserError(f"{path}: damaged: its content does not match its digest")
    step, config = metadata.get("step"), metadata.get("config")
    if type(step) is not int or step < 0:
        raise UserError(f"{path}: its step is {step!r:.60}; needs the number of updates done")
    if not isinstance(config, dict):
        raise UserError(f"{path}: its config is {config!r:.60}; needs the settings of its run")
    return Checkpoint(path, tensors, metadata)


def _digest(tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> str:
    """Returns the SHA-256 of metadata and tensors, over names, types, shapes and bytes."""
    rest = {key: value for key, value in metadata.items() if key != "digest"}
    sha = hashlib.sha256(json.dumps(rest, sort_keys=True).encode())
    for name in sorted(tensors):
        x = tensors[name]
        sha.update(f"{name} {x.dtype} {tuple(x.shape)}".encode())
        sha.update(x.reshape(-1).view(torch.uint8).numpy().data)
    return sha.hexdigest()


def checkpoint_path(run_dir: Path, step: int) -> Path:
    """Returns where the full state after `step` is kept."""
    return run_dir / FOLDER / f"step-{step:08d}.safetensors"


def list_checkpoints(run_dir: Path) -> list[tuple[int, Path]]:
    """Returns (step, file) of the full checkpoints of a run, oldest first."""
    found = []
    for path in (run_dir / FOLDER).glob("step-*.safetensors"):
        match = re.fullmatch(r"step-(\d+)\.safetensors", path.name)
        if match:
            found.append((int(match[1]), path))
    return sorted(found)


def rotate_checkpoints(run_dir: Path, keep: int, best_step: int | None, newest: int) -> None:
    """Deletes all but the newest `keep` checkpoints and that of the best step.

    Those of steps after `newest`, the one just written, are left alone: they are damaged, or the
    run would have gone on from them, and must not count as the ones to keep.
    """
    steps = [(step, path) for step, path in list_checkpoints(run_dir) if step <= newest]
    for step, path in steps[:-keep]:
        if step != best_step:
            path.unlink(missing_ok=True)


def find_checkpoint(path: str | Path) -> Path:
    """Returns the file meant by a run directory (the best, else the newest) or a file name."""
    path = Path(path)
    if not path.is_dir():
        return path
    if (path / BEST).is_file():
        return path / BEST
    checkpoints = list_checkpoints(path)
    if not checkpoints:
        raise UserError(f"{path}: holds neither {BEST} nor {FOLDER}/step-*.safetensors")
    return checkpoints[-1][1]


@dataclass(frozen=True)
class LoadedModel:
    """All that translating needs.

    Attributes:
        model: in evaluation mode.
        tokenizers: the vocabularies.
        config: the configuration of its run.
        step: the last update done.
        path: the file.
    """

    model: Transformer
    tokenizers: Tokenizers
    config: Config
    step: int
    path: Path


def load_model(path: str | Path, device: str | torch.device = "cpu") -> LoadedModel:
    """Loads a model from a run directory or a checkpoint file; the moving average if there is one.

    Raises:
        UserError: as `read_checkpoint`, or the weights do not fit the configuration.
    """
    checkpoint = read_checkpoint(find_checkpoint(path))
    tokenizers, config = checkpoint.tokenizers, checkpoint.config
    sizes = tokenizers.source.vocab_size, tokenizers.target.vocab_size
    weights = checkpoint.weights("ema.") or checkpoint.weights()
    _check_claims(config.model, sizes, weights, checkpoint.path)
    model = Transformer(config.model, *sizes)
    load_weights(model, weights, checkpoint.path)
    return LoadedModel(
        model.to(device).eval(), tokenizers, config, checkpoint.step, checkpoint.path
    )


def _check_claims(
    config: ModelConfig, sizes: tuple[int, int], weights: Mapping[str, Tensor], path: Path
) -> None:
    """Makes sure that a file holds the model that its configuration claims, before any memory is
    taken for it.

    Raises:
        UserError: it does not.
    """
    num_layers = config.num_encoder_layers + config.num_decoder_layers
    if num_layers > len(weights):
        raise UserError(f"{path}: claims {num_layers} layers, but holds {len(weights)} weights")
    try:
        with torch.device("meta"):
            claimed = Transformer(config, *sizes)
    except (ValueError, RuntimeError) as error:
        raise UserError(f"{path}: its config.model: {error}") from None
    check_weights(claimed, weights, path)


def check_weights(model: Transformer, weights: Mapping[str, Tensor], path: Path) -> None:
    """Makes sure that names and shapes of weights are exactly those of a model.

    Raises:
        UserError: a weight is missing, unknown or of another shape.
    """
    own = dict(model.named_parameters())
    for name in sorted(own.keys() | weights.keys()):
        if name not in weights:
            raise UserError(f"{path}: holds no weight {name}, which this model needs")
        if name not in own:
            raise UserError(f"{path}: holds a weight {name}, which this model does not have")
        if own[name].shape != weights[name].shape:
            raise UserError(
                f"{path}: weight {name} is {tuple(weights[name].shape)},"
                f" this model needs {tuple(own[name].shape)}"
            )


@torch.no_grad()
def load_weights(model: Transformer, weights: Mapping[str, Tensor], path: Path) -> None:
    """Copies weights into a model; names and shapes must be exactly its own.

    Raises:
        UserError: as `check_weights`.
    """
    check_weights(model, weights, path)
    for name, p in model.named_parameters():
        p.copy_(spread_like(weights[name], p))


def model_tensors(model: Transformer, prefix: str = "model.") -> dict[str, Tensor]:
    """Returns the weights by name, shared ones once."""
    return {prefix + name: p.detach() for name, p in model.named_parameters()}
