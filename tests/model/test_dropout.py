"""Dropout on a CPU: four features of one draw are as independent as if each had its own."""

import pytest
import torch

from transformer.model.dropout import Dropout


@pytest.mark.parametrize("p", [0.001, 0.1, 0.3, 0.5, 0.9])
def test_each_place_of_a_draw_drops_its_share(p: float) -> None:
    torch.manual_seed(0)
    dropped = (Dropout(p)(torch.ones(400_000)) == 0).view(-1, 4).double()
    deviation = (p * (1 - p) / 100_000) ** 0.5
    assert (dropped.mean(0) - p).abs().max() < 5 * deviation
    together = (dropped.T @ dropped / 100_000)[*torch.triu_indices(4, 4, 1)]
    assert (together - p**2).abs().max() < 5 * (p**2 / 100_000) ** 0.5 + 1e-4


@pytest.mark.parametrize("p", [0.1, 0.25, 0.9])
def test_what_is_kept_is_scaled_so_that_the_mean_stays(p: float) -> None:
    torch.manual_seed(0)
    out = Dropout(p)(torch.full((1000, 333), 3.0, dtype=torch.float64))
    kept = out[out != 0]
    assert torch.equal(kept, kept[:1].expand_as(kept))
    assert kept[0].item() == pytest.approx(3 / (1 - p), rel=1e-4 / (1 - p))
    assert out.mean().item() == pytest.approx(3.0, rel=0.02)


@pytest.mark.parametrize("shape", [(0,), (1,), (3,), (2, 3, 5), (7, 1)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_gradients_pass_where_features_were_kept(shape: tuple, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.ones(shape, dtype=dtype).requires_grad_()
    out = Dropout(0.5)(x)
    out.sum().backward()
    assert out.dtype == dtype
    assert torch.equal(x.grad, out.detach())


def test_the_seed_decides_and_evaluation_drops_nothing() -> None:
    x, dropout = torch.randn(50, 30), Dropout(0.3)
    results = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        results.append(dropout(x))
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])
    assert dropout.eval()(x) is x


def test_a_probability_next_to_one_keeps_finite_numbers() -> None:
    assert torch.isfinite(Dropout(0.999999)(torch.ones(1000))).all()
