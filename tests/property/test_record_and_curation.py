"""The record and the desk under any order of events and crashes keep their invariants.

one-fate, fenced, fresh (by admission: nothing is ever dropped as stale), exactly-once training, no-idle, and
in the end nothing is stuck.
"""

import shutil
import tempfile
from functools import cache
from pathlib import Path

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dart.curation import groups
from dart.curation.admission import groups_admissible
from dart.curation.curator import Settings
from dart.curation.decisions import NoBatch, NoWork
from dart.curation.desk import open_desk
from dart.curation.quota import FixedQuota, GroupPlan
from dart.curation.testing import LocalRecord, finish
from dart.store.errors import StoreConflict
from dart.store.records import Batch, Commit, Finish
from dart.store.store import Store
from dart.store.testing import trajectory_for
from dart.types import FaultKind, RolloutLease

ENVIRONMENTS = tuple(f"env-{number:03d}" for number in range(3))
ENGINES = 2
LEASE_S = 10.0


@cache
def new_record() -> Path:
    """A record with version 0, migrated once."""
    path = Path(tempfile.mkdtemp()) / "store.db"
    with Store(path) as store:
        store.add_version("checkpoints/0")
    return path


class Episode:
    """A lease being played; each step is sampled by some engine at the version it serves then."""

    def __init__(self, lease: RolloutLease, environment: str, version: int) -> None:
        self.lease = lease
        self.environment = environment
        self.versions = [version]


class Training(RuleBasedStateMachine):
    """Environments, engines and a trainer around one desk and one record, each of which may die."""

    @initialize(bound=st.integers(0, 2), groups_per_update=st.integers(1, 2), rollouts=st.integers(2, 3))
    def start(self, bound: int, groups_per_update: int, rollouts: int) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.path = shutil.copy(new_record(), self.folder / "store.db")
        self.settings = Settings(
            tasks=("click-test", "login-user"),
            seeds=range(50),
            quota=FixedQuota(GroupPlan(rollouts=rollouts, step_cap=5)),
            groups_per_update=groups_per_update,
            staleness_bound=bound,
            max_attempts=3,
            lease_s=LEASE_S,
        )
        self.now_unix_s = 0.0
        self.dead_stores: list[Store] = []
        self.store = self.open_store()
        self.engines = [0] * ENGINES
        self.version = 0
        self.open_desk()
        self.played: dict[str, Episode] = {}
        self.ghosts: list[Episode] = []
        self.issued: set[int] = set()
        self.trained: dict[int, int] = {}

    def open_store(self) -> Store:
        return Store(self.path, clock=lambda: self.now_unix_s)

    def open_desk(self) -> None:
        self.desk = finish(open_desk(self.settings, LocalRecord(self.store), lambda: self.now_unix_s))
        self.desk.serving(min(self.engines))

    # environments

    @rule(environment=st.sampled_from(ENVIRONMENTS), engine=st.integers(0, ENGINES - 1))
    def asks_for_work(self, environment: str, engine: int) -> None:
        """An idle environment, or one whose answer got lost or which was restarted."""
        if environment in self.played:
            self.ghosts.append(self.played.pop(environment))
        answer = finish(self.desk.work(environment))
        if isinstance(answer, NoWork):
            self.check_no_work_was_left()
            return
        assert (answer.attempt == 1) == (answer.rollout_id not in self.issued)
        self.issued.add(answer.rollout_id)
        self.played[environment] = Episode(answer, environment, self.engines[engine])

    def check_no_work_was_left(self) -> None:
        """no-idle, counted from the record alone."""
        live = self.store.snapshot().groups
        for group in live:
            assert groups.awaiting(group) is None, group
            assert not groups.unissued(group), group
        assert (
            groups_admissible(
                serving_version=min(self.engines),
                trainer_version=self.version,
                live_groups=len(live),
                groups_per_update=self.settings.groups_per_update,
                staleness_bound=self.settings.staleness_bound,
            )
            <= 0
        )

    @precondition(lambda self: self.played)
    @rule(data=st.data(), engine=st.integers(0, ENGINES - 1))
    def takes_a_step(self, data: st.DataObject, engine: int) -> None:
        episode = self.played[data.draw(st.sampled_from(sorted(self.played)))]
        episode.versions.append(self.engines[engine])

    @precondition(lambda self: self.played)
    @rule(data=st.data(), reward=st.sampled_from([0.0, 1.0]), reports=st.booleans())
    def finishes(self, data: st.DataObject, reward: float, reports: bool) -> None:
        """Stores its trajectory; may die before it can say so."""
        episode = self.played.pop(data.draw(st.sampled_from(sorted(self.played))))
        self.store_episode(episode, reward)
        if reports:
            finish(self.desk.look(episode.lease.rollout_id))

    def store_episode(self, episode: Episode, reward: float) -> Finish:
        lease = episode.lease
        before = self.store.rollout(lease.rollout_id)
        holds = before.environment == episode.environment and before.fence == lease.fence
        trajectory = trajectory_for(lease, reward, episode.versions, episode.environment)
        answer = self.store.finish_rollout(lease.rollout_id, lease.fence, trajectory)
        assert (answer == Finish.ACCEPTED) == holds
        if answer == Finish.ACCEPTED:
            assert self.store.finish_rollout(lease.rollout_id, lease.fence, trajectory) == Finish.DUPLICATE
        else:
            assert self.store.rollout(lease.rollout_id) == before
        return answer

    @rule(environment=st.sampled_from(ENVIRONMENTS), episodes=st.integers(1, 4), lucky=st.booleans())
    def plays_on_and_on(self, environment: str, episodes: int, lucky: bool) -> None:
        """Whole episodes in a row, every other one a success: others may be overtaken."""
        for number in range(episodes):
            self.asks_for_work(environment, 0)
            episode = self.played.pop(environment, None)
            if episode is not None:
                self.store_episode(episode, float((number + lucky) % 2))
                finish(self.desk.look(episode.lease.rollout_id))

    @precondition(lambda self: self.played)
    @rule(data=st.data(), kind=st.sampled_from(FaultKind))
    def fails(self, data: st.DataObject, kind: FaultKind) -> None:
        episode = self.played.pop(data.draw(st.sampled_from(sorted(self.played))))
        finish(self.desk.failed(episode.lease.rollout_id, episode.lease.fence, kind, "made up"))

    @precondition(lambda self: self.played)
    @rule(data=st.data())
    def hangs(self, data: st.DataObject) -> None:
        self.ghosts.append(self.played.pop(data.draw(st.sampled_from(sorted(self.played)))))

    @precondition(lambda self: self.ghosts)
    @rule(data=st.data(), reward=st.sampled_from([0.0, 1.0]))
    def a_ghost_reports(self, data: st.DataObject, reward: float) -> None:
        """A hung environment comes back; its lease may still be its own."""
        episode = self.ghosts.pop(data.draw(st.integers(0, len(self.ghosts) - 1)))
        self.store_episode(episode, reward)
        finish(self.desk.look(episode.lease.rollout_id))

    @rule(seconds=st.sampled_from([1.0, LEASE_S / 2, LEASE_S]))
    def time_passes(self, seconds: float) -> None:
        self.now_unix_s += seconds
        finish(self.desk.take_back_overdue())
        live = self.store.snapshot().groups
        assert not [
            rollout
            for group in live
            for rollout in group.rollouts
            if rollout.environment is not None and rollout.deadline_unix_s <= self.now_unix_s
        ]

    # trainer and engines

    @rule(commits=st.booleans(), reports=st.booleans())
    def trains(self, commits: bool, reports: bool) -> None:
        """May die after it leased the batch, or after the commit and before it could say so."""
        batch = finish(self.desk.batch())
        if isinstance(batch, NoBatch) or not commits:
            return
        self.commit(batch)
        if reports:
            finish(self.desk.committed(self.version))

    def commit(self, batch: Batch) -> None:
        for group in self.store.groups_to_trajectories(batch.group_ids):
            assert len({trajectory.reward for trajectory in group.trajectories}) > 1
            for trajectory in group.trajectories:
                assert trajectory.rollout_id not in self.trained, "trained twice"
                self.trained[trajectory.rollout_id] = self.version + 1
                oldest = min(step.policy_version for step in trajectory.steps)
                assert self.version - oldest <= self.settings.staleness_bound, "not fresh"
        self.version += 1
        update = (batch.batch_id, batch.fence, self.version, f"checkpoints/{self.version}", {})
        assert self.store.commit_update(*update) == Commit.COMMITTED
        assert self.store.commit_update(*update) == Commit.DUPLICATE

    @precondition(lambda self: self.version)
    @rule(ahead=st.integers(0, 1))
    def a_second_trainer_commits_a_consumed_batch(self, ahead: int) -> None:
        try:
            answer = self.store.commit_update(self.version, 1, self.version + ahead, "checkpoints/other", {})
        except StoreConflict:
            return
        if answer == Commit.FENCED:
            return  # the first trainer's lease was a later one
        raise AssertionError("a consumed batch was trained twice")

    @precondition(lambda self: min(self.engines) < self.version)
    @rule(engines=st.sets(st.integers(0, ENGINES - 1), min_size=1))
    def engines_load_the_newest_version(self, engines: set[int]) -> None:
        for engine in engines:
            self.engines[engine] = self.version
        self.desk.serving(min(self.engines))

    # crashes

    @rule()
    def the_curator_dies(self) -> None:
        self.open_desk()

    @rule()
    def the_store_dies(self) -> None:
        """Nothing is closed; as the tree has it, the curator dies along."""
        self.dead_stores.append(self.store)
        self.store = self.open_store()
        self.open_desk()

    @invariant()
    def every_rollout_has_one_fate(self) -> None:
        if not hasattr(self, "store"):
            return
        books = self.store.conservation()
        assert books.holds, books
        assert books.issued == len(self.issued)
        assert books.trained == len(self.trained)
        assert self.store.integrity(self.settings.staleness_bound) == ()
        assert "stale" not in self.store.totals(now_unix_s=self.now_unix_s).drops

    def teardown(self) -> None:
        if not hasattr(self, "store"):
            return
        try:
            self.check_nothing_is_stuck()
        finally:
            for store in (*self.dead_stores, self.store):
                store.close()
            shutil.rmtree(self.folder)

    def check_nothing_is_stuck(self) -> None:
        """Whatever happened, with everybody well again two more updates are made."""
        goal = self.version + 2
        for turn in range(300):
            self.engines = [self.version] * ENGINES
            self.desk.serving(self.version)
            self.now_unix_s += 1.0
            finish(self.desk.take_back_overdue())
            for number, environment in enumerate(ENVIRONMENTS):
                self.asks_for_work(environment, 0)
                if environment in self.played:
                    episode = self.played.pop(environment)
                    self.store_episode(episode, float((turn + number) % 2))
                    finish(self.desk.look(episode.lease.rollout_id))
            self.trains(True, True)
            if self.version >= goal:
                self.every_rollout_has_one_fate()
                return
        raise AssertionError(f"stuck at version {self.version}: {finish(self.desk.batch())}")


TestTraining = Training.TestCase
TestTraining.settings = settings(
    max_examples=20,
    stateful_step_count=50,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow],
)
