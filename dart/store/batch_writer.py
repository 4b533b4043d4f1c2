"""The writer's part about batches and versions: one batch at a time, trained exactly once.

A batch is leased with a fence and a deadline. The update that consumes it and the version it makes are
one transaction, under the newest fence only: of two trainers that hold the same batch, one commits.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, bindparam, insert, select, update

from dart.core.records import Batch, BatchRefusal, BatchState, Commit, GroupState, Version
from dart.core.types import RolloutState
from dart.store.errors import StoreConflict
from dart.store.queries import leased_batch, newest_version, read_batch
from dart.store.rollout_writer import drop_whole
from dart.store.schema import batches, events, groups, rollouts, versions
from dart.store.sqlite import sync_log
from dart.store.writer import DROP_DEMONSTRATION, RecordWriter, count_up, insert_row
from dart.telemetry.events import BATCH_REFUSED

UPDATE_BATCH = update(batches).where(batches.c.batch_id == bindparam("key"))
RELET_BATCH = UPDATE_BATCH.values(fence=batches.c.fence + 1, deadline_unix_s=bindparam("deadline"))
RELEASE_BATCH = UPDATE_BATCH.values(state=BatchState.RELEASED.value)
CONSUME_BATCH = UPDATE_BATCH.values(state=BatchState.CONSUMED.value, version=bindparam("made"))
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


class BatchWriter(RecordWriter):
    """Batches and policy versions."""

    def lease_batch(self, group_ids: Sequence[int], deadline_unix_s: float) -> Batch:
        """Lease complete groups to the trainer for one update; one batch at a time."""
        with self._transaction() as connection:
            if (leased := leased_batch(self._bare)) is not None:
                raise StoreConflict(f"batch {leased.batch_id} is still leased: commit or refuse it first")
            if not group_ids or len(set(group_ids)) != len(group_ids):
                raise StoreConflict(f"a batch needs groups, each once, got {list(group_ids)}")
            for group_id in group_ids:
                self._check_complete(connection, group_id)
            values = {
                "state": BatchState.LEASED.value,
                "leased_unix_s": self._clock(),
                "fence": 1,
                "deadline_unix_s": deadline_unix_s,
            }
            batch_id = insert_row(connection, batches, values)
            connection.execute(
                update(groups)
                .where(groups.c.group_id.in_(group_ids))
                .values(state=GroupState.BATCHED.value, batch_id=batch_id)
            )
            return read_batch(self._bare, self._batch(connection, batch_id))

    def _check_complete(self, connection: Connection, group_id: int) -> None:
        group, states, missing = self._standing(connection, group_id)
        if group.state != GroupState.OPEN or missing or RolloutState.STORED not in states:
            raise StoreConflict(
                f"group {group_id} cannot be trained: it is {group.state}; of its {group.rollouts_wanted} "
                f"rollouts {missing} are not settled and {states.count(RolloutState.STORED)} stored"
            )

    def reassign_batch(self, batch_id: int, deadline_unix_s: float) -> Batch:
        """Lease the open batch again, for instance to a trainer that was started again.

        Its fence grows: a commit under an earlier lease is refused.
        """
        with self._transaction() as connection:
            batch = self._batch(connection, batch_id)
            if batch.state != BatchState.LEASED:
                raise StoreConflict(
                    f"batch {batch_id} is {batch.state} (version {batch.version}), not to be leased again"
                )
            connection.execute(RELET_BATCH, {"key": batch_id, "deadline": deadline_unix_s})
            return read_batch(self._bare, self._batch(connection, batch_id))

    def refuse_batch(
        self,
        batch_id: int,
        fence: int,
        group_ids: Sequence[int],
        pool_ids: Sequence[int],
        reason: str,
        detail: str,
    ) -> BatchRefusal:
        """Give a batch back that cannot be trained, drop the groups to blame and say so in an event, at once.

        The other groups are open again; the demonstrations to blame are taken out of use.
        """
        with self._transaction() as connection:
            batch = self._batch(connection, batch_id)
            if batch.state == BatchState.CONSUMED:
                raise StoreConflict(f"batch {batch_id} was consumed by version {batch.version}")
            if fence < batch.fence:
                count_up(connection, "fenced_commits")
                return BatchRefusal.FENCED
            check_fence(batch, fence)
            if batch.state == BatchState.RELEASED:
                return BatchRefusal.DUPLICATE
            check_members(read_batch(self._bare, batch), group_ids)
            connection.execute(RELEASE_BATCH, {"key": batch_id})
            connection.execute(REOPEN_GROUPS, {"key": batch_id})
            for group_id in group_ids:
                drop_whole(connection, group_id, reason)
            for pool_id in pool_ids:
                connection.execute(DROP_DEMONSTRATION, {"key": pool_id})
            data = {
                "batch": batch_id,
                "groups": ", ".join(map(str, group_ids)),
                "demonstrations": ", ".join(map(str, pool_ids)),
                "reason": reason,
                "detail": detail,
            }
            insert_row(connection, events, self._event_row(BATCH_REFUSED, "trainer", data))
            return BatchRefusal.REFUSED

    def commit_update(
        self, batch_id: int, fence: int, version: int, checkpoint: str, metrics: Mapping[str, float]
    ) -> Commit:
        """Consume a batch: its rollouts are trained and the version it made exists, at once.

        The checkpoint must be complete on disk before. Repeating the same commit is a duplicate, one under an
        earlier lease is fenced and counted; a second one for the batch, or a version that does not follow
        the newest, is a StoreConflict. The commit outlives a power failure, as its checkpoint does.
        """
        outcome = self._commit(batch_id, fence, version, checkpoint, metrics)
        sync_log(self.path)
        return outcome

    def _commit(
        self, batch_id: int, fence: int, version: int, checkpoint: str, metrics: Mapping[str, float]
    ) -> Commit:
        with self._transaction() as connection:
            batch = self._batch(connection, batch_id)
            if fence < batch.fence:
                count_up(connection, "fenced_commits")
                return Commit.FENCED
            check_fence(batch, fence)
            if batch.state == BatchState.CONSUMED and batch.version == version:
                check_same_commit(self._version(connection, version), checkpoint)
                return Commit.DUPLICATE
            if batch.state != BatchState.LEASED:
                raise StoreConflict(
                    f"batch {batch_id} is {batch.state} (version {batch.version}), not leased"
                )
            check_follows(newest_version(self._bare), version)
            self._insert_version(connection, version, checkpoint, metrics)
            connection.execute(CONSUME_BATCH, {"key": batch_id, "made": version})
            connection.execute(CONSUME_GROUPS, {"key": batch_id})
            connection.execute(TRAIN_MEMBERS, {"key": batch_id})
            return Commit.COMMITTED

    def add_version(self, checkpoint: str, metrics: Mapping[str, float] | None = None) -> Commit:
        """Record the base policy as version 0; all others come from `commit_update`."""
        with self._transaction() as connection:
            if (base := self._version(connection, 0)) is not None:
                check_same_commit(base, checkpoint)
                return Commit.DUPLICATE
            self._insert_version(connection, 0, checkpoint, metrics or {})
            return Commit.COMMITTED

    def _insert_version(
        self, connection: Connection, version: int, checkpoint: str, metrics: Mapping[str, float]
    ) -> None:
        values = {
            "version": version,
            "checkpoint": checkpoint,
            "metrics": json.dumps(dict(metrics)),
            "created_unix_s": self._clock(),
        }
        connection.execute(insert(versions), values)


def check_fence(batch: Row[Any], fence: int) -> None:
    if fence > batch.fence:
        raise StoreConflict(
            f"batch {batch.batch_id} was leased up to fence {batch.fence}, never with {fence}"
        )


def check_members(batch: Batch, group_ids: Sequence[int]) -> None:
    if strangers := sorted(set(group_ids) - set(batch.group_ids)):
        raise StoreConflict(f"batch {batch.batch_id} has groups {batch.group_ids}, not {strangers}")


def check_follows(newest: Version | None, version: int) -> None:
    if newest is None or version != newest.version + 1:
        have = "none" if newest is None else newest.version
        raise StoreConflict(f"version {version} does not follow the newest version {have}")


def check_same_commit(version: Row[Any] | None, checkpoint: str) -> None:
    if version is None or version.checkpoint != checkpoint:
        kept = None if version is None else version.checkpoint
        raise StoreConflict(f"this version was committed with checkpoint {kept!r}, not {checkpoint!r}")
