"""The loss against its formula, and the rule that sums are divided once."""

import math

import pytest
import torch
from torch import Tensor, nn

from transformer.training import loss as loss_module
from transformer.training.loss import token_loss

D, V = 6, 11


def example(num_tokens: int) -> tuple[Tensor, Tensor, Tensor]:
    """Returns hidden (N, D), weight (V, D) and labels (N,)."""
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(num_tokens, D, generator=generator, dtype=torch.float64)
    weight = torch.randn(V, D, generator=generator, dtype=torch.float64)
    return hidden, weight, torch.randint(1, V, (num_tokens,), generator=generator)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_loss_is_the_cross_entropy_with_the_smoothed_target(smoothing: float) -> None:
    hidden, weight, labels = example(10)
    expected = 0.0
    for scores, label in zip((hidden @ weight.T).tolist(), labels.tolist(), strict=True):
        log_sum = math.log(sum(math.exp(score) for score in scores))
        for token, score in enumerate(scores):
            target = smoothing / V + (1 - smoothing) * (token == label)
            expected -= target * (score - log_sum)
    found = token_loss(hidden, weight, labels, smoothing)
    assert found.item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("most_logits", [1, 3 * V, 2**23])
def test_loss_and_gradients_are_those_of_torch_however_it_is_cut(
    smoothing: float, most_logits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loss_module, "MOST_LOGITS", most_logits)
    hidden, weight, labels = example(10)
    found = []
    for is_ours in (True, False):
        h, w = hidden.clone().requires_grad_(), weight.clone().requires_grad_()
        if is_ours:
            loss = token_loss(h, w, labels, smoothing)
        else:
            loss = nn.functional.cross_entropy(
                h @ w.T, labels, reduction="sum", label_smoothing=smoothing
            )
        (loss / 3).backward()
        found.append((loss, h.grad, w.grad))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


def test_no_more_logits_are_in_memory_than_said(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden, weight, labels = example(40)
    hidden.requires_grad_()
    monkeypatch.setattr(loss_module, "MOST_LOGITS", 5 * V)
    rows: list[int] = []
    product = nn.functional.linear

    def counting(x: Tensor, w: Tensor) -> Tensor:
        rows.append(len(x))
        return product(x, w)

    monkeypatch.setattr(loss_module.F, "linear", counting)
    kept: list[int] = []

    def keep(x: Tensor) -> Tensor:
        kept.append(x.numel())
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        token_loss(hidden, weight, labels, 0.1)
    assert rows == [5] * 8
    assert max(kept) < 40 * V


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_knowing_nothing_of_a_thousand_costs_6_9078_a_token(smoothing: float) -> None:
    labels = torch.tensor([5, 6, 7, 8])
    loss = token_loss(torch.full((4, D), 0.3), torch.full((1000, D), 0.2), labels, smoothing)
    assert loss.item() / 4 == pytest.approx(6.9078, abs=5e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_no_tokens_cost_nothing(smoothing: float) -> None:
    hidden = torch.randn(0, D).requires_grad_()
    weight = torch.randn(V, D).requires_grad_()
    loss = token_loss(hidden, weight, torch.zeros(0, dtype=torch.int64), smoothing)
    loss.backward()
    assert loss.item() == 0.0
    assert torch.equal(weight.grad, torch.zeros(V, D))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_micro_batches_of_one_and_nine_tokens_give_the_gradient_of_the_whole(
    smoothing: float,
) -> None:
    hidden, weight, labels = example(10)

    def gradient(parts: list[slice], divide: bool) -> Tensor:
        w = weight.clone().requires_grad_()
        for part in parts:
            loss = token_loss(hidden[part], w, labels[part], smoothing)
            count = 10 if divide else len(labels[part]) * len(parts)
            (loss / count).backward()
        return w.grad.clone()

    whole = gradient([slice(0, 10)], divide=True)
    cut = gradient([slice(0, 1), slice(1, 10)], divide=True)
    mean_of_means = gradient([slice(0, 1), slice(1, 10)], divide=False)
    torch.testing.assert_close(cut, whole, rtol=0, atol=1e-6)
    assert (mean_of_means - whole).abs().max() > 1e-2


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_summed_in_float32(dtype: torch.dtype) -> None:
    hidden, weight, labels = example(2000)
    hidden, weight = hidden.to(dtype), weight.to(dtype)
    loss = token_loss(hidden, weight, labels, 0.1)
    assert loss.dtype == torch.float32
    # The logits are rounded on their own; summing them in half precision would be off by 1e-2.
    exact = token_loss(hidden.double(), weight.double(), labels, 0.1)
    assert loss.item() == pytest.approx(exact.item(), rel=1e-3)


def test_autocast_multiplies_in_bfloat16_and_keeps_float32_gradients() -> None:
    hidden, weight, labels = example(500)
    h, w = hidden.float().requires_grad_(), weight.float().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = token_loss(h, w, labels, 0.1)
    loss.backward()
    assert (loss.dtype, h.grad.dtype, w.grad.dtype) == (torch.float32,) * 3
    h2, w2 = hidden.requires_grad_(), weight.requires_grad_()
    token_loss(h2, w2, labels, 0.1).backward()
    for rounded, exact in ((h.grad, h2.grad), (w.grad, w2.grad)):
        assert 0 < (rounded - exact).norm() / exact.norm() < 1e-2
