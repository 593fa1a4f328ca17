"""The model learns: it reverses what it never saw, and knows by heart what it saw often."""

import math

import pytest
import torch
from losses import model_loss
from torch import Tensor

from transformer.config import ModelConfig, TrainingConfig
from transformer.ids import BOS, EOS, PAD
from transformer.model.transformer import Transformer
from transformer.training.optimizer import learning_rate, make_optimizers

V = 14
LETTERS = range(4, V)


def make(**changes: object) -> Transformer:
    torch.manual_seed(0)
    sizes = {"d_model": 32, "num_heads": 4, "d_ff": 64, "dropout": 0.0}
    config = ModelConfig(**{**sizes, "num_encoder_layers": 2, "num_decoder_layers": 2, **changes})
    return Transformer(config, V, V)


def reversals(rows: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Returns words of 2 to 8 letters and the same from behind: src, tgt, labels."""
    lengths = torch.randint(2, 9, (rows,), generator=generator).tolist()
    src, labels = torch.full((2, rows, 9), PAD)
    for row, length in enumerate(lengths):
        word = torch.randint(LETTERS.start, LETTERS.stop, (length,), generator=generator)
        src[row, :length], labels[row, :length] = word, word.flip(0)
        src[row, length] = labels[row, length] = EOS
    return src, shifted(labels), labels


def shifted(labels: Tensor) -> Tensor:
    tgt = torch.cat((torch.full_like(labels[:, :1], BOS), labels[:, :-1]), dim=1)
    return tgt.masked_fill(labels == PAD, PAD)


def train(model: Transformer, batches: list, config: TrainingConfig) -> float:
    """Trains on the batches, one update each, and returns the last loss a token."""
    (optimizer,) = make_optimizers(model, config)
    loss = torch.tensor(0.0)
    for step, (src, tgt, labels) in enumerate(batches, start=1):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, config, model.config.d_model)
        optimizer.zero_grad()
        loss = model_loss(model, src, tgt, labels) / (labels != PAD).sum()
        loss.backward()
        optimizer.step()
    return loss.item()


@torch.no_grad()
def greedy(model: Transformer, src: Tensor, num_tokens: int) -> Tensor:
    state = model.start(src)
    out = [torch.full_like(src[:, :1], BOS)]
    for _ in range(num_tokens):
        logits, state = model.decode(out[-1], state)
        out.append(logits.argmax(-1))
    return torch.cat(out[1:], dim=1)


@pytest.mark.slow
def test_it_learns_to_reverse_words_it_never_saw() -> None:
    generator = torch.Generator().manual_seed(0)
    steps = 600
    config = TrainingConfig(learning_rate=4e-3, warmup_steps=50, max_steps=steps, schedule="cosine")
    model = make()
    train(model, [reversals(64, generator) for _ in range(steps)], config)
    src, _, labels = reversals(300, generator)
    out = greedy(model.eval(), src, labels.size(1))
    assert torch.equal(out.masked_fill(labels == PAD, PAD), labels)


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("tie", ["all", "none"])
def test_it_overfits_one_batch(norm_first: bool, tie: str) -> None:
    generator = torch.Generator().manual_seed(0)
    src, labels = torch.randint(LETTERS.start, LETTERS.stop, (2, 8, 7), generator=generator)
    config = TrainingConfig(learning_rate=5e-3, warmup_steps=20, schedule="constant")
    model = make(norm_first=norm_first, tie_embeddings=tie)
    assert train(model, [(src, shifted(labels), labels)] * 120, config) < 0.01
    assert torch.equal(greedy(model.eval(), src, labels.size(1)), labels)


def test_random_targets_cannot_be_learned() -> None:
    """A decoder that saw the token it is to say would learn to copy it within these updates."""
    generator = torch.Generator().manual_seed(0)

    def noise(rows: int) -> tuple[Tensor, Tensor, Tensor]:
        src, labels = torch.randint(LETTERS.start, V, (2, rows, 8), generator=generator)
        return src, shifted(labels), labels

    model = make()
    config = TrainingConfig(learning_rate=4e-3, warmup_steps=20, schedule="constant")
    train(model, [noise(64) for _ in range(150)], config)
    src, tgt, labels = noise(500)
    with torch.no_grad():
        loss = model_loss(model.eval(), src, tgt, labels).item() / labels.numel()
    assert loss >= math.log(len(LETTERS))
    assert loss == pytest.approx(math.log(len(LETTERS)), rel=0.02)
