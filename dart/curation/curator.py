"""Decides which rollouts are played and which groups are trained next, from an index that mirrors the record.

The index is built from a snapshot of the record. It is updated with rows that are read again (`group_seen`,
`rollout_seen`) and with decisions that were carried out. The index is never ahead of the record, so a
restarted curator makes the same decisions as its predecessor. The curator does no I/O and has no clock: the
caller passes the time. Every decision takes O(log n) for n live groups, tasks or held leases, except that the
task of a new group takes O(n) where tasks are chosen by their expected spread. Most decisions are messages to
the store, which carries them out.

Rollout-wise scheduling (DART, arXiv 2509.23866 fig. 3c): an idle environment gets the next rollout of
any group that has one to lease, oldest group first; no environment waits for another (invariant no-idle).
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from dart.core.messages import (
    DropGroup,
    LeaseBatch,
    LeaseRollout,
    NoWorkYet,
    OpenGroup,
    ReassignRollout,
    ReleaseRollout,
    UseDemonstration,
)
from dart.core.records import (
    Batch,
    DemonstrationSummary,
    GroupRecord,
    RolloutRecord,
    Snapshot,
    TaskDecision,
)
from dart.core.types import FaultKind, RolloutState
from dart.curation import groups
from dart.curation.admission import (
    can_all_be_fresh,
    groups_admissible,
    most_groups,
    why_no_new_group,
)
from dart.curation.groups import DropReason
from dart.curation.lease_deadline import is_overdue
from dart.curation.live_group_index import LiveGroupIndex
from dart.curation.settings import CuratorSettings
from dart.curation.stall_diagnosis import Playing
from dart.curation.task_state import TaskTable


@dataclass(frozen=True, slots=True, kw_only=True)
class RevokeLease:
    """The decision to revoke a lease, which spends an attempt of the rollout."""

    release: ReleaseRollout
    environment_lost: bool
    """Whether the environment that held the lease died or hung."""


def _nothing_known(environment: str) -> float | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Liveness:
    """Which environments are alive, and whether engines answer them."""

    alive_since: Callable[[str], float | None] = _nothing_known
    """Returns when an environment started, in unix seconds; None if it does not run or its beats stopped."""
    supervised_since: Callable[[str], float | None] = _nothing_known
    """Returns when the supervisor of an environment started, in unix seconds; None if this is not known."""
    waited_unix_s: Callable[[str], float] = lambda _: 0.0
    """Returns when a full disk or the object storage last kept an environment from storing what it played."""
    engines_answer: bool = True
    """Whether at every moment of the last `lease_s` at least one engine was able to answer."""


WorkDecision = RevokeLease | ReassignRollout | LeaseRollout | OpenGroup | NoWorkYet


class Curator:
    """Decides what is played and what is trained, from the live groups and the state of the tasks."""

    def __init__(
        self, settings: CuratorSettings, snapshot: Snapshot, serving_version: int | None = None
    ) -> None:
        self.settings = settings
        self.serving_version = serving_version
        """Oldest version that any engine serves; None while no engine serves one, and no group is opened."""
        self.liveness = Liveness()
        self.trainer_version = snapshot.version
        self.open_batch = snapshot.batch
        """The batch that is leased to the trainer; None if there is none."""
        self._live_groups = LiveGroupIndex(snapshot.groups, settings.penalised_up_to, settings.compared_above)
        self.tasks = TaskTable(settings, snapshot.tasks)
        self.wanted_guides: dict[int, str] = {}
        """Task id by pool id of the demonstrations that guided episodes shall use. Each is here because every
        rollout of a group of its task failed."""
        self._to_help: dict[int, None] = {
            group_id: None for group_id in self._live_groups.untrainable if self._has_no_success(group_id)
        }
        """Ids of complete groups without a success for which a demonstration is still to be looked for; the
        keys are in order. A group that was complete and trainable before this curator began is not here,
        because the trainer may have computed an update on it ahead of its lease."""
        self._group_of: dict[str, int] = {}
        """Id of the group in which each environment played last; empty unless scheduling is `task`."""
        for group_id in self._live_groups.unfinished:
            self.tasks.group_is_played(self._live_groups[group_id].task_id, 1)

    def continue_from(self, before: "Curator") -> None:
        """Take over what the record does not hold from the curator that this one replaces."""
        self.liveness, self.wanted_guides = before.liveness, before.wanted_guides
        self._to_help |= {one: None for one in before._to_help if self._live_groups.get(one) is not None}

    # ---- events ----

    def group_seen(self, group: GroupRecord) -> None:
        """Add a newly opened group to the index."""
        is_new = self._live_groups.get(group.group_id) is None
        self._live_groups.put(group)
        if is_new:
            self.tasks.group_opened(group.task_id)

    def rollout_seen(self, rollout: RolloutRecord) -> None:
        """Update the index with the row of a rollout that was leased, revoked, parked, finished or dropped.

        A rollout of a group that is not live is ignored.
        """
        group = self._live_groups.get(rollout.group_id)
        if group is None:
            return
        was_played = rollout.group_id in self._live_groups.unfinished
        before = self._live_groups.put_rollout(rollout)
        if rollout.environment is not None and self.settings.scheduling.keeps_environments_with_their_group:
            self._group_of[rollout.environment] = rollout.group_id
        is_completed = was_played and rollout.group_id not in self._live_groups.unfinished
        if is_completed and self._has_no_success(rollout.group_id):
            self._to_help[rollout.group_id] = None
        was_stored = before is not None and before.state == RolloutState.STORED
        if rollout.state == RolloutState.STORED and not was_stored and rollout.reward is not None:
            self.tasks.episode_ended(group.task_id, group.seed, rollout.reward, rollout.num_steps)
        if is_completed:
            self.tasks.group_is_played(group.task_id, -1)

    def attempt_failed(self, group_id: int, fault_kind: FaultKind, *, environment_lost: bool) -> None:
        """Count a failed attempt for its task: the environment died, hung or reported a fault.

        A fault of an engine, of the store or of the server of a file (`FaultKind.SYSTEM`) does not count
        against the task, and neither does a fault of the policy.
        """
        group = self._live_groups.get(group_id)
        if group is not None and fault_kind not in (FaultKind.POLICY, FaultKind.SYSTEM):
            self.tasks.attempt_failed(group.task_id, environment_lost=environment_lost)

    def demonstration_used(self, decision: UseDemonstration) -> None:
        """Update the index after a demonstration was added to a group."""
        self._to_help.pop(decision.group_id, None)
        group = self._live_groups[decision.group_id]
        self._want_guide(group)
        self._live_groups.put(replace(group, demonstrations=(*group.demonstrations, decision.pool_id)))
        self.tasks.demonstration_used(group.task_id, decision.pool_id)

    def count_failed_groups(self) -> None:
        """Count each group that was completed without a success against its task, whether it is trained or
        not. Call this after `demonstration_to_use` has returned None, because a demonstration counts as a
        success."""
        for group_id in self._to_help:
            group = self._live_groups[group_id]
            self._want_guide(group)
            any_finished = bool(groups.rewards(group))
            self.tasks.group_without_success(group.task_id, group.opened_unix_s, any_finished=any_finished)
        self._to_help.clear()

    def group_dropped(self, group_id: int) -> None:
        """Remove a dropped group from the index."""
        was_played = group_id in self._live_groups.unfinished
        self._to_help.pop(group_id, None)
        group = self._live_groups.remove(group_id)
        if was_played:
            self.tasks.group_is_played(group.task_id, -1)

    def batch_leased(self, batch: Batch) -> None:
        """Update the index after a batch was leased to the trainer, perhaps the open batch once more."""
        self.open_batch = batch
        for group_id in batch.group_ids:
            self._to_help.pop(group_id, None)
            self._live_groups.put(replace(self._live_groups[group_id], batch_id=batch.batch_id))

    def update_committed(self, version: int) -> None:
        """Remove the open batch and its groups, which were trained into this version."""
        assert self.open_batch is not None
        for group_id in self.open_batch.group_ids:
            self._live_groups.remove(group_id)
        self.open_batch = None
        self.trainer_version = version

    def decided(self, decisions: Iterable[TaskDecision]) -> None:
        """Apply decisions about tasks that have been written to the record."""
        for decision in decisions:
            self.tasks.decided(decision)

    # ---- decisions ----

    def work_for(self, environment: str, now_unix_s: float) -> WorkDecision:
        """Decide what an idle environment plays next.

        RevokeLease and OpenGroup only prepare work: carry them out, update the index with the result
        (`rollout_seen`, `group_seen`), and call again.
        """
        if (held := self._live_groups.played_by(environment)) is not None:
            detail = f"{environment} asked for work while it held this lease"
            return self._revoke(held, detail, is_at_work=False)
        group = self._group_to_stay_with(environment) or self._live_groups.first_playable()
        if group is None:
            return self._new_group(now_unix_s)
        lease = self._lease_of(group, environment, now_unix_s + self.settings.lease_s)
        return lease or self._no_work(f"the other rollouts of group {group.group_id} are being played")

    def overdue(self, now_unix_s: float) -> tuple[RevokeLease, ...]:
        """Decide to revoke the leases whose deadlines have passed, so that their rollouts are played again.

        An environment that could not store what it played has more time (`is_overdue`), and its task is not
        to blame.
        """
        lease_s = self.settings.lease_s
        revoked = []
        for rollout in self._live_groups.overdue(now_unix_s):
            waited_unix_s = self.liveness.waited_unix_s(rollout.environment or "")
            if is_overdue(rollout.deadline_unix_s, waited_unix_s, lease_s, now_unix_s):
                detail = f"{rollout.environment} did not report by the deadline of its lease"
                has_waited = waited_unix_s > self._leased_unix_s(rollout)
                revoked.append(self._revoke(rollout, detail, is_at_work=not has_waited))
        return tuple(revoked)

    def after_fault(self, rollout_id: int, fence: int, fault_kind: FaultKind, detail: str) -> ReleaseRollout:
        """Decide what follows from a fault: the attempt ends. The rollout is dropped if the task itself is to
        blame or this was its last attempt."""
        return ReleaseRollout(
            rollout_id=rollout_id,
            fence=fence,
            fault_kind=fault_kind,
            detail=detail,
            max_attempts=1 if fault_kind == FaultKind.TASK else self.settings.max_attempts,
        )

    def demonstration_to_use(self) -> UseDemonstration | None:
        """Decide to add a demonstration to a group in which every rollout failed; None if there is none.

        Rewards of such a group may differ, if none of them is a success.
        """
        if self.settings.pool is None or not self._to_help:
            return None
        stale = set(self._stale())
        for group_id in (one for one in self._to_help if one not in stale):
            group = self._live_groups[group_id]
            known = self.tasks[group.task_id].demonstrations.values()
            if (found := self.settings.pool.demonstration_for(group, known)) is not None:
                return UseDemonstration(group_id=group_id, pool_id=found.pool_id)
        return None

    def next_guide(self, in_hand: Collection[int]) -> DemonstrationSummary | None:
        """Return the demonstration for the next guided episode; None if there is none.

        in_hand   ids of demonstrations to leave out: they are being played, or their guided episodes failed
                  too often
        """
        for pool_id, task_id in tuple(self.wanted_guides.items()):
            task, pool = self.tasks[task_id], self.settings.pool
            if pool_id in in_hand or task.health.quarantine is not None:
                continue  # before `is_guide`, which goes through all demonstrations of the task
            guide = task.demonstrations.get(pool_id)
            if guide is None or pool is None or not pool.is_guide(guide, task.demonstrations.values()):
                del self.wanted_guides[pool_id]
            else:
                return guide
        return None

    def drops(self) -> tuple[DropGroup, ...]:
        """Decide to drop the groups that will never be trained. Call this after `demonstration_to_use` has
        returned None, because a demonstration makes a group trainable."""
        reasons = self._live_groups.untrainable | dict.fromkeys(self._stale(), DropReason.STALE)
        return tuple(
            DropGroup(group_id=group_id, reason=why.value) for group_id, why in sorted(reasons.items())
        )

    def decisions(self, now_unix_s: float) -> tuple[TaskDecision, ...]:
        """Return the decisions about tasks that are due. Record them with `drops_by`, then apply them with
        `decided`."""
        return self.tasks.decisions(self.trainer_version or 0, now_unix_s)

    def drops_by(self, decisions: Iterable[TaskDecision]) -> tuple[DropGroup, ...]:
        """Decide to drop the unfinished groups of tasks that these decisions quarantine because of faults.

        The decisions must be those that are due. Their reasons are not in the record, so a restarted curator
        could not tell which groups to drop: record both in one call.
        """
        unplayable = {one.task_id for one in decisions if self.tasks.makes_unplayable(one)}
        if not unplayable:
            return ()
        return tuple(
            DropGroup(group_id=group_id, reason=DropReason.TASK_QUARANTINED.value)
            for group_id in sorted(self._live_groups.unfinished)
            if self._live_groups[group_id].task_id in unplayable
        )

    def batch(self, now_unix_s: float, trained_ahead: Collection[int] = ()) -> LeaseBatch | NoWorkYet:
        """Decide to lease the oldest ready groups, unless a group left behind would then become too old.

        trained_ahead   ids of the groups that `batch_ahead` named and that the trainer has trained on
                        already; if all of them are ready, they are the batch
        """
        if self.are_ready(trained_ahead):
            chosen: tuple[int, ...] | NoWorkYet = tuple(trained_ahead)
        else:
            chosen = self._next_groups(updates_from_now=0)
        if isinstance(chosen, NoWorkYet):
            return chosen
        return LeaseBatch(group_ids=chosen, deadline_unix_s=now_unix_s + self.settings.batch_lease_s)

    def are_ready(self, group_ids: Collection[int]) -> bool:
        """Whether all of these groups, and at least one, can be leased to the trainer."""
        return bool(group_ids) and all(group_id in self._live_groups.ready for group_id in group_ids)

    def batch_ahead(self) -> tuple[int, ...] | NoWorkYet:
        """Return the ids of the groups that `batch` will lease after the open batch is committed.

        Nothing is leased. Returns NoWorkYet if these groups are not known yet.
        """
        if self.open_batch is None:
            return self._no_work("no batch is leased, so the next one can be leased itself")
        chosen = self._next_groups(updates_from_now=1)
        too_old = set(self._stale(updates_from_now=1))
        if not isinstance(chosen, NoWorkYet) and too_old.intersection(chosen):
            return self._no_work("groups become too old when the open batch is committed")
        return chosen

    def _next_groups(self, updates_from_now: int) -> tuple[int, ...] | NoWorkYet:
        """Return the ids of the groups for the next batch, or why there is none.

        updates_from_now   0 for a batch that is leased now, 1 for the batch after the open one
        """
        ready, wanted = len(self._live_groups.ready), self.settings.groups_per_update
        if ready < wanted:
            return self._no_work(f"{ready} of {wanted} groups are ready, {len(self._live_groups)} are live")
        if (slow := self._would_be_too_late(wanted, updates_from_now)) is not None:
            return self._no_work(
                f"group {slow.group_id} ({slow.task_id}) must be in the next batch and is still being played"
            )
        return tuple(self._live_groups.ready.smallest(wanted))

    def stale_batch(self) -> tuple[Batch, int] | None:
        """Return the open batch and the staleness of its oldest step, if the staleness is above the bound K;
        else None."""
        if self.open_batch is None or self.trainer_version is None:
            return None
        oldest = [groups.oldest_step(self._live_groups[group_id]) for group_id in self.open_batch.group_ids]
        staleness = self.trainer_version - min(
            (version for version in oldest if version is not None), default=self.trainer_version
        )
        return (self.open_batch, staleness) if staleness > self.settings.staleness_bound else None

    @property
    def num_played(self) -> int:
        """The number of rollouts that are being played."""
        return len(self._live_groups.held())

    def played(self, now_unix_s: float) -> Iterator[Playing]:
        """Yield a description of each rollout that is being played."""
        for rollout in self._live_groups.held():
            task_id = self._live_groups[rollout.group_id].task_id
            yield Playing(
                environment=rollout.environment or "",
                what=f"rollout {rollout.rollout_id} of group {rollout.group_id} ({task_id})",
                for_s=self.settings.lease_s - (rollout.deadline_unix_s - now_unix_s),
            )

    # ---- internal ----

    def _has_no_success(self, group_id: int) -> bool:
        return not groups.has_success(self._live_groups[group_id], self.settings.success_above)

    def _want_guide(self, group: GroupRecord) -> None:
        """If every rollout of this group failed, add a demonstration of its task to `wanted_guides`."""
        if self.settings.pool is None:
            return
        known = self.tasks[group.task_id].demonstrations.values()
        if (guide := self.settings.pool.guide_for(group, known)) is not None:
            self.wanted_guides[guide.pool_id] = guide.task_id

    def _revoke(self, rollout: RolloutRecord, detail: str, *, is_at_work: bool) -> RevokeLease:
        """Decide to revoke a lease whose holder died, hung, or never received it.

        is_at_work   whether the holder should be playing. False if the holder asked for other work, because
                     the message with the lease or with the result was lost, and if it could not store steps

        A lost message does not count against the task. The death of the holder does not count against it
        either, if the whole pool of the holder, or the run, was restarted.
        """
        supervised_unix_s = self.liveness.supervised_since(rollout.environment or "") or 0.0
        is_alone = supervised_unix_s <= self._leased_unix_s(rollout)
        is_lost = is_alone and self._is_lost(rollout)
        is_to_blame = is_lost or (is_at_work and is_alone and self.liveness.engines_answer)
        kind = FaultKind.INFRASTRUCTURE if is_to_blame else FaultKind.SYSTEM
        release = self.after_fault(rollout.rollout_id, rollout.fence, kind, detail)
        return RevokeLease(release=release, environment_lost=is_lost)

    def _is_lost(self, rollout: RolloutRecord) -> bool:
        """Whether the process that got the lease has ended, even if its environment was restarted since."""
        alive_since_unix_s = self.liveness.alive_since(rollout.environment or "")
        return alive_since_unix_s is None or alive_since_unix_s > self._leased_unix_s(rollout)

    def _leased_unix_s(self, rollout: RolloutRecord) -> float:
        return rollout.deadline_unix_s - self.settings.lease_s

    def _group_to_stay_with(self, environment: str) -> GroupRecord | None:
        """Return the unfinished group for which this environment has to wait (scheduling `task`), or None."""
        group_id = self._group_of.get(environment)
        if group_id is None or group_id not in self._live_groups.unfinished:
            self._group_of.pop(environment, None)
            return None
        return self._live_groups[group_id]

    def _lease_of(
        self, group: GroupRecord, environment: str, deadline_unix_s: float
    ) -> ReassignRollout | LeaseRollout | None:
        """Decide to lease a rollout of the group: one that awaits another attempt, else a new one.

        Returns None if the group has neither.
        """
        if (waiting := groups.awaiting(group)) is not None:
            return ReassignRollout(
                rollout_id=waiting.rollout_id, environment=environment, deadline_unix_s=deadline_unix_s
            )
        if groups.unissued(group):
            return LeaseRollout(
                group_id=group.group_id, environment=environment, deadline_unix_s=deadline_unix_s
            )
        return None

    def _new_group(self, now_unix_s: float) -> OpenGroup | NoWorkYet:
        if self.serving_version is None or self.trainer_version is None:
            return self._no_work("no engine serves a policy version yet")
        if reason := self._why_no_new_group(self.serving_version, self.trainer_version):
            return self._no_work(reason)
        group = self.tasks.next_group(self.serving_version, now_unix_s)
        return group or self._no_work(self.tasks.why_none(now_unix_s))

    def _why_no_new_group(self, serving_version: int, trainer_version: int) -> str:
        """Return why no group may be opened now; empty if one may."""
        settings, live = self.settings, len(self._live_groups)
        admissible = groups_admissible(
            serving_version=serving_version,
            trainer_version=trainer_version,
            live_groups=live,
            groups_per_update=settings.groups_per_update,
            staleness_bound=settings.staleness_bound,
        )
        if admissible <= 0:
            return (
                f"{live} groups are live; one more could be older than {settings.staleness_bound} versions "
                f"when it is trained (trainer at {trainer_version}, engines at {serving_version})"
            )
        most = most_groups(settings.over_provision, settings.groups_per_update)
        unbatched = self._live_groups.unbatched
        if unbatched >= most:
            return f"{unbatched} groups are in flight or ready, over-provisioning allows {most:.0f}"
        return why_no_new_group(
            settings.scheduling,
            serving_version=serving_version,
            trainer_version=trainer_version,
            live_groups=live,
            groups_per_update=settings.groups_per_update,
        )

    def _stale(self, updates_from_now: int = 0) -> list[int]:
        if self.trainer_version is None:
            return []
        trained_at = self.trainer_version + updates_from_now
        return self._live_groups.stale(trained_at - self.settings.staleness_bound)

    def _would_be_too_late(self, wanted: int, updates_from_now: int) -> GroupRecord | None:
        """Return an unfinished group that would become too old if the next batch were trained without it.

        Returns None if there is no such group, or if some group becomes too old with any choice of groups:
        then waiting gains nothing. The trainer asks often while it waits, so the answer is computed from the
        numbers of groups by floor, without a loop over the groups.
        """
        live = self._live_groups.floors
        left = live - Counter(self._live_groups.oldest_ready(wanted))
        if self._can_all_be_fresh(left, updates_from_now + 1) or not self._can_all_be_fresh(
            live, updates_from_now
        ):
            return None
        slow = self._live_groups.unfinished.first()
        assert slow is not None, "of ready groups the oldest are chosen, so the rest is in time"
        return self._live_groups[slow]

    def _can_all_be_fresh(self, floors: Mapping[int, int], updates_from_now: int) -> bool:
        return can_all_be_fresh(
            floors,
            trainer_version=(self.trainer_version or 0) + updates_from_now,
            groups_per_update=self.settings.groups_per_update,
            staleness_bound=self.settings.staleness_bound,
        )

    def _no_work(self, reason: str) -> NoWorkYet:
        return NoWorkYet(retry_after_s=self.settings.retry_after_s, reason=reason)
