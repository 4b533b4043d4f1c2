"""OSWorld's tasks as they are published: one JSON file each, checked strictly.

Three forms of task files are accepted: one evaluation function with one result; lists of functions with lists
of results, expected values and options of the same length; and the form that wraps the task in ``raw``. In
place of the folder of tasks, a file with a set of tasks (``{"chrome": ["<id>", ...], ...}``) selects tasks
from the folder ``examples`` beside it.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from dart.config.config import Config
from dart.core.errors import ConfigurationError
from dart.environments.faults import TaskUnsupported, UnknownTask

PREFIX = "osworld/"
COLUMNS = ("result", "expected", "options")
"""Keys of an evaluator that hold one value, or one for each function."""

INFEASIBLE = "infeasible"
"""Name of the evaluation function of a task that cannot be done."""

FILE_KEYS: Mapping[Any, Sequence[str]] = {"cloud_file": ("path", "dest"), "cache_file": ("path",)}
"""Keys under which a getter's parameters name files outside of the guest, by the getter's type."""


@dataclass(frozen=True, slots=True)
class SetupStep:
    """One step that changes the machine before the first action, or after the last one."""

    type: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Check:
    """One check of an evaluation: what to read from the machine, what to compare it with, and how."""

    function: str
    result: Mapping[str, Any] | None
    expected: Mapping[str, Any] | None
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class OSWorldTask:
    """One task of OSWorld, as its file describes it."""

    task_id: str
    instruction: str
    snapshot: str
    setup: tuple[SetupStep, ...]
    before_checks: tuple[SetupStep, ...]
    """OSWorld's ``postconfig``: steps after the last action and before the evaluation."""
    checks: tuple[Check, ...]
    evaluator: Mapping[str, Any]
    """How the task is judged, as its file says it; the evaluators read it."""
    sha256: str = ""
    """Hash of the task's file. Each judgement records this hash, because published tasks change."""

    @property
    def is_infeasible(self) -> bool:
        return any(check.function == INFEASIBLE for check in self.checks)

    def steps(self) -> tuple[SetupStep, ...]:
        """Return all steps: those before the first action, then those before the evaluation."""
        return (*self.setup, *self.before_checks)

    def looks(self) -> Iterator[Mapping[str, Any]]:
        """Yield the parameters of each getter that the evaluation calls: for the results and the expected
        values of all checks."""
        for check in self.checks:
            yield from (one for one in (check.result, check.expected) if one)

    def cloud_files(self) -> Iterator[tuple[str, str]]:
        """Yield URL and file name of each file that the evaluation fetches."""
        for look in self.looks():
            if look.get("type") == "cloud_file":
                yield from zip(names(look, "path"), names(look, "dest"), strict=True)


def task_ids(tasks: Path) -> tuple[str, ...]:
    """Return the ids of all tasks of a folder or a set, sorted; none when the path does not exist."""
    return tuple(sorted(_files(tasks)))


def tasks_of(config: Config) -> tuple[str, ...]:
    """Return the ids of all tasks of the folder or set that the configuration names."""
    return task_ids(config.environments.osworld.tasks)


def load_task(task_id: str, tasks: Path) -> OSWorldTask:
    """Read one task. Raises UnknownTask, or TaskUnsupported for a file that is not a task."""
    files = _files(tasks)
    if task_id not in files:
        raise UnknownTask(task_id, files)
    try:
        content = files[task_id].read_bytes()
        data = json.loads(content)
    except (OSError, ValueError, RecursionError) as error:
        raise TaskUnsupported(task_id, f"{files[task_id]} cannot be read: {error}") from error
    return parse_task(task_id, data, hashlib.sha256(content).hexdigest())


def names(config: Mapping[str, Any], key: str) -> list[str]:
    """Return the names under a key of a getter's parameters (see `OSWorldTask.looks`): several with
    ``multi``, else one."""
    given = config[key]
    return given if config.get("multi") and isinstance(given, list) else [given]


@cache
def _files(tasks: Path) -> Mapping[str, Path]:
    if tasks.is_file():
        folder = tasks.parent / "examples"
        return {
            f"{PREFIX}{area}/{id_}": folder / area / f"{id_}.json"
            for area, ids in _chosen(tasks).items()
            for id_ in ids
        }
    return {f"{PREFIX}{path.parent.name}/{path.stem}": path for path in tasks.glob("*/*.json")}


def _chosen(tasks: Path) -> Mapping[str, Sequence[str]]:
    """Return the ids of tasks that a set selects, by area (`chrome` and so on). Raises ConfigurationError."""
    expected = 'expected JSON such as {"chrome": ["id", …]}, or the folder of the tasks'
    try:
        chosen = json.loads(tasks.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"the set of tasks {tasks} cannot be read: {error}; {expected}") from error
    lists = chosen.values() if isinstance(chosen, dict) else [None]
    if not all(isinstance(ids, list) and all(isinstance(id_, str) for id_ in ids) for ids in lists):
        raise ConfigurationError(f"the file {tasks} is not a set of tasks; {expected}")
    return chosen  # type: ignore[no-any-return]


def parse_task(task_id: str, data: Any, sha256: str = "") -> OSWorldTask:
    """Return the task that the JSON value of a task file describes. Raises TaskUnsupported with what is
    wrong."""
    try:
        raw = data.get("raw", data)
        instruction, evaluator = raw["instruction"], raw["evaluator"]
        if not isinstance(instruction, str) or not instruction.strip():
            raise ValueError(f"expected an instruction, a text that is not blank, got {instruction!r}")
        conjunction = evaluator.get("conj", "and")
        if conjunction not in ("and", "or"):
            raise ValueError(f"expected conj to be 'and' or 'or', got {conjunction!r}")
        task = OSWorldTask(
            task_id=task_id,
            instruction=instruction,
            snapshot=str(raw.get("snapshot") or "init_state"),
            setup=tuple(_steps(raw.get("config"))),
            before_checks=tuple(_steps(evaluator.get("postconfig"))),
            checks=tuple(_checks(evaluator)),
            evaluator=evaluator,
            sha256=sha256,
        )
        for look in task.looks():
            _refuse_wrong_names(look)
        return task
    except KeyError as missing:
        raise TaskUnsupported(task_id, f"its file has no {missing.args[0]!r}") from missing
    except (TypeError, ValueError, AttributeError) as error:
        raise TaskUnsupported(task_id, f"its file is wrong: {error}") from error


def _steps(given: Any) -> Iterator[SetupStep]:
    for step in given or ():
        parameters = dict(step.get("parameters") or {})
        command = parameters.get("command", "")
        if not isinstance(command, str | list):
            raise TypeError(f"expected the command of a step to be a text or a list, got {command!r}")
        yield SetupStep(str(step["type"]), parameters)


def _refuse_wrong_names(look: Mapping[str, Any]) -> None:
    """Raise KeyError, TypeError or ValueError when a getter's parameters do not name its files."""
    type_ = look.get("type")
    columns = {key: names(look, key) for key in FILE_KEYS.get(type_, ())}
    if not all(isinstance(name, str) for column in columns.values() for name in column):
        raise TypeError(f"expected texts for {' and '.join(columns)} of a {type_}, got {look}")
    if len(set(map(len, columns.values()))) > 1:
        counts = " and ".join(f"{len(column)} for {key}" for key, column in columns.items())
        raise ValueError(f"a {type_} names files: {counts}; give one for each")


def _checks(evaluator: Mapping[str, Any]) -> Iterator[Check]:
    functions = evaluator["func"]
    if isinstance(functions, str):
        functions, evaluator = [functions], {key: [evaluator.get(key)] for key in COLUMNS}
    columns = [_column(evaluator, key, len(functions)) for key in COLUMNS]
    for function, result, expected, options in zip(functions, *columns, strict=True):
        yield Check(str(function), _mapping(result), _mapping(expected), dict(options or {}))


def _column(evaluator: Mapping[str, Any], key: str, count: int) -> Sequence[Any]:
    """Return the entries of ``key``, one for each evaluation function; all None when the key is left out."""
    given = evaluator.get(key) or [None] * count
    column = [given] if isinstance(given, Mapping) else given
    if len(column) != count:
        raise ValueError(
            f"evaluator.func names {count} functions, but evaluator.{key} has {len(column)} entries; "
            "give one entry for each function"
        )
    return column


def _mapping(value: Any) -> Mapping[str, Any] | None:
    if value is not None and not isinstance(value, Mapping):
        raise TypeError(f"expected a JSON object for a result or an expected value, got {value!r}")
    return dict(value) if value else None
