"""Optimizer, learning rate and moving average against the formulas of their papers."""

import itertools
import math

import pytest
import torch
from losses import model_loss
from torch import nn

from transformer.config import ModelConfig, TrainingConfig
from transformer.model.transformer import Transformer
from transformer.training.optimizer import learning_rate, make_optimizers, update_ema

SCHEDULES = ["inverse_square_root", "cosine", "linear", "constant", "warmup_stable_decay"]


def config(**settings: object) -> TrainingConfig:
    return TrainingConfig(
        **{"learning_rate": 1e-3, "warmup_steps": 10, "max_steps": 100, **settings}
    )


def rate(step: int, settings: TrainingConfig) -> float:
    return learning_rate(step, settings, d_model=512)


@pytest.mark.parametrize(
    ("step", "expected"),
    [(1, 1.7469e-07), (2, 3.4939e-07), (4000, 6.9877e-04), (16000, 3.4939e-04)],
)
def test_the_papers_learning_rate(step: int, expected: float) -> None:
    paper = config(learning_rate="paper", warmup_steps=4000)
    assert rate(step, paper) == pytest.approx(expected, rel=5e-5)
    formula = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)  # equation 3
    assert rate(step, paper) == pytest.approx(formula, rel=1e-12)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("peak", [1e-3, "paper"])
def test_no_warm_up_works(schedule: str, peak: float | str) -> None:
    settings = config(schedule=schedule, learning_rate=peak, warmup_steps=0)
    rates = [rate(step, settings) for step in range(1, 101)]
    top = 512**-0.5 if peak == "paper" else peak
    assert rates[0] == pytest.approx(top, rel=0.02)
    assert all(math.isfinite(value) and value >= 0 for value in rates)
    assert all(later <= earlier for earlier, later in itertools.pairwise(rates))


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("warmup_steps", [1, 10, 50])
@pytest.mark.parametrize("low", [0.0, 1e-4])
def test_it_rises_in_a_line_to_the_peak_and_never_again(
    schedule: str, warmup_steps: int, low: float
) -> None:
    settings = config(schedule=schedule, warmup_steps=warmup_steps, min_learning_rate=low)
    rates = [rate(step, settings) for step in range(1, 101)]
    for step in range(1, warmup_steps + 1):
        assert rates[step - 1] == pytest.approx(1e-3 * step / warmup_steps, rel=1e-12)
    assert max(rates) == rates[warmup_steps - 1] == pytest.approx(1e-3)
    after = rates[warmup_steps - 1 :]
    assert all(later <= earlier for earlier, later in itertools.pairwise(after))


@pytest.mark.parametrize("schedule", ["cosine", "linear", "warmup_stable_decay"])
def test_it_ends_at_the_minimum_and_stays_there(schedule: str) -> None:
    settings = config(schedule=schedule, min_learning_rate=1e-4)
    for step in (100, 101, 500):
        assert rate(step, settings) == pytest.approx(1e-4, rel=1e-12)
    assert rate(99, settings) > 1e-4


def test_cosine_and_linear_are_their_formulas() -> None:
    for step in range(11, 101):
        progress = (step - 10) / 90
        cosine = 1e-4 + 0.5 * (1e-3 - 1e-4) * (1 + math.cos(math.pi * progress))
        linear = 1e-3 + (1e-4 - 1e-3) * progress
        low = {"min_learning_rate": 1e-4}
        assert rate(step, config(schedule="cosine", **low)) == pytest.approx(cosine, rel=1e-12)
        assert rate(step, config(schedule="linear", **low)) == pytest.approx(linear, rel=1e-12)


def test_the_stable_part_is_flat_and_the_descent_a_line() -> None:
    settings = config(schedule="warmup_stable_decay", decay_steps=30)
    assert {rate(step, settings) for step in range(10, 71)} == {1e-3}
    for step in range(71, 101):
        assert rate(step, settings) == pytest.approx(1e-3 * (100 - step) / 30, abs=1e-15)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("warmup_steps", [0, 10, 80, 99, 100])
def test_no_step_falls_far_from_the_one_before(schedule: str, warmup_steps: int) -> None:
    descent = max(1, min(20, 100 - warmup_steps))
    max_steps = max(100, warmup_steps + descent)
    settings = config(
        schedule=schedule, warmup_steps=warmup_steps, decay_steps=descent, max_steps=max_steps
    )
    rates = [rate(step, settings) for step in range(max(1, warmup_steps), 101)]
    left = max(1, 100 - warmup_steps)
    for step, (earlier, later) in enumerate(itertools.pairwise(rates)):
        if schedule == "inverse_square_root":
            at = max(1, warmup_steps) + step
            assert later / earlier == pytest.approx(math.sqrt(at / (at + 1)), rel=1e-12)
        else:
            assert earlier - later <= 1e-3 * max(math.pi / 2 / left, 1 / descent) + 1e-12


def model_and_batch() -> tuple[Transformer, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    sizes = {"d_model": 16, "num_heads": 4, "d_ff": 32, "dropout": 0.0, "qk_norm": True}
    model = Transformer(ModelConfig(**sizes, num_encoder_layers=1, num_decoder_layers=1), 20, 20)
    return model, tuple(torch.randint(4, 20, (4, 7)) for _ in range(3))


@pytest.mark.parametrize("kind", ["adamw", "adam"])
def test_updates_are_those_of_the_papers_and_only_matrices_decay(kind: str) -> None:
    """Kingma and Ba 2015, algorithm 1; Loshchilov and Hutter 2019, algorithm 2."""
    settings = config(optimizer=kind, weight_decay=0.1, betas=(0.9, 0.98), epsilon=1e-9)
    model, (src, tgt, labels) = model_and_batch()
    model = model.double()
    (optimizer,) = make_optimizers(model, settings)
    parameters = list(model.parameters())
    expected = [p.detach().clone() for p in parameters]
    means = [torch.zeros_like(p) for p in expected]
    squares = [torch.zeros_like(p) for p in expected]
    for step in range(1, 6):
        lr = rate(step, settings)
        for group in optimizer.param_groups:
            group["lr"] = lr
        optimizer.zero_grad()
        (model_loss(model, src, tgt, labels) / labels.numel()).backward()
        for i, parameter in enumerate(parameters):
            gradient, decay = parameter.grad.clone(), 0.1 if parameter.dim() == 2 else 0.0
            if kind == "adam":
                gradient += decay * expected[i]
            means[i] = 0.9 * means[i] + 0.1 * gradient
            squares[i] = 0.98 * squares[i] + 0.02 * gradient**2
            mean, square = means[i] / (1 - 0.9**step), squares[i] / (1 - 0.98**step)
            if kind == "adamw":
                expected[i] = expected[i] * (1 - lr * decay)
            expected[i] = expected[i] - lr * mean / (square.sqrt() + 1e-9)
        optimizer.step()
        for parameter, value in zip(parameters, expected, strict=True):
            torch.testing.assert_close(parameter.detach(), value, rtol=0, atol=1e-10)


@pytest.mark.parametrize("kind", ["adamw", "adam"])
def test_the_fused_form_computes_what_torchs_plain_form_does(kind: str) -> None:
    settings = config(optimizer=kind, weight_decay=0.1)
    results = []
    for fused in (True, False):
        model, (src, tgt, labels) = model_and_batch()
        if fused:
            (optimizer,) = make_optimizers(model, settings)
        else:
            groups = [
                {"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.1},
                {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0.0},
            ]
            plain = torch.optim.AdamW if kind == "adamw" else torch.optim.Adam
            optimizer = plain(
                groups, betas=(0.9, 0.98), eps=1e-9, lr=1.0, foreach=False, fused=False
            )
        for _ in range(5):
            for group in optimizer.param_groups:
                group["lr"] = 1e-3
            optimizer.zero_grad()
            (model_loss(model, src, tgt, labels) / labels.numel()).backward()
            optimizer.step()
        results.append([p.detach() for p in model.parameters()])
    for ours, plain_result in zip(*results, strict=True):
        torch.testing.assert_close(ours, plain_result, rtol=0, atol=2e-5)


@pytest.mark.parametrize("kind", ["adamw", "adam", "muon"])
def test_every_weight_is_in_one_group_once(kind: str) -> None:
    model, _ = model_and_batch()
    optimizers = make_optimizers(model, config(optimizer=kind, weight_decay=0.1))
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    grouped = [id(p) for group in groups for p in group["params"]]
    assert sorted(grouped) == sorted(id(p) for p in model.parameters())


def test_the_moving_average_is_its_formula() -> None:
    generator = torch.Generator().manual_seed(0)
    weights = [torch.randn(3, 4, generator=generator, dtype=torch.float64) for _ in range(2)]
    ema = [weight.clone() for weight in weights]
    expected = [weight.clone() for weight in weights]
    for step in range(1, 200):
        for weight in weights:
            weight += torch.randn(3, 4, generator=generator, dtype=torch.float64)
        update_ema(ema, weights, 0.9, step)
        decay = min(0.9, (1 + step) / (10 + step))
        expected = [
            decay * old + (1 - decay) * new for old, new in zip(expected, weights, strict=True)
        ]
        for ours, value in zip(ema, expected, strict=True):
            torch.testing.assert_close(ours, value, rtol=0, atol=1e-12)
    assert not any(torch.equal(x, y) for x, y in zip(ema, weights, strict=True))


def test_the_moving_average_of_weights_that_stand_still_is_them() -> None:
    weights = list(nn.Linear(4, 4).parameters())
    ema = [torch.zeros_like(weight) for weight in weights]
    for step in range(1, 400):
        update_ema(ema, weights, 0.95, step)
    for average, weight in zip(ema, weights, strict=True):
        torch.testing.assert_close(average, weight.detach(), rtol=0, atol=1e-5)
