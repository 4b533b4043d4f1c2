"""Decides what an explorer does next: expand the nearest screen, repeat a known action, wait, or end. Pure.

An exploration has two phases. In the first, explorers try untried actions on screens (expand them). This
phase ends when its share of the actions is used up, the coverage curve is flat, or no untried action can be
reached. In the second phase, explorers repeat actions that were tried once and changed the screen, because
grounding data use only effects that were seen twice.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from dart.config.sections import ExplorationSettings
from dart.core.exploration import Effect
from dart.exploration.coverage import is_flat
from dart.exploration.graph import Graph
from dart.exploration.ways import Way, depths, nearest

UNREACHED_MOST = 3
"""After the known way to a screen has led elsewhere so many times, the screen is given up."""

RESETS_FAILED_MOST = 6
"""After so many failed resets, without one that showed a screen, exploration of the task ends."""

START = Way(screen_id=0, begins_with_reset=True, hops=())
"""The way to a start screen that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """The screen to which an explorer goes, and what it does there."""

    way: Way
    screen_id: int | None
    """The screen to lease; None for the start screen that a reset shows, if it is not known or varies."""
    repeats: str = ""
    """Key of a known action to repeat there; empty: expand the screen."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Other explorers hold all screens that are left to explore. What they find may be explored next."""


@dataclass(frozen=True, slots=True)
class AllExplored:
    """The exploration of the task is finished, for this reason."""

    reason: str


def next_assignment(
    graph: Graph,
    at: int | None,
    held: Collection[int],
    given_up: Collection[int],
    settings: ExplorationSettings,
    failed_before: int = 0,
) -> Assignment | Waiting | AllExplored:
    """Decide what an explorer does next.

    at         screen that the explorer shows; None if it has to begin with a reset
    held       screens that other explorers hold
    given_up   screens that are given up because known ways to them led elsewhere
    failed_before   result of `failed_resets` when the run was started: a resumed run tries anew
    """
    if graph.actions >= settings.actions:
        return AllExplored(f"all {settings.actions} actions are used up")
    if not graph.roots:
        failed = failed_resets(graph) - failed_before
        if failed >= RESETS_FAILED_MOST:
            return AllExplored(f"its start screen could not be shown: {failed} resets failed")
        return Assignment(way=START, screen_id=None)
    why_not = why_not_expand(graph, settings)
    if not why_not:
        found = _expansion(graph, at, held, given_up, settings)
        if not isinstance(found, AllExplored):
            return found
        why_not = found.reason
    if not settings.confirm_share:
        return AllExplored(why_not)
    return _repetition(graph, at, held, given_up) or (Waiting() if held else AllExplored(why_not))


def failed_resets(graph: Graph) -> int:
    """Return how many resets failed before the start screen was ever shown; 0 once it was shown."""
    return 0 if graph.roots else sum(step.effect is Effect.FAULT for step in graph.steps)


def why_not_expand(graph: Graph, settings: ExplorationSettings) -> str:
    """Return the reason why no more screens are expanded; empty if screens may still be expanded."""
    if graph.actions >= settings.actions * (1 - settings.confirm_share):
        return f"{graph.actions} of {settings.actions} actions are used, the others repeat known ones"
    if settings.stops_when_flat and is_flat(graph.curve()):
        return "the coverage curve is flat: the last 100 actions found less than one new shape in 25"
    return ""


def frontier(graph: Graph, given_up: Collection[int], max_depth: int) -> dict[int, int]:
    """Return the number of untried actions of each screen that can be expanded."""
    depth_of: Mapping[int, int] = depths(graph)
    return {
        screen_id: len(untried)
        for screen_id, depth in depth_of.items()
        if depth < max_depth and screen_id not in given_up and (untried := graph.untried(screen_id))
    }


def _expansion(
    graph: Graph,
    at: int | None,
    held: Collection[int],
    given_up: Collection[int],
    settings: ExplorationSettings,
) -> Assignment | Waiting | AllExplored:
    if settings.strategy == "random":
        return _walk(graph.roots, held)
    open_screens = frontier(graph, given_up, settings.max_depth)
    way_there = nearest(graph, at, lambda one: one in open_screens and one not in held)
    if way_there is not None:
        return Assignment(way=way_there, screen_id=way_there.screen_id)
    if held:
        return Waiting()
    return AllExplored("every action was tried on every screen that known ways lead to")


def _walk(roots: Collection[int], held: Collection[int]) -> Assignment | Waiting:
    """Return an assignment to walk at random from the start screen: from whichever is shown, if it varies."""
    if all(root in held for root in roots):
        return Waiting()
    if len(roots) > 1:
        return Assignment(way=START, screen_id=None)
    (root,) = roots
    return Assignment(way=Way(screen_id=root, begins_with_reset=True, hops=()), screen_id=root)


def _repetition(
    graph: Graph, at: int | None, held: Collection[int], given_up: Collection[int]
) -> Assignment | None:
    """Return an assignment to repeat an action that was done once and led to another screen.

    The action is on the nearest screen that has one. None if no reachable screen has one. An action that is
    not always shown is left out: its text may change from visit to visit.
    """
    once: dict[int, str] = {}
    for hop, targets in graph.edges():
        is_open = hop.source_id not in held and hop.source_id not in given_up
        is_there = graph.is_always_shown(hop.source_id, hop.action)
        if is_open and is_there and targets.total() == 1:
            once.setdefault(hop.source_id, hop.action)
    way = nearest(graph, at, lambda one: one in once)
    if way is None:
        return None
    return Assignment(way=way, screen_id=way.screen_id, repeats=once[way.screen_id])
