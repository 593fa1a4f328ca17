"""A sweep trains each run once, goes on where it was stopped, and its table says what was found."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import statistics
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from sacrebleu import corpus_bleu
from small_task import SETTINGS

from transformer.config import Config
from transformer.evaluation import compare
from transformer.training import trainer
from transformer.training.checkpoint import list_checkpoints, load_model, read_checkpoint
from transformer.training.run import train

SWEEP = """
config: {folder}/config.yaml
folder: {folder}/runs
seeds: [1, 2]
settings: {{training.max_steps: 6, training.save_every: 3, validation.every: 3}}
recipes:
  plain: {{}}
  slow: {{training.learning_rate: 1e-4}}
  tuned: {{init_from: "{{folder}}/slow/seed-{{seed}}", training.learning_rate: 1e-3}}
  averaged: {{runs_of: slow, average: 2, decoding.length_penalty: 0.5}}
"""


@pytest.fixture
def file(corpus_folder: Path, tmp_path: Path) -> Path:
    """A sweep's file, with a configuration beside it."""
    config = SETTINGS.format(folder=corpus_folder)
    pair = f"{{source: {corpus_folder}/valid.xx, target: {corpus_folder}/valid.yy}}"
    config = config.replace("  cache_dir", f"  test: {{held: {pair}}}\n  cache_dir")
    (tmp_path / "config.yaml").write_text(config)
    path = tmp_path / "sweep.yaml"
    path.write_text(SWEEP.format(folder=tmp_path))
    return path


def result(file: Path, name: str) -> dict:
    return json.loads((file.parent / "runs" / f"{name}.json").read_text())


def rows(file: Path) -> dict[str, list[str]]:
    """Returns the cells of each recipe in the first table."""
    table = (file.parent / "runs" / "table.md").read_text().split("\n\n")[1]
    cells = [[cell.strip() for cell in row.split("|")[1:-1]] for row in table.splitlines()[2:]]
    return {first: rest for first, *rest in cells}


def test_a_sweep_trains_each_run_once_and_its_table_says_what_it_found(
    sweep: Callable, file: Path, corpus_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweep([str(file)]) == 0
    assert (file.parent / "runs" / "table.md").read_text() == capsys.readouterr().out
    found = rows(file)
    assert list(found) == ["plain", "slow", "tuned", "averaged"]
    references = (corpus_folder / "valid.yy").read_text().splitlines()
    for recipe, (mean, spread, seeds, _, gain, p_values, parameters, _) in found.items():
        results = [result(file, f"{recipe}/seed-{seed}/validation") for seed in (1, 2)]
        baseline = [result(file, f"plain/seed-{seed}/validation") for seed in (1, 2)]
        scores = [x["bleu"] for x in results]
        assert mean == f"{statistics.mean(scores):.2f}"
        assert spread == f"{statistics.stdev(scores):.2f}"
        assert seeds == " ".join(f"{score:.2f}" for score in scores)
        assert parameters == f"{results[0]['num_parameters']:,}"
        own = "slow" if recipe == "slow" else "plain"
        model = load_model(file.parent / "runs" / own / "seed-1").model
        assert results[0]["num_parameters"] == model.num_parameters
        if recipe != "plain":
            others = [x["bleu"] for x in baseline]
            assert gain == f"{statistics.mean(scores) - statistics.mean(others):+.2f}"
            lines = [Path(x["translations"]).read_text().split("\n")[:-1] for x in results]
            theirs = [Path(x["translations"]).read_text().split("\n")[:-1] for x in baseline]
            expected = [
                compare(a, b, [references], metrics=["bleu"])["bleu"].p_value
                for a, b in zip(lines, theirs, strict=True)
            ]
            assert p_values == " ".join(f"{p:.3f}" for p in expected)
    assert not (file.parent / "runs" / "looks.tsv").exists()
    written = {path: path.stat().st_mtime_ns for path in file.parent.rglob("*.safetensors")}
    assert sweep([str(file)]) == 0
    assert {path: path.stat().st_mtime_ns for path in written} == written
    again = rows(file)
    assert again == found


def test_test_sets_are_looked_at_only_where_asked_and_each_look_is_noted(
    sweep: Callable, file: Path
) -> None:
    file.write_text(re.sub(r"  (slow|tuned|averaged): .*\n", "", file.read_text()))
    for _ in range(2):
        assert sweep([str(file), "--test", "plain"]) == 0
    (one, two) = (file.parent / "runs" / "looks.tsv").read_text().splitlines()
    assert one.split("\t")[1:3] == ["plain/seed-1", "held"]
    assert two.split("\t")[1:3] == ["plain/seed-2", "held"]
    assert "### held, 12 lines" in (file.parent / "runs" / "table.md").read_text()


def test_an_interrupted_sweep_goes_on_and_ends_in_the_same_bits(
    sweep: Callable,
    file: Path,
    make_config: Callable[..., Config],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file.write_text(re.sub(r"  (slow|tuned|averaged): .*\n", "", file.read_text()))
    seed_random = trainer.seed_random

    def interrupt(seed: int, step: int, micro_batch: int) -> None:
        if (seed, step, micro_batch) == (2, 4, 0) and not interrupted:
            interrupted.append(step)
            os.kill(os.getpid(), signal.SIGTERM)
        seed_random(seed, step, micro_batch)

    interrupted: list[int] = []
    monkeypatch.setattr(trainer, "seed_random", interrupt)
    assert sweep([str(file)]) == 128 + signal.SIGTERM
    capsys.readouterr()
    assert sweep([str(file), "--dry-run"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("plain/seed-1: done: ")
    assert second.startswith("plain/seed-2: after step 4 of 6: training.max_steps=6")
    assert sweep([str(file)]) == 0
    whole = make_config(
        "seed=2", "training.max_steps=6", "training.save_every=3", "validation.every=3", run="whole"
    )
    train(whole)
    folders = (Path(whole.run_dir), file.parent / "runs" / "plain" / "seed-2")
    ours, theirs = (read_checkpoint(list_checkpoints(x)[-1][1]).tensors for x in folders)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_a_dry_run_trains_nothing(
    sweep: Callable, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweep([str(file), "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 8
    assert lines[2] == (
        "slow/seed-1: to do: training.max_steps=6 training.learning_rate=0.0001"
        " training.save_every=3 validation.every=3"
    )
    assert not (file.parent / "runs").exists()


def test_a_run_that_fails_is_named_and_the_others_are_done(
    sweep: Callable, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = file.read_text().replace("slow: {training.learning_rate: 1e-4}", "slow: {init_from: x}")
    file.write_text(re.sub(r"  (tuned|averaged): .*\n", "", text).replace("[1, 2]", "[1]"))
    assert sweep([str(file)]) == 1
    assert list(rows(file)) == ["plain"]
    assert "slow/seed-1: x: no such" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("training.learning_rate: 1e-4", "training.learning_rat: 1", "recipe slow: .*did you mean"),
        ("runs_of: slow", "runs_of: averaged", "recipe averaged: runs_of .* needs one of plain"),
        ("average: 2", "average: 0.5", "recipe averaged: average is 0.5; needs a number"),
        (
            "decoding.length_penalty",
            "model.dropout",
            "recipe averaged: model.dropout: beside runs_of",
        ),
        ("seeds: [1, 2]", "seeds: 1", "seeds: Input should be a valid list"),
        ("recipes:", "recipe:", "recipe"),
        ("plain: {}", "plain: {seed: 9}", "recipe plain: seed: the sweep sets it itself"),
        ("training.max_steps: 6", "run_dir: x", "run_dir: the sweep sets it itself"),
        ("plain: {}", "plain: {data.validation: []}", "data.validation: is what recipes are"),
        ("recipes:", "tokenize: nonsense\nrecipes:", "tokenizer nonsense: sacreBLEU has no"),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused_before_anything_runs(
    sweep: Callable,
    file: Path,
    capsys: pytest.CaptureFixture[str],
    before: str,
    after: str,
    says: str,
) -> None:
    text = file.read_text()
    assert before in text
    file.write_text(text.replace(before, after, 1))
    assert sweep([str(file)]) == 1
    assert re.search(f"sweep: .*{says}", capsys.readouterr().err)
    assert not (file.parent / "runs").exists()


def test_a_recipe_whose_runs_were_trained_otherwise_is_refused(
    sweep: Callable, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(re.sub(r"  (slow|tuned|averaged): .*\n", "", file.read_text()))
    assert sweep([str(file)]) == 0
    text = file.read_text()
    file.write_text(text.replace("plain: {}", "plain: {decoding.length_penalty: 0.5}"))
    assert sweep([str(file)]) == 0
    file.write_text(text.replace("plain: {}", "plain: {training.learning_rate: 1e-4}"))
    capsys.readouterr()
    assert sweep([str(file)]) == 1
    error = capsys.readouterr().err
    assert "was trained with training.learning_rate 0.005, not 0.0001; give the recipe" in error


def test_other_references_are_compared_anew_and_other_training_data_is_refused(
    sweep: Callable, file: Path, corpus_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [f"{part}.{side}" for part in ("train", "valid") for side in ("xx", "yy")]
    for name in names:
        (file.parent / name).write_text((corpus_folder / name).read_text())
    config = file.parent / "config.yaml"
    settings = config.read_text().replace(f"{corpus_folder}/", f"{file.parent}/")
    config.write_text(settings)
    file.write_text(re.sub(r"  (slow|tuned|averaged): .*\n", "", file.read_text()))
    assert sweep([str(file)]) == 0
    first = result(file, "plain/seed-1/validation")
    references = file.parent / "valid.yy"
    references.write_text("".join(f"{line} a\n" for line in references.read_text().splitlines()))
    damaged = file.parent / "runs" / "plain" / "seed-2" / "validation.json"
    damaged.write_text('{"a": 1}')
    assert sweep([str(file)]) == 0
    second = result(file, "plain/seed-1/validation")
    assert second["asked"]["lines"] != first["asked"]["lines"]
    outputs = Path(second["translations"]).read_text().splitlines()
    score = corpus_bleu(outputs, [references.read_text().splitlines()]).score
    assert second["bleu"] == pytest.approx(score)
    assert result(file, "plain/seed-2/validation")["asked"]["lines"] == second["asked"]["lines"]
    (file.parent / "train.yy").write_text((file.parent / "train.xx").read_text())
    capsys.readouterr()
    assert sweep([str(file)]) == 1
    assert "plain/seed-1: was trained on data that has changed" in capsys.readouterr().err


def test_a_run_that_another_process_holds_is_left_to_it(sweep: Callable, file: Path) -> None:
    file.write_text(re.sub(r"  (slow|tuned|averaged): .*\n", "", file.read_text()))
    run_dir = file.parent / "runs" / "plain" / "seed-1"
    run_dir.mkdir(parents=True)
    with (run_dir / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert sweep([str(file)]) == 0
    assert not list_checkpoints(run_dir)
    assert len(rows(file)["plain"][2].split()) == 1
