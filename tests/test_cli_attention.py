"""`transformer attention`: weights as JSON and as a picture."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from small_task import Command

from transformer.decoding.attention_picture import draw_attention
from transformer.decoding.attention_record import AttentionRecord
from transformer.decoding.translator import Translator


def test_json_holds_the_weights_of_every_head_with_its_tokens(
    trained_run: Path, command: Command, tmp_path: Path
) -> None:
    path = tmp_path / "heads.json"
    done = command("attention", trained_run, "a b ab", "--output", path)
    assert (done.status, done.output) == (0, b"")
    value = json.loads(path.read_text())
    translator = Translator.load(trained_run)
    best = translator.translate_n_best(["a b ab"])[0][0]
    assert value["said"] == translator.tokenizers.target.pieces(best.ids)
    assert value["target"] == ["<s>", *value["said"][:-1]]
    assert value["source"][-1] == "</s>"
    source, target = value["source"], value["target"]
    sides = {"encoder": (source, source), "decoder": (target, target), "cross": (target, source)}
    for kind, (queries, keys) in sides.items():
        assert list(value[kind]) == ["1"]
        assert list(value[kind]["1"]) == ["1", "2"]
        for head in value[kind]["1"].values():
            assert [len(row) for row in head] == [len(keys)] * len(queries)
            assert [sum(row) for row in head] == pytest.approx([1.0] * len(queries), abs=1e-5)


def test_a_given_translation_is_read_instead_of_the_models_own(
    trained_run: Path, command: Command, tmp_path: Path
) -> None:
    path = tmp_path / "heads.json"
    command("attention", trained_run, "a b ab", "--target", "c d", "--output", path)
    tokenizer = Translator.load(trained_run).tokenizers.target
    assert json.loads(path.read_text())["said"] == tokenizer.pieces(tokenizer.encode(["c d"])[0])


def test_the_picture_grows_with_the_heads(
    trained_run: Path, command: Command, tmp_path: Path
) -> None:
    from matplotlib.image import imread

    heights = []
    for options in ((), ("--head", 2, "--layer", 1)):
        path = tmp_path / "heads.png"
        done = command("attention", trained_run, "a b $x$ ab", "--output", path, *options)
        assert done.status == 0
        pixels = imread(path)
        heights.append(pixels.shape[0])
        assert pixels[:, :, :3].min() < 0.5, "else nothing is drawn"
    assert heights[0] == 2 * heights[1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--layer", 2), "layer 2: there are layers 1 to 1"),
        (("--head", 3), "head 3: there are heads 1 to 2"),
    ],
)
def test_what_is_not_there_is_refused(
    trained_run: Path, command: Command, tmp_path: Path, options: tuple, message: str
) -> None:
    done = command("attention", trained_run, "a b", "--output", tmp_path / "x.png", *options)
    assert done.status == 1
    assert message in done.error


def test_odd_endings_and_blank_sentences_are_refused_in_a_sentence(
    trained_run: Path, command: Command, tmp_path: Path
) -> None:
    done = command("attention", trained_run, "a b", "--output", tmp_path / "x.xyz")
    assert done.status == 1
    assert "Format 'xyz' is not supported" in done.error
    done = command("attention", trained_run, "  ", "--output", tmp_path / "x.png")
    assert done.status == 1
    assert "the sentence is blank" in done.error


def test_without_matplotlib_it_says_what_to_install(
    trained_run: Path, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    done = command("attention", trained_run, "a b", "--output", tmp_path / "x.png")
    assert done.status == 1
    assert "pip install 'transformer[plot]'" in done.error
    done = command("attention", trained_run, "a b", "--output", tmp_path / "x.json")
    assert done.status == 0


@pytest.mark.parametrize(("layer", "shown"), [(None, [3, 1, 1]), (1, [1, 1, 1]), (2, [2, 1, 1])])
def test_a_stack_that_is_not_so_deep_shows_its_last_layer(
    layer: int | None, shown: list[int]
) -> None:
    deep = {i: torch.ones(1, 1, 1) for i in (1, 2, 3)}
    record = AttentionRecord(["a"], ["<s>"], ["b"], deep, {1: deep[1]}, {1: deep[1]})
    chosen = record.of_layer(layer)
    assert [list(x) for x in (chosen.encoder, chosen.decoder, chosen.cross)] == [[i] for i in shown]


def test_signs_that_no_font_has_cost_one_sentence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, recwarn: pytest.WarningsRecorder
) -> None:
    maps = {1: torch.ones(1, 1, 1)}
    record = AttentionRecord(["\U000f1234"], ["<s>"], ["b"], maps, maps, maps)
    draw_attention(record, tmp_path / "x.png")
    assert [x.getMessage() for x in caplog.records] == [
        f"{tmp_path / 'x.png'}: no font here has all of its signs; .json has them"
    ]
    assert not recwarn.list
