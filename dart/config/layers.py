"""Reading, merging and writing of configuration layers: TOML files, `--set`, defaults. Knows no key."""

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dart.config.problems import Problem, Table, dotted

FILE_BYTES_MOST = 4 * 2**20
"""Largest configuration file; a longer one is probably another file."""

DEPTH_MOST = 16
"""Deepest nesting of tables and lists; twice what any key needs."""


OVERRIDES = "--set"
"""Origin of values from the command line."""


@dataclass(frozen=True, slots=True)
class Layer:
    """Nested tables from one origin."""

    origin: str
    data: Table


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
