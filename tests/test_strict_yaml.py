"""Claims about what YAML text means and what of YAML is refused."""

import math
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from transformer.errors import UserError
from transformer.strict_yaml import MAX_DEPTH, Place, dump_yaml, parse_yaml


def value(text: str) -> Any:
    """What YAML text means."""
    return parse_yaml(text, Place("my.yaml", 1)).plain()


def error(text: str) -> str:
    """The message of the error that the text gives."""
    with pytest.raises(UserError) as caught:
        value(text)
    return str(caught.value)


# The oracle is section 10.3.2 of the YAML 1.2.2 specification.
@pytest.mark.parametrize(
    ("text", "means"),
    [
        *((text, None) for text in ("", "~", "null", "Null", "NULL")),
        *((text, True) for text in ("true", "True", "TRUE")),
        *((text, False) for text in ("false", "False", "FALSE")),
        *((text, text) for text in ("yes", "no", "on", "off", "Yes", "NO", "y", "n", "nULL")),
        *(("0", 0), ("-19", -19), ("+5", 5), ("010", 10), ("-010", -10), ("0o7", 7), ("0x3A", 58)),
        *((text, text) for text in ("0b11", "1_000", "1:30", "190:20:30", "0o8", "0xG", "1,5")),
        *(("0.", 0.0), ("-0.0", -0.0), (".5", 0.5), ("+12e03", 12e3), ("-2E+05", -2e5)),
        *(("1e-3", 1e-3), ("1E5", 1e5), ("5.", 5.0), ("1.e2", 100.0), (".5e1", 5.0)),
        *((text, math.inf) for text in (".inf", ".Inf", ".INF", "+.inf")),
        ("-.inf", -math.inf),
        *(
            (text, text)
            for text in ("inf", "nan", "1e", "e3", ".", "1.2.3", "2001-01-01", "=", "٣")
        ),
        *(("'5'", "5"), ('"true"', "true"), ("|\n  5", "5"), (">-\n  null", "null")),
        ('"a\\tb\\u00e4"', "a\tbä"),
    ],
)
def test_a_scalar_means_what_the_core_schema_of_yaml_1_2_says(text: str, means: object) -> None:
    [found] = value(f"- {text}")
    assert found == means
    assert type(found) is type(means)


def test_not_a_number_is_read_too() -> None:
    assert str(value(".nan")) == "nan"


@pytest.mark.parametrize("key", ["no", "5", "null", "1e3", "a b", "true", "010"])
def test_a_key_is_its_text(key: str) -> None:
    assert value(f"{key}: 1") == {key: 1}


def test_a_value_knows_the_line_of_its_key_and_an_element_its_own() -> None:
    node = parse_yaml(
        "# first\na:\n\n  - 1\n  -\n    b: |\n      x\n      y\n", Place("my.yaml", 1)
    )
    lines = {path: node.at(path).place.line for path in (("a",), ("a", 0), ("a", 1), ("a", 1, "b"))}
    assert lines == {("a",): 2, ("a", 0): 4, ("a", 1): 6, ("a", 1, "b"): 6}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("\na: &b 5", "my.yaml:2: anchors (&) and aliases (*) are not supported"),
        ("\n&a b: 5", "my.yaml:2: anchors (&) and aliases (*) are not supported"),
        ("a: *b", "my.yaml:1: anchors (&) and aliases (*) are not supported"),
        ("a: !!python/object:os.system x", "my.yaml:1: the tag !!python/object:os.system is not"),
        ("a: !b {}", "my.yaml:1: the tag !b is not supported"),
        ("a: !!str 5", "my.yaml:1: the tag !!str is not supported"),
        ("a:\n  <<: {b: 1}", "my.yaml:2: a: merge keys (<<) are not supported"),
        ("a:\n  b: 1\n  c: 2\n  b: 3", "my.yaml:4: a.b: given twice, first on line 2; keep one"),
        ("a:\n  [b]: 1", "my.yaml:2: a: a key must be a name"),
        ("a:\n\tb: 1", "my.yaml:2: not valid YAML: a tab cannot indent"),
        ("a: b: c", "my.yaml:1: not valid YAML: a ':' too many"),
        ("a: 1\n  b: 2", "my.yaml:2: not valid YAML: a ':' too many"),
        ("a:\n    b: 1\n  c: 2", "my.yaml:3: not valid YAML: the indentation does not fit"),
        ("a\nb: 1", "my.yaml:2: not valid YAML: "),
        ("a: 1\nb\n\nc: 1", "my.yaml:2: not valid YAML: a ':' and a value are missing here"),
        ("a: [1,\nb: 2\n", "my.yaml:3: not valid YAML: while parsing a flow sequence from line 1"),
        ('a: "b\nc', "my.yaml:2: not valid YAML: while scanning a quoted scalar from line 1"),
        ("a: 1\n---\nb: 1", "my.yaml:2: not valid YAML: expected a single document"),
        (
            "a: @b",
            "my.yaml:1: not valid YAML: while scanning for the next token: found character '@'",
        ),
        ("a: 1\nb: \x07", r"my.yaml:2: not valid YAML: the character '\x07' is not allowed"),
        ('\na: "\\UFFFFFFFF"', "my.yaml:2: not valid YAML: a number too large"),
        (f"\n%YAML {'9' * 5000}.1\n---\na: 1", "my.yaml:2: not valid YAML: a number too large"),
        (
            "a: 9223372036854775808",
            "my.yaml:1: a: found 9223372036854775808; whole numbers go up to",
        ),
        (f"a: {'9' * 5000}", "my.yaml:1: a: found 9999"),
        ('"a\\n": {b: 1, b: 2}', r"my.yaml:1: 'a\n'.b: given twice"),
        ('a: "\\0"', r"my.yaml:1: a: found '\x00', which is not valid text"),
        ('a: ["\\ud800"]', r"my.yaml:1: a.0: found '\ud800', which is not valid text"),
        ('"\\ud800": 1', "my.yaml:1: a key must be a name in valid text"),
    ],
)
def test_what_settings_have_no_use_for_is_refused_with_its_line(text: str, says: str) -> None:
    assert error(text).startswith(says)
    assert "\n" not in error(text)


def test_a_place_without_lines_stays_without() -> None:
    with pytest.raises(UserError, match=r"^command line: a\.b: given twice; keep one$"):
        parse_yaml("\n{b: 1, b: 2}", Place("command line"), ("a",))


def test_nesting_is_read_down_to_its_limit() -> None:
    assert value("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    assert "levels deep" in error("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1))


def test_aliases_that_would_multiply_are_refused_at_once() -> None:
    rows = [f"a{i + 1}: &a{i + 1} [{', '.join([f'*a{i}'] * 9)}]" for i in range(9)]
    assert error("\n".join(["a0: &a0 x", *rows])).startswith("my.yaml:1: anchors (&)")


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
LEAF = st.none() | st.booleans() | st.integers(1 - 2**63, 2**63 - 1) | TEXT
NUMBER = st.floats(allow_nan=False)
KEY = TEXT.filter(lambda key: key != "<<")


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.recursive(
        LEAF | NUMBER,
        lambda below: st.lists(below, max_size=4) | st.dictionaries(KEY, below, max_size=3),
    )
)
@example(["no", "1e-3", "null", "010", "~", "1:30", "2001-01-01", "<<", "=", ".inf", "", " "])
@example(
    ["a\nb\r\n\x85\u2028 ", "'\"", "ä 😀", "# a", "a: b", "- a", "\ufeff", "\x1b", "\t", "---"]
)
@example([5e-324, 1e22, -0.0, 1e-9, 2**63 - 1, math.inf])
def test_what_is_written_reads_back_as_the_same_value(written: object) -> None:
    read = value(dump_yaml(written))
    assert read == written
    assert repr(read) == repr(written)


def test_what_is_written_means_the_same_in_yaml_1_1() -> None:
    texts = ["no", "1e-3", "010", "1:30", "2001-01-01", "null", "0o7", ".5", "5", "="]
    assert yaml.safe_load(dump_yaml(texts)) == texts
