"""Problems of a configuration in the words of a TOML file: which key, what is wrong, what to write."""

import ast
import copy
import inspect
import json
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from typing import Any

from pydantic import BaseModel, ValidationError

from dart.core.suggestions import did_you_mean, near

Table = dict[str, Any]

OVERRIDES = "--set"
"""Origin of values from the command line, as `Problem.origin` has it."""

SHOWN_CHARACTERS = 120
"""Largest number of characters of a key or a value that a message quotes."""

HINTS_MOST = 20
"""Number of wrong keys for which similar keys are suggested. Each search takes time."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One error in a configuration: where it comes from, the key, and what is wrong and what to do."""

    origin: str
    key: str
    text: str

    def __str__(self) -> str:
        key = f" {shortened(self.key)}" if self.key else ""
        return f"{self.origin}:{key} {self.text}"


def shortened(text: str, most: int = SHOWN_CHARACTERS) -> str:
    """Return a text for quoting in a message: cut to `most` characters, with its full length, if longer."""
    cut = f"{text[:most]}… ({len(text)} characters)"
    return text if len(text) <= most else cut


def dotted(data: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted key, value) for every value of nested tables, in order. An empty table is a value,
    too."""
    for key, value in data.items():
        if isinstance(value, dict) and value:
            yield from dotted(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def describe(model: type[BaseModel], key: str) -> str:
    """Return the text below the field of this dotted key in the model's source; empty if it has none."""
    *sections, name = key.split(".")
    for section in sections:
        field = model.model_fields.get(section)
        kind = field.annotation if field else None
        if not (isinstance(kind, type) and issubclass(kind, BaseModel)):
            return ""
        model = kind
    return field_docstrings(model).get(name, "")


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


def explain(
    error: ValidationError, model: type[BaseModel], origins: Mapping[str, str], defaults: Table
) -> list[Problem]:
    """Turn pydantic's errors into problems, in the words of a TOML file.

    model      the model that refused the values
    origins    where the values come from, by dotted key
    defaults   the default tables of the model
    """
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
    origin = given_by([key], origins)
    if detail["type"] == UNKNOWN_KEY:
        return Problem(origin, key, f"is not a key{_hint(path, defaults) if has_hint else ''}")
    about = _about(describe(model, key), defaults.get(key))
    is_option = origin == OVERRIDES and detail["type"] == NO_LIST and not position
    spelling = _as_option(key, detail["input"]) if is_option else ""
    wrong = f"{_rule(detail)}, got {_quoted(detail['input'])}{spelling}{about}"
    return Problem(origin, key + position, wrong)


def _as_option(key: str, value: object) -> str:
    """Say how `--set` takes a list. A shell removes quotes, so that a list of strings arrives as a string."""
    items = f"[{_quoted(value)}]"
    if isinstance(value, str):
        items = json.dumps([item.strip(" '\"") for item in value.strip("[] ").split(",")])
    return shortened(f"; write it as --set '{key}={items}', with the outer quotes")


def _quoted(value: object) -> str:
    try:
        return shortened(repr(value))
    except ValueError:  # a whole number of thousands of digits
        return "a number of thousands of digits"


def given_by(keys: Iterable[str], origins: Mapping[str, str]) -> str:
    """Return the origin of the first of these keys that was given; `default` if all have their defaults.

    A key may also name a section, which was given if one of its keys was."""
    touched = (
        origin
        for key in keys
        for name, origin in origins.items()
        if name == key or name.startswith(f"{key}.")
    )
    return next((origin for origin in touched if origin != "default"), "default")


def _path(detail: Mapping[str, Any]) -> list[str]:
    """Return the names that lead to the wrong key. They end before a list index, because what follows it in
    pydantic's location are names of types."""
    return list(takewhile(lambda part: isinstance(part, str), detail["loc"]))


RENAMED: Mapping[str, str] = {
    "modelled": "simulation",
    "observe": "telemetry",
    "curation.quarantine": "curation.task_quarantine",
}
"""New names of renamed sections and keys. An old name is refused, and the message suggests the new one."""


def _hint(path: Sequence[str], known: Collection[str]) -> str:
    """Return the end of a message about an unknown key, which suggests other keys.

    Suggested are the new name of a renamed key, keys of the same name in other sections, similar keys of the
    same section, or all keys of this section: the first of these that exist.
    """
    if renamed := RENAMED.get(".".join(path)):
        return did_you_mean([renamed])
    elsewhere = [key for key in known if key.rpartition(".")[2] == path[-1]]
    if elsewhere:
        return did_you_mean(elsewhere[:3])
    section = "".join(f"{name}." for name in path[:-1])
    inside = (key.removeprefix(section) for key in known if key.startswith(section))
    siblings = list(dict.fromkeys(key.partition(".")[0] for key in inside))
    similar = near(path[-1], siblings)
    return did_you_mean([section + name for name in similar]) or f"; there are {', '.join(siblings)}"


def _about(description: str, default: Any) -> str:
    if not description or default is None:
        return ""
    known = "" if isinstance(default, list | dict) else f"default {default!r}; "
    return f" ({known}{description.rstrip('.')})"


def has_unknown_key(error: ValidationError) -> bool:
    """Whether a model refused a key because it does not have it."""
    return any(detail["type"] == UNKNOWN_KEY for detail in error.errors(include_url=False))


def refused_keys(error: ValidationError) -> frozenset[str]:
    """Return the dotted keys of the values that a model refused."""
    return frozenset(".".join(_path(dict(detail))) for detail in error.errors(include_url=False))


def is_about(key: str, others: Iterable[str]) -> bool:
    """Whether a key is one of the others, is within one of them, or contains one of them."""
    return any(f"{key}.".startswith(f"{one}.") or f"{one}.".startswith(f"{key}.") for one in others)


def without_refused(data: Table, error: ValidationError, defaults: Table) -> Table:
    """Return the tables with every refused value replaced by its default, so that the rest can be checked."""
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


UNKNOWN_KEY = "extra_forbidden"
"""pydantic's error type for a key that a model does not have."""

NO_LIST = "tuple_type"
"""pydantic's error type for a value that should be a list."""

RULES: Mapping[str, str] = {
    "bool_type": "must be true or false",
    "float_type": "must be a number",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "string_type": "must be a string",
    NO_LIST: "must be a list",
    "path_type": "must be a path",
    "model_type": "must be a section (a TOML table)",
    "string_pattern_mismatch": "must match {pattern}",
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
