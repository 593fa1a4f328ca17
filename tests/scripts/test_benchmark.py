"""Each benchmark runs on a tiny workload and reports consistent figures. No speed is asserted."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from transformer.model.transformer import Transformer

SCRIPTS = Path(__file__).parents[2] / "scripts"
TINY = ("--repeats", "1", "--threads", "1", "--vocab-size", "400", "--batch-tokens", "200")
SMALL_MODEL = ("--d-model", "64", "--layers", "1")


def benchmark(command: str, folder: Path, *options: str) -> tuple[dict[str, dict], list[list[str]]]:
    """Runs a command; returns the rows of the JSON by contender, and the cells of the table."""
    figures = folder / "figures.json"
    done = subprocess.run(
        [sys.executable, SCRIPTS / "benchmark.py", command, *TINY, *options, "--json", figures],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(figures.read_text())["rows"]
    lines = [line for line in done.stdout.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert len(cells) == 2 + len(rows)  # the head, the rule and the rows
    assert {len(line) for line in cells} == {len(cells[0])}
    return {row["contender"]: row for row in rows}, cells


def all_positive(row: dict, *keys: str) -> bool:
    return all(row[key] > 0 for key in keys)


def test_train_measures_ours_and_a_plain_loop(tmp_path: Path) -> None:
    options = ("--updates", "1", "--max-tokens", "100", "--contenders", "ours", "plain@bfloat16")
    rows, cells = benchmark("train", tmp_path, *SMALL_MODEL, *options)
    assert list(rows) == ["ours", "plain"]
    for row in rows.values():
        assert all_positive(row, "target_tokens_per_s", "gflop_per_s", "ceiling_share", "peak_mib")
        assert row["tokens_per_s"] > row["target_tokens_per_s"]
        assert 0 <= row["padding"] < 1
    assert rows["plain"]["precision"] == "bfloat16"
    assert rows["plain"]["times_plain"] == 1
    # Both see the same pairs: the operations they need are in proportion to their speeds.
    ours, plain = (r["gflop_per_s"] / r["target_tokens_per_s"] for r in rows.values())
    assert ours == pytest.approx(plain)
    assert rows["ours"]["padding"] <= rows["plain"]["padding"]
    figures = [cell for line in cells[2:] for cell in line[3:]]
    assert all(re.fullmatch(r"[\d,.]+[%x]?", cell) for cell in figures)


def test_translate_measures_greedy_beam_and_a_plain_loop(tmp_path: Path) -> None:
    rows, _ = benchmark("translate", tmp_path, *SMALL_MODEL, "--sentences", "6")
    assert list(rows) == ["greedy", "beam5", "ct2-greedy", "ct2-beam5", "plain"]
    lengths = {}
    for name, row in rows.items():
        assert all_positive(row, "seconds", "sentences_per_s", "tokens_per_s", "peak_mib")
        assert all_positive(row, "times_plain", "times_ct2-greedy", "times_ct2-beam5")
        lengths[name] = row["tokens_per_s"] / row["sentences_per_s"]
    # All translate to as many tokens, give or take the end of sentence and CTranslate2's padding.
    assert abs(lengths["greedy"] - lengths["plain"]) < 1.01
    assert lengths["greedy"] == pytest.approx(lengths["beam5"])
    assert lengths["greedy"] <= lengths["ct2-greedy"] < 2 * lengths["greedy"]


def test_translate_measures_a_trained_model_on_text(
    trained_run: Path, corpus_folder: Path, tmp_path: Path
) -> None:
    contenders = ("--contenders", "greedy", "greedy@int8", "ct2-greedy")
    data = ("--run", str(trained_run), "--lines", str(corpus_folder / "valid.xx"))
    rows, cells = benchmark("translate", tmp_path, *SMALL_MODEL, *data, *contenders)
    assert [line[2] for line in cells[2:]] == ["float32", "int8", "float32"]
    greedy, ct2 = (rows[name] for name in ("greedy", "ct2-greedy"))
    lengths = [row["tokens_per_s"] / row["sentences_per_s"] for row in (greedy, ct2)]
    assert 1 < lengths[0] < 1.1 * lengths[1], "whose limit is that of the longest of a batch"


def test_data_measures_preparation_and_sentencepiece_alone(tmp_path: Path) -> None:
    rows, _ = benchmark(
        "data",
        tmp_path,
        *("--pairs", "300", "--batch-tokens", "500", "--contenders", "start", "spm"),
    )
    assert list(rows) == ["ours", "start", "spm"]
    for name in ("ours", "spm"):
        assert all_positive(rows[name], "pairs_per_s", "encode_s", "total_s")
    assert all_positive(rows["ours"], "resident_mib", "disk_bytes")
    assert all_positive(rows["start"], "start_s", "first_update_s", "plan_s", "plan_bytes")
    assert 0 <= rows["start"]["waiting"] < 1


def test_a_wrong_contender_is_wrong_usage(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(SCRIPTS)
    from benchmark import parse

    with pytest.raises(SystemExit, match="2"):
        parse(["train", "--contenders", "plain@float16"])
    assert "'plain@float16' is none of ours, plain, sorted" in capsys.readouterr().err


def test_the_operations_of_the_products_are_those_that_torch_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(SCRIPTS)
    from benchmark_work import Work, training_flops

    work = Work(vocab_size=50, batch_tokens=0, threads=1, seed=1, d_model=64, layers=2)
    model = Transformer(work.model, 50, 50)
    src, tgt = torch.randint(4, 50, (3, 7)), torch.randint(4, 50, (3, 9))
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        model(src, tgt)
    forward = training_flops(work, np.full(3, 7), np.full(3, 9)) / 3
    hidden = 3 * 2 * (2 * 64 * 9 * (9 - 1))  # torch also counts what the causal mask hides
    assert forward + hidden == counter.get_total_flops()
