"""The loss against its formula, and the rule that sums are divided once."""

import math

import pytest
import torch
from torch import Tensor, nn

from transformer.ids import PAD
from transformer.training.loss import token_loss


def logits_and_labels(rows: int, width: int, vocab_size: int = 11) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(rows, width, vocab_size, generator=generator, dtype=torch.float64)
    return 3 * logits, torch.randint(1, vocab_size, (rows, width), generator=generator)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_loss_is_the_cross_entropy_with_the_smoothed_target(smoothing: float) -> None:
    logits, labels = logits_and_labels(3, 4)
    labels[1, 2:] = PAD
    expected = 0.0
    for row in range(3):
        for t in range(4):
            label, scores = labels[row, t].item(), logits[row, t].tolist()
            if label == PAD:
                continue
            log_sum = math.log(sum(math.exp(score) for score in scores))
            for token, score in enumerate(scores):
                target = smoothing / 11 + (1 - smoothing) * (token == label)
                expected -= target * (score - log_sum)
    assert token_loss(logits, labels, smoothing).item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_knowing_nothing_of_a_thousand_costs_6_9078_a_token(smoothing: float) -> None:
    labels = torch.tensor([[5, 6, 7, PAD], [8, PAD, PAD, PAD]])
    loss = token_loss(torch.full((2, 4, 1000), 0.3), labels, smoothing)
    assert loss.item() / 4 == pytest.approx(6.9078, abs=5e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_padding_to_20_or_200_changes_no_bit_of_the_loss(smoothing: float) -> None:
    logits, labels = logits_and_labels(3, 10)
    losses, gradients = [], []
    for width in (10, 20, 200):
        wide = torch.full((3, width, 11), 7.0, dtype=torch.float64)
        wide[:, :10] = logits
        wide.requires_grad_()
        wide_labels = nn.functional.pad(labels, (0, width - 10), value=PAD)
        loss = token_loss(wide, wide_labels, smoothing)
        loss.backward()
        losses.append(loss.item())
        gradients.append(wide.grad[:, :10])
        assert torch.equal(wide.grad[:, 10:], torch.zeros_like(wide.grad[:, 10:]))
    assert losses[1] == pytest.approx(losses[0], abs=1e-12)
    assert losses[2] == pytest.approx(losses[0], abs=1e-12)
    assert all(torch.equal(gradient, gradients[0]) for gradient in gradients)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_a_batch_of_only_padding_costs_nothing(smoothing: float) -> None:
    logits = torch.randn(2, 5, 11).requires_grad_()
    loss = token_loss(logits, torch.full((2, 5), PAD), smoothing)
    loss.backward()
    assert loss.item() == 0.0
    assert torch.equal(logits.grad, torch.zeros(2, 5, 11))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_micro_batches_of_one_and_nine_tokens_give_the_gradient_of_the_whole(
    smoothing: float,
) -> None:
    torch.manual_seed(0)
    model = nn.Linear(6, 11)
    x, (_, labels) = torch.randn(2, 9, 6), logits_and_labels(2, 9)
    labels[0, 1:] = PAD  # the first sentence has one token, the second nine

    def gradient(parts: list[slice], divide: bool) -> Tensor:
        model.zero_grad()
        for part in parts:
            loss = token_loss(model(x[part]), labels[part], smoothing)
            count = 10 if divide else (labels[part] != PAD).sum() * len(parts)
            (loss / count).backward()
        return model.weight.grad.clone()

    whole = gradient([slice(0, 2)], divide=True)
    cut = gradient([slice(0, 1), slice(1, 2)], divide=True)
    mean_of_means = gradient([slice(0, 1), slice(1, 2)], divide=False)
    torch.testing.assert_close(cut, whole, rtol=0, atol=1e-6)
    assert (mean_of_means - whole).abs().max() > 1e-2


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_logits_are_summed_in_float32(dtype: torch.dtype) -> None:
    logits, labels = logits_and_labels(40, 50)
    halved = logits.to(dtype)
    loss = token_loss(halved, labels, 0.1)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(token_loss(halved.double(), labels, 0.1).item(), rel=1e-6)
