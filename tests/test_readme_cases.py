"""The commands around a model: data that is not right, runs that move, wrong usage, tokenizers,
configurations.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import save_file
from small_task import SETTINGS, Command
from torch import zeros

from transformer import __version__
from transformer.config_file import load_config, parse_config
from transformer.training.checkpoint import BEST, list_checkpoints, load_model

ROOT = Path(__file__).parent.parent


def test_a_corpus_that_is_not_parallel_is_refused_before_training(
    own_data: Path, command: Command
) -> None:
    for ending, size in (("xx", 100), ("yy", 99)):
        path = own_data / f"train.{ending}"
        path.write_text("".join(path.read_text().splitlines(True)[:size]))
    done = command("train", own_data / "config.yaml")
    assert done.status == 1
    assert f"{own_data}/train.xx has 100 lines, {own_data}/train.yy has 99" in done.error
    assert "Traceback" not in done.error
    assert not list_checkpoints(own_data / "run")


def test_dropped_pairs_are_reported_by_reason_and_line(own_data: Path, command: Command) -> None:
    for ending, number, text in (("xx", 5, ""), ("yy", 9, "a " * 300), ("xx", 17, "b " * 300)):
        path = own_data / f"train.{ending}"
        lines = path.read_text().splitlines()
        lines[number - 1] = text
        path.write_text("".join(f"{line}\n" for line in lines))
    done = command("train", own_data / "config.yaml", "training.max_steps=1")
    assert done.status == 0, done.error
    dropped = [line for line in done.error.splitlines() if "train.xx:" in line]
    assert not any(line.startswith("warning: ") for line in dropped)
    assert any("1 " in line and "train.xx:5" in line for line in dropped)
    assert any(
        "2 " in line and "256" in line and "train.xx:9" in line and ":17" in line
        for line in dropped
    )


def test_many_dropped_pairs_are_warned_about(own_data: Path, command: Command) -> None:
    path = own_data / "train.xx"
    path.write_text("\n" * 12 + "".join(path.read_text().splitlines(True)[12:]))
    done = command("train", own_data / "config.yaml", "training.max_steps=1")
    assert done.status == 0, done.error
    assert "warning: 12 of 150 pairs are left out (8.0%)" in done.error
    assert "train.xx:1, " in done.error


def test_two_vocabularies_cannot_be_tied_three_ways(own_data: Path, command: Command) -> None:
    done = command("train", own_data / "config.yaml", "tokenizer.joint=false")
    assert done.status == 1
    assert "two vocabularies cannot share one matrix" in done.error
    assert not (own_data / "run").exists()


def test_a_finished_run_says_that_it_is_done(
    trained_run: Path, command: Command, tmp_path: Path
) -> None:
    run = shutil.copytree(trained_run, tmp_path / "run")
    newest = list_checkpoints(run)[-1][1].read_bytes()
    done = command("resume", run, "training.max_steps=100")
    assert done.status == 0
    assert "already done: step 200 of training.max_steps 100" in done.error
    assert list_checkpoints(run)[-1][1].read_bytes() == newest


@pytest.mark.parametrize("name", ["moved", "2024"])
def test_a_run_that_moved_goes_on_where_it_is(
    trained_run: Path,
    command: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    before = sorted(trained_run.rglob("*"))
    shutil.copytree(trained_run, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    done = command("resume", name, "training.max_steps=202")
    assert done.status == 0, done.error
    assert "resuming after step 200" in done.error
    assert list_checkpoints(tmp_path / name)[-1][0] == 202
    assert sorted(trained_run.rglob("*")) == before


def test_a_model_needs_nothing_but_its_directory(
    own_data: Path, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = (own_data / "valid.xx").read_bytes()
    assert command("train", own_data / "config.yaml").status == 0
    before = command("translate", own_data / "run", "--scores", input=lines)
    shutil.move(own_data / "run", tmp_path / "elsewhere")
    shutil.rmtree(own_data)  # data, cache and configuration
    monkeypatch.chdir("/")
    after = command("translate", tmp_path / "elsewhere", "--scores", input=lines)
    assert (after.status, after.output) == (0, before.output)
    (tmp_path / "elsewhere" / BEST).rename(tmp_path / "alone.safetensors")
    shutil.rmtree(tmp_path / "elsewhere")
    alone = command("translate", tmp_path / "alone.safetensors", "--scores", input=lines)
    assert alone.output == before.output


def test_a_run_in_the_way_is_refused_with_the_ways_out(
    own_data: Path, command: Command, trained_run: Path
) -> None:
    done = command("train", own_data / "config.yaml", f"run_dir={trained_run}")
    assert done.status == 1
    assert "--resume" in done.error
    assert "--overwrite" in done.error


def test_a_configuration_that_is_shown_reads_back_equal(
    own_data: Path, command: Command, tmp_path: Path
) -> None:
    done = command("config", "show", own_data / "config.yaml", "model.d_ff=48")
    assert done.status == 0
    (tmp_path / "shown.yaml").write_bytes(done.output)
    expected = parse_config(SETTINGS.format(folder=own_data), "x", ["model.d_ff=48"])
    assert load_config(tmp_path / "shown.yaml") == expected


def test_the_schema_is_the_one_that_stands_beside_the_configurations(command: Command) -> None:
    shown = json.loads(command("config", "schema").output)
    assert shown == json.loads((ROOT / "configs" / "schema.json").read_text(encoding="utf-8"))


def test_inspect_counts_the_parameters_that_the_model_has(
    trained_run: Path, command: Command
) -> None:
    done = command("inspect", trained_run / "config.yaml")
    assert done.status == 0
    num_parameters = load_model(trained_run).model.num_parameters
    assert any(line.startswith(f"{num_parameters:,} parameters") for line in done.lines)
    assert "updates an epoch" in done.output.decode()


def test_a_tokenizer_is_trained_encodes_and_decodes(
    own_data: Path, command: Command, tmp_path: Path
) -> None:
    model, text = tmp_path / "x.model", (own_data / "valid.xx").read_bytes() + "é ﬁ ⅓\n".encode()
    files = own_data / "train.xx", own_data / "train.yy"
    done = command("tokenizer", "train", *files, "-o", model, "--vocab-size", 300, "--kind", "bpe")
    assert done.status == 0, done.error
    ids = command("tokenizer", "encode", model, input=text)
    assert (ids.status, len(ids.lines)) == (0, text.count(b"\n"))
    assert command("tokenizer", "decode", model, input=ids.output).output == text
    pieces = command("tokenizer", "encode", model, "--pieces", input=text)
    assert [len(x.split(" ")) for x in pieces.lines] == [len(x.split(" ")) for x in ids.lines]


def test_the_tokenizer_of_a_run_is_that_of_its_checkpoints(
    trained_run: Path, command: Command, tmp_path: Path
) -> None:
    model = tmp_path / "x.model"
    model.write_bytes(load_model(trained_run).tokenizers.source.model)
    paths = (trained_run, trained_run / BEST, list_checkpoints(trained_run)[-1][1], model)
    found = [command("tokenizer", "encode", path, input=b"a b\ncd\n") for path in paths]
    assert [done.status for done in found] == [0] * 4
    assert len({done.output for done in found}) == 1


@pytest.mark.parametrize(
    ("ids", "says"),
    [(b"5\nx\n", "input:2: 'x' is no id; a line holds numbers"), (b"5\n9999\n", "9999")],
)
def test_what_is_no_id_is_named(trained_run: Path, command: Command, ids: bytes, says: str) -> None:
    done = command("tokenizer", "decode", trained_run, input=ids)
    assert done.status == 1
    assert says in done.error
    assert "Traceback" not in done.error


@pytest.mark.parametrize(
    "args",
    [
        ["translate"],
        ["translate", "x", "--beam-size", "0"],
        ["translate", "x", "--beam-size", "many"],
        ["score", "x"],
        ["evaluate", "x", "--source", "y"],
        ["average", "x"],
        ["train", "x", "--resume", "--overwrite"],
        ["train"],
        ["resume"],
        ["inspect"],
        ["config", "show"],
        ["tokenizer", "train", "x"],
        ["tokenizer", "encode"],
        ["translated"],
        ["translate", "x", "--no-such-option"],
    ],
)
def test_wrong_usage_has_its_own_exit_status(command: Command, args: list[str]) -> None:
    done = command(*args)
    assert (done.status, done.output) == (2, b"")
    assert "Traceback" not in done.error


USES_CONFIG = (["train"], ["inspect"], ["config", "show"])


@pytest.mark.parametrize("args", USES_CONFIG, ids=" ".join)
def test_a_configuration_that_is_not_there_is_named(
    command: Command, tmp_path: Path, args: list[str]
) -> None:
    done = command(*args, tmp_path / "none.yaml")
    assert done.status == 1
    assert done.error == f"transformer: {tmp_path}/none.yaml: no such file\n"


def test_a_folder_that_is_no_run_is_not_gone_on_with(command: Command, tmp_path: Path) -> None:
    done = command("resume", tmp_path)
    assert done.status == 1
    assert done.error.startswith(f"transformer: {tmp_path}: holds no config.yaml")


def test_data_that_is_not_there_is_named(own_data: Path, command: Command) -> None:
    (own_data / "train.yy").unlink()
    for name in ("train", "inspect"):
        done = command(name, own_data / "config.yaml")
        assert done.status == 1
        assert done.error == f"transformer: {own_data}/train.yy: no such file\n"
    assert not (own_data / "run").exists(), "nothing is left of a run that could not begin"


def test_a_relative_path_that_leads_nowhere_is_named_with_where_it_starts(
    own_data: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(own_data)
    done = command("train", "config.yaml", "data.train.0.source=nowhere.xx")
    assert done.error == f"transformer: nowhere.xx: no such file; paths start from {own_data}\n"


def test_text_given_as_a_second_model_is_pointed_to_its_option(
    trained_run: Path, corpus_folder: Path, command: Command
) -> None:
    done = command("translate", trained_run, corpus_folder / "valid.xx")
    assert done.status == 1
    assert f"{corpus_folder}/valid.xx: is no model" in done.error
    assert "--input FILE" in done.error


def test_the_version_is_that_of_the_package(command: Command) -> None:
    done = command("--version")
    assert done.status == 0
    assert done.lines[0].startswith(f"transformer {__version__} (")


Damage = Callable[[bytes], bytes]


def _flip(data: bytes) -> bytes:
    changed = bytearray(data)
    changed[-100] ^= 16
    return bytes(changed)


DAMAGES: dict[str, Damage] = {
    "text": lambda data: b"this is a text, and no model\n",
    "empty": lambda data: b"",
    "truncated": lambda data: data[: len(data) // 2],
    "flipped": _flip,
    "future": lambda data: data.replace(b'\\"format\\": 1', b'\\"format\\": 7'),
}


def model_commands(model: Path, corpus: Path, tmp_path: Path) -> list[list[object]]:
    """Returns each command that loads a model."""
    sides = ["--source", corpus / "valid.xx", "--target", corpus / "valid.yy"]
    return [
        ["translate", model],
        ["score", model, *sides],
        ["evaluate", model, "--output", tmp_path],
        ["tokenizer", "encode", model],
        ["tokenizer", "decode", model],
    ]


@pytest.mark.parametrize("damage", [*DAMAGES, "stranger", "missing", "folder"])
def test_a_model_that_is_none_is_named_in_one_sentence(
    trained_run: Path, corpus_folder: Path, command: Command, tmp_path: Path, damage: str
) -> None:
    path = tmp_path / "x.safetensors"
    if damage in DAMAGES:
        whole = (trained_run / BEST).read_bytes()
        path.write_bytes(DAMAGES[damage](whole))
        assert path.read_bytes() != whole
    elif damage == "stranger":
        save_file({"weight": zeros(3)}, path)
    elif damage == "folder":
        path.mkdir()
    for args in model_commands(path, corpus_folder, tmp_path):
        done = command(*args)
        assert (done.status, done.output) == (1, b""), args
        assert done.error.startswith(f"transformer: {path}: "), args
        assert done.error.count("\n") == 1, args
        assert damage != "future" or "format 7; this version reads format 1" in done.error


def test_a_damaged_checkpoint_is_not_averaged(
    trained_run: Path, command: Command, tmp_path: Path
) -> None:
    run, output = shutil.copytree(trained_run, tmp_path / "run"), tmp_path / "mean.safetensors"
    _, newest = list_checkpoints(run)[-1]
    newest.write_bytes(_flip(newest.read_bytes()))
    done = command("average", run, "--last", 2, "-o", output)
    assert done.status == 1
    assert done.error.startswith(f"transformer: {newest}: damaged")
    assert not output.exists()
    done = command("average", tmp_path / "none", "--last", 1, "-o", output)
    assert done.status == 1
    assert f"{tmp_path}/none: no such run directory" in done.error


def test_a_text_named_as_a_sentencepiece_model_is_named(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "x.model"
    path.write_text("this is a text\n")
    done = command("tokenizer", "encode", path)
    assert done.status == 1
    assert done.error.startswith(f"transformer: {path}: this is not a SentencePiece model")


def test_text_that_is_not_there_or_has_no_place_is_named(
    trained_run: Path, corpus_folder: Path, command: Command, tmp_path: Path
) -> None:
    none, source = tmp_path / "none", corpus_folder / "valid.xx"
    nowhere = tmp_path / "none" / "out"
    for args in (
        ["translate", trained_run, "-i", none],
        ["score", trained_run, "--source", source, "--target", none],
        ["evaluate", trained_run, "--source", none, "--reference", source],
        ["tokenizer", "train", none, "-o", tmp_path / "x.model"],
        ["translate", trained_run, "-i", source, "-o", nowhere],
        ["tokenizer", "train", source, "-o", nowhere, "--vocab-size", 300, "--kind", "bpe"],
        ["tokenizer", "encode", trained_run, "-i", source, "-o", nowhere],
    ):
        done = command(*args)
        assert (done.status, done.output) == (1, b""), args
        assert f"{none}" in done.error, args
        assert "No such file or directory" in done.error, args
        assert "Traceback" not in done.error, args
