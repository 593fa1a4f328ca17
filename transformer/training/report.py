"""What happened since the last report: loss, speed, time left."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from transformer.config import Config
from transformer.data.updates import Update
from transformer.training.logger import clock


@dataclass
class Tally:
    """Sums over the updates since the last report; kept in checkpoints, so that a report covers
    the same updates whether or not the run was interrupted between them.

    Attributes:
        num_updates: how many updates.
        num_tokens: their target tokens.
        num_source_tokens: their source tokens.
        loss_sum: sum of their losses, in nats.
        seconds: time that they took.
        waited_seconds: part of it in which they waited for data.
    """

    num_updates: int = 0
    num_tokens: int = 0
    num_source_tokens: int = 0
    loss_sum: float = 0.0
    seconds: float = 0.0
    waited_seconds: float = 0.0

    def __post_init__(self) -> None:
        self._losses: list[Tensor] = []

    def note(self, loss_sum: Tensor) -> None:
        """Adds the loss of an update, without waiting for the device."""
        self._losses.append(loss_sum)

    def settle(self) -> None:
        """Waits for the losses and adds them up one by one, so that when does not matter."""
        if self._losses:
            for loss in torch.stack(self._losses).tolist():
                self.loss_sum += loss
            self._losses.clear()

    def clear(self) -> None:
        """Starts anew."""
        for field in fields(self):
            setattr(self, field.name, field.default)


class Report:
    """Tells how training goes.

    Args:
        config: of the run.
        tally: sums to go on from.
    """

    def __init__(self, config: Config, tally: Tally) -> None:
        self.config = config
        self.tally = tally
        self.norm = torch.zeros(())
        self.rate = 0.0

    def add(self, update: Update, seconds: float, waited_seconds: float) -> None:
        """Counts an update that took so long, and waited so long for its data."""
        self.tally.num_updates += 1
        self.tally.num_tokens += update.num_tokens
        self.tally.num_source_tokens += update.num_source_tokens
        self.tally.seconds += seconds
        self.tally.waited_seconds += waited_seconds

    def note(self, loss_sum: Tensor, norm: Tensor, rate: float) -> None:
        """Notes what an update computed."""
        self.tally.note(loss_sum)
        self.norm, self.rate = norm, rate

    def take(self, step: int, epoch: int) -> tuple[str, dict[str, float]]:
        """Returns a line for people and the numbers behind it, and starts anew."""
        tally = self.tally
        tally.settle()
        loss = tally.loss_sum / tally.num_tokens
        speed = tally.num_tokens / tally.seconds
        left = (self.config.training.total_steps - step) * tally.seconds / tally.num_updates
        line = (
            f"step {step:,}/{self.config.training.total_steps:,}  epoch {epoch}  loss {loss:.3f}"
            f"  lr {self.rate:.2e}  {speed:,.0f} target tokens/s  time left {clock(left)}"
        )
        numbers = {
            "epoch": epoch,
            "loss": loss,
            "learning_rate": self.rate,
            "gradient_norm": self.norm.item(),
            "target_tokens_per_second": speed,
            "source_tokens_per_second": tally.num_source_tokens / tally.seconds,
            "waiting_share": tally.waited_seconds / tally.seconds,
        }
        tally.clear()
        return line, numbers
