"""The state of an engine, fact by fact."""

from typing import Any

import pytest

from dart.inference.engine_state import UNREADY_S, EngineState, state_of
from dart.telemetry.liveness import ENGINE_SILENT_S

WELL: dict[str, Any] = {
    "is_running": True,
    "silent_s": 0.1,
    "unready_s": 0.0,
    "version": 4,
    "required": 4,
    "updating": None,
    "doubt": "",
}


@pytest.mark.parametrize(
    ("facts", "state", "why"),
    [
        ({}, EngineState.HEALTHY, ""),
        ({"required": 3}, EngineState.HEALTHY, ""),
        ({"unready_s": UNREADY_S}, EngineState.HEALTHY, ""),
        ({"is_running": False}, EngineState.DEAD, "does not run"),
        ({"silent_s": ENGINE_SILENT_S + 0.1}, EngineState.SUSPECT, "no sign of life"),
        ({"updating": 5}, EngineState.UPDATING, "version 5"),
        ({"required": 5}, EngineState.STALE, "serves version 4, 5 is required"),
        ({"doubt": "env-003: no answer within 30 s"}, EngineState.SUSPECT, "env-003: no answer within 30 s"),
        ({"unready_s": UNREADY_S + 0.1}, EngineState.SUSPECT, "takes no requests"),
        # the first that is true counts
        ({"is_running": False, "silent_s": 9.0, "updating": 5}, EngineState.DEAD, "does not run"),
        ({"silent_s": 9.0, "updating": 5, "required": 5}, EngineState.SUSPECT, "no sign of life"),
        ({"updating": 5, "required": 5, "doubt": "late"}, EngineState.UPDATING, "version 5"),
        ({"required": 5, "doubt": "late", "unready_s": 9.0}, EngineState.STALE, "5 is required"),
    ],
)
def test_the_state_follows_from_the_facts_and_says_why(
    facts: dict[str, Any], state: EngineState, why: str
) -> None:
    found, reason = state_of(**(WELL | facts))
    assert found is state
    assert (reason == "") == (state is EngineState.HEALTHY)
    assert why in reason
