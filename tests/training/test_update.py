"""An update of the trainer against the loop written out, with every setting that it obeys."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from transformer.config import Config
from transformer.ids import PAD
from transformer.training import trainer
from transformer.training.run import train

Make = Callable[..., Config]
OBEYED = (
    "model.dropout=0",
    "training.label_smoothing=0.2",
    "training.clip_norm=0.05",
    "training.learning_rate=0.01",
    "training.warmup_steps=4",
    "training.weight_decay=0.1",
    "training.max_steps=3",
    "training.precision=float32",
    "validation.every=1000",
    "validation.translate=false",
    "validation.metric=loss",
)


def count(update: trainer.Update, side: str) -> int:
    """Returns the real tokens of one side of an update."""
    return sum(int((getattr(batch, side) != PAD).sum()) for _, batch in update.batches)


def written_out(
    model: nn.Module, optimizer: torch.optim.Optimizer, update: trainer.Update
) -> float:
    """Does an update: smoothed cross-entropy over its tokens, clipping, Adam; returns the loss."""
    optimizer.zero_grad()
    num_tokens, total = count(update, "labels"), 0.0
    for _, batch in update.batches:
        logits = model(batch.src, batch.tgt).flatten(0, 1)
        loss = nn.functional.cross_entropy(
            logits,
            batch.labels.flatten(),
            ignore_index=PAD,
            reduction="sum",
            label_smoothing=0.2,
        )
        (loss / num_tokens).backward()
        total += loss.item()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.05)
    assert norm > 0.1  # so that clipping matters
    optimizer.step()
    return total / num_tokens


def test_updates_are_those_of_the_loop_written_out(
    make_config: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    do_update, losses = trainer.Trainer.update, []
    twin: list[nn.Module] = []
    optimizers: list[torch.optim.Optimizer] = []
    ratios: list[float] = []

    def both(self: trainer.Trainer, update: trainer.Update) -> bool:
        step = self.state.progress.step + 1
        if not twin:
            twin.append(copy.deepcopy(self.state.model))
            weights = list(twin[0].parameters())
            decayed = [p for p in weights if p.dim() > 1]
            rest = [p for p in weights if p.dim() <= 1]
            training = self.config.training
            optimizers.append(
                torch.optim.AdamW(
                    [{"params": decayed}, {"params": rest, "weight_decay": 0.0}],
                    betas=training.betas,
                    eps=training.epsilon,
                    weight_decay=0.1,
                    fused=False,
                )
            )
        for group in optimizers[0].param_groups:
            group["lr"] = 0.01 * step / 4  # warm-up
        losses.append(written_out(twin[0], optimizers[0], update))
        ratios.append(count(update, "src") / count(update, "labels"))
        stop = do_update(self, update)
        pairs = zip(self.state.model.named_parameters(), twin[0].parameters(), strict=True)
        for (name, ours), theirs in pairs:
            if name.endswith("w_k.bias"):  # softmax does not see it: its gradient is rounding
                continue
            moments = (optimizers[0].state[theirs]["exp_avg"],)
            moments += (self.state.optimizers[0].state[ours]["exp_avg"],)  # the clipped gradients
            torch.testing.assert_close(*moments, rtol=1e-3, atol=1e-7)
            torch.testing.assert_close(ours, theirs, rtol=0, atol=2e-4)
        return stop

    monkeypatch.setattr(trainer.Trainer, "update", both)
    config = make_config(*OBEYED, "training.log_every=1")
    train(config)
    lines = map(json.loads, (Path(config.run_dir) / "metrics.jsonl").read_text().splitlines())
    reports = [r for r in lines if r["kind"] == "train"]
    assert len(losses) == 3
    assert [r["loss"] for r in reports] == pytest.approx(losses, rel=1e-4)
    speeds = [r["source_tokens_per_second"] / r["target_tokens_per_second"] for r in reports]
    assert speeds == pytest.approx(ratios)


def test_dropout_differs_from_step_to_step(
    make_config: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Tensor] = []
    training_loss = trainer.training_loss

    def noting(*args: object) -> Tensor:
        drawn.append(torch.rand(4))
        return training_loss(*args)

    monkeypatch.setattr(trainer, "training_loss", noting)
    train(make_config("training.max_steps=3", "training.max_tokens=4000", "validation.every=1000"))
    assert len({tuple(x.tolist()) for x in drawn}) == len(drawn) >= 3


def test_the_seed_decides_initial_weights_order_and_dropout(
    make_config: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, list[list[float]]] = {}
    do_update, training_loss = trainer.Trainer.update, trainer.training_loss

    def noting_update(self: trainer.Trainer, update: trainer.Update) -> bool:
        weights = self.state.model.src_embedding.tokens.weight  # type: ignore[union-attr]
        seen["initial weights"].append(weights.flatten().tolist())  # type: ignore[union-attr, operator]
        seen["order"].append(update.examples.tolist())
        return do_update(self, update)

    def noting_loss(*args: object) -> Tensor:
        if len(seen["dropout"]) < len(seen["order"]):
            seen["dropout"].append(torch.rand(4).tolist())
        return training_loss(*args)

    monkeypatch.setattr(trainer.Trainer, "update", noting_update)
    monkeypatch.setattr(trainer, "training_loss", noting_loss)
    seen = {"initial weights": [], "order": [], "dropout": []}
    quiet = ("training.max_steps=1", "validation.translate=false", "validation.metric=loss")
    for run, seed in (("one", 3), ("again", 3), ("other", 4)):
        train(make_config(*quiet, f"seed={seed}", run=run))
    for name, (one, again, other) in seen.items():
        assert one == again, name
        assert one != other, name
