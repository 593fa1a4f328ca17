"""Training runs that are killed, again and again, end as one that was left alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HARNESS = Path(__file__).parents[2] / "scripts" / "kill_harness.py"

pytestmark = pytest.mark.slow


def harness(tmp_path: Path, *options: str) -> dict:
    """Runs the harness, which compares; returns its figures."""
    figures = tmp_path / "figures.json"
    done = subprocess.run(
        [sys.executable, HARNESS, *options, "--json", figures],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(figures.read_text())
    assert found["lost"] == []
    return found


def test_a_run_killed_at_random_moments_ends_in_the_same_bits(tmp_path: Path) -> None:
    kills = harness(tmp_path, "--kills", "12", "--seed", "1")["kills"]
    assert sum(kills.values()) >= 12
    assert {"data preparation", "tokenizer training", "updates"} <= kills.keys()


def test_a_run_of_two_processes_of_which_one_is_killed_ends_in_the_same_bits(
    tmp_path: Path,
) -> None:
    kills = harness(tmp_path, "--kills", "8", "--seed", "1", "--processes", "2")["kills"]
    assert sum(kills.values()) >= 8


def test_a_run_killed_before_a_file_operation_ends_in_the_same_bits(tmp_path: Path) -> None:
    kills = harness(tmp_path, "--each-file-operation", "--stride", "5")["kills"]
    assert {"data preparation", "saves"} <= kills.keys()


@pytest.mark.parametrize("signal", ["SIGTERM", "SIGINT"])
def test_a_run_asked_to_stop_at_random_moments_does_so_within_ten_seconds(
    tmp_path: Path, signal: str
) -> None:
    figures = harness(tmp_path, "--kills", "8", "--seed", "2", "--signal", signal)
    assert sum(figures["kills"].values()) >= 8
    assert figures["longest_seconds"] < 10
