"""How configuration layers are read, merged, explained and written: TOML and pydantic, but no key of ours."""

import ast
import copy
import difflib
import inspect
import json
import textwrap
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

Table = dict[str, Any]

FILE_BYTES_MOST = 4 * 2**20
"""A configuration that people wrote is far below; what is longer is another file."""

DEPTH_MOST = 16
"""Tables and lists in one another: twice of what any key needs."""

SHOWN_CHARACTERS = 120
"""Of a key or a value that is quoted in a problem."""

HINTS_MOST = 20
"""Wrong keys that are told what they may have meant: looking for it takes time."""

OVERRIDES = "--set"
"""Origin of values that were given on the command line."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, where it was written, and what to do."""

    origin: str
    key: str
    text: str

    def __str__(self) -> str:
        key = f" {shortened(self.key)}" if self.key else ""
        return f"{self.origin}:{key} {self.text}"


@dataclass(frozen=True, slots=True)
class Layer:
    """Nested tables from one place."""

    origin: str
    data: Table


def shortened(text: str) -> str:
    """Text that is quoted in a message, cut where it is too long for one line."""
    cut = f"{text[:SHOWN_CHARACTERS]}… ({len(text)} characters)"
    return text if len(text) <= SHOWN_CHARACTERS else cut


def file_layer(path: Path, *, origin: str, missing: str) -> tuple[Layer, list[Problem]]:
    """Read one TOML file; what is wrong with it comes back as problems beside an empty layer.

    origin    what the file is called in problems, and the origin of its values
    missing   what to say when there is no such file
    """
    try:
        data = tomllib.loads(_text_of(path))
        if not _is_deep(data):
            return Layer(origin, data), []
        problem = Problem(origin, "", TOO_DEEP)
    except FileNotFoundError:
        problem = Problem(origin, "", missing)
    except tomllib.TOMLDecodeError as error:
        problem = Problem(origin, "", f"not valid TOML: {error}")
    except UnicodeDecodeError as error:
        problem = Problem(origin, "", f"not UTF-8 text: byte {error.start} cannot be read")
    except OSError as error:
        problem = Problem(origin, "", f"cannot be read: {error.strerror}")
    except RecursionError:
        problem = Problem(origin, "", TOO_DEEP)
    except ValueError as error:  # of Python itself: a number of thousands of digits
        problem = Problem(origin, "", f"cannot be read: {error}")
    return Layer(origin, {}), [problem]


TOO_DEEP = f"tables and lists are nested more than {DEPTH_MOST} deep; no key is; is this another file?"


def _text_of(path: Path) -> str:
    """Its text. Raises OSError, UnicodeDecodeError, and ValueError for what is too long to be one of ours."""
    with path.open("rb") as file:
        content = file.read(FILE_BYTES_MOST + 1)
    if len(content) > FILE_BYTES_MOST:
        raise ValueError(f"it is longer than {FILE_BYTES_MOST >> 20} MiB; is this another file?")
    return content.decode("utf-8")


def _is_deep(data: object) -> bool:
    """Whether a value is nested too deep for anything that goes through it."""
    level = [data]
    for _ in range(DEPTH_MOST):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
    return bool(level)


def overrides_layer(overrides: Sequence[str]) -> tuple[Layer, list[Problem]]:
    """Read `section.key=value` overrides; a value is TOML, and a bare word is a string."""
    data: Table = {}
    problems = []
    for override in overrides:
        key, equals, raw = (part.strip() for part in override.partition("="))
        if not equals or not all(key.split(".")):
            problems.append(Problem(OVERRIDES, "", f"expected section.key=value, got {override!r}"))
        elif key.count(".") >= DEPTH_MOST or _is_deep(value := _value(raw)):
            problems.append(Problem(OVERRIDES, "", TOO_DEEP))
        elif not _put(data, key.split("."), value):
            problems.append(
                Problem(OVERRIDES, key, "is given both as a value and as a section; give it once")
            )
    return Layer(OVERRIDES, data), problems


def _value(raw: str) -> Any:
    try:
        return tomllib.loads(f"value = {raw}")["value"]
    except (ValueError, RecursionError):
        return raw


def _put(data: Table, path: Sequence[str], value: Any) -> bool:
    *sections, key = path
    for section in sections:
        inner = data.setdefault(section, {})
        if not isinstance(inner, dict):
            return False
        data = inner
    if isinstance(data.get(key), dict):
        return False
    data[key] = value
    return True


def dotted(data: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of nested tables with its dotted key, in order."""
    for key, value in data.items():
        if isinstance(value, dict) and value:
            yield from dotted(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def merge(layers: Sequence[Layer]) -> tuple[Table, dict[str, str]]:
    """Lay later layers over earlier ones, key by key: (tables, dotted key -> origin).

    Where one layer has a table and another a value the later one wins whole; validation says which was right.
    """
    merged: Table = {}
    for layer in layers:
        merged = _laid_over(merged, layer.data)
    origins = {key: layer.origin for layer in layers for key, _ in dotted(layer.data)}
    return merged, origins


def _laid_over(below: Mapping[str, Any], above: Mapping[str, Any]) -> Table:
    result = dict(below)
    for key, value in above.items():
        under = result.get(key)
        both_tables = isinstance(under, dict) and isinstance(value, dict)
        result[key] = _laid_over(under, value) if both_tables else value  # type: ignore[arg-type]
    return result


def near(word: str, known: Collection[str]) -> list[str]:
    """Up to two known words that look like this one: those that begin like it, then the nearest first."""
    close = difflib.get_close_matches(word, known, n=8, cutoff=0.55)
    return sorted(close, key=lambda one: one[:1] != word[:1])[:2]


def did_you_mean(candidates: Sequence[str]) -> str:
    """`; did you mean x or y?` when there are candidates, else nothing."""
    return f"; did you mean {' or '.join(candidates)}?" if candidates else ""


def section_of(model: type[BaseModel], path: Sequence[str]) -> type[BaseModel] | None:
    """The model of the section a path leads to; the model itself for an empty path, None for a wrong one."""
    for name in path:
        field = model.model_fields.get(name)
        inner = _section(field) if field else None
        if inner is None:
            return None
        model = inner
    return model


def describe(model: type[BaseModel], key: str) -> str:
    """The docstring below the field a dotted key names; empty when there is none."""
    *sections, name = key.split(".")
    section = section_of(model, sections)
    return field_docstrings(section).get(name, "") if section else ""


@cache
def field_docstrings(model: type) -> dict[str, str]:
    """The string below each field of a model or a dataclass, from the source.

    pydantic can read them too (use_attribute_docstrings), at every import: that costs each command 40 ms.
    """
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    assert isinstance(tree, ast.ClassDef)
    return {
        field.target.id: below.value.value
        for field, below in zip(tree.body, tree.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
        if isinstance(below.value.value, str)
    }


def _section(field: FieldInfo) -> type[BaseModel] | None:
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _keys(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        section = _section(field)
        yield from _keys(section, f"{prefix}{name}.") if section else (prefix + name,)


def explain(
    error: ValidationError, model: type[BaseModel], origins: Mapping[str, str], defaults: Table
) -> list[Problem]:
    """One problem for each error pydantic found, in this project's words."""
    known = dict(dotted(defaults))
    details = error.errors(include_url=False)
    inner = {
        detail["loc"][:-1] for detail in details
    }  # a list is also called too short when its entries are wrong
    wrong = [dict(detail) for detail in details if detail["loc"] not in inner]
    return [
        _explained(detail, model, origins, known, has_hint=number < HINTS_MOST)
        for number, detail in enumerate(wrong)
    ]


def _explained(
    detail: Table,
    model: type[BaseModel],
    origins: Mapping[str, str],
    defaults: Mapping[str, Any],
    *,
    has_hint: bool,
) -> Problem:
    path = _path(detail)
    key = ".".join(path)
    position = "".join(f"[{part}]" for part in detail["loc"] if isinstance(part, int))
    origin = _given_by(key, origins)
    if detail["type"] == "extra_forbidden":
        return Problem(origin, key, f"is not a key{_hint(path, model) if has_hint else ''}")
    about = _about(describe(model, key), defaults.get(key))
    return Problem(origin, key + position, f"{_rule(detail)}, got {_quoted(detail['input'])}{about}")


def _quoted(value: object) -> str:
    try:
        return shortened(repr(value))
    except ValueError:  # a whole number of thousands of digits
        return "a number of thousands of digits"


def _given_by(key: str, origins: Mapping[str, str]) -> str:
    """Where a key, or something in the section it names, was set."""
    touched = [origin for name, origin in origins.items() if name == key or name.startswith(f"{key}.")]
    return next((origin for origin in touched if origin != "default"), "default")


def _path(detail: Mapping[str, Any]) -> list[str]:
    """The names that lead to a key; what follows a place in a list is a type, not a name."""
    return list(takewhile(lambda part: isinstance(part, str), detail["loc"]))


RENAMED: Mapping[str, str] = {
    "modelled": "simulation",
    "observe": "telemetry",
    "curation.quarantine": "curation.task_quarantine",
}
"""Sections and keys that had another name: it is not read any more, and who writes it is told the new one."""


def _hint(path: Sequence[str], model: type[BaseModel]) -> str:
    """The new name of a renamed key, else a key of exactly that name in any section, else what looks like it
    beside it, else what is there."""
    if renamed := RENAMED.get(".".join(path)):
        return did_you_mean([renamed])
    elsewhere = [key for key in _keys(model) if key.rpartition(".")[2] == path[-1]]
    if elsewhere:
        return did_you_mean(elsewhere[:3])
    siblings = list((section_of(model, path[:-1]) or model).model_fields)
    similar = near(path[-1], siblings)
    if similar:
        return did_you_mean([".".join([*path[:-1], name]) for name in similar])
    return f"; there are {', '.join(siblings)}"


def _about(description: str, default: Any) -> str:
    if not description or default is None:
        return ""
    known = "" if isinstance(default, list | dict) else f"default {default!r}; "
    return f" ({known}{description.rstrip('.')})"


def without_refused(data: Table, error: ValidationError, defaults: Table) -> Table:
    """The tables with every refused value put back to its default, so that the rest can be checked."""
    cleaned = copy.deepcopy(data)
    for detail in error.errors(include_url=False):
        *sections, key = _path(dict(detail))
        table, original = cleaned, defaults
        for section in sections:
            table, original = table[section], original[section]
        table.pop(key, None)  # each type that it might have had refuses it
        if key in original:
            table[key] = original[key]
    return cleaned


RULES: Mapping[str, str] = {
    "bool_type": "must be true or false",
    "float_type": "must be a number",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "string_type": "must be a string",
    "tuple_type": "must be a list",
    "path_type": "must be a path",
    "model_type": "must be a section (a TOML table)",
    "unfit_text": "is wrong: {why}",
    "finite_number": "must be a finite number",
    "greater_than": "must be greater than {gt:g}",
    "greater_than_equal": "must be at least {ge:g}",
    "less_than": "must be less than {lt:g}",
    "less_than_equal": "must be at most {le:g}",
    "literal_error": "must be {expected}",
    "too_short": "must have at least {min_length} entries",
}
"""What pydantic's error types say in the words of a TOML file."""


def _rule(detail: Mapping[str, Any]) -> str:
    template = RULES.get(detail["type"])
    return template.format(**detail.get("ctx", {})) if template else f"is wrong: {detail['msg']}"


def to_toml(data: Mapping[str, Any], origins: Mapping[str, str], prefix: str = "") -> str:
    """Nested tables as TOML text; a value whose origin is given has it as a comment."""
    lines = (
        [f"[{prefix.rstrip('.')}]"] if prefix and any(not isinstance(v, dict) for v in data.values()) else []
    )
    for key, value in data.items():
        if not isinstance(value, dict):
            origin = origins.get(prefix + key)
            lines.append(f"{key} = {literal(value)}" + (f"  # {origin}" if origin else ""))
    tables = [
        to_toml(value, origins, f"{prefix}{key}.") for key, value in data.items() if isinstance(value, dict)
    ]
    head = "".join(f"{line}\n" for line in lines)
    return "\n".join(part for part in [head, *tables] if part)


def _escaped(character: str) -> str:
    if character.isprintable():
        return character
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def literal(value: Any) -> str:
    """One value as TOML writes it."""
    if isinstance(value, list):
        return "[" + ", ".join(literal(item) for item in value) + "]"
    if isinstance(value, str):
        # A TOML basic string is a JSON string; what is no letter on a terminal is escaped in it, too.
        return "".join(map(_escaped, json.dumps(value, ensure_ascii=False)))
    return str(value).lower() if isinstance(value, bool) else repr(value)
