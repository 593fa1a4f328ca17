"""What a run leaves on disk: its full state every so often, and the model that was best."""

from __future__ import annotations

from pathlib import Path

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
        data_digest: names the training data, so that a resume notices other data.
        ranks: rank 0 writes.

    Attributes:
        step: the last step of which the full state is on disk; 0 = none yet.
    """

    def __init__(
        self, state: TrainingState, tokenizers: Tokenizers, data_digest: str, ranks: Ranks
    ) -> None:
        self.state = state
        self.tokenizers = tokenizers
        self.data_digest = data_digest
        self.ranks = ranks
        self.run_dir = Path(state.config.run_dir)
        self.step = state.progress.step

    @property
    def is_due(self) -> bool:
        """Whether the full state is to be written after this step."""
        return self.state.progress.step % self.state.config.training.save_every == 0

    def save(self) -> None:
        """Writes the full state after the last update, once.

        Raises:
            UserError: it could not be written; older checkpoints are intact.
        """
        step = self.state.progress.step
        path = checkpoint_path(self.run_dir, step)
        if step == 0 or (self.step == step and path.is_file()):
            return
        if self.ranks.is_first:
            tensors = self.state.tensors() | tokenizer_tensors(self.tokenizers)
            write_checkpoint(path, tensors, self.state.metadata() | {"data": self.data_digest})
            rotate_checkpoints(
                self.run_dir,
                self.state.config.training.keep_checkpoints,
                self.state.progress.best_step,
            )
        self.step = step

    def write_best(self) -> None:
        """Writes the weights that translate, without what only training needs.

        Raises:
            UserError: they could not be written; the best model before is intact.
        """
        if not self.ranks.is_first:
            return
        with self.state.averaged_weights():
            tensors = model_tensors(self.state.model) | tokenizer_tensors(self.tokenizers)
            metadata = self.state.metadata()
            del metadata["progress"]
            write_checkpoint(self.run_dir / BEST, tensors, metadata)
