"""What an explorer does next: expand the nearest screen, repeat a known action, wait, or end. Pure.

An exploration has two phases. First screens are expanded, until its share of the actions is used up, the
coverage curve is flat, or nothing untried can be reached. Then actions that changed the screen once are
repeated, because only an effect that was seen twice is relied on.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from dart.config.sections import ExplorationSettings
from dart.core.exploration import Effect
from dart.exploration.coverage import is_flat
from dart.exploration.frontier import Way, depths, nearest
from dart.exploration.graph import Graph

UNREACHED_MOST = 3
"""A screen is given up once the known way to it led elsewhere so often."""

RESETS_FAILED_MOST = 6
"""A site does not answer once so many resets failed and none showed a screen."""

START = Way(screen_id=0, begins_with_reset=True, hops=())
"""The way to the start screen before it is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """Where an explorer goes, and what it does there."""

    way: Way
    screen_id: int | None
    """The screen to lease; None before any screen is known."""
    repeats: str = ""
    """Key of a known action to repeat; empty: expand the screen."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Other explorers hold everything that is left; what they find may be explored next."""


@dataclass(frozen=True, slots=True)
class AllExplored:
    """Nothing is left to do."""

    reason: str


def next_assignment(
    graph: Graph,
    at: int | None,
    held: Collection[int],
    given_up: Collection[int],
    settings: ExplorationSettings,
) -> Assignment | Waiting | AllExplored:
    """What an explorer does next.

    at         the screen that it shows; None if only a reset leads to a known one
    held       screens that other explorers hold
    given_up   screens whose known way leads elsewhere
    """
    if graph.actions >= settings.actions:
        return AllExplored(f"all {settings.actions} actions are used up")
    if not graph.roots:
        failed = sum(step.effect is Effect.FAULT for step in graph.steps)
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


def why_not_expand(graph: Graph, settings: ExplorationSettings) -> str:
    """Why no more screens are expanded; empty while they are."""
    if graph.actions >= settings.actions * (1 - settings.confirm_share):
        return f"{graph.actions} of {settings.actions} actions are used, the others repeat known ones"
    if settings.stops_when_flat and is_flat(graph.curve()):
        return "the coverage curve is flat: the last 100 actions found less than one new shape in 25"
    return ""


def frontier(graph: Graph, given_up: Collection[int], max_depth: int) -> dict[int, int]:
    """The screens that can be expanded, each with the number of its untried actions."""
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
        root = graph.roots[0]
        way = Way(screen_id=root, begins_with_reset=True, hops=())
        return Waiting() if root in held else Assignment(way=way, screen_id=root)
    open_screens = frontier(graph, given_up, settings.max_depth)
    way_there = nearest(graph, at, lambda one: one in open_screens and one not in held)
    if way_there is not None:
        return Assignment(way=way_there, screen_id=way_there.screen_id)
    if held:
        return Waiting()
    return AllExplored("every action was tried on every screen that known ways lead to")


def _repetition(
    graph: Graph, at: int | None, held: Collection[int], given_up: Collection[int]
) -> Assignment | None:
    """Repeat an action that changed the screen and was done once, on the nearest screen that has one."""
    once: dict[int, str] = {}
    for hop, targets in graph.edges():
        is_open = hop.source_id not in held and hop.source_id not in given_up
        if is_open and targets.total() == 1:
            once.setdefault(hop.source_id, hop.action)
    way = nearest(graph, at, lambda one: one in once)
    if way is None:
        return None
    return Assignment(way=way, screen_id=way.screen_id, repeats=once[way.screen_id])
