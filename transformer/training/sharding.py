"""A model whose weights, gradients and optimizer are spread over the ranks (Zhao et al. 2023): each
holds a part of every tensor, and the whole of a layer only while it computes.

What a checkpoint holds is the same either way: whole tensors.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, TypeGuard

import torch
from torch import Tensor, nn

from transformer.model.transformer import Transformer
from transformer.training.distributed import Ranks

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


def shard(model: Transformer, ranks: Ranks) -> None:
    """Spreads a model over all ranks, layer by layer, in place.

    Gradients become sums over the ranks, as everywhere in training, instead of means.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method

    # Keys and values are views; nothing in the model changes one in place, which would be wrong.
    warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view tensor")
    mesh = init_device_mesh(ranks.device.type, (ranks.size,))
    cross_attentions = [layer.cross_attention for layer in model.decoder.layers]
    units: list[nn.Module] = [
        *model.encoder.layers,
        *cross_attentions,  # type: ignore[list-item]
        *model.decoder.layers,
        model,
    ]
    for unit in units:
        fully_shard(unit, mesh=mesh)
        assert isinstance(unit, FSDPModule)
        unit.set_gradient_divide_factor(1.0)
        unit.set_force_sum_reduction_for_comms(True)
    for attention in cross_attentions:  # what the decoder asks of them is not their `forward`
        for method in ("keys_values", "attend"):
            register_fsdp_forward_method(attention, method)  # type: ignore[arg-type]
    register_fsdp_forward_method(model, "hidden")


def is_spread(x: Tensor) -> TypeGuard[DTensor]:
    """Says whether a tensor is spread over the ranks."""
    return hasattr(x, "full_tensor")  # without loading what only such tensors need


def whole(x: Tensor) -> Tensor:
    """Returns the whole of a tensor that may be spread over the ranks, who all must ask."""
    return x.full_tensor() if is_spread(x) else x


def own_part(x: Tensor) -> Tensor:
    """Returns what this rank holds of a tensor; the same memory."""
    return x.to_local() if is_spread(x) else x


def spread_like(x: Tensor, other: Tensor) -> Tensor:
    """Returns a whole tensor on the device of another, and spread over the ranks as that is."""
    x = x.to(other.device)
    if not is_spread(other):
        return x
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(x, other.device_mesh, other.placements, src_data_rank=None)


@torch.no_grad()
def copy_all(to: list[Tensor], of: list[Tensor]) -> None:
    """Copies tensors into others that are spread alike."""
    for target, source in zip(to, of, strict=True):
        own_part(target).copy_(own_part(source))
