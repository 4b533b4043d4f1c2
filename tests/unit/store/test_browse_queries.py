"""The record as a person looks through it."""

from itertools import pairwise

import pytest

from dart.core.types import FaultKind, RolloutLease
from dart.store.browse_queries import EVENTS_WHOLE, RunBrowser, TrajectoryFilter
from dart.store.store import Store
from dart.testing.trajectories import trajectory_for
from tests.record_places import RecordPlaces


def played(record: Store, task: str, *rewards: float) -> list[int]:
    """A group of a task whose rollouts got these rewards."""
    group = record.open_group(task, 1, len(rewards), 10, 0)
    found = []
    for reward in rewards:
        lease = record.lease_rollout(group, "env-000", 9999.0)
        record.finish_rollout(lease.rollout_id, lease.fence, trajectory_for(lease, reward))
        found.append(lease.rollout_id)
    return found


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (TrajectoryFilter(), [4, 3, 2, 1]),
        (TrajectoryFilter(task_id="a"), [2, 1]),
        (TrajectoryFilter(is_success=True), [4, 2]),
        (TrajectoryFilter(is_success=False), [3, 1]),
        (TrajectoryFilter(is_success=True, success_above=1.0), []),
        (TrajectoryFilter(outcome="finished", before_id=3), [2, 1]),
        (TrajectoryFilter(outcome="parse_error"), []),
    ],
)
def test_a_page_lists_what_was_asked_for_newest_first(
    record: Store, wanted: TrajectoryFilter, expected: list[int]
) -> None:
    played(record, "a", 0.0, 1.0)
    played(record, "b", 0.0, 1.0)

    with RunBrowser(record.address) as browser:
        assert [row.rollout_id for row in browser.trajectory_page(wanted)] == expected
        assert len(browser.trajectory_page(wanted, limit=1)) == min(1, len(expected))


def test_a_trained_episode_says_which_version_it_made(places: RecordPlaces, record: Store) -> None:
    first, second = played(record, "a", 0.0, 1.0)
    batch = record.lease_batch([1], 9999.0)
    record.commit_update(batch.batch_id, batch.fence, 1, {})

    with RunBrowser(record.address, steps=places.steps) as browser:
        fate = browser.fate(first)
        assert fate is not None
        assert (fate.trained_version, fate.group, fate.rollout.state) == (1, (first, second), "trained")
        assert fate.stored_unix_s == 5000.0
        found = browser.trajectory(first)
        assert found is not None
        assert len(found.steps) == 2
        assert browser.fate(99) is None
        assert browser.trajectory(99) is None


def test_an_episode_that_failed_shows_its_attempts(record: Store) -> None:
    group = record.open_group("a", 1, 1, 10, 0)
    lease = record.lease_rollout(group, "env-000", 9999.0)
    record.release_rollout(lease.rollout_id, lease.fence, FaultKind.INFRASTRUCTURE, "died", 5)
    again = record.reassign_rollout(lease.rollout_id, "env-001", 9999.0)
    assert isinstance(again, RolloutLease)

    with RunBrowser(record.address) as browser:
        fate = browser.fate(lease.rollout_id)
        assert fate is not None
        assert [(one.attempt, one.environment, one.detail) for one in fate.attempts] == [
            (1, "env-000", "died")
        ]
        assert fate.trained_version is None
        assert browser.newest_attempts() == fate.attempts
        assert browser.trajectory(lease.rollout_id) is None


def test_what_was_played_is_counted_by_bin(record: Store) -> None:
    played(record, "a", 0.0, 1.0, 1.0)

    with RunBrowser(record.address) as browser:
        assert browser.played_over_time(4900.0, 5100.0, 60.0, 0.5) == {1: (3, 2, 6)}
        assert browser.played_over_time(4900.0, 5100.0, 60.0, 0.5, "b") == {}
        assert browser.played_over_time(5001.0, 5100.0, 60.0, 0.5) == {}


def test_episodes_over_time_are_counted_for_all_tasks_in_one_query(places: RecordPlaces) -> None:
    clock, address = [1000.0], places.empty()
    with Store(address, clock=lambda: clock[0], steps=places.steps) as record:
        played(record, "a", 0.0, 1.0)
        clock[0] = 1010.0
        played(record, "a", 1.0)
        played(record, "b", 0.0)

    with RunBrowser(address) as browser:
        span = 1000.0, 1060.0, 10.0, 0.5
        counted = browser.played_by_task(*span)
        assert counted == {"a": {0: (2, 1, 4), 1: (1, 1, 2)}, "b": {1: (1, 0, 2)}}
        assert counted["a"] == browser.played_over_time(*span, "a")
        assert browser.played_by_task(1011.0, 1060.0, 10.0, 0.5) == {}


def test_faults_are_counted_by_kind_and_bin(record: Store) -> None:
    group = record.open_group("a", 1, 1, 10, 0)
    lease = record.lease_rollout(group, "env-000", 9999.0)
    record.release_rollout(lease.rollout_id, lease.fence, FaultKind.SYSTEM, "no engine", 5)

    with RunBrowser(record.address) as browser:
        assert browser.faults_over_time(4000.0, 6000.0, 500.0) == {"system": {2: 1}}
        assert browser.faults_over_time(5001.0, 6000.0, 500.0) == {}


def test_a_record_that_ends_with_a_failed_attempt_ends_at_its_moment(places: RecordPlaces) -> None:
    clock, address = [1000.0], places.empty()
    with Store(address, clock=lambda: clock[0], steps=places.steps) as record:
        lease = record.lease_rollout(record.open_group("a", 1, 1, 10, 0), "env-000", 9999.0)
        clock[0] = 2000.0
        record.release_rollout(lease.rollout_id, lease.fence, FaultKind.SYSTEM, "no engine", 5)

    with RunBrowser(address) as browser:
        assert browser.last_unix_s() == 2000.0


def test_events_of_a_kind_are_found_by_their_moment(places: RecordPlaces) -> None:
    clock, address = [0.0], places.empty()
    with Store(address, clock=lambda: clock[0]) as record:
        for moment in range(10):
            clock[0] = float(moment)
            record.record_event("load", "env-000", {"wall_s": moment})
            record.record_event("starved", "trainer", {})

    with RunBrowser(address) as browser:
        found = browser.sampled_events("load", 2.0, 5.0, subjects=1)
        assert [event.unix_s for event in found.events] == [2.0, 3.0, 4.0]
        assert found.apart_s == 0.0
        assert browser.sampled_events("load", 20.0, 30.0, subjects=1).events == ()
        assert [
            event.unix_s for event in browser.find_events(kinds=["starved"], subject="trainer", limit=2)
        ] == [8.0, 9.0]
        assert browser.find_events(kinds=["starved"], subject="another") == ()
        newest = browser.newest_event_about("load", "env-000")
        assert newest is not None
        assert newest.unix_s == 9.0
        assert browser.last_unix_s() == 9.0


def test_of_very_many_events_a_sample_from_all_over_is_read(
    places: RecordPlaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dart.store.browse_queries.EVENTS_WHOLE", 80)
    clock, address = [0.0], places.empty()
    with Store(address, clock=lambda: clock[0]) as record:
        for moment in range(200):
            clock[0] = float(moment)
            record.record_event("load", "env-000", {})
        clock[0] = 36_000.0  # after a night in which the run was stopped
        record.record_event("load", "env-000", {})

    with RunBrowser(address) as browser:
        found = browser.sampled_events("load", 0.0, 100_000.0, subjects=1)
        *moments, last = [event.unix_s for event in found.events]

    assert EVENTS_WHOLE > 80
    assert len(moments) < 100
    assert moments[0] == 0.0
    assert moments[-1] >= 198.0
    assert last == 36_000.0
    assert 0.0 < found.apart_s <= max(after - before for before, after in pairwise(moments)) + 1.0 <= 6.0


def test_a_sample_of_events_has_every_subject_also_at_its_end(
    places: RecordPlaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dart.store.browse_queries.EVENTS_WHOLE", 300)
    clock, address = [0.0], places.empty()
    subjects = [f"env-{number:03d}" for number in range(30)]
    with Store(address, clock=lambda: clock[0]) as record:
        for moment in range(20):
            clock[0] = float(moment)
            for subject in subjects:
                record.record_event("load", subject, {})

    with RunBrowser(address) as browser:
        events = browser.sampled_events("load", 0.0, 1000.0, len(subjects)).events

    assert len(events) < 20 * len(subjects)
    assert {event.subject for event in events if event.unix_s == 19.0} == set(subjects)


def test_of_very_many_versions_an_even_choice_is_read(record: Store) -> None:
    for version in range(1, 7):
        played(record, "a", 0.0, 1.0)
        batch = record.lease_batch([version], 9999.0)
        record.commit_update(batch.batch_id, batch.fence, version, {})

    with RunBrowser(record.address) as browser:
        assert [one.version for one in browser.versions_between(0.0, 9999.0)] == [1, 2, 3, 4, 5, 6]
        assert [one.version for one in browser.versions_between(0.0, 9999.0, most=3)] == [2, 4, 6]
        assert browser.versions_between(0.0, 1.0) == ()
        assert browser.began_unix_s() == 5000.0


def test_methods_in_one_state_see_no_write_that_comes_between_them(record: Store) -> None:
    with RunBrowser(record.address) as browser:
        with browser.one_state():
            before = browser.totals(last=1, success_above=0.5)
            played(record, "a", 1.0)
            within = browser.totals(last=1, success_above=0.5)
        after = browser.totals(last=1, success_above=0.5)

    assert [found.trajectories for found in (before, within, after)] == [0, 0, 1]
