"""The command `evaluate` with files of translations, and with another system to compare with."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from small_task import Command

from transformer.evaluation import compare
from transformer.systems import holds_translations
from transformer.training.checkpoint import BEST, list_checkpoints


@pytest.fixture
def sets(corpus_folder: Path, tmp_path: Path) -> tuple[object, ...]:
    """Arguments that name a test set and a folder for the translations."""
    files = (corpus_folder / "valid.xx", "--reference", corpus_folder / "valid.yy")
    return ("--source", *files, "--output", tmp_path)


@pytest.fixture
def translated(trained_run: Path, command: Command, corpus_folder: Path, tmp_path: Path) -> Path:
    """A file of the trained model's greedy translations."""
    path = tmp_path / "greedy.txt"
    options = ("-i", corpus_folder / "valid.xx", "-o", path, "--beam-size", 1)
    assert command("translate", trained_run, *options).status == 0
    return path


def test_models_and_files_compare_with_each_other(
    trained_run: Path, command: Command, sets: tuple, translated: Path, corpus_folder: Path
) -> None:
    older = list_checkpoints(trained_run)[0][1]
    reference = (corpus_folder / "valid.yy").read_text().splitlines()
    outputs = {}
    for system in (trained_run, older, translated):
        done = command("evaluate", system, *sets[:4], "--json", "--output", translated.parent)
        path = json.loads(done.output)["valid.xx"]["translations"] or translated
        outputs[system] = Path(path).read_text().splitlines()
    for system, other in ((trained_run, older), (older, translated), (translated, trained_run)):
        done = command("evaluate", system, "--against", other, *sets, "--json")
        assert done.status == 0, done.error
        found = json.loads(done.output)["valid.xx"]["against"]
        assert found["system"] == str(other)
        for name, expected in compare(outputs[system], outputs[other], [reference]).items():
            assert found["metrics"][name]["p_value"] == expected.p_value
            assert found["metrics"][name]["this"]["score"] == expected.this.score
            assert found["metrics"][name]["difference"] == expected.difference


def test_the_comparison_is_told_with_p_value_mean_interval_and_signature(
    trained_run: Path, command: Command, sets: tuple, translated: Path
) -> None:
    done = command("evaluate", trained_run, "--against", translated, *sets)
    assert done.status == 0
    head, *rows = done.lines[4:]
    assert head.strip().startswith(f"against {translated}, paired bootstrap")
    assert [row.split()[0] for row in rows] == ["BLEU", "chrF", "TER"]
    assert all(" p " in row and " ± " in row and "bs:1000" in row for row in rows)


def test_files_alone_need_only_a_reference(
    command: Command, translated: Path, corpus_folder: Path
) -> None:
    reference = corpus_folder / "valid.yy"
    done = command(
        "evaluate", translated, "--reference", reference, "--against", reference, "--json"
    )
    assert done.status == 0, done.error
    (result,) = json.loads(done.output).values()
    assert (result["search"], result["translations"]) == (None, None)
    assert result["against"]["metrics"]["bleu"]["other"]["score"] == pytest.approx(100)
    done = command("evaluate", translated, "--against", reference)
    assert done.status == 2
    assert "need --reference" in done.error


def test_a_file_that_does_not_fit_the_test_set_is_refused(
    trained_run: Path, command: Command, sets: tuple, tmp_path: Path
) -> None:
    short = tmp_path / "short.txt"
    short.write_text("a\nb\n")
    done = command("evaluate", trained_run, "--against", short, *sets)
    assert (done.status, done.output) == (1, b"")
    assert f"{short}: has 2 lines, valid.xx has 12" in done.error
    done = command("evaluate", short, "--against", trained_run)
    assert done.status == 1
    assert "goes with one test set, and here are 2" in done.error


def test_a_checkpoint_is_known_by_its_form_and_not_only_by_its_name(
    trained_run: Path, tmp_path: Path
) -> None:
    shutil.copy(trained_run / BEST, tmp_path / "model.bin")
    assert not holds_translations(tmp_path / "model.bin")
    assert not holds_translations(trained_run)
    for text in ("", "a\n", "a longer line, then {\n", "zwölf Käuzchen\n"):
        (tmp_path / "text").write_text(text, encoding="utf-8")
        assert holds_translations(tmp_path / "text")
