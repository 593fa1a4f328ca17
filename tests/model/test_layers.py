"""The layers against the formulas of the papers and torch's own layers with the same weights."""

import math

import pytest
import torch
from torch import Tensor, nn

from transformer.config import ModelConfig
from transformer.model.attention import Attention
from transformer.model.layers import (
    DecoderLayer,
    DecoderView,
    EncoderLayer,
    FeedForward,
    Residual,
    make_norm,
)

B, S, T, D = 3, 7, 5, 16
EXACT = {"rtol": 0.0, "atol": 1e-12}


def small(**changes: object) -> ModelConfig:
    return ModelConfig(**{"d_model": D, "num_heads": 4, "d_ff": 32, "dropout": 0.0, **changes})


def random(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def randomised(module: nn.Module) -> nn.Module:
    """Gives every parameter, gains and biases too, a value of its own."""
    torch.manual_seed(1)
    for parameter in module.double().parameters():
        nn.init.normal_(parameter, std=0.3)
    return module


def activate(kind: str, x: Tensor) -> Tensor:
    if kind == "relu":
        return x.clamp(min=0)
    return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))  # Hendrycks and Gimpel 2016


@pytest.mark.parametrize("kind", ["relu", "gelu"])
def test_feed_forward_is_two_maps_with_the_activation_between(kind: str) -> None:
    layer, x = randomised(FeedForward(small(activation=kind))), random(B, S, D)
    inner = activate(kind, x @ layer.w_1.weight.T + layer.w_1.bias)
    torch.testing.assert_close(layer(x), inner @ layer.w_2.weight.T + layer.w_2.bias, **EXACT)


def test_swiglu_is_the_swish_of_a_gate_times_a_value() -> None:
    layer, x = randomised(FeedForward(small(activation="swiglu"))), random(B, S, D)
    gate = x @ layer.w_gate.weight.T + layer.w_gate.bias
    value = x @ layer.w_1.weight.T + layer.w_1.bias
    inner = gate / (1 + torch.exp(-gate)) * value
    torch.testing.assert_close(layer(x), inner @ layer.w_2.weight.T + layer.w_2.bias, **EXACT)


def test_activation_dropout_works_on_the_inner_features() -> None:
    share = 0.25
    layer = randomised(FeedForward(small(activation="gelu", d_ff=D, activation_dropout=share)))
    nn.init.eye_(layer.w_2.weight)
    nn.init.zeros_(layer.w_2.bias)
    x = random(32, S, D)
    inner = activate("gelu", layer.w_1(x))
    torch.manual_seed(0)
    out = layer(x)
    kept = out != 0
    assert abs(kept.double().mean().item() - (1 - share)) < 0.03
    torch.testing.assert_close(out[kept], inner[kept] / (1 - share), **EXACT)
    torch.testing.assert_close(layer.eval()(x), inner, **EXACT)


def test_layer_norm_and_rms_norm_are_their_formulas() -> None:
    x = 3 * random(B, S, D) + 2
    layer, rms = randomised(make_norm(small())), randomised(make_norm(small(norm="rms")))
    centred = x - x.mean(-1, keepdim=True)
    expected = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    torch.testing.assert_close(layer(x), expected * layer.weight + layer.bias, **EXACT)
    expected = x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    torch.testing.assert_close(rms(x), expected * rms.weight, **EXACT)


@pytest.mark.parametrize("norm_first", [True, False])
def test_residual_normalises_before_the_sublayer_or_after_the_sum(norm_first: bool) -> None:
    residual = randomised(Residual(small(norm_first=norm_first)))
    sublayer = randomised(nn.Linear(D, D))
    x = random(B, S, D)
    out = residual.add(x, sublayer(residual.read(x)))
    norm = residual.norm
    expected = x + sublayer(norm(x)) if norm_first else norm(x + sublayer(x))
    torch.testing.assert_close(out, expected, **EXACT)


def test_dropout_falls_on_what_is_added_never_on_the_stream() -> None:
    residual = Residual(small(dropout=0.5)).double()
    x, y = random(B, S, D), random(B, S, D, seed=1)
    torch.manual_seed(0)
    added = residual.add(x, y) - x
    kept = added.abs() > 1e-9
    assert 0.3 < kept.double().mean().item() < 0.7
    torch.testing.assert_close(added[kept], 2 * y[kept], **EXACT)
    torch.testing.assert_close(residual.eval().add(x, y), x + y, **EXACT)


def copy_attention(ours: Attention, theirs: nn.MultiheadAttention) -> None:
    parts = [ours.w_q, ours.w_k, ours.w_v]
    theirs.in_proj_weight.data = torch.cat([part.weight for part in parts]).detach().clone()
    theirs.in_proj_bias.data = torch.cat([part.bias for part in parts]).detach().clone()
    theirs.out_proj.load_state_dict(ours.w_o.state_dict())


def torch_twin(
    ours: EncoderLayer | DecoderLayer, kind: type, norm_first: bool, act: str
) -> nn.Module:
    theirs = kind(D, 4, 32, 0.0, act, batch_first=True, norm_first=norm_first).double()
    copy_attention(ours.self_attention, theirs.self_attn)
    theirs.linear1.load_state_dict(ours.feed_forward.w_1.state_dict())
    theirs.linear2.load_state_dict(ours.feed_forward.w_2.state_dict())
    residuals = [ours.self_attention_residual, ours.feed_forward_residual]
    norms = [theirs.norm1, theirs.norm2]
    if isinstance(ours, DecoderLayer):
        copy_attention(ours.cross_attention, theirs.multihead_attn)
        residuals.insert(1, ours.cross_attention_residual)
        norms.append(theirs.norm3)
    for residual, norm in zip(residuals, norms, strict=True):
        norm.load_state_dict(residual.norm.state_dict())
    return theirs


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_encoder_layer_equals_torchs(norm_first: bool, activation: str) -> None:
    config = small(norm_first=norm_first, activation=activation)
    ours = randomised(EncoderLayer(config))
    theirs = torch_twin(ours, nn.TransformerEncoderLayer, norm_first, activation)
    x = random(B, S, D)
    real = torch.arange(S) < torch.tensor([7, 4, 1])[:, None]
    torch.testing.assert_close(
        ours(x, real[:, None, None]), theirs(x, src_key_padding_mask=~real), **EXACT
    )


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_decoder_layer_equals_torchs(norm_first: bool, activation: str) -> None:
    config = small(norm_first=norm_first, activation=activation)
    ours = randomised(DecoderLayer(config))
    theirs = torch_twin(ours, nn.TransformerDecoderLayer, norm_first, activation)
    x, memory = random(B, T, D), random(B, S, D, seed=1)
    real = torch.arange(S) < torch.tensor([7, 4, 1])[:, None]
    keys_values = ours.cross_attention.keys_values(memory, memory)
    out, *_ = ours(x, None, keys_values, DecoderView(real[:, None, None]))
    expected = theirs(
        x,
        memory,
        tgt_mask=torch.ones(T, T, dtype=torch.bool).triu(1),
        memory_key_padding_mask=~real,
    )
    torch.testing.assert_close(out, expected, **EXACT)
