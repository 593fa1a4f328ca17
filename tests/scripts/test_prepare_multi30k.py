"""Multi30k lands in six files, or a sentence says why not."""

from __future__ import annotations

import gzip
import json
import os
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "prepare_multi30k.py"
COUNTS = {"train": 29_000, "val": 1_014, "test_2016_flickr": 1_000}


@pytest.fixture(scope="module")
def main() -> Callable[[list[str]], int]:
    return runpy.run_path(str(SCRIPT))["main"]


def captions(language: str, split: str) -> list[str]:
    # U+2028 and a form feed end no line, though Python's splitlines thinks so.
    return [f"{language} {split} {i} – größer\u2028\x0cder." for i in range(COUNTS[split])]


def make_folder(folder: Path, gz: bool = False) -> dict[str, bytes]:
    folder.mkdir()
    files = {}
    for split in COUNTS:
        for language in ("en", "de"):
            name = f"{split}.{language}"
            files[name] = "".join(f"{line}\n" for line in captions(language, split)).encode()
            path = folder / (name + ".gz" if gz else name)
            path.write_bytes(gzip.compress(files[name], 1) if gz else files[name])
    return files


def run(*arguments: object, hf_home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *map(str, arguments)],
        env=os.environ | {"HF_HOME": str(hf_home), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def is_one_sentence(text: str, *parts: str) -> bool:
    return text.count("\n") == 1 and all(part in text for part in ("prepare_multi30k: ", *parts))


@pytest.mark.parametrize("gz", [False, True])
def test_a_local_copy_arrives_byte_for_byte(
    main: Callable, tmp_path: Path, capsys: pytest.CaptureFixture[str], gz: bool
) -> None:
    files = make_folder(tmp_path / "copy", gz)
    assert main(["--from", str(tmp_path / "copy"), "--output", str(tmp_path / "a" / "b")]) == 0
    found = {path.name: path.read_bytes() for path in (tmp_path / "a" / "b").iterdir()}
    assert found == files
    assert "non-commercial research" in capsys.readouterr().err


def test_a_copy_of_the_hub_data_set_gives_the_same_files(tmp_path: Path) -> None:
    files = make_folder(tmp_path / "text")
    hub = tmp_path / "hub"
    hub.mkdir()
    for name, split in (("train", "train"), ("val", "val"), ("test", "test_2016_flickr")):
        pairs = zip(captions("en", split), captions("de", split), strict=True)
        lines = (json.dumps({"en": en, "de": de}) + "\n" for en, de in pairs)
        (hub / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
    output = tmp_path / "out"
    done = run("--from", hub, "--output", output, hf_home=tmp_path / "hf")
    assert done.returncode == 0, done.stderr
    assert {path.name: path.read_bytes() for path in output.iterdir()} == files


def test_no_hub_is_one_sentence_that_names_the_way_out(tmp_path: Path) -> None:
    done = run("--output", tmp_path / "out", hf_home=tmp_path / "hf")
    assert done.returncode == 1
    assert is_one_sentence(done.stderr, "bentrevett/multi30k", "--from FOLDER")
    assert not (tmp_path / "out").exists()


def change(path: Path, old: bytes, new: bytes) -> None:
    text = path.read_bytes()
    assert old in text
    path.write_bytes(text.replace(old, new, 1))


@pytest.mark.parametrize(
    ("spoil", "parts"),
    [
        (lambda d: (d / "val.de").unlink(), ["val.de", "is missing"]),
        (lambda d: change(d / "val.en", b"en val 3 ", b"\n"), ["val.en", "1,015", "1,014"]),
        (lambda d: change(d / "train.de", "größer".encode(), b"gr\xf6\xdfer"), ["train.de:1:"]),
        (
            lambda d: (d / "val.en").write_text("\n" * COUNTS["val"]),
            ["val.en", "caption 1 "],
        ),
    ],
    ids=["missing file", "a line too many", "latin-1", "empty captions"],
)
def test_a_spoilt_copy_is_refused_in_one_sentence_and_nothing_is_left(
    main: Callable,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    spoil: Callable[[Path], object],
    parts: list[str],
) -> None:
    make_folder(tmp_path / "copy")
    spoil(tmp_path / "copy")
    assert main(["--from", str(tmp_path / "copy"), "--output", str(tmp_path / "out")]) == 1
    assert is_one_sentence(capsys.readouterr().err, *parts)
    assert not (tmp_path / "out").exists()


def test_a_missing_folder_and_an_unwritable_one_are_named(
    main: Callable, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--from", str(tmp_path / "nowhere")]) == 1
    assert is_one_sentence(capsys.readouterr().err, "nowhere: no such folder")
    make_folder(tmp_path / "copy")
    (tmp_path / "file").touch()
    assert main(["--from", str(tmp_path / "copy"), "--output", str(tmp_path / "file")]) == 1
    assert is_one_sentence(capsys.readouterr().err, "file: cannot be written")
