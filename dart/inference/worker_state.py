"""How well a rollout actor is, from facts anybody can read. Pure."""

from dataclasses import dataclass
from enum import StrEnum

from dart.telemetry.liveness import ENGINE_SILENT_S

UNREADY_S = 1.0
"""An actor is out of routing for a moment around every load; for longer it needs a reason."""


class WorkerState(StrEnum):
    """Whether requests may be sent to a rollout actor, and if not, why."""

    HEALTHY = "healthy"
    """It answered lately, with a version that may still be used."""
    UPDATING = "updating"
    """It takes a new version over; what it is asked meanwhile waits."""
    STALE = "stale"
    """It serves a version older than required: it answers nobody until it has proved a newer one."""
    SUSPECT = "suspect"
    """It gives no sign of life, or an ask of it failed: it has to answer a probe before it is used again."""
    DEAD = "dead"
    """It does not run; its supervisor starts it again, with the newest version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFacts:
    """What is known of one rollout actor."""

    is_running: bool
    """By the board."""
    silent_s: float
    """Since its last beat."""
    unready_s: float
    """Since it says that it takes no requests; 0 when it does."""
    version: int
    """It serves."""
    required: int
    """Nothing older may be served (`dart.inference.sync_plan`)."""
    updating: int | None
    """The version it was told to take over; None when it was not."""
    doubt: str
    """What made somebody doubt it since it was last proved; empty when nothing did."""


def state_of(facts: WorkerFacts) -> tuple[WorkerState, str]:
    """The state and, where it is not healthy, the reason. The first that is true counts."""
    if not facts.is_running:
        return WorkerState.DEAD, "it does not run"
    if facts.silent_s > ENGINE_SILENT_S:
        return WorkerState.SUSPECT, "it gives no sign of life"
    if facts.updating is not None:
        return WorkerState.UPDATING, f"it takes version {facts.updating} over"
    if facts.version < facts.required:
        return WorkerState.STALE, f"it serves version {facts.version}, {facts.required} is required"
    if facts.doubt:
        return WorkerState.SUSPECT, facts.doubt
    if facts.unready_s > UNREADY_S:
        return WorkerState.SUSPECT, "it says that it takes no requests"
    return WorkerState.HEALTHY, ""
