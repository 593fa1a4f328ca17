"""What happened since the last report: loss, speed, time left."""

from __future__ import annotations

import torch
from torch import Tensor

from transformer.config import Config
from transformer.data.updates import Update
from transformer.training.logger import clock


class Report:
    """What happened since the last report."""

    def __init__(self, config: Config, step: int) -> None:
        self.config = config
        self.step = step
        self._clear()

    def _clear(self) -> None:
        self.num_updates = 0
        self.num_tokens = 0
        self.num_source_tokens = 0
        self.seconds = 0.0
        self.waited_seconds = 0.0
        self.losses: list[Tensor] = []

    def add(self, update: Update, seconds: float, waited_seconds: float) -> None:
        """Counts an update that took so long, and waited so long for its data."""
        self.num_updates += 1
        self.num_tokens += update.num_tokens
        self.num_source_tokens += update.num_source_tokens
        self.seconds += seconds
        self.waited_seconds += waited_seconds

    def note(self, loss_sum: Tensor, norm: Tensor, rate: float) -> None:
        """Notes what an update computed."""
        self.step += 1
        self.losses.append(loss_sum)
        self.norm, self.rate = norm, rate

    def take(self, epoch: int) -> tuple[str, dict[str, float]]:
        """Returns a line for people and the numbers behind it, and starts anew."""
        loss = torch.stack(self.losses).double().sum().item() / self.num_tokens
        speed = self.num_tokens / self.seconds
        left = (self.config.training.max_steps - self.step) * self.seconds / self.num_updates
        line = (
            f"step {self.step:,}/{self.config.training.max_steps:,}  epoch {epoch}  loss {loss:.3f}"
            f"  lr {self.rate:.2e}  {speed:,.0f} target tokens/s  time left {clock(left)}"
        )
        numbers = {
            "epoch": epoch,
            "loss": loss,
            "learning_rate": self.rate,
            "gradient_norm": self.norm.item(),
            "target_tokens_per_second": speed,
            "source_tokens_per_second": self.num_source_tokens / self.seconds,
            "waiting_share": self.waited_seconds / self.seconds,
        }
        self._clear()
        return line, numbers
