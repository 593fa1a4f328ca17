"""What a run computes with: kept in every checkpoint, so that a resume can say what has changed."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from transformer.training.distributed import Ranks

ENVIRONMENT = "environment"
"""Its name in a checkpoint's metadata."""


def describe_environment(ranks: Ranks, precision: str) -> dict[str, str]:
    """Returns what computes a run: versions, code, processes, device, arithmetic."""
    return {
        "code": code_version(),
        "processes": str(ranks.size),
        "device": _device_name(ranks.device),
        "precision": precision,
    }


def changed_environment(metadata: dict[str, Any], now: dict[str, str]) -> list[str]:
    """Returns a line for each thing that is not what the checkpoint with these metadata was made
    with; none of them changes what an update means, all may change its last digits.
    """
    before = metadata.get(ENVIRONMENT)
    if not isinstance(before, dict):
        return []
    return [
        f"{name}: {before[name]} so far, {value} from here on"
        for name, value in now.items()
        if name in before and before[name] != value
    ]


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


@cache
def code_version() -> str:
    """Returns the versions of this package and of torch, with a digest of this package's source."""
    folder = Path(__file__).parent.parent
    sha = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        sha.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    try:
        own = version("transformer")
    except PackageNotFoundError:  # run from its sources, uninstalled
        own = "uninstalled"
    return f"transformer {own} ({sha.hexdigest()[:12]}), torch {torch.__version__}"
