"""Claims about reading configurations from YAML and the command line, and writing them."""

import re
from pathlib import Path

import pytest
from good_config import FUZZ, GOOD
from hypothesis import example, given
from hypothesis import strategies as st

from transformer.config import Config
from transformer.config_file import config_schema, dump_config, load_config, parse_config
from transformer.errors import UserError


def test_a_config_holds_what_the_file_says_and_defaults_for_the_rest() -> None:
    config = parse_config(GOOD, "my.yaml")
    expected = {
        "run_dir": "runs/first",
        "data": {"train": [{"source": "a.en", "target": "a.de"}]},
        "model": {"d_model": 64, "num_heads": 4},
        "training": {"max_steps": 500},
    }
    assert config == Config.model_validate(expected)


@pytest.mark.parametrize("start", ["\ufeff", "# ein Kommentar: ä\n", "---\n", "\r\n"])
def test_a_file_may_start_with_what_editors_put_there(tmp_path: Path, start: str) -> None:
    path = tmp_path / "my.yaml"
    path.write_bytes((start + GOOD.replace("\n", "\r\n")).encode())
    assert load_config(path) == parse_config(GOOD, "my.yaml")


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    bad = tmp_path / "latin1.yaml"
    bad.write_bytes(b"run_dir: a\n# gr\xfc\xdfe\n")
    for path, says in [
        (tmp_path / "none.yaml", "none.yaml: no such file"),
        (tmp_path, f"{tmp_path.name}: a folder"),
        (bad, "latin1.yaml:2: not valid UTF-8 (byte 0xfc)"),
        (bad / "below", "cannot be read"),
        ("a\0b", "cannot be read"),
    ]:
        with pytest.raises(UserError, match=re.escape(says)):
            load_config(path)


@pytest.mark.parametrize(
    ("override", "path", "means"),
    [
        ("training.max_steps=7", "training.max_steps", 7),
        ("training.max_steps=1e3", "training.max_steps", 1000),
        (" training.max_steps = 7 ", "training.max_steps", 7),
        ("training.clip_norm=null", "training.clip_norm", None),
        ("training.learning_rate=paper", "training.learning_rate", "paper"),
        ("training.learning_rate=1e-3", "training.learning_rate", 1e-3),
        ("training.betas=[0.8, .9]", "training.betas", (0.8, 0.9)),
        ("tokenizer.user_symbols=['<2de>', no]", "tokenizer.user_symbols", ["<2de>", "no"]),
        ("model={d_model: 32, num_heads: 2}", "model.d_model", 32),
        ("run_dir=010", "run_dir", "010"),
        ("run_dir=a=b: [c]", "run_dir", "a=b: [c]"),
        ("run_dir=null", "run_dir", "null"),
        ("init_from=1e5", "init_from", "1e5"),
        ("init_from=null", "init_from", None),
        ("data.source_language=no", "data.source_language", "no"),
    ],
)
def test_an_override_wins(override: str, path: str, means: object) -> None:
    found: object = parse_config(GOOD, "my.yaml", [override])
    for name in path.split("."):
        found = getattr(found, name)
    assert found == means
    assert type(found) is type(means)


def test_overrides_reach_into_lists_and_names_and_the_last_one_wins() -> None:
    overrides = [
        "data.train=[{source: b, target: c}, {path: d.tsv}]",
        "data.train.0.source=010",
        "data.train.1.path=e.tsv",
        "data.test.new.source=f",
        "data.test.new.target=g",
        "seed=1",
        "seed=2",
    ]
    config = parse_config(GOOD, "my.yaml", overrides)
    assert [corpus.source for corpus in config.data.train] == ["010", None]
    assert config.data.train[1].path == "e.tsv"
    assert config.data.test["new"].target == "g"
    assert config.seed == 2


def test_a_setting_that_is_missing_in_the_file_may_come_from_the_command_line() -> None:
    text = GOOD.replace("run_dir: runs/first\n", "")
    assert parse_config(text, "my.yaml", ["run_dir=b"]).run_dir == "b"


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1)


@FUZZ
@given(TEXT, st.lists(TEXT), st.floats(0, exclude_min=True, allow_infinity=False), st.booleans())
@example("no", ["1e-3", "null", "010", "~", "1:30", "2001-01-01", "<<", "=", ".inf"], 1e-9, True)
@example(
    "a\nb\r\n\x85\u2028 ",
    ["'\"", "ä 😀", "# a", "a: b", "- a", " ", "\ufeff", "\x1b"],
    5e-324,
    False,
)
def test_what_is_written_reads_back_equal(
    text: str, symbols: list[str], number: float, flag: bool
) -> None:
    config = Config.model_validate(
        {
            "run_dir": text,
            "data": {"train": [{"source": text, "target": text}], "drop_duplicates": flag},
            "tokenizer": {"user_symbols": symbols},
            "training": {"learning_rate": number, "clip_norm": None if flag else number},
        }
    )
    assert parse_config(dump_config(config), "written") == config


def test_the_schema_refuses_unknown_names_and_explains_each_setting() -> None:
    schema = config_schema()
    for section in (schema, *schema["$defs"].values()):
        assert section["additionalProperties"] is False
        for setting in section["properties"].values():
            assert "$ref" in setting or setting["description"]
    assert schema["required"] == ["run_dir", "data"]
