"""The health of a rollout actor, from facts that any process can read. Pure."""

from dataclasses import dataclass
from enum import StrEnum

from dart.telemetry.liveness import ENGINE_SILENT_S

UNREADY_S = 1.0
"""An actor is out of routing for a moment around every load; for longer it needs a reason."""


class WorkerState(StrEnum):
    """Whether requests may be sent to a rollout actor, and if not, why."""

    HEALTHY = "healthy"
    """It answers, with a version that may still be served."""
    UPDATING = "updating"
    """It loads a new version; requests wait meanwhile."""
    STALE = "stale"
    """It serves a version older than required: it answers no request until it has proved a newer one."""
    SUSPECT = "suspect"
    """It is silent, or failed a request: it must answer a probe before it is used again."""
    DEAD = "dead"
    """It does not run; its supervisor starts it again, with the newest version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFacts:
    """The facts about one rollout actor."""

    is_running: bool
    """By the board."""
    silent_s: float
    """Since its last beat."""
    unready_s: float
    """Since it says that it takes no requests; 0 when it does."""
    version: int
    """The version it serves."""
    required: int
    """The oldest version that may be served (`dart.inference.weight_sync_plan`)."""
    updating: int | None
    """The version it is loading; None when it loads none."""
    doubt: str
    """Why it is doubted, since it was last proved; empty when it is not."""


def state_of(facts: WorkerFacts) -> tuple[WorkerState, str]:
    """The state and, when it is not healthy, the reason. The first condition that holds decides."""
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
