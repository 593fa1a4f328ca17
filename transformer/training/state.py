"""The whole state of a run: weights, optimizer, step, and what early stopping needs."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor

from transformer.config import Config
from transformer.data.updates import START, Position
from transformer.errors import UserError
from transformer.model.transformer import Transformer
from transformer.training.checkpoint import Checkpoint, load_weights
from transformer.training.distributed import Ranks
from transformer.training.optimizer import (
    learning_rate,
    make_optimizers,
    moments,
    takes_flag,
    update_ema,
)
from transformer.training.report import Tally
from transformer.training.sharding import copy_all, own_part, shard, spread_like, whole


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
        tally: sums since the last report.
    """

    step: int
    position: Position
    seconds: float
    validated_step: int
    best_step: int | None
    best_value: float | None
    validations_since_best: int
    tally: Tally = field(default_factory=Tally)

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
    """Model, optimizer, moving average and progress, which a checkpoint holds and gives back.

    Args:
        model: the whole model, on its device.
        config: of the run.
        ranks: whom to spread the model over, if `training.sharding` says so; None = nobody.
    """

    def __init__(self, model: Transformer, config: Config, ranks: Ranks | None = None) -> None:
        self.is_sharded = ranks is not None and config.training.sharding == "full"
        self._whole_model = model
        if ranks is not None and self.is_sharded:
            self._whole_model = copy.deepcopy(model).cpu()
            shard(model, ranks)
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

        Weights and optimizer stay as they are if `is_finite`, bool (), is False. The average
        need not: such a run ends before anything more is saved.
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
            own_parts = [own_part(x) for x in self.ema], [own_part(p) for p in self.parameters]
            update_ema(*own_parts, self.ema_decay, step)
        return rate

    @contextmanager
    def translating_model(self) -> Iterator[Transformer]:
        """Gives the model that translates until the block ends: whole, and with the moving average
        in the place of the weights if there is one.
        """
        own = [p.detach() for p in self.parameters]
        if self.is_sharded:
            model = self._whole_model.to(own[0].device)
            for target, source in zip(model.parameters(), self.ema or own, strict=True):
                target.data.copy_(whole(source))
            try:
                yield model
            finally:
                model.cpu()
        elif self.ema is None:
            yield self.model
        else:
            own = [p.clone() for p in own]
            copy_all(self.parameters, self.ema)
            try:
                yield self.model
            finally:
                copy_all(self.parameters, own)

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Yields all tensors of the state, whole, by their names in a checkpoint; if the model is
        spread over the ranks, all of them must ask.
        """
        for i, (name, p) in enumerate(self.model.named_parameters()):
            yield f"model.{name}", whole(p.detach())
            optimizer = self._optimizer_of[p]
            for moment in moments(optimizer):
                if p in optimizer.state:
                    yield f"optimizer.{moment}.{name}", whole(optimizer.state[p][moment])
            if self.ema is not None:
                yield f"ema.{name}", whole(self.ema[i])

    def metadata(self) -> dict[str, Any]:
        """Returns step, configuration and progress."""
        self.progress.tally.settle()
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
                moment: spread_like(checkpoint.tensor(f"optimizer.{moment}.{name}", p.shape), p)
                for moment in moments(optimizer)
            }
            step = torch.tensor(float(self.progress.step))
            if p.device.type == "cuda":
                step = step.to(p.device)
            optimizer.state[p] = {"step": step, **remembered}
            if self.ema is not None:
                self.ema[i].copy_(spread_like(checkpoint.tensor(f"ema.{name}", p.shape), p))
