"""The training loop: update, report, validate, save, and stop when it is time to."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from types import FrameType

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from transformer.config import Config
from transformer.data.batching import Prefetcher
from transformer.data.corpus import EncodedCorpus
from transformer.data.tokenizer import Tokenizers
from transformer.data.updates import Update, iterate_updates
from transformer.errors import InterruptedRun, UserError
from transformer.training.checkpoint import (
    BEST,
    checkpoint_path,
    model_tensors,
    rotate_checkpoints,
    tokenizer_tensors,
    write_checkpoint,
)
from transformer.training.distributed import Ranks
from transformer.training.logger import Metrics, clock, log
from transformer.training.loss import token_loss
from transformer.training.report import Report
from transformer.training.state import TrainingState
from transformer.training.validation import Validation, Validator


class Trainer:
    """Trains one model in one run directory.

    Args:
        state: model, optimizer and progress; training goes on from there.
        corpus: training pairs.
        validation: validation pairs; None = no validation.
        tokenizers: the vocabularies.
        ranks: who shares the work.
    """

    def __init__(
        self,
        state: TrainingState,
        corpus: EncodedCorpus,
        validation: EncodedCorpus | None,
        tokenizers: Tokenizers,
        ranks: Ranks,
    ) -> None:
        self.state = state
        self.config: Config = state.config
        self.corpus = corpus
        self.tokenizers = tokenizers
        self.ranks = ranks
        self.run_dir = Path(self.config.run_dir)
        self.precision = choose_precision(self.config.training.precision, ranks.device)
        self.stop_signal: int | None = None
        self.saved_step = state.progress.step
        self.metrics: Metrics | None = None
        self.report = Report(self.config, state.progress.step)
        self.validator: Validator | None = None
        if validation is not None:
            self.validator = Validator(
                validation, tokenizers, self.config, ranks, self.autocast, self._check
            )

    def autocast(self) -> AbstractContextManager[object]:
        """Returns the context in which the model computes: bfloat16 products, or plain float32."""
        if self.precision == "float32":
            return nullcontext()
        return torch.autocast(self.ranks.device.type, dtype=torch.bfloat16)

    def run(self) -> None:
        """Trains until the end, a stop signal, or no further improvement; always leaves a
        checkpoint.

        Raises:
            UserError: the loss or its gradient is not finite, or a checkpoint could not be written.
            InterruptedRun: a signal asked to stop; the state is saved.
        """
        progress = self.state.progress
        if self.ranks.is_first:
            self.metrics = Metrics(self.run_dir, progress.step)
        self.state.model.train()
        bar = tqdm(
            total=self.config.training.max_steps,
            initial=progress.step,
            unit="update",
            disable=not (self.ranks.is_first and sys.stderr.isatty()),
            dynamic_ncols=True,
        )

        def updates() -> Iterator[Update]:
            return iterate_updates(
                self.corpus,
                self.tokenizers,
                self.config,
                progress.position,
                self.ranks.rank,
                self.ranks.size,
            )

        try:
            with self._signals(), bar, Prefetcher(updates) as prefetcher:
                self._loop(iter(prefetcher), bar)
        finally:
            if self.metrics is not None:
                self.metrics.close()

    def _loop(self, updates: Iterator[Update], bar: tqdm) -> None:
        training, progress = self.config.training, self.state.progress
        try:
            self._validate_if_due()
            while progress.step < training.max_steps and not self._out_of_patience():
                started_at = time.monotonic()
                update = next(updates, None)
                waited_seconds = time.monotonic() - started_at
                if update is None:
                    break
                stop = self.update(update)
                seconds = time.monotonic() - started_at
                progress.seconds += seconds
                self.report.add(update, seconds, waited_seconds)
                bar.update()
                if progress.step % training.log_every == 0 or progress.step == 1:
                    self._report()
                if stop:
                    raise InterruptedRun(self.stop_signal or signal.SIGTERM)
                self._validate_if_due()
                if progress.step % training.save_every == 0:
                    self._save()
            self._validate(at_end=True)
        except InterruptedRun as interrupted:
            self._save()
            log.warning(
                "stopped by %s after step %d; `transformer resume %s` goes on from there",
                signal.Signals(interrupted.signal_number).name,
                progress.step,
                self.run_dir,
            )
            raise
        self._save()
        self._say_why_done()

    def update(self, update: Update) -> bool:
        """Does one update; returns whether some rank was asked to stop.

        Raises:
            UserError: loss or gradient is not finite; weights and optimizer are as before.
        """
        state, step = self.state, self.state.progress.step + 1
        state.optimizer.zero_grad(set_to_none=True)
        loss_sum = torch.zeros((), device=self.ranks.device)
        for number, batch in update.batches:
            seed_random(self.config.seed, step, number)
            batch = batch.to(self.ranks.device)
            with self.autocast():
                logits = state.model(batch.src, batch.tgt)
            loss = token_loss(logits, batch.labels, self.config.training.label_smoothing)
            (loss / update.num_tokens).backward()
            loss_sum += loss.detach()
        stop = torch.tensor(float(self.stop_signal is not None), device=self.ranks.device)
        gradients = [gradient(p) for p in state.parameters]
        self.ranks.sum([*gradients, loss_sum, stop])
        norm = torch.nn.utils.get_total_norm(gradients)
        self._refuse_non_finite(step, loss_sum / update.num_tokens, norm)
        limit = self.config.training.clip_norm
        if limit is not None:
            torch.nn.utils.clip_grads_with_norm_(state.parameters, limit, norm)
        rate = state.apply_update(step)
        state.progress.step, state.progress.position = step, update.after
        self.report.note(loss_sum, norm, rate)
        return bool(stop.item() > 0)

    def _refuse_non_finite(self, step: int, loss: Tensor, norm: Tensor) -> None:
        if torch.isfinite(loss) and torch.isfinite(norm):
            return
        saved = f"; the checkpoint of step {self.saved_step} is intact" if self.saved_step else ""
        raise UserError(
            f"step {step}: the loss is {loss.item():g}, the norm of its gradient {norm.item():g};"
            " stopped before the update. Try a lower training.learning_rate, more"
            f" training.warmup_steps, training.clip_norm=1 or model.norm_first=true{saved}"
        )

    def _report(self) -> None:
        line, numbers = self.report.take(self.state.progress.position.epoch)
        if self.ranks.is_first and self.metrics is not None:
            log.info("%s", line)
            self.metrics.record("train", self.state.progress.step, numbers)

    def _validate_if_due(self) -> None:
        step = self.state.progress.step
        if step and step % self.config.validation.every == 0:
            self._validate()

    def _validate(self, at_end: bool = False) -> None:
        """Validates once a step, and keeps the model if it is the best."""
        progress = self.state.progress
        if self.validator is None:
            if at_end and progress.step:
                self._write_best()
            return
        if progress.validated_step == progress.step:
            return
        started_at = time.monotonic()
        with self.state.averaged_weights():
            found = self.validator.run(self.state.model)
        progress.seconds += time.monotonic() - started_at
        progress.validated_step = progress.step
        value = found.value(self.config.validation.metric)
        better = progress.best_value is None or value > progress.best_value
        if better:
            progress.best_value, progress.best_step = value, progress.step
            progress.validations_since_best = 0
        else:
            progress.validations_since_best += 1
        self._tell(found, time.monotonic() - started_at)
        if better:
            self._write_best()
            self._save()

    def _tell(self, found: Validation, seconds: float) -> None:
        if self.metrics is None:
            return
        progress = self.state.progress
        text = f"validation at step {progress.step}  loss {found.loss:.3f}"
        text += f"  perplexity {found.perplexity:.2f}"
        if found.bleu is not None:
            text += f"  BLEU {found.bleu:.2f}  chrF {found.chrf:.2f}"
        best = "  (best so far)" if progress.best_step == progress.step else ""
        log.info("%s  in %s%s", text, clock(seconds), best)
        numbers = found.numbers() | {"seconds": seconds, "run_seconds": progress.seconds}
        self.metrics.record("validation", progress.step, numbers)
        samples = []
        for source, reference, output in found.samples:
            log.info("  source    %s\n  reference %s\n  output    %s", source, reference, output)
            samples.append(f"source: {source}  \nreference: {reference}  \noutput: {output}")
        if samples:
            self.metrics.record_text("samples", progress.step, "\n\n".join(samples))

    def _out_of_patience(self) -> bool:
        patience = self.config.validation.patience
        return patience is not None and self.state.progress.validations_since_best >= patience

    def _save(self) -> None:
        """Writes the full state after the last update, once."""
        step = self.state.progress.step
        path = checkpoint_path(self.run_dir, step)
        if step == 0 or (self.saved_step == step and path.is_file()):
            return
        if self.ranks.is_first:
            tensors = self.state.tensors() | tokenizer_tensors(self.tokenizers)
            metadata = self.state.metadata() | {"data": self.corpus.digest}
            write_checkpoint(path, tensors, metadata)
            rotate_checkpoints(
                self.run_dir,
                self.config.training.keep_checkpoints,
                self.state.progress.best_step,
            )
        self.saved_step = step

    def _write_best(self) -> None:
        """Writes the weights that translate, without what only training needs."""
        if not self.ranks.is_first:
            return
        with self.state.averaged_weights():
            tensors = model_tensors(self.state.model) | tokenizer_tensors(self.tokenizers)
            metadata = self.state.metadata()
            del metadata["progress"]
            write_checkpoint(self.run_dir / BEST, tensors, metadata)

    def _say_why_done(self) -> None:
        progress, training = self.state.progress, self.config.training
        if self._out_of_patience():
            why = f"no better validation for {progress.validations_since_best} times"
        elif progress.step >= training.max_steps:
            why = f"training.max_steps {training.max_steps} reached"
        else:
            why = f"training.max_epochs {training.max_epochs} reached"
        log.info("done after step %d (%s): %s", progress.step, clock(progress.seconds), why)

    def _check(self) -> None:
        """Lets a signal end a validation, in a run of one process; several finish it together."""
        if self.stop_signal is not None and self.ranks.size == 1:
            raise InterruptedRun(self.stop_signal)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Notes SIGTERM and Ctrl-C; the loop stops at the next moment when the state is whole."""

        def note(number: int, frame: FrameType | None) -> None:
            if self.stop_signal is not None and number == signal.SIGINT:
                raise KeyboardInterrupt
            self.stop_signal = number

        try:
            before = {n: signal.signal(n, note) for n in (signal.SIGTERM, signal.SIGINT)}
        except ValueError:  # not the main thread: signals are somebody else's
            yield
            return
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def choose_precision(name: str, device: torch.device) -> str:
    """Returns `float32` or `bfloat16`; auto takes bfloat16 where the hardware multiplies it
    fast.
    """
    if name != "auto":
        return name
    if device.type == "cuda":
        fast = torch.cuda.is_bf16_supported(including_emulation=False)
    elif device.type == "cpu":
        flags = torch.cpu.get_capabilities()
        fast = bool(flags.get("avx512_bf16") or flags.get("amx_bf16"))
    else:
        fast = False
    return "bfloat16" if fast else "float32"


def seed_random(seed: int, step: int, micro_batch: int) -> None:
    """Makes the random numbers of a micro-batch a function of these three alone."""
    state = np.random.SeedSequence((seed, step, micro_batch)).generate_state(1, np.uint64)
    torch.manual_seed(int(state[0]))


def gradient(p: Tensor) -> Tensor:
    """Returns a weight's gradient; zeros where this rank's share gave it none."""
    if p.grad is None:
        p.grad = torch.zeros_like(p)
    return p.grad
