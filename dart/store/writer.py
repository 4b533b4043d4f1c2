"""What every part of the writer needs: the one writing connection, its clock, and rows by key."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Row, Table, bindparam, insert, select, text, update
from sqlalchemy.exc import DatabaseError

from dart.core.types import SUCCESS_ABOVE, RolloutState
from dart.store.migrations import is_to_migrate, require_record, upgrade
from dart.store.reader import StoreReader
from dart.store.schema import batches, counters, groups, parked, pool, rollouts, trajectories, versions
from dart.store.serialization import EVENT_COLUMNS, checksum
from dart.store.sqlite import Connection as BareConnection
from dart.store.sqlite import named_errors, open_engine

COUNT_UP = update(counters).where(counters.c.name == bindparam("counter")).values(value=counters.c.value + 1)
ROLLOUT = (
    select(
        rollouts,
        groups.c.task_id,
        groups.c.seed,
        groups.c.step_cap,
        trajectories.c.fence.label("stored_fence"),
        parked.c.fence.label("parked_fence"),
        parked.c.num_steps.label("parked_steps"),
    )
    .join(groups, groups.c.group_id == rollouts.c.group_id)
    .outerjoin(trajectories, trajectories.c.rollout_id == rollouts.c.rollout_id)
    .outerjoin(parked, parked.c.rollout_id == rollouts.c.rollout_id)
    .where(rollouts.c.rollout_id == bindparam("key"))
)
GROUP = select(groups).where(groups.c.group_id == bindparam("key"))
BATCH = select(batches).where(batches.c.batch_id == bindparam("key"))
GROUP_ROLLOUTS = select(rollouts.c.rollout_id, rollouts.c.state).where(
    rollouts.c.group_id == bindparam("key")
)
UPDATE_POOL = update(pool).where(pool.c.pool_id == bindparam("key"))
DROP_DEMONSTRATION = UPDATE_POOL.values(dropped=True)
VERSION = select(versions).where(versions.c.version == bindparam("key"))

Clock = Callable[[], float]


class RecordWriter(StoreReader):
    """A record opened for writing, migrated where needed. Call it from one thread at a time."""

    def __init__(
        self,
        path: Path,
        clock: Clock = time.time,
        *,
        create: bool = True,
        success_above: float = SUCCESS_ABOVE,
    ) -> None:
        """
        create          make a record where there is none, as only the start of a new run does; False: refuse
        success_above   a reward above it counts as a success from now on (`Store.recount_successes`)
        """
        self._clock, self._create, self._success_above = clock, create, success_above
        super().__init__(path)

    def _open(self) -> BareConnection:
        """The connection that is written with; what is read is read on it, too."""
        if not self._create:
            require_record(self.path)
        with driver_errors(), ExitStack() as on_failure:
            engine = open_engine(self.path, create=self._create)
            self._connection = on_failure.enter_context(engine.connect())
            bare = self._connection.connection.driver_connection
            assert isinstance(bare, BareConnection)
            with self._connection.begin():
                if is_to_migrate(bare, self.path):
                    upgrade(self._connection)
            on_failure.pop_all()
            return bare

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        """One transaction; within another one it is a part of that."""
        if self._connection.in_transaction():
            yield self._connection
            return
        with named_errors(self.path), driver_errors(), self._connection.begin():
            yield self._connection

    @contextmanager
    def _one_state(self) -> Iterator[None]:
        if self._connection.in_transaction():
            yield
            return
        with super()._one_state():
            yield

    def _rollout(self, connection: Connection, rollout_id: int) -> Row[Any]:
        return self._one(connection.execute(ROLLOUT, {"key": rollout_id}).first(), "rollout", rollout_id)

    def _group(self, connection: Connection, group_id: int) -> Row[Any]:
        return self._one(connection.execute(GROUP, {"key": group_id}).first(), "group", group_id)

    def _standing(self, connection: Connection, group_id: int) -> tuple[Row[Any], list[str], int]:
        """A group, the states of its rollouts, and how many of those it wants are not settled."""
        group = self._group(connection, group_id)
        states = [row.state for row in connection.execute(GROUP_ROLLOUTS, {"key": group_id})]
        return group, states, group.rollouts_wanted - len(states) + states.count(RolloutState.LEASED)

    def _batch(self, connection: Connection, batch_id: int) -> Row[Any]:
        return self._one(connection.execute(BATCH, {"key": batch_id}).first(), "batch", batch_id)

    def _version(self, connection: Connection, version: int) -> Row[Any] | None:
        return connection.execute(VERSION, {"key": version}).first()

    def _event_row(self, kind: str, subject: str, data: Mapping[str, object]) -> dict[str, Any]:
        row = {"unix_s": self._clock(), "kind": kind, "subject": subject, "data": json.dumps(dict(data))}
        return row | {"checksum": checksum(row, EVENT_COLUMNS)}


@contextmanager
def driver_errors() -> Iterator[None]:
    """The driver's own errors instead of SQLAlchemy's around them, as the reader has them."""
    try:
        yield
    except DatabaseError as error:
        if error.orig is None:
            raise
        raise error.orig from error


def insert_row(connection: Connection, table: Any, values: Mapping[str, Any]) -> int:
    """Insert a row and return its generated key."""
    key = connection.execute(insert(table), values).inserted_primary_key
    assert key is not None
    return int(key[0])


def insert_new(connection: Connection, table: Table, values: Mapping[str, Any]) -> bool:
    """Insert a row unless the table has one that is as unique; whether it was inserted."""
    columns, marks = ", ".join(f'"{name}"' for name in values), ", ".join(f":{name}" for name in values)
    statement = text(f"INSERT INTO {table.name} ({columns}) VALUES ({marks}) ON CONFLICT DO NOTHING")
    return connection.execute(statement, values).rowcount == 1


def count_up(connection: Connection, counter: str) -> None:
    """One more of what a counter counts."""
    connection.execute(COUNT_UP, {"counter": counter})
