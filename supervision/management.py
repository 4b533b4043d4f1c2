"""OTP's management calls on a supervisor's state: start, terminate, restart and delete a child; list and
count children.

Each call returns actions, and an answer if there is one at once: the reason of a refusal, or an empty string
for success. A call that must wait for a child's start is answered later by an `Answer` action (OTP blocks
until init has returned). A termination is complete when the child is gone.
"""

from collections.abc import Callable

from supervision import replacement
from supervision.actions import Action, Child, ManagementCall, Status, Target
from supervision.child_spec import ChildSpec, ChildType, Restart, SupervisorFlags, check_fits
from supervision.circuit_breaker import Circuit
from supervision.core import SupervisorCore, answer
from supervision.errors import InvalidChildSpec
from supervision.messages import ChildCounts

NOT_FOUND = "not_found"
RUNNING = "running"
RESTARTING = "restarting"
ALREADY_PRESENT = "already_present"
ALREADY_STARTED = "already_started"
MAX_CHILDREN = "max_children"
SHUTTING_DOWN = "shutting_down"

WAITS = None
"""The mark for an answer that comes later."""

Outcome = tuple[list[Action], str | None]
"""Actions, and the answer: '' when it is done, a reason when it is refused, WAITS when it comes later."""


def start_child(
    core: SupervisorCore, spec: ChildSpec, now_s: float, *, issued: Callable[[], int] = lambda: 0
) -> Outcome:
    """Add a child and start it. Raises InvalidChildSpec.

    issued   function that returns the highest incarnation of the name so far; called if the child is accepted
    """
    check_fits(spec, core.flags)
    known = core.children.get(spec.id)
    if core.finishing is not None:
        return [], SHUTTING_DOWN
    if known is not None:
        is_up = known.status is not Status.DOWN or known.target is not Target.DOWN
        return [], ALREADY_STARTED if is_up else _why_present(spec.id)
    if 0 < core.flags.max_children <= len(core.children):
        return [], MAX_CHILDREN
    core.children[spec.id] = Child(spec, call=ManagementCall.START, issued=issued())
    return core.reconcile(now_s), WAITS


def terminate_child(core: SupervisorCore, id_: str, now_s: float) -> Outcome:
    """Bring a child down for good, and cancel a waiting restart. A temporary child is forgotten."""
    child = core.children.get(id_)
    if child is None:
        return [], NOT_FOUND
    child.target = Target.DOWN
    child.circuit = Circuit()
    actions = answer(child, ok=False, reason="it was terminated") if child.status is Status.DOWN else []
    child.is_forgotten = core.flags.dynamic or child.spec.restart is Restart.TEMPORARY
    return [*actions, *core.reconcile(now_s)], "" if child.status is Status.DOWN else WAITS


def restart_child(core: SupervisorCore, id_: str, now_s: float) -> Outcome:
    """Start a child that was terminated, or that ended and is not restarted."""
    child = core.children.get(id_)
    if core.finishing is not None:
        return [], SHUTTING_DOWN
    refusal = NOT_FOUND if child is None or core.flags.dynamic else _why_busy(child)
    if child is None or refusal:
        return [], refusal
    child.target, child.call = Target.UP, ManagementCall.RESTART
    child.start_at_s = child.since_s = now_s
    child.failures_in_row = 0
    return core.reconcile(now_s), WAITS


def delete_child(core: SupervisorCore, id_: str, now_s: float) -> Outcome:
    """Forget the spec of a child that is down."""
    child = core.children.get(id_)
    refusal = NOT_FOUND if child is None or core.flags.dynamic else _why_busy(child)
    if child is None or refusal:
        return [], refusal
    child.is_forgotten = True
    return core.reconcile(now_s), ""


def release_child(core: SupervisorCore, id_: str, now_s: float) -> Outcome:
    """End a child's quarantine or backoff now, and forget its failures."""
    child = core.children.get(id_)
    if child is None:
        return [], NOT_FOUND
    if child.status is not Status.DOWN or child.target is not Target.UP:
        return (
            [],
            f"the child is neither in quarantine nor waits for a restart; its state is {describe(child)}",
        )
    child.circuit, child.failures_in_row, child.start_at_s = Circuit(), 0, now_s
    child.spent.clear()
    return core.reconcile(now_s), ""


def update_child(core: SupervisorCore, id_: str, spec: ChildSpec | None, now_s: float) -> Outcome:
    """Give a running child another spec. Fields that concern its start take effect at its next start.

    Raises InvalidChildSpec for a value that is not allowed, and for a change of id or actor.
    """
    child = core.children.get(id_)
    if child is None or spec is None:
        return [], NOT_FOUND
    if (spec.id, spec.actor) != (id_, child.spec.actor):
        raise InvalidChildSpec(f"id and actor of {id_!r} cannot be changed; start another child with them")
    check_fits(spec, core.flags)
    if spec.retirement != child.spec.retirement and child.status is Status.RUNNING:
        child.retire_at_s = replacement.retire_at_s(spec.retirement, child.since_s, core.draw())
    child.spec = spec
    if spec.breaker is None and child.is_quarantined:
        child.circuit, child.start_at_s = Circuit(), now_s
    return core.tick(now_s), ""


def update_flags(core: SupervisorCore, flags: SupervisorFlags, now_s: float) -> Outcome:
    """Replace the supervisor's limits. Raises InvalidChildSpec when a child does not fit them."""
    if (flags.strategy, flags.ordered, flags.dynamic) != (
        core.flags.strategy,
        core.flags.ordered,
        core.flags.dynamic,
    ):
        raise InvalidChildSpec(
            "strategy, ordered and dynamic cannot be changed; start another supervisor with them"
        )
    for child in core.children.values():
        check_fits(child.spec, flags)
    core.flags = flags
    return core.tick(now_s), ""


def count_children(core: SupervisorCore) -> ChildCounts:
    children = core.children.values()
    supervisors = sum(child.spec.type is ChildType.SUPERVISOR for child in children)
    return ChildCounts(
        specs=len(children),
        active=sum(child.status is not Status.DOWN for child in children),
        supervisors=supervisors,
        workers=len(children) - supervisors,
        restarting=sum(describe(child) == RESTARTING for child in children),
        quarantined=sum(child.is_quarantined for child in children),
    )


def describe(child: Child) -> str:
    """The state of a child in OTP's words, and in two of our own: waiting and quarantined."""
    if child.status is not Status.DOWN:
        return child.status.value
    if child.is_quarantined:
        return "quarantined"
    if child.target is Target.DOWN:
        return "undefined"
    return RESTARTING if child.restarts else "waiting"


def _why_present(id_: str) -> str:
    return (
        f"{ALREADY_PRESENT}: {id_!r} is down and its spec is kept; RestartChild starts it again, "
        "DeleteChild forgets it so that another spec can be started"
    )


def _why_busy(child: Child) -> str:
    if child.status is Status.DOWN:
        return "" if child.target is Target.DOWN else RESTARTING
    is_starting_again = child.status is Status.STARTING and child.restarts > 0
    return RESTARTING if is_starting_again else RUNNING
