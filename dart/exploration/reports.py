"""What the owner of the graph makes of a report: a node, an effect, a call of the record. Pure."""

from dart.core import messages as m
from dart.core.exploration import Effect, ExploreAct, HeldLease
from dart.exploration.graph import Graph


def record_of_report(
    report: m.ExploredReport, graph: Graph, lease: HeldLease, deadline_unix_s: float
) -> m.RecordExplored:
    """The call that records a report: the node that its screen is, or a new one."""
    node = graph.match(report.screen) if report.screen is not None else None
    effect = report.effect or _effect(report, graph, node)
    candidate = report.candidate
    action = candidate.key if candidate is not None else ""
    return m.RecordExplored(
        fence=report.fence,
        number=report.number,
        cost=report.cost,
        source_id=report.source_id,
        act=candidate.act if candidate is not None else ExploreAct.RESET,
        action=action,
        effect=effect,
        target_id=node,
        screen=report.screen if node is None else None,
        is_expansion=_is_expansion(report, graph, lease, action, effect),
        move=report.move,
        deadline_unix_s=deadline_unix_s,
    )


def _effect(report: m.ExploredReport, graph: Graph, node: int | None) -> Effect:
    """What an action led to, by the screen after it."""
    assert report.screen is not None, "a report has a screen, or an effect without one"
    if node is None:
        return Effect.NEW_SCREEN if report.screen.shape in graph.shapes else Effect.NEW_SHAPE
    return Effect.NO_CHANGE if node == report.source_id else Effect.KNOWN_SCREEN


def _is_expansion(
    report: m.ExploredReport, graph: Graph, lease: HeldLease, action: str, effect: Effect
) -> bool:
    """Whether a report is the first try of an action on the screen that its sender holds.

    A first fault leaves the action untried; a second one ends the trying.
    """
    source_id = report.source_id
    if source_id is None or lease.screen_id != source_id or graph.is_tried(source_id, action):
        return False
    return effect is not Effect.FAULT or graph.faults(source_id, action) > 0
