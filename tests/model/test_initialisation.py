"""Where training starts: what an untrained model says, how large its stream is, what learns."""

import math
from collections.abc import Callable

import pytest
import torch
from losses import model_loss
from small_model import VARIANTS, V, make, small, tokens
from torch import Tensor, nn

from transformer.ids import PAD
from transformer.model.transformer import Transformer


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("tie", ["all", "decoder", "none"])
@pytest.mark.parametrize("width", [64, 256])
@torch.no_grad()
def test_an_untrained_model_knows_nothing(norm_first: bool, tie: str, width: int) -> None:
    torch.manual_seed(0)
    config = small(d_model=width, d_ff=2 * width, norm_first=norm_first, tie_embeddings=tie)
    model = Transformer(config, 2000, 2000)
    src, tgt, labels = (tokens(8, 20, seed, 2000) for seed in range(3))
    loss = model_loss(model, src, tgt, labels).item() / labels.numel()
    assert loss == pytest.approx(math.log(2000), rel=0.15)


@pytest.mark.parametrize("norm_first", [True, False])
@torch.no_grad()
def test_the_residual_stream_keeps_its_size_whatever_the_depth(norm_first: bool) -> None:
    sizes: dict[int, list[float]] = {}

    def measure(depth: int) -> Callable[[nn.Module, tuple], None]:
        return lambda _module, inputs: sizes.setdefault(depth, []).append(
            inputs[0].square().mean().sqrt().item()
        )

    for depth in (2, 24):
        model = make(
            num_encoder_layers=depth, num_decoder_layers=depth, norm_first=norm_first, d_model=64
        )
        for stack in (model.encoder, model.decoder):
            stack.norm.register_forward_pre_hook(measure(depth))
        model(tokens(8, 20), tokens(8, 20, seed=1))
    for shallow, deep in zip(sizes[2], sizes[24], strict=True):
        assert 0.5 < deep / shallow < 2


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@pytest.mark.parametrize("tie", ["all", "decoder", "none"])
def test_every_weight_receives_a_gradient(variant: dict, tie: str) -> None:
    model = make(tie_embeddings=tie, **variant)
    src, tgt = tokens(4, 12), tokens(4, 12, seed=1)
    model_loss(model, src, tgt, tokens(4, 12, seed=2)).backward()
    for name, parameter in model.named_parameters():
        # A bias of the keys adds the same to all scores of a query, which softmax does not see.
        unseen = name.endswith("w_k.bias") and not variant.get("qk_norm")
        assert parameter.grad is not None, name
        assert unseen or parameter.grad.abs().max() > 1e-9, name


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_recomputing_activations_changes_no_bit(variant: dict) -> None:
    chances = {"dropout": 0.1, "attention_dropout": 0.1, "activation_dropout": 0.1}
    results = []
    for checkpointing in (False, True):
        torch.manual_seed(0)
        config = small(**{**variant, **chances})
        model = Transformer(config, V, V, activation_checkpointing=checkpointing)
        torch.manual_seed(1)
        src = tokens(3, 9).masked_fill(torch.arange(9) >= torch.tensor([9, 5, 7])[:, None], PAD)
        loss = model_loss(model, src, tokens(3, 7, seed=1), tokens(3, 7, seed=2), 0.1)
        loss.backward()
        results.append([loss, *(parameter.grad for parameter in model.parameters())])
    assert all(torch.equal(kept, again) for kept, again in zip(*results, strict=True))


def test_recomputing_keeps_less_for_the_backward_pass() -> None:
    kept = []
    for checkpointing in (False, True):
        torch.manual_seed(0)
        model = Transformer(small(), V, V, activation_checkpointing=checkpointing)
        sizes: list[int] = []

        def count(x: Tensor, sizes: list[int] = sizes) -> Tensor:
            sizes.append(0 if isinstance(x, nn.Parameter) else x.numel())
            return x

        with torch.autograd.graph.saved_tensors_hooks(count, lambda x: x):
            model(tokens(3, 9), tokens(3, 7, seed=1))
        kept.append(sum(sizes))
    assert kept[1] < kept[0] / 2
