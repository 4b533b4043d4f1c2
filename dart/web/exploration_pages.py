"""The page of the exploration graph: screens as thumbnails, edges, frontier and coverage curve.

Screens are drawn in columns: the column is the number of actions on the shortest known path from the start
screen.
"""

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

from dart.core.errors import UsageError
from dart.core.exploration import HeldLease, PathHop, ScreenNode
from dart.exploration.coverage import CoveragePoint
from dart.exploration.follower import GraphFollower
from dart.exploration.graph import Graph
from dart.exploration.planning import frontier
from dart.exploration.ways import depths
from dart.web.charts import Chart, Series
from dart.web.render import render
from dart.web.run_view import RunView

SHOWN_MOST = 200
"""Largest number of screens that are drawn. Of a larger graph, those that were found first are drawn."""

NODE_WIDTH, NODE_HEIGHT, GAP_X, GAP_Y = 120, 96, 60, 26


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnScreen:
    """A screen and the pixel at its upper left corner in the drawing."""

    node: ScreenNode
    x: int
    y: int
    untried: int
    """Number of candidates on the screen that were never tried; 0 for a screen that is not to be explored."""
    is_held: bool
    """Whether an explorer has the lease of the screen now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnEdge:
    """The edge from one screen to another; `d` is the attribute of its SVG path."""

    hop: PathHop
    d: str
    tries: int


def exploration(run: RunView, values: Mapping[str, str]) -> str:
    """Render the exploration graph of one task and seed, or a text if the run has explored nothing.

    values   `id` is the task and the seed, with a space between them; without `id`, the first graph is shown
    raises   UsageError if the run has not explored this task and seed
    """
    known = run.store.explorations()
    if not known:
        return render("_exploration.html", known=(), chosen="")
    by_name = {f"{task_id} {seed}": (task_id, seed) for task_id, seed in known}
    chosen = values.get("id") or next(iter(by_name))
    if chosen not in by_name:
        raise UsageError(f"the run has not explored {chosen!r}; it has explored {', '.join(by_name)}")
    follower = GraphFollower(run.store, *by_name[chosen])
    follower.follow()
    return render("_exploration.html", **drawing(run, follower.graph), known=known, chosen=chosen)


def drawing(run: RunView, graph: Graph) -> dict[str, object]:
    """Return the values that the template of the page needs for a graph."""
    leases = run.store.held_leases() if run.pid is not None else ()
    held = explorers_at(leases, time.time())
    open_screens = frontier(graph, (), run.config.exploration.max_depth)
    screens = placed(graph, open_screens, held)
    place_of = {one.node.screen_id: one for one in screens}
    return {
        "screens": screens,
        "edges": edges_between(graph, place_of),
        "width": max((one.x for one in screens), default=0) + NODE_WIDTH + 10,
        "height": max((one.y for one in screens), default=0) + NODE_HEIGHT + GAP_Y,
        "node_width": NODE_WIDTH,
        "node_height": NODE_HEIGHT,
        "left_out": max(0, len(graph.nodes) - SHOWN_MOST),
        "actions": graph.actions,
        "num_screens": len(graph.nodes),
        "num_shapes": len(graph.shapes),
        "num_edges": sum(1 for _ in graph.edges()),
        "num_open": len(open_screens),
        "num_untried": sum(open_screens.values()),
        "chart": coverage_chart(graph.curve()),
        "held": sorted(explorer for screen, explorer in held.items() if screen in graph.nodes),
    }


def explorers_at(leases: Iterable[HeldLease], now_unix_s: float) -> dict[int | None, str]:
    """Return the name of the explorer by the screen whose lease it holds.

    A lease whose deadline has passed is left out, because its explorer has ended.
    """
    return {one.screen_id: one.explorer for one in leases if one.deadline_unix_s >= now_unix_s}


def placed(
    graph: Graph, open_screens: Mapping[int, int], held: Mapping[int | None, str]
) -> list[DrawnScreen]:
    """Place the screens in columns by depth. Within a column they are in the order in which they were found.

    open_screens   number of untried candidates by screen id, for the screens of the frontier
    held           name of the explorer by screen id, for the screens that are leased
    """
    depth_of = depths(graph)
    columns: defaultdict[int, int] = defaultdict(int)
    drawn = []
    for screen_id, node in list(graph.nodes.items())[:SHOWN_MOST]:
        depth = depth_of.get(screen_id, node.depth)
        drawn.append(
            DrawnScreen(
                node=node,
                x=10 + depth * (NODE_WIDTH + GAP_X),
                y=20 + columns[depth] * (NODE_HEIGHT + GAP_Y),
                untried=open_screens.get(screen_id, 0),
                is_held=screen_id in held,
            )
        )
        columns[depth] += 1
    return drawn


def edges_between(graph: Graph, place_of: Mapping[int, DrawnScreen]) -> list[DrawnEdge]:
    """Return one edge for each pair of screens that an action connects, with the first such action."""
    drawn: dict[tuple[int, int], DrawnEdge] = {}
    for hop, targets in graph.edges():
        pair = hop.source_id, hop.target_id
        if pair not in drawn and hop.source_id in place_of and hop.target_id in place_of:
            d = curve_between(place_of[hop.source_id], place_of[hop.target_id])
            drawn[pair] = DrawnEdge(hop=hop, d=d, tries=targets.total())
    return list(drawn.values())


def curve_between(source: DrawnScreen, target: DrawnScreen) -> str:
    """Return the SVG path of an edge: side to side if the target is further right, else top to top."""
    x0, y0 = source.x + NODE_WIDTH, source.y + NODE_HEIGHT // 2
    x1, y1 = target.x, target.y + NODE_HEIGHT // 2
    if target.x > source.x:
        middle = (x0 + x1) // 2
        return f"M{x0} {y0}C{middle} {y0} {middle} {y1} {x1} {y1}"
    y0, y1 = source.y, target.y
    x0, x1 = source.x + NODE_WIDTH // 2, target.x + NODE_WIDTH // 2
    return f"M{x0} {y0}C{x0} {y0 - GAP_Y} {x1} {y1 - GAP_Y} {x1} {y1}"


def coverage_chart(curve: Sequence[CoveragePoint]) -> Chart:
    """Return the chart of the numbers of screens and shapes, over actions instead of time."""
    screens = Series("screens", stairs([(point.actions, point.screens) for point in curve]), "c1")
    shapes = Series("shapes", stairs([(point.actions, point.shapes) for point in curve]), "c2")
    return Chart("Coverage", [screens, shapes], (0.0, max(1.0, curve[-1].actions)))


def stairs(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the corners of a line that is level up to each next point."""
    corners = ([(x, before), (x, y)] for (_, before), (x, y) in pairwise(points))
    return [*points[:1], *chain.from_iterable(corners)]
