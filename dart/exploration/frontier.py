"""Where to explore next: the nearest screen with something that was not tried, and the known way there. Pure.

The way is a path of known actions from where the explorer is, or from a start screen after a reset. Every hop
is verified when it is replayed.
"""

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass

from dart.core.exploration import PathHop
from dart.exploration.graph import Graph

Goal = Callable[[int], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How to get to a screen."""

    screen_id: int
    begins_with_reset: bool
    hops: tuple[PathHop, ...]

    @property
    def cost(self) -> int:
        """Number of actions; a reset counts as one."""
        return len(self.hops) + self.begins_with_reset


def depths(graph: Graph) -> dict[int, int]:
    """The least number of known actions from a start screen to each screen that can be reached."""
    reached = _search(graph, graph.roots)
    return {screen_id: len(hops) for screen_id, hops in reached.items()}


def nearest(graph: Graph, at: int | None, is_goal: Goal) -> Way | None:
    """The cheapest way to a screen that is a goal; None if no known way leads to one.

    at   where the explorer is; None if only a reset can bring it to a known screen
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
    """The shortest path to each screen that known actions reach, breadth first."""
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
