"""Positions against the formulas of the papers, number by number."""

import math

import pytest
import torch
from torch import Tensor

from transformer.model.positions import Learned, Sinusoidal, rotate, sinusoids

EXACT = {"rtol": 0.0, "atol": 1e-12}


def random(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def table_of(length: int, width: int, start: int = 0) -> Tensor:
    return sinusoids(torch.empty(length, width, dtype=torch.float64), start)


def test_sinusoids_are_the_papers_with_sines_first() -> None:
    width = 16
    table = table_of(100, width)
    for position in (0, 1, 7, 99):
        for i in range(width // 2):
            angle = position / 10000 ** (2 * i / width)
            assert table[position, i].item() == pytest.approx(math.sin(angle), abs=1e-12)
            assert table[position, width // 2 + i].item() == pytest.approx(
                math.cos(angle), abs=1e-12
            )


def test_any_position_has_its_sinusoid() -> None:
    whole = table_of(5000, 16)
    assert torch.equal(table_of(10, 16, start=4990), whole[4990:])
    assert torch.isfinite(table_of(3, 16, start=10_000_000)).all()
    assert torch.unique(whole, dim=0).size(0) == 5000


def test_a_step_forward_is_a_rotation_whatever_the_position() -> None:
    """What the paper chose sinusoids for: PE(pos + k) is a linear function of PE(pos)."""
    width, step = 16, 13
    table = table_of(200, width)
    pairs = torch.complex(table[:, width // 2 :], table[:, : width // 2])
    rates = 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    turn = torch.polar(torch.ones_like(rates), step * rates)
    torch.testing.assert_close(pairs[step:], pairs[:-step] * turn, **EXACT)


def test_sinusoidal_adds_to_embeddings_from_the_start_given() -> None:
    x = random(2, 5, 16)
    torch.testing.assert_close(
        Sinusoidal()(x, start=3), x + table_of(8, 16)[3:].expand(2, 5, 16), **EXACT
    )


def test_rotation_is_multiplication_by_a_complex_number() -> None:
    x = random(2, 3, 50, 8)
    rates = 10000.0 ** (-torch.arange(0, 8, 2, dtype=torch.float64) / 8)
    angles = torch.arange(7, 57, dtype=torch.float64)[:, None] * rates
    turned = torch.complex(x[..., :4], x[..., 4:]) * torch.polar(torch.ones_like(angles), angles)
    expected = torch.cat((turned.real, turned.imag), dim=-1)
    torch.testing.assert_close(rotate(x, start=7), expected, **EXACT)


def test_rotated_products_depend_only_on_the_distance() -> None:
    q, k = random(1, 1, 1, 8).expand(1, 1, 64, 8), random(1, 1, 1, 8, seed=1).expand(1, 1, 64, 8)
    products = (rotate(q) @ rotate(k).transpose(-2, -1))[0, 0]
    for distance in range(-63, 64):
        diagonal = products.diagonal(distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), **EXACT)
    far = (rotate(q, 5000) @ rotate(k, 5000).transpose(-2, -1))[0, 0]
    torch.testing.assert_close(far, products, rtol=0, atol=1e-10)  # angles of 5000 lose 3 digits
    assert products.diagonal(1)[0] != products.diagonal(2)[0]


def test_rotation_keeps_lengths_and_leaves_the_first_position_alone() -> None:
    x = random(2, 3, 20, 8)
    torch.testing.assert_close(rotate(x).norm(dim=-1), x.norm(dim=-1), **EXACT)
    assert torch.equal(rotate(x)[:, :, 0], x[:, :, 0])


def test_learned_positions_add_the_rows_of_their_table() -> None:
    positions, x = Learned(10, 16).double(), random(2, 4, 16)
    torch.testing.assert_close(positions(x, start=5), x + positions.table.weight[5:9], **EXACT)


def test_learned_positions_past_the_table_share_its_last_row() -> None:
    positions, x = Learned(10, 16).double(), random(2, 500, 16)
    added = positions(x) - x
    torch.testing.assert_close(added[:, :10], positions.table.weight.expand(2, 10, 16), **EXACT)
    torch.testing.assert_close(
        added[:, 10:], positions.table.weight[-1].expand(2, 490, 16), **EXACT
    )
    torch.testing.assert_close(
        positions(x[:, :1], start=10**6), x[:, :1] + positions.table.weight[-1]
    )


def test_what_inference_looked_up_can_be_trained_with() -> None:
    x = random(1, 1, 3, 6)
    with torch.inference_mode():
        rotate(x)
    x.requires_grad_()
    rotate(x).sum().backward()
    assert x.grad is not None
