"""Reports which OSWorld tasks of a folder can be played on this system, and what the others need.

::

    python -m dart.environments.osworld.coverage evaluation_examples/examples
    python -m dart.environments.osworld.coverage --page evaluation_examples/examples > coverage.md

The report reads the task files and the source of the evaluators only. It does not check whether the machines
have the programs or the cache has the files.
"""

import argparse
import itertools
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dart.config.config import Config
from dart.environments.faults import TaskUnsupported
from dart.environments.osworld.judging import BROWSER, not_known
from dart.environments.osworld.misjudged import MISJUDGED
from dart.environments.osworld.scoring_environment import (
    EvaluatorsMissing,
    ScoringEnvironment,
    find_evaluators,
)
from dart.environments.osworld.tasks import PREFIX, OSWorldTask, load_task, task_ids

ACCOUNT_STEPS = ("googledrive", "login")
ACCOUNT = "an account"
PAGES = "the guest's browser"
CLOUD = "files of the network, or the cache"


@dataclass(frozen=True, slots=True)
class Found:
    """What a report says of one task."""

    task: OSWorldTask | None
    """None for a file that is not a task."""
    needs: Sequence[str]
    """What is missing to play the task; empty when it can be played."""


def find(task_id: str, tasks: Path, scoring: ScoringEnvironment) -> Found:
    """Read one task file and find what is missing to play the task."""
    try:
        task = load_task(task_id, tasks)
    except TaskUnsupported as error:
        return Found(None, [f"a valid task file: {error}"])
    return Found(task, not_known(task, scoring))


def unplayable(config: Config) -> dict[str, str]:
    """Return the tasks of `tasks.train` that cannot be played on this system, with what each needs.

    raises    EvaluatorsMissing if the evaluators are not installed
    """
    osworld = config.environments.osworld
    scoring = find_evaluators(osworld.evaluators)
    found = {task_id: find(task_id, osworld.tasks, scoring) for task_id in config.tasks.train}
    return {task_id: "; ".join(one.needs) for task_id, one in found.items() if one.needs}


def reaches(task: OSWorldTask, scoring: ScoringEnvironment) -> Iterator[str]:
    """Yield what a task or its evaluation uses besides the guest's files and programs, such as an account."""
    steps = {step.type for step in task.steps()}
    looks = {f"get_{look.get('type')}" for look in task.looks()}
    if steps & set(ACCOUNT_STEPS):
        yield ACCOUNT
    if any(BROWSER in scoring.functions.get(look, ()) for look in looks) or "chrome_open_tabs" in steps:
        yield PAGES
    if "download" in steps or any(task.cloud_files()):
        yield CLOUD


def report(found: Mapping[str, Found]) -> Iterator[str]:
    """Yield a line for each area (such as `chrome`), one for all tasks, and one for each missing thing.

    The missing things that most tasks need come first.

    found   the result of `find` for each task, by task id
    """
    areas: dict[str, list[Sequence[str]]] = {}
    for task_id, one in found.items():
        areas.setdefault(task_id.removeprefix(PREFIX).partition("/")[0], []).append(one.needs)
    for area, tasks in (areas | {"all": [one.needs for one in found.values()]}).items():
        known = sum(not needs for needs in tasks)
        yield f"{area:24} {known:4} of {len(tasks):4}  {known / len(tasks):6.1%}"
    for name, count in Counter(itertools.chain(*(one.needs for one in found.values()))).most_common():
        yield f"  {count:4}  {name}"


def page(found: Mapping[str, Found], scoring: ScoringEnvironment) -> Iterator[str]:
    """Yield the lines of a page in Markdown: totals, what tasks need beyond the guest, and each task that
    cannot be played."""
    tasks = [one.task for one in found.values() if one.task is not None]
    beyond = Counter(need for task in tasks for need in reaches(task, scoring))
    yield from ("```", *report(found), "```")
    yield from ("", "### Beyond the guest", "", "| name | number |", "|---|---:|")
    yield from (f"| {name} | {count} |" for name, count in beyond.most_common())
    yield from ("", "### Tasks that cannot be played", "", "| task | what it needs |", "|---|---|")
    yield from (f"| `{task_id}` | {'; '.join(one.needs)} |" for task_id, one in found.items() if one.needs)
    yield from ("", "### Tasks that training leaves out", "", "| task | why |", "|---|---|")
    yield from (f"| `{task_id}` | {why} |" for task_id, why in MISJUDGED.items() if task_id in found)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m dart.environments.osworld.coverage")
    parser.add_argument("tasks", type=Path, help="folder of the tasks, or a file with a set of them")
    parser.add_argument("--evaluators", type=Path, default=Path(".venv-osworld-score"))
    parser.add_argument("--page", action="store_true", help="print a page in Markdown")
    options = parser.parse_args(arguments)
    try:
        scoring = find_evaluators(options.evaluators)
    except EvaluatorsMissing as error:
        print(error, file=sys.stderr)
        return 1
    found = {task_id: find(task_id, options.tasks, scoring) for task_id in task_ids(options.tasks)}
    if not found:
        print(f"there are no tasks in {options.tasks}: expected <application>/<id>.json", file=sys.stderr)
        return 1
    print("\n".join(page(found, scoring) if options.page else report(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
