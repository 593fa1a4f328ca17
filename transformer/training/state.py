"""The whole state of a run: weights, optimizer, step, and what early stopping needs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from transformer.config import Config
from transformer.data.updates import Position
from transformer.model.transformer import Transformer
from transformer.training.checkpoint import Checkpoint, load_weights, model_tensors
from transformer.training.optimizer import learning_rate, make_optimizer, update_ema

MOMENTS = ("exp_avg", "exp_avg_sq")


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

    step: int = 0
    position: Position = field(default_factory=Position)
    seconds: float = 0.0
    validated_step: int = 0
    best_step: int | None = None
    best_value: float | None = None
    validations_since_best: int = 0

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Progress:
        """Reads what `asdict` wrote."""
        return cls(**{**values, "position": Position(**values["position"])})


class TrainingState:
    """Model, optimizer, moving average and progress, which a checkpoint holds and gives back."""

    def __init__(self, model: Transformer, config: Config) -> None:
        self.model = model
        self.config = config
        self.parameters: list[Tensor] = list(model.parameters())
        self.optimizer = make_optimizer(model, config.training)
        self.progress = Progress()
        self.ema_decay = config.training.ema_decay or 0.0
        self.ema: list[Tensor] | None = None
        if self.ema_decay:
            self.ema = [p.detach().clone() for p in self.parameters]

    def apply_update(self, step: int) -> float:
        """Takes the optimizer's step number `step` with the gradients at hand; returns its learning
        rate.
        """
        rate = learning_rate(step, self.config.training, self.config.model.d_model)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        if self.ema is not None:
            update_ema(self.ema, self.parameters, self.ema_decay, step)
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
            for moment in MOMENTS:
                if p in self.optimizer.state:
                    tensors[f"optimizer.{moment}.{name}"] = self.optimizer.state[p][moment]
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
        """Becomes the state that the checkpoint holds, bit for bit."""
        load_weights(self.model, checkpoint.weights(), checkpoint.path)
        self.progress = Progress.from_json(checkpoint.metadata["progress"])
        ema = checkpoint.weights("ema.")
        for i, (name, p) in enumerate(self.model.named_parameters()):
            moments = {
                moment: checkpoint.tensors[f"optimizer.{moment}.{name}"].to(p.device)
                for moment in MOMENTS
            }
            step = torch.tensor(float(self.progress.step))
            if p.device.type == "cuda":
                step = step.to(p.device)
            self.optimizer.state[p] = {"step": step, **moments}
            if self.ema is not None:
                self.ema[i].copy_(ema[name])


@torch.no_grad()
def _copy(to: list[Tensor], of: list[Tensor]) -> None:
    for target, source in zip(to, of, strict=True):
        target.copy_(source)
