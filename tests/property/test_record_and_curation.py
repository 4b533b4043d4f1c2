"""The invariants hold for the record and the service under any order of events and crashes between them.

one-fate, fenced, fresh (by admission: nothing is ever dropped as stale), exactly-once training, no-idle; a
parked episode spends no attempt, no demonstration is used more often than allowed, and in the end nothing is
stuck. Whoever calls the record may die before the call has its effect, or after it and before the answer.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, TypeVar, cast

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from dart.config.sections import TaskQuarantineSettings
from dart.core.messages import NoWorkYet
from dart.core.records import (
    Batch,
    DecisionKind,
    Park,
    Reassignment,
    Release,
    RolloutChange,
    RolloutRecord,
    Snapshot,
    StoredResult,
)
from dart.core.types import Demonstration, FaultKind, RolloutLease
from dart.curation import groups
from dart.curation.admission import groups_admissible, most_groups
from dart.curation.experience_pool import PoolRule
from dart.curation.quota import Quota, fixed_quota
from dart.curation.service import CurationService, Record, open_service
from dart.curation.settings import CuratorSettings
from dart.curation.step_cap import StepCap
from dart.store.errors import StoreConflict
from dart.store.store import Store
from dart.testing.local_record import LocalRecord, at_once
from dart.testing.trajectories import step_at, trajectory_for
from tests.examples import examples
from tests.record_places import ON_POSTGRESQL, RecordPlaces

T = TypeVar("T")

ENVIRONMENTS = tuple(f"env-{number:03d}" for number in range(3))
ENGINES = 2
LEASE_S = 10.0
TASKS = ("click-test", "login-user")
MAX_ATTEMPTS = 3
MAX_RESUMES = 2
MAX_USES = 2


class Crash(Exception):
    """Somebody died at this point."""


def with_demonstrations(store: Store) -> None:
    """Version 0 and two demonstrations of one task."""
    store.add_version()
    store.add_demonstrations([demonstration(seed) for seed in (1, 2)])


def demonstration(seed: int) -> Demonstration:
    steps = tuple(replace(step_at(0, number), logprobs=(), entropies=()) for number in range(2))
    return Demonstration(
        pool_id=0,
        task_id=TASKS[0],
        seed=seed,
        origin="oracle",
        instruction="click the button",
        reward=1.0,
        steps=steps,
    )


class Episode:
    """A lease being played; each step is sampled by some engine at the version it serves then."""

    def __init__(self, lease: RolloutLease, environment: str, versions: list[int]) -> None:
        self.lease = lease
        self.environment = environment
        self.versions = versions


class Watched:
    """A record or store whose calls are points at which a crash may come, before and after the effect."""

    def __init__(self, inner: Any, machine: "Training") -> None:
        self._inner = inner
        self._machine = machine

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        machine = self._machine

        def call(*arguments: Any) -> Any:
            machine.crash_point()
            answer = method(*arguments)
            if isinstance(answer, Coroutine):
                return machine.then(name, arguments, answer)
            machine.happened(name, arguments, answer)
            machine.crash_point()
            return answer

        return call


class Training(RuleBasedStateMachine):
    """Environments, engines and a trainer around one service and one record, each of which may die."""

    def __init__(self, places: RecordPlaces) -> None:
        super().__init__()
        self.places = places

    @initialize(
        bound=st.integers(0, 2),
        groups_per_update=st.integers(1, 2),
        rollouts=st.integers(2, 3),
        dynamic=st.booleans(),
        over_provision=st.sampled_from([0.0, 1.0, 1.5]),
        groups_without_success=st.sampled_from([0, 3]),
    )
    def start(
        self,
        bound: int,
        groups_per_update: int,
        rollouts: int,
        dynamic: bool,
        over_provision: float,
        groups_without_success: int,
    ) -> None:
        self.address = self.places.copy_of(with_demonstrations)
        dynamic_quota = Quota(most=rollouts, minimum=2, threshold=0.6)
        self.settings = CuratorSettings(
            tasks=TASKS,
            seeds=range(50),
            quota=dynamic_quota if dynamic else fixed_quota(rollouts),
            largest_step_cap=5,
            step_cap=StepCap(largest=5, slack=1, probe_share=0.3) if dynamic else None,
            pool=PoolRule(max_uses=MAX_USES) if dynamic else None,
            task_quarantine=TaskQuarantineSettings(
                groups_without_success=groups_without_success,
                failed_attempts=4,
                lost_environments=3,
                duration_s=4.0,
            ),
            groups_per_update=groups_per_update,
            over_provision=over_provision,
            staleness_bound=bound,
            max_attempts=MAX_ATTEMPTS,
            lease_s=LEASE_S,
        )
        self.now_unix_s = 0.0
        self.crash_in: int | None = None
        self.dead_stores: list[Store] = []
        self.store = self.open_store()
        self.engines = [0] * ENGINES
        self.version = 0
        self.played: dict[str, Episode] = {}
        self.ghosts: list[Episode] = []
        self.slow_trainers: list[tuple[Batch, int]] = []
        self.spent: Counter[int] = Counter()
        self.unheard: set[int] = set()
        """Rollouts that were parked while the curator believes them to be played: nobody could tell it."""
        self.trained: dict[int, int] = {}
        self.open_service()

    def open_store(self) -> Store:
        return Store(self.address, clock=lambda: self.now_unix_s, steps=self.places.steps)

    def open_service(self) -> None:
        record = cast(Record, Watched(LocalRecord(self.store), self))
        self.service = at_once(open_service(self.settings, record, lambda: self.now_unix_s))
        self.service.serving(min(self.engines))

    # crashes

    @rule(points=st.integers(0, 9))
    def a_crash_will_come(self, points: int) -> None:
        """After so many points, wherever that is: two for every call of the record."""
        self.crash_in = points

    def crash_point(self) -> None:
        if self.crash_in is None:
            return
        if self.crash_in == 0:
            self.crash_in = None
            raise Crash
        self.crash_in -= 1

    async def then(self, name: str, arguments: tuple[Any, ...], answer: Coroutine[Any, Any, Any]) -> Any:
        done = await answer
        self.happened(name, arguments, done)
        self.crash_point()
        return done

    def happened(self, name: str, arguments: tuple[Any, ...], answer: Any) -> None:
        """Keep count of what had its effect, whether or not anybody heard of it."""
        match answer:
            case RolloutRecord(rollout_id=rollout_id):
                self.unheard.discard(rollout_id)
            case RolloutChange(result=result, rollout=rollout):
                self.unheard.discard(rollout.rollout_id)
                self.changed(rollout.rollout_id, result)
            case Park.PARKED:
                self.unheard.add(arguments[0])
            case Snapshot():
                self.unheard.clear()
            case Park.REFUSED:
                self.spent[arguments[0]] += 1
                self.unheard.add(arguments[0])
            case StoredResult.ACCEPTED if name == "forget_parked":
                self.spent[arguments[0]] += 1
            case StoredResult.ACCEPTED if name == "commit_update":
                self.was_trained(arguments[2])

    def changed(self, rollout_id: int, result: Release | Reassignment | RolloutLease) -> None:
        match result:
            case Release.AWAITING | Release.DROPPED:
                self.spent[rollout_id] += 1
            case RolloutLease():
                assert result.attempt == 1 + self.spent[rollout_id], "parking spends no attempt"

    def desk_does(self, what: Callable[[CurationService], Coroutine[Any, Any, T]]) -> T | None:
        """None when it crashed on the way; then it begins anew from the record."""
        try:
            return at_once(what(self.service))
        except Crash:
            self.the_store_dies()
            return None

    def call(self, name: str, *arguments: Any) -> Any:
        """What an environment or a trainer writes; None when a crash kept the answer from it."""
        try:
            return getattr(Watched(self.store, self), name)(*arguments)
        except Crash:
            self.the_store_dies()
            return None

    @rule()
    def the_curator_dies(self) -> None:
        self.crash_in = None
        self.open_service()

    @rule()
    def the_store_dies(self) -> None:
        """Nothing is closed; as the tree has it, the curator dies along."""
        self.dead_stores.append(self.store)
        self.store = self.open_store()
        self.the_curator_dies()

    # environments

    @rule(
        environment=st.sampled_from(ENVIRONMENTS), engine=st.integers(0, ENGINES - 1), replays=st.booleans()
    )
    def asks_for_work(self, environment: str, engine: int, replays: bool) -> None:
        """An idle environment, or one whose answer got lost or which was restarted."""
        if environment in self.played:
            self.ghosts.append(self.played.pop(environment))
        answer = self.desk_does(lambda service: service.work(environment))
        if isinstance(answer, NoWorkYet):
            self.check_no_work_was_left()
        elif answer is not None:
            versions = self.take_up(answer, replays) or [self.engines[engine]]
            self.played[environment] = Episode(answer, environment, versions)

    def take_up(self, lease: RolloutLease, replays: bool) -> list[int]:
        """Versions of the steps a parked episode goes on from; where it cannot be replayed, none."""
        kept = self.store.parked_steps(lease.rollout_id)
        assert len(kept) == lease.parked_steps
        if kept and not replays:
            self.call("forget_parked", lease.rollout_id, lease.fence, "another picture")
            return []
        return [step.policy_version for step in kept]

    def check_no_work_was_left(self) -> None:
        """no-idle, counted from the record alone."""
        snapshot = self.store.snapshot()
        live, now = snapshot.groups, self.settings
        for group in live:
            idle = {r.rollout_id for r in group.rollouts if r.state == "leased" and r.environment is None}
            assert idle <= self.unheard, group
            assert not groups.unissued(group), group
        admissible = groups_admissible(
            serving_version=min(self.engines),
            trainer_version=self.version,
            live_groups=len(live),
            groups_per_update=now.groups_per_update,
            staleness_bound=now.staleness_bound,
        )
        unbatched = sum(group.batch_id is None for group in live)
        is_full = unbatched >= most_groups(now.over_provision, now.groups_per_update)
        quarantined = {
            task.task_id
            for task in snapshot.tasks
            if (rest := task.decided.get(DecisionKind.QUARANTINE)) is not None and rest.after
        }
        assert admissible <= 0 or is_full or quarantined == set(TASKS)

    @precondition(lambda self: self.played)
    @rule(data=st.data(), engine=st.integers(0, ENGINES - 1))
    def takes_a_step(self, data: st.DataObject, engine: int) -> None:
        self.played[self.one_of_the_played(data)].versions.append(self.engines[engine])

    def one_of_the_played(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(self.played)))

    @precondition(lambda self: self.played)
    @rule(data=st.data(), reward=st.sampled_from([0.0, 1.0]), reports=st.booleans())
    def finishes(self, data: st.DataObject, reward: float, reports: bool) -> None:
        """Stores its trajectory; may die before it can say so."""
        episode = self.played.pop(self.one_of_the_played(data))
        self.store_episode(episode, reward)
        if reports:
            self.desk_does(lambda service: service.look(episode.lease.rollout_id))

    def holds(self, episode: Episode) -> bool:
        kept = self.store.rollout(episode.lease.rollout_id)
        return kept.environment == episode.environment and kept.fence == episode.lease.fence

    def store_episode(self, episode: Episode, reward: float) -> None:
        lease, held = episode.lease, self.holds(episode)
        before = self.store.rollout(lease.rollout_id)
        trajectory = trajectory_for(lease, reward, episode.versions, episode.environment)
        answer = self.call("finish_rollout", lease.rollout_id, lease.fence, trajectory)
        if answer is None:  # a crash: it is told again, as an environment does that got no answer
            answer = self.store.finish_rollout(lease.rollout_id, lease.fence, trajectory)
            assert answer in (
                {StoredResult.ACCEPTED, StoredResult.DUPLICATE} if held else {StoredResult.FENCED}
            )
            return
        assert (answer == StoredResult.ACCEPTED) == held
        if answer == StoredResult.ACCEPTED:
            assert (
                self.store.finish_rollout(lease.rollout_id, lease.fence, trajectory) == StoredResult.DUPLICATE
            )
        else:
            assert self.store.rollout(lease.rollout_id) == before

    @precondition(lambda self: self.played)
    @rule(data=st.data(), reports=st.booleans())
    def is_interrupted(self, data: st.DataObject, reports: bool) -> None:
        """Stopped in the middle: what it played so far is parked."""
        episode = self.played.pop(self.one_of_the_played(data))
        self.park(episode)
        if reports:
            self.desk_does(lambda service: service.look(episode.lease.rollout_id))

    def park(self, episode: Episode) -> None:
        lease, held = episode.lease, self.holds(episode)
        steps = tuple(step_at(version, number) for number, version in enumerate(episode.versions))
        arguments = (lease.rollout_id, lease.fence, steps, "stopped", MAX_RESUMES, MAX_ATTEMPTS)
        answer = self.call("park_rollout", *arguments)
        if answer == Park.PARKED:
            assert held
            assert self.store.parked_steps(lease.rollout_id) == steps
        elif answer in (Park.FENCED, Park.DUPLICATE):
            assert not held

    @rule(environment=st.sampled_from(ENVIRONMENTS), episodes=st.integers(1, 4), lucky=st.booleans())
    def plays_on_and_on(self, environment: str, episodes: int, lucky: bool) -> None:
        """Whole episodes in a row, every other one a success: others may be overtaken."""
        for number in range(episodes):
            self.asks_for_work(environment, 0, True)
            self.plays_to_its_end(environment, float((number + lucky) % 2))

    @rule(episodes=st.integers(2, 6))
    def all_of_them_fail(self, episodes: int) -> None:
        """Whole groups without a success: what the experience pool is for."""
        for number in range(episodes):
            environment = ENVIRONMENTS[number % len(ENVIRONMENTS)]
            self.asks_for_work(environment, 0, True)
            self.plays_to_its_end(environment, 0.0)

    def plays_to_its_end(self, environment: str, reward: float) -> None:
        episode = self.played.pop(environment, None)
        if episode is not None:
            self.store_episode(episode, reward)
            self.desk_does(lambda service: service.look(episode.lease.rollout_id))

    @precondition(lambda self: self.played)
    @rule(data=st.data(), kind=st.sampled_from(FaultKind))
    def fails(self, data: st.DataObject, kind: FaultKind) -> None:
        lease = self.played.pop(self.one_of_the_played(data)).lease
        self.desk_does(lambda service: service.failed(lease.rollout_id, lease.fence, kind, "made up"))

    @precondition(lambda self: self.played)
    @rule(data=st.data())
    def hangs(self, data: st.DataObject) -> None:
        self.ghosts.append(self.played.pop(self.one_of_the_played(data)))

    @precondition(lambda self: self.ghosts)
    @rule(data=st.data(), reward=st.sampled_from([0.0, 1.0, None]))
    def a_ghost_reports(self, data: st.DataObject, reward: float | None) -> None:
        """A hung environment comes back, to finish or to park; its lease may still be its own."""
        episode = self.ghosts.pop(data.draw(st.integers(0, len(self.ghosts) - 1)))
        if reward is None:
            self.park(episode)
        else:
            self.store_episode(episode, reward)
        self.desk_does(lambda service: service.look(episode.lease.rollout_id))

    @rule(seconds=st.sampled_from([1.0, LEASE_S / 2, LEASE_S]))
    def time_passes(self, seconds: float) -> None:
        self.now_unix_s += seconds
        if self.desk_does(CurationService.revoke_overdue) is None:
            return
        live = self.store.snapshot().groups
        assert not [
            rollout
            for group in live
            for rollout in group.rollouts
            if rollout.environment is not None and rollout.deadline_unix_s <= self.now_unix_s
        ]

    # the experience pool

    @rule(seed=st.integers(1, 2), drops=st.booleans())
    def somebody_changes_the_pool(self, seed: int, drops: bool) -> None:
        if drops:
            self.store.drop_demonstration(seed)
        else:
            self.store.add_demonstrations([demonstration(seed)])

    # trainer and engines

    @rule(commits=st.booleans(), reports=st.booleans())
    def trains(self, commits: bool, reports: bool) -> None:
        """May die after it leased the batch, or after the commit and before it could say so."""
        batch = self.desk_does(CurationService.batch)
        if batch is None or isinstance(batch, NoWorkYet):
            return
        made = self.version + 1
        if not commits:
            self.slow_trainers.append((batch, made))
            return
        self.check_trainable(batch)
        answer = self.call("commit_update", batch.batch_id, batch.fence, made, {})
        assert answer in (StoredResult.ACCEPTED, None)
        if reports and answer is not None:
            self.desk_does(lambda service: service.committed(made))

    def check_trainable(self, batch: Batch) -> None:
        for group in self.store.groups_to_trajectories(batch.group_ids):
            rewards = [trajectory.reward for trajectory in group.trajectories]
            assert len({*rewards, *(one.reward for one in group.demonstrations)}) > 1, "nothing to compare"
            assert not group.demonstrations or max(rewards) == 0.0, "a demonstration beside a success"
            for trajectory in group.trajectories:
                assert trajectory.rollout_id not in self.trained, "trained twice"
                oldest = min(step.policy_version for step in trajectory.steps)
                assert self.version - oldest <= self.settings.staleness_bound, "not fresh"

    def was_trained(self, version: int) -> None:
        assert version == self.version + 1
        self.version = version
        for batch_id, group_ids in self.consumed():
            if batch_id == version:
                for group in self.store.groups_to_trajectories(group_ids):
                    for trajectory in group.trajectories:
                        assert trajectory.rollout_id not in self.trained, "trained twice"
                        self.trained[trajectory.rollout_id] = version

    def consumed(self) -> list[tuple[int, tuple[int, ...]]]:
        """Version and groups of every consumed batch."""
        query = (
            "SELECT b.version, g.group_id FROM batches b JOIN groups g USING (batch_id) "
            "WHERE b.version IS NOT NULL"
        )
        found: defaultdict[int, list[int]] = defaultdict(list)
        for version, group_id in self.store._bare.execute(query).fetchall():
            found[version].append(group_id)
        return [(version, tuple(group_ids)) for version, group_ids in found.items()]

    @precondition(lambda self: self.slow_trainers)
    @rule(data=st.data())
    def a_slow_trainer_commits(self, data: st.DataObject) -> None:
        """It had leased a batch long ago. Only while nobody else has been given the batch it may commit."""
        place = data.draw(st.integers(0, len(self.slow_trainers) - 1))
        batch, made = self.slow_trainers.pop(place)
        before, current = self.version, self.store.open_batch()
        is_current = current is not None and (current.batch_id, current.fence) == (
            batch.batch_id,
            batch.fence,
        )
        try:
            answer = self.call("commit_update", batch.batch_id, batch.fence, made, {})
        except StoreConflict:
            assert not is_current
            answer = StoredResult.FENCED
        assert self.version == before + (1 if answer == StoredResult.ACCEPTED else self.version - before)
        assert is_current or self.version == before
        if answer is not None:
            assert (answer == StoredResult.ACCEPTED) == is_current

    @precondition(lambda self: min(self.engines) < self.version)
    @rule(engines=st.sets(st.integers(0, ENGINES - 1), min_size=1))
    def engines_load_the_newest_version(self, engines: set[int]) -> None:
        for engine in engines:
            self.engines[engine] = self.version
        self.service.serving(min(self.engines))

    # what must hold

    @invariant()
    def every_rollout_has_one_fate(self) -> None:
        if not hasattr(self, "store"):
            return
        books = self.store.conservation()
        assert books.holds, books
        assert books.trained == len(self.trained)
        assert self.store.integrity(self.settings.staleness_bound) == ()
        assert "stale" not in self.store.totals(now_unix_s=self.now_unix_s).drops
        assert all(one.uses <= MAX_USES for one in self.store.demonstrations())

    def teardown(self) -> None:
        if not hasattr(self, "store"):
            return
        try:
            self.check_nothing_is_stuck()
        finally:
            for store in (*self.dead_stores, self.store):
                store.close()
            self.places.drop()

    def check_nothing_is_stuck(self) -> None:
        """Whatever happened, with everybody well again two more updates are made."""
        self.crash_in = None
        goal = self.version + 2
        for turn in range(300):
            self.engines = [self.version] * ENGINES
            self.service.serving(self.version)
            self.now_unix_s += 1.0
            at_once(self.service.revoke_overdue())
            for number, environment in enumerate(ENVIRONMENTS):
                self.asks_for_work(environment, 0, True)
                self.plays_to_its_end(environment, float((turn + number) % 2))
            self.trains(True, True)
            if self.version >= goal:
                self.every_rollout_has_one_fate()
                return
        raise AssertionError(f"stuck at version {self.version}: {at_once(self.service.batch())}")


@pytest.mark.timeout(900)
def test_the_invariants_hold_in_any_order_of_events_and_crashes(places: RecordPlaces) -> None:
    run_state_machine_as_test(
        lambda: Training(places),
        settings=settings(
            max_examples=examples(3 if ON_POSTGRESQL else 20),
            stateful_step_count=50,
            deadline=None,
            phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
