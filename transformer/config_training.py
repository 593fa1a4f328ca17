"""The settings of updates: how many, of what size, how the optimizer takes them."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, PrivateAttr, model_validator

from transformer.config_types import Count, Positive, Probability, Section

Schedule = Literal["inverse_square_root", "cosine", "linear", "constant", "warmup_stable_decay"]
WITHOUT_END = ("inverse_square_root", "constant")
"""Schedules that do not go by how long the run is."""


class TrainingConfig(Section):
    """The update and its optimizer. Nothing here depends on how many devices there are."""

    max_steps: Positive = 100_000
    """Updates to train for, at most."""
    max_epochs: Positive | None = None
    """Epochs to train for, at most. Schedules go by the updates that there will be."""
    min_steps: Count = 0
    """Updates before which max_epochs does not end training; max_steps does."""
    batch_tokens: Positive = 25_000
    """Tokens of one update over all devices: the sum of the longer sides, without padding."""
    max_tokens: Positive | Literal["auto"] = "auto"
    """Tokens a device takes at once, with padding; updates are cut into such micro-batches. auto:
    as many as a GPU has memory for, as few as suit a CPU; a run keeps the number it began with."""
    optimizer: Literal["adamw", "adam", "muon"] = "adamw"
    """Optimizer; adamw decouples weight decay from the gradient (Loshchilov and Hutter 2019); muon
    is Muon for the matrices inside the layers (Jordan et al. 2024), adamw for all else."""
    learning_rate: Annotated[float, Field(gt=0.0)] | Literal["paper"] = 7e-4
    """Peak learning rate; `paper` is 1 / sqrt(d_model * warmup_steps), Vaswani et al. sec. 5.3."""
    schedule: Schedule = "inverse_square_root"
    """How the learning rate goes on after the warm-up."""
    warmup_steps: Count = 4000
    """Updates in which the learning rate rises linearly to its peak."""
    decay_steps: Positive | None = None
    """Updates of the final descent of warmup_stable_decay. Default: a fifth of all updates."""
    min_learning_rate: float = Field(default=0.0, ge=0.0)
    """Where cosine, linear and warmup_stable_decay end."""
    betas: Annotated[tuple[Probability, Probability], Field(strict=False)] = (0.9, 0.98)
    """Decay of Adam's running means."""
    epsilon: float = Field(default=1e-9, gt=0.0)
    """Keeps Adam from dividing by zero."""
    weight_decay: float = Field(default=0.0, ge=0.0)
    """Weight decay of matrices; biases and norms have none."""
    clip_norm: float | None = Field(default=1.0, gt=0.0)
    """Largest norm of the gradient; null does not clip."""
    label_smoothing: Probability = 0.1
    """Share of the probability that is spread over the vocabulary."""
    source_word_dropout: Probability = 0.0
    """Share of source tokens that are hidden in training: the embedding is zero, the position stays
    (Gal and Ghahramani 2016; Sennrich et al. 2016). Ends of sentences are never hidden."""
    target_word_dropout: Probability = 0.0
    """The same for the tokens that the decoder reads."""
    r_drop: float = Field(default=0.0, ge=0.0)
    """Weight of R-Drop (Wu et al. 2021): each sentence passes twice, with other dropout; the loss
    is the mean of both cross-entropies and r_drop times the mean of both Kullback-Leibler
    divergences between the predictions. The paper adds the cross-entropies: its 5 is 2.5 here; the
    5 of its released script, which divides by half as many tokens, is 1.25."""
    simcut: float = Field(default=0.0, ge=0.0)
    """Weight of SimCut (Gao et al. 2022; there 3): the loss is the cross-entropy and simcut times
    the Kullback-Leibler divergence of the prediction from that of a second pass, in which a share
    of the tokens on both sides, token_cutoff, is hidden."""
    token_cutoff: Probability = 0.05
    """Share of the tokens that are hidden in the second pass of SimCut."""
    second_pass_from: float = Field(default=0.0, ge=0.0, le=1.0)
    """Share of the updates after which r_drop or simcut begins. Without a second pass an update
    takes half the time, and what is far from learned needs no regularisation yet."""
    ema_decay: float | None = Field(default=None, gt=0.0, lt=1.0)
    """Decay of an exponential average of the weights, which validates and translates instead."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Arithmetic; weights stay float32. auto takes bfloat16 where the hardware has it."""
    activation_checkpointing: bool = False
    """Recomputes each layer in the backward pass: a third slower, far less memory."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to train."""
    sharding: Literal["none", "full"] = "none"
    """full spreads weights and optimizer over the processes, for models that one cannot hold."""
    log_every: Positive = 100
    """Updates between reports."""
    save_every: Positive = 1000
    """Updates between checkpoints."""
    keep_checkpoints: Positive = 3
    """Newest checkpoints to keep; the best one is kept beside them."""

    _total_steps: int | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.r_drop and self.simcut:
            raise ValueError("r_drop and simcut exclude each other: set one of them to 0")
        if self.sharding == "full" and self.optimizer == "muon":
            raise ValueError("optimizer muon needs whole matrices, and sharding is full: try adamw")
        if self.min_steps and self.max_epochs is None:
            raise ValueError(
                f"min_steps {self.min_steps} holds max_epochs back, and that is not set: set it, or"
                " min_steps to 0"
            )
        if self.schedule in WITHOUT_END:
            return self
        peak, end = self.learning_rate, self.min_learning_rate
        if peak != "paper" and end > peak:
            raise ValueError(f"min_learning_rate {end} exceeds learning_rate {peak}")
        self.lasting(self.max_steps)
        return self

    def lasting(self, steps: int) -> TrainingConfig:
        """Returns the same for a run of so many updates, which schedules go by.

        Raises:
            ValueError: they are too few.
        """
        lasting = self.model_copy()
        lasting._total_steps = steps
        if self.schedule in WITHOUT_END:
            return lasting
        parts, least = "warmup_steps takes", self.warmup_steps
        if self.schedule == "warmup_stable_decay":
            parts, least = "warmup_steps and the descent take", least + lasting.descent
        if least > steps:
            raise ValueError(
                f"{lasting.limit} is too few: there are {steps} updates, and {parts} {least}; lower"
                f" training.warmup_steps, or raise {lasting.limit.split()[0]}"
            )
        return lasting

    @property
    def total_steps(self) -> int:
        """Updates of the whole run.

        Raises:
            ValueError: they depend on the data, and `lasting` has not said them.
        """
        if self._total_steps is None and self.max_epochs is not None:
            raise ValueError("training.max_epochs is so many updates as the data has: not known")
        return self._total_steps or self.max_steps

    @property
    def limit(self) -> str:
        """The setting that total_steps comes from, and its value."""
        limits = ("max_steps", "min_steps")
        name = next((x for x in limits if getattr(self, x) == self.total_steps), "max_epochs")
        return f"{name} {getattr(self, name)}"

    def at(self, step: int) -> TrainingConfig:
        """Returns what holds for update number `step`, which counts from 1."""
        if self.num_passes == 1 or step > self.second_pass_from * self.total_steps:
            return self
        return self.model_copy(update={"r_drop": 0.0, "simcut": 0.0})

    @property
    def num_passes(self) -> int:
        """How often an update passes each sentence through the model, at most."""
        return 2 if self.r_drop or self.simcut else 1

    @property
    def micro_batch_tokens(self) -> int:
        """max_tokens as a number.

        Raises:
            ValueError: it is `auto` still.
        """
        if self.max_tokens == "auto":
            raise ValueError("training.max_tokens is auto: a run chooses a number when it starts")
        return self.max_tokens

    @property
    def descent(self) -> int:
        """Updates of the final descent of warmup_stable_decay."""
        return self.decay_steps or max(1, self.total_steps // 5)
