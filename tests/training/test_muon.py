"""Muon against torch's own, and against what it is meant to be: orthogonal updates."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from transformer.config import Config, ModelConfig, TrainingConfig
from transformer.model.transformer import Transformer
from transformer.training.checkpoint import list_checkpoints, read_checkpoint
from transformer.training.muon import Muon, orthogonalize
from transformer.training.optimizer import make_optimizers
from transformer.training.run import train

SHAPES = [(12, 12), (12, 40), (40, 12), (12, 12)]


def matrices(seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator) for shape in SHAPES]


@pytest.mark.parametrize("shape", [(1, 16, 16), (1, 16, 50), (1, 50, 16), (3, 8, 20)])
def test_an_orthogonalized_matrix_keeps_its_singular_vectors_and_loses_their_values(
    shape: tuple[int, ...],
) -> None:
    torch.manual_seed(0)
    matrix = torch.randn(shape, dtype=torch.float64)
    u, _, vt = torch.linalg.svd(matrix, full_matrices=False)
    inner = u.mT @ orthogonalize(matrix) @ vt.mT
    values = inner.diagonal(dim1=-2, dim2=-1)
    assert 0.6 < values.min() <= values.max() < 1.3
    torch.testing.assert_close(inner, torch.diag_embed(values), rtol=0, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_its_updates_are_those_of_torchs_muon_up_to_bfloat16(dtype: torch.dtype) -> None:
    settings = {"weight_decay": 0.1, "momentum": 0.9}
    ours, theirs = ([p.requires_grad_() for p in matrices(0)] for _ in range(2))
    mine = Muon(ours, **settings, dtype=dtype)
    other = torch.optim.Muon(theirs, lr=0.02, adjust_lr_fn="match_rms_adamw", **settings)
    mine.param_groups[0]["lr"] = 0.02
    start = matrices(0)
    for step in range(1, 6):
        for weights, optimizer in ((ours, mine), (theirs, other)):
            for p, gradient in zip(weights, matrices(step), strict=True):
                p.grad = gradient
            optimizer.step()
    for a, b, first in zip(ours, theirs, start, strict=True):
        assert (a - b).norm() < 0.02 * (a - first).norm()
        buffers = (mine.state[a]["momentum_buffer"], other.state[b]["momentum_buffer"])
        torch.testing.assert_close(*buffers, rtol=0, atol=1e-6)


def test_a_step_that_is_not_finite_changes_nothing() -> None:
    weights = [p.requires_grad_() for p in matrices(0)]
    optimizer = Muon(weights, weight_decay=0.1)
    for gradients in (matrices(1), [x * torch.nan for x in matrices(2)]):
        before = [p.detach().clone() for p in weights]
        means = [x["momentum_buffer"].clone() for x in optimizer.state.values()]
        is_bad = bool(gradients[0].isnan().any())
        for p, gradient in zip(weights, gradients, strict=True):
            p.grad = gradient
        optimizer.found_inf = torch.tensor(float(is_bad))
        optimizer.step()
        assert all(torch.equal(p, x) for p, x in zip(weights, before, strict=True)) == is_bad
    now = [x["momentum_buffer"] for x in optimizer.state.values()]
    assert all(torch.equal(x, y) for x, y in zip(now, means, strict=True))


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_it_computes_in_the_precision_of_the_run(
    precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = set()

    def watched(matrices: Tensor) -> Tensor:
        seen.add(matrices.dtype)
        return orthogonalize(matrices)

    monkeypatch.setattr("transformer.training.muon.orthogonalize", watched)
    model = Transformer(ModelConfig(d_model=16, num_heads=4, d_ff=32), 20, 20)
    config = TrainingConfig(optimizer="muon", precision=precision)  # type: ignore[arg-type]
    _, muon = make_optimizers(model, config)
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    muon.step()
    assert seen == {getattr(torch, precision)}
    assert all(p.dtype == torch.float32 for p in model.parameters())


def test_it_has_the_matrices_of_the_layers_and_adamw_all_else() -> None:
    sizes = {"d_model": 16, "num_heads": 4, "d_ff": 32, "qk_norm": True, "positions": "learned"}
    model = Transformer(ModelConfig(**sizes, num_encoder_layers=1, num_decoder_layers=1), 20, 20)
    adamw, muon = make_optimizers(model, TrainingConfig(optimizer="muon"))
    assert isinstance(adamw, torch.optim.AdamW)
    names = {p: name for name, p in model.named_parameters()}
    found = {names[p] for group in muon.param_groups for p in group["params"]}
    assert len(found) == 4 + 2 + 4 + 4 + 2
    assert all(".layers.0." in name and name.endswith(".weight") for name in found)
    assert not any("norm" in name or "embedding" in name for name in found)


def test_a_run_with_muon_stopped_and_resumed_ends_in_the_same_bits(
    make_config: Callable[..., Config],
) -> None:
    muon = ("training.optimizer=muon", "training.weight_decay=0.01")
    train(make_config(*muon, run="whole"))
    train(make_config(*muon, "training.max_steps=7", run="parts"))
    train(make_config(*muon, run="parts"), resume=True)
    whole, parts = (
        read_checkpoint(list_checkpoints(Path(make_config(run=run).run_dir))[-1][1]).tensors
        for run in ("whole", "parts")
    )
    assert whole.keys() == parts.keys()
    assert any("momentum_buffer" in name for name in whole)
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
