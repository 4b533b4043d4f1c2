"""The curator actor over a real record: whom it blames for leases that ran out, and what it measures."""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from actors.actor import Actor
from actors.testing import InMemorySystem
from dart.config.config import Config
from dart.core import messages as m
from dart.core.records import Batch, Evaluation, EvaluationPhase
from dart.core.types import Demonstration, FaultKind, RolloutLease
from dart.curation.actor import ALARMS_CHECK_S, PATIENCE_S, CuratorActor
from dart.curation.liveness_view import SERVED_LOOK_S
from dart.store.actor import StoreActor
from dart.store.browse_queries import RunBrowser, TrajectoryFilter
from dart.store.disk_wait import await_room
from dart.store.errors import BlobsBusy
from dart.store.reader import StoreReader
from dart.store.store import Store
from dart.telemetry.board_gauges import Gauge
from dart.telemetry.events import (
    ALARM,
    BATCH_OVERDUE,
    EVALUATION_FAILED,
    STARVED,
    TASK_QUARANTINED,
    TASK_RELEASED,
    WORK_HELD,
)
from dart.testing.trajectories import evaluation_play, step_at, trajectory_for

TASK = "simulated/0"
ENV, ENGINE = "env-000", "rollout-0"
LEASE_S, POLL_S = 60.0, 0.05
EVALUATION_LEASE_S = 5400.0
"""As for desktops: an episode with its reset may take an hour."""

ONE_GROUP = {"groups_per_update": 1}
TWO_SEEDS = {"before": False, "after": True, "seeds_per_task": 2, "greedy_seeds_per_task": 0}


class Beats(Actor):
    """Is there."""


class Stores(Actor):
    """Stores one screenshot; the object storage does not answer while `is_away`."""

    is_away = True

    def on_start(self) -> None:
        self.run(await_room(self, "screenshots", self._put))

    def _put(self) -> None:
        if self.is_away:
            raise BlobsBusy("s3://bucket/run: the object storage does not answer")


class System:
    """A curator, a store, an engine and environments that only are there."""

    def __init__(self, bench: InMemorySystem, folder: Path, **sections: dict[str, Any]) -> None:
        self.bench, self.path = bench, folder / "store.db"
        curation = {"lease_s": LEASE_S, "poll_s": POLL_S, "max_attempts": 3}
        evaluation = {"before": False, "after": False}
        config = Config.model_validate(
            {"tasks": {"train": [TASK]}, "environments": {"kind": "simulated"}}
            | {"curation": curation, "evaluation": evaluation}
            | sections
        )
        self.args = {"store": str(self.path), "config": config.model_dump(mode="json")}
        bench.start(StoreActor, "store", self.args)
        bench.start(Beats, ENGINE)
        bench.start(Beats, ENV)
        self.start_curator()

    def start_curator(self, training_ends_boot_s: float = math.inf) -> CuratorActor:
        told = {"engines": [ENGINE], "training_ends_boot_s": training_ends_boot_s}
        return self.bench.start(CuratorActor, "curator", self.args | told)

    def work(self, environment: str = ENV) -> Any:
        answer = self.bench.ask("curator", m.WorkRequest(environment=environment))
        self.bench.settle()
        return answer.result()

    def lease(self, environment: str = ENV) -> RolloutLease:
        answer = self.work(environment)
        assert isinstance(answer, RolloutLease), answer
        return answer

    def reads(self) -> StoreReader:
        return StoreReader(self.path)

    def events(self, *kinds: str) -> list[tuple[str, str, dict[str, Any]]]:
        """Kind, subject and fields of the recorded events of these kinds."""
        with self.reads() as reader:
            return [(one.kind, one.subject, dict(one.data)) for one in reader.find_events(kinds=kinds)]

    @property
    def health(self) -> Any:
        return self.bench.actor("curator")._service.curator.tasks[TASK].health

    @property
    def blamed(self) -> tuple[int, int]:
        """Attempts in a row that the task is blamed for, and environments in a row lost with it."""
        return self.health.failed_attempts, self.health.lost_environments


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[InMemorySystem]:
    with Store(tmp_path / "store.db") as store:
        store.add_version()
    with InMemorySystem(tmp_path) as found:
        yield found


@pytest.fixture
def system(bench: InMemorySystem, tmp_path: Path) -> System:
    return System(bench, tmp_path)


# ---- whose fault it is ----


def test_an_environment_that_lives_and_is_late_is_not_lost(system: System) -> None:
    system.lease()
    system.bench.advance(LEASE_S + 5)
    assert system.blamed == (1, 0)


def test_an_environment_that_hangs_with_its_lease_is_lost(system: System) -> None:
    system.lease()
    system.bench.hang(ENV)
    system.bench.advance(LEASE_S + 5)
    assert system.blamed == (1, 1)


def test_an_answer_that_got_lost_says_nothing_of_the_task(system: System) -> None:
    first = system.lease()
    again = system.lease()
    assert (again.rollout_id, again.attempt) == (first.rollout_id, 2)
    assert system.blamed == (0, 0)
    with system.reads() as store:
        assert store.totals().faults == {"system": 1}


def test_one_that_was_started_again_lost_what_it_held(system: System) -> None:
    system.lease()
    system.bench.kill(ENV)
    system.bench.advance(1.0)
    system.bench.start(Beats, ENV)
    slot = system.bench.board.find(ENV)
    assert slot is not None
    system.bench.board.set(slot, started_unix_s=system.bench.clock.unix_s())
    system.lease()
    assert system.blamed == (1, 1)


def test_one_that_was_started_again_along_with_its_pool_says_nothing_of_the_task(system: System) -> None:
    pool = "environment_pool"
    system.bench.kill(ENV)
    system.bench.start(Beats, pool)
    system.bench.start(Beats, ENV, parent=pool)
    first = system.lease()
    system.bench.advance(1.0)
    for name in (ENV, pool):
        system.bench.kill(name)
    system.bench.start(Beats, pool)
    system.bench.start(Beats, ENV, parent=pool)
    for name in (ENV, pool):
        slot = system.bench.board.find(name)
        assert slot is not None
        system.bench.board.set(slot, started_unix_s=system.bench.clock.unix_s())

    again = system.lease()

    assert (again.rollout_id, again.attempt) == (first.rollout_id, 2)
    assert system.blamed == (0, 0)


def test_while_no_engine_answers_a_task_is_not_blamed_for_who_is_late(system: System) -> None:
    system.lease()
    system.bench.advance(20.0)
    system.bench.hang(ENGINE)
    system.bench.advance(LEASE_S - 15)
    assert system.blamed == (0, 0)
    with system.reads() as reader:
        assert reader.totals().faults == {"system": 1}


def assert_lasts_a_lease(system: System, lease: RolloutLease) -> None:
    """The environment has the time of a lease from now on to report, and no more."""
    system.bench.advance(LEASE_S - 5)
    with system.reads() as reader:
        assert reader.rollout(lease.rollout_id).environment == ENV
    system.bench.advance(10.0)
    with system.reads() as reader:
        assert reader.rollout(lease.rollout_id).environment is None


def test_after_a_pause_of_the_store_every_lease_lasts_anew(system: System) -> None:
    lease = system.lease()
    slot = system.bench.board.find("store")
    assert slot is not None
    system.bench.actor("store").set_ready(False)
    system.bench.advance(2 * LEASE_S)
    system.bench.actor("store").set_ready(True)
    assert_lasts_a_lease(system, lease)


def test_no_lease_is_revoked_while_its_holder_waits_for_the_storage(system: System) -> None:
    waiting = "env-001"
    system.bench.start(Stores, waiting)
    lease, late = system.lease(waiting), system.lease()

    def holder(of: RolloutLease) -> str | None:
        with system.reads() as reader:
            return reader.rollout(of.rollout_id).environment

    system.bench.advance(2 * LEASE_S)
    assert (holder(lease), holder(late)) == (waiting, None)
    assert system.blamed == (1, 0), "only by the environment that was late without waiting"
    system.bench.actor(waiting).is_away = False
    system.bench.advance(LEASE_S - 5)
    assert holder(lease) == waiting, "it has a lease's time to report"
    system.bench.advance(10.0)
    assert holder(lease) is None


def waited(system: System, name: str) -> None:
    """The disk or the object storage refuses what an actor writes now."""
    slot = system.bench.board.find(name)
    assert slot is not None
    system.bench.board.set_gauges(slot, {Gauge.WAITED_UNIX_S: int(system.bench.clock.unix_s())})


def test_no_lease_is_revoked_while_the_store_waits_for_the_storage(system: System) -> None:
    lease = system.lease()
    system.bench.advance(LEASE_S - 5)
    waited(system, "store")
    assert_lasts_a_lease(system, lease)


def test_a_wall_clock_that_jumps_ahead_takes_no_episode_away(system: System) -> None:
    lease = system.lease()
    system.bench.advance(10.0)
    system.bench.clock.set_unix_ahead(2 * LEASE_S)
    system.bench.advance(LEASE_S - 5)
    with system.reads() as reader:
        assert reader.rollout(lease.rollout_id).environment == ENV
    assert system.blamed == (0, 0)
    system.bench.advance(10.0)
    with system.reads() as reader:
        assert reader.rollout(lease.rollout_id).environment is None


def test_a_wall_clock_that_jumps_ahead_ends_no_training(system: System) -> None:
    system.bench.kill("curator")
    system.start_curator(training_ends_boot_s=system.bench.clock.boot_s() + 30.0)

    system.bench.clock.set_unix_ahead(3600.0)
    system.lease()
    system.bench.advance(31.0)

    assert system.work().reason == "the run is over"


def test_whoever_has_to_wait_asks_again_after_the_configured_time(system: System) -> None:
    system.bench.kill(ENGINE)
    assert system.work().retry_after_s == POLL_S


def test_a_task_that_enters_and_leaves_quarantine_is_an_event_each(
    bench: InMemorySystem, tmp_path: Path
) -> None:
    limits = {"failed_attempts": 1, "duration_s": 300.0}
    curation = {"lease_s": LEASE_S, "poll_s": POLL_S, "task_quarantine": limits}
    system = System(bench, tmp_path, curation=curation)
    failed = system.lease()
    fault = m.RolloutFailed(
        rollout_id=failed.rollout_id, fence=failed.fence, kind=FaultKind.INFRASTRUCTURE, detail="made up"
    )
    bench.tell("curator", fault)
    bench.settle()
    entered = {"reason": "1 attempts in a row ended by a fault", "until_unix_s": bench.clock.unix_s() + 300.0}
    assert system.events(TASK_QUARANTINED, TASK_RELEASED) == [(TASK_QUARANTINED, TASK, entered)]

    bench.advance(300.0)
    played(system, system.lease(), reward=1.0)
    left = {"reason": "an episode was played to its end after 300 s of quarantine"}
    assert system.events(TASK_RELEASED) == [(TASK_RELEASED, TASK, left)]


def test_a_batch_that_the_trainer_holds_too_long_is_one_event(bench: InMemorySystem, tmp_path: Path) -> None:
    with Store(tmp_path / "store.db") as store:
        add_ready_group(store, seed=7)
    system = System(bench, tmp_path, training=ONE_GROUP, curation={"batch_lease_s": 100.0})
    batch = trainer_asks(system, m.BatchRequest())
    bench.advance(95.0)
    assert system.events(BATCH_OVERDUE) == []
    bench.advance(60.0)
    data = {"batch": batch.batch_id, "fence": batch.fence, "lease_s": 100.0}
    assert system.events(BATCH_OVERDUE) == [(BATCH_OVERDUE, "trainer", data)]


# ---- evaluation ----


def evaluation(phase: EvaluationPhase, seed: int, version: int = 0) -> Evaluation:
    return Evaluation(phase=phase, policy_version=version, task_id=TASK, seed=seed, reward=1.0)


@pytest.fixture
def measured(bench: InMemorySystem, tmp_path: Path) -> System:
    """Training is over; two episodes are to be measured."""
    curation = {"lease_s": EVALUATION_LEASE_S, "poll_s": POLL_S, "max_attempts": 3}
    system = System(bench, tmp_path, evaluation=TWO_SEEDS, curation=curation)
    system.bench.kill("curator")
    system.start_curator(training_ends_boot_s=0.0)
    return system


@pytest.fixture
def late(bench: InMemorySystem, tmp_path: Path) -> System:
    """The base policy is measured, a group is ready, and training is over in 30 s."""
    system = System(bench, tmp_path, training=ONE_GROUP, evaluation=TWO_SEEDS | {"before": True})
    with Store(system.path) as store:
        for episode in tuple(bench.actor("curator")._evaluations.missing[EvaluationPhase.BEFORE]):
            store.record_evaluation(evaluation(EvaluationPhase.BEFORE, episode.seed))
        add_ready_group(store, seed=7)
    bench.kill("curator")
    system.start_curator(training_ends_boot_s=bench.clock.boot_s() + 30.0)
    return system


def test_a_run_without_an_update_does_not_measure_its_base_policy_a_second_time(late: System) -> None:
    late.bench.advance(40.0)

    assert late.work().reason == "the run is over"
    assert trainer_asks(late, m.BatchRequest()) == m.RunOver()


def test_a_first_update_that_ends_after_the_time_for_training_is_completed_and_measured(
    late: System,
) -> None:
    begun = trainer_asks(late, m.BatchRequest())
    late.bench.advance(40.0)
    again = trainer_asks(late, m.BatchRequest())
    assert again.group_ids == begun.group_ids, "its trainer was restarted"
    commit(late, again, version=1)
    serve(late, 1)

    assert isinstance(late.work(), m.EvaluationTask)


def ended(system: System, task: m.EvaluationTask, reward: float) -> str:
    """What the curator answers to a result."""
    answer = system.bench.ask("curator", m.EvaluationEnded(fence=task.fence, policy_version=0, reward=reward))
    system.bench.settle()
    verdict = answer.result()
    assert isinstance(verdict, m.CallResult), verdict
    return verdict.value


def rewards(system: System, phase: EvaluationPhase = EvaluationPhase.AFTER) -> dict[int, float]:
    with system.reads() as reader:
        return {one.seed: one.reward for one in reader.evaluations(phase)}


def start_again(system: System, environment: str) -> None:
    """The environment ends and its supervisor starts the next incarnation."""
    system.bench.kill(environment)
    system.bench.start(Beats, environment)


def test_an_evaluation_episode_is_not_given_out_again_while_its_environment_plays_it(
    measured: System,
) -> None:
    slow = measured.work()
    measured.work("env-001")
    measured.bench.advance(EVALUATION_LEASE_S - 5)
    assert isinstance(measured.work("env-002"), m.NoWorkYet), "both are still being played"
    assert ended(measured, slow, 0.0) == "accepted"
    assert rewards(measured) == {slow.seed: 0.0}


def test_an_evaluation_episode_whose_environment_ended_is_given_out_again(measured: System) -> None:
    first = measured.work()
    measured.work("env-001")
    measured.bench.kill(ENV)
    again = measured.work("env-002")
    assert again.seed == first.seed
    assert ended(measured, again, 0.0) == "accepted"


def test_an_environment_that_was_started_again_has_lost_its_evaluation_episode(measured: System) -> None:
    first = measured.work()
    start_again(measured, ENV)
    second = measured.work("env-001")
    assert second.seed == first.seed


def test_a_result_of_an_ended_lease_does_not_count_however_early_it_comes(measured: System) -> None:
    first = measured.work()
    measured.bench.advance(EVALUATION_LEASE_S + 5)
    again = measured.work("env-001")
    assert again.seed == first.seed
    assert ended(measured, first, 1.0) == "fenced"
    assert ended(measured, again, 0.0) == "accepted"
    assert rewards(measured) == {first.seed: 0.0}


def test_an_environment_that_waits_for_the_storage_keeps_its_evaluation_episode(measured: System) -> None:
    task = measured.work()
    measured.bench.advance(EVALUATION_LEASE_S - 5)
    waited(measured, ENV)
    measured.bench.advance(10.0)
    assert ended(measured, task, 1.0) == "accepted"


def test_a_wall_clock_that_jumps_ahead_ends_no_lease_of_an_evaluation_episode(measured: System) -> None:
    task = measured.work()
    measured.bench.clock.set_unix_ahead(2 * EVALUATION_LEASE_S)
    measured.bench.advance(10.0)
    assert ended(measured, task, 1.0) == "accepted"


def test_a_result_is_recorded_once_and_another_answer_to_it_changes_nothing(measured: System) -> None:
    task = measured.work()
    assert ended(measured, task, 1.0) == "accepted"
    assert ended(measured, task, 0.0) == "fenced"
    assert rewards(measured) == {task.seed: 1.0}
    assert measured.work().seed != task.seed


def test_a_result_that_the_store_cannot_take_now_is_asked_for_again(measured: System) -> None:
    task = measured.work()
    measured.bench.kill("store")
    answer = measured.bench.ask("curator", m.EvaluationEnded(fence=task.fence, policy_version=0, reward=1.0))
    measured.bench.settle()
    assert isinstance(answer.result(), m.Paused)
    measured.bench.start(StoreActor, "store", measured.args)
    assert ended(measured, task, 1.0) == "accepted"


def test_how_an_evaluation_episode_was_played_is_recorded_with_its_result(measured: System) -> None:
    task, play = measured.work(), evaluation_play()
    result = m.EvaluationEnded(fence=task.fence, policy_version=0, reward=1.0, play=play)
    measured.bench.ask("curator", result)
    measured.bench.settle()
    with RunBrowser(measured.path) as browser:
        (kept,) = browser.evaluation_page(TrajectoryFilter())
    assert (kept.seed, kept.play) == (task.seed, play)


def test_a_greedy_episode_is_played_with_the_most_likely_answers_and_recorded_as_such(
    bench: InMemorySystem, tmp_path: Path
) -> None:
    once = {"before": False, "after": True, "seeds_per_task": 1, "greedy_seeds_per_task": 1}
    system = System(bench, tmp_path, evaluation={**once, "temperature": 0.75})
    bench.kill("curator")
    system.start_curator(training_ends_boot_s=0.0)
    tasks = [system.work(), system.work("env-001")]
    assert [task.temperature for task in tasks] == [0.75, 0.0]
    for reward, task in enumerate(tasks):
        ended(system, task, float(reward))
    with system.reads() as reader:
        found = {one.is_greedy: one.reward for one in reader.evaluations(EvaluationPhase.AFTER)}
    assert found == {False: 0.0, True: 1.0}


def test_a_result_for_an_earlier_curator_does_not_count(measured: System) -> None:
    task = measured.work()
    measured.bench.kill("curator")
    measured.start_curator(training_ends_boot_s=0.0)
    measured.work()
    assert ended(measured, task, 1.0) == "fenced"


@pytest.mark.parametrize(("is_interrupted", "left"), [(True, 2), (False, 1)])
def test_an_evaluation_that_always_fails_is_left_out_and_interruptions_do_not_count(
    measured: System, is_interrupted: bool, left: int
) -> None:
    for _ in range(3):
        failed = m.EvaluationFailed(
            fence=measured.work().fence,
            kind=FaultKind.EVALUATOR,
            detail="made up",
            is_interrupted=is_interrupted,
        )
        measured.bench.tell("curator", failed)
        measured.bench.settle()
    assert len(measured.bench.actor("curator")._evaluations.missing[EvaluationPhase.AFTER]) == left
    with measured.reads() as reader:
        last = reader.newest_event(EVALUATION_FAILED)
    assert last is not None
    assert last.data["is_left_out"] is (not is_interrupted)
    assert last.data["kind"] == ("interrupted" if is_interrupted else "evaluator")


def test_an_episode_that_ends_every_environment_is_left_out(measured: System) -> None:
    """Else the evaluation would never end."""
    for _ in range(3):
        measured.work()
        start_again(measured, ENV)
    measured.work()
    assert len(measured.bench.actor("curator")._evaluations.missing[EvaluationPhase.AFTER]) == 1


def test_a_run_that_trained_on_after_its_end_measures_its_newest_version(measured: System) -> None:
    with Store(measured.path) as store:
        for episode in tuple(measured.bench.actor("curator")._evaluations.missing[EvaluationPhase.AFTER]):
            store.record_evaluation(evaluation(EvaluationPhase.AFTER, episode.seed, version=0))
        group_id = add_ready_group(store, seed=7)
        batch = store.lease_batch((group_id,), 1e12)
        store.commit_update(batch.batch_id, batch.fence, 1, {})
    measured.bench.kill("curator")
    measured.start_curator(training_ends_boot_s=0.0)
    slot = measured.bench.board.find(ENGINE)
    assert slot is not None
    assert measured.work() == m.NoWorkYet(
        retry_after_s=POLL_S, reason="the newest version is not served by every engine yet"
    )
    measured.bench.board.set_gauges(slot, {Gauge.SERVED_VERSION: 1})
    measured.bench.advance(SERVED_LOOK_S)
    assert isinstance(measured.work(), m.EvaluationTask)


# ---- an operator ----


# ---- an update that is trained ahead of its lease ----


@pytest.fixture
def ahead(bench: InMemorySystem, tmp_path: Path) -> System:
    return trained_ahead(bench, tmp_path, evaluation=TWO_SEEDS)


def trained_ahead(bench: InMemorySystem, tmp_path: Path, **sections: dict[str, Any]) -> System:
    """Version 1 is committed, and the trainer computes version 2 already, without a lease."""
    system = System(bench, tmp_path, training=ONE_GROUP, **sections)
    bench.kill("curator")
    with Store(system.path) as store:
        for seed in (7, 8):
            add_ready_group(store, seed)
    system.start_curator(training_ends_boot_s=bench.clock.boot_s() + 30.0)
    batch = trainer_asks(system, m.BatchRequest())
    assert trainer_asks(system, m.BatchAheadRequest()) == m.BatchAhead(group_ids=(2,))
    commit(system, batch, version=1)
    return system


def add_ready_group(store: Store, seed: int) -> int:
    """Add a group that can be trained; return its id."""
    group_id = store.open_group(TASK, seed, 2, 10, 0)
    for reward in (1.0, 0.0):
        lease = store.lease_rollout(group_id, ENV, 1e12)
        store.finish_rollout(lease.rollout_id, lease.fence, trajectory_for(lease, reward))
    return group_id


def trainer_asks(system: System, call: m.BatchRequest | m.BatchAheadRequest) -> Any:
    answer = system.bench.ask("curator", call)
    system.bench.settle()
    return answer.result()


def commit(system: System, batch: Batch, version: int) -> None:
    """The trainer commits a version, and says so."""
    with Store(system.path) as store:
        store.commit_update(batch.batch_id, batch.fence, version, {})
    system.bench.tell("curator", m.UpdateCommitted(version=version))
    system.bench.settle()


def serve(system: System, version: int) -> None:
    """The engine serves a version, and the curator looks again."""
    slot = system.bench.board.find(ENGINE)
    assert slot is not None
    system.bench.board.set_gauges(slot, {Gauge.SERVED_VERSION: version})
    system.bench.advance(SERVED_LOOK_S)


def test_a_pause_waits_for_an_update_that_is_trained_ahead(ahead: System) -> None:
    assert held(ahead, True).is_training is True
    batch = trainer_asks(ahead, m.BatchRequest(group_ids=(2,)))
    assert held(ahead, None).is_training is True
    commit(ahead, batch, version=2)
    assert held(ahead, None).is_training is False


def test_a_pause_waits_for_no_update_of_a_trainer_that_was_restarted(ahead: System) -> None:
    held(ahead, True)
    trainer_asks(ahead, m.BatchRequest())
    assert held(ahead, None).is_training is False


def test_the_curator_hears_of_an_update_trained_ahead_when_it_was_restarted(ahead: System) -> None:
    ahead.bench.kill("curator")
    with Store(ahead.path) as store:
        store.drop_group(2, "stale")
    ahead.start_curator()
    assert held(ahead, None).is_training is False
    assert isinstance(trainer_asks(ahead, m.BatchRequest(group_ids=(2,))), m.NoWorkYet)
    assert held(ahead, None).is_training is True


def test_the_final_evaluation_waits_for_an_update_that_is_trained_ahead(ahead: System) -> None:
    ahead.bench.advance(40.0)
    serve(ahead, 1)
    assert ahead.work().reason == "an update is still being computed"
    batch = trainer_asks(ahead, m.BatchRequest(group_ids=(2,)))
    commit(ahead, batch, version=2)
    serve(ahead, 2)
    assert isinstance(ahead.work(), m.EvaluationTask)


def test_an_update_that_is_trained_ahead_is_kept_when_the_run_ends_without_an_evaluation(
    bench: InMemorySystem, tmp_path: Path
) -> None:
    system = trained_ahead(bench, tmp_path)
    bench.advance(40.0)
    batch = trainer_asks(system, m.BatchRequest(group_ids=(2,)))
    assert batch.group_ids == (2,)
    commit(system, batch, version=2)
    assert trainer_asks(system, m.BatchRequest()) == m.RunOver()


def test_a_run_that_is_over_waits_for_no_groups_of_an_update_that_was_trained_ahead(
    bench: InMemorySystem, tmp_path: Path
) -> None:
    system = trained_ahead(bench, tmp_path)
    bench.kill("curator")
    with Store(system.path) as store:
        store.drop_group(2, "stale")
    system.start_curator(training_ends_boot_s=bench.clock.boot_s())
    assert trainer_asks(system, m.BatchRequest(group_ids=(2,))) == m.RunOver()


def test_an_episode_that_an_older_version_began_is_played_again(ahead: System) -> None:
    commit(ahead, trainer_asks(ahead, m.BatchRequest(group_ids=(2,))), version=2)
    ahead.bench.advance(40.0)
    serve(ahead, 2)
    task = ahead.work()
    answer = ahead.bench.ask("curator", m.EvaluationEnded(fence=task.fence, policy_version=1, reward=1.0))
    ahead.bench.settle()
    assert answer.result().value == "accepted"
    assert ahead.work().seed == task.seed


def training(bench: InMemorySystem, tmp_path: Path, **settings: Any) -> tuple[System, Batch]:
    """Of two groups that are ready, the trainer has one; training ends in 30 s."""
    system = System(bench, tmp_path, training=ONE_GROUP | settings, evaluation=TWO_SEEDS)
    bench.kill("curator")
    with Store(system.path) as store:
        for seed in (7, 8):
            add_ready_group(store, seed)
    system.start_curator(training_ends_boot_s=bench.clock.boot_s() + 30.0)
    return system, trainer_asks(system, m.BatchRequest())


def test_after_training_the_trainer_gets_its_open_batch_again_and_no_other_one(
    bench: InMemorySystem, tmp_path: Path
) -> None:
    system, batch = training(bench, tmp_path)
    bench.advance(40.0)
    again = trainer_asks(system, m.BatchRequest())
    assert (again.group_ids, again.fence) == (batch.group_ids, 2)
    assert system.work().reason == "the last batch is still being trained"
    commit(system, again, version=1)
    assert trainer_asks(system, m.BatchRequest()).reason == "the run is in phase final evaluation"

    serve(system, 1)
    for _ in range(2):
        task = system.work()
        bench.ask("curator", m.EvaluationEnded(fence=task.fence, policy_version=1, reward=1.0))
        bench.settle()
    assert trainer_asks(system, m.BatchRequest()) == m.RunOver()


def test_no_update_is_named_ahead_after_the_last_one_and_while_the_run_is_paused(
    bench: InMemorySystem, tmp_path: Path
) -> None:
    system, _ = training(bench, tmp_path, updates=2)
    held(system, True)
    none = "no update follows the one that is being committed"
    assert trainer_asks(system, m.BatchAheadRequest()).reason == none
    held(system, False)
    assert trainer_asks(system, m.BatchAheadRequest()) == m.BatchAhead(group_ids=(2,))
    system.bench.kill("curator")
    system.args["config"]["training"]["updates"] = 1
    system.start_curator()
    assert trainer_asks(system, m.BatchAheadRequest()).reason == none


def test_training_ends_after_so_many_actions(bench: InMemorySystem, tmp_path: Path) -> None:
    system = System(bench, tmp_path, training={"actions": 4})
    for reward in (1.0, 0.0):
        played(system, system.lease(), reward)  # with two steps
        bench.advance(POLL_S)
    assert system.work().reason == "the run is over"


def test_a_request_that_the_curator_could_not_see_to_for_long_gets_no_lease(system: System) -> None:
    """The environment that asked may have given up."""
    curator = system.bench.actor("curator")

    async def write() -> None:
        async with curator._service_lock:
            await curator.sleep(PATIENCE_S + 1.0)

    curator.run(write())
    answer = system.bench.ask("curator", m.WorkRequest(environment=ENV), deadline_s=2 * PATIENCE_S)
    system.bench.settle()
    system.bench.advance(PATIENCE_S + 2.0)
    assert answer.result().reason == "the curator was busy"


def test_an_environment_that_got_work_counts_as_waiting_no_longer(system: System) -> None:
    system.bench.kill(ENGINE)
    assert isinstance(system.work(), m.NoWorkYet)
    curator = system.bench.actor("curator")
    assert set(curator._known_facts().environments_wait_because) == {ENV}
    system.bench.start(Beats, ENGINE)
    system.bench.advance(SERVED_LOOK_S)
    system.lease()
    assert curator._known_facts().environments_wait_because == {}


def held(system: System, is_held: bool | None) -> Any:
    answer = system.bench.ask("curator", m.PauseWork(is_held=is_held))
    system.bench.settle()
    return answer.result()


def test_while_work_is_held_nothing_new_is_given_out_and_what_runs_is_counted(system: System) -> None:
    system.lease()
    assert held(system, True) == m.WorkPaused(is_held=True, playing=1, is_training=False)
    assert isinstance(system.work("env-001"), m.NoWorkYet)
    held(system, True)
    assert len(system.events(WORK_HELD)) == 1, "it was held already"
    assert held(system, False).is_held is False
    system.bench.start(Beats, "env-001")
    system.lease("env-001")
    assert held(system, True).playing == 2


@pytest.mark.parametrize("what", ["system", "measured"])
def test_an_episode_whose_environment_died_is_not_waited_for(
    what: str, request: pytest.FixtureRequest
) -> None:
    system: System = request.getfixturevalue(what)
    system.work()
    assert held(system, True).playing == 1
    system.bench.kill(ENV)
    assert held(system, None).playing == 0
    system.bench.start(Beats, ENV)
    assert isinstance(system.work(), m.NoWorkYet)
    assert held(system, None).playing == 0, "it is another one by that name"


@pytest.mark.parametrize("is_measured", [False, True])
def test_an_episode_that_began_before_training_ended_is_waited_for(
    bench: InMemorySystem, tmp_path: Path, is_measured: bool
) -> None:
    system = System(bench, tmp_path, evaluation={**TWO_SEEDS, "after": is_measured})
    system.bench.kill("curator")
    system.start_curator(training_ends_boot_s=bench.clock.boot_s() + 30.0)
    lease = system.lease()
    system.bench.advance(40.0)
    assert isinstance(system.work("env-001"), m.EvaluationTask if is_measured else m.NoWorkYet)

    assert held(system, True).playing == 1
    with Store(system.path) as store:
        store.finish_rollout(lease.rollout_id, lease.fence, trajectory_for(lease))
    system.bench.tell("curator", m.RolloutStored(rollout_id=lease.rollout_id))
    system.bench.settle()
    assert held(system, None).playing == 0


@pytest.mark.parametrize("what", ["system", "measured"])
def test_an_episode_that_began_after_the_clock_was_set_back_is_waited_for(
    what: str, request: pytest.FixtureRequest
) -> None:
    system: System = request.getfixturevalue(what)
    slot = system.bench.board.find(ENV)
    assert slot is not None
    system.bench.board.set(slot, started_unix_s=system.bench.clock.unix_s())
    system.bench.clock.set_unix_ahead(-3600.0)
    system.work()

    assert held(system, True).playing == 1


def test_an_environment_that_explores_is_waited_for_while_it_lives_and_its_lease_lasts(
    system: System,
) -> None:
    lease = m.LeaseScreen(
        task_id=TASK,
        seed=0,
        screen_id=None,
        explorer=ENV,
        incarnation=1,
        deadline_unix_s=system.bench.actor("curator").clock.unix_s() + LEASE_S,
    )
    system.bench.ask("store", lease)
    assert held(system, True).playing == 1
    system.bench.advance(LEASE_S + 1.0)
    assert held(system, None).playing == 0

    system.bench.ask("store", replace(lease, deadline_unix_s=2e9))
    system.bench.settle()
    assert held(system, None).playing == 1
    system.bench.kill(ENV)
    assert held(system, None).playing == 0
    system.bench.start(Beats, ENV)
    assert held(system, None).playing == 0, "it is another one by that name"


def test_held_work_is_held_by_the_next_curator_too_and_asking_changes_nothing(system: System) -> None:
    held(system, True)
    system.bench.kill("curator")
    system.start_curator()
    assert held(system, None).is_held is True
    assert isinstance(system.work(), m.NoWorkYet)


def test_nobody_starves_while_work_is_held(system: System) -> None:
    held(system, True)
    for _ in range(60):
        system.work()
        system.bench.advance(10.0)
    with system.reads() as reader:
        assert reader.newest_event(STARVED) is None


def test_work_is_not_held_while_the_record_takes_no_writes(system: System) -> None:
    system.bench.kill("store")
    assert isinstance(held(system, True), m.Paused)
    assert held(system, None).is_held is False


# ---- alarms for learning ----


ALL_EQUAL = {"episodes": 16, "off": ["one_action"], "pause": ["equal_rewards"]}


def play_without_spread(system: System, episodes: int) -> None:
    with Store(system.path) as store:
        for number in range(episodes // 2):
            group_id = store.open_group(TASK, number, 2, 10, 0)
            for _ in range(2):
                lease = store.lease_rollout(group_id, ENV, 2e9)
                store.finish_rollout(lease.rollout_id, lease.fence, trajectory_for(lease, 0.0))


def test_a_raised_alarm_is_recorded_and_pauses_the_run_if_it_is_to(
    bench: InMemorySystem, tmp_path: Path
) -> None:
    with Store(tmp_path / "store.db"):
        pass
    system = System(bench, tmp_path, alarms=ALL_EQUAL)
    system.bench.kill("curator")
    play_without_spread(system, 48)
    system.start_curator()
    look_at_alarms(system)

    with system.reads() as reader:
        assert reader.find_events(kinds=[ALARM], subject="equal_rewards")[-1].data["stage"] == "raised"
        held_by = reader.newest_event(WORK_HELD)
    assert held_by is not None
    assert held_by.data == {"is_held": True, "alarm": "equal_rewards"}
    assert system.work() == m.NoWorkYet(retry_after_s=POLL_S, reason="the run is paused", is_held=True)

    assert held(system, False).is_held is False
    system.bench.kill("curator")
    system.start_curator()
    look_at_alarms(system)
    assert held(system, None).is_held is False, "only a newly raised alarm pauses"


def look_at_alarms(system: System) -> None:
    """Have the curator look at the alarms, and record what it finds."""
    curator = system.bench.actor("curator")
    system.bench.advance(ALARMS_CHECK_S)
    system.bench.finish_work("curator", lambda: not curator._is_measuring)


# ---- episodes under the actions of a demonstration ----


POOL = {"experience_pool": {"enabled": True, "self_rolled": True, "self_rolled_attempts": 2}}


def with_a_failed_group(bench: InMemorySystem, folder: Path) -> System:
    """A system whose one task has a demonstration and a group in which everything failed."""
    curation = {"lease_s": LEASE_S, "poll_s": POLL_S, "max_attempts": 3, "rollouts_per_group": 2}
    with Store(folder / "store.db") as store:
        steps = (step_at(0),)
        demonstration = Demonstration(
            pool_id=0, task_id=TASK, seed=3, origin="oracle", instruction="do", reward=1.0, steps=steps
        )
        store.add_demonstrations([demonstration])
    system = System(bench, folder, curation=curation | POOL)
    for _ in range(2):
        played(system, system.lease(), reward=0.0)
    return system


def played(system: System, lease: RolloutLease, reward: float) -> None:
    """An environment plays the episode to its end and says so."""
    with Store(system.path) as store:
        store.finish_rollout(lease.rollout_id, lease.fence, trajectory_for(lease, reward))
    system.bench.tell("curator", m.RolloutStored(rollout_id=lease.rollout_id))
    system.bench.settle()


def test_after_a_group_that_failed_one_environment_plays_under_the_demonstration(
    bench: InMemorySystem, tmp_path: Path
) -> None:
    system = with_a_failed_group(bench, tmp_path)
    task = system.work()
    assert isinstance(task, m.GuidedTask)
    assert (task.pool_id, task.task_id, task.seed, task.attempt) == (1, TASK, 3, 1)
    bench.start(Beats, "env-001")
    assert isinstance(system.work("env-001"), RolloutLease)


def test_what_the_policy_did_is_known_at_once_and_a_failure_is_tried_again(
    bench: InMemorySystem, tmp_path: Path
) -> None:
    system = with_a_failed_group(bench, tmp_path)
    for attempt, reward in ((1, 0.0), (2, 1.0)):
        task = system.work()
        assert task.attempt == attempt
        with Store(system.path) as store:
            store.record_guided(1, attempt, "do", reward, (step_at(attempt),))
        bench.tell("curator", m.GuidedStored(fence=task.fence, task_id=TASK))
        bench.settle()
    assert isinstance(system.work(), RolloutLease)
    held = bench.actor("curator")._service.curator.tasks[TASK].demonstrations
    assert [one.guide_id for one in held.values()] == [None, 1]


def test_an_environment_that_is_gone_or_late_leaves_its_episode_to_the_next_one(
    bench: InMemorySystem, tmp_path: Path
) -> None:
    system = with_a_failed_group(bench, tmp_path)
    bench.start(Beats, "env-001")
    assert system.work().pool_id == system.work().pool_id  # it asks again: its answer was lost
    bench.advance(LEASE_S + 5)
    assert isinstance(system.work("env-001"), m.GuidedTask)


def test_a_demonstration_under_which_no_episode_can_be_played_is_left_alone(
    bench: InMemorySystem, tmp_path: Path
) -> None:
    system = with_a_failed_group(bench, tmp_path)
    for _ in range(3):
        failed = m.GuidedFailed(
            fence=system.work().fence, kind=FaultKind.INFRASTRUCTURE, detail="the environment broke"
        )
        bench.tell("curator", failed)
        bench.settle()
    assert isinstance(system.work(), RolloutLease)


def test_a_guide_is_not_given_out_again_before_its_episode_is_counted(
    bench: InMemorySystem, tmp_path: Path
) -> None:
    system = with_a_failed_group(bench, tmp_path)
    task = system.work()
    with Store(system.path) as store:
        store.record_guided(task.pool_id, task.attempt, "do", 1.0, (step_at(1),))
    curator = bench.actor("curator")

    async def write() -> None:
        async with curator._service_lock:
            await curator.sleep(0.005)

    curator.run(write())
    bench.tell("curator", m.GuidedStored(fence=task.fence, task_id=TASK))
    answer = bench.ask("curator", m.WorkRequest(environment=ENV))
    bench.settle()
    bench.advance(0.1)
    assert isinstance(answer.result(), RolloutLease)


def test_a_guided_episode_that_ends_every_environment_is_given_up(
    bench: InMemorySystem, tmp_path: Path
) -> None:
    system = with_a_failed_group(bench, tmp_path)
    for _ in range(3):
        assert isinstance(system.work(), m.GuidedTask)
        start_again(system, ENV)
    assert isinstance(system.work(), RolloutLease)


def test_a_guided_episode_whose_environment_ended_is_played_by_the_next_one_at_once(
    bench: InMemorySystem, tmp_path: Path
) -> None:
    system = with_a_failed_group(bench, tmp_path)
    assert isinstance(system.work(), m.GuidedTask)
    start_again(system, ENV)
    assert isinstance(system.work("env-001"), m.GuidedTask)


def test_a_guided_episode_that_hangs_every_environment_is_given_up(
    bench: InMemorySystem, tmp_path: Path
) -> None:
    system = with_a_failed_group(bench, tmp_path)
    for number in range(3):
        assert isinstance(system.work(f"env-{number:03d}"), m.GuidedTask)
        bench.advance(LEASE_S + 5)
    assert isinstance(system.work("env-003"), RolloutLease)


def test_a_request_that_is_repeated_because_its_answer_was_lost_is_no_failure_of_a_guided_episode(
    bench: InMemorySystem, tmp_path: Path
) -> None:
    system = with_a_failed_group(bench, tmp_path)
    for _ in range(5):
        assert isinstance(system.work(), m.GuidedTask)


@pytest.mark.parametrize("how", ["failed", "stored"])
def test_a_late_report_of_a_guided_episode_ends_no_lease_of_another_environment(
    bench: InMemorySystem, tmp_path: Path, how: str
) -> None:
    system = with_a_failed_group(bench, tmp_path)
    late = system.work().fence
    bench.advance(LEASE_S + 5)
    assert isinstance(system.work("env-001"), m.GuidedTask)
    report = {
        "failed": m.GuidedFailed(fence=late, kind=FaultKind.INFRASTRUCTURE, detail="too slow"),
        "stored": m.GuidedStored(fence=late, task_id=TASK),
    }
    bench.tell("curator", report[how])
    bench.settle()
    assert isinstance(system.work("env-002"), RolloutLease), "env-001 still plays it"


def test_an_environment_that_waits_for_the_storage_keeps_its_guided_episode(
    bench: InMemorySystem, tmp_path: Path
) -> None:
    system = with_a_failed_group(bench, tmp_path)
    assert isinstance(system.work(), m.GuidedTask)
    bench.advance(LEASE_S - 5)
    waited(system, ENV)
    bench.advance(10.0)
    assert isinstance(system.work("env-001"), RolloutLease)
    bench.advance(LEASE_S)
    assert isinstance(system.work("env-002"), m.GuidedTask)


def test_a_wall_clock_that_jumps_ahead_ends_no_lease_of_a_guided_episode(
    bench: InMemorySystem, tmp_path: Path
) -> None:
    system = with_a_failed_group(bench, tmp_path)
    assert isinstance(system.work(), m.GuidedTask)
    bench.clock.set_unix_ahead(2 * LEASE_S)
    assert isinstance(system.work("env-001"), RolloutLease)
    bench.advance(10.0)
    assert isinstance(system.work("env-002"), RolloutLease)
