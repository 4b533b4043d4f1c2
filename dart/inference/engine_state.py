"""Decides whether requests may be sent to an engine, from facts that any process can read. Pure."""

from enum import StrEnum

from dart.telemetry.liveness import ENGINE_SILENT_S

UNREADY_S = 1.0
"""An engine that is not loading and has taken no requests for this time in seconds is suspect. Just before
and after a load, an engine takes no requests for a moment, which is normal."""


class EngineState(StrEnum):
    """The states of an engine, which say whether environments may send requests to it."""

    HEALTHY = "healthy"
    """The engine answers, with a version that may still be served."""
    UPDATING = "updating"
    """The engine loads a new version; requests wait meanwhile."""
    STALE = "stale"
    """The engine's version is older than required. It answers no request until it has proved a newer one."""
    SUSPECT = "suspect"
    """The engine is silent, or failed a request. It must answer a probe before it is used again."""
    DEAD = "dead"
    """The rollout actor of the engine does not run. Its supervisor restarts it, with the newest version."""


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
    """Return the state of an engine and the reason, which is empty if the engine is healthy.

    If several states apply, the first of these is returned: dead, silent (suspect), updating, stale, suspect.

    is_running   whether the board shows that the rollout actor of the engine runs
    silent_s     seconds since the last beat of the rollout actor
    unready_s    seconds for which the board has shown that the engine takes no requests; 0 if it takes them
    version      version that the engine serves
    required     oldest version that may be served (`dart.inference.weight_sync_plan`)
    updating     version that the engine is loading; None if it loads none
    doubt        why the engine must answer a probe first; empty if it need not
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
