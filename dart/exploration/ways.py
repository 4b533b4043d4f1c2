"""Finds the nearest screen of an exploration graph with a given property, and the known way there. Pure.

A way is a path of known actions from the explorer's screen, or from a start screen after a reset. The
explorer checks the screen after every action of the path.
"""

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass

from dart.core.exploration import PathHop
from dart.exploration.graph import Graph

Goal = Callable[[int], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A path of known actions to a screen, from the current screen or from the start screen after a reset."""

    screen_id: int
    begins_with_reset: bool
    hops: tuple[PathHop, ...]

    @property
    def cost(self) -> int:
        """Number of actions; a reset counts as one."""
        return len(self.hops) + self.begins_with_reset


def depths(graph: Graph) -> dict[int, int]:
    """Return the smallest number of known actions from a start screen to each screen, by screen.

    Screens to which no path of known actions leads are left out.
    """
    reached = _search(graph, graph.roots)
    return {screen_id: len(hops) for screen_id, hops in reached.items()}


def nearest(graph: Graph, at: int | None, is_goal: Goal) -> Way | None:
    """Return the way with the fewest actions to a screen that is a goal; None if no way leads to one.

    at        screen where the explorer is; None if it has to begin with a reset
    is_goal   function that returns whether a screen, given by its id, is a goal
    """
    ways = []
    if at is not None:
        ways += _ways(_search(graph, (at,)), is_goal, begins_with_reset=False)
    ways += _ways(_search(graph, graph.roots[:1]), is_goal, begins_with_reset=True)
    return min(ways, key=lambda way: (way.cost, way.screen_id), default=None)


def _ways(reached: dict[int, tuple[PathHop, ...]], is_goal: Goal, *, begins_with_reset: bool) -> list[Way]:
    return [
        Way(screen_id=screen_id, begins_with_reset=begins_with_reset, hops=hops)
        for screen_id, hops in reached.items()
        if is_goal(screen_id)
    ]


def _search(graph: Graph, starts: tuple[int, ...]) -> dict[int, tuple[PathHop, ...]]:
    """Return the shortest path from any of the starts to each screen that known actions reach."""
    leads_to: defaultdict[int, list[PathHop]] = defaultdict(list)
    for hop, _ in graph.edges():
        leads_to[hop.source_id].append(hop)
    reached: dict[int, tuple[PathHop, ...]] = dict.fromkeys(starts, ())
    waiting = deque(starts)
    while waiting:
        here = waiting.popleft()
        for hop in leads_to[here]:
            if hop.target_id not in reached:
                reached[hop.target_id] = (*reached[here], hop)
                waiting.append(hop.target_id)
    return reached
