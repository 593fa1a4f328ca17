"""A line to translate, with what holds for it alone; and its form in JSON."""

from __future__ import annotations

import difflib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields

from transformer.errors import UserError


@dataclass(frozen=True)
class Request:
    """A line to translate, and what holds for it alone.

    Attributes:
        text: the line.
        prefix: text that its translation begins with.
        must_contain: texts that its translation contains.
        must_not_contain: texts that its translation does not contain as whole words.
        tag: a symbol of the source vocabulary that is put before the line, such as `<2de>`.
        id: comes back with the translation; anything.
    """

    text: str
    prefix: str = ""
    must_contain: tuple[str, ...] = ()
    must_not_contain: tuple[str, ...] = ()
    tag: str = ""
    id: object = None


KEYS = [field.name for field in fields(Request)]
LISTS = ("must_contain", "must_not_contain")


def read_requests(
    lines: Iterable[str],
    name: str,
    first: int = 1,
    check: Callable[[Request], object] = lambda request: None,
) -> Iterator[Request]:
    """Yields the request that each line of JSON holds.

    Args:
        lines: one JSON object each, with the names of `Request` as keys.
        name: what errors call their origin.
        first: number of the first line.
        check: raises `ValueError` if a request cannot be met.

    Raises:
        UserError: a line is no such object; it is named by its number.
    """
    for number, line in enumerate(lines, first):
        try:
            request = _request(_parsed(line))
            check(request)
        except json.JSONDecodeError as error:
            raise UserError(
                f"{name}:{number}: not JSON: {error.msg} at character {error.pos + 1};"
                ' a line is an object such as {"text": "a line to translate"}'
            ) from None
        except ValueError as error:
            raise UserError(f"{name}:{number}: {error}") from None
        yield request


def _parsed(line: str) -> object:
    """Returns the value of JSON that can also be written again.

    Raises:
        ValueError: it is none, or none of text.
    """
    try:
        value = json.loads(line, object_pairs_hook=_object)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (json.JSONDecodeError, _KeyTwice):
        raise
    except RecursionError:
        raise ValueError("lists or objects stand too deep in each other") from None
    except UnicodeEncodeError as error:
        half = f"\\u{ord(error.object[error.start]):04x}"
        raise ValueError(f"{half} is half of a surrogate pair, which is no character") from None
    except ValueError:
        raise ValueError(
            "a number is NaN, infinite or too long, which JSON does not have"
        ) from None
    return value


class _KeyTwice(ValueError):
    """An object has a key twice: which of the two values is meant cannot be told."""


def _object(items: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(items)
    if len(found) < len(items):
        counts = Counter(key for key, _ in items)
        twice = next(key for key, count in counts.items() if count > 1)
        raise _KeyTwice(f"{twice}: an object has this key more than once")
    return found


def _request(value: object) -> Request:
    if not isinstance(value, dict):
        raise ValueError(f"an object with the key text is needed, not {_kind(value)}")
    for key in value:
        if key not in KEYS:
            near = difflib.get_close_matches(key, KEYS, 1)
            hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(KEYS)}"
            raise ValueError(f"{key}: no such key{hint}")
    given = {key: _checked(key, x) for key, x in value.items() if x is not None}
    if "text" not in given:
        raise ValueError("the key text is missing")
    return Request(**given)  # type: ignore[arg-type]


def _checked(key: str, value: object) -> object:
    """Returns the value of a key in the type that `Request` has for it."""
    if key == "id":
        return value
    if key not in LISTS:
        if not isinstance(value, str):
            raise ValueError(f"{key}: a string is needed, not {_kind(value)}")
        if "\n" in value:
            raise ValueError(f"{key}: holds a line break, which a line cannot")
        return value
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(x, str) and x.strip() for x in texts):
        raise ValueError(f"{key}: a list of strings that are not blank is needed")
    return tuple(texts)


def _kind(value: object) -> str:
    """Returns what JSON calls a value's type."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean"}
    return "null" if value is None else names.get(type(value), "a number")
