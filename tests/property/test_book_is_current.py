"""A book kept current row by row decides as one that was read from the record just now.

And as the plain rules do, written down here without an index: every question is answered by looking at all
rows of the record.
"""

from random import Random

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from dart.config.sections import TaskQuarantineSettings
from dart.core.messages import LeaseBatch, LeaseRollout, NoWorkYet, ReassignRollout
from dart.core.records import Batch, GroupRecord, Snapshot
from dart.core.types import FaultKind, RolloutLease
from dart.curation import groups
from dart.curation.admission import Scheduling, can_all_be_fresh
from dart.curation.curator import Curator
from dart.curation.experience_pool import PoolRule
from dart.curation.groups import version_floor
from dart.curation.quota import Quota
from dart.curation.service import CurationService, open_service
from dart.curation.settings import CuratorSettings
from dart.curation.step_cap import StepCap
from dart.curation.task_selection import ByExpectedSpread, RoundRobin, turn
from dart.testing.local_record import at_once
from tests.examples import examples
from tests.scratch_record import ScratchRecord

pytestmark = pytest.mark.slow

ENVIRONMENTS = [f"env-{number:03d}" for number in range(8)]
MOMENTS = 250


def rules(chance: Random) -> CuratorSettings:
    """Everything that can be on, on or off."""
    most = chance.randint(2, 4)
    return CuratorSettings(
        tasks=tuple(f"task-{number}" for number in range(chance.randint(1, 5))),
        seeds=range(20),
        quota=Quota(most=most, minimum=2, threshold=0.6),
        largest_step_cap=10,
        groups_per_update=chance.randint(1, 3),
        staleness_bound=chance.randint(0, 3),
        max_attempts=2,
        lease_s=20.0,
        over_provision=chance.choice([0.0, 1.5]),
        scheduling=chance.choice([Scheduling.ROLLOUT, Scheduling.ROLLOUT, Scheduling.BATCH]),
        step_cap=StepCap(largest=10, slack=1, probe_share=0.3) if chance.random() < 0.7 else None,
        pool=PoolRule(
            max_uses=3,
            matches_seeds=chance.random() < 0.5,
            guided_attempts=chance.choice([0, 2]),
        )
        if chance.random() < 0.7
        else None,
        task_quarantine=TaskQuarantineSettings(
            groups_without_success=3, failed_attempts=3, lost_environments=2, duration_s=30.0
        )
        if chance.random() < 0.5
        else None,
        task_order=chance.choice([RoundRobin, ByExpectedSpread]),
        order_seed=chance.randrange(100),
        penalised_up_to=0.5 if chance.random() < 0.5 else None,
        compared_above=0.5 if chance.random() < 0.5 else None,
    )


class Run:
    """Environments and a trainer that do something at every moment, and crash."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.settings = rules(self.chance)
        self.now_unix_s = 0.0
        self.record = ScratchRecord(lambda: self.now_unix_s)
        for task_id in self.settings.tasks:
            self.record.add_demonstration(task_id, 1, num_steps=4)
        self.service: CurationService = at_once(
            open_service(self.settings, self.record, lambda: self.now_unix_s)
        )
        self.serving = 0
        self.played: dict[str, RolloutLease] = {}
        self.leases = self.batches = 0

    def moment(self) -> None:
        self.now_unix_s += self.chance.choice([0.001, 0.5, 3.0])  # no clock stands still
        self.serving = self.chance.choice([self.serving, self.record.version])
        self.service.serving(self.serving)
        self.chance.choice([self.play, self.play, self.play, self.train, self.guided, self.look_after])()

    def play(self) -> None:
        environment = self.chance.choice(ENVIRONMENTS)
        lease = self.played.pop(environment, None)
        if lease is not None and self.chance.random() < 0.9:
            self.end(lease)
            return
        answer = at_once(self.service.work(environment))  # it died with its lease, if it had one
        if isinstance(answer, RolloutLease):
            self.leases += 1
            self.played[environment] = answer

    def end(self, lease: RolloutLease) -> None:
        how = self.chance.random()
        if how < 0.1:
            kind = self.chance.choice(list(FaultKind))
            at_once(self.service.failed(lease.rollout_id, lease.fence, kind, "made up"))
        elif how < 0.2:
            self.record.park(lease, 2, self.serving, max_resumes=2, max_attempts=2)
            at_once(self.service.look(lease.rollout_id))
        else:
            reward = self.chance.choice([0.0, 0.0, 0.3, 1.0, 1.0, 1.0])
            self.record.finish(lease, reward, self.chance.choice([1, 1, 2, 5, 10]), self.serving)
            at_once(self.service.look(lease.rollout_id))

    def train(self) -> None:
        batch = at_once(self.service.batch())
        if isinstance(batch, Batch) and self.chance.random() < 0.8:
            self.batches += 1
            self.record.commit_update(batch, self.record.version + 1)
            if self.chance.random() < 0.8:
                at_once(self.service.committed(self.record.version))

    def guided(self) -> None:
        """Somebody plays under the actions of a demonstration, and does it or does not."""
        guide = self.service.curator.next_guide(())
        if guide is not None:
            succeeded = self.chance.random() < 0.5
            self.record.record_guided(guide.pool_id, guide.rolls + 1, succeeded=succeeded)
            self.service.pool_changed(guide.task_id)

    def look_after(self) -> None:
        at_once(self.service.revoke_overdue())
        if self.chance.random() < 0.2:
            self.service = at_once(open_service(self.settings, self.record, lambda: self.now_unix_s))
            self.service.serving(self.serving)

    def check(self) -> None:
        snapshot = self.record.snapshot(self.settings.kept_episodes)
        book = self.service.curator
        if snapshot.version != book.trainer_version:
            return  # the trainer committed and could not say so
        fresh = Curator(self.settings, snapshot, self.serving)
        book.serving_version = self.serving
        assert stages(book) == stages(fresh)
        assert book.drops() == fresh.drops() == ()
        assert book.batch(self.now_unix_s) == fresh.batch(self.now_unix_s)
        assert book.batch(self.now_unix_s) == plain_batch(self.settings, snapshot, self.now_unix_s)
        assert book.overdue(self.now_unix_s) == fresh.overdue(self.now_unix_s)
        asked = book.work_for("without-a-lease", self.now_unix_s)
        if not may_restart_change_the_turn(self.settings):
            assert asked == fresh.work_for("without-a-lease", self.now_unix_s)
        check_work(asked, snapshot, self.settings)
        for known in snapshot.tasks:
            task, read = book.tasks[known.task_id], fresh.tasks[known.task_id]
            assert task.health.quarantine == read.health.quarantine
            assert [
                (one.groups_opened, tuple(one.played), one.longest_success_steps, one.rollouts, one.step_cap)
                for one in (task, read)
            ] == [
                (
                    known.groups_opened,
                    known.recent,
                    known.longest_success_steps,
                    read.rollouts,
                    read.step_cap,
                )
            ] * 2
            assert (task.unfinished, task.demonstrations) == (read.unfinished, read.demonstrations)


def may_restart_change_the_turn(settings: CuratorSettings) -> bool:
    """Whether a restart may change the round robin: the record does not hold when a task came back."""
    return settings.task_quarantine is not None and settings.task_order is RoundRobin


def stages(book: Curator) -> tuple[object, ...]:
    """How many groups are live and unbatched, which ones are at each stage, and what is played."""
    index = book._live_groups
    stages = (index._playable, index.unfinished, index.ready, index._by_oldest_step)
    held = sorted(rollout.rollout_id for rollout in index.held())
    return len(index), index.unbatched, [sorted(stage) for stage in stages], held


def oldest_first(snapshot: Snapshot) -> list[GroupRecord]:
    waiting = [group for group in snapshot.groups if group.batch_id is None]
    return sorted(waiting, key=lambda group: (version_floor(group), group.group_id))


def check_work(decision: object, snapshot: Snapshot, settings: CuratorSettings) -> None:
    """What awaits somebody before what is new, oldest group first; then the task whose turn it is."""
    in_order = oldest_first(snapshot)
    awaiting = [found for group in in_order if (found := groups.awaiting(group)) is not None]
    unissued = [group for group in in_order if groups.unissued(group)]
    if awaiting:
        assert isinstance(decision, ReassignRollout)
        assert decision.rollout_id == awaiting[0].rollout_id
    elif unissued:
        assert isinstance(decision, LeaseRollout)
        assert decision.group_id == unissued[0].group_id
    elif (
        settings.task_quarantine is None
        and settings.task_order is RoundRobin
        and not isinstance(decision, NoWorkYet)
    ):
        opened = {task.task_id: task.groups_opened for task in snapshot.tasks}
        turns = {name: turn(name, opened.get(name, 0), settings.order_seed) for name in settings.tasks}
        assert getattr(decision, "task_id", None) == min(settings.tasks, key=lambda name: turns[name])


def plain_batch(rules: CuratorSettings, snapshot: Snapshot, now_unix_s: float) -> LeaseBatch | NoWorkYet:
    """Earliest deadline first, from all rows."""
    in_order = oldest_first(snapshot)
    ready = [
        group
        for group in in_order
        if groups.is_complete(group)
        and not groups.why_untrainable(group, rules.penalised_up_to, rules.compared_above)
    ]
    wanted, version = rules.groups_per_update, snapshot.version or 0

    def in_time(live: list[GroupRecord], at: int) -> bool:
        return all(
            at + place // wanted <= version_floor(group) + rules.staleness_bound
            for place, group in enumerate(live)
        )

    if len(ready) < wanted:
        text = f"{len(ready)} of {wanted} groups are ready, {len(snapshot.groups)} are live"
        return NoWorkYet(retry_after_s=rules.retry_after_s, reason=text)
    left = [group for group in in_order if group not in ready[:wanted]]
    if in_time(left, version + 1) or not in_time(in_order, version):
        return LeaseBatch(
            group_ids=tuple(group.group_id for group in ready[:wanted]),
            deadline_unix_s=now_unix_s + rules.batch_lease_s,
        )
    slow = next(group for group in left if not groups.is_complete(group))
    text = f"group {slow.group_id} ({slow.task_id}) must be in the next batch and is still being played"
    return NoWorkYet(retry_after_s=rules.retry_after_s, reason=text)


@given(seed=st.integers(0, 2**32))
@settings(max_examples=examples(10), deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
def test_a_book_kept_current_is_the_book_read_anew(seed: int) -> None:
    run = Run(seed)
    for _ in range(MOMENTS):
        run.moment()
        run.check()
    assert run.record.store.conservation().holds
    assert "stale" not in run.record.drops


def test_the_runs_do_contain_updates_and_every_way_to_end() -> None:
    runs = [Run(seed) for seed in range(8)]
    for run in runs:
        for _ in range(MOMENTS):
            run.moment()
    assert sum(run.batches for run in runs) > 20
    reasons = {reason for run in runs for reason in run.record.drops}
    assert {"no_spread", "task_quarantined", "attempts_spent:infrastructure"} <= reasons


@given(
    floors=st.lists(st.integers(0, 6), max_size=12),
    trainer=st.integers(0, 6),
    wanted=st.integers(1, 4),
    bound=st.integers(0, 3),
)
@settings(max_examples=examples(200), deadline=None)
def test_counting_floors_is_the_same_as_going_through_all_groups(
    floors: list[int], trainer: int, wanted: int, bound: int
) -> None:
    one_by_one = all(trainer + place // wanted <= floor + bound for place, floor in enumerate(sorted(floors)))
    counted = can_all_be_fresh(
        {floor: floors.count(floor) for floor in floors},
        trainer_version=trainer,
        groups_per_update=wanted,
        staleness_bound=bound,
    )
    assert counted is one_by_one
