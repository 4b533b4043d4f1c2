"""The writer's part about the experience pool: demonstrations, and the groups they were added to."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Row, bindparam, insert, select

from dart.core.records import GroupState, Guided
from dart.core.types import Demonstration, Step
from dart.store.errors import StoreConflict
from dart.store.schema import group_demonstrations, pool, pool_steps
from dart.store.serialization import (
    check_demonstration,
    content_sha256,
    demonstration_row,
    pack_steps,
)
from dart.store.task_counters import know_task
from dart.store.writer import DROP_DEMONSTRATION, UPDATE_POOL, RecordWriter, insert_row

SELF_ROLLED = "self-rolled"
"""Origin of what the policy of the run played under a demonstration's actions."""

SAME_CONTENT = select(pool).where(pool.c.content_sha256 == bindparam("sha256"))
DEMONSTRATION = select(pool).where(pool.c.pool_id == bindparam("key"))
COUNT_USE = UPDATE_POOL.values(uses=pool.c.uses + 1)
RESTORE_DEMONSTRATION = UPDATE_POOL.values(dropped=False, lacks_thought=bindparam("lacking"))
COUNT_ROLL = UPDATE_POOL.values(rolls=bindparam("attempt"))
INJECTED = select(group_demonstrations).where(
    group_demonstrations.c.group_id == bindparam("group"), group_demonstrations.c.pool_id == bindparam("key")
)


class DemonstrationWriter(RecordWriter):
    """The experience pool."""

    def add_demonstrations(self, demonstrations: Sequence[Demonstration]) -> int:
        """Add what the pool does not hold yet; returns how many. One that was dropped comes back."""
        for demonstration in demonstrations:
            check_demonstration(demonstration)
        with self._transaction() as connection:
            return sum(self._add_demonstration(connection, found) for found in demonstrations)

    def _add_demonstration(self, connection: Connection, demonstration: Demonstration) -> bool:
        known = connection.execute(SAME_CONTENT, {"sha256": content_sha256(demonstration)}).first()
        if known is not None:
            values = {"key": known.pool_id, "lacking": demonstration.lacks_thought}
            connection.execute(RESTORE_DEMONSTRATION, values)
            return bool(known.dropped)
        know_task(connection, demonstration.task_id)
        packed = pack_steps(demonstration.steps)
        row = demonstration_row(demonstration, packed, added_unix_s=self._clock())
        pool_id = insert_row(connection, pool, row)
        connection.execute(insert(pool_steps), {"pool_id": pool_id, "steps": packed})
        return True

    def record_guided(
        self, guide_id: int, attempt: int, instruction: str, reward: float, steps: Sequence[Step]
    ) -> Guided:
        """Count an episode that the policy played under a demonstration's actions, once per attempt.

        Where it did as well as the demonstration, it is a demonstration of its own from now on.
        """
        with self._transaction() as connection:
            guide = self._demonstration(connection, guide_id)
            if attempt <= guide.rolls:
                return Guided.DUPLICATE
            connection.execute(COUNT_ROLL, {"key": guide_id, "attempt": attempt})
            if reward < guide.reward:
                return Guided.FAILED
            played = Demonstration(
                pool_id=0,
                task_id=guide.task_id,
                seed=guide.seed,
                origin=SELF_ROLLED,
                instruction=instruction,
                reward=reward,
                steps=tuple(replace(step, entropies=()) for step in steps),
                guide_id=guide_id,
            )
            check_demonstration(played)
            self._add_demonstration(connection, played)
            return Guided.ADDED

    def drop_demonstration(self, pool_id: int) -> None:
        """Take a demonstration out of use; groups that have it keep it."""
        with self._transaction() as connection:
            self._demonstration(connection, pool_id)
            connection.execute(DROP_DEMONSTRATION, {"key": pool_id})

    def inject(self, group_id: int, pool_id: int) -> None:
        """Add a demonstration to a group whose rollouts are all settled; counts a use, once per group."""
        with self._transaction() as connection:
            demonstration = self._demonstration(connection, pool_id)
            values = {"group": group_id, "key": pool_id}
            if connection.execute(INJECTED, values).first() is not None:
                return
            self._check_may_have(connection, group_id, demonstration)
            row = {"group_id": group_id, "pool_id": pool_id, "added_unix_s": self._clock()}
            connection.execute(insert(group_demonstrations), row)
            connection.execute(COUNT_USE, {"key": pool_id})

    def _check_may_have(self, connection: Connection, group_id: int, demonstration: Row[Any]) -> None:
        name = f"demonstration {demonstration.pool_id} of {demonstration.task_id}"
        group, _, missing = self._standing(connection, group_id)
        if demonstration.dropped:
            raise StoreConflict(f"{name} was dropped from the pool")
        if group.task_id != demonstration.task_id:
            raise StoreConflict(f"{name} cannot be added to group {group_id}, which is of {group.task_id}")
        if group.state != GroupState.OPEN or missing:
            raise StoreConflict(
                f"{name} cannot be added to group {group_id}: it is {group.state}, and {missing} of its "
                f"{group.rollouts_wanted} rollouts are not settled"
            )

    def _demonstration(self, connection: Connection, pool_id: int) -> Row[Any]:
        row = connection.execute(DEMONSTRATION, {"key": pool_id}).first()
        return self._one(row, "demonstration", pool_id)
