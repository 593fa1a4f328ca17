"""Claims about how the errors of a configuration are told."""

import time

import pytest
from good_config import FUZZ, GOOD
from hypothesis import example, given
from hypothesis import strategies as st

from transformer.config_file import parse_config
from transformer.errors import UserError
from transformer.strict_yaml import dump_yaml

WHOLE = "needs a whole number, 1 or more"
SHARE = "a number, 0 or more and below 1"
PEAK = "needs a number, above 0, or paper"
CORPORA = "needs a list of 1 or more, each a section of settings (source, target, path, hub, ...)"
CHOOSE = "name an element, counted from 0, or give the whole list"


def error(text: str, *overrides: str) -> str:
    """The message of the error that the text gives."""
    with pytest.raises(UserError) as caught:
        parse_config(text, "my.yaml", overrides)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("max_step", "5", "no such setting; did you mean max_steps?"),
        ("Max-Steps", "5", "no such setting; did you mean max_steps?"),
        (
            "beam_size",
            "5",
            "no such setting; did you mean validation.beam_size or decoding.beam_size?",
        ),
        ("max_steps", "ten", f"found 'ten'; {WHOLE}"),
        ("max_steps", "'5'", f"found '5'; {WHOLE}"),
        ("max_steps", "true", f"found true; {WHOLE}"),
        ("max_steps", "5.5", f"found 5.5; {WHOLE}"),
        ("max_steps", "0x0", f"found 0x0; {WHOLE}"),
        ("max_steps", "-1", f"found -1; {WHOLE}"),
        ("max_steps", "", f"found nothing; {WHOLE}"),
        ("max_steps", "~", f"found ~; {WHOLE}"),
        ("max_steps", "[]", f"found an empty list; {WHOLE}"),
        ("max_steps", "{a: 1}", f"found a section; {WHOLE}"),
        ("max_epochs", "1.5", f"found 1.5; {WHOLE}, or null"),
        ("optimizer", "sgd", "found 'sgd'; needs adamw, adam or muon"),
        ("precision", "16", "found 16; needs auto, float32 or bfloat16"),
        ("learning_rate", "fast", f"found 'fast'; {PEAK}"),
        ("learning_rate", ".inf", f"found .inf; {PEAK}"),
        ("learning_rate", "1e999", f"found 1e999; {PEAK}"),
        ("label_smoothing", "1", f"found 1; needs {SHARE}"),
        ("activation_checkpointing", "no", "found 'no'; needs true or false"),
        ("betas", "[0.9]", f"found a list of 1; needs a list of 2, each {SHARE}"),
        ("betas", "0.9", f"found 0.9; needs a list of 2, each {SHARE}"),
    ],
)
def test_an_error_says_where_what_was_found_and_what_would_do(
    name: str, value: str, says: str
) -> None:
    text = GOOD.replace("max_steps: 500", f"{name}: {value}")
    assert error(text) == f"my.yaml:10: training.{name}: {says}"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("run_dir: runs/first\n", "", "1: run_dir: missing; needs some text"),
        ("runs/first", "010", "1: run_dir: found 010; needs some text (in quotes: '010')"),
        ("data:", "num_heads: 5\ndata:", "2: num_heads: no such setting; did you mean model.num_"),
        ("num_heads", "xyz", "8: model.xyz: no such setting; there are d_model, num_heads, d_ff"),
        ("num_heads", "d_model", "8: model.d_model: given twice, first on line 7; keep one"),
        ("    - source: a.en\n      target: a.de", "    []", "3: data.train: found an empty list"),
        ("    - source: a.en\n      target: a.de", "    a.en", "3: data.train: found 'a.en'"),
        ("- source: a.en\n      target: a.de", "- a.en", "4: data.train.0: found 'a.en'; needs a"),
        ("\n  train:", "\n  validation:", f"2: data.train: missing; {CORPORA}"),
        ("\n  max_steps: 500", " 500", "9: training: found 500; needs a section of settings ("),
        ("max_steps: 500", "betas: [0.9, 2]", f"10: training.betas.1: found 2; needs {SHARE}"),
    ],
)
def test_an_error_anywhere_names_its_line_and_its_setting(old: str, new: str, says: str) -> None:
    assert error(GOOD.replace(old, new)).startswith(f"my.yaml:{says}")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("num_heads: 4", "num_heads: 5", "7: model: d_model 64 does not divide by num_heads 5"),
        ("  num_heads: 4\n", "  qk_norm: true\n  num_heads: 7\n", "7: model: d_model 64"),
        (
            "  d_model: 64\n  num_heads: 4",
            "  num_heads: 3",
            "7: model: d_model 512 does not divide",
        ),
        (
            "- source: a.en\n      target: a.de",
            "- split: a",
            "4: data.train.0: a corpus needs exactly",
        ),
        ("      target: a.de\n", "", "4: data.train.0: source and target go together"),
        ("max_steps: 500", "max_tokens: 200", "10: data.max_length 256 exceeds training.max_tok"),
    ],
)
def test_settings_that_clash_are_told_at_the_first_of_them_that_is_given(
    old: str, new: str, says: str
) -> None:
    assert error(GOOD.replace(old, new)).startswith(f"my.yaml:{says}")


@pytest.mark.parametrize("text", ["", " \n", "# nothing\n", "---\n", "null"])
def test_an_empty_file_says_that_it_is(text: str) -> None:
    assert error(text) == "my.yaml: no settings in it; needs at least run_dir and data"


@pytest.mark.parametrize(("text", "found"), [("[1]", "a list of 1"), ("a b", "'a b'"), ("5", "5")])
def test_a_file_of_anything_but_settings_is_refused(text: str, found: str) -> None:
    assert error(text).startswith(f"my.yaml:1: found {found}; needs settings")


def test_all_errors_are_told_by_line_and_those_of_the_command_line_last() -> None:
    text = GOOD.replace("num_heads", "heads").replace("500", "x").replace("train:", "trian:")
    told = [line.split(": ")[:2] for line in error(text, "sed=1").split("\n")]
    assert told == [
        ["my.yaml:2", "data.train"],
        ["my.yaml:3", "data.trian"],
        ["my.yaml:8", "model.heads"],
        ["my.yaml:10", "training.max_steps"],
        ["command line", "sed"],
    ]


def test_very_many_errors_are_counted() -> None:
    text = GOOD + "".join(f"{name}_: 1\n" for name in "abcdefghijklm")
    assert len(error(text).split("\n")) == 11
    assert error(text).endswith("\nand 3 more")


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("training.max_step=5", "training.max_step: no such setting; did you mean max_steps?"),
        ("max_steps=5", "max_steps: no such setting; did you mean training.max_steps?"),
        ("trainig.max_steps=5", "trainig: no such setting; did you mean training?"),
        ("training.max_steps=ten", f"training.max_steps: found 'ten'; {WHOLE}"),
        ("max_steps", "found 'max_steps'; needs KEY=VALUE, such as training.max_steps=500"),
        ("=5", "found '=5'; needs KEY=VALUE, such as training.max_steps=500"),
        ("a..b=5", "found 'a..b=5'; needs KEY=VALUE, such as training.max_steps=500"),
        ("run_dir.a=5", "run_dir.a: run_dir is 'runs/first', not a section (my.yaml:1)"),
        ("run_dir=", "run_dir: found ''; needs some text"),
        ("run_dir=\udcff", r"run_dir: found '\udcff', which is not valid text"),
        ("data.train.1.path=a", f"data.train.1: data.train is a list of 1; {CHOOSE}"),
        ("data.train.path=a", f"data.train.path: data.train is a list of 1; {CHOOSE}"),
        ("training.betas.0=0", f"training.betas.0: training.betas is an empty list; {CHOOSE}"),
        ("training.betas=[0.9", "training.betas: not valid YAML: "),
        ("model={d_ff: 1, d_ff: 2}", "model.d_ff: given twice; keep one"),
        ("model.num_heads=5", "model: d_model 64 does not divide by num_heads 5"),
        ("training.max_tokens=250", "data.max_length 256 exceeds training.max_tokens 250"),
        ("data.max_length=26000", "data.max_length 26000 exceeds training.batch_tokens 25000"),
        ("data.test.a b.hub=x", "data.test.a b: not a good name; letters, digits, _ and - make"),
    ],
)
def test_an_error_of_an_override_names_the_command_line(override: str, says: str) -> None:
    assert error(GOOD, override).startswith(f"command line: {says}")


def read(text: str, *overrides: str) -> None:
    """Reads a configuration, good or bad; any error but a UserError passes through."""
    started, told = time.process_time(), "my.yaml"
    try:
        parse_config(text, "my.yaml", overrides)
    except UserError as refusal:
        told = str(refusal)
    assert told.startswith(("my.yaml", "command line: "))
    assert time.process_time() - started < 5


WORDS = (
    "run_dir data train source model betas [ ] { } ' \" &a *a !!int | > ? # --- ... 5 1e3 null ~"
)
SPACES = (
    "\n",
    "\n  ",
    " ",
    ": ",
    "- ",
    ":",
    "\t",
    "\r",
    "\u2028",
    "\x85",
    "\ufeff",
    "\0",
    "\ud800",
)
ODD = ("%YAML 1.1", "! ", "\\x", "\\UFFFFFFFF", "\\ud800", "@", "`", ",", "<<", "=", "0x")
FRAGMENTS = st.lists(st.sampled_from([*WORDS.split(), *SPACES, *ODD])).map("".join)


@FUZZ
@given(st.text(st.characters(codec=None)) | FRAGMENTS)
@example("[" * 2000)
@example("{" * 2000)
@example("- " * 2000)
@example("? " * 2000)
@example("a: " * 2000)
def test_any_text_is_read_or_refused(text: str) -> None:
    read(text)


@FUZZ
@given(st.integers(0, len(GOOD)), st.integers(0, 20), FRAGMENTS)
def test_any_damage_is_read_or_refused(start: int, length: int, damage: str) -> None:
    read(GOOD[:start] + damage + GOOD[start + length :])


@FUZZ
@given(
    st.sampled_from(
        ["", "run_dir", "data.train.0", "training.betas.0", "data.test.a.hub", "model"]
    ),
    st.sampled_from(["=", ".", ""]),
    FRAGMENTS,
)
def test_any_override_is_read_or_refused(key: str, sign: str, text: str) -> None:
    read(GOOD, f"{key}{sign}{text}")


NAMES = "run_dir data train validation test source hub model d_model training betas [key] float int"
KEY = st.sampled_from(NAMES.split()) | st.text(st.characters(codec="utf-8"), max_size=3)
LEAF = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)


@FUZZ
@given(
    st.recursive(
        LEAF,
        lambda below: st.lists(below, max_size=3) | st.dictionaries(KEY, below, max_size=4),
    )
)
def test_any_structure_is_read_or_refused(structure: object) -> None:
    read(dump_yaml(structure))
