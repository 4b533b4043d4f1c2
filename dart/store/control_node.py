"""The announcement of a control node in the record: where other machines inspect and stop its run.

One row, which the inspection endpoint of the control node writes and keeps (`dart.web.inspection`). It is
written beside the store, on a connection of its own, so that neither waits for the other.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Self

from dart.core.record_address import RecordAddress
from dart.store.database import Connection, database_at
from dart.store.migrations import check_current
from dart.store.queries import select

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlNode:
    """What a control node says of itself and of its run."""

    address: str
    """Host and port of its inspection endpoint."""
    token: str = field(repr=False)
    """What a request to the endpoint has to send; new at each start of the endpoint."""
    version: str
    """The version of dartrl."""
    pid: int
    """The main process of the run."""
    config: str
    """The resolved configuration, in TOML."""
    session: str
    """The file of the session, in JSON (`dart.inspect.time_budget`)."""
    began_unix_s: float
    """When the main process took the run directory: with `pid`, it identifies a start of the run."""
    seen_unix_s: float
    """When the endpoint wrote this row the last time."""
    ended_unix_s: float | None = None
    """When the run ended; None while it runs, and if its machine was lost."""

    def seen_at(self, unix_s: float, *, session: str, config: str) -> Self:
        """Return the row as it is at a later moment."""
        return replace(self, seen_unix_s=unix_s, session=session, config=config)


def announce(record: RecordAddress, node: ControlNode) -> None:
    """Write the row, in place of that of an earlier control node. Raises StoreUnavailable."""
    with _connected(record, read_only=False) as connection:
        connection.execute(ANNOUNCE, asdict(node))


def keep_announced(record: RecordAddress, node: ControlNode) -> None:
    """Bring the row up to date, unless another control node has written it since. Raises StoreUnavailable."""
    now = {name: getattr(node, name) for name in ("token", "seen_unix_s", "session", "config")}
    with _connected(record, read_only=False) as connection:
        connection.execute(KEEP, now)


def note_end(record: RecordAddress, pid: int, began_unix_s: float, unix_s: float) -> None:
    """Write that the run of a main process, which began then, has ended. Raises StoreUnavailable."""
    with _connected(record, read_only=False) as connection:
        connection.execute(END, {"pid": pid, "began_unix_s": began_unix_s, "unix_s": unix_s})


def read_control_node(record: RecordAddress) -> ControlNode | None:
    """Read the row; None if no control node has announced itself. Raises StoreUnavailable."""
    with _connected(record, read_only=True) as connection:
        row = next(iter(select(connection, FOUND)), None)
    return None if row is None else ControlNode(**{name: getattr(row, name) for name in COLUMNS})


@contextmanager
def _connected(record: RecordAddress, *, read_only: bool) -> Iterator[Connection]:
    database = database_at(record)
    with database.errors():
        database.refuse_absent()
        with closing(database.connect(read_only=read_only, create=False)) as connection:
            check_current(connection, record)
            yield connection
