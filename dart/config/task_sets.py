"""Named sets of tasks, and the task ids that names of sets, files and single ids stand for (`--tasks`)."""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from dart.core.errors import ConfigurationError
from dart.core.suggestions import did_you_mean, near

_OSWORLD = Path(__file__).with_name("task_sets") / "osworld.txt"

_WANTED: Mapping[str, Callable[[Collection[str]], bool]] = {
    "osworld-369": lambda marks: True,
    "osworld-361": lambda marks: "drive" not in marks,
    "osworld-ablation-45": lambda marks: "ablation" in marks,
}
"""For each set, whether a task of OSWorld belongs to it, given the marks of the task in `osworld.txt`."""

TASK_SETS = tuple(_WANTED)
"""osworld-369: all tasks of OSWorld. osworld-361: those that need no account of Google Drive, over which DART
reports its main figure. osworld-ablation-45: the training tasks of DART's ablation."""


def task_set(name: str) -> tuple[str, ...]:
    """Return the task ids of a named set. Raises KeyError for another name."""
    is_wanted = _WANTED[name]
    listed = (line.split() for line in _OSWORLD.read_text(encoding="utf-8").splitlines())
    return tuple(f"osworld/{task}" for task, *marks in listed if task != "#" and is_wanted(marks))


def tasks_named(given: Iterable[str]) -> tuple[str, ...]:
    """Return the task ids that these names stand for, each once.

    A name is that of a set, a file or a task id. A `.txt` file lists one task id per line; a `.json` file is
    one of OSWorld's own lists, an object of ids by application.
    Raises ConfigurationError for a name that is none of these, and for a file that lists no tasks.
    """
    return tuple(dict.fromkeys(task for one in given for task in _tasks_of(one)))


def _tasks_of(given: str) -> Sequence[str]:
    if given in _WANTED:
        return task_set(given)
    file = Path(given)
    if file.suffix in (".json", ".txt"):
        return _tasks_in(file)
    if "/" in given:
        return (given,)
    hint = did_you_mean(near(given, TASK_SETS))
    raise ConfigurationError(
        f"--tasks got {given!r}, which is not a set of tasks{hint}; the sets are {', '.join(TASK_SETS)}; "
        "a task id contains a slash, as in miniwob/click-test, and a file of tasks ends in .txt or .json"
    )


def _tasks_in(file: Path) -> tuple[str, ...]:
    try:
        text = file.read_text(encoding="utf-8")
        tasks = tuple(_listed(json.loads(text)) if file.suffix == ".json" else _lines(text))
    except (OSError, ValueError, AttributeError, TypeError, RecursionError) as error:
        raise ConfigurationError(
            f"--tasks names {file}, which lists no tasks: {error}; expected one task id per line, or in a "
            ".json file an object of OSWorld's ids by application"
        ) from error
    if not tasks:
        raise ConfigurationError(f"--tasks names {file}, which lists no tasks; write one task id per line")
    return tasks


def _lines(text: str) -> Iterator[str]:
    for line in text.splitlines():
        task = line.partition("#")[0].strip()
        if task:
            yield task


def _listed(applications: dict[str, list[str]]) -> Iterator[str]:
    for application, ids in applications.items():
        for one in ids:
            yield f"osworld/{application}/{one}"
