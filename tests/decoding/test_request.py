"""Requests in JSON: each line one, and a clear word about every line that is none."""

from __future__ import annotations

import json

import pytest

from transformer.decoding.request import Request, read_requests
from transformer.errors import UserError


def read(*lines: str) -> list[Request]:
    return list(read_requests(lines, "x.jsonl"))


def test_all_keys_are_read_and_all_but_the_text_may_be_missing() -> None:
    full = {
        "text": "a b",
        "prefix": "c",
        "must_contain": ["d", "e f"],
        "must_not_contain": "g",
        "tag": "<2de>",
        "id": {"any": ["thing"]},
    }
    found = read(json.dumps(full), '{"text": ""}', '{"text": "x", "prefix": null, "id": 0}')
    assert found == [
        Request("a b", "c", ("d", "e f"), ("g",), "<2de>", {"any": ["thing"]}),
        Request(""),
        Request("x", id=0),
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a b", "not JSON: Expecting value at character 1"),
        ('{"text": "a"', "not JSON"),
        ("", "not JSON"),
        ('"a b"', "an object with the key text is needed, not a string"),
        ("null", "not null"),
        ("[]", "not a list"),
        ("{}", "the key text is missing"),
        ('{"text": null}', "the key text is missing"),
        ('{"text": 3}', "text: a string is needed, not a number"),
        ('{"text": true}', "text: a string is needed, not a boolean"),
        ('{"text": "a\\nb"}', "text: holds a line break"),
        ('{"text": "a", "id": NaN}', "a number is NaN, infinite or too long"),
        ('{"text": "a", "id": [1e999]}', "a number is NaN, infinite or too long"),
        ('{"text": "a", "id": %s}' % ("9" * 5000), "a number is NaN, infinite or too long"),
        ('{"text": "a", "text": "b"}', "text: an object has this key more than once"),
        ('{"text": "a", "id": {"n": 1, "n": 1}}', "n: an object has this key more than once"),
        ('{"text": "a", "prefx": "b"}', "prefx: no such key; did you mean prefix?"),
        ('{"text": "a", "zzz": "b"}', "zzz: no such key; there are text, prefix, must_contain"),
        ('{"text": "a", "must_contain": [3]}', "must_contain: a list of strings"),
        ('{"text": "a", "must_contain": [" "]}', "must_contain: a list of strings"),
        ('{"text": "a", "must_not_contain": {}}', "must_not_contain: a list of strings"),
    ],
)
def test_a_line_that_is_no_request_is_named_with_its_number(line: str, message: str) -> None:
    requests = read_requests(['{"text": "a"}', line], "x.jsonl")
    assert next(requests) == Request("a")
    with pytest.raises(UserError, match=r"^x\.jsonl:2: ") as refused:
        next(requests)
    assert message in str(refused.value)
