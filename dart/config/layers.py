"""Reading, merging, explaining and writing of configuration layers. Knows TOML and pydantic, but no key."""

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
"""Largest configuration file; a longer one is probably another file."""

DEPTH_MOST = 16
"""Deepest nesting of tables and lists; twice what any key needs."""

SHOWN_CHARACTERS = 120
"""How many characters of a key or a value a message quotes."""

HINTS_MOST = 20
"""Number of wrong keys for which similar keys are looked up, which takes time."""

OVERRIDES = "--set"
"""Origin of values from the command line."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One error in a configuration: its origin, its key, and what to do."""

    origin: str
    key: str
    text: str

    def __str__(self) -> str:
        key = f" {shortened(self.key)}" if self.key else ""
        return f"{self.origin}:{key} {self.text}"


@dataclass(frozen=True, slots=True)
class Layer:
    """Nested tables from one origin."""

    origin: str
    data: Table


def shortened(text: str) -> str:
    """Shorten text that a message quotes to one line."""
    cut = f"{text[:SHOWN_CHARACTERS]}… ({len(text)} characters)"
    return text if len(text) <= SHOWN_CHARACTERS else cut


def file_layer(path: Path, *, origin: str, missing: str) -> tuple[Layer, list[Problem]]:
    """Read one TOML file. Returns an empty layer and the problems when it cannot be read.

    origin    name of the file in problems, and the origin of its values
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


TOO_DEEP = (
    f"tables and lists are nested more than {DEPTH_MOST} deep, which no key needs; is this another file?"
)


def _text_of(path: Path) -> str:
    """Read a file as UTF-8. Raises OSError, UnicodeDecodeError, or ValueError when it is too long."""
    with path.open("rb") as file:
        content = file.read(FILE_BYTES_MOST + 1)
    if len(content) > FILE_BYTES_MOST:
        raise ValueError(f"it is longer than {FILE_BYTES_MOST >> 20} MiB; is this another file?")
    return content.decode("utf-8")


def _is_deep(data: object) -> bool:
    """Whether a value is nested deeper than `DEPTH_MOST`."""
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
    """Read `section.key=value` overrides. A value is TOML; anything that is not TOML is a string."""
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
    """Yield every value of nested tables with its dotted key, in order."""
    for key, value in data.items():
        if isinstance(value, dict) and value:
            yield from dotted(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def merge(layers: Sequence[Layer]) -> tuple[Table, dict[str, str]]:
    """Merge layers key by key, later ones over earlier ones. Returns tables, and origins by dotted key.

    Where one layer has a table and another one a value, the later one replaces it; validation refuses the
    wrong one.
    """
    merged: Table = {}
    for layer in layers:
        merged = _merged(merged, layer.data)
    origins = {key: layer.origin for layer in layers for key, _ in dotted(layer.data)}
    return merged, origins


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> Table:
    result = dict(below)
    for key, value in above.items():
        under = result.get(key)
        both_tables = isinstance(under, dict) and isinstance(value, dict)
        result[key] = _merged(under, value) if both_tables else value  # type: ignore[arg-type]
    return result


def near(word: str, known: Collection[str]) -> list[str]:
    """Return up to two similar known words; those with the same first letter come first."""
    close = difflib.get_close_matches(word, known, n=8, cutoff=0.55)
    return sorted(close, key=lambda one: one[:1] != word[:1])[:2]


def did_you_mean(candidates: Sequence[str]) -> str:
    """Return `; did you mean x or y?` for candidates, and an empty text without any."""
    return f"; did you mean {' or '.join(candidates)}?" if candidates else ""


def section_of(model: type[BaseModel], path: Sequence[str]) -> type[BaseModel] | None:
    """Return the model of a section by its path; the model itself for an empty path, None for a wrong one."""
    for name in path:
        field = model.model_fields.get(name)
        inner = _section(field) if field else None
        if inner is None:
            return None
        model = inner
    return model


def describe(model: type[BaseModel], key: str) -> str:
    """Return the docstring below the field of a dotted key; empty without one."""
    *sections, name = key.split(".")
    section = section_of(model, sections)
    return field_docstrings(section).get(name, "") if section else ""


@cache
def field_docstrings(model: type) -> dict[str, str]:
    """Return the string below each field of a model or a dataclass, read from the source.

    pydantic can do this too (use_attribute_docstrings), but at every import, which costs each command 40 ms.
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
    """Turn pydantic's errors into problems, in the words of a TOML file."""
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
    """Return the origin of a key, or of a key in the section that it names."""
    touched = [origin for name, origin in origins.items() if name == key or name.startswith(f"{key}.")]
    return next((origin for origin in touched if origin != "default"), "default")


def _path(detail: Mapping[str, Any]) -> list[str]:
    """Return the names that lead to a key; names after a list index are types, not keys."""
    return list(takewhile(lambda part: isinstance(part, str), detail["loc"]))


RENAMED: Mapping[str, str] = {
    "modelled": "simulation",
    "observe": "telemetry",
    "curation.quarantine": "curation.task_quarantine",
}
"""Old names of sections and keys. They are refused, and the message names the new one."""


def _hint(path: Sequence[str], model: type[BaseModel]) -> str:
    """Suggest a key: the new name of a renamed one, the same name in another section, a similar name in this
    section, or all names of this section."""
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
    """Replace every refused value by its default, so that the rest can be checked."""
    cleaned = copy.deepcopy(data)
    for detail in error.errors(include_url=False):
        *sections, key = _path(dict(detail))
        table, original = cleaned, defaults
        for section in sections:
            table, original = table[section], original[section]
        table.pop(key, None)  # a union reports the same key once for each of its types
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
"""Messages for pydantic's error types, in the words of a TOML file."""


def _rule(detail: Mapping[str, Any]) -> str:
    template = RULES.get(detail["type"])
    return template.format(**detail.get("ctx", {})) if template else f"is wrong: {detail['msg']}"


def to_toml(data: Mapping[str, Any], origins: Mapping[str, str], prefix: str = "") -> str:
    """Write nested tables as TOML; a value with a known origin gets it as a comment."""
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
    """Write one value as TOML."""
    if isinstance(value, list):
        return "[" + ", ".join(literal(item) for item in value) + "]"
    if isinstance(value, str):
        # A TOML basic string is a JSON string; characters that a terminal cannot show are escaped too.
        return "".join(map(_escaped, json.dumps(value, ensure_ascii=False)))
    return str(value).lower() if isinstance(value, bool) else repr(value)
