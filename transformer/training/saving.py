"""What a run leaves on disk: its full state every so often, and the model that was best."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from transformer.data.tokenizer import Tokenizers
from transformer.training.checkpoint import (
    BEST,
    checkpoint_path,
    model_tensors,
    rotate_checkpoints,
    tokenizer_tensors,
    write_checkpoint,
)
from transformer.training.distributed import Ranks
from transformer.training.state import TrainingState


class Saver:
    """Writes the checkpoints of one run.

    Args:
        state: what is saved.
        tokenizers: the vocabularies, kept in every file.
        origin: what a resume compares with: the training data, the environment.
        ranks: rank 0 writes.

    Attributes:
        check_directory: called before writing; raises `UserError` if the directory is not the
            run's any more.
    """

    def __init__(
        self,
        state: TrainingState,
        tokenizers: Tokenizers,
        origin: Mapping[str, object],
        ranks: Ranks,
    ) -> None:
        self.state = state
        self.tokenizers = tokenizers
        self.origin = origin
        self.ranks = ranks
        self.run_dir = Path(state.config.run_dir)
        self.check_directory: Callable[[], object] = lambda: None
        self._saved = self._moment()

    @property
    def step(self) -> int:
        """The last step of which the full state is on disk; 0 = none yet."""
        return self._saved[0]

    def _moment(self) -> tuple[int, int]:
        progress = self.state.progress
        return progress.step, progress.validated_step

    @property
    def is_due(self) -> bool:
        """Whether the full state is to be written after this step; the last one is written when
        all else is done.
        """
        step, training = self.state.progress.step, self.state.config.training
        return step % training.save_every == 0 and step < training.total_steps

    def save(self) -> None:
        """Writes the full state after the last update, once.

        Raises:
            UserError: it could not be written; older checkpoints are intact.
        """
        step = self.state.progress.step
        if step == 0:
            return
        if self._saved != self._moment():
            self._save(checkpoint_path(self.run_dir, step))
        if self.ranks.is_first:
            keep = self.state.config.training.keep_checkpoints
            rotate_checkpoints(self.run_dir, keep, self.state.progress.best_step, newest=step)

    def _save(self, path: Path) -> None:
        tensors = {}
        for name, x in self.state.tensors():
            if self.ranks.is_first:  # one after the other, so that no device holds them all
                tensors[name] = x.cpu() if self.state.is_sharded else x
        if self.ranks.is_first:
            tensors |= tokenizer_tensors(self.tokenizers)
            self._write(path, tensors, self.state.metadata() | {**self.origin})
        self._saved = self._moment()

    def save_alone(self) -> None:
        """Writes the full state, as `save`, if this process can do so without the others, of whom
        one has ended.
        """
        if not self.state.is_sharded:
            self.save()

    def write_best(self) -> None:
        """Writes the weights that translate, without what only training needs.

        Raises:
            UserError: they could not be written; the best model before is intact.
        """
        with self.state.translating_model() as model:
            if not self.ranks.is_first:
                return
            tensors = model_tensors(model) | tokenizer_tensors(self.tokenizers)
            metadata = self.state.metadata()
            del metadata["progress"]
            self._write(self.run_dir / BEST, tensors, metadata)

    def _write(self, path: Path, tensors: dict[str, Tensor], metadata: dict[str, Any]) -> None:
        self.check_directory()
        write_checkpoint(path, tensors, metadata)
