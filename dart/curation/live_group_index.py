"""The live groups, with an index for each question that the curator asks.

The groups are copies of the record's rows. A changed row is applied in O(log n) for n groups, because a group
has few rollouts. Nothing is decided here.

A group that is leased to the trainer is kept until its update is committed, but is in none of the indexes.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from dart.core.records import GroupRecord, RolloutRecord
from dart.core.types import RolloutState
from dart.curation import groups
from dart.curation.groups import DropReason
from dart.curation.indexed_heap import IndexedHeap


class LiveGroupIndex:
    """The live groups by id, and indexes of their ids. In an index the oldest group is first: the group with
    the lowest version floor, then with the lowest id."""

    def __init__(
        self,
        live: Iterable[GroupRecord] = (),
        penalised_up_to: float | None = None,
        compared_above: float | None = None,
    ) -> None:
        """Index the live groups. `groups.why_untrainable` says what the other arguments mean."""
        self._penalised_up_to, self._compared_above = penalised_up_to, compared_above
        self._groups: dict[int, GroupRecord] = {}
        self._playable: IndexedHeap[int] = IndexedHeap()
        """Groups with a rollout to lease. Groups come first in which a rollout awaits another attempt or its
        continuation."""
        self.unfinished: IndexedHeap[int] = IndexedHeap()
        self.ready: IndexedHeap[int] = IndexedHeap()
        self.untrainable: dict[int, DropReason] = {}
        """Complete groups that cannot be trained, with the reason."""
        self._by_oldest_step: IndexedHeap[int] = IndexedHeap()
        self.floors: Counter[int] = Counter()
        """Number of groups by version floor, without the groups that are leased to the trainer."""
        self._ready_floors: Counter[int] = Counter()
        self._held: dict[int, RolloutRecord] = {}
        """The rollouts that are being played, by id."""
        self._deadlines: IndexedHeap[int] = IndexedHeap()
        """Ids of the rollouts that are being played, ordered by the deadlines of their leases."""
        self._played: dict[str, dict[int, None]] = {}
        """The ids of the rollouts that each environment plays; the inner keys are in order."""
        for group in live:
            self.put(group)

    # ---- questions ----

    def __len__(self) -> int:
        return len(self._groups)

    def get(self, group_id: int) -> GroupRecord | None:
        """Return the group with this id; None if it is not live."""
        return self._groups.get(group_id)

    def __getitem__(self, group_id: int) -> GroupRecord:
        return self._groups[group_id]

    def first_playable(self) -> GroupRecord | None:
        """Return the group of which a rollout is leased next; None if no group has a rollout to lease."""
        group_id = self._playable.first()
        return None if group_id is None else self._groups[group_id]

    def played_by(self, environment: str) -> RolloutRecord | None:
        """Return a rollout that the environment plays; None if it plays none."""
        rollout_id = next(iter(self._played.get(environment, ())), None)
        return None if rollout_id is None else self._held[rollout_id]

    def held(self) -> Collection[RolloutRecord]:
        """Return all rollouts that are being played."""
        return self._held.values()

    def overdue(self, now_unix_s: float) -> list[RolloutRecord]:
        """Return the rollouts whose lease is past its deadline, the longest overdue first."""
        return [self._held[rollout_id] for rollout_id in self._deadlines.up_to((now_unix_s, math.inf))]

    def stale(self, oldest_allowed: int) -> list[int]:
        """Return the ids of the groups that have a step of a version older than `oldest_allowed`."""
        return self._by_oldest_step.up_to(oldest_allowed - 1)

    def oldest_ready(self, count: int) -> Mapping[int, int]:
        """Return how many of the first `count` groups in `ready` have each version floor."""
        left, found = count, {}
        for floor in sorted(self._ready_floors):
            found[floor] = min(left, self._ready_floors[floor])
            left -= found[floor]
        return found

    @property
    def unbatched(self) -> int:
        """Number of live groups that are not leased to the trainer."""
        return self.floors.total()

    # ---- changes ----

    def put(self, group: GroupRecord) -> None:
        """Add a group, or update a group that was changed."""
        before = self._groups.get(group.group_id)
        self._groups[group.group_id] = group
        self._index(before, group)
        for rollout in (*(before.rollouts if before else ()), *group.rollouts):
            self._index_lease(rollout, is_held=False)
        for rollout in group.rollouts:
            self._index_lease(rollout, is_held=rollout.state == RolloutState.LEASED)

    def put_rollout(self, rollout: RolloutRecord) -> RolloutRecord | None:
        """Add or update a rollout of a live group; returns its previous record, None if it is new."""
        group = self._groups[rollout.group_id]
        members = {known.rollout_id: known for known in group.rollouts}
        before = members.get(rollout.rollout_id)
        if before is not None:
            self._index_lease(before, is_held=False)
        members[rollout.rollout_id] = rollout
        changed = replace(group, rollouts=tuple(members.values()))
        self._groups[group.group_id] = changed
        self._index(group, changed)
        self._index_lease(rollout, is_held=rollout.state == RolloutState.LEASED)
        return before

    def remove(self, group_id: int) -> GroupRecord:
        """Remove a group that was trained or dropped, and return it."""
        group = self._groups.pop(group_id)
        self._index(group, None)
        for rollout in group.rollouts:
            self._index_lease(rollout, is_held=False)
        return group

    # ---- internal ----

    def _index(self, before: GroupRecord | None, after: GroupRecord | None) -> None:
        if before is not None and before.batch_id is None:
            _count(self.floors, groups.version_floor(before), -1)
        known = after or before
        assert known is not None
        key = known.group_id
        if after is None or after.batch_id is not None:
            for index in (self._playable, self.unfinished, self._by_oldest_step):
                index.discard(key)
            self._index_ready(key, None)
            self.untrainable.pop(key, None)
            return
        floor = groups.version_floor(after)
        _count(self.floors, floor, 1)
        self._index_unbatched(after, (floor, key))

    def _index_unbatched(self, group: GroupRecord, rank: tuple[int, int]) -> None:
        key = group.group_id
        is_complete = groups.is_complete(group)
        why_not = groups.why_untrainable(group, self._penalised_up_to, self._compared_above)
        is_new = groups.awaiting(group) is None
        self._playable.set(key, (is_new, *rank) if not is_new or groups.unissued(group) else None)
        self.unfinished.set(key, None if is_complete else rank)
        self._index_ready(key, rank if is_complete and why_not is None else None)
        self._by_oldest_step.set(key, groups.oldest_step(group))
        if why_not is None:
            self.untrainable.pop(key, None)
        else:
            self.untrainable[key] = why_not

    def _index_ready(self, key: int, rank: tuple[int, int] | None) -> None:
        for known, change in ((self.ready.rank(key), -1), (rank, 1)):
            if known is not None:
                _count(self._ready_floors, known[0], change)
        self.ready.set(key, rank)

    def _index_lease(self, rollout: RolloutRecord, *, is_held: bool) -> None:
        if rollout.environment is None:
            return
        key, played = rollout.rollout_id, self._played.setdefault(rollout.environment, {})
        played.pop(key, None)
        self._held.pop(key, None)
        if is_held:
            played[key], self._held[key] = None, rollout
        self._deadlines.set(key, (rollout.deadline_unix_s, key) if is_held else None)
        if not played:
            del self._played[rollout.environment]


def _count(floors: Counter[int], floor: int, change: int) -> None:
    floors[floor] += change
    if not floors[floor]:
        del floors[floor]
