"""What all parts of `dart.store.store.Store` share: its connection, transactions, and changes of rows."""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from sqlalchemy import CursorResult, Executable, Table, bindparam, delete, insert, select, text, update
from sqlalchemy.engine import RootTransaction
from sqlalchemy.exc import DatabaseError

from dart.core.record_address import RecordAddress
from dart.core.records import GroupState
from dart.core.types import SUCCESS_ABOVE, RolloutState, Step
from dart.store import queries
from dart.store.blobs import BlobStore
from dart.store.database import Connection
from dart.store.errors import StoreBusy, StoreTakenOver, StoreUnavailable
from dart.store.migrations import is_to_migrate, require_record, upgrade
from dart.store.patience import patiently
from dart.store.queries import COUNTER, scalar, scalars
from dart.store.reader import StoreReader
from dart.store.schema import counters, events, groups, parked, rollouts, task_statistics
from dart.store.serialization import EVENT_COLUMNS, Row, checksum, pack_steps

COUNT_UP = update(counters).where(counters.c.name == bindparam("counter")).values(value=counters.c.value + 1)
NO_MEMBER_PARKED = delete(parked).where(
    parked.c.rollout_id.in_(select(rollouts.c.rollout_id).where(rollouts.c.group_id == bindparam("key")))
)
DROP_MEMBERS = (
    update(rollouts)
    .where(
        rollouts.c.group_id == bindparam("key"),
        rollouts.c.state.in_([RolloutState.LEASED.value, RolloutState.STORED.value]),
    )
    .values(state=RolloutState.DROPPED.value, environment=None, drop_reason=bindparam("reason"))
)

EPOCH, WRITES = "epoch", "writes"
"""Names of two counters of a record on a server: of writers that took it over, and of write transactions."""

OUTCOME_S = 7.0
"""Seconds for a commit whose connection ends, and for asking whether it succeeded: less than the store
actor's hang deadline, 8 s."""

Clock = Callable[[], float]


class RecordWriter(StoreReader):
    """A record opened for writing, migrated where needed. Call it from one thread at a time."""

    def __init__(
        self,
        address: RecordAddress,
        clock: Clock = time.time,
        *,
        create: bool = True,
        success_above: float = SUCCESS_ABOVE,
        epoch: int | None = None,
        steps: BlobStore | None = None,
    ) -> None:
        """
        clock           returns the Unix time in seconds
        create          create the record if it does not exist, as only the start of a new run does; if False,
                        raise StoreUnavailable instead
        success_above   a reward above it counts as a success in what is stored from now on
        epoch           for a record on a server: the epoch in which to write. Raises StoreTakenOver if a
                        later epoch has begun. None: begin the next epoch, so that no earlier writer can write
        steps           see `StoreReader`
        """
        self._clock, self._create, self._success_above = clock, create, success_above
        self._epoch = epoch
        super().__init__(address, steps=steps)

    @property
    def epoch(self) -> int:
        """The epoch in which this writer writes; 0 for a record in a file, which has no epochs."""
        return self._epoch or 0

    def _open(self) -> Connection:
        """Open the connection for reading and writing, migrate the record if needed, and check the epoch."""
        if not self._create:
            require_record(self.address)
        with driver_errors(), ExitStack() as on_failure:
            engine = self._database.open_engine(create=self._create)
            self._connection = on_failure.enter_context(engine.connect())
            bare = self._database.connection_of(self._connection.connection.driver_connection)
            with self._connection.begin():
                if is_to_migrate(bare, self.address):
                    upgrade(self._connection, lambda: self._steps)
                if self._epoch is None and self._database.enter_epoch:
                    self._take_over(bare)
                if self._epoch is not None and self._database.enter_epoch:
                    self._refuse_other_epoch(scalar(bare, COUNTER, counter=EPOCH))
            on_failure.pop_all()
            return bare

    def _take_over(self, bare: Connection) -> None:
        """Begin the next epoch. A transaction that an earlier writer has begun is ended without a commit."""
        self._database.end_other_writers(bare)
        for counter in (EPOCH, WRITES):
            self._insert_new(counters, {"name": counter, "value": 0})
        self._count_up(EPOCH)
        self._epoch = scalar(bare, COUNTER, counter=EPOCH)

    def _enter_epoch(self) -> int:
        """Check that the epoch of this writer is not over, and keep it so until the transaction ends.

        Returns the number of the write, or 0 for a record in a file. Raises StoreTakenOver.
        """
        if not self._database.enter_epoch:
            return 0
        ((epoch, write),) = self._bare.execute(self._database.enter_epoch).fetchall()
        self._refuse_other_epoch(epoch)
        return int(write)

    def _refuse_other_epoch(self, epoch: int) -> None:
        if epoch != self._epoch:
            raise StoreTakenOver(
                f"store {self.address}: another process took over writing in epoch {epoch}; this process "
                f"wrote in epoch {self._epoch} and can write no more. The later run goes on, this one ends"
            )

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Run the block in a transaction of its own, or in the one that is already open."""
        if self._connection.in_transaction():
            yield
            return
        with self._database.errors(), driver_errors(), self._begin_writing() as transaction:
            write = self._enter_epoch()
            yield
            self._end_transaction(transaction, write)

    def _begin_writing(self) -> RootTransaction:
        """Begin a transaction. If the connection has ended, open another one first."""
        if self._database.is_lost(self._bare):
            self._renew()
        try:
            return self._connection.begin()
        except DatabaseError:
            if not self._database.is_lost(self._bare):
                raise
        self._renew()
        return self._connection.begin()

    def _end_transaction(self, transaction: RootTransaction, write: int) -> None:
        """Commit. If the connection ends meanwhile, ask the database whether the transaction was committed.

        Raises StoreBusy if it was not committed, and StoreUnavailable if the database cannot be asked.
        Callers that get StoreUnavailable start again from what the record holds.
        """
        began_s = time.monotonic()
        try:
            transaction.commit()
        except DatabaseError as error:
            if not self._database.is_lost(self._bare):
                transaction.rollback()  # a full disk: what was not committed must not stay open
                raise
            left_s = OUTCOME_S - (time.monotonic() - began_s)
            try:
                committed = patiently(lambda: self._was_committed(write), left_s)
            except StoreBusy as busy:
                raise StoreUnavailable(f"{busy}; whether the last change was kept is not known") from error
            if not committed:
                raise StoreBusy(
                    f"store {self.address}: its server ended during a commit, and nothing of it was kept"
                ) from error

    def _was_committed(self, write: int) -> bool:
        """Whether a write whose connection has ended was committed. Raises StoreBusy while no one can say."""
        self._renew()
        return bool(scalar(self._bare, self._database.last_write) == write)

    @contextmanager
    def _one_state(self) -> Iterator[None]:
        if self._connection.in_transaction():
            yield
            return
        with super()._one_state():
            yield

    # writing, inside a transaction

    def _execute(self, statement: Executable, **values: Any) -> CursorResult[Any]:
        return self._connection.execute(statement, values)

    def _insert(self, table: Table, **values: Any) -> int:
        """Insert a row and return its key."""
        key = self._connection.execute(insert(table), values).inserted_primary_key
        assert key is not None
        return int(key[0])

    def _insert_new(self, table: Table, values: Mapping[str, Any]) -> bool:
        """Insert a row unless it violates a unique constraint; returns whether it was inserted."""
        columns, marks = ", ".join(f'"{name}"' for name in values), ", ".join(f":{name}" for name in values)
        statement = text(f"INSERT INTO {table.name} ({columns}) VALUES ({marks}) ON CONFLICT DO NOTHING")
        return self._execute(statement, **values).rowcount == 1

    def _update(self, table: Table, key: int, **values: Any) -> None:
        """Change columns of the row with this key."""
        (column,) = table.primary_key
        self._execute(update(table).where(column == key).values(values))

    def _put_steps(self, steps: Sequence[Step]) -> str:
        """Store steps as a blob; returns its sha256."""
        return self._steps.put(pack_steps(steps))

    def _count_up(self, counter: str) -> None:
        self._execute(COUNT_UP, counter=counter)

    def _know_task(self, task_id: str) -> None:
        """Insert the row with the statistics of a task, unless there is one."""
        counts = {"groups_opened": 0, "finished": 0, "steps_played": 0}
        self._insert_new(task_statistics, {"task_id": task_id} | counts)

    def _insert_event(self, kind: str, subject: str, data: Mapping[str, object]) -> int:
        """Record that something happened; returns the event's id."""
        return self._insert(events, **self._event_row(kind, subject, data))

    def _event_row(self, kind: str, subject: str, data: Mapping[str, object]) -> dict[str, Any]:
        row = {"unix_s": self._clock(), "kind": kind, "subject": subject, "data": json.dumps(dict(data))}
        return {**row, "checksum": checksum(row, EVENT_COLUMNS)}

    def _drop_group(self, group_id: int, reason: str) -> int:
        """Drop an open group with its rollouts; returns how many rollouts were dropped."""
        self._update(groups, group_id, state=GroupState.DROPPED.value, drop_reason=reason)
        self._execute(NO_MEMBER_PARKED, key=group_id)
        return self._execute(DROP_MEMBERS, key=group_id, reason=reason).rowcount

    def _standing(self, group_id: int) -> tuple[Row, list[str], int]:
        """A group, the states of its issued rollouts, and how many of its rollouts are not finished yet."""
        group = self._one(queries.ONE_GROUP, "group", group_id)
        states = scalars(self._bare, queries.ROLLOUT_STATES, key=group_id)
        return group, states, group.rollouts_wanted - len(states) + states.count(RolloutState.LEASED)


@contextmanager
def driver_errors() -> Iterator[None]:
    """In this context, raise the error of the database driver instead of SQLAlchemy's, which wraps it."""
    try:
        yield
    except DatabaseError as error:
        if error.orig is None:
            raise
        raise error.orig from error
