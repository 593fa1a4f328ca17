"""Going on with a run: from its newest whole checkpoint, with what may change and not with what may
not.
"""

from __future__ import annotations

import logging
from pathlib import Path

from transformer.config import Config
from transformer.errors import OtherDataError, UserError
from transformer.training.checkpoint import FOLDER, Checkpoint, list_checkpoints, read_checkpoint
from transformer.training.state import Progress

log = logging.getLogger("transformer")

FIXED = (
    "seed",
    "init_from",
    "data.max_length",
    "data.max_ratio",
    "data.drop_duplicates",
    "tokenizer",
    "model",
    "training.batch_tokens",
    "training.optimizer",
    "training.ema_decay",
)
"""Settings that a run keeps for good: they say what its updates, weights and optimizer mean."""
MOST_NAMED = 3
"""Changed ones that are named in an error before they are only counted."""


def newest_checkpoint(run_dir: Path) -> Checkpoint | None:
    """Returns the newest whole checkpoint of a run, naming damaged ones; None if there is none at
    all.

    Raises:
        UserError: there are checkpoints, but all are damaged.
    """
    checkpoints = list_checkpoints(run_dir)
    for _, path in reversed(checkpoints):
        try:
            checkpoint = read_checkpoint(path)
            Progress.of(checkpoint)
            if not isinstance(checkpoint.metadata.get("data"), str):
                raise UserError(f"{path}: does not say which data it was trained on")
            return checkpoint
        except UserError as error:
            log.warning("%s; trying the one before it", error)
    if checkpoints:
        raise UserError(f"{run_dir / FOLDER}: none of {len(checkpoints)} checkpoints can be read")
    return None


def changed_settings(checkpoint: Checkpoint, config: Config) -> list[str]:
    """Returns a line for each setting that differs from the run so far and is applied from here on.

    Raises:
        UserError: a setting differs that the run must keep.
    """
    before = _flat(checkpoint.config.model_dump(mode="json"))  # of today's settings, by default
    now = _flat(config.model_dump(mode="json"))
    lines, refused = [], []
    for key in before | now:
        if key == "run_dir" or before.get(key) == now.get(key):
            continue
        was, will_be = (_found(values.get(key)) for values in (before, now))
        if any(key == fixed or key.startswith(fixed + ".") for fixed in FIXED):
            refused.append(f"{key}: {was} so far, {will_be} now")
        else:
            lines.append(f"{key}: {was} so far, {will_be} from here on")
    if refused:
        more = len(refused) - MOST_NAMED
        told = refused[:MOST_NAMED] + ([f"and {more} more"] if more > 0 else [])
        raise UserError(
            f"{'; '.join(told)}; a run keeps what it was trained with. Start a new run from these"
            f" weights with init_from={config.run_dir}"
        )
    return lines


def refuse_other_data(checkpoint: Checkpoint, config: Config, digest: str) -> None:
    """Makes sure that the training data is what the run was trained on, wherever it is now.

    Args:
        checkpoint: of the run.
        config: names the data.
        digest: of its content.

    Raises:
        OtherDataError: the content is another.
    """
    if checkpoint.metadata["data"] == digest:
        return
    named = [x for x in changed_settings(checkpoint, config) if x.startswith("data.train.")]
    told = f" ({'; '.join(named[:MOST_NAMED])})" if named else ""
    raise OtherDataError(
        f"{checkpoint.path}: the training data is not what it was when this run began{told}; a run"
        f" keeps what it was trained with. Start a new run on it with init_from={config.run_dir}"
    )


def _found(value: object) -> str:
    return "nothing" if value is None else repr(value)


def _flat(values: dict, prefix: str = "") -> dict[str, object]:
    """Returns settings by dotted names; those of sections in a list by its indices."""
    flat: dict[str, object] = {}
    for key, value in values.items():
        if isinstance(value, list) and any(isinstance(x, dict) for x in value):
            value = dict(enumerate(value))
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def is_complete(checkpoint: Checkpoint, config: Config) -> bool:
    """Says whether nothing is left to do: all updates, and the validation after the last one."""
    left = config.training.max_steps - checkpoint.step
    validated = Progress.of(checkpoint).validated_step == checkpoint.step
    return left < 0 or (left == 0 and (validated or not config.data.validation))
