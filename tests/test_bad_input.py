"""Input that is not right ends in one sentence, which names it and says what would do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from small_task import Command


def test_a_corpus_that_cannot_be_read_is_named_and_not_the_cache(
    own_data: Path, command: Command
) -> None:
    unreadable = "/proc/self/mem"  # a file that opens; to read its start is an I/O error
    done = command("train", own_data / "config.yaml", f"data.train.0.source={unreadable}")
    assert done.status == 1
    assert done.error == f"transformer: {unreadable}: cannot be read: Input/output error\n"


def test_a_corpus_of_blank_lines_is_named(own_data: Path, command: Command, tmp_path: Path) -> None:
    for ending in ("xx", "yy"):
        (own_data / f"train.{ending}").write_text("\n\n\n")
    files = [own_data / f"train.{ending}" for ending in ("xx", "yy")]
    says = "holds no text to train a tokenizer on, only blank lines or none\n"
    done = command("train", own_data / "config.yaml")
    assert (done.status, done.error) == (1, f"transformer: {files[0]}, {files[1]}: {says}")
    done = command("tokenizer", "train", *files, "-o", tmp_path / "x.model")
    assert (done.status, done.error) == (1, f"transformer: {files[0]}, {files[1]}: {says}")
    separate = ("tokenizer.joint=false", "model.tie_embeddings=none")
    done = command("train", own_data / "config.yaml", *separate)
    assert (done.status, done.error) == (1, f"transformer: {files[0]}: {says}")


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--kind", "foo", "--kind foo: should be 'unigram' or 'bpe'"),
        ("--vocab-size", 3, "--vocab-size 3: should be greater than or equal to 5"),
    ],
)
def test_a_setting_of_a_tokenizer_that_cannot_be_is_named_with_what_can(
    own_data: Path, command: Command, tmp_path: Path, option: str, value: object, says: str
) -> None:
    args = (own_data / "train.xx", "-o", tmp_path / "x.model", option, value)
    done = command("tokenizer", "train", *args)
    assert (done.status, done.error) == (1, f"transformer: {says}\n")


def test_a_standard_input_that_is_closed_is_named(trained_run: Path) -> None:
    command = [sys.executable, "-m", "transformer", "tokenizer", "encode", str(trained_run)]
    closed = ["sh", "-c", 'exec "$@" <&-', "sh", *command]
    done = subprocess.run(closed, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "transformer: standard input is closed; --input FILE reads a file\n"


def test_a_standard_output_that_is_full_is_named(trained_run: Path) -> None:
    translate = [sys.executable, "-m", "transformer", "translate", str(trained_run)]
    with open("/dev/full", "w") as full:  # a device of Linux
        done = subprocess.run(
            translate, input="a b\n", stdout=full, stderr=subprocess.PIPE, text=True, timeout=60
        )
    assert done.returncode == 1
    assert done.stderr == "transformer: standard output: No space left on device\n"


def test_a_warning_about_a_line_names_its_test_set(
    brief_model: Path, command: Command, tmp_path: Path
) -> None:
    source, reference = tmp_path / "long.xx", tmp_path / "long.yy"
    source.write_text("a b\n" + f"{'a ' * 5000}\n" * 12)
    reference.write_text("b a\n" * 13)
    done = command("evaluate", brief_model, "--source", source, "--reference", reference)
    assert done.status == 0
    named = [line for line in done.error.splitlines() if line.startswith("warning: long.xx: line ")]
    assert len(named) == 10
    assert "more than the 256 of training" in named[0]
    counted = "warning: long.xx: lines longer than any that the model was trained on: 12"
    assert counted in done.error.splitlines()


def test_an_unknown_tokenizer_is_refused_with_the_choices_before_a_model_is_loaded(
    command: Command,
) -> None:
    done = command("evaluate", "no-model", "--tokenize", "foo")
    assert (done.status, done.output) == (1, b"")
    assert done.error.startswith("transformer: tokenizer foo: sacreBLEU has no such one; it has ")
    assert "13a" in done.error
