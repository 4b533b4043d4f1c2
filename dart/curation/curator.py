"""Who plays what next, and what is trained next: decisions over a book that mirrors the record.

The book is a copy of the record's live groups. It is built from a snapshot and kept current by showing it
rows again (`group_seen`, `rollout_seen`); it is never ahead of the record, so a restarted curator decides as
the last one would have. No I/O, no clock: times come in.

Rollout-wise scheduling (DART, arXiv 2509.23866 fig. 3c): an idle environment gets the next rollout of
whatever group needs one, oldest group first; no environment waits for another (invariant no-idle).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dart.curation import groups
from dart.curation.admission import can_all_be_fresh, groups_admissible, is_stale
from dart.curation.decisions import (
    DropGroup,
    LeaseAgain,
    LeaseBatch,
    LeaseNew,
    NoBatch,
    NoWork,
    OpenGroup,
    TakeBack,
)
from dart.curation.groups import DropReason
from dart.curation.quota import Quota
from dart.curation.selection import next_seed, next_task
from dart.store.records import GroupRecord, RolloutRecord, Snapshot, TaskStatistics
from dart.types import FaultKind, RolloutState


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the curator goes by."""

    tasks: tuple[str, ...]
    seeds: Sequence[int]
    """Training seeds; a range will do."""
    quota: Quota
    groups_per_update: int
    staleness_bound: int
    """K, in policy versions."""
    max_attempts: int
    lease_s: float
    retry_after_s: float = 0.5
    order_seed: int = 0
    weights: Mapping[str, float] = field(default_factory=dict)
    """Relative share of groups by task; 1 where not given."""

    def __post_init__(self) -> None:
        if not self.tasks or not self.seeds:
            raise ValueError(
                f"curation needs tasks and seeds, got tasks {self.tasks!r}, {len(self.seeds)} seeds"
            )
        if self.groups_per_update < 1 or self.staleness_bound < 0 or self.max_attempts < 1:
            raise ValueError(
                "curation needs groups_per_update >= 1, staleness_bound >= 0, max_attempts >= 1, got "
                f"{self.groups_per_update}, {self.staleness_bound}, {self.max_attempts}"
            )


WorkDecision = TakeBack | LeaseAgain | LeaseNew | OpenGroup | NoWork


class Curator:
    """The book and the decisions taken from it."""

    def __init__(self, settings: Settings, snapshot: Snapshot, serving_version: int | None = None) -> None:
        self.settings = settings
        self.serving_version = serving_version
        """Oldest version any engine serves; None while none does. Nothing is opened before it is known."""
        self.trainer_version = snapshot.version
        self._groups = {group.group_id: group for group in snapshot.groups}
        self._tasks = {task.task_id: task for task in snapshot.tasks}

    # what happened

    def group_seen(self, group: GroupRecord) -> None:
        """A group was opened."""
        if group.group_id not in self._groups:
            known = self._statistics(group.task_id)
            self._tasks[group.task_id] = replace(known, groups_opened=known.groups_opened + 1)
        self._groups[group.group_id] = group

    def rollout_seen(self, rollout: RolloutRecord) -> None:
        """A rollout was leased, taken back, finished or dropped; settled groups are out of the book."""
        group = self._groups.get(rollout.group_id)
        if group is None:
            return
        others = [known for known in group.rollouts if known.rollout_id != rollout.rollout_id]
        members = sorted([*others, rollout], key=lambda member: member.rollout_id)
        self._groups[group.group_id] = replace(group, rollouts=tuple(members))

    def group_dropped(self, group_id: int) -> None:
        """A group is out of the book."""
        del self._groups[group_id]

    # what to do

    def work_for(self, environment: str, now_unix_s: float) -> WorkDecision:
        """What an idle environment should play.

        TakeBack and OpenGroup prepare work: carry them out, show the result, ask again.
        """
        for rollout in self._played_by(environment):
            return self._take_back(rollout, f"{environment} asked for work while it held this lease")
        deadline_unix_s = now_unix_s + self.settings.lease_s
        for group in self._oldest_first():
            if (waiting := groups.awaiting(group)) is not None:
                return LeaseAgain(rollout_id=waiting.rollout_id, deadline_unix_s=deadline_unix_s)
        for group in self._oldest_first():
            if groups.unissued(group):
                return LeaseNew(group_id=group.group_id, deadline_unix_s=deadline_unix_s)
        return self._new_group()

    def overdue(self, now_unix_s: float) -> tuple[TakeBack, ...]:
        """Leases whose deadline has passed, to be played again by somebody else."""
        return tuple(
            self._take_back(rollout, f"{rollout.environment} did not report by the deadline of its lease")
            for rollout in self._played()
            if rollout.deadline_unix_s <= now_unix_s
        )

    def after_fault(self, rollout_id: int, fence: int, fault_kind: FaultKind, detail: str) -> TakeBack:
        """What to do with a reported fault. A task that cannot be set up is not tried again."""
        return TakeBack(
            rollout_id=rollout_id,
            fence=fence,
            fault_kind=fault_kind,
            detail=detail,
            max_attempts=1 if fault_kind == FaultKind.TASK else self.settings.max_attempts,
        )

    def drops(self) -> tuple[DropGroup, ...]:
        """Groups that will never be trained."""
        reasons = ((group, self._why_drop(group)) for group in self._unbatched())
        return tuple(
            DropGroup(group_id=group.group_id, reason=why) for group, why in reasons if why is not None
        )

    def batch(self) -> LeaseBatch | NoBatch:
        """The oldest ready groups, unless taking them would make a group left behind too old."""
        ready = [group for group in self._oldest_first() if self._is_ready(group)]
        wanted = self.settings.groups_per_update
        if len(ready) < wanted:
            return self._no_batch(f"{len(ready)} of {wanted} groups are ready, {len(self._groups)} are live")
        chosen = tuple(group.group_id for group in ready[:wanted])
        if (slow := self._would_be_too_late(chosen)) is not None:
            return self._no_batch(
                f"group {slow.group_id} ({slow.task_id}) must be in the next batch and is still being played"
            )
        return LeaseBatch(group_ids=chosen)

    # how

    def _statistics(self, task_id: str) -> TaskStatistics:
        new = TaskStatistics(task_id=task_id, groups_opened=0, recent_rewards=(), longest_success_steps=None)
        return self._tasks.get(task_id, new)

    def _unbatched(self) -> list[GroupRecord]:
        return [group for group in self._groups.values() if group.batch_id is None]

    def _oldest_first(self) -> list[GroupRecord]:
        return sorted(self._unbatched(), key=lambda group: (groups.version_floor(group), group.group_id))

    def _played(self) -> Iterator[RolloutRecord]:
        for group in self._groups.values():
            for rollout in group.rollouts:
                if rollout.state == RolloutState.LEASED and rollout.environment is not None:
                    yield rollout

    def _played_by(self, environment: str) -> list[RolloutRecord]:
        return [rollout for rollout in self._played() if rollout.environment == environment]

    def _take_back(self, rollout: RolloutRecord, detail: str) -> TakeBack:
        return self.after_fault(rollout.rollout_id, rollout.fence, FaultKind.INFRASTRUCTURE, detail)

    def _new_group(self) -> OpenGroup | NoWork:
        if self.serving_version is None or self.trainer_version is None:
            return self._no_work("no engine serves a policy version yet")
        admissible = groups_admissible(
            serving_version=self.serving_version,
            trainer_version=self.trainer_version,
            live_groups=len(self._groups),
            groups_per_update=self.settings.groups_per_update,
            staleness_bound=self.settings.staleness_bound,
        )
        if admissible <= 0:
            return self._no_work(
                f"{len(self._groups)} groups are live; one more could be older than "
                f"{self.settings.staleness_bound} versions when it is trained "
                f"(trainer at {self.trainer_version}, engines at {self.serving_version})"
            )
        return self._open_group(self.serving_version)

    def _open_group(self, serving_version: int) -> OpenGroup:
        settings = self.settings
        opened = {task_id: task.groups_opened for task_id, task in self._tasks.items()}
        task_id = next_task(settings.tasks, opened, settings.weights, settings.order_seed)
        plan = settings.quota.plan(self._statistics(task_id))
        return OpenGroup(
            task_id=task_id,
            seed=next_seed(task_id, opened.get(task_id, 0), settings.seeds, settings.order_seed),
            rollouts_wanted=plan.rollouts,
            step_cap=plan.step_cap,
            policy_version=serving_version,
        )

    def _is_ready(self, group: GroupRecord) -> bool:
        return groups.is_complete(group) and self._why_drop(group) is None

    def _why_drop(self, group: GroupRecord) -> DropReason | None:
        oldest = groups.oldest_step(group)
        if oldest is not None and self.trainer_version is not None:
            bound = self.settings.staleness_bound
            if is_stale(oldest, trainer_version=self.trainer_version, staleness_bound=bound):
                return DropReason.STALE
        return groups.why_untrainable(group)

    def _would_be_too_late(self, chosen: tuple[int, ...]) -> GroupRecord | None:
        """An unfinished group that would become stale if it were left behind; None to go ahead.

        Where some group will be stale whatever is chosen there is nothing to wait for.
        """
        left = [group for group in self._oldest_first() if group.group_id not in chosen]
        if self._can_all_be_fresh(left, updates_from_now=1) or not self._can_all_be_fresh(
            self._unbatched(), updates_from_now=0
        ):
            return None
        return next(group for group in left if not groups.is_complete(group))

    def _can_all_be_fresh(self, live: Sequence[GroupRecord], updates_from_now: int) -> bool:
        return can_all_be_fresh(
            [groups.version_floor(group) for group in live],
            trainer_version=(self.trainer_version or 0) + updates_from_now,
            groups_per_update=self.settings.groups_per_update,
            staleness_bound=self.settings.staleness_bound,
        )

    def _no_work(self, reason: str) -> NoWork:
        return NoWork(retry_after_s=self.settings.retry_after_s, reason=reason)

    def _no_batch(self, reason: str) -> NoBatch:
        return NoBatch(retry_after_s=self.settings.retry_after_s, reason=reason)
