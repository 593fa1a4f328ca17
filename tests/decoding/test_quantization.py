"""Models that compute in 8-bit integers or bfloat16."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from small_task import Command
from torch import nn

from transformer import Translator
from transformer.decoding.quantization import (
    Bfloat16Linear,
    Inputs,
    Int8Linear,
    in_precision,
    narrowed,
    quantize,
)
from transformer.errors import UserError
from transformer.model.attention_maps import attention_maps
from transformer.model.transformer import Transformer


@pytest.mark.parametrize("bias", [True, False])
def test_products_are_those_of_the_rounded_numbers_to_the_last_bit_of_float32(bias: bool) -> None:
    torch.manual_seed(0)
    linear, x = nn.Linear(40, 600, bias=bias), 3 * torch.randn(3, 700, 40)
    out = Int8Linear(linear, Inputs(quantize))(x)
    rounded = (linear.weight * (127 / linear.weight.abs().amax(1, keepdim=True))).round()
    weight = (rounded * linear.weight.abs().amax(1, keepdim=True) / 127).double()
    least = x.abs().amax(-1, keepdim=True) / 127
    expected = nn.functional.linear(
        ((x / least).round() * least).double(),
        weight,
        None if linear.bias is None else linear.bias.double(),
    )
    torch.testing.assert_close(out.double(), expected, rtol=0, atol=1e-5)
    error = (out - linear(x)).abs().max() / linear(x).abs().max()
    assert 1e-5 < error < 0.02, "rounded, but not wrong"


def test_the_greatest_number_of_a_row_becomes_127_and_zeros_stay_zeros() -> None:
    rounded, scales = quantize(torch.tensor([[0.5, -1.0, 0.004], [0.0, 0.0, 0.0]]))
    assert rounded.tolist() == [[64, -127, 1], [0, 0, 0]]
    assert scales.flatten().tolist() == pytest.approx([1 / 127, 0.0])


def test_what_comes_out_for_a_sentence_does_not_depend_on_others(
    make_model: Callable[..., Transformer],
) -> None:
    model = in_precision(make_model(0, 30, double=False), "int8")
    src, tgt = torch.randint(4, 30, (2, 5, 7))
    with torch.inference_mode():
        together = model(src, tgt)
        alone = torch.cat([model(src[i : i + 1], tgt[i : i + 1]) for i in range(5)])
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-5)


@pytest.mark.parametrize("num_rows", [0, 1, 31, 32, 33, 300])
@pytest.mark.parametrize("bias", [True, False])
def test_bfloat16_products_are_those_of_narrowed_numbers(num_rows: int, bias: bool) -> None:
    torch.manual_seed(0)
    linear, x = nn.Linear(40, 60, bias=bias), torch.randn(num_rows, 40)
    narrow = Bfloat16Linear(linear, Inputs(narrowed))
    numbers = (x, linear.weight, *([linear.bias] if bias else []))
    expected = nn.functional.linear(*(n.bfloat16().double() for n in numbers))
    assert narrow(x).dtype == torch.float32
    torch.testing.assert_close(narrow(x).double(), expected, rtol=2**-8, atol=1e-5)
    torch.testing.assert_close(narrow(x.view(num_rows, 1, 40))[:, 0], narrow(x), rtol=0, atol=0)
    chosen = torch.tensor([7, 3])
    torch.testing.assert_close(narrow.of_features(chosen)(x), narrow(x)[:, chosen])


def test_float32_stays_what_it_is_in_another_layout(
    make_model: Callable[..., Transformer],
) -> None:
    usual, model = make_model(0, 30), in_precision(make_model(0, 30), "float32")
    src, tgt = torch.randint(4, 30, (2, 5, 7))
    with torch.inference_mode():
        torch.testing.assert_close(model(src, tgt), usual(src, tgt))
    for (name, weight), other in zip(model.named_parameters(), usual.parameters(), strict=False):
        torch.testing.assert_close(weight, other, rtol=0, atol=0)
        assert weight.t().is_contiguous() or "norm" in name or "embedding" in name or "bias" in name
    assert model.tgt_embedding.tokens.weight.is_contiguous()
    assert model.src_embedding.tokens.weight is model.tgt_embedding.tokens.weight


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_attention_is_told_of_a_model_in_any_precision(
    make_model: Callable[..., Transformer], precision: str
) -> None:
    model = in_precision(make_model(0, 30, double=False), precision)
    src, tgt = torch.randint(4, 30, (2, 5, 7))
    maps = attention_maps(model, src, tgt)
    with torch.inference_mode():
        torch.testing.assert_close(maps.logits, model(src, tgt), rtol=0, atol=1e-4)


def test_int8_is_not_for_other_devices_than_cpus(make_model: Callable[..., Transformer]) -> None:
    with torch.device("meta"):
        model = make_model(0, 30, double=False)
    with pytest.raises(UserError, match="int8 is for CPUs"):
        in_precision(model.to("meta"), "int8")


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_a_trained_model_says_nearly_the_same_in_less_than_float32(
    trained_run: Path, corpus_folder: Path, command: Command, precision: str
) -> None:
    lines = (corpus_folder / "valid.xx").read_text().splitlines()
    usual = Translator.load(trained_run)
    fast = Translator.load(trained_run, precision=precision)
    a, b = usual.translate(lines), fast.translate(lines)
    assert sum(x == y for x, y in zip(a, b, strict=True)) >= 0.75 * len(lines)
    scores = [[s.score for s in t.score(lines, a)] for t in (usual, fast)]
    assert scores[0] == pytest.approx(scores[1], rel=0.05)
    assert scores[0] != scores[1]
    found = [each[0] for each in fast.translate_n_best(lines)]
    again = fast.score(lines, [best.text for best in found])
    ids = fast.tokenizers.target.encode([best.text for best in found])
    compared = [(x, s) for x, s, own in zip(found, again, ids, strict=True) if x.ids == own]
    assert len(compared) > len(lines) / 2
    for best, score in compared:
        assert score.score == pytest.approx(best.score, abs=2e-2)
    data = (corpus_folder / "valid.xx").read_bytes()
    done = command("translate", trained_run, "--precision", precision, input=data)
    assert done.lines == b


def test_evaluate_says_which_precision_its_scores_are_of(
    trained_run: Path, command: Command, tmp_path: Path
) -> None:
    arguments = ("evaluate", trained_run, "--output", tmp_path, "--precision", "int8")
    assert "length penalty 1, int8, " in command(*arguments).lines[0]
    results = json.loads(command(*arguments, "--json").output)
    assert {result["precision"] for result in results.values()} == {"int8"}
