"""Attention maps: where the model looks while it computes what it computes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from transformer.config import ModelConfig
from transformer.ids import BOS, EOS, PAD
from transformer.model.attention_maps import AttentionMaps, attention_maps
from transformer.model.transformer import Transformer

SRC = torch.tensor([[5, 9, 17, 6, EOS], [7, EOS, PAD, PAD, PAD]])
TGT = torch.tensor([[BOS, 8, 9, 4], [BOS, 11, PAD, PAD]])
VARIANTS = [
    {},
    {"norm_first": False, "activation": "gelu"},
    {"norm": "rms", "positions": "rotary", "qk_norm": True},
    {"num_encoder_layers": 1, "num_decoder_layers": 3, "activation": "swiglu"},
]


@pytest.fixture
def make() -> Callable[..., Transformer]:
    def make(**changes: object) -> Transformer:
        torch.manual_seed(1)
        sizes = {"d_model": 16, "num_heads": 2, "d_ff": 32}
        layers = {"num_encoder_layers": 2, "num_decoder_layers": 2}
        return Transformer(ModelConfig(**{**sizes, **layers, **changes}), 20, 20).double().eval()

    return make


def every(maps: AttentionMaps) -> list[torch.Tensor]:
    return [*maps.encoder, *maps.decoder, *maps.cross]


@pytest.mark.parametrize("changes", VARIANTS)
def test_the_walk_through_the_layers_is_the_models_own(
    make: Callable[..., Transformer], changes: dict
) -> None:
    model = make(**changes)
    maps = attention_maps(model, SRC, TGT)
    with torch.no_grad():
        expected = model(SRC, TGT)
    real = TGT != PAD
    torch.testing.assert_close(maps.logits[real], expected[real], rtol=0, atol=1e-12)
    assert len(maps.encoder) == len(model.encoder.layers)
    assert len(maps.decoder) == len(maps.cross) == len(model.decoder.layers)


def test_rows_sum_to_1_and_neither_padding_nor_what_comes_later_is_seen(
    make: Callable[..., Transformer],
) -> None:
    maps = attention_maps(make(), SRC, TGT)
    for weights in every(maps):
        torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights.sum(-1)))
    for weights in (*maps.encoder, *maps.cross):
        assert weights[1, :, :, 2:].eq(0).all()
    for weights in maps.decoder:
        assert weights.triu(1).eq(0).all()


def test_maps_of_a_line_do_not_depend_on_its_neighbours(make: Callable[..., Transformer]) -> None:
    model = make(positions="rotary")
    together = attention_maps(model, SRC, TGT)
    alone = attention_maps(model, SRC[1:, :2], TGT[1:, :2])
    for both, one in zip(every(together), every(alone), strict=True):
        num_queries, num_keys = one.shape[2:]
        torch.testing.assert_close(both[1:, :, :num_queries, :num_keys], one, rtol=0, atol=1e-12)


def test_a_head_that_is_told_to_looks_where_it_is_told(make: Callable[..., Transformer]) -> None:
    """Without queries all keys are alike: what is not padding is seen evenly."""
    model = make()
    for stack in (model.encoder, model.decoder):
        for attention in (m for m in stack.modules() if hasattr(m, "w_q")):
            attention.w_q.weight.data.zero_()
            attention.w_q.bias.data.zero_()
    maps = attention_maps(model, SRC, TGT)
    for weights in (*maps.encoder, *maps.cross):
        torch.testing.assert_close(weights[0], torch.full_like(weights[0], 1 / 5))
        torch.testing.assert_close(weights[1, :, :, :2], torch.full_like(weights[1, :, :, :2], 0.5))
