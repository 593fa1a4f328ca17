"""The README's commands run as they stand, on smaller models."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from transformer.config_file import dump_config, load_config

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
SMALL = (
    "model.d_model=16",
    "model.d_ff=32",
    "model.num_encoder_layers=1",
    "model.num_decoder_layers=1",
    "tokenizer.vocab_size=500",
    "training.max_steps=20",
    "training.warmup_steps=5",
    "training.log_every=500",
    "decoding.beam_size=2",
    "decoding.max_length=5",
    "decoding.max_length_ratio=0.5",
)


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    lines = (line.split("   #")[0].strip() for block in blocks("sh") for line in block.splitlines())
    return [line for line in lines if line and not line.startswith(("make ", "#"))]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that looks like a checkout, with smaller models and made-up captions."""
    folder = tmp_path_factory.mktemp("checkout")
    (folder / "data" / "toy").mkdir(parents=True)
    for path in (ROOT / "data" / "toy").iterdir():
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        (folder / "data" / "toy" / path.name).write_text("".join(lines[:2000]), encoding="utf-8")
    (folder / "scripts").symlink_to(ROOT / "scripts")
    (folder / "configs").mkdir()
    for name in ("sweeps", "multi30k_en_de_best.yaml"):
        (folder / "configs" / name).symlink_to(ROOT / "configs" / name)
    (folder / "data" / "mine").symlink_to(folder / "data" / "toy")
    for name in ("toy", "small_data", "multi30k_en_de"):
        config = load_config(
            ROOT / "configs" / f"{name}.yaml", [*SMALL, f"data.cache_dir={folder}/cache"]
        )
        (folder / "configs" / f"{name}.yaml").write_text(dump_config(config), encoding="utf-8")
    (folder / "captions").mkdir()
    for name, size in (("train", 29_000), ("val", 1_014), ("test_2016_flickr", 1_000)):
        for language in ("en", "de"):
            lines = (f"{language} {i % 97} {i % 89}\n" for i in range(size))
            (folder / "captions" / f"{name}.{language}").write_text("".join(lines))
    return folder


@pytest.mark.slow
def test_the_commands_of_the_readme_run(checkout: Path) -> None:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    assert len(commands()) > 15
    for command in commands():
        if "prepare_multi30k" in command:
            command += " --from captions"  # the hub is not there for tests
        if "diversify" in command:
            command = command.replace("max_steps=1500", "max_steps=20")
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            capture_output=True,
            text=True,
            check=False,
            cwd=checkout,
            env=environment,
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        assert "Traceback" not in done.stderr, command
    translations = (checkout / "runs" / "toy" / "test.de").read_text(encoding="utf-8")
    assert translations.count("\n") == 500
    (code,) = blocks("python")
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=checkout
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("[")


def test_the_example_configuration_of_the_readme_loads(tmp_path: Path) -> None:
    (text,) = blocks("yaml")
    (tmp_path / "mine.yaml").write_text(text, encoding="utf-8")
    assert len(load_config(tmp_path / "mine.yaml").data.train) == 3


def test_the_map_of_the_code_names_every_file_of_the_package_and_no_other() -> None:
    table = README[README.index("## A map of the code") :]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    named: set[Path] = set()
    for row in rows:
        folder = ROOT
        for name in re.findall(r"`([\w/]+\.py)`", row):
            if "/" in name:
                folder = (ROOT / name).parent
            named.add(folder / Path(name).name)
    assert [path for path in named if not path.is_file()] == []
    package = {
        path
        for path in (ROOT / "transformer").rglob("*.py")
        if path.name not in ("__init__.py", "__main__.py")
    }
    assert package - named == set()
