"""YAML that means what it says, each value with the line it stands on.

PyYAML scans and composes. What a scalar means is decided here, by the core schema of YAML 1.2
(section 10.3.2), because PyYAML goes by YAML 1.1: there `no` is a boolean, `1e-3` is text, `010` is
8 and `1:30` is 90. What a settings file has no use for is refused: tags, anchors and aliases, keys
given twice.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import yaml

from transformer.errors import UserError

KeyPath = tuple[str | int, ...]
Scalar = str | int | float | bool | None

MAX_DEPTH = 32
MAX_WHOLE = 2**63 - 1

NULLS = ("", "~", "null", "Null", "NULL")

_CONSTANTS: dict[str, Scalar] = {
    **dict.fromkeys(NULLS, None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
    **dict.fromkeys(
        (f"{sign}.{inf}" for sign in ("", "+") for inf in ("inf", "Inf", "INF")), float("inf")
    ),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
}
_WHOLE = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")


@dataclass(frozen=True)
class Place:
    """A file and a line in it; line 0 means no line, such as on the command line."""

    name: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.name}:{self.line}" if self.line else self.name


@dataclass
class Node:
    """A value and its place, which is that of its key if it has one."""

    value: Scalar | list[Node] | dict[str, Node]
    place: Place
    text: str | None = None
    """A scalar as it was written, without quotes; None if it was quoted."""

    def plain(self) -> object:
        """Returns the value without places."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value

    def at(self, path: KeyPath) -> Node:
        """Returns the deepest node on the path that there is."""
        node = self
        for step in path:
            below = node.value
            if isinstance(below, dict) and step in below:
                node = below[str(step)]
            elif isinstance(below, list) and isinstance(step, int) and step < len(below):
                node = below[step]
            else:
                break
        return node

    def has(self, path: KeyPath) -> bool:
        """Returns whether there is a node at the end of the path."""
        return self.at(path) is not self.at(path[:-1])

    def found(self) -> str:
        """Says what the value is, for an error."""
        if isinstance(self.value, dict):
            return "a section"
        if isinstance(self.value, list):
            return f"a list of {len(self.value)}" if self.value else "an empty list"
        written = repr(self.value) if isinstance(self.value, str) else self.text or "nothing"
        return written if len(written) <= 60 else f"{written[:57]}..."


def complain(place: Place, path: KeyPath, problem: str) -> UserError:
    """Makes the error that says where, which setting and what is wrong with it."""
    return UserError(": ".join(filter(None, (str(place), dotted(path), problem))))


def dotted(path: KeyPath) -> str:
    """Writes a path as the command line does: `data.train.0.source`."""
    return ".".join(step if step.isprintable() else ascii(step) for step in map(str, path))


def resolve_scalar(text: str) -> Scalar:
    """Returns what an unquoted scalar means in the core schema of YAML 1.2.

    Raises:
        ValueError: a whole number needs more than 64 bits.
    """
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _WHOLE.fullmatch(text):
        base = {"0o": 8, "0x": 16}.get(text[:2], 10)
        if len(text) > 80 or abs(number := int(text, base)) > MAX_WHOLE:
            raise ValueError(f"found {text:.40}; whole numbers go up to {MAX_WHOLE}")
        return number
    return float(text) if _FLOAT.fullmatch(text) else text


def is_text(text: str) -> bool:
    """Returns whether a file can be named and written with it: no NUL, no lone surrogate."""
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


def parse_yaml(text: str, place: Place, path: KeyPath = ()) -> Node:
    """Reads one YAML document; an empty one is a null.

    Args:
        text: the document.
        place: the file, with line 1; or a place without lines, which then every value has.
        path: the setting that the document is the value of.

    Raises:
        UserError: not YAML, or more of YAML than settings need.
    """
    reader: _Reader | None = None
    try:
        reader = _Reader(text, place, path)
        node = reader.get_single_node()
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        problem = f"not valid YAML: the character {chr(error.character)!a} is not allowed"
        raise complain(_moved(place, line), path, problem) from None
    except yaml.MarkedYAMLError as error:
        mark, problem = _explain(error)
        raise complain(_moved(place, mark.line + 1 if mark else 0), path, problem) from None
    except (ValueError, OverflowError):  # an escape such as "\UFFFFFFFF", a version of 5000 digits
        line = reader.line + 1 if reader else 0
        raise complain(_moved(place, line), path, "not valid YAML: a number too large") from None
    return Node(None, place, "") if node is None else _build(node, place, path)


def _moved(place: Place, line: int) -> Place:
    return Place(place.name, line) if place.line else place


class _Reader(yaml.SafeLoader):
    """Composes nodes and refuses what a settings file has no use for."""

    def __init__(self, text: str, place: Place, path: KeyPath) -> None:
        super().__init__(text)
        self.place, self.path, self.depth = place, path, 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event = self.peek_event()
        problem = ""
        if event.anchor is not None:
            problem = "anchors (&) and aliases (*) are not supported; write the value out"
        elif event.tag is not None:
            tag = event.tag.replace("tag:yaml.org,2002:", "!!")
            problem = f"the tag {tag} is not supported; leave it out, or quote text"
        elif self.depth == MAX_DEPTH:
            problem = f"nested more than {MAX_DEPTH} levels deep"
        if problem:
            raise complain(_moved(self.place, event.start_mark.line + 1), self.path, problem)
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


def _explain(error: yaml.MarkedYAMLError) -> tuple[yaml.Mark | None, str]:
    """Returns where a syntax error is, and the sentence for it."""
    problem, context = error.problem or "", error.context or ""
    if "'\\t'" in problem:
        reason = "a tab cannot indent or separate; use spaces"
    elif "could not find expected ':'" in problem:
        return error.context_mark, "not valid YAML: a ':' and a value are missing here"
    elif problem.startswith("expected <block end>"):
        reason = "the indentation does not fit the lines above"
    elif problem.startswith("mapping values are not allowed"):
        reason = "a ':' too many; check the indentation, and quote text that holds ': '"
    else:
        start, end = error.context_mark, error.problem_mark
        if start and end and start.line != end.line:
            context += f" from line {start.line + 1}"
        reason = f"{context}: {problem}" if context else problem
    return error.problem_mark or error.context_mark, f"not valid YAML: {reason}"


def _build(node: yaml.Node, place: Place, path: KeyPath) -> Node:
    """Turns a composed node into values."""
    if isinstance(node, yaml.MappingNode):
        return Node(_build_mapping(node, place, path), place)
    if isinstance(node, yaml.SequenceNode):
        items: list[Node] = []
        for index, item in enumerate(node.value):
            items.append(_build(item, _moved(place, item.start_mark.line + 1), (*path, index)))
        return Node(items, place)
    assert isinstance(node, yaml.ScalarNode)
    if not is_text(node.value):
        raise complain(place, path, f"found {node.value!r:.60}, which is not valid text")
    if node.style is not None:
        return Node(node.value, place)
    try:
        return Node(resolve_scalar(node.value), place, node.value)
    except ValueError as error:
        raise complain(place, path, str(error)) from None


def _build_mapping(node: yaml.MappingNode, place: Place, path: KeyPath) -> dict[str, Node]:
    mapping: dict[str, Node] = {}
    for key_node, value_node in node.value:
        here = _moved(place, key_node.start_mark.line + 1)
        if not isinstance(key_node, yaml.ScalarNode) or not is_text(key_node.value):
            raise complain(here, path, "a key must be a name in valid text, no list or section")
        key = key_node.value
        if key == "<<" and key_node.style is None:
            raise complain(here, path, "merge keys (<<) are not supported; write the settings out")
        if key in mapping:
            first = mapping[key].place.line
            problem = f"given twice, first on line {first}" if first else "given twice"
            raise complain(here, (*path, key), f"{problem}; keep one")
        mapping[key] = _build(value_node, here, (*path, key))
    return mapping


class _Dumper(yaml.SafeDumper):
    """Quotes text that YAML 1.1 or YAML 1.2 would take for something else."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    plain = text.isprintable() and not (
        _WHOLE.fullmatch(text) or _FLOAT.fullmatch(text) or text in _CONSTANTS
    )
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if plain else '"')


_Dumper.add_representer(str, _represent_text)
_Dumper.add_representer(tuple, yaml.SafeDumper.represent_list)


def dump_yaml(value: object) -> str:
    """Writes a value as YAML that `parse_yaml` reads back as the same value."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=2**31)
