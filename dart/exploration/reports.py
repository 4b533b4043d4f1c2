"""Turns an explorer's report into a call of the store, and the verdict of the store into a reply. Pure.

For the call it finds the node of the reported screen and the effect of the action.
"""

from dart.core import messages as m
from dart.core.exploration import Effect, ExploreAct, HeldLease, StepVerdict
from dart.exploration.graph import Graph


def record_of_report(
    report: m.ExploredReport, graph: Graph, lease: HeldLease, deadline_unix_s: float
) -> m.RecordExplored:
    """Return the call that records a report, with the node that matches its screen, or with a new screen.

    deadline_unix_s   new deadline of the lease
    """
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


def reply_to_report(verdict: StepVerdict | None) -> m.ExploredReply:
    """Return the reply to a report from the verdict of the store; None: no lease with its fence is held."""
    if verdict is None or verdict.step is None:
        return m.ExploredReply(screen_id=None, effect=Effect.LOST, holds=False, is_fenced=True)
    step = verdict.step
    holds = step.target_id is not None and verdict.holds == step.target_id
    return m.ExploredReply(screen_id=step.target_id, effect=step.effect, holds=holds)


def _effect(report: m.ExploredReport, graph: Graph, node: int | None) -> Effect:
    """Return the effect of an action from the screen after it.

    node   id of the node that matches this screen; None if the screen is new
    """
    assert report.screen is not None, "a report has a screen, or an effect without one"
    if node is None:
        return Effect.NEW_SCREEN if report.screen.shape in graph.shapes else Effect.NEW_SHAPE
    return Effect.NO_CHANGE if node == report.source_id else Effect.KNOWN_SCREEN


def _is_expansion(
    report: m.ExploredReport, graph: Graph, lease: HeldLease, action: str, effect: Effect
) -> bool:
    """Whether a report is an expansion: the first try of an action on the leased screen.

    A try that ends in a fault counts only if the action had a fault before, so an action is tried at most
    twice if it causes faults.
    """
    source_id = report.source_id
    if source_id is None or lease.screen_id != source_id or graph.is_tried(source_id, action):
        return False
    return effect is not Effect.FAULT or graph.faults(source_id, action) > 0
