"""Every public method of the store: what it does, what it refuses, what repeating it does."""

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dart.core.record_address import RecordAddress
from dart.core.records import Evaluation, EvaluationPhase, Reassignment, Release, StoredResult
from dart.core.types import FaultKind, RolloutLease, RolloutState
from dart.store import queries
from dart.store.browse_queries import RunBrowser, TrajectoryFilter
from dart.store.errors import StoreConflict
from dart.store.reader import StoreReader
from dart.store.store import Store
from dart.testing.trajectories import EVALUATION, evaluation_play, step_at, trajectory_for
from tests.record_places import RecordPlaces

FAULT = FaultKind.INFRASTRUCTURE
NOW = 5000.0


@pytest.fixture
def store(places: RecordPlaces, new_record: RecordAddress) -> Iterator[Store]:
    with Store(new_record, clock=lambda: NOW, steps=places.steps) as opened:
        yield opened


def lease(store: Store, group_id: int | None = None) -> RolloutLease:
    if group_id is None:
        group_id = store.open_group("click-test", 7, 2, 10, 0)
    return store.lease_rollout(group_id, "env-000", NOW + 60)


def ready_group(store: Store, task_id: str = "click-test") -> int:
    group_id = store.open_group(task_id, 7, 2, 10, 0)
    for reward in (0.0, 1.0):
        leased = lease(store, group_id)
        assert (
            store.finish_rollout(leased.rollout_id, 1, trajectory_for(leased, reward))
            == StoredResult.ACCEPTED
        )
    return group_id


def test_a_new_lease_carries_everything_an_environment_needs(store: Store) -> None:
    group_id = store.open_group("click-test", 7, 2, 10, 0)
    leased = store.lease_rollout(group_id, "env-000", NOW + 60)
    assert leased == RolloutLease(
        rollout_id=leased.rollout_id,
        group_id=group_id,
        task_id="click-test",
        seed=7,
        step_cap=10,
        attempt=1,
        fence=1,
        deadline_unix_s=NOW + 60,
    )


def test_every_lease_of_a_new_rollout_counts_as_issued(store: Store) -> None:
    group_id = store.open_group("click-test", 7, 2, 10, 0)
    lease(store, group_id)
    lease(store, group_id)
    books = store.conservation()
    assert (books.issued, books.leased, books.holds) == (2, 2, True)


def test_a_group_issues_no_more_rollouts_than_it_wants(store: Store) -> None:
    group_id = store.open_group("click-test", 7, 1, 10, 0)
    lease(store, group_id)
    with pytest.raises(StoreConflict, match=f"group {group_id} is open with 1 of 1 rollouts issued"):
        lease(store, group_id)
    assert store.conservation().issued == 1


def test_a_dropped_group_issues_no_rollout(store: Store) -> None:
    group_id = lease(store).group_id
    store.drop_group(group_id, "stale")
    with pytest.raises(StoreConflict, match=f"group {group_id} is dropped with 1 of 2 rollouts issued"):
        lease(store, group_id)


def test_a_stored_trajectory_reads_back_bit_for_bit(store: Store) -> None:
    leased = lease(store)
    trajectory = trajectory_for(leased, reward=0.3, versions=(0, 1, 1))
    store.finish_rollout(leased.rollout_id, leased.fence, trajectory)
    (group,) = store.groups_to_trajectories([leased.group_id])
    assert group.trajectories == (trajectory,)


def test_groups_come_in_the_order_asked_for(store: Store) -> None:
    first, second = ready_group(store, "a"), ready_group(store, "b")
    assert [group.task_id for group in store.groups_to_trajectories([second, first])] == ["b", "a"]


def test_asking_for_an_unknown_group_names_it(store: Store) -> None:
    with pytest.raises(StoreConflict, match=r"no groups \[99\]"):
        store.groups_to_trajectories([99])


def test_the_same_report_twice_is_a_duplicate_and_stored_once(
    store: Store, fenced: Callable[[], int]
) -> None:
    leased = lease(store)
    for answer in (StoredResult.ACCEPTED, StoredResult.DUPLICATE):
        assert store.finish_rollout(leased.rollout_id, 1, trajectory_for(leased)) == answer
    assert store.totals(now_unix_s=NOW).trajectories == 1
    assert fenced() == 0


def test_a_reader_finds_every_episode_in_order_although_the_clock_is_set_back(
    places: RecordPlaces, new_record: RecordAddress
) -> None:
    moments = iter([NOW, NOW, NOW - 100, NOW - 99, NOW + 100])  # of the group, then of its episodes
    with Store(new_record, clock=lambda: next(moments), steps=places.steps) as store:
        group_id = store.open_group("click-test", 7, 4, 10, 0)
        leases = [lease(store, group_id) for _ in range(4)]
        stored, found = [leases[at] for at in (0, 2, 1, 3)], []
        for leased in stored:
            store.finish_rollout(leased.rollout_id, 1, trajectory_for(leased))
            found += store.finished_episodes(after=found[-1] if found else None)
    assert [episode.rollout_id for episode in found] == [leased.rollout_id for leased in stored]
    assert (found[0].stored_unix_s, found[-1].stored_unix_s) == (NOW, NOW + 100)
    assert {episode.rollouts_wanted for episode in found} == {4}


def test_a_repeated_report_is_a_duplicate_even_after_training(store: Store) -> None:
    group_id = ready_group(store)
    store.commit_update(store.lease_batch([group_id], 60.0).batch_id, 1, 1, {})
    (group,) = store.groups_to_trajectories([group_id])
    again = group.trajectories[0]
    assert store.finish_rollout(again.rollout_id, 1, again) == StoredResult.DUPLICATE


def test_a_late_report_from_a_lease_taken_away_is_ignored_and_counted(
    store: Store, fenced: Callable[[], int]
) -> None:
    old = lease(store)
    store.release_rollout(old.rollout_id, old.fence, FAULT, "lease expired", 3)
    new = store.reassign_rollout(old.rollout_id, "env-001", NOW + 60)
    assert isinstance(new, RolloutLease)
    assert (new.fence, new.attempt) == (2, 2)
    assert store.finish_rollout(old.rollout_id, old.fence, trajectory_for(old)) == StoredResult.FENCED
    assert fenced() == 1
    assert store.finish_rollout(new.rollout_id, new.fence, trajectory_for(new)) == StoredResult.ACCEPTED


def test_a_report_between_release_and_the_next_lease_is_fenced_too(store: Store) -> None:
    old = lease(store)
    store.release_rollout(old.rollout_id, old.fence, FAULT, "lease expired", 3)
    assert store.finish_rollout(old.rollout_id, old.fence, trajectory_for(old)) == StoredResult.FENCED


def test_a_report_for_a_dropped_group_is_fenced(store: Store) -> None:
    leased = lease(store)
    store.drop_group(leased.group_id, "stale")
    assert store.finish_rollout(leased.rollout_id, 1, trajectory_for(leased)) == StoredResult.FENCED


def test_a_spent_attempt_stays_leased_without_an_owner(store: Store) -> None:
    leased = lease(store)
    assert store.release_rollout(leased.rollout_id, 1, FAULT, "browser died", 3) == Release.AWAITING
    rollout = store.rollout(leased.rollout_id)
    assert (rollout.state, rollout.environment) == (RolloutState.LEASED, None)
    assert store.totals(now_unix_s=NOW).faults == {"infrastructure": 1}


def test_releasing_twice_spends_one_attempt(store: Store) -> None:
    leased = lease(store)
    answers = [store.release_rollout(leased.rollout_id, 1, FAULT, "browser died", 3) for _ in range(2)]
    assert answers == [Release.AWAITING, Release.DUPLICATE]
    assert store.totals(now_unix_s=NOW).faults == {"infrastructure": 1}


def test_the_last_attempt_drops_the_rollout_with_its_reason(store: Store) -> None:
    leased = lease(store)
    answers = [store.release_rollout(leased.rollout_id, 1, FAULT, "no", 1) for _ in range(2)]
    assert answers == [Release.DROPPED, Release.DUPLICATE]
    assert store.totals(now_unix_s=NOW).drops == {"attempts_spent:infrastructure": 1}
    assert store.conservation().dropped == 1


def test_releasing_an_old_lease_is_fenced_and_counted(store: Store, fenced: Callable[[], int]) -> None:
    leased = lease(store)
    store.release_rollout(leased.rollout_id, 1, FAULT, "browser died", 3)
    store.reassign_rollout(leased.rollout_id, "env-001", NOW)
    assert store.release_rollout(leased.rollout_id, 1, FAULT, "late", 3) == Release.FENCED
    assert store.rollout(leased.rollout_id).environment == "env-001"
    store.drop_group(leased.group_id, "stale")
    answers = [store.release_rollout(leased.rollout_id, fence, FAULT, "late", 3) for fence in (1, 2)]
    assert answers == [Release.FENCED, Release.DUPLICATE]
    assert fenced() == 2


def test_releasing_a_lease_that_ended_well_spends_nothing(store: Store, fenced: Callable[[], int]) -> None:
    leased = lease(store)
    store.finish_rollout(leased.rollout_id, 1, trajectory_for(leased))
    assert store.release_rollout(leased.rollout_id, 1, FAULT, "asked for work", 3) == Release.SETTLED
    assert store.totals(now_unix_s=NOW).faults == {}
    assert fenced() == 0


def test_a_rollout_somebody_plays_is_not_leased_again(store: Store) -> None:
    leased = lease(store)
    assert store.reassign_rollout(leased.rollout_id, "env-001", NOW) == Reassignment.OWNED


def test_a_stored_rollout_is_not_leased_again(store: Store) -> None:
    leased = lease(store)
    store.finish_rollout(leased.rollout_id, 1, trajectory_for(leased))
    assert store.reassign_rollout(leased.rollout_id, "env-001", NOW) == Reassignment.SETTLED


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reward": 1.5}, r"reward must be in \[0, 1\], got 1.5"),
        ({"reward": float("nan")}, "got nan"),
        ({"steps": ()}, "at least one step"),
        ({"seed": 8}, "expected a trajectory of"),
        ({"group_id": 99}, "expected a trajectory of"),
        ({"task_id": "login-user"}, "expected a trajectory of"),
        ({"steps": (replace(step_at(0), logprobs=(0.0,)),)}, "step 0: 1 logprobs for 3 tokens"),
        ({"steps": (replace(step_at(0), entropies=(0.0, 1.0, float("inf"))),)}, "entropies must be finite"),
        ({"steps": (replace(step_at(0), token_ids=(), logprobs=(), entropies=()),)}, "no tokens"),
    ],
)
def test_a_trajectory_that_training_could_not_use_is_refused(
    store: Store, change: dict[str, object], message: str
) -> None:
    leased = lease(store)
    bad = replace(trajectory_for(leased), **change)  # type: ignore[arg-type]
    with pytest.raises(StoreConflict, match=message):
        store.finish_rollout(leased.rollout_id, 1, bad)
    assert store.rollout(leased.rollout_id).state == RolloutState.LEASED


def test_dropping_a_group_drops_what_is_leased_and_stored_once(store: Store) -> None:
    group_id = store.open_group("click-test", 7, 2, 10, 0)
    first = lease(store, group_id)
    lease(store, group_id)
    store.finish_rollout(first.rollout_id, 1, trajectory_for(first))
    assert [store.drop_group(group_id, "no_spread") for _ in range(2)] == [2, 0]
    assert store.totals(now_unix_s=NOW).drops == {"no_spread": 2}
    assert store.conservation().holds


def test_a_group_at_the_trainer_is_not_dropped(store: Store) -> None:
    group_id = ready_group(store)
    store.lease_batch([group_id], 60.0)
    with pytest.raises(StoreConflict, match="is batched"):
        store.drop_group(group_id, "stale")


def test_one_batch_at_a_time(store: Store) -> None:
    first, second = ready_group(store), ready_group(store)
    batch_id = store.lease_batch([first], 60.0).batch_id
    with pytest.raises(StoreConflict, match=f"batch {batch_id} is still leased"):
        store.lease_batch([second], 60.0)


def test_an_unfinished_group_is_not_trained(store: Store) -> None:
    leased = lease(store)
    with pytest.raises(StoreConflict, match="2 are not finished yet and 0 are stored"):
        store.lease_batch([leased.group_id], 60.0)
    store.finish_rollout(leased.rollout_id, 1, trajectory_for(leased))
    with pytest.raises(StoreConflict, match="1 are not finished yet and 1 are stored"):
        store.lease_batch([leased.group_id], 60.0)


@pytest.mark.parametrize("copies", [0, 2])
def test_a_batch_names_each_of_its_groups_once(store: Store, copies: int) -> None:
    group_id = ready_group(store)
    with pytest.raises(StoreConflict, match="a batch must have at least one group, and each group once"):
        store.lease_batch([group_id] * copies, 60.0)


def test_an_open_batch_is_found_again_until_it_is_consumed(store: Store) -> None:
    groups = (ready_group(store), ready_group(store))
    batch_id = store.lease_batch(groups, 60.0).batch_id
    found = store.open_batch()
    assert found is not None
    assert (found.batch_id, found.group_ids) == (batch_id, groups)
    store.commit_update(batch_id, 1, 1, {})
    assert store.open_batch() is None


def test_an_update_trains_its_batch_and_makes_its_version_at_once(store: Store) -> None:
    batch_id = store.lease_batch([ready_group(store)], 60.0).batch_id
    assert store.commit_update(batch_id, 1, 1, {"loss": 0.5}) == StoredResult.ACCEPTED
    newest = store.latest_version()
    assert newest is not None
    assert (newest.version, newest.metrics) == (1, {"loss": 0.5})
    assert store.conservation().trained == 2
    assert store.integrity(0) == ()


@pytest.mark.only_sqlite
def test_an_update_is_on_the_disk_before_it_is_acknowledged(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch_id = store.lease_batch([ready_group(store)], 60.0).batch_id
    synced: list[Path] = []
    monkeypatch.setattr("os.fsync", lambda fd: synced.append(Path(f"/proc/self/fd/{fd}").readlink()))
    store.commit_update(batch_id, 1, 1, {})
    assert synced == [store.address.with_name(f"{store.address.name}-wal")]


def test_the_very_same_update_again_is_a_duplicate(store: Store) -> None:
    batch_id = store.lease_batch([ready_group(store)], 60.0).batch_id
    answers = [store.commit_update(batch_id, 1, 1, {}) for _ in range(2)]
    assert answers == [StoredResult.ACCEPTED, StoredResult.DUPLICATE]
    assert len(store.versions()) == 2


def test_a_consumed_batch_is_not_trained_twice(store: Store) -> None:
    batch_id = store.lease_batch([ready_group(store)], 60.0).batch_id
    store.commit_update(batch_id, 1, 1, {})
    with pytest.raises(StoreConflict, match="is consumed"):
        store.commit_update(batch_id, 1, 2, {})


@pytest.mark.parametrize("version", [0, 2])
def test_a_version_must_follow_the_newest(store: Store, version: int) -> None:
    batch_id = store.lease_batch([ready_group(store)], 60.0).batch_id
    with pytest.raises(StoreConflict, match=f"version {version} does not follow the newest version 0"):
        store.commit_update(batch_id, 1, version, {})
    assert store.conservation().trained == 0


def test_a_batch_given_back_can_be_leased_again(store: Store) -> None:
    group_id = ready_group(store)
    batch_id = store.lease_batch([group_id], 60.0).batch_id
    for _ in range(2):
        store.refuse_batch(batch_id, 1, (), (), "test", "")
    assert store.open_batch() is None
    with pytest.raises(StoreConflict, match="is released"):
        store.commit_update(batch_id, 1, 1, {})
    store.commit_update(store.lease_batch([group_id], 60.0).batch_id, 1, 1, {})
    assert store.integrity(0) == ()


def test_a_batch_given_back_twice_leaves_its_groups_next_batch_alone(store: Store) -> None:
    group_id = ready_group(store)
    first = store.lease_batch([group_id], 60.0).batch_id
    store.refuse_batch(first, 1, (), (), "test", "")
    second = store.lease_batch([group_id], 60.0).batch_id
    store.refuse_batch(first, 1, (), (), "test", "")
    found = store.open_batch()
    assert found is not None
    assert (found.batch_id, found.group_ids) == (second, (group_id,))


def test_a_consumed_batch_cannot_be_given_back(store: Store) -> None:
    batch_id = store.lease_batch([ready_group(store)], 60.0).batch_id
    store.commit_update(batch_id, 1, 1, {})
    with pytest.raises(StoreConflict, match="was consumed by the update that made version 1"):
        store.refuse_batch(batch_id, 1, (), (), "test", "")


def test_the_base_version_is_added_once(store: Store) -> None:
    assert store.add_version() == StoredResult.DUPLICATE
    assert [version.version for version in store.versions()] == [0]


def test_an_evaluation_keeps_its_first_reward(store: Store) -> None:
    evaluation = Evaluation(
        phase=EvaluationPhase.BEFORE, policy_version=0, task_id="click-test", seed=1_000_001, reward=1.0
    )
    assert store.record_evaluation(evaluation) == StoredResult.ACCEPTED
    assert store.record_evaluation(replace(evaluation, reward=0.0)) == StoredResult.DUPLICATE
    assert store.evaluations() == (evaluation,)
    greedy = replace(evaluation, is_greedy=True, reward=0.0)
    kept = store.record_evaluation(greedy)
    assert kept == StoredResult.ACCEPTED, "the same seed played with the most likely answers is another"
    assert store.evaluations() == (evaluation, greedy)
    assert store.evaluations(EvaluationPhase.AFTER) == ()


def test_how_an_evaluation_was_played_is_kept_with_its_first_reward(store: Store) -> None:
    first, second = evaluation_play("env-000"), evaluation_play("env-001")
    store.record_evaluation(EVALUATION, first)
    store.record_evaluation(EVALUATION, second)
    store.record_evaluation(replace(EVALUATION, is_greedy=True), second)
    with RunBrowser(store.address, steps=store._steps) as browser:
        kept = browser.evaluation_page(TrajectoryFilter())
        assert browser.evaluation_episode(kept[-1].evaluation_id) == kept[-1]
        assert browser.evaluation_page(TrajectoryFilter(seed=EVALUATION.seed)) == kept
        assert browser.evaluation_page(TrajectoryFilter(seed=EVALUATION.seed + 1)) == ()
    assert [(one.is_greedy, one.play) for one in kept] == [(True, second), (False, first)]


def test_events_are_read_in_the_order_in_which_they_were_recorded(store: Store) -> None:
    store.record_event("restart", "env-003", {"reason": "killed"})
    store.record_event("drop", "group 4")
    first, second = store.find_events()
    assert (first.kind, first.subject, first.data) == ("restart", "env-003", {"reason": "killed"})
    assert (second.kind, second.subject, second.unix_s, second.data) == ("drop", "group 4", NOW, {})


@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.rollout(99),
        lambda store: store.group(99),
        lambda store: store.lease_rollout(99, "env-000", NOW),
        lambda store: store.release_rollout(99, 1, FAULT, "", 3),
        lambda store: store.commit_update(99, 1, 1, {}),
    ],
)
def test_an_unknown_key_is_named(store: Store, call: Callable[[Store], object]) -> None:
    with pytest.raises(StoreConflict, match=r"has no (rollout|group|batch) 99"):
        call(store)


def test_what_a_success_is_may_change_and_the_longest_one_follows(places: RecordPlaces, store: Store) -> None:
    """The record stays sound whatever the threshold."""
    group_id = store.open_group("click-test", 7, 4, 10, 0)
    found = []
    for threshold in (0.5, 0.9, 0.0, 0.5):
        store.close()
        with Store(store.address, success_above=threshold, steps=places.steps) as again:
            if len(found) < 3:
                reward, steps = ((0.4, 9), (1.0, 3), (0.6, 5))[len(found)]
                leased = lease(again, group_id)
                played = trajectory_for(leased, reward, versions=[0] * steps)
                again.finish_rollout(leased.rollout_id, 1, played)
            again.recount_successes()
            (statistics,) = again.task_statistics()
            found.append(statistics.longest_success_steps)
            assert again.integrity(0) == ()
    assert found == [None, 3, 9, 5]


def test_task_statistics_tell_recent_seeds_and_rewards_and_the_longest_success(store: Store) -> None:
    group_id = store.open_group("click-test", 7, 4, 10, 0)
    for reward, steps in ((1.0, 3), (0.0, 9), (1.0, 2)):
        leased = lease(store, group_id)
        store.finish_rollout(leased.rollout_id, 1, trajectory_for(leased, reward, versions=[0] * steps))
    (statistics,) = store.task_statistics(recent_rewards=2)
    assert statistics.groups_opened == 1
    assert statistics.recent == ((7, 0.0), (7, 1.0))
    assert statistics.longest_success_steps == 3


def test_totals_count_by_outcome_and_over_windows(store: Store) -> None:
    assert store.totals(now_unix_s=NOW).recent_success is None
    ready_group(store)
    totals = store.totals(last=1, now_unix_s=NOW + 30)
    assert (totals.trajectories, totals.steps, totals.outcomes) == (2, 4, {"finished": 2})
    assert totals.recent_success == 1.0
    assert totals.steps_per_minute == 4.0
    assert store.totals(now_unix_s=NOW + 61).steps_per_minute == 0.0


def test_a_success_counts_whole_and_a_reward_below_it_not_at_all(store: Store) -> None:
    group_id = store.open_group("click-test", 7, 4, 10, 0)
    for reward in (0.9, 0.3, 0.6, 0.4):
        leased = lease(store, group_id)
        store.finish_rollout(leased.rollout_id, 1, trajectory_for(leased, reward))

    assert store.totals(now_unix_s=NOW, success_above=0.5).recent_success == 0.5


@pytest.mark.only_sqlite
def test_the_newest_events_are_found_without_a_walk_through_all_the_others(store: Store) -> None:
    """Of weeks: a load of every actor every few seconds, and seldom anything else."""
    rows = [
        (float(second), "starved" if second % 5000 == 0 else "load", "a", "{}", b"")
        for second in range(20_000)
    ]
    with contextlib.closing(sqlite3.connect(store.address)) as connection, connection:
        insert = "INSERT INTO events (unix_s, kind, subject, data, checksum) VALUES (?, ?, ?, ?, ?)"
        connection.executemany(insert, rows)
    looked: list[int] = []

    def looks() -> int:
        looked.append(1)
        return 0

    with StoreReader(store.address) as reader:
        reader._bare.set_progress_handler(looks, 100)
        news = reader.find_events(without=("load",), limit=50)
        since = reader.find_events(since_unix_s=19_990.0)

    assert [event.unix_s for event in news] == [0.0, 5000.0, 10_000.0, 15_000.0]
    assert [event.unix_s for event in since] == [float(second) for second in range(19_990, 20_000)]
    assert len(looked) < 100


def test_a_reader_in_its_own_connection_sees_what_was_committed(store: Store) -> None:
    with StoreReader(store.address) as reader:
        assert reader.snapshot().groups == ()
        leased = lease(store)
        (group,) = reader.snapshot().groups
        assert [rollout.rollout_id for rollout in group.rollouts] == [leased.rollout_id]
        assert reader.snapshot().version == 0


def test_a_snapshot_leaves_out_consumed_and_dropped_groups(store: Store) -> None:
    consumed, batched, dropped = (ready_group(store) for _ in range(3))
    store.commit_update(store.lease_batch([consumed], 60.0).batch_id, 1, 1, {})
    batch_id = store.lease_batch([batched], 60.0).batch_id
    store.drop_group(dropped, "stale")
    snapshot = store.snapshot()
    assert [(group.group_id, group.batch_id) for group in snapshot.groups] == [(batched, batch_id)]
    assert snapshot.batch is not None
    assert snapshot.version == 1


def test_the_newest_event_of_a_kind_is_found_among_others(store: Store) -> None:
    for kind, number in (("load", 1), ("load", 2), ("starved", 3)):
        store.record_event(kind, "trainer", {"number": number})

    with StoreReader(store.address) as reader:
        newest = reader.newest_event("load")

        assert newest is not None
        assert (newest.subject, newest.data) == ("trainer", {"number": 2})
        assert reader.newest_event("paused") is None


@pytest.mark.only_sqlite
def test_events_that_were_counted_are_not_looked_at_again(store: Store) -> None:
    for kind in ("starved", "paused", "load", "starved"):
        store.record_event(kind, "trainer")

    with StoreReader(store.address) as reader:
        asked: list[str] = []
        known = reader.event_counts(("starved", "paused"))
        assert known.of_kind == {"starved": 2, "paused": 1}
        reader._bare.set_trace_callback(asked.append)
        store.record_event("starved", "trainer")
        known = reader.event_counts(("starved", "paused"), known)
        assert (known.of_kind, known.newest_id) == ({"starved": 3, "paused": 1}, 5)
        assert any("event_id > 4 " in query for query in asked)
        ahead = replace(known, newest_id=99)
        assert reader.event_counts(("starved",), ahead).of_kind == {"starved": 3}, "of another record"


def test_newer_events_are_added_to_those_that_were_counted(store: Store) -> None:
    store.record_event("starved", "trainer")
    known = store.event_counts(("starved", "paused"))
    for kind in ("starved", "paused", "load"):
        store.record_event(kind, "trainer")
    assert store.event_counts(("starved", "paused"), known).of_kind == {"starved": 2, "paused": 1}


@pytest.mark.only_sqlite
def test_newer_events_are_counted_by_their_ids_and_not_by_the_index_of_kinds(store: Store) -> None:
    values = {"kinds": ["starved", "paused"], "since_id": 4}
    plan = queries.execute(store._bare, f"EXPLAIN QUERY PLAN {queries.EVENT_COUNTS_SINCE}", values)
    (search, *others) = [step for *_, step in plan]
    assert search == "SEARCH events USING INTEGER PRIMARY KEY (rowid>?)"
    assert not any("events" in other for other in others)


def test_dropped_groups_and_finished_episodes_are_counted_by_task(store: Store) -> None:
    ready_group(store, "click-test")
    for task_id, reason in (("click-test", "no_spread"), ("click-test", "stale"), ("click-tab", "no_spread")):
        store.drop_group(ready_group(store, task_id), reason)

    with StoreReader(store.address) as reader:
        assert reader.drops_by_task() == {
            "click-test": {"no_spread": 1, "stale": 1},
            "click-tab": {"no_spread": 1},
        }
        assert {task.task_id: task.finished for task in reader.task_statistics()} == {
            "click-test": 6,
            "click-tab": 2,
        }


def test_parked_episodes_are_counted_ever_and_now(store: Store) -> None:
    leased = lease(store)
    store.park_rollout(leased.rollout_id, leased.fence, (step_at(0),), "the environment stops", 8)

    assert store.parkings() == (1, 1)

    again = store.reassign_rollout(leased.rollout_id, "env-001", NOW + 60)
    assert isinstance(again, RolloutLease)
    store.finish_rollout(again.rollout_id, again.fence, trajectory_for(again, versions=(0, 0)))

    assert store.parkings() == (1, 0)


def test_a_record_is_opened_again_in_the_epoch_of_the_writer_before(new_record: RecordAddress) -> None:
    """The store of a run writes in the epoch that the run began; on SQLite there is none."""
    with Store(new_record) as begins:
        epoch = begins.epoch
    with Store(new_record, epoch=epoch) as goes_on:
        goes_on.add_version()
