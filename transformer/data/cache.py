"""Prepared data on disk: each entry is a folder that is there whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from transformer.errors import UserError

CONTENTS = "contents.json"
HASHED_BYTES = 1 << 24
ABANDONED_SECONDS = 24 * 3600


def cache_dir(setting: str | None) -> Path:
    """Returns where prepared data is kept: the setting, or `transformer` in the user's cache."""
    if setting is not None:
        return Path(setting).expanduser().resolve()
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home).resolve() / "transformer"


def fingerprint(*parts: object) -> str:
    """Returns a short name for values that JSON can hold; equal values have equal names."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def stored(folder: Path, build: Callable[[Path], object]) -> Path:
    """Returns an entry of the cache, after making it if it is not there or damaged.

    It is built aside and renamed: a process that dies leaves nothing that is later used, and of
    several that build at the same time the first to finish wins.

    Args:
        folder: the entry.
        build: writes its files into the folder that it is given.

    Raises:
        UserError: the cache cannot be written.
    """
    if is_whole(folder):
        return folder
    try:
        return _build(folder, build)
    except OSError as error:
        raise UserError(
            f"{folder.parent}: {error.strerror or error}; data.cache_dir says where prepared data"
            " is kept"
        ) from error


def _build(folder: Path, build: Callable[[Path], object]) -> Path:
    folder.parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(folder.parent)
    aside = Path(tempfile.mkdtemp(suffix=".tmp", dir=folder.parent))
    try:
        build(aside)
        contents = {path.name: _describe(path) for path in sorted(aside.iterdir())}
        (aside / CONTENTS).write_text(json.dumps(contents), encoding="utf-8")
        if not is_whole(folder):
            shutil.rmtree(folder, ignore_errors=True)
        try:
            aside.rename(folder)
        except OSError:
            if not is_whole(folder):
                raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return folder


def is_whole(folder: Path) -> bool:
    """Says whether an entry is there with all its files as they were written.

    Sizes are compared, and the content of files up to 16 MB.
    """
    try:
        contents = json.loads((folder / CONTENTS).read_text(encoding="utf-8"))
        return all(_describe(folder / name) == found for name, found in contents.items())
    except (OSError, ValueError):
        return False


def _describe(path: Path) -> list[object]:
    size = path.stat().st_size
    if size > HASHED_BYTES:
        return [size, None]
    return [size, hashlib.sha256(path.read_bytes()).hexdigest()]


def _remove_abandoned(parent: Path) -> None:
    """Removes what processes that were killed left behind."""
    for path in parent.glob("*.tmp"):
        try:
            if time.time() - path.stat().st_mtime > ABANDONED_SECONDS:
                shutil.rmtree(path, ignore_errors=True)
        except FileNotFoundError:
            continue
