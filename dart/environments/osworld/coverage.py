"""A report of which OSWorld tasks of a folder can be played, and what the others need.

::

    python -m dart.environments.osworld.coverage evaluation_examples/examples

The report reads the task files only. It does not check whether the machines have the programs or the cache
has the files.
"""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dart.environments.faults import TaskUnsupported
from dart.environments.osworld.judging import not_known
from dart.environments.osworld.tasks import PREFIX, load_task, task_ids


@dataclass(frozen=True, slots=True)
class Coverage:
    """What one task needs that is not supported."""

    task_id: str
    missing: tuple[str, ...]
    """Steps and functions that are not supported, or what is wrong with the task's file."""

    @property
    def area(self) -> str:
        return self.task_id.removeprefix(PREFIX).partition("/")[0]


def covered(tasks: Path) -> list[Coverage]:
    """Return the coverage of every task of a folder or a set, by name."""
    return [Coverage(task_id, tuple(_missing(task_id, tasks))) for task_id in task_ids(tasks)]


def _missing(task_id: str, tasks: Path) -> list[str]:
    try:
        return not_known(load_task(task_id, tasks))
    except TaskUnsupported as error:
        return [f"file: {error}"]


def report(found: Sequence[Coverage]) -> Iterator[str]:
    """Yield a line for each area, one for all tasks, and one for each missing thing, the most needed
    first."""
    for area in sorted({one.area for one in found}):
        yield _line(area, [one for one in found if one.area == area])
    yield _line("all", found)
    wanted = Counter(name for one in found for name in one.missing)
    for name, count in wanted.most_common():
        yield f"  {count:4}  {name}"


def _line(name: str, found: Sequence[Coverage]) -> str:
    known = sum(1 for one in found if not one.missing)
    return f"{name:24} {known:4} of {len(found):4}  {known / len(found):6.1%}"


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 1 or not Path(arguments[0]).exists():
        print("usage: python -m dart.environments.osworld.coverage FOLDER_OR_SET", file=sys.stderr)
        return 2
    found = covered(Path(arguments[0]))
    if not found:
        print(f"there are no tasks in {arguments[0]}: expected <application>/<id>.json", file=sys.stderr)
        return 1
    print("\n".join(report(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
