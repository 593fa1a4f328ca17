"""Checkpoints: plain files that anybody can open, whole or refused."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from full_disk import full_disk
from safetensors import safe_open
from safetensors.torch import save_file
from small_task import Command

from transformer.config import Config
from transformer.errors import UserError
from transformer.training.averaging import average_checkpoints
from transformer.training.checkpoint import (
    BEST,
    find_checkpoint,
    list_checkpoints,
    load_model,
    read_checkpoint,
    write_checkpoint,
)
from transformer.training.run import train

STRANGER = """
import json, sys
from safetensors import safe_open
with safe_open(sys.argv[1], framework="np") as file:
    metadata = json.loads(file.metadata()["transformer"])
    shapes = {name: file.get_tensor(name).shape for name in file.keys()}
assert not any(name.split(".")[0] in ("transformer", "torch") for name in sys.modules)
print(json.dumps({"metadata": metadata, "shapes": shapes}))
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A small checkpoint."""
    path = tmp_path / "small.safetensors"
    tensors = {"model.w": torch.arange(12.0).view(3, 4), "model.b": torch.tensor([True, False])}
    write_checkpoint(path, tensors, {"step": 3, "metrics": {"bleu": 12.5}, "config": {"é": "ü"}})
    return path


def test_a_stranger_opens_it_with_safetensors_alone(trained_run: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", STRANGER, trained_run / BEST],
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    assert found["metadata"]["format"] == 1
    assert found["metadata"]["config"]["model"]["d_model"] == 16
    own = dict(load_model(trained_run).model.named_parameters())
    shapes = {k: tuple(v) for k, v in found["shapes"].items() if k.startswith("model.")}
    assert shapes == {f"model.{name}": tuple(p.shape) for name, p in own.items()}


def test_it_holds_no_path_but_those_that_the_user_set(trained_run: Path) -> None:
    for path in (trained_run / BEST, list_checkpoints(trained_run)[-1][1]):
        metadata = read_checkpoint(path).metadata
        config = metadata.pop("config")
        assert str(trained_run) not in json.dumps(metadata)
        assert "/" not in json.dumps({k: v for k, v in metadata.items() if k != "metrics"})
        del config["run_dir"], config["data"]
        assert "/" not in json.dumps(config)


def test_what_is_written_reads_back_equal(small: Path) -> None:
    read = read_checkpoint(small)
    assert read.step == 3
    assert read.metadata["config"] == {"é": "ü"}
    assert torch.equal(read.tensors["model.w"], torch.arange(12.0).view(3, 4))
    assert list(small.parent.iterdir()) == [small]


@pytest.mark.parametrize("seed", range(4))
def test_a_file_cut_anywhere_is_refused(small: Path, seed: int) -> None:
    whole = small.read_bytes()
    rng = random.Random(seed)
    for size in [0, 1, 7, 8, 9, len(whole) - 1, *rng.sample(range(len(whole)), 40)]:
        small.write_bytes(whole[:size])
        with pytest.raises(UserError, match=r"small\.safetensors: "):
            read_checkpoint(small)


@pytest.mark.parametrize("seed", range(4))
def test_a_flipped_bit_anywhere_is_refused(small: Path, seed: int) -> None:
    whole = small.read_bytes()
    rng = random.Random(seed)
    for place in rng.sample(range(len(whole) * 8), 100):
        data = bytearray(whole)
        data[place // 8] ^= 1 << place % 8
        small.write_bytes(data)
        with pytest.raises(UserError, match=r"small\.safetensors: "):
            read_checkpoint(small)


def test_a_flipped_bit_anywhere_in_a_trained_model_is_refused(
    trained_run: Path, tmp_path: Path
) -> None:
    whole = (trained_run / BEST).read_bytes()
    rng, path = random.Random(1), tmp_path / "x.safetensors"
    for _ in range(40):
        data = bytearray(whole)
        data[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        with pytest.raises(UserError, match=r"x\.safetensors: "):
            load_model(path)


def test_a_full_disk_leaves_the_file_before_it_intact(small: Path) -> None:
    with (
        full_disk(5000),
        pytest.raises(UserError, match=r"small\.safetensors: could not be written: .*intact"),
    ):
        write_checkpoint(small, {"model.w": torch.zeros(5000)}, {"step": 4})
    assert read_checkpoint(small).step == 3
    assert list(small.parent.iterdir()) == [small], "nothing half-written is left"


def test_a_folder_that_cannot_be_is_named(small: Path) -> None:
    with pytest.raises(UserError, match=r"below: could not be written: "):
        write_checkpoint(small / "below", {"model.w": torch.zeros(1)}, {"step": 1})


def test_files_of_others_are_refused_by_what_they_are(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    with pytest.raises(UserError, match=r"x\.safetensors: no such checkpoint"):
        read_checkpoint(path)
    save_file({"w": torch.zeros(2)}, path)
    with pytest.raises(
        UserError, match=r"x\.safetensors: a safetensors file, but not a checkpoint"
    ):
        read_checkpoint(path)
    save_file({"w": torch.zeros(2)}, path, {"transformer": "[]"})
    with pytest.raises(UserError, match=r"x\.safetensors: damaged or not a checkpoint"):
        read_checkpoint(path)
    save_file({"w": torch.zeros(2)}, path, {"transformer": '{"format": 99}'})
    with pytest.raises(UserError, match=r"x\.safetensors: checkpoint format 99; .* format 1"):
        read_checkpoint(path)


def test_a_whole_file_that_lacks_what_a_model_needs_is_refused(
    small: Path, trained_run: Path, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=r"small\.safetensors: "):
        load_model(small)
    read, path = read_checkpoint(trained_run / BEST), tmp_path / "x.safetensors"
    for lacking in ("tokenizer", next(name for name in read.tensors if "decoder" in name)):
        write_checkpoint(
            path, {k: x for k, x in read.tensors.items() if k != lacking}, read.metadata
        )
        with pytest.raises(UserError, match=rf"x\.safetensors: .*{lacking.split('.')[-1]}"):
            load_model(path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("step", None),
        ("step", "3"),
        ("step", 2.5),
        ("step", -1),
        ("config", None),
        ("config", [1]),
        ("config", {}),
        ("config", {"model": 5}),
    ],
)
def test_a_whole_file_whose_metadata_is_not_right_is_refused_by_what_is_not(
    trained_run: Path, command: Command, tmp_path: Path, key: str, value: object
) -> None:
    read, path = read_checkpoint(trained_run / BEST), tmp_path / "x.safetensors"
    metadata = {k: x for k, x in {**read.metadata, key: value}.items() if x is not None}
    write_checkpoint(path, read.tensors, metadata)
    done = command("translate", path)
    assert (done.status, done.output) == (1, b"")
    assert done.error.startswith(f"transformer: {path}: its {key}")
    assert done.error.count("\n") == 1


def test_a_setting_that_this_version_lacks_names_the_other_version(
    trained_run: Path, tmp_path: Path
) -> None:
    read, path = read_checkpoint(trained_run / BEST), tmp_path / "x.safetensors"
    read.metadata["config"]["data"]["shuffle_twice"] = True
    write_checkpoint(path, read.tensors, read.metadata)
    with pytest.raises(UserError, match=r"data\.shuffle_twice: .*another version has made"):
        load_model(path)


def test_metadata_nested_too_deep_to_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    save_file({"w": torch.zeros(2)}, path, {"transformer": "[" * 200_000})
    with pytest.raises(UserError, match=r"x\.safetensors: damaged or not a checkpoint"):
        read_checkpoint(path)


def test_a_directory_stands_for_its_best_model_else_its_newest(
    trained_run: Path, tmp_path: Path
) -> None:
    assert find_checkpoint(trained_run) == trained_run / BEST
    (tmp_path / "checkpoints").mkdir()
    for step in (9, 10):
        (tmp_path / "checkpoints" / f"step-{step:08d}.safetensors").write_bytes(b"")
    (tmp_path / "checkpoints" / "step-00000011.safetensors.partial").write_bytes(b"")
    assert find_checkpoint(tmp_path).name == "step-00000010.safetensors"
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"empty: holds neither best\.safetensors nor"):
        find_checkpoint(tmp_path / "empty")


def test_a_checkpoint_of_the_run_holds_its_whole_state_and_the_best_only_what_translates(
    trained_run: Path,
) -> None:
    _, newest = list_checkpoints(trained_run)[-1]
    with safe_open(newest, "pt") as full, safe_open(trained_run / BEST, "pt") as best:
        kinds = [{name.split(".")[0] for name in file.keys()} for file in (full, best)]  # noqa: SIM118
    assert kinds == [{"model", "optimizer", "tokenizer"}, {"model", "tokenizer"}]


def test_the_average_of_a_moving_average_is_over_what_translates(
    trained_run: Path, tmp_path: Path
) -> None:
    read = read_checkpoint(list_checkpoints(trained_run)[-1][1])
    for step, value in ((1, 1.0), (2, 4.0)):
        moved = {f"ema.{name}": torch.full_like(x, value) for name, x in read.weights().items()}
        path = tmp_path / "checkpoints" / f"step-{step:08d}.safetensors"
        write_checkpoint(path, read.tensors | moved, {**read.metadata, "step": step})
    assert average_checkpoints(tmp_path, 2, tmp_path / "mean.safetensors") == [1, 2]
    weights = load_model(tmp_path / "mean.safetensors").model.parameters()
    assert all((p == 2.5).all() for p in weights)


@pytest.mark.parametrize("count", [1, 2])
def test_an_average_is_the_mean_of_the_newest_checkpoints(
    trained_run: Path, command: Command, corpus_folder: Path, tmp_path: Path, count: int
) -> None:
    output, source = tmp_path / "mean.safetensors", corpus_folder / "valid.xx"
    done = command("average", trained_run, "--last", count, "-o", output)
    assert done.status == 0
    steps, paths = zip(*list_checkpoints(trained_run)[-count:], strict=True)
    assert f"mean of steps {', '.join(map(str, steps))}" in done.error
    parts = [read_checkpoint(path).weights() for path in paths]
    mean = read_checkpoint(output).weights()
    assert mean.keys() == parts[0].keys()
    for name, x in mean.items():
        expected = torch.stack([part[name].double() for part in parts]).mean(0).float()
        assert torch.equal(x, expected), name
    translated = command("translate", output, "-i", source)
    assert translated.status == 0
    if count == 1:
        assert translated.output == command("translate", paths[0], "-i", source).output


def test_an_average_of_several_runs_is_the_mean_of_the_best_of_each(
    trained_run: Path, command: Command, make_config: Callable[..., Config], tmp_path: Path
) -> None:
    train(make_config(f"init_from={trained_run}", "seed=2", run="other"))
    output = tmp_path / "mean.safetensors"
    done = command("average", trained_run, tmp_path / "other", "-o", output)
    assert done.status == 0, done.error
    parts = [read_checkpoint(run / BEST).weights() for run in (trained_run, tmp_path / "other")]
    mean = read_checkpoint(output)
    for name, x in mean.weights().items():
        expected = torch.stack([part[name].double() for part in parts]).mean(0).float()
        assert torch.equal(x, expected), name
    alone = read_checkpoint(trained_run / BEST)
    assert mean.tokenizers.source.model == alone.tokenizers.source.model
    assert load_model(output).config.init_from == str(trained_run)


def test_only_models_that_go_together_are_averaged(
    trained_run: Path, command: Command, make_config: Callable[..., Config], tmp_path: Path
) -> None:
    output = tmp_path / "mean.safetensors"
    train(make_config("tokenizer.vocab_size=290", "training.max_steps=1", run="fewer"))
    train(make_config("tokenizer.kind=unigram", "training.max_steps=1", run="unigram"))
    train(make_config("model.num_heads=1", "training.max_steps=1", run="heads"))
    train(make_config("data.source_language=zz", "training.max_steps=1", run="turned"))
    for name, says in (
        ("fewer", "the size of its vocabulary or model is not that of the checkpoints before it"),
        ("unigram", "its vocabulary is not that of the checkpoints before it"),
        ("heads", "model.num_heads is not that of the checkpoints before it"),
        ("turned", "data.source_language is not that of the checkpoints before it"),
        ("none", "no such checkpoint"),
    ):
        done = command("average", trained_run, tmp_path / name, "-o", output)
        assert done.status == 1
        assert says in done.error
    heads = tmp_path / "heads"
    for path in (heads / BEST, list_checkpoints(heads)[-1][1]):
        whole = path.read_bytes()
        for models in ([heads, heads], [heads, "--last", 1]):
            done = command("average", *models, "-o", path)
            assert done.status == 1
            assert "is a checkpoint of a run" in done.error
            assert path.read_bytes() == whole
    for options in ([trained_run], [trained_run, trained_run, "--last", 1]):
        done = command("average", *options, "-o", output)
        assert done.status == 2
        assert "--last" in done.error
    assert not output.exists()


def test_more_checkpoints_than_there_are_cannot_be_averaged(
    trained_run: Path, command: Command, tmp_path: Path
) -> None:
    done = command("average", trained_run, "--last", 9, "-o", tmp_path / "x.safetensors")
    assert done.status == 1
    assert f"{trained_run}: has " in done.error
    assert "9 were asked for" in done.error
    assert not (tmp_path / "x.safetensors").exists()


def test_an_average_is_not_written_over_what_is_no_average(
    trained_run: Path, command: Command, tmp_path: Path
) -> None:
    text = tmp_path / "train.en"
    text.write_text("a dog\n")
    for output in (text, Path("/dev/null")):
        done = command("average", trained_run, "--last", 1, "-o", output)
        assert done.status == 1
        assert f"{output}: is no checkpoint, writing would destroy it" in done.error
    assert text.read_text() == "a dog\n"
    assert not Path("/dev/null").is_file()
    mean = tmp_path / "mean.safetensors"
    for _ in range(2):
        assert command("average", trained_run, "--last", 1, "-o", mean).status == 0


def test_an_average_is_not_written_over_a_folder_or_a_checkpoint(
    trained_run: Path, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _, newest = list_checkpoints(trained_run)[-1]
    whole = newest.read_bytes()
    for output, says in (
        (tmp_path, f"is a folder; needs the name of a file, such as {tmp_path}/mean.safetensors"),
        (Path(), "is a folder"),
        (newest, "is a checkpoint of a run, writing would destroy it"),
    ):
        done = command("average", trained_run, "--last", 1, "-o", output)
        assert done.status == 1
        assert done.error.startswith(f"transformer: {output}: {says}")
    assert list(tmp_path.iterdir()) == []
    assert newest.read_bytes() == whole
