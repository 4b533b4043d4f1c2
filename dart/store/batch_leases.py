"""Writes batches and policy versions, as a part of `dart.store.store.Store`.

At most one batch is leased at a time, and each is trained at most once. A batch is leased with a fence and a
deadline. One transaction commits an update: it marks the batch as consumed and adds the version that the
update made. This transaction needs the newest fence of the batch. So if two trainers hold the same batch,
only one of them commits.
"""

import json
import math
from collections.abc import Mapping, Sequence

from sqlalchemy import bindparam, insert, select, update

from dart.core.records import Batch, BatchState, GroupState, StoredResult
from dart.core.types import RolloutState
from dart.store import queries
from dart.store.errors import StoreConflict
from dart.store.queries import first, leased_batch, read_batch, scalar
from dart.store.schema import batches, groups, pool, rollouts, versions
from dart.store.serialization import Row
from dart.store.writer import RecordWriter
from dart.telemetry.events import BATCH_REFUSED

IN_BATCH = update(groups).where(groups.c.batch_id == bindparam("key"))
REOPEN_GROUPS = IN_BATCH.values(state=GroupState.OPEN.value, batch_id=None)
CONSUME_GROUPS = IN_BATCH.values(state=GroupState.CONSUMED.value)
TRAIN_MEMBERS = (
    update(rollouts)
    .where(
        rollouts.c.group_id.in_(select(groups.c.group_id).where(groups.c.batch_id == bindparam("key"))),
        rollouts.c.state == RolloutState.STORED.value,
    )
    .values(state=RolloutState.TRAINED.value, batch_id=bindparam("key"))
)


class BatchLeases(RecordWriter):
    """Writes batches and policy versions."""

    def lease_batch(self, group_ids: Sequence[int], deadline_unix_s: float) -> Batch:
        """Lease complete groups to the trainer for one update.

        Raises StoreConflict if another batch is leased, if there are no groups or one is named twice, and if
        a group is not open, not finished or without a stored rollout.
        """
        with self._transaction():
            if (open_batch := leased_batch(self._bare)) is not None:
                raise StoreConflict(f"batch {open_batch.batch_id} is still leased: commit or refuse it first")
            if not group_ids or len(set(group_ids)) != len(group_ids):
                raise StoreConflict(
                    f"a batch must have at least one group, and each group once, got {list(group_ids)}"
                )
            for group_id in group_ids:
                self._check_complete(group_id)
            batch_id = self._insert(
                batches,
                state=BatchState.LEASED.value,
                leased_unix_s=self._clock(),
                fence=1,
                deadline_unix_s=deadline_unix_s,
            )
            leased_groups = update(groups).where(groups.c.group_id.in_(group_ids))
            self._execute(leased_groups.values(state=GroupState.BATCHED.value, batch_id=batch_id))
            return read_batch(self._bare, self._batch(batch_id))

    def _batch(self, batch_id: int) -> Row:
        return self._one(queries.ONE_BATCH, "batch", batch_id)

    def _check_complete(self, group_id: int) -> None:
        group, states, missing = self._standing(group_id)
        if group.state != GroupState.OPEN or missing or RolloutState.STORED not in states:
            raise StoreConflict(
                f"group {group_id} cannot be trained: it is {group.state}; of its {group.rollouts_wanted} "
                f"rollouts, {missing} are not finished yet and {states.count(RolloutState.STORED)} are "
                "stored; expected an open group with all rollouts finished and at least one stored"
            )

    def reassign_batch(self, batch_id: int, deadline_unix_s: float) -> Batch:
        """Lease a batch again that is leased already, for instance to a trainer that was restarted.

        The fence of the batch grows, so that a commit under an earlier lease is refused. Raises StoreConflict
        if the batch is consumed or was given back.
        """
        with self._transaction():
            batch = self._batch(batch_id)
            if batch.state != BatchState.LEASED:
                raise StoreConflict(
                    f"batch {batch_id} cannot be leased again: it is {batch.state} (version {batch.version})"
                )
            self._update(batches, batch_id, fence=batch.fence + 1, deadline_unix_s=deadline_unix_s)
            return read_batch(self._bare, self._batch(batch_id))

    def refuse_batch(
        self,
        batch_id: int,
        fence: int,
        group_ids: Sequence[int],
        pool_ids: Sequence[int],
        reason: str,
        detail: str,
    ) -> StoredResult:
        """Give back a batch that cannot be trained, and record an event about it.

        The groups `group_ids` are dropped for `reason`, and the other groups of the batch are open again. The
        demonstrations `pool_ids` are taken out of use. Returns DUPLICATE if the batch was given back before.
        Returns FENCED, and counts the report, if the batch was leased again since. Raises StoreConflict if
        the batch is consumed or does not have one of the groups.
        """
        with self._transaction():
            batch = self._batch(batch_id)
            if batch.state == BatchState.CONSUMED:
                raise StoreConflict(
                    f"batch {batch_id} cannot be given back: it was consumed by the update that made version "
                    f"{batch.version}"
                )
            if self._is_late(batch, fence):
                return StoredResult.FENCED
            if batch.state == BatchState.RELEASED:
                return StoredResult.DUPLICATE
            check_members(read_batch(self._bare, batch), group_ids)
            self._update(batches, batch_id, state=BatchState.RELEASED.value)
            self._execute(REOPEN_GROUPS, key=batch_id)
            for group_id in group_ids:
                self._drop_group(group_id, reason)
            for pool_id in pool_ids:
                self._update(pool, pool_id, dropped=True)
            data = {
                "batch": batch_id,
                "groups": ", ".join(map(str, group_ids)),
                "demonstrations": ", ".join(map(str, pool_ids)),
                "reason": reason,
                "detail": detail,
            }
            self._insert_event(BATCH_REFUSED, "trainer", data)
            return StoredResult.ACCEPTED

    def commit_update(
        self, batch_id: int, fence: int, version: int, metrics: Mapping[str, float]
    ) -> StoredResult:
        """Commit the update that made `version` from a batch.

        One transaction marks the batch as consumed and its rollouts as trained, and adds the version. The
        checkpoint of `version` must be published before this call. The commit is synced to the disk, as the
        checkpoint is.

        Returns DUPLICATE if the same commit was made before. Returns FENCED, and counts the report, if the
        batch was leased again since. Raises StoreConflict if the batch is not leased any more, if the version
        is not the newest one plus 1, or if a metric is not finite.
        """
        outcome = self._commit(batch_id, fence, version, metrics)
        self._database.sync()
        return outcome

    def _commit(self, batch_id: int, fence: int, version: int, metrics: Mapping[str, float]) -> StoredResult:
        with self._transaction():
            batch = self._batch(batch_id)
            if self._is_late(batch, fence):
                return StoredResult.FENCED
            if batch.state == BatchState.CONSUMED and batch.version == version:
                return StoredResult.DUPLICATE
            if batch.state != BatchState.LEASED:
                raise StoreConflict(
                    f"batch {batch_id} cannot be committed: it is {batch.state} "
                    f"(version {batch.version}), not leased"
                )
            newest = scalar(self._bare, queries.LAST_VERSION)
            if newest is None or version != newest + 1:
                raise StoreConflict(
                    f"version {version} does not follow the newest version {newest}: it must be greater by 1"
                )
            self._insert_version(version, metrics)
            self._update(batches, batch_id, state=BatchState.CONSUMED.value, version=version)
            self._execute(CONSUME_GROUPS, key=batch_id)
            self._execute(TRAIN_MEMBERS, key=batch_id)
            return StoredResult.ACCEPTED

    def _is_late(self, batch: Row, fence: int) -> bool:
        """Whether the batch was leased again since the lease with this fence; if so, count the late report.

        Raises StoreConflict for a fence that the batch never had.
        """
        if fence > batch.fence:
            raise StoreConflict(
                f"batch {batch.batch_id}: expected a fence of at most {batch.fence}, that of its newest "
                f"lease, got {fence}"
            )
        if fence < batch.fence:
            self._count_up("fenced_commits")
        return bool(fence < batch.fence)

    def add_version(self) -> StoredResult:
        """Record the base policy as version 0. `commit_update` adds all other versions.

        Returns DUPLICATE if version 0 is recorded already.
        """
        with self._transaction():
            if first(self._bare, queries.ONE_VERSION, key=0) is not None:
                return StoredResult.DUPLICATE
            self._insert_version(0, {})
            return StoredResult.ACCEPTED

    def _insert_version(self, version: int, metrics: Mapping[str, float]) -> None:
        strange = {name: value for name, value in metrics.items() if not math.isfinite(value)}
        if strange:  # JSON has no such numbers, so the version could not be read again
            raise StoreConflict(f"version {version}: expected finite numbers as metrics, got {strange}")
        self._execute(
            insert(versions),
            version=version,
            metrics=json.dumps(dict(metrics)),
            created_unix_s=self._clock(),
        )


def check_members(batch: Batch, group_ids: Sequence[int]) -> None:
    if strangers := sorted(set(group_ids) - set(batch.group_ids)):
        raise StoreConflict(
            f"batch {batch.batch_id} can drop only its own groups {batch.group_ids}, got {strangers}"
        )
