"""Claims about the settings and their checks."""

import pytest
from pydantic import BaseModel, ValidationError

from transformer.config import (
    Config,
    CorpusConfig,
    DataConfig,
    DecodingConfig,
    ModelConfig,
    TrainingConfig,
    ValidationConfig,
)

CORPUS = {"source": "a.en", "target": "a.de"}
LEAST = {"run_dir": "run", "data": {"train": [CORPUS]}}


def sections(section: type[BaseModel]) -> list[type[BaseModel]]:
    """The section and those below it."""
    inner = [field.annotation for field in section.model_fields.values()]
    below = [kind for kind in inner if isinstance(kind, type) and issubclass(kind, BaseModel)]
    return [section, *(deeper for kind in below for deeper in sections(kind))]


@pytest.mark.parametrize("section", [*sections(Config), CorpusConfig])
def test_every_setting_says_what_it_means(section: type[BaseModel]) -> None:
    assert section.__doc__
    for name, field in section.model_fields.items():
        is_section = isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
        assert is_section or field.description, name


def test_the_default_model_is_the_base_model_of_the_paper_with_the_norm_first() -> None:
    model = ModelConfig()  # Vaswani et al. 2017, table 3
    assert (model.num_encoder_layers, model.num_decoder_layers) == (6, 6)
    assert (model.d_model, model.d_ff, model.num_heads, model.dropout) == (512, 2048, 8, 0.1)
    assert model.norm_first


def test_settings_never_change_after_reading() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Config.model_validate(LEAST).seed = 2


def test_a_config_survives_json() -> None:
    config = Config.model_validate({**LEAST, "training": {"betas": [0.8, 0.9]}})
    assert Config.model_validate_json(config.model_dump_json()) == config
    assert Config.model_validate(config.model_dump(mode="json")) == config


@pytest.mark.parametrize("value", [True, "5", 5.5, 0, -1, None, [5], float("inf"), float("nan")])
def test_a_number_of_steps_is_nothing_else(value: object) -> None:
    with pytest.raises(ValidationError):
        TrainingConfig.model_validate({"max_steps": value})


@pytest.mark.parametrize("value", [True, "0.5", -0.1, float("inf"), float("nan"), None])
def test_a_weight_decay_is_a_number_that_is_not_negative(value: object) -> None:
    with pytest.raises(ValidationError):
        TrainingConfig.model_validate({"weight_decay": value})


def test_a_whole_number_does_as_a_float_and_a_float_without_fraction_as_a_whole_number() -> None:
    training = TrainingConfig.model_validate({"weight_decay": 1, "max_steps": 1e5})
    assert type(training.weight_decay) is float
    assert training.max_steps == 100_000
    assert type(training.max_steps) is int


@pytest.mark.parametrize("value", [[0.9], [0.9, 0.98, 0.99], 0.9, ["0.9", 0.98], [0.9, 1.0]])
def test_betas_are_two_probabilities_below_one(value: object) -> None:
    with pytest.raises(ValidationError):
        TrainingConfig.model_validate({"betas": value})


@pytest.mark.parametrize(
    ("section", "settings", "says"),
    [
        (ModelConfig, {"d_model": 30, "num_heads": 4}, "30 does not divide by num_heads 4"),
        (ModelConfig, {"d_model": 29, "num_heads": 1}, "must be even"),
        (ModelConfig, {"d_model": 6, "num_heads": 2, "positions": "rotary"}, "even to rotate"),
        (TrainingConfig, {"schedule": "cosine", "max_steps": 9, "warmup_steps": 10}, "takes 10"),
        (
            TrainingConfig,
            {"schedule": "warmup_stable_decay", "max_steps": 100, "warmup_steps": 81},
            "warmup_steps and the descent take 101",
        ),
        (
            TrainingConfig,
            {"schedule": "linear", "learning_rate": 1e-4, "min_learning_rate": 1e-3},
            "min_learning_rate 0.001 exceeds learning_rate 0.0001",
        ),
        (TrainingConfig, {"min_steps": 900}, "set it, or min_steps to 0"),
        (TrainingConfig, {"sharding": "full", "optimizer": "muon"}, "needs whole matrices"),
        (TrainingConfig, {"r_drop": 2.5, "simcut": 3.0}, "r_drop and simcut exclude each other"),
        (ValidationConfig, {"translate": False, "metric": "bleu"}, "translate"),
        (DecodingConfig, {"n_best": 6, "beam_size": 5}, "n_best 6 exceeds beam_size 5"),
        (DecodingConfig, {"min_length": 51, "max_length": 50}, "min_length 51 exceeds"),
        (DecodingConfig, {"min_length_ratio": 2.5}, "exceeds max_length_ratio"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    section: type[BaseModel], settings: dict[str, object], says: str
) -> None:
    with pytest.raises(ValidationError, match=says):
        section.model_validate(settings)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"tokenizer": {"joint": False}}, "two vocabularies cannot share one matrix"),
        ({"model": {"positions": "learned", "max_positions": 255}}, "exceeds model.max_positions"),
        ({"training": {"max_tokens": 255}}, "256 exceeds training.max_tokens 255"),
        ({"training": {"max_tokens": 511, "simcut": 3.0}}, "256 exceeds half of training.max_tok"),
        (
            {"data": {"train": [{**CORPUS, "tag": "<2de>"}]}},
            "data.train.0.tag <2de> is not in tokenizer.user_symbols",
        ),
        ({"validation": {"patience": 3}}, "needs data.validation"),
    ],
)
def test_sections_that_contradict_each_other_are_refused(
    settings: dict[str, object], says: str
) -> None:
    with pytest.raises(ValidationError, match=says):
        Config.model_validate({**LEAST, **settings})


def test_two_vocabularies_may_tie_the_decoder_alone() -> None:
    two = {**LEAST, "tokenizer": {"joint": False}, "model": {"tie_embeddings": "decoder"}}
    assert not Config.model_validate(two).tokenizer.joint


@pytest.mark.parametrize(
    ("corpus", "kind"),
    [
        (CORPUS, "text"),
        ({"path": "pairs.tsv"}, "tsv"),
        ({"path": "pairs.tsv.gz"}, "tsv"),
        ({"path": "pairs.jsonl"}, "jsonl"),
        ({"path": "pairs.json.gz"}, "jsonl"),
        ({"path": "pairs.parquet"}, "parquet"),
        ({"hub": "owner/name", "name": "de-en", "split": "test"}, "hub"),
    ],
)
def test_the_kind_of_a_corpus_follows_from_what_is_given(corpus: dict[str, str], kind: str) -> None:
    assert CorpusConfig.model_validate(corpus).format == kind


@pytest.mark.parametrize(
    "corpus",
    [
        {},
        {"source": "a.en"},
        {"target": "a.de"},
        {"source": "", "target": "a.de"},
        {**CORPUS, "path": "a.tsv"},
        {"path": "a.tsv", "hub": "owner/name"},
        {"path": "a.csv"},
        {"path": "a"},
        {**CORPUS, "source_column": "en"},
        {**CORPUS, "split": "test"},
        {"path": "a.tsv", "revision": "main"},
    ],
)
def test_a_corpus_of_no_kind_or_of_two_is_refused(corpus: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        CorpusConfig.model_validate(corpus)


def test_training_needs_a_corpus() -> None:
    with pytest.raises(ValidationError):
        DataConfig.model_validate({"train": []})


@pytest.mark.parametrize("name", ["", "a b", "../a", "a.b", "a/b", "ä"])
def test_the_name_of_a_test_set_can_name_a_file_and_an_override(name: str) -> None:
    with pytest.raises(ValidationError):
        DataConfig.model_validate({"train": [CORPUS], "test": {name: CORPUS}})
