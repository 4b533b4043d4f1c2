"""Decisions about tasks and events: kept in order, told twice kept once, the newest of each kind at hand."""

from dataclasses import replace

from dart.core.messages import EventDraft
from dart.core.records import DecisionKind, TaskDecision
from dart.store.store import Store

FEWER = TaskDecision(
    task_id="click-test",
    kind=DecisionKind.ROLLOUTS,
    before="8",
    after="4",
    reason="success 0.80 over the last 8",
    policy_version=3,
    unix_s=100.0,
)
MORE = replace(FEWER, before="4", after="8", reason="success 0.25 over the last 4", unix_s=200.0)
SHORTER = replace(FEWER, kind=DecisionKind.STEP_CAP, before="30", after="6", unix_s=200.0)
OTHER = replace(FEWER, task_id="login-user")


def test_decisions_are_read_in_the_order_they_were_made(record: Store) -> None:
    assert record.record_decisions((FEWER, MORE, SHORTER, OTHER)) == 4
    assert record.decisions() == (FEWER, MORE, SHORTER, OTHER)
    assert record.decisions("click-test", limit=2) == (MORE, SHORTER)


def test_a_decision_told_twice_is_kept_once(record: Store) -> None:
    assert record.record_decisions((FEWER, OTHER)) == 2
    assert record.record_decisions((FEWER, MORE)) == 1
    assert record.decisions("click-test") == (FEWER, MORE)


def test_a_decision_told_twice_is_no_damage(record: Store) -> None:
    for _ in range(2):
        record.record_decisions((FEWER,))
    assert record.damaged_rows(full=True) == []


def test_a_task_shows_the_newest_decision_of_each_kind(record: Store) -> None:
    record.record_decisions((FEWER, SHORTER, MORE, OTHER))
    click, login = record.task_statistics()
    assert click.decided == {DecisionKind.ROLLOUTS: MORE, DecisionKind.STEP_CAP: SHORTER}
    assert login.decided == {DecisionKind.ROLLOUTS: OTHER}
    assert record.snapshot().tasks == (click, login)
    assert record.integrity() == ()


def test_events_of_one_call_are_kept_in_order(record: Store) -> None:
    drafts = tuple(EventDraft(kind="load", subject=name, data={"busy_s": 1.5}) for name in ("a", "b"))
    assert record.record_events(drafts) == 2
    assert record.record_events(()) == 0
    assert [(event.subject, event.data) for event in record.find_events()] == [
        ("a", {"busy_s": 1.5}),
        ("b", {"busy_s": 1.5}),
    ]
