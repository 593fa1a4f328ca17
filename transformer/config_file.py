"""Reads a configuration from YAML and from the command line, and writes it.

An error names the file, the line and the setting, says what was found and what would do, and the
nearest name there is. All errors of a file are reported together, one a line.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from transformer.config import Config
from transformer.errors import UserError
from transformer.strict_yaml import (
    NULLS,
    KeyPath,
    Node,
    Place,
    complain,
    dotted,
    dump_yaml,
    is_text,
    parse_yaml,
)

COMMAND_LINE = Place("command line")
MAX_REPORTED = 10

Schema = Mapping[str, Any]


def load_config(path: str | Path, overrides: Sequence[str] = ()) -> Config:
    """Reads a configuration file.

    Args:
        path: the file, YAML in UTF-8.
        overrides: settings that win over the file's, each `dotted.name=value`. The value is YAML,
            or text as it stands where the setting is text; elements of lists go by their index,
            as in `data.train.0.source=FILE`.

    Raises:
        UserError: says where, what was found and what would do.
    """
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise UserError(f"{path}: a folder; needs a YAML file") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UserError(f"{path}: cannot be read: {reason}") from None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        found = f"not valid UTF-8 (byte 0x{data[error.start]:02x})"
        raise UserError(f"{path}:{line}: {found}; save the file as UTF-8") from None
    return parse_config(text, str(path), overrides)


def parse_config(text: str, name: str, overrides: Sequence[str] = ()) -> Config:
    """Reads a configuration from YAML text; as `load_config`, with `name` as the file of errors."""
    tree = parse_yaml(text, Place(name, 1))
    if tree.value is None:
        raise UserError(f"{name}: no settings in it; needs at least run_dir and data")
    if not isinstance(tree.value, dict):
        problem = f"found {tree.found()}; needs settings, such as `run_dir: runs/first`"
        raise complain(tree.place, (), problem)
    for override in overrides:
        _override(tree, override)
    try:
        return Config.model_validate(tree.plain())
    except ValidationError as error:
        raise _report(error, tree) from None


def dump_config(config: Config) -> str:
    """Writes every setting as YAML that `load_config` reads back to an equal configuration."""
    return dump_yaml(config.model_dump())


def config_schema() -> dict[str, Any]:
    """Returns the JSON schema of configuration files, for editors that complete and check them."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Config.model_json_schema(),
    }


def _override(tree: Node, assignment: str) -> None:
    """Puts one `dotted.name=value` into the tree."""
    key, equals, text = assignment.partition("=")
    steps = key.strip().split(".")
    if not equals or not all(steps) or not is_text(key):
        problem = f"found {assignment!r}; needs KEY=VALUE, such as training.max_steps=500"
        raise complain(COMMAND_LINE, (), problem)
    path: KeyPath = ()
    node = tree
    for step in steps[:-1]:
        slot = _slot(node, path, step)
        path = (*path, slot)
        if isinstance(node.value, dict) and slot not in node.value:
            is_list = (_schema_at(path) or {}).get("type") == "array"
            node.value[step] = Node([] if is_list else {}, COMMAND_LINE)
        node = node.at((slot,))
    slot = _slot(node, path, steps[-1])
    value = _override_value((*path, slot), text)
    if isinstance(node.value, list):
        node.value[int(slot)] = value
    elif isinstance(node.value, dict):
        node.value[str(slot)] = value


def _slot(node: Node, path: KeyPath, step: str) -> str | int:
    """Returns the key or the index that a step of an override names in the node at the path."""
    if isinstance(node.value, dict):
        return step
    if not isinstance(node.value, list):
        problem = f"{dotted(path)} is {node.found()}, not a section ({node.place})"
        raise complain(COMMAND_LINE, (*path, step), problem)
    indices = [str(index) for index in range(len(node.value))]
    if step not in indices:
        problem = (
            f"{dotted(path)} is {node.found()};"
            " name an element, counted from 0, or give the whole list"
        )
        raise complain(COMMAND_LINE, (*path, step), problem)
    return int(step)


def _override_value(path: KeyPath, text: str) -> Node:
    """Reads the value of an override: as it stands for text, else as YAML."""
    kinds = _alternatives(_schema_at(path) or {})
    if any(kind.get("type") == "string" and not {"enum", "const"} & kind.keys() for kind in kinds):
        if not is_text(text):
            raise complain(COMMAND_LINE, path, f"found {text!r:.60}, which is not valid text")
        nothing = {"type": "null"} in kinds and text in NULLS
        return Node(None if nothing else text, COMMAND_LINE)
    return parse_yaml(text, COMMAND_LINE, path)


def _report(error: ValidationError, tree: Node) -> UserError:
    """Turns what pydantic found into sentences, by line; the command line comes last."""
    complaints: dict[tuple[KeyPath, str], Place] = {}
    for detail in error.errors(include_url=False):
        place, path, problem = _complaint(detail, tree)
        complaints.setdefault((path, problem), place)
    ordered = sorted(complaints.items(), key=lambda item: (not item[1].line, item[1].line))
    lines = [str(complain(place, path, problem)) for (path, problem), place in ordered]
    if len(lines) > MAX_REPORTED:
        lines[MAX_REPORTED:] = [f"and {len(lines) - MAX_REPORTED} more"]
    return UserError("\n".join(lines))


def _complaint(detail: Any, tree: Node) -> tuple[Place, KeyPath, str]:
    """Returns where, which setting, and what is wrong with it, for one error of pydantic's."""
    location: KeyPath = detail["loc"]
    if detail["type"] == "extra_forbidden":
        return tree.at(location).place, location, _unknown(location)
    path = _known(location)
    if detail["type"] == "missing" and isinstance(path[-1], int):
        path = path[:-1]  # a list that is too short
    node, schema = tree.at(path), _schema_at(path) or {}
    if detail["type"] == "missing" and path == location:
        return node.place, path, f"missing; needs {_needs(schema)}"
    if detail["type"] == "value_error":
        problem = str(detail["ctx"]["error"])
        return _culprit(node, problem), path, problem
    if location[-1] == "[key]":
        return node.place, path, "not a good name; letters, digits, _ and - make one"
    problem = f"found {node.found()}; needs {_needs(schema)}"
    texts = [kind for kind in _alternatives(schema) if kind.get("type") == "string"]
    if node.text and any("minLength" in kind or "pattern" in kind for kind in texts):
        problem += f" (in quotes: '{node.text}')"
    return node.place, path, problem


def _culprit(section: Node, problem: str) -> Place:
    """Returns the place of what a check of several settings names: the command line's come first,
    then those given in the file, then their section."""
    words = problem.replace(",", " ").replace(":", " ").split()
    paths: list[KeyPath] = [tuple(word.split(".")) for word in words]
    given = [section.at(path).place for path in paths if section.has(path)]
    return next((place for place in given if not place.line), (given or [section.place])[0])


@cache
def _schema() -> Schema:
    return config_schema()


def _alternatives(schema: Schema) -> list[Schema]:
    """Returns the schemas of which a value must fit one."""
    return [_follow(choice) for choice in schema.get("anyOf", [schema])]


def _follow(schema: Schema) -> Schema:
    reference = schema.get("$ref")
    return _schema()["$defs"][reference.rpartition("/")[2]] if reference else schema


def _below(schema: Schema, step: str | int) -> Schema | None:
    """Returns the schema of what a key or an index leads to."""
    if isinstance(step, str):
        named = schema.get("properties", {}).get(step)
        free = list(schema.get("patternProperties", {}).values())
        found = named or (free[0] if free else None)
    elif "prefixItems" in schema:
        found = dict(enumerate(schema["prefixItems"])).get(step)
    else:
        found = schema.get("items")
    return None if found is None else _follow(found)


def _known(location: KeyPath) -> KeyPath:
    """Returns as much of a location as leads to settings; pydantic adds the names of types."""
    path: KeyPath = ()
    for step in location:
        if _schema_at((*path, step)) is None:
            break
        path = (*path, step)
    return path


def _schema_at(path: KeyPath) -> Schema | None:
    schema: Schema | None = _schema()
    for step in path:
        schema = _below(schema, step) if schema else None
    return schema


def _settings(schema: Schema, path: KeyPath = ()) -> Iterator[KeyPath]:
    """Yields the path of every setting and section; NAME stands for a name of the user's."""
    for name, below in schema.get("properties", {}).items():
        yield (*path, name)
        yield from _settings(_follow(below), (*path, name))
    if "items" in schema:
        yield from _settings(_follow(schema["items"]), (*path, 0))
    for below in schema.get("patternProperties", {}).values():
        yield from _settings(_follow(below), (*path, "NAME"))


def _unknown(path: KeyPath) -> str:
    """Says that there is no such setting, and which one may be meant."""
    name = str(path[-1])
    names = list((_schema_at(path[:-1]) or {}).get("properties", {}))
    wanted = name.strip().lower().replace("-", "_")
    near = difflib.get_close_matches(wanted, names, n=1)
    others = (known for known in _settings(_schema()) if known[:-1] != path[:-1])
    elsewhere = [dotted(known) for known in others if known[-1] == wanted]
    meant = (near + elsewhere)[:3]
    if meant:
        return f"no such setting; did you mean {_either(meant)}?"
    return f"no such setting; there are {', '.join(names)}"


def _needs(schema: Schema) -> str:
    """Says in words what a schema admits."""
    return _either([_kind(_follow(choice)) for choice in _alternatives(schema)])


def _kind(schema: Schema) -> str:
    """Says in words what a schema without alternatives admits."""
    match schema:
        case {"const": choice}:
            return str(choice)
        case {"enum": choices}:
            return _either(choices)
        case {"type": "boolean"}:
            return "true or false"
        case {"type": "integer" | "number" as kind}:
            return ", ".join(
                ["a whole number" if kind == "integer" else "a number", *_range(schema)]
            )
        case {"type": "string", "pattern": pattern}:
            return f"text that matches {pattern}"
        case {"type": "string"}:
            return "some text" if "minLength" in schema else "text"
        case {"type": "array", "prefixItems": [first, *_] as items}:
            return f"a list of {len(items)}, each {_needs(_follow(first))}"
        case {"type": "array", "items": items}:
            size = " of 1 or more" if schema.get("minItems") else ""
            return f"a list{size}, each {_needs(_follow(items))}"
        case {"type": "object", "properties": settings}:
            return f"a section of settings ({', '.join(list(settings)[:4])}, ...)"
        case {"type": "object", "patternProperties": below}:
            return f"a section of names, each {_needs(_follow(next(iter(below.values()))))}"
    return str(schema.get("type"))


def _range(schema: Schema) -> list[str]:
    """Says the limits of a number: `1 or more and below 5`."""
    words = {
        "minimum": "{} or more",
        "exclusiveMinimum": "above {}",
        "maximum": "{} or less",
        "exclusiveMaximum": "below {}",
    }
    limits = [text.format(f"{schema[key]:.15g}") for key, text in words.items() if key in schema]
    return [" and ".join(limits)] if limits else []


def _either(choices: Sequence[object]) -> str:
    *others, last = map(str, choices)
    if not others:
        return last
    comma = "," if any("," in choice for choice in others) else ""
    return f"{', '.join(others)}{comma} or {last}"
