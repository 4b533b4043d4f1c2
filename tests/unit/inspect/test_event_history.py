"""Events and reports as one story."""

from itertools import pairwise
from pathlib import Path

import pytest

from dart.core.errors import UsageError
from dart.core.records import Event
from dart.core.run_directory import RunPaths
from dart.inspect import event_history
from dart.inspect.event_history import EventFollower
from dart.inspect.formatting import clock, parse_span
from dart.store.store import Store
from supervision import reports
from supervision.reports import Offender, SupervisorReport


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    """Events at 10, 11, 12 s, a death at 11.5 s."""
    moments = iter([10.0, 11.0, 12.0])
    with Store(tmp_path / "store.db", clock=lambda: next(moments)) as store:
        for kind, subject in (("load", "env-000"), ("paused", "store"), ("starved", "trainer")):
            store.record_event(kind, subject, {"reason": "full"})
    report = SupervisorReport(
        unix_s=11.5,
        supervisor="environment_pool",
        context="child_terminated",
        reason="SIGKILL",
        offender=Offender(id="env-000", incarnation=2, pid=7),
        signal="SIGKILL",
    )
    reports.append(tmp_path, report)
    return RunPaths(tmp_path)


def kinds(paths: RunPaths, limit: int = 100, **wanted: object) -> list[str]:
    return [one.kind for one in event_history.read_events(paths, limit=limit, **wanted)]  # type: ignore[arg-type]


def test_events_and_deaths_stand_in_order_and_measurements_only_where_asked_for(paths: RunPaths) -> None:
    assert kinds(paths) == ["paused", "child_terminated", "starved"]
    assert kinds(paths, kinds=["load"]) == ["load"]


def test_an_engine_that_takes_a_version_over_is_no_news_and_one_that_is_well_again_is(tmp_path: Path) -> None:
    states = ["healthy", "updating", "healthy", "suspect", "healthy", "updating"]
    with Store(tmp_path / "store.db") as store:
        for before, state in pairwise(states):
            store.record_event("engine_state", "rollout-0", {"state": state, "before": before})
    paths = RunPaths(tmp_path)

    told = [one.data["state"] for one in event_history.read_events(paths, limit=2)]

    assert told == ["suspect", "healthy"]
    assert kinds(paths, kinds=["engine_state"]) == ["engine_state"] * 5


def test_routine_of_a_long_run_hides_neither_an_alarm_nor_an_engine_in_trouble(tmp_path: Path) -> None:
    """With as many changes of engine states as eight engines make in 75 updates."""
    with Store(tmp_path / "store.db") as store:
        store.record_event("alarm", "equal_rewards", {"stage": "raised"})
        store.record_event("engine_state", "rollout-1", {"state": "suspect", "before": "healthy"})
        for _ in range(600):
            for before, state in pairwise(["healthy", "updating", "healthy"]):
                store.record_event("engine_state", "rollout-0", {"state": state, "before": before})
    paths = RunPaths(tmp_path)

    assert kinds(paths) == ["alarm", "engine_state"]
    assert kinds(paths, limit=1) == ["engine_state"]
    assert kinds(paths, subject="equal_rewards") == ["alarm"]


def test_they_are_chosen_by_subject_kind_and_time(paths: RunPaths) -> None:
    assert kinds(paths, subject="env-000") == ["child_terminated"]
    assert kinds(paths, kinds=["paused", "child_terminated"]) == ["paused", "child_terminated"]
    assert kinds(paths, since_unix_s=11.4) == ["child_terminated", "starved"]


def test_of_too_many_the_newest_are_shown(paths: RunPaths) -> None:
    assert kinds(paths, limit=2) == ["child_terminated", "starved"]


def test_a_moment_is_a_time_of_day() -> None:
    line = event_history.event_line(
        Event(
            event_id=0,
            unix_s=7.0,
            kind="paused",
            subject="store",
            data={"began_unix_s": 3.5, "paused_s": 2.25},
        )
    )

    assert line.endswith(f"store             began={clock(3.5)}  paused_s=2.25")


def test_a_line_says_who_and_why(paths: RunPaths) -> None:
    (death,) = event_history.read_events(paths, subject="env-000")

    assert event_history.event_line(death).split() == [
        clock(11.5).split()[0],
        *clock(11.5).split()[1:],
        "child_terminated",
        "env-000",
        "incarnation=2",
        "reason=SIGKILL",
    ]


def test_a_kind_that_is_none_is_refused_with_what_looks_like_it() -> None:
    with pytest.raises(UsageError, match="no events of kind 'starve'; did you mean starved or"):
        event_history.refuse_unknown(["starve"])


def happening(unix_s: float, subject: str = "a") -> Event:
    return Event(event_id=0, unix_s=unix_s, kind="paused", subject=subject, data={})


def test_a_follower_shows_each_once_also_one_that_was_written_late() -> None:
    written = [happening(100.0)]
    follower = followed(written)

    first = follower.new()
    written += [happening(99.0, "late"), happening(101.0)]
    second = follower.new()

    assert first == []
    assert [one.subject for one in second] == ["late", "a"]
    assert follower.new() == []


def followed(written: list[Event], *, now_s: float = 100.0) -> EventFollower:
    return EventFollower(
        lambda since: sorted((one for one in written if one.unix_s >= since), key=lambda one: one.unix_s),
        lambda: now_s,
    )


def test_a_follower_shows_nothing_old_however_little_of_it_was_shown() -> None:
    written = [happening(1.0), happening(99.0), happening(100.0)]
    follower = followed(written)

    assert follower.new() == []
    meanwhile = happening(100.5)
    written.append(meanwhile)
    follower.has_shown([meanwhile])
    assert follower.new() == []


def test_a_clock_that_was_put_back_hides_nothing_that_happens_then() -> None:
    written, now_s = [happening(5000.0)], iter([5000.0, 5000.0, 5000.0, 100.0])
    follower = EventFollower(
        lambda since: [one for one in written if one.unix_s >= since], lambda: next(now_s)
    )

    assert follower.new() == []
    written.append(happening(100.0))
    assert [one.unix_s for one in follower.new()] == [100.0]


@pytest.mark.parametrize(
    ("span", "seconds"),
    [("90s", 90.0), ("10m", 600.0), ("1h30m", 5400.0), ("2d", 172800.0), ("0.5h", 1800.0)],
)
def test_a_span_of_time_is_read_in_its_units(span: str, seconds: float) -> None:
    assert parse_span(span) == seconds


@pytest.mark.parametrize("span", ["", "10", "10 m", "m", "-5m", "5y"])
def test_what_is_no_span_is_refused_with_an_example(span: str) -> None:
    with pytest.raises(UsageError, match="expected a time such as 90s, 10m"):
        parse_span(span)
