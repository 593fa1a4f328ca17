"""Every setting, once: its name, type, default, meaning and check; those of text stand in
`config_data`, those of updates in `config_training`.

YAML files mirror these sections (`transformer.config_file` reads them); the command line overrides
a setting by its dotted name, such as `training.max_steps=500`. Types are strict: a boolean or a
quoted number is no number. A whole number does as a float, and a float without fraction (`1e5`) as
a whole number.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from transformer.config_data import CorpusConfig, DataConfig, TokenizerConfig
from transformer.config_training import TrainingConfig
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
