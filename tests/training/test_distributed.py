"""Several processes: what they compute together is what one computes alone."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from small_task import small_config
from torch.testing import assert_close

from transformer.config_file import dump_config
from transformer.training.checkpoint import BEST, list_checkpoints, read_checkpoint

STEPS = 12
WORKER = Path(__file__).with_name("ranks_at_work.py")
SETTINGS = (
    "training.log_every=1",
    "training.max_tokens=256",
    "training.batch_tokens=700",
    "training.ema_decay=0.9",
    "training.epsilon=1e-6",
    "validation.every=6",
    "tokenizer.source_sampling=0.1",
)

SPREAD = "training.sharding=full"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def work(corpus_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the runs of 1, 2 and 4 processes in float64, of one that changes their number,
    and of those whose model is spread over them; and with what each process did."""
    folder = tmp_path_factory.mktemp("work")

    def job(
        name: str, ranks: int, *overrides: str, to: int = STEPS, resume: bool = False, **more: int
    ) -> dict:
        run_dir = folder / name.split("@")[0]
        steps = f"training.max_steps={to}"
        config = small_config(corpus_folder, run_dir, *SETTINGS, *overrides, steps)
        path = folder / f"{name}.yaml"
        path.write_text(dump_config(config))
        job = {"name": name, "config": str(path), "ranks": ranks, "resume": resume}
        return {**job, "double": True, **more}

    jobs = [
        job("one", 1),
        job("two", 2),
        job("four", 4),
        job("elastic@2", 2, to=4),
        job("elastic@1", 1, to=8, resume=True),
        job("elastic@4", 4, resume=True),
        job("spread", 2, SPREAD),
        job("gathered@2", 2, SPREAD, to=5),
        job("gathered@1", 1, resume=True),
        job("scattered@1", 1, to=5),
        job("scattered@2", 2, SPREAD, "training.activation_checkpointing=true", resume=True),
        job("slow", 2, to=6, patience_seconds=4, validation_seconds=8),
        {**job("apart", 2), "others": job("other", 2, "seed=9")["config"]},
    ]
    (folder / "jobs.json").write_text(json.dumps(jobs))
    done = subprocess.run(
        [sys.executable, WORKER, folder / "jobs.json"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    for report in folder.glob("*-?.json"):
        failed = json.loads(report.read_text())["error"] is not None
        assert failed == report.name.startswith("apart"), report
    return folder


def reports(work: Path, name: str) -> list[dict]:
    """Returns what each process of a job did."""
    return [json.loads(path.read_text()) for path in sorted(work.glob(f"{name}-?.json"))]


def records(run_dir: Path, kind: str) -> list[dict]:
    """Returns the records of a kind in a run's metrics."""
    lines = (run_dir / "metrics.jsonl").read_text().splitlines()
    return [x for x in map(json.loads, lines) if x["kind"] == kind]


def assert_same_run(one: Path, other: Path) -> None:
    """Holds losses, validations and weights of two runs equal up to float64's rounding."""
    losses = [[r["loss"] for r in records(run, "train")] for run in (one, other)]
    assert len(losses[0]) == STEPS
    assert_close(*map(torch.tensor, losses), rtol=0, atol=1e-10)
    expected = {r["step"]: r for r in records(one, "validation")}
    found = {r["step"]: r for r in records(other, "validation")}  # more where it stopped meanwhile
    for step, record in expected.items():
        assert found[step]["loss"] == pytest.approx(record["loss"], abs=1e-10)
        for name in ("bleu", "chrf"):
            assert found[step][name] == pytest.approx(record[name], abs=0.005)
    files = [[list_checkpoints(run)[-1][1], run / BEST] for run in (one, other)]
    for paths in zip(*files, strict=True):
        first, second = (read_checkpoint(path).tensors for path in paths)
        assert first.keys() == second.keys()
        for name, x in first.items():
            assert_close(x, second[name], rtol=0, atol=1e-9, msg=name)


@pytest.mark.parametrize("name", ["two", "four"])
def test_any_number_of_processes_trains_what_one_does(work: Path, name: str) -> None:
    """Dropout and subword sampling are on; every loss agrees to 1e-10, BLEU to two decimals."""
    assert_same_run(work / "one", work / name)


def test_a_run_goes_on_with_another_number_of_processes(work: Path) -> None:
    assert_same_run(work / "one", work / "elastic")
    log = (work / "elastic" / "train.log").read_text()
    assert "processes: 2 so far, 1 from here on" in log
    assert "processes: 1 so far, 4 from here on" in log


@pytest.mark.parametrize(("name", "ranks"), [("two", 2), ("four", 4)])
def test_gradients_are_shared_once_an_update(work: Path, name: str, ranks: int) -> None:
    found = reports(work, name)
    assert len(found) == ranks
    assert all(len(r["updates"]) == r["exchanges"] == STEPS for r in found)


@pytest.mark.parametrize("name", ["two", "four"])
def test_no_process_computes_more_than_one_micro_batch_more_than_another(
    work: Path, name: str
) -> None:
    shares = list(zip(*(r["updates"] for r in reports(work, name)), strict=True))
    assert len(shares) == STEPS
    assert all(max(share) - min(share) <= 1 for share in shares)
    assert any(max(share) > min(share) for share in shares)


def test_processes_wait_for_one_whose_validation_takes_long(work: Path) -> None:
    """It takes twice as long as they would wait in an update."""
    found = reports(work, "slow")
    assert [len(r["updates"]) for r in found] == [6, 6]
    assert len(records(work / "slow", "validation")) == 1


@pytest.mark.parametrize("name", ["two", "four"])
def test_each_validation_line_is_translated_by_one_process(
    work: Path, corpus_folder: Path, name: str
) -> None:
    lines = (corpus_folder / "valid.xx").read_text().splitlines()
    shares = [r["translated"] for r in reports(work, name)]
    times = len(records(work / name, "validation"))
    assert sorted(x for share in shares for x in share) == sorted(lines * times)
    assert max(map(len, shares)) - min(map(len, shares)) <= times


def test_a_model_that_is_spread_over_processes_learns_the_same(work: Path) -> None:
    assert_same_run(work / "one", work / "spread")


def test_a_run_whose_model_was_spread_goes_on_in_one_process(work: Path) -> None:
    assert_same_run(work / "one", work / "gathered")


def test_a_run_of_one_process_goes_on_with_a_model_that_is_spread(work: Path) -> None:
    """Each layer is recomputed in the backward pass meanwhile."""
    assert_same_run(work / "one", work / "scattered")


def test_processes_that_see_different_things_are_refused_by_what_differs(work: Path) -> None:
    for report in reports(work, "apart"):
        assert re.match("the configuration: .* for rank 1 on .*, .* for rank 0 on", report["error"])
        assert report["updates"] == []
    assert not list_checkpoints(work / "apart")
