"""The service carries decisions out against a real record, and believes the record."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle, pairwise
from pathlib import Path
from typing import Any

import pytest

from actors.codec import MAX_MESSAGE_BYTES, packed_bytes
from dart.core.messages import BatchAhead, NoWorkYet, RecordDecisions
from dart.core.records import (
    Batch,
    DecisionKind,
    RolloutRecord,
    SeedReward,
    Snapshot,
    TaskDecision,
    TaskStatistics,
)
from dart.core.types import FaultKind, RolloutLease, RolloutState
from dart.curation.quota import fixed_quota
from dart.curation.service import DECISIONS_MOST, CurationService, open_service, parts_of
from dart.curation.settings import CuratorSettings
from dart.curation.step_cap import StepCap
from dart.store.store import Store
from dart.telemetry.events import BATCH_REFUSED
from dart.testing.local_record import LocalRecord, at_once
from dart.testing.trajectories import trajectory_for

NOW = 1000.0
SETTINGS = CuratorSettings(
    tasks=("click-test",),
    seeds=range(10),
    quota=fixed_quota(2),
    largest_step_cap=10,
    groups_per_update=1,
    staleness_bound=0,
    max_attempts=2,
    lease_s=60.0,
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "store.db", clock=lambda: NOW) as opened:
        opened.add_version()
        yield opened


@pytest.fixture
def service(store: Store) -> CurationService:
    return reopened(store)


class Clock:
    """Unix seconds, as told."""

    def __init__(self) -> None:
        self.now_unix_s = NOW

    def __call__(self) -> float:
        return self.now_unix_s


def reopened(
    store: Store, settings: CuratorSettings = SETTINGS, clock: Clock | None = None
) -> CurationService:
    service = at_once(open_service(settings, LocalRecord(store), clock or Clock()))
    service.serving(0)
    return service


def leased(service: CurationService, environment: str) -> RolloutLease:
    answer = at_once(service.work(environment))
    assert isinstance(answer, RolloutLease), answer
    return answer


def stored(store: Store, lease: RolloutLease, reward: float) -> None:
    store.finish_rollout(lease.rollout_id, lease.fence, trajectory_for(lease, reward))


def played(service: CurationService, store: Store, *rewards: float) -> RolloutLease:
    """Rollouts with these rewards, stored and told of; returns the last one's lease."""
    for number, reward in enumerate(rewards):
        lease = leased(service, f"env-{number:03d}")
        stored(store, lease, reward)
        at_once(service.look(lease.rollout_id))
    return lease


def test_rollouts_of_one_group_share_task_and_seed_until_all_are_out(service: CurationService) -> None:
    first, second = leased(service, "env-000"), leased(service, "env-001")
    assert (first.group_id, first.task_id, first.seed) == (second.group_id, second.task_id, second.seed)
    assert first.deadline_unix_s == NOW + 60
    third = at_once(service.work("env-002"))
    assert isinstance(third, NoWorkYet)
    assert "1 groups are live" in third.reason


def test_a_lost_rollout_is_the_next_thing_anybody_gets(service: CurationService) -> None:
    lost = leased(service, "env-000")
    at_once(service.failed(lost.rollout_id, lost.fence, FaultKind.INFRASTRUCTURE, "browser died"))
    again = leased(service, "env-001")
    assert (again.rollout_id, again.attempt, again.fence) == (lost.rollout_id, 2, 2)


def test_a_rollout_that_is_played_by_the_record_is_not_given_out_again(
    service: CurationService, store: Store
) -> None:
    lost = leased(service, "env-000")
    at_once(service.failed(lost.rollout_id, lost.fence, FaultKind.INFRASTRUCTURE, "browser died"))
    store.reassign_rollout(lost.rollout_id, "env-009", NOW + 60)
    assert leased(service, "env-001").rollout_id != lost.rollout_id


def test_a_restarted_environment_gets_its_rollout_again_as_a_new_attempt(service: CurationService) -> None:
    before, after = leased(service, "env-000"), leased(service, "env-000")
    assert (after.rollout_id, after.attempt) == (before.rollout_id, 2)


def test_an_environment_that_died_between_storing_and_saying_so_loses_nothing(
    service: CurationService, store: Store
) -> None:
    first = leased(service, "env-000")
    stored(store, first, 1.0)
    second = leased(service, "env-000")
    assert second.rollout_id != first.rollout_id
    assert store.rollout(first.rollout_id).state == RolloutState.STORED
    assert store.totals(now_unix_s=NOW).faults == {}


def test_an_overdue_lease_is_taken_back(store: Store) -> None:
    clock = Clock()
    service = reopened(store, clock=clock)
    lost = leased(service, "env-000")
    for later_s, taken in ((59, 0), (60, 1), (61, 0)):
        clock.now_unix_s = NOW + later_s
        assert at_once(service.revoke_overdue()) == taken
    assert store.rollout(lost.rollout_id).environment is None


def test_a_group_without_spread_is_dropped_and_replaced(service: CurationService, store: Store) -> None:
    lease = played(service, store, 1.0, 1.0)
    assert store.totals(now_unix_s=NOW).drops == {"no_spread": 2}
    assert leased(service, "env-000").group_id != lease.group_id


def test_a_curator_that_died_before_it_dropped_a_group_drops_it_when_it_is_back(
    service: CurationService, store: Store
) -> None:
    for environment in ("env-000", "env-001"):
        stored(store, leased(service, environment), 0.0)
    reopened(store)
    assert store.totals(now_unix_s=NOW).drops == {"no_spread": 2}


class ManyTasks:
    """A record of 400 tasks with a success each, which takes decisions as the mail does."""

    def __init__(self) -> None:
        self.tasks = [f"osworld/libreoffice_writer/{number:036d}" for number in range(400)]
        self.decisions: list[TaskDecision] = []

    async def write(self, call: Any) -> Any:
        assert isinstance(call, RecordDecisions)
        assert packed_bytes(call) < MAX_MESSAGE_BYTES
        self.decisions += call.decisions

    def rollout(self, rollout_id: int) -> RolloutRecord:
        raise LookupError(rollout_id)

    def demonstrations(self, task_id: str) -> tuple[()]:
        return ()

    def snapshot(self, recent_rewards: int) -> Snapshot:
        tasks = tuple(
            TaskStatistics(
                task_id=task, groups_opened=1, recent=(SeedReward(0, 1.0),), longest_success_steps=3
            )
            for task in self.tasks
        )
        return Snapshot(groups=(), tasks=tasks, batch=None, version=0)


def test_a_start_that_decides_about_every_task_sends_no_message_that_is_too_large() -> None:
    record = ManyTasks()
    decided: list[TaskDecision] = []
    settings = replace(
        SETTINGS, tasks=tuple(record.tasks), step_cap=StepCap(largest=10, slack=2, probe_share=0.0)
    )
    service = at_once(open_service(settings, record, Clock(), decided.append))
    assert sorted(decision.task_id for decision in record.decisions) == record.tasks
    assert decided == record.decisions
    assert {service.curator.tasks[task].step_cap for task in record.tasks} == {5}


def decision(task_id: str, kind: DecisionKind) -> TaskDecision:
    return TaskDecision(
        task_id=task_id, kind=kind, before="", after="", reason="", policy_version=0, unix_s=NOW
    )


def test_decisions_about_one_task_are_in_one_message() -> None:
    every = [decision(f"task-{number // 3}", kind) for number, kind in zip(range(500), cycle(DecisionKind))]
    parts = list(parts_of(every))
    assert [decision for part in parts for decision in part] == every
    assert max(map(len, parts)) < DECISIONS_MOST + 3
    of_parts = [{decision.task_id for decision in part} for part in parts]
    assert not any(one & other for one, other in pairwise(of_parts))


def ready_batch(service: CurationService, store: Store) -> Batch:
    played(service, store, 0.0, 1.0)
    batch = at_once(service.batch())
    assert isinstance(batch, Batch), batch
    return batch


def test_a_trainer_that_asks_again_gets_the_same_batch_under_a_new_fence(
    service: CurationService, store: Store
) -> None:
    batch = ready_batch(service, store)
    assert batch.fence == 1
    assert at_once(service.batch()) == replace(batch, fence=2)
    assert at_once(reopened(store).batch()) == replace(batch, fence=3)


def test_after_its_update_a_batch_is_gone_and_there_is_room_for_the_next(
    service: CurationService, store: Store
) -> None:
    batch = ready_batch(service, store)
    assert isinstance(at_once(service.work("env-000")), NoWorkYet)
    store.commit_update(batch.batch_id, 1, 1, {})
    at_once(service.committed(1))
    assert isinstance(at_once(service.batch()), NoWorkYet)
    assert isinstance(at_once(service.work("env-000")), NoWorkYet), (
        "the engines still serve version 0, K is 0"
    )
    service.serving(1)
    assert leased(service, "env-000").group_id not in batch.group_ids


def test_a_trainer_that_could_not_say_it_committed_gets_a_new_batch(
    service: CurationService, store: Store
) -> None:
    batch = ready_batch(service, store)
    store.commit_update(batch.batch_id, 1, 1, {})
    assert isinstance(at_once(service.batch()), NoWorkYet)
    assert service.curator.trainer_version == 1


@pytest.mark.parametrize("version", [0, 1, 2, 7])
def test_an_update_that_is_told_late_twice_or_out_of_order_changes_nothing(
    service: CurationService, store: Store, version: int
) -> None:
    batch = ready_batch(service, store)
    store.commit_update(batch.batch_id, 1, 1, {})
    at_once(service.committed(1))
    at_once(service.committed(version))
    assert service.curator.trainer_version == 1
    assert len(service.curator._live_groups) == 0


def test_the_trainer_gets_the_batch_that_it_trained_ahead(store: Store) -> None:
    """By then a group that is older is ready, too."""
    service = reopened(store, replace(SETTINGS, staleness_bound=3))
    batch = ready_batch(service, store)
    older = [leased(service, environment) for environment in ("env-008", "env-009")]
    named = played(service, store, 0.0, 1.0).group_id
    assert at_once(service.batch_ahead()) == BatchAhead(group_ids=(named,))
    store.commit_update(batch.batch_id, 1, 1, {})
    at_once(service.committed(1))
    for reward, lease in enumerate(older):
        stored(store, lease, float(reward))
        at_once(service.look(lease.rollout_id))
    ahead = at_once(service.batch((named,)))
    assert isinstance(ahead, Batch)
    assert ahead.group_ids == (named,)


def test_a_batch_past_its_deadline_is_told_once_for_each_lease(store: Store) -> None:
    clock = Clock()
    service = reopened(store, replace(SETTINGS, batch_lease_s=100.0), clock)
    batch = ready_batch(service, store)
    told = []
    for later_s in (0, 99, 100, 101):
        clock.now_unix_s = NOW + later_s
        told.append(service.overdue_batch())
    assert told == [None, None, batch, None]
    again = at_once(service.batch())
    for later_s in (101, 200):
        clock.now_unix_s = NOW + later_s
        assert service.overdue_batch() is None
    clock.now_unix_s = NOW + 201
    assert service.overdue_batch() == again


def test_a_lowered_bound_gives_the_open_batch_back_and_judges_its_groups_anew(store: Store) -> None:
    """Two groups of version 0 and one of version 1 at the trainer, which is at version 1."""
    wide = replace(SETTINGS, staleness_bound=1)
    service = reopened(store, wide)
    first = ready_batch(service, store)
    played(service, store, 0.0, 1.0)
    store.commit_update(first.batch_id, 1, 1, {})
    at_once(service.committed(1))
    service.serving(1)
    for number in (0, 1):
        lease = leased(service, f"env-{number:03d}")
        store.finish_rollout(lease.rollout_id, 1, trajectory_for(lease, float(number), versions=(1,)))
        at_once(service.look(lease.rollout_id))
    old, new = (group.group_id for group in store.snapshot().groups)
    batch = store.lease_batch((old, new), NOW + 60)

    at_once(reopened(store, wide).batch())
    assert store.open_batch() is not None
    strict = reopened(store)

    assert store.open_batch() is None
    assert store.totals().drops == {"stale": 2}
    again = at_once(strict.batch())
    assert isinstance(again, Batch)
    assert (again.group_ids, again.batch_id > batch.batch_id) == ((new,), True)
    books = store.conservation()
    assert (books.trained, books.dropped, books.stored, books.holds) == (2, 2, 2, True)
    told = store.newest_event(BATCH_REFUSED)
    assert told is not None
    assert told.data["reason"] == "stale"


def test_a_lowered_bound_drops_what_has_become_stale_and_counts_it(store: Store) -> None:
    service = reopened(store, replace(SETTINGS, staleness_bound=1))
    batch = ready_batch(service, store)
    played(service, store, 0.0, 1.0)
    store.commit_update(batch.batch_id, 1, 1, {})
    reopened(store, SETTINGS)
    assert store.totals(now_unix_s=NOW).drops == {"stale": 2}


def test_a_restarted_curator_remembers_as_many_rewards_as_a_group_has_rollouts(store: Store) -> None:
    settings = replace(SETTINGS, quota=fixed_quota(40))
    lease = played(reopened(store, settings), store, *[1.0, 0.0] * 20)
    assert len(reopened(store, settings).curator.tasks[lease.task_id].rewards) == 40
