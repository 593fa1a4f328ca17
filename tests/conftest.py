"""Settings of all tests, a small task that trains in a second (a language turned around), a run
that has been trained on it, and a way to run commands.
"""

from __future__ import annotations

import importlib
import io
import os
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from small_task import SETTINGS, Command, Done, small_config

from transformer.cli import main
from transformer.config import Config
from transformer.training.checkpoint import BEST, read_checkpoint, write_checkpoint
from transformer.training.logger import log
from transformer.training.run import train

# The models of the tests are tiny: one thread computes them faster than several that wait for each
# other, in this process and in those that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="session")
def corpus_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with train and valid files of both languages."""
    folder = tmp_path_factory.mktemp("corpus")
    rng = random.Random(7)
    words = ["".join(rng.choices("abcdefg", k=rng.randint(1, 4))) for _ in range(40)]
    for name, size in (("train", 150), ("valid", 12)):
        lines = [rng.choices(words, k=rng.randint(1, 9)) for _ in range(size)]
        (folder / f"{name}.xx").write_text("".join(" ".join(x) + "\n" for x in lines))
        (folder / f"{name}.yy").write_text("".join(" ".join(x[::-1]) + "\n" for x in lines))
    return folder


@pytest.fixture
def make_config(corpus_folder: Path, tmp_path: Path) -> Callable[..., Config]:
    """Makes the small task's configuration, with overrides and a run directory of its own."""

    def make(*overrides: str, run: str = "run") -> Config:
        return small_config(corpus_folder, tmp_path / run, *overrides)

    return make


@pytest.fixture(scope="session")
def trained_run(corpus_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run that has been trained; tests change only copies of it."""
    run_dir = tmp_path_factory.mktemp("trained") / "run"
    pair = f"{{source: {corpus_folder}/valid.xx, target: {corpus_folder}/valid.yy}}"
    tests = f"data.test={{first: {pair}, second: {pair}}}"
    longer = ("training.max_steps=200", "training.save_every=50", "validation.every=50")
    train(small_config(corpus_folder, run_dir, tests, *longer))
    return run_dir


@pytest.fixture
def own_data(corpus_folder: Path, tmp_path: Path) -> Path:
    """A folder with a copy of the corpus, and a config.yaml that trains on it."""
    folder = tmp_path / "own"
    folder.mkdir()
    for path in corpus_folder.iterdir():
        if path.is_file():
            shutil.copy(path, folder)
    (folder / "config.yaml").write_text(SETTINGS.format(folder=folder))
    return folder


@pytest.fixture
def brief_model(trained_run: Path, tmp_path: Path) -> Path:
    """A checkpoint that answers a line of 5,000 words in few tokens."""
    trained = read_checkpoint(trained_run / BEST)
    trained.metadata["config"]["decoding"]["max_length_ratio"] = 0.0
    write_checkpoint(tmp_path / "x.safetensors", trained.tensors, trained.metadata)
    return tmp_path / "x.safetensors"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    """Imports a script of scripts/ by its name; what it makes of the log is undone."""
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "scripts")
    logged = log.level, log.propagate, list(log.handlers)
    yield importlib.import_module
    log.level, log.propagate, log.handlers = logged


@pytest.fixture
def sweep(script: Callable[[str], Any]) -> Callable[[list[str]], int]:
    """Runs scripts/sweep.py in this process; returns its exit status."""
    return script("sweep").main


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Command:
    """Runs a command in this process, as its entry point does, with bytes as standard input."""
    stdin = tmp_path_factory.mktemp("stdin") / "stdin"

    def run(*args: object, input: bytes = b"") -> Done:
        stdin.write_bytes(input)
        out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
        before, logged = os.dup(0), (log.level, log.propagate, list(log.handlers))
        try:
            with stdin.open("rb") as stream, monkeypatch.context() as patch:
                os.dup2(stream.fileno(), 0)
                patch.setattr(sys, "argv", ["transformer", *map(str, args)])
                patch.setattr(sys, "stdout", out)
                patch.setattr(sys, "stderr", err)
                with pytest.raises(SystemExit) as ended:
                    main()
        finally:
            os.dup2(before, 0)
            os.close(before)
            log.level, log.propagate, log.handlers = logged
        status = ended.value.code
        assert isinstance(status, int)
        return Done(status, _bytes(out), _bytes(err).decode())

    return run


def _bytes(stream: io.TextIOWrapper) -> bytes:
    stream.flush()
    return stream.buffer.getvalue()  # type: ignore[attr-defined]
