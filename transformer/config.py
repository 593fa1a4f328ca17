"""Every setting, once: its name, type, default, meaning and check; those of text stand in
`config_data`.

YAML files mirror these sections (`transformer.config_file` reads them); the command line overrides
a setting by its dotted name, such as `training.max_steps=500`. Types are strict: a boolean or a
quoted number is no number. A whole number does as a float, and a float without fraction (`1e5`) as
a whole number.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from transformer.config_data import CorpusConfig, DataConfig, TokenizerConfig
from transformer.config_types import BeamSize, Count, Positive, Probability, Section, Seed, Text

__all__ = [
    "Config",
    "CorpusConfig",
    "DataConfig",
    "DecodingConfig",
    "ModelConfig",
    "Section",
    "TokenizerConfig",
    "TrainingConfig",
    "ValidationConfig",
]

Schedule = Literal["inverse_square_root", "cosine", "linear", "constant", "warmup_stable_decay"]


class ModelConfig(Section):
    """The Transformer (Vaswani et al. 2017); defaults are its base model, with the norm first."""

    d_model: Positive = 512
    """Width of the model."""
    num_heads: Positive = 8
    """Attention heads; d_model must divide by it."""
    d_ff: Positive = 2048
    """Inner width of the feed-forward layers."""
    num_encoder_layers: Positive = 6
    """Layers of the encoder."""
    num_decoder_layers: Positive = 6
    """Layers of the decoder."""
    dropout: Probability = 0.1
    """Dropout of embeddings and of what each sublayer adds."""
    attention_dropout: Probability = 0.0
    """Dropout of attention weights."""
    activation_dropout: Probability = 0.0
    """Dropout inside the feed-forward layers, after the activation."""
    norm_first: bool = True
    """Normalises before each sublayer, which trains without care; false is the paper's order."""
    norm: Literal["layer", "rms"] = "layer"
    """Normalisation layer."""
    activation: Literal["relu", "gelu", "swiglu"] = "relu"
    """Activation of the feed-forward layers."""
    positions: Literal["sinusoidal", "learned", "rotary"] = "sinusoidal"
    """How positions are told."""
    max_positions: Positive = 1024
    """Size of the table of learned positions; positions beyond it share its last entry."""
    qk_norm: bool = False
    """Normalises queries and keys of each head (Henry et al. 2020): attention cannot saturate."""
    tie_embeddings: Literal["all", "decoder", "none"] = "all"
    """Shares one matrix: all three, or decoder input and output, or none."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        width, heads = self.d_model, self.num_heads
        if width % heads:
            raise ValueError(f"d_model {width} does not divide by num_heads {heads}")
        if self.positions == "sinusoidal" and width % 2:
            raise ValueError(f"d_model {width} must be even: half sine, half cosine")
        if self.positions == "rotary" and width // heads % 2:
            raise ValueError(f"d_model / num_heads, {width // heads}, must be even to rotate")
        return self

    @property
    def architecture(self) -> dict[str, object]:
        """What two models have in common if one can take the other's weights: all but dropout."""
        return {name: x for name, x in self.model_dump().items() if "dropout" not in name}


class TrainingConfig(Section):
    """The update and its optimizer. Nothing here depends on how many devices there are."""

    max_steps: Positive = 100_000
    """Updates to train for."""
    max_epochs: Positive | None = None
    """Epochs to train for, if they end before max_steps."""
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
    """Updates of the final descent of warmup_stable_decay. Default: a fifth of max_steps."""
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
    divergences between the predictions. The paper adds the cross-entropies: its 5 is 2.5 here."""
    simcut: float = Field(default=0.0, ge=0.0)
    """Weight of SimCut (Gao et al. 2022; there 3): the loss is the cross-entropy and simcut times
    the Kullback-Leibler divergence of the prediction from that of a second pass, in which a share
    of the tokens on both sides, token_cutoff, is hidden."""
    token_cutoff: Probability = 0.05
    """Share of the tokens that are hidden in the second pass of SimCut."""
    second_pass_from: float = Field(default=0.0, ge=0.0, le=1.0)
    """Share of max_steps after which r_drop or simcut begins. Without a second pass an update takes
    half the time, and what is far from learned needs no regularisation yet."""
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

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.r_drop and self.simcut:
            raise ValueError("r_drop and simcut exclude each other: set one of them to 0")
        if self.sharding == "full" and self.optimizer == "muon":
            raise ValueError("optimizer muon needs whole matrices, and sharding is full: try adamw")
        if self.schedule in ("inverse_square_root", "constant"):
            return self
        descent = self.descent if self.schedule == "warmup_stable_decay" else 0
        if (least := self.warmup_steps + descent) > self.max_steps:
            raise ValueError(
                f"max_steps {self.max_steps} is too few: warmup_steps and the final descent take"
                f" {least}; lower training.warmup_steps, or raise max_steps"
            )
        peak, end = self.learning_rate, self.min_learning_rate
        if peak != "paper" and end > peak:
            raise ValueError(f"min_learning_rate {end} exceeds learning_rate {peak}")
        return self

    def at(self, step: int) -> TrainingConfig:
        """Returns what holds for update number `step`, which counts from 1."""
        if self.num_passes == 1 or step > self.second_pass_from * self.max_steps:
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
        return self.decay_steps or max(1, self.max_steps // 5)


class ValidationConfig(Section):
    """When to validate, and what the best checkpoint and early stopping go by."""

    every: Positive = 1000
    """Updates between validations."""
    translate: bool = True
    """Translates the validation set for BLEU and chrF; false measures the loss alone."""
    beam_size: BeamSize | None = None
    """Beam of those translations. Default: that of `decoding`."""
    metric: Literal["bleu", "chrf", "loss"] = "bleu"
    """What is best: highest bleu or chrf, or lowest loss."""
    patience: Positive | None = None
    """Stops after so many validations without a better one; null never stops early."""
    samples: Count = 3
    """Sample translations in the log."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if not self.translate and self.metric != "loss":
            raise ValueError(f"metric {self.metric} needs translate to be true; without it, loss")
        return self


class DecodingConfig(Section):
    """How to search for a translation; the command line can say otherwise."""

    beam_size: BeamSize = 5
    """Hypotheses kept for each sentence; 1 is greedy."""
    n_best: Positive = 1
    """Translations given for each sentence."""
    length_penalty: float = Field(default=1.0, ge=0.0, le=10.0)
    """Exponent alpha of the score: sum of log-probabilities / length ** alpha, the end counted."""
    length_normalization: Literal["power", "gnmt"] = "power"
    """What takes the exponent: the length, or with gnmt (5 + length) / 6 (Wu et al. 2016)."""
    coverage_penalty: float = Field(default=0.0, ge=0.0, le=10.0)
    """Weight beta of the coverage of the source in the score (Wu et al. 2016); 0 is none."""
    min_length: Count = 0
    """Fewest tokens of a translation, its end not counted."""
    min_length_ratio: float = Field(default=0.0, ge=0.0)
    """Fewest tokens of a translation for each source token."""
    max_length: int = Field(default=50, ge=1, le=1_000_000)
    """Most tokens of a translation, apart from max_length_ratio: the limit is their sum."""
    max_length_ratio: float = Field(default=2.0, ge=0.0, le=1000.0)
    """Most tokens of a translation for each source token, on top of max_length."""
    no_repeat_ngram: Count = 0
    """Tokens of a sequence that is not said twice; 0 = any may be."""
    ban_unknown: bool = False
    """Never says the unknown token."""
    beam_groups: Positive = 1
    """Groups that the beam is shared out to, each kept from what others say (`diversity`)."""
    diversity: float = Field(default=0.5, ge=0.0, le=1000.0)
    """What a token loses of its log-probability for each hypothesis of the groups before that says
    it at this step.
    """
    batch_tokens: Positive = 4096
    """Source tokens that are translated at once, padding included."""
    processes: int = Field(default=0, ge=0, le=256)
    """Processes that translate many lines on a CPU, each on one core; 0 = as many as cores."""
    shortlist: Text | None = None
    """File of `transformer shortlist`: only what it allows is said, which is faster."""
    precision: Literal["float32", "bfloat16", "int8"] = "float32"
    """Numbers that are multiplied: bfloat16 is fast on GPUs, int8 on CPUs."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.n_best > self.beam_size:
            raise ValueError(f"n_best {self.n_best} exceeds beam_size {self.beam_size}")
        if self.min_length > self.max_length:
            raise ValueError(f"min_length {self.min_length} exceeds max_length {self.max_length}")
        if self.min_length_ratio > self.max_length_ratio:
            raise ValueError("min_length_ratio exceeds max_length_ratio")
        if self.beam_size % self.beam_groups:
            raise ValueError(
                f"beam_groups {self.beam_groups} does not divide beam_size {self.beam_size}"
            )
        return self


class Config(Section):
    """One training run."""

    run_dir: Text
    """Folder of the run: checkpoints, logs, tokenizer and this configuration."""
    seed: Seed = 1
    """Decides initial weights, order of the data and dropout."""
    init_from: Text | None = None
    """Checkpoint or run to take weights and vocabulary from; the optimizer starts afresh."""
    data: DataConfig
    tokenizer: TokenizerConfig = TokenizerConfig()
    model: ModelConfig = ModelConfig()
    training: TrainingConfig = TrainingConfig()
    validation: ValidationConfig = ValidationConfig()
    decoding: DecodingConfig = DecodingConfig()

    @model_validator(mode="after")
    def _fits(self) -> Self:
        longest, table = self.data.max_length, self.model.max_positions
        if self.model.tie_embeddings == "all" and not self.tokenizer.joint:
            raise ValueError(
                "model.tie_embeddings is all, but tokenizer.joint is false: two vocabularies cannot"
                " share one matrix; set tie_embeddings to decoder, or joint to true"
            )
        for name, corpus in self.data.corpora.items():
            if corpus.tag is not None and corpus.tag not in self.tokenizer.user_symbols:
                raise ValueError(
                    f"{name}.tag {corpus.tag} is not in tokenizer.user_symbols: add it there, so"
                    " that it is one piece"
                )
        if self.model.positions == "learned" and longest > table:
            raise ValueError(f"data.max_length {longest} exceeds model.max_positions {table}")
        for name in ("max_tokens", "batch_tokens"):
            budget = getattr(self.training, name)
            if budget != "auto" and longest > budget:
                raise ValueError(f"data.max_length {longest} exceeds training.{name} {budget}")
        budget, passes = self.training.max_tokens, self.training.num_passes
        if budget != "auto" and longest * passes > budget:
            raise ValueError(
                f"data.max_length {longest} exceeds half of training.max_tokens {budget}, in which"
                f" r_drop and simcut need room for {passes} passes"
            )
        if self.validation.patience is not None and not self.data.validation:
            raise ValueError("validation.patience needs data.validation, which is empty")
        return self
