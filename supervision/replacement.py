"""Replaces a child that works, by age or use, with or without a warm spare. Changes only the child's state.

Without a spare, the child is asked to stop and is then started again. With a spare, the replacement starts
while the old process runs. When the replacement is ready, it takes over the name. The old process then gets
the child's shutdown time to finish its work.
"""

import math

from supervision.actions import (
    Action,
    AskToStop,
    Child,
    Ended,
    Kill,
    Promote,
    Report,
    SideProcess,
    SpawnSpare,
    Status,
    Target,
)
from supervision.backoff import backoff_s
from supervision.child_spec import Restart, Retirement

MIN_WAIT_S = 1.0
"""The shortest wait after a failed replacement, in seconds; the old process works meanwhile."""


def retire_at_s(policy: Retirement, now_s: float, draw: float) -> float:
    """The moment at which a child that is ready now is to be replaced for its age."""
    return now_s + policy.max_age_s * (1 + policy.jitter * (2 * draw - 1))


def retire_if_old(child: Child, now_s: float) -> list[Action]:
    if now_s < child.retire_at_s:
        return []
    return _retire(child, f"retired after {now_s - child.since_s:.0f} s", now_s)


def retire_if_used_up(child: Child, uses: int, now_s: float) -> list[Action]:
    limit = child.spec.retirement.max_uses
    return _retire(child, f"retired after {uses} uses", now_s) if 0 < limit <= uses else []


def _retire(child: Child, why: str, now_s: float) -> list[Action]:
    is_settled = child.status is Status.RUNNING and child.target is Target.UP and not child.is_killed
    if not is_settled or child.spare is not None or child.retiring is not None:
        return []
    if now_s < child.spare_after_s:
        return []
    child.last_reason = why
    report = Report("retired", why, child.spec.id)
    if not child.spec.retirement.warm_spare:
        child.target = Target.RESTART
        child.is_retired = True
        return [report]
    child.issued += 1
    child.spare = SideProcess(child.issued, now_s + child.spec.start_deadline_s)
    return [report, SpawnSpare(child.spec.id, child.issued)]


def preempt(child: Child) -> bool:
    """Have a child whose process will be taken away stop and start again; False if it goes down anyway.

    No spare starts first, because what the process needs is about to go. A temporary child only stops.
    """
    is_up = child.status in (Status.STARTING, Status.RUNNING) and child.target is Target.UP
    if not is_up or child.is_killed:
        return False
    child.last_reason = "preempted: a SIGTERM announced the end of its process"
    is_temporary = child.spec.restart is Restart.TEMPORARY
    child.target = Target.DOWN if is_temporary else Target.RESTART
    child.is_retired = True
    return True


def promote(child: Child, now_s: float, draw: float) -> list[Action]:
    """Make the ready spare the child's process, and have the old process retire, unless it was killed."""
    if child.spare is None or child.spare.is_killed:
        return []
    old = SideProcess(child.incarnation, now_s + child.spec.shutdown_s, is_killed=child.is_killed)
    child.incarnation, child.spare, child.retiring = child.spare.incarnation, None, old
    child.uses, child.is_killed, child.is_hung = 0, False, False
    child.since_s = now_s
    child.retire_at_s = retire_at_s(child.spec.retirement, now_s, draw)
    taken_over = Promote(child.spec.id, child.incarnation)
    if old.is_killed:
        return [taken_over]
    return [taken_over, AskToStop(child.spec.id, old.incarnation, child.spec.shutdown_s, finish=True)]


def spare_failed(child: Child, ended: Ended, now_s: float, draw: float) -> list[Action]:
    """Let the old process continue after a failed replacement; the next attempt comes after a wait."""
    spare, child.spare = child.spare, None
    if spare is None or spare.is_dropped:
        return []
    child.failures_in_row += 1
    wait_s = max(MIN_WAIT_S, backoff_s(child.spec.backoff, child.failures_in_row, draw))
    child.spare_after_s = now_s + wait_s
    return [Report("start_error", f"its replacement: {ended.reason}", child.spec.id)]


def drop_spare(child: Child) -> list[Action]:
    """Kill the spare of a child that goes down or has failed: it needs no replacement."""
    spare = child.spare
    is_wanted = child.target is Target.UP and child.status is Status.RUNNING
    if spare is None or spare.is_killed or is_wanted:
        return []
    spare.is_killed = spare.is_dropped = True
    return [Kill(child.spec.id, spare.incarnation, "no longer needed")]


def overdue(child: Child, now_s: float) -> list[Action]:
    """Kill a replacement that does not get ready and a predecessor that does not end."""
    actions: list[Action] = []
    for side, why in ((child.spare, "its replacement was not ready"), (child.retiring, "did not retire")):
        if side is not None and not side.is_killed and now_s >= side.deadline_s:
            side.is_killed = True
            actions.append(Kill(child.spec.id, side.incarnation, f"{why} in time"))
    return actions


def resumed(child: Child, lost_s: float, now_s: float) -> None:
    """Give a replacement and a predecessor the time that was lost (`SupervisorCore.resumed`)."""
    spec = child.spec
    for side, whole_s in ((child.spare, spec.start_deadline_s), (child.retiring, spec.shutdown_s)):
        if side is not None:
            side.deadline_s = min(side.deadline_s + lost_s, now_s + whole_s)


def wake_s(child: Child) -> float:
    """The moment at which this module must be called even if nothing happens; infinity for never."""
    sides = (side for side in (child.spare, child.retiring) if side is not None and not side.is_killed)
    if child.spare is not None or child.retiring is not None:
        return min((side.deadline_s for side in sides), default=math.inf)
    is_settled = child.status is Status.RUNNING and child.target is Target.UP and not child.is_killed
    return max(child.retire_at_s, child.spare_after_s) if is_settled else math.inf
