"""Rows as one host tells another of them."""

from typing import Any

from actors.board import STATES, ActorState
from actors.link import Row


def row(name: str, *, state: ActorState = ActorState.RUNNING, **changed: Any) -> Row:
    """A row of host `b` in its simplest form."""
    plain: dict[str, Any] = {
        "slot": 900,
        "host": "b",
        "name": name,
        "parent": "machine-b",
        "incarnation": 1,
        "state": STATES.index(state),
        "is_ready": True,
        "is_announced_to_all": True,
        "restarts": 0,
        "started": 0,
        "retry_in": None,
        "reason": "",
        "ended_incarnation": 0,
        "ended_reason": "",
        "last_error": "",
        "gauges": (0, 0, 0, 0),
    }
    return Row(**(plain | changed))
