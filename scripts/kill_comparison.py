"""What two runs of the same configuration left behind, compared bit by bit."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TIMES = {
    *("seconds", "run_seconds", "waiting_share"),
    *("target_tokens_per_second", "source_tokens_per_second"),
}
"""What may differ between two runs: how long things took."""
OWN = {"digest", "config", "progress"}


def differences(expected: Path, found: Path, own_steps: bool = False) -> list[str]:
    """Returns a sentence for each thing in which the run in one task's folder differs.

    Args:
        expected: folder of the undisturbed run.
        found: folder of the other one.
        own_steps: it has saved after steps of its own, so that only its last state is compared.
    """
    return [
        *_checkpoints(expected / "run", found / "run", own_steps),
        *_metrics(expected / "run", found / "run"),
        *_boards(expected / "run", found / "run"),
    ]


def _checkpoints(expected: Path, found: Path, own_steps: bool) -> Iterator[str]:
    from transformer.training.averaging import average_checkpoints
    from transformer.training.checkpoint import list_checkpoints

    names = [[path.name for _, path in list_checkpoints(run)] for run in (expected, found)]
    if own_steps:
        names = [found[-1:] for found in names]
    if names[0] != names[1]:
        yield f"checkpoints {names[1]} instead of {names[0]}"
        return
    yield from _one_checkpoint(expected / "best.safetensors", found / "best.safetensors")
    for name in names[0]:
        yield from _one_checkpoint(expected / "checkpoints" / name, found / "checkpoints" / name)
    for run in (expected, found):
        average_checkpoints(run, len(names[0]), run / "mean.safetensors")
    yield from _one_checkpoint(expected / "mean.safetensors", found / "mean.safetensors")


def _one_checkpoint(expected: Path, found: Path) -> Iterator[str]:
    import torch

    from transformer.training.checkpoint import read_checkpoint

    first, second = read_checkpoint(expected), read_checkpoint(found)
    if first.tensors.keys() != second.tensors.keys():
        yield f"{found.name}: other tensors"
    else:
        for name, x in first.tensors.items():
            if not torch.equal(x, second.tensors[name]):
                yield f"{found.name}: {name} differs"
    if _lasting(first.metadata) != _lasting(second.metadata):
        before, after = _lasting(first.metadata), _lasting(second.metadata)
        yield f"{found.name}: metadata {after} instead of {before}"


def _lasting(metadata: dict[str, Any]) -> dict[str, Any]:
    """Returns metadata without times and paths."""
    kept = {key: value for key, value in metadata.items() if key not in OWN}
    return kept | {"progress": _without_times(metadata.get("progress", {}))}


def _without_times(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {k: _without_times(x) for k, x in value.items() if "seconds" not in k}


def _records(run: Path) -> list[dict[str, Any]]:
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [{k: v for k, v in json.loads(x).items() if k not in TIMES} for x in lines]


def _metrics(expected: Path, found: Path) -> Iterator[str]:
    first, second = _records(expected), _records(found)
    twice = [k for k, n in Counter((r["kind"], r["step"]) for r in second).items() if n > 1]
    if twice:
        yield f"metrics.jsonl: more than once: {twice}"
    if first != second:
        wrong = [(a, b) for a, b in zip(first, second, strict=False) if a != b][:2]
        yield f"metrics.jsonl: {len(second)} records for {len(first)}, first differences: {wrong}"


def _board(run: Path) -> dict[str, list[tuple[int, float]]]:
    """Returns the curves as TensorBoard reads them: (step, value) by name."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    logging.getLogger("tensorboard").setLevel(logging.ERROR)  # it tells of each resume
    board = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0, "tensors": 0})
    board.Reload()
    tags = [tag for tag in board.Tags()["scalars"] if tag.split("/")[-1] not in TIMES]
    curves = {tag: [(x.step, x.value) for x in board.Scalars(tag)] for tag in tags}
    texts = board.Tags()["tensors"]
    return curves | {tag: [(x.step, 0.0) for x in board.Tensors(tag)] for tag in texts}


def _boards(expected: Path, found: Path) -> Iterator[str]:
    first, second = _board(expected), _board(found)
    if not first or first.keys() != second.keys():
        yield f"TensorBoard: curves {sorted(second)} instead of {sorted(first)}"
        return
    for name, curve in first.items():
        if curve != second[name]:
            yield f"TensorBoard: {name}: {second[name]} instead of {curve}"
