"""Model selection: validates every so often, keeps the best model, stops when none is better."""

from __future__ import annotations

import time

from transformer.training.logger import Metrics, clock, log
from transformer.training.saving import Saver
from transformer.training.state import TrainingState
from transformer.training.validation import Validation, Validator


class Selection:
    """Validates one run and keeps its best model.

    Args:
        state: the run; its progress holds what was best so far.
        validator: measures a model; None = the last model counts as the best.
        saver: writes the best one.
    """

    def __init__(self, state: TrainingState, validator: Validator | None, saver: Saver) -> None:
        self.state = state
        self.validator = validator
        self.saver = saver

    @property
    def is_out_of_patience(self) -> bool:
        """Whether too many validations have found no better model."""
        patience = self.state.config.validation.patience
        return patience is not None and self.state.progress.validations_since_best >= patience

    @property
    def is_due(self) -> bool:
        """Whether there is a validation after this step."""
        step = self.state.progress.step
        every = self.state.config.validation.every
        return self.validator is not None and step > 0 and step % every == 0

    def validate_if_due(self, metrics: Metrics | None) -> None:
        """Validates after every `validation.every` updates."""
        if self.is_due and self.validator is not None:
            self._validate(self.validator, metrics)

    def finish(self, metrics: Metrics | None) -> None:
        """Validates the last model, which is the best one where nothing is validated."""
        if self.validator is not None:
            self._validate(self.validator, metrics)
        elif self.state.progress.step:
            self.saver.write_best()

    def _validate(self, validator: Validator, metrics: Metrics | None) -> None:
        """Validates once a step, and keeps the model if it is the best."""
        progress = self.state.progress
        if progress.validated_step == progress.step:
            return
        started_at = time.monotonic()
        with self.state.translating_model() as model:
            found = validator.run(model)
        seconds = time.monotonic() - started_at
        progress.seconds += seconds
        progress.validated_step = progress.step
        value = found.value(self.state.config.validation.metric)
        better = progress.best_value is None or value > progress.best_value
        if better:
            progress.best_value, progress.best_step = value, progress.step
            progress.validations_since_best = 0
        else:
            progress.validations_since_best += 1
        if metrics is not None:
            self._tell(found, seconds, metrics)
        if better:
            self.saver.write_best()
            self.saver.save()

    def _tell(self, found: Validation, seconds: float, metrics: Metrics) -> None:
        progress = self.state.progress
        text = f"validation at step {progress.step}  loss {found.loss:.3f}"
        text += f"  perplexity {found.perplexity:.2f}"
        if found.bleu is not None:
            text += f"  BLEU {found.bleu:.2f}  chrF {found.chrf:.2f}"
        best = "  (best so far)" if progress.best_step == progress.step else ""
        log.info("%s  in %s%s", text, clock(seconds), best)
        numbers = found.numbers() | {"seconds": seconds, "run_seconds": progress.seconds}
        metrics.record("validation", progress.step, numbers)
        samples = []
        for source, reference, output in found.samples:
            log.info("  source    %s\n  reference %s\n  output    %s", source, reference, output)
            samples.append(f"source: {source}  \nreference: {reference}  \noutput: {output}")
        if samples:
            metrics.record_text("samples", progress.step, "\n\n".join(samples))
