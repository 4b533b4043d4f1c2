"""Whether an engine may be sent requests, from facts that any process can read. Pure."""

from enum import StrEnum

from dart.telemetry.liveness import ENGINE_SILENT_S

UNREADY_S = 1.0
"""Time without taking requests after which an engine that is not loading is suspect. Just before and after a
load this lasts a moment."""


class EngineState(StrEnum):
    """Whether requests may be sent to an engine, and if not, why."""

    HEALTHY = "healthy"
    """It answers, with a version that may still be served."""
    UPDATING = "updating"
    """It loads a new version; requests wait meanwhile."""
    STALE = "stale"
    """It serves a version older than required: it answers no request until it has proved a newer one."""
    SUSPECT = "suspect"
    """It is silent, or failed a request: it must answer a probe before it is used again."""
    DEAD = "dead"
    """Its rollout actor does not run; the supervisor starts it again, with the newest version."""


def state_of(
    *,
    is_running: bool,
    silent_s: float,
    unready_s: float,
    version: int,
    required: int,
    updating: int | None,
    doubt: str,
) -> tuple[EngineState, str]:
    """The state of an engine and, unless it is healthy, the reason. The first condition that holds decides.

    is_running   whether its rollout actor runs, by the board
    silent_s     seconds since the last beat of the rollout actor
    unready_s    for how long the board has shown that it takes no requests; 0 when it takes them
    version      the version it serves
    required     the oldest version that may be served (`dart.inference.weight_sync_plan`)
    updating     the version it is loading; None when it loads none
    doubt        why it must be proved by a probe; empty when it need not
    """
    if not is_running:
        return EngineState.DEAD, "it does not run"
    if silent_s > ENGINE_SILENT_S:
        return EngineState.SUSPECT, "it gives no sign of life"
    if updating is not None:
        return EngineState.UPDATING, f"it is loading version {updating}"
    if version < required:
        return EngineState.STALE, f"it serves version {version}, {required} is required"
    if doubt:
        return EngineState.SUSPECT, doubt
    if unready_s > UNREADY_S:
        return EngineState.SUSPECT, "its rollout actor shows that it takes no requests"
    return EngineState.HEALTHY, ""
