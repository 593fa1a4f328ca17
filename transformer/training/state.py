"""The whole state of a run: weights, optimizer, step, and what early stopping needs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor

from transformer.config import Config
from transformer.data.updates import START, Position
from transformer.errors import UserError
from transformer.model.transformer import Transformer
from transformer.training.checkpoint import Checkpoint, load_weights, model_tensors
from transformer.training.optimizer import (
    learning_rate,
    make_optimizers,
    moments,
    takes_flag,
    update_ema,
)


@dataclass
class Progress:
    """How far a run is.

    Attributes:
        step: updates done.
        position: where the data stands.
        seconds: time spent in updates and validations, over all resumes.
        validated_step: the last step that was validated.
        best_step: the step of the best validation.
        best_value: its metric.
        validations_since_best: for early stopping.
    """

    step: int
    position: Position
    seconds: float
    validated_step: int
    best_step: int | None
    best_value: float | None
    validations_since_best: int

    @classmethod
    def none(cls) -> Progress:
        """Returns the progress of a run that starts."""
        return cls(0, START, 0.0, 0, best_step=None, best_value=None, validations_since_best=0)

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> Progress:
        """Returns the progress that a checkpoint holds.

        Raises:
            UserError: it holds none, or a value is missing or of another type.
        """
        path, values = checkpoint.path, checkpoint.metadata.get("progress")
        if values is None:
            raise UserError(f"{path}: holds a model, but not the state of its training")
        try:
            return TypeAdapter(cls).validate_json(json.dumps(values), strict=True)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, ("progress", *first["loc"])))
            raise UserError(f"{path}: its {where}: {first['msg']}") from None


class TrainingState:
    """Model, optimizer, moving average and progress, which a checkpoint holds and gives back."""

    def __init__(self, model: Transformer, config: Config) -> None:
        self.model = model
        self.config = config
        self.parameters: list[Tensor] = list(model.parameters())
        self.optimizers = make_optimizers(model, config.training)
        self._optimizer_of = {
            p: optimizer
            for optimizer in self.optimizers
            for group in optimizer.param_groups
            for p in group["params"]
        }
        self.progress = Progress.none()
        self.ema_decay = config.training.ema_decay or 0.0
        self.ema: list[Tensor] | None = None
        if self.ema_decay:
            self.ema = [p.detach().clone() for p in self.parameters]

    def apply_update(self, step: int, is_finite: Tensor) -> float:
        """Takes the optimizer's step number `step` with the gradients at hand; returns its learning
        rate.

        Weights, average and optimizer stay as they are if `is_finite`, bool (), is False.
        """
        rate = learning_rate(step, self.config.training, self.config.model.d_model)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate
            if takes_flag(optimizer):  # nobody waits for the device
                optimizer.found_inf = (~is_finite).float()  # type: ignore[attr-defined]
                optimizer.step()
            elif is_finite:
                optimizer.step()
        if self.ema is not None:
            update_ema(self.ema, self.parameters, self.ema_decay, step, is_finite)
        return rate

    @contextmanager
    def averaged_weights(self) -> Iterator[None]:
        """Puts the moving average in the place of the weights until the block ends."""
        if self.ema is None:
            yield
            return
        own = [p.detach().clone() for p in self.parameters]
        _copy(self.parameters, self.ema)
        try:
            yield
        finally:
            _copy(self.parameters, own)

    def tensors(self) -> dict[str, Tensor]:
        """Returns all tensors of the state by their names in a checkpoint."""
        tensors = model_tensors(self.model)
        for i, (name, p) in enumerate(self.model.named_parameters()):
            optimizer = self._optimizer_of[p]
            for moment in moments(optimizer):
                if p in optimizer.state:
                    tensors[f"optimizer.{moment}.{name}"] = optimizer.state[p][moment]
            if self.ema is not None:
                tensors[f"ema.{name}"] = self.ema[i]
        return tensors

    def metadata(self) -> dict[str, Any]:
        """Returns step, configuration and progress."""
        return {
            "step": self.progress.step,
            "config": self.config.model_dump(mode="json"),
            "progress": asdict(self.progress),
        }

    def load(self, checkpoint: Checkpoint) -> None:
        """Becomes the state that the checkpoint holds, bit for bit.

        Raises:
            UserError: a part of it is missing or of another shape.
        """
        load_weights(self.model, checkpoint.weights(), checkpoint.path)
        self.progress = Progress.of(checkpoint)
        for i, (name, p) in enumerate(self.model.named_parameters()):
            optimizer = self._optimizer_of[p]
            remembered = {
                moment: checkpoint.tensor(f"optimizer.{moment}.{name}", p.shape).to(p.device)
                for moment in moments(optimizer)
            }
            step = torch.tensor(float(self.progress.step))
            if p.device.type == "cuda":
                step = step.to(p.device)
            optimizer.state[p] = {"step": step, **remembered}
            if self.ema is not None:
                self.ema[i].copy_(checkpoint.tensor(f"ema.{name}", p.shape))


@torch.no_grad()
def _copy(to: list[Tensor], of: list[Tensor]) -> None:
    for target, source in zip(to, of, strict=True):
        target.copy_(source)
