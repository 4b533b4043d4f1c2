"""Read, merge and write the layers of a configuration: defaults, TOML files and `--set`.

Nothing here depends on which keys a configuration has."""

import json
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

from dart.config.bundled import configuration_file, no_such_file
from dart.config.problems import OVERRIDES, Problem, Table, dotted
from dart.core.utf8 import is_utf8

FILE_BYTES_MOST = 4 * 2**20
"""Largest configuration file; a longer one is probably another file."""

DEPTH_MOST = 16
"""Deepest nesting of tables and lists; twice what any key needs."""


@dataclass(frozen=True, slots=True)
class Layer:
    """Nested tables of values, and where they come from: a file, `--set` or `default`."""

    origin: str
    data: Table


def file_layer(given: Path) -> tuple[Layer, list[Problem]]:
    """Read a TOML file or, by its name, a bundled configuration. The origin of its values is ``given``.

    Returns the layer and no problems; if the file cannot be read, an empty layer and the problem.
    """
    origin = str(given)
    try:
        data = tomllib.loads(_text_of(configuration_file(given)))
        problem = TOO_DEEP if _is_deep(data) else ""
    except FileNotFoundError:
        problem = no_such_file(given)
    except tomllib.TOMLDecodeError as error:
        problem = f"not valid TOML: {error}"
    except UnicodeDecodeError as error:
        problem = f"not UTF-8 text: byte {error.start} cannot be read"
    except IsADirectoryError as error:
        problem = _why_no_folder(given) or f"cannot be read: {error.strerror}"
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
    except RecursionError:
        problem = TOO_DEEP
    except ValueError as error:  # of Python itself: a number of thousands of digits
        problem = f"cannot be read: {error}"
    return (Layer(origin, {}), [Problem(origin, "", problem)]) if problem else (Layer(origin, data), [])


def _why_no_folder(given: Path) -> str:
    """Say what to type if a folder is the directory of a run; "" if it is another folder."""
    if not (given / "config.toml").is_file():
        return ""
    option = f"--run-dir {shlex.quote(str(given))}"
    return (
        f"is the directory of a run: to continue the run, give {option} in its place (and --resume "
        f"to `dartrl train`); the configuration of the run is {given / 'config.toml'}"
    )


TOO_DEEP = (
    f"tables and lists are nested more than {DEPTH_MOST} deep, which no key needs; name a configuration file"
)


def _text_of(path: Path) -> str:
    """Read a file as UTF-8. Raises OSError, UnicodeDecodeError, or ValueError when it is too long."""
    with path.open("rb") as file:
        content = file.read(FILE_BYTES_MOST + 1)
    if len(content) > FILE_BYTES_MOST:
        raise ValueError(f"it is longer than {FILE_BYTES_MOST >> 20} MiB; name a configuration file")
    return content.decode("utf-8")


def _is_deep(value: object, most: int = DEPTH_MOST) -> bool:
    """Whether a value is nested deeper than `most`."""
    if not isinstance(value, dict | list):
        return False
    return most == 0 or any(
        _is_deep(one, most - 1) for one in (value.values() if isinstance(value, dict) else value)
    )


def overrides_layer(overrides: Sequence[str]) -> tuple[Layer, list[Problem]]:
    """Read `section.key=value` overrides, and return them as a layer, with a problem for each that is wrong.

    A value is read as TOML; a value that is not valid TOML is taken as a string.
    """
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
    """Merge layers key by key; values of later layers replace those of earlier ones.

    Returns the merged tables, and the origin of each dotted key. If one layer has a table and another one a
    value for the same key, the later layer wins as well, and validation finds out if it is wrong.
    """
    tables: Table = reduce(merged, [layer.data for layer in layers])
    origins = {key: layer.origin for layer in layers for key, _ in dotted(layer.data)}
    return tables, origins


def merged(below: Table, above: Table) -> Table:
    """Return the tables ``below`` with the values of the tables ``above`` put over them, key by key."""
    result = dict(below)
    for key, value in above.items():
        under = result.get(key)
        result[key] = merged(under, value) if isinstance(under, dict) and isinstance(value, dict) else value
    return result


def to_toml(data: Mapping[str, Any], origins: Mapping[str, str], prefix: str = "") -> str:
    """Return nested tables as TOML text. A value whose dotted key is in `origins` gets a comment with it.

    prefix   the dotted name of the table `data`, with a dot at its end; empty for the top level
    """
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
    if character.isprintable() or not is_utf8(character):  # TOML has no escape for a lone surrogate
        return character
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def overrides_of(values: Mapping[str, Any]) -> list[str]:
    """Return values by key as `--set` takes them, such as `run.minutes=3`. A value of None is left out."""
    return [f"{key}={literal(value)}" for key, value in values.items() if value is not None]


def literal(value: Any) -> str:
    """Return one value as TOML text. A lone surrogate stays as it is, for the check of the values to find."""
    if isinstance(value, list):
        return "[" + ", ".join(literal(item) for item in value) + "]"
    if isinstance(value, str | Path):
        # A TOML basic string is a JSON string; characters that a terminal cannot show are escaped too.
        return "".join(map(_escaped, json.dumps(str(value), ensure_ascii=False)))
    return str(value).lower() if isinstance(value, bool) else repr(value)
