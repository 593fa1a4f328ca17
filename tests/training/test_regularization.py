"""Two passes and hidden tokens against the formulas of their papers, written out."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from transformer.config import Config, ModelConfig, TrainingConfig
from transformer.data.batching import Batch, collate
from transformer.ids import BOS, EOS, PAD
from transformer.model.transformer import Transformer
from transformer.training import loss as loss_module
from transformer.training.loss import batch_loss
from transformer.training.regularization import (
    PassWeights,
    keep_tokens,
    paired_loss,
    training_loss,
)

D, V, N = 6, 11, 10
R_DROP = PassWeights.of(TrainingConfig(r_drop=2.5))
SIMCUT = PassWeights.of(TrainingConfig(simcut=3.0))
ODD = PassWeights(0.3, 0.9, 0.7, 1.1)


def example() -> tuple[Tensor, Tensor, Tensor]:
    """Returns hidden (2N, D), weight (V, D) and labels (2N,), the same for both passes."""
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(2 * N, D, generator=generator, dtype=torch.float64)
    weight = torch.randn(V, D, generator=generator, dtype=torch.float64)
    return hidden, weight, torch.randint(1, V, (N,), generator=generator).repeat(2)


def log_probs(hidden: Tensor, weight: Tensor) -> list[list[float]]:
    rows = []
    for scores in (hidden @ weight.T).tolist():
        log_sum = math.log(sum(math.exp(score) for score in scores))
        rows.append([score - log_sum for score in scores])
    return rows


def cross_entropy(rows: list[list[float]], labels: list[int], smoothing: float) -> float:
    total = 0.0
    for row, label in zip(rows, labels, strict=True):
        for token, log_prob in enumerate(row):
            total -= (smoothing / V + (1 - smoothing) * (token == label)) * log_prob
    return total


def divergence(rows: list[list[float]], others: list[list[float]]) -> float:
    """Returns KL(rows || others), summed over tokens."""
    return sum(
        math.exp(p) * (p - q)
        for row, other in zip(rows, others, strict=True)
        for p, q in zip(row, other, strict=True)
    )


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_r_drop_is_equation_4_of_its_paper_halved(smoothing: float) -> None:
    hidden, weight, labels = example()
    first, second = (log_probs(half, weight) for half in hidden.chunk(2))
    y, alpha = labels[:N].tolist(), 5.0
    paper = cross_entropy(first, y, smoothing) + cross_entropy(second, y, smoothing)
    paper += alpha / 2 * (divergence(first, second) + divergence(second, first))
    found = paired_loss(hidden, weight, labels, smoothing, R_DROP)
    assert found.item() == pytest.approx(paper / 2, abs=1e-12)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_simcut_is_cross_entropy_and_divergence_from_the_second_pass(smoothing: float) -> None:
    hidden, weight, labels = example()
    first, second = (log_probs(half, weight) for half in hidden.chunk(2))
    paper = cross_entropy(first, labels[:N].tolist(), smoothing) + 3 * divergence(first, second)
    found = paired_loss(hidden, weight, labels, smoothing, SIMCUT)
    assert found.item() == pytest.approx(paper, abs=1e-12)


def written_out(
    hidden: Tensor, weight: Tensor, labels: Tensor, smoothing: float, weights: PassWeights
) -> Tensor:
    """The same in torch's words, for its gradient."""
    logits = [half @ weight.T for half in hidden.chunk(2)]
    p, q = (x.log_softmax(-1) for x in logits)
    y, options = labels[:N], {"reduction": "sum", "label_smoothing": smoothing}
    ce = [nn.functional.cross_entropy(x, y, **options) for x in logits]
    kl_pq = nn.functional.kl_div(q, p, reduction="sum", log_target=True)
    kl_qp = nn.functional.kl_div(p, q, reduction="sum", log_target=True)
    parts = (*ce, kl_pq, kl_qp)
    return sum(share * part for share, part in zip(weights, parts, strict=True))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weights", [R_DROP, SIMCUT, ODD], ids=["r_drop", "simcut", "odd"])
@pytest.mark.parametrize("most_logits", [1, 6 * V, 2**23])
def test_loss_and_gradients_of_both_passes_are_those_of_torch_however_it_is_cut(
    smoothing: float, weights: PassWeights, most_logits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loss_module, "MOST_LOGITS", most_logits)
    hidden, weight, labels = example()
    found = []
    for compute in (paired_loss, written_out):
        h, w = hidden.clone().requires_grad_(), weight.clone().requires_grad_()
        loss = compute(h, w, labels, smoothing, weights)
        (loss / 3).backward()
        found.append((loss, h.grad, w.grad))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


def test_micro_batches_of_pairs_give_the_gradient_of_the_whole() -> None:
    hidden, weight, labels = example()

    def gradient(parts: list[slice]) -> Tensor:
        w = weight.clone().requires_grad_()
        for part in parts:
            h = torch.cat([half[part] for half in hidden.chunk(2)])
            y = labels[:N][part].repeat(2)
            (paired_loss(h, w, y, 0.1, R_DROP) / N).backward()
        return w.grad

    whole = gradient([slice(0, N)])
    torch.testing.assert_close(gradient([slice(0, 1), slice(1, N)]), whole, rtol=0, atol=1e-12)


@pytest.mark.parametrize("weights", [R_DROP, SIMCUT], ids=["r_drop", "simcut"])
def test_autocast_multiplies_in_bfloat16_and_keeps_float32_gradients(weights: PassWeights) -> None:
    hidden, weight, labels = example()
    exact = [x.clone().requires_grad_() for x in (hidden, weight)]
    paired_loss(*exact, labels, 0.1, weights).backward()
    rounded = [x.float().requires_grad_() for x in (hidden, weight)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = paired_loss(*rounded, labels, 0.1, weights)
    loss.backward()
    assert loss.dtype == torch.float32
    for a, b in zip(rounded, exact, strict=True):
        assert a.grad.dtype == torch.float32
        assert 0 < (a.grad - b.grad).norm() / b.grad.norm() < 3e-2


def pairs() -> tuple[list[np.ndarray], list[np.ndarray]]:
    rng = np.random.default_rng(0)
    src = [np.append(rng.integers(4, 30, n), EOS) for n in (5, 2, 7)]
    return src, [np.append(rng.integers(4, 30, n), EOS) for n in (3, 6, 4)]


def batch_of(passes: int) -> Batch:
    src, tgt = pairs()
    return collate(src * passes, tgt * passes)


@pytest.fixture
def model() -> Transformer:
    """A model without dropout, in float64."""
    torch.manual_seed(0)
    sizes = {"d_model": 8, "num_heads": 2, "d_ff": 16}
    config = ModelConfig(**sizes, num_encoder_layers=1, num_decoder_layers=1, dropout=0.0)
    return Transformer(config, 30, 30).double()


def test_without_dropout_r_drop_counts_each_sentence_once_and_adds_nothing(
    model: Transformer,
) -> None:
    config = TrainingConfig(r_drop=2.5)
    found = training_loss(model, batch_of(2), config)
    plain = training_loss(model, batch_of(1), TrainingConfig())
    assert plain.item() == pytest.approx(batch_loss(model, batch_of(1), 0.1).item(), abs=1e-12)
    assert found.item() == pytest.approx(plain.item(), abs=1e-10)


def test_simcut_hides_tokens_of_the_second_pass_alone(model: Transformer) -> None:
    """The loss again from logits, with what the seed hides hidden."""
    config = TrainingConfig(simcut=3.0, token_cutoff=0.4, label_smoothing=0.0)
    batch = batch_of(2)
    torch.manual_seed(5)
    found = training_loss(model, batch, config)
    torch.manual_seed(5)
    kept = [keep_tokens(ids, 0.0, 0.4) for ids in (batch.src, batch.tgt)]
    assert all(bool(x[:3].all()) and not bool(x[3:].all()) for x in kept)
    logits = model.hidden(batch.src, batch.tgt, src_kept=kept[0], tgt_kept=kept[1])
    p, q = (logits @ model.output.weight.T).log_softmax(-1).chunk(2)
    labels = batch.labels[:3][batch.labels[:3] != PAD]
    ce = nn.functional.nll_loss(p, labels, reduction="sum")
    kl = nn.functional.kl_div(q, p, reduction="sum", log_target=True)
    assert kl > 1e-4
    assert found.item() == pytest.approx((ce + 3 * kl).item(), abs=1e-10)


def test_a_hidden_token_could_be_any_other(model: Transformer) -> None:
    batch = batch_of(1)
    src_kept, tgt_kept = (torch.ones_like(x, dtype=torch.bool) for x in (batch.src, batch.tgt))
    src_kept[0, 2] = tgt_kept[1, 3] = False
    other_src, other_tgt = batch.src.clone(), batch.tgt.clone()
    other_src[0, 2], other_tgt[1, 3] = 29, 28
    seen = [
        model.hidden(src, tgt, src_kept=src_kept, tgt_kept=tgt_kept)
        for src, tgt in ((batch.src, batch.tgt), (other_src, other_tgt))
    ]
    assert torch.equal(*seen)
    assert not torch.equal(seen[0], model.hidden(batch.src, batch.tgt))


def test_tokens_are_hidden_at_their_rate_and_ends_of_sentences_never() -> None:
    torch.manual_seed(0)
    ids = torch.randint(4, 30, (2000, 50))
    ids[:, 0], ids[:, -1] = BOS, EOS
    kept = keep_tokens(ids, 0.1, 0.2)
    assert kept is not None
    assert kept[:, [0, -1]].all()
    first, second = (1 - half[:, 1:-1].double().mean().item() for half in kept.chunk(2))
    assert first == pytest.approx(0.1, abs=6e-3)  # 4 deviations and more
    assert second == pytest.approx(1 - 0.9 * 0.8, abs=9e-3)
    assert keep_tokens(ids, 0.0, 0.0) is None


@pytest.mark.parametrize("side", ["source", "target"])
def test_word_dropout_hides_tokens_of_its_side(model: Transformer, side: str) -> None:
    """Almost all tokens are hidden, so the loss hardly knows which they were."""
    config = TrainingConfig(**{f"{side}_word_dropout": 1 - 1e-9})
    batch, index = batch_of(1), ["source", "target"].index(side)
    other = list(batch)
    other[index] = torch.where(batch[index] > EOS, 17, batch[index])
    losses = [training_loss(model, Batch(*x), config).item() for x in (batch, other)]
    assert losses[0] == losses[1]
    assert losses[0] != training_loss(model, batch, TrainingConfig()).item()


def test_two_passes_share_the_tokens_that_a_device_takes(
    make_config: Callable[..., Config],
) -> None:
    from transformer.data.corpus import encode_corpus, load_corpora, prepare_tokenizers
    from transformer.data.updates import START, iterate_updates

    config = make_config("training.r_drop=1", "data.max_length=100", "training.max_tokens=200")
    raw = load_corpora(config.data.train, config.data)
    tokenizers = prepare_tokenizers(config, raw)
    corpus = encode_corpus(raw, tokenizers, config.data, filters=True)
    update = next(iterate_updates(corpus, tokenizers, config, START))
    assert len(update.batches) > 2
    for _, batch in update.batches:
        assert max(batch.src.numel(), batch.tgt.numel()) <= 200
        for ids in (batch.src, batch.tgt, batch.labels):
            assert torch.equal(*ids.chunk(2))
    assert sum(batch.num_tokens for _, batch in update.batches) == 2 * update.num_tokens
