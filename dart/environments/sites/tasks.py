"""Tasks on sites: reach a screen or change records, drawn from a seed, with a shortest solution. Pure.

A task id is ``sites/SITE`` or ``sites/SITE/KIND``. Each seed gives another task of this id: the seed decides
the texts of the site, its look and the goal. Without a KIND, the goal is a screen or a change.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from dart.config.config import Config
from dart.environments.faults import UnknownTask
from dart.environments.sites.catalogue import SITES, site_of
from dart.environments.sites.machine import Act, Goal
from dart.environments.sites.site import RecordChange, SiteDefinition
from dart.environments.sites.style import Style, style_of

PREFIX = "sites/"

EXPLORE = "explore"
"""Kind of a task without a goal: no action ends its episode, and its score is 0."""

EXPLORE_INSTRUCTION = "Explore the site."

LENGTHS = {"easy": range(1, 3), "medium": range(3, 6), "hard": range(6, 31)}
"""By kind of a task, the numbers of actions that its shortest solution may have."""

KINDS = ("reach", "change", *LENGTHS, EXPLORE)

DRAWS = 200
"""Largest number of goals that are drawn to find one whose shortest solution has a wanted length."""

REACH_SENTENCES = ("Open {}.", "Go to {}.", "Show {}.", "Find {}.")


@dataclass(frozen=True, slots=True)
class Task:
    """One task on one site.

    solution   acts of a shortest path from the first screen to the goal; none without a goal
    """

    id: str
    site: SiteDefinition
    style: Style
    instruction: str
    goal: Goal | None
    solution: tuple[Act, ...]


def task_ids() -> tuple[str, ...]:
    """Return the ids of all tasks."""
    return tuple(f"{PREFIX}{site}{kind}" for site in SITES for kind in ("", *(f"/{kind}" for kind in KINDS)))


def tasks_of(config: Config) -> tuple[str, ...]:
    """Return the ids of all tasks; every installation has all of them."""
    return task_ids()


def task_of(task_id: str, seed: int, look: int | None = None) -> Task:
    """Return the task of an id and a seed. Raises UnknownTask.

    look   seed of the site's texts and style; None to take them from ``seed`` too
    """
    if task_id not in task_ids():
        raise UnknownTask(task_id, task_ids())
    name, _, kind = task_id.removeprefix(PREFIX).partition("/")
    site_seed = seed if look is None else look
    site, style = site_of(name, site_seed), style_of(site_seed, name)
    if kind == EXPLORE:
        return Task(task_id, site, style, EXPLORE_INSTRUCTION, None, ())
    return _drawn_task(task_id, kind, site, style, random.Random(f"task {task_id}/{seed}"))


def _drawn_task(task_id: str, kind: str, site: SiteDefinition, style: Style, choose: random.Random) -> Task:
    """Draw goals until the shortest solution of a goal has a wanted length.

    Raises LookupError when no goal has one, which is a mistake in the definition of the site.
    """
    lengths = LENGTHS.get(kind, range(1, 31))
    for instruction, goal in _goals(site, kind, choose):
        solution = site.machine.shortest_path(site.machine.start, goal)
        if solution and site.machine.num_actions(solution) in lengths:
            return Task(task_id, site, style, instruction, goal, solution)
    raise LookupError(f"the site {site.name} has no task of the kind {kind!r} among {DRAWS} drawn goals")


def _goals(site: SiteDefinition, kind: str, choose: random.Random) -> Iterator[tuple[str, Goal]]:
    """Yield instructions and their goals, drawn at random."""
    screens = sorted(site.machine.freely_reachable(site.start) - {site.start})
    for _ in range(DRAWS):
        wants_screen = choose.random() < 0.5
        if kind in ("change", "hard") or (kind != "reach" and not wants_screen):
            yield _change_goal(site, choose, is_double=kind == "hard" and choose.random() < 0.5)
        else:
            screen = site.by_id[choose.choice(screens)]
            yield choose.choice(REACH_SENTENCES).format(screen.name), Goal(screen.id)


def _change_goal(site: SiteDefinition, choose: random.Random, *, is_double: bool) -> tuple[str, Goal]:
    """Return the instruction and the goal of one change of the site or, with ``is_double``, of two changes
    that have no record in common."""
    first = choose.choice(site.changes)
    taken = {name for name, _ in first.records}
    others = [one for one in site.changes if not taken & {name for name, _ in one.records}]
    changes = [first, choose.choice(others)] if is_double and others else [first]
    sentences = [choose.choice(change.instructions) for change in changes]
    return " ".join(sentences), Goal(records=_records_of(changes))


def _records_of(changes: list[RecordChange]) -> tuple[tuple[str, str | int], ...]:
    return tuple(record for change in changes for record in change.records)
