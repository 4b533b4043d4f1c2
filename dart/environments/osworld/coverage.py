"""A report of which OSWorld tasks of a folder can be played, and what the others need.

::

    python -m dart.environments.osworld.coverage evaluation_examples/examples

The report reads the task files only. It does not check whether the machines have the programs or the cache
has the files.
"""

import itertools
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from dart.environments.faults import TaskUnsupported
from dart.environments.osworld.judging import not_known
from dart.environments.osworld.tasks import PREFIX, load_task, task_ids


def missing(task_id: str, tasks: Path) -> list[str]:
    """Return the steps and functions of a task that are not supported, or what is wrong with its file."""
    try:
        return not_known(load_task(task_id, tasks))
    except TaskUnsupported as error:
        return [f"file: {error}"]


def report(found: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield a line for each area, a line for all tasks, and a line for each thing that is missing.

    The things that most tasks need come first.

    found   the result of `missing` for each task, by task id
    """
    areas: dict[str, list[Sequence[str]]] = {}
    for task_id, needs in found.items():
        areas.setdefault(task_id.removeprefix(PREFIX).partition("/")[0], []).append(needs)
    for area, tasks in (areas | {"all": list(found.values())}).items():
        known = tasks.count([])
        yield f"{area:24} {known:4} of {len(tasks):4}  {known / len(tasks):6.1%}"
    for name, count in Counter(itertools.chain(*found.values())).most_common():
        yield f"  {count:4}  {name}"


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 1 or not Path(arguments[0]).exists():
        print("usage: python -m dart.environments.osworld.coverage FOLDER_OR_SET", file=sys.stderr)
        return 2
    tasks = Path(arguments[0])
    found = {task_id: missing(task_id, tasks) for task_id in task_ids(tasks)}
    if not found:
        print(f"there are no tasks in {arguments[0]}: expected <application>/<id>.json", file=sys.stderr)
        return 1
    print("\n".join(report(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
