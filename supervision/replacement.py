"""Replaces a child that works, by age or use: it is asked to stop, and then started again. Changes only the
child's state.
"""

import math

from supervision.actions import Action, Child, Report, Status, Target
from supervision.child_spec import Restart, Retirement


def retire_at_s(policy: Retirement, now_s: float, draw: float) -> float:
    """The moment at which a child that is ready now is to be replaced for its age."""
    return now_s + policy.max_age_s * (1 + policy.jitter * (2 * draw - 1))


def retire_if_old(child: Child, now_s: float) -> list[Action]:
    if now_s < child.retire_at_s:
        return []
    return _retire(child, f"retired after {now_s - child.since_s:.0f} s")


def retire_if_used_up(child: Child, uses: int) -> list[Action]:
    limit = child.spec.retirement.max_uses
    return _retire(child, f"retired after {uses} uses") if 0 < limit <= uses else []


def _retire(child: Child, why: str) -> list[Action]:
    if not _is_settled(child):
        return []
    child.last_reason = why
    child.target = Target.RESTART
    child.is_retired = True
    return [Report("retired", why, child.spec.id)]


def preempt(child: Child) -> bool:
    """Have a child whose process will be taken away stop and start again; False if it goes down anyway.

    A temporary child only stops.
    """
    is_up = child.status in (Status.STARTING, Status.RUNNING) and child.target is Target.UP
    if not is_up or child.is_killed:
        return False
    child.last_reason = "preempted: a SIGTERM announced the end of its process"
    is_temporary = child.spec.restart is Restart.TEMPORARY
    child.target = Target.DOWN if is_temporary else Target.RESTART
    child.is_retired = True
    return True


def wake_s(child: Child) -> float:
    """The moment at which the child gets too old; infinity for never."""
    return child.retire_at_s if _is_settled(child) else math.inf


def _is_settled(child: Child) -> bool:
    return child.status is Status.RUNNING and child.target is Target.UP and not child.is_killed
