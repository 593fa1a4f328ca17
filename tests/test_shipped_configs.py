"""Claims about the configurations in configs/."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from transformer.config import Config
from transformer.config_file import config_schema, dump_config, load_config, parse_config

ROOT = Path(__file__).parents[1]
NAMES = ("toy", "small_data", "iwslt14_de_en", "base", "big")
NAMES += ("multi30k_en_de", "multi30k_en_de_best", "multi30k_both_ways")
SHIPPED = [ROOT / "configs" / f"{name}.yaml" for name in NAMES]


def test_these_are_all() -> None:
    assert sorted(ROOT.glob("configs/*.yaml")) == sorted(SHIPPED)


@pytest.mark.parametrize("path", SHIPPED, ids=NAMES)
def test_a_shipped_config_loads_and_survives_being_written(path: Path) -> None:
    config = load_config(path)
    name = "mine" if path.stem == "small_data" else path.stem  # it is there to be copied
    assert config.run_dir == f"runs/{name}"
    assert parse_config(dump_config(config), "written") == config


@pytest.mark.parametrize("path", SHIPPED, ids=NAMES)
def test_a_shipped_config_names_the_schema_for_editors(path: Path) -> None:
    first, *_ = path.read_text(encoding="utf-8").splitlines()
    key, schema = first.split("=")
    assert key == "# yaml-language-server: $schema"
    assert (path.parent / schema).is_file()


@pytest.mark.parametrize("path", SHIPPED, ids=NAMES)
def test_the_languages_are_those_of_the_file_names(path: Path) -> None:
    data = load_config(path).data
    languages = data.source_language, data.target_language
    assert data.validation
    assert data.test
    for corpus in data.corpora.values():
        found = tuple(str(name).rsplit(".", 1)[1] for name in (corpus.source, corpus.target))
        turned_around = corpus.tag == f"<2{languages[0]}>"
        assert found == (languages[::-1] if turned_around else languages)


def test_the_recipe_for_small_data_is_what_the_best_of_multi30k_is_trained_with() -> None:
    small, best = (
        load_config(ROOT / "configs" / f"{name}.yaml")
        for name in NAMES
        if "small" in name or "best" in name
    )
    assert (small.tokenizer, small.decoding) == (best.tokenizer, best.decoding)
    sizes = ("d_model", "d_ff", "num_encoder_layers", "num_decoder_layers")
    size = {name: getattr(best.model, name) for name in sizes}
    assert small.model.model_copy(update=size) == best.model
    same = dict.fromkeys(("log_every", "max_steps", "max_epochs", "min_steps"))
    assert {**small.training.model_dump(), **same} == {**best.training.model_dump(), **same}


@pytest.mark.parametrize("path", sorted(ROOT.glob("configs/sweeps/*.yaml")), ids=lambda x: x.stem)
def test_a_shipped_sweep_asks_for_runs_that_can_be(
    path: Path,
    sweep: Callable[[list[str]], int],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(ROOT)
    assert sweep([str(path), "--dry-run"]) == 0
    assert len(capsys.readouterr().out.splitlines()) > 10


def test_the_shipped_schema_is_the_one_that_the_code_gives() -> None:
    shipped = (ROOT / "configs" / "schema.json").read_text(encoding="utf-8")
    assert json.loads(shipped) == config_schema()


def weights(config: Config) -> int:
    """Counts the weights by hand: one matrix of embeddings, attention, feed-forward, norms."""
    d, f = config.model.d_model, config.model.d_ff
    attention, forward, norm = 4 * d * d, 2 * d * f, 2 * d
    encoder = config.model.num_encoder_layers * (attention + forward + 2 * norm)
    decoder = config.model.num_decoder_layers * (2 * attention + forward + 3 * norm)
    return config.tokenizer.vocab_size * d + encoder + decoder


@pytest.mark.parametrize(("name", "millions"), [("base", 65), ("big", 213)])
def test_the_models_of_the_paper_have_the_size_it_gives(name: str, millions: int) -> None:
    config = load_config(ROOT / "configs" / f"{name}.yaml")  # table 3 of Vaswani et al. 2017
    assert weights(config) / 1e6 == pytest.approx(millions, rel=0.04)


@pytest.mark.parametrize(
    ("name", "steps", "dropout", "averaged"), [("base", 100_000, 0.1, 5), ("big", 300_000, 0.3, 20)]
)
def test_the_models_of_the_paper_are_trained_as_it_says(
    name: str, steps: int, dropout: float, averaged: int
) -> None:
    config = load_config(ROOT / "configs" / f"{name}.yaml")  # sections 3, 5 and 6.1
    training, decoding = config.training, config.decoding
    assert (training.max_steps, config.model.dropout) == (steps, dropout)
    assert (training.optimizer, training.betas, training.epsilon) == ("adam", (0.9, 0.98), 1e-9)
    assert (training.learning_rate, training.schedule) == ("paper", "inverse_square_root")
    assert (training.warmup_steps, training.batch_tokens) == (4000, 25_000)
    assert (training.clip_norm, training.weight_decay) == (None, 0.0)
    assert training.label_smoothing == 0.1
    assert training.keep_checkpoints == averaged
    assert not config.model.norm_first
    assert config.model.tie_embeddings == "all"
    assert (config.tokenizer.kind, config.tokenizer.vocab_size) == ("bpe", 37_000)
    assert (decoding.beam_size, decoding.length_penalty) == (4, 0.6)
    assert (decoding.max_length, decoding.max_length_ratio) == (50, 1.0)
