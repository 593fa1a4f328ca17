"""The training loop: update, report, validate, save, and stop when it is time to."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from transformer.config import Config
from transformer.data.batching import Prefetcher
from transformer.data.corpus import EncodedCorpus
from transformer.data.encoding import digest_of
from transformer.data.tokenizer import Tokenizers
from transformer.data.updates import Update, iterate_updates
from transformer.errors import InterruptedRun, UserError
from transformer.precision import choose_precision
from transformer.training.distributed import LostProcess, Ranks
from transformer.training.environment import ENVIRONMENT, describe_environment
from transformer.training.logger import Metrics, clock, log
from transformer.training.regularization import training_loss
from transformer.training.report import Report
from transformer.training.saving import Saver
from transformer.training.selection import Selection
from transformer.training.sharding import whole
from transformer.training.state import TrainingState
from transformer.training.stopping import StopRequest
from transformer.training.validation import Validator

ROUND_TOKENS = 64
"""In bfloat16 a CPU is given such multiples of tokens: PyTorch's library for it prepares a kernel
for each number of them, which takes time and memory."""


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
        self.stop = StopRequest()
        environment = describe_environment(ranks, self.precision)
        origin = {
            "data": corpus.digest,
            "validation": digest_of(validation),
            ENVIRONMENT: environment,
        }
        self.saver = Saver(state, tokenizers, origin, ranks)
        self.metrics: Metrics | None = None
        self._unsettled: tuple[int, Tensor, Tensor] | None = None  # step, loss, gradient norm
        self.report = Report(self.config, state.progress.tally)
        validator = None
        if validation is not None:
            validator = Validator(
                validation, tokenizers, self.config, ranks, self.autocast, self._check
            )
        self.selection = Selection(state, validator, self.saver)

    def autocast(self) -> AbstractContextManager[object]:
        """Returns the context in which the model computes: bfloat16 products, or plain float32."""
        if self.precision == "float32":
            return nullcontext()
        return torch.autocast(self.ranks.device.type, dtype=torch.bfloat16)

    def run(self, check_directory: Callable[[], object] = lambda: None) -> None:
        """Trains until the end, a stop signal, or no further improvement; always leaves a
        checkpoint.

        Args:
            check_directory: raises `UserError` if the run directory is no longer this run's.

        Raises:
            UserError: the loss or its gradient is not finite, or a checkpoint or the metrics could
                not be written.
            InterruptedRun: a signal asked to stop; the state is saved.
        """
        progress = self.state.progress
        self.saver.check_directory = check_directory
        if self.ranks.is_first:
            self.metrics = Metrics(
                self.run_dir, progress.step, progress.validated_step, check_directory
            )
        self.state.model.train()
        bar = tqdm(
            total=self.config.training.total_steps,
            initial=progress.step,
            unit="update",
            disable=not (self.ranks.is_first and sys.stderr is not None and sys.stderr.isatty()),
            dynamic_ncols=True,
        )

        def updates() -> Iterator[Update]:
            return iterate_updates(
                self.corpus,
                self.tokenizers,
                self.config,
                progress.position,
                progress.step,
                self.ranks.rank,
                self.ranks.size,
            )

        prefetcher = Prefetcher(updates, check=self._check_alone)
        with self.stop.listening(), bar, prefetcher:
            self._loop(iter(prefetcher), bar)

    def _loop(self, updates: Iterator[Update], bar: tqdm) -> None:
        training, progress = self.config.training, self.state.progress
        try:
            self.selection.validate_if_due(self.metrics)
            while progress.step < training.total_steps and not self.selection.is_out_of_patience:
                started_at = time.monotonic()
                update = next(updates)
                waited_seconds = time.monotonic() - started_at
                stop = self._update_within_memory(update)
                seconds = time.monotonic() - started_at
                progress.seconds += seconds
                self.report.add(update, seconds, waited_seconds)
                bar.update()
                is_reported = progress.step % training.log_every == 0 or progress.step == 1
                if stop or is_reported or self.selection.is_due or self.saver.is_due:
                    self._settle()
                if is_reported:
                    self._report()
                if stop:
                    raise InterruptedRun(self.stop.signal_number or signal.SIGTERM)
                self.selection.validate_if_due(self.metrics)
                if self.saver.is_due:
                    self.saver.save()
            self._settle()
            self.selection.finish(self.metrics)
        except LostProcess:
            self._settle()
            self.saver.save_alone()
            raise
        except InterruptedRun as interrupted:
            self._settle()
            self.saver.save()
            log.warning(
                "stopped by %s after step %d; `transformer resume %s` goes on from there",
                signal.Signals(interrupted.signal_number).name,
                progress.step,
                self.run_dir,
            )
            raise
        self.saver.save()
        self._say_why_done()

    def _update_within_memory(self, update: Update) -> bool:
        """Does one update; says what would do if the device's memory does not hold it."""
        try:
            return self.update(update)
        except torch.OutOfMemoryError as error:
            limit = self.config.training.max_tokens
            raise UserError(
                f"step {self.state.progress.step + 1}: {self.ranks.device} is out of memory"
                f" ({str(error).split('. ')[0]}); lower training.max_tokens {limit}, which leaves"
                " the update as it is, or set training.activation_checkpointing=true"
                f"{self._what_is_saved()}"
            ) from None

    def update(self, update: Update) -> bool:
        """Does one update, unless its loss or gradient is not finite, and returns whether some rank
        was asked to stop.

        It does not wait for the device: what went wrong with one update is said at the next, or
        when it matters.

        Raises:
            InterruptedRun: a signal asked to stop in the middle of it, in a run of one process.
            UserError: loss or gradient of the update before is not finite; weights and optimizer
                are as they were before that one.
        """
        state, step = self.state, self.state.progress.step + 1
        training = self.config.training.at(step)
        state.model.zero_grad(set_to_none=True)
        loss_sum = torch.zeros((), device=self.ranks.device)
        with self.autocast():  # around all, so that weights become bfloat16 once an update
            for number, batch in update.batches:
                self._check_alone()
                seed_random(self.config.seed, step, number)
                batch = batch.to(self.ranks.device)
                if self.precision == "bfloat16" and batch.src.device.type == "cpu":
                    batch = batch.rounded(ROUND_TOKENS)
                loss = training_loss(state.model, batch, training)
                (loss / update.num_tokens).backward()
                loss_sum += loss.detach()
        stop = torch.tensor(float(bool(self.stop)), device=self.ranks.device)
        gradients = [gradient(p) for p in state.parameters]
        to_share = [] if state.is_sharded else gradients  # those are shared in the backward pass
        self.ranks.sum([*to_share, loss_sum, stop])
        norm = whole(torch.nn.utils.get_total_norm(gradients))
        limit = training.clip_norm
        if limit is not None:
            torch.nn.utils.clip_grads_with_norm_(state.parameters, limit, norm)
        self._settle()
        self._unsettled = step, loss_sum / update.num_tokens, norm
        rate = state.apply_update(step, loss_sum.isfinite() & norm.isfinite())
        state.progress.step, state.progress.position = step, update.after
        self.report.note(loss_sum, norm, rate)
        return bool(self.stop) if self.ranks.size == 1 else bool(stop.item() > 0)

    def _settle(self) -> None:
        """Raises an error if the latest update was left out, its loss or gradient not finite."""
        if self._unsettled is None:
            return
        (step, loss, norm), self._unsettled = self._unsettled, None
        if torch.isfinite(loss) and torch.isfinite(norm):
            return
        raise UserError(
            f"step {step}: the loss is {loss.item():g}, the norm of its gradient {norm.item():g};"
            " stopped before the update. Try a lower training.learning_rate, more"
            f" training.warmup_steps, training.clip_norm=1 or model.norm_first=true"
            f"{self._what_is_saved()}"
        )

    def _what_is_saved(self) -> str:
        step = self.saver.step
        return f"; the checkpoint of step {step} is intact" if step else ""

    def _report(self) -> None:
        step = self.state.progress.step
        line, numbers = self.report.take(step, self.state.progress.position.epoch)
        if self.metrics is not None:
            log.info("%s", line)
            self.metrics.record("train", step, numbers)

    def _say_why_done(self) -> None:
        progress, training = self.state.progress, self.config.training
        if self.selection.is_out_of_patience:
            why = f"no better validation for {progress.validations_since_best} times"
        else:
            why = f"training.{training.limit} reached"
        best = f"; best after step {progress.best_step}" if progress.best_step else ""
        log.info("done after step %d (%s): %s%s", progress.step, clock(progress.seconds), why, best)

    def _check_alone(self) -> None:
        """Lets a signal end the wait for data, or an update, in a run of one process; several stop
        together, after an update.
        """
        if self.ranks.size == 1:
            self._check()

    def _check(self) -> None:
        """Lets a signal end a validation."""
        if self.stop.signal_number is not None:
            raise InterruptedRun(self.stop.signal_number)


def seed_random(seed: int, step: int, micro_batch: int) -> None:
    """Makes the random numbers of a micro-batch a function of these three alone."""
    state = np.random.SeedSequence((seed, step, micro_batch)).generate_state(1, np.uint64)
    torch.manual_seed(int(state[0]))


def gradient(p: Tensor) -> Tensor:
    """Returns a weight's gradient; zeros where this rank's share gave it none."""
    if p.grad is None:
        p.grad = torch.zeros_like(p)
    return p.grad
