"""The announcement of a control node in the record: where other machines inspect and stop its run.

The announcement is the only row of the table `control_node`. The inspection endpoint of the control node
writes the row and keeps it up to date (`dart.web.inspection`). It has a connection of its own for this, so
that it does not wait for the store actor, nor the store actor for it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Self

from dart.core.record_address import RecordAddress
from dart.store.database import Connection
from dart.store.migrations import check_current, connected, migration_of
from dart.store.queries import first

COLUMNS = (
    *("address", "token", "version", "pid", "config", "session"),
    *("began_unix_s", "seen_unix_s", "ended_unix_s"),
)
ANNOUNCE = f"""
    INSERT INTO control_node (one, {", ".join(COLUMNS)}) VALUES (1, {", ".join(f":{one}" for one in COLUMNS)})
    ON CONFLICT (one) DO UPDATE SET {", ".join(f"{one} = excluded.{one}" for one in COLUMNS)}
"""
KEEP = """
    UPDATE control_node SET seen_unix_s = :seen_unix_s, session = :session, config = :config
    WHERE token = :token
"""
END = """
    UPDATE control_node SET ended_unix_s = :unix_s
    WHERE pid = :pid AND began_unix_s = :began_unix_s AND ended_unix_s IS NULL
"""
FOUND = f"SELECT {', '.join(COLUMNS)} FROM control_node"

SINCE = "0011"
"""The migration that makes the table. No later one may change its columns: a control node that runs an older
version of dartrl must be found before its record is migrated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlNode:
    """What a control node says of itself and of its run."""

    address: str
    """Host and port of its inspection endpoint; empty while the endpoint cannot listen."""
    token: str = field(repr=False)
    """The secret that a request to the endpoint has to send; new at each start of the endpoint."""
    version: str
    """The version of dartrl."""
    pid: int
    """Process id of the run's main process."""
    config: str
    """The resolved configuration, in TOML."""
    session: str
    """Content of the run's `session.json`: how much of its time is used (`dart.inspect.time_budget`)."""
    began_unix_s: float
    """When the main process locked the run directory. With `pid`, this identifies one start of the run."""
    seen_unix_s: float
    """When the endpoint last wrote this row."""
    ended_unix_s: float | None = None
    """When the run ended; None while it runs, and also if its machine was lost."""

    def seen_at(self, unix_s: float, *, session: str, config: str) -> Self:
        """Return a copy of the row with the values of a later moment."""
        return replace(self, seen_unix_s=unix_s, session=session, config=config)


def announce(record: RecordAddress, node: ControlNode) -> None:
    """Write the row and replace the one of an earlier control node, if any. Raises StoreUnavailable."""
    with _writing(record) as connection:
        connection.execute(ANNOUNCE, asdict(node))


def keep_announced(record: RecordAddress, node: ControlNode) -> None:
    """Write the time, session and configuration of `node` into the row; the rest of the row stays.

    Does nothing if another control node, or another start of the endpoint, has replaced the row. Raises
    StoreUnavailable.
    """
    now = {name: getattr(node, name) for name in ("token", "seen_unix_s", "session", "config")}
    with _writing(record) as connection:
        connection.execute(KEEP, now)


def note_end(record: RecordAddress, pid: int, began_unix_s: float, unix_s: float) -> None:
    """Write into the row that the run ended at `unix_s`. Raises StoreUnavailable.

    Does nothing if the row is not about the start of the run that `pid` and `began_unix_s` identify.
    """
    with _writing(record) as connection:
        connection.execute(END, {"pid": pid, "began_unix_s": began_unix_s, "unix_s": unix_s})


def read_control_node(record: RecordAddress) -> ControlNode | None:
    """Read the row; None if no control node has announced itself.

    The record may be at an older migration. Raises StoreUnavailable, StoreTooOld, StoreTooNew.
    """
    with connected(record) as connection:
        row = first(connection, FOUND) if migration_of(connection, record) >= SINCE else None
    return None if row is None else ControlNode(**{name: getattr(row, name) for name in COLUMNS})


@contextmanager
def _writing(record: RecordAddress) -> Iterator[Connection]:
    with connected(record, read_only=False) as connection:
        check_current(connection, record)
        yield connection
