"""An actor as the pages show it."""

from typing import Any

import pytest

from dart.inspect.actor_table import in_tree_order
from dart.inspect.snapshot import ActorRow
from dart.web.actor_view import view_of


def actor(name: str, parent: str = "pool", **fields: Any) -> ActorRow:
    """One that is up and well but for what is said."""
    usual: dict[str, Any] = {"state": "running", "pid": 7, "incarnation": 1, "ready": True, "beat_age_s": 0.1}
    usual |= {"busy_s": 0.0, "handler": "", "messages": 1, "restarts": 0, "last_reason": ""}
    return ActorRow(**{"name": name, "parent": parent, **usual, **fields})


def test_children_stand_below_their_supervisor() -> None:
    actors = [actor("root", ""), actor("pool", "root"), actor("store", "root"), actor("env-000")]

    assert [(row.name, depth) for row, depth in in_tree_order(actors)] == [
        ("root", 0),
        ("pool", 1),
        ("env-000", 2),
        ("store", 1),
    ]


def test_an_actor_whose_supervisor_is_gone_is_shown() -> None:
    assert [row.name for row, _ in in_tree_order([actor("env-001", "an-ended-supervisor")])] == ["env-001"]


@pytest.mark.parametrize(
    ("fields", "shown", "doing"),
    [
        ({}, ("running", "good"), ""),
        ({"ready": False}, ("running, not ready", "warn"), ""),
        ({"busy_s": 2.0, "handler": "Generate"}, ("running", "good"), "Generate 2.0 s"),
        ({"process": "suspended"}, ("running, suspended", "bad"), ""),
        ({"process": "gone", "handler": "Step", "busy_s": 2.0}, ("running, gone", "bad"), ""),
        ({"beat_age_s": 20.0}, ("running", "good"), ""),
        ({"beat_age_s": 90.0}, ("running", "bad"), "no beat for 1m30s"),
        (
            {"state": "starting", "ready": False, "work": "load", "work_s": 20.0},
            ("starting", "info"),
            "load 20.0 s",
        ),
        (
            {"state": "stopping", "handler": "Stop", "busy_s": 1.5, "last_reason": "signal 9"},
            ("stopping", "info"),
            "Stop 1.5 s",
        ),
        ({"state": "failed", "last_reason": "signal 9"}, ("failed", "bad"), "signal 9"),
        (
            {"state": "backoff", "last_reason": "signal 9", "retry_in_s": 4.0},
            ("backoff", "warn"),
            "signal 9, next try in 4s",
        ),
        ({"state": "quarantined", "last_reason": "no display"}, ("quarantined", "rest"), "no display"),
        ({"state": "stopped", "last_reason": "normal"}, ("stopped", "idle"), "normal"),
    ],
)
def test_an_actor_is_shown_as_it_is(fields: dict[str, Any], shown: tuple[str, str], doing: str) -> None:
    row = view_of(actor("env-000", **fields), is_running=True)

    assert ((row.state, row.tone), row.doing) == (shown, doing)


def test_of_a_run_that_has_ended_nobody_is_called_alive() -> None:
    row = view_of(actor("env-000"), is_running=False)

    assert (row.state, row.tone) == ("ended", "idle")
