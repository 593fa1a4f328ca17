"""The command `transformer`, but rank 1 fails in the update number $DIES_AT if torchrun has not yet
started it again.
"""

from __future__ import annotations

import os

from transformer.cli import main
from transformer.training import trainer

update = trainer.Trainer.update


def failing_update(self: trainer.Trainer, what: trainer.Update) -> bool:
    """Does an update, or fails."""
    step = self.state.progress.step + 1
    if (os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"]) == ("1", "0"):
        assert step != int(os.environ["DIES_AT"]), "rank 1 has a fault of its own"
    return update(self, what)


trainer.Trainer.update = failing_update  # type: ignore[method-assign]
main()
