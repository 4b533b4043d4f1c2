"""PostgreSQL as the database of a record: connections, translation of parameters, and errors with remedies.

SQL that only PostgreSQL understands is here and in `dart.store.postgresql_checks`.

A commit is acknowledged when it is on the server's disk. PostgreSQL refuses text that contains NUL. So text
is escaped when it is written and unescaped when it is read (`dart.store.postgresql_text`), and nothing is
lost.
"""

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import conninfo, sql
from psycopg.adapt import Buffer, Loader
from psycopg.pq import TransactionStatus
from psycopg.types.string import StrDumperUnknown

from dart.core.record_address import ServerAddress
from dart.store.errors import StoreBusy, StoreUnavailable
from dart.store.patience import CONNECT_S
from dart.store.postgresql_text import escaped, translated, unescaped

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from dart.store.database import Checks

LOCK_TIMEOUT_S = 5.0
"""Seconds that a statement waits for a lock. Only another writer or a migration can hold one."""

IDLE_TIMEOUT_S = 15.0
"""Seconds without a statement after which the server ends a transaction, because its writer is frozen or cut
off."""

CONNECTING: Mapping[str, object] = {
    "connect_timeout": CONNECT_S,
    "keepalives_idle": 2,
    "keepalives_interval": 1,
    "keepalives_count": 2,
    "tcp_user_timeout": 4_000,
    "client_encoding": "UTF8",
}
"""Defaults for libpq parameters that the address does not give.

With them a lost host is noticed in 4 to 5 s. Together with an attempt to connect anew that is less than the
shortest hang deadline, 8 s, so an actor whose server is lost pauses and is not killed."""

SESSION = """
    SET extra_float_digits = 3;
    SELECT set_config(name, '0', false)
    FROM (VALUES ('statement_timeout'), ('transaction_timeout'), ('idle_session_timeout')) AS limits (name)
    WHERE current_setting(name, true) IS NOT NULL
"""
"""SQL that sets the parameters of every connection, whatever the defaults of server, database and user are:
floats keep all 64 bits, and no time limit ends a check of a large record or the session of an idle actor.
Versions of PostgreSQL before 17 and 14 lack some of the limits."""

LOOPBACK = "127.0.0.1"

READER_NAME, WRITER_NAME = "dartrl reader", "dartrl writer"
"""Names of our connections in the server's list of connections (`pg_stat_activity`)."""

GONE = "its server does not answer or is starting: check that it runs and can be reached"
TABLES = (
    "its tables are not those of this version of dartrl: `dartrl doctor --data --full` names the differences "
    "that it finds; put a copy of the database back, or start a new run with another one"
)
PASSING = {
    "08": GONE,
    "57P01": "its server is being stopped, or this connection was ended there",
    "57P02": "its server crashed and is recovering",
    "57P03": GONE,
    "57P05": "its connection was idle for longer than idle_session_timeout, and was ended there",
    "57014": "a statement was cancelled there",
    "25P04": "a transaction took longer than transaction_timeout, and was ended there",
    "53100": "the server's disk is full: free space there, then the run continues",
    "53200": "the server has no memory left: give it more, or end other programs there",
    "53300": "the server has no connection left: raise its max_connections, or end other clients",
    "55P03": f"another session held a lock for {LOCK_TIMEOUT_S:g} s: end it, or wait",
    "40": "the server ended the transaction because of another one",
    "25P03": f"its connection was silent for {IDLE_TIMEOUT_S:g} s within a transaction",
}
"""Causes and remedies of errors that may end without repair, by SQLSTATE or its first two characters."""

LASTING = {
    "28": "the server refuses this user: check user, password (~/.pgpass) and pg_hba.conf",
    "3D000": "there is no such database: create it (createdb), or correct the name in run.record",
    "42501": "its user lacks a right: make the user the owner of the database",
    "42P01": TABLES,
    "42703": TABLES,
    "42883": TABLES,
    "25006": "the server takes no writes: it is a standby; name the primary in run.record",
    "58": "the server's disk refused to write or read: check the device, and the server's log",
    "XX": "it is damaged: put a copy of the database back; the server's log says more",
}
"""Causes and remedies of errors that a person must correct, by SQLSTATE or its first two characters."""

REFUSED = {
    "28": ("password", "authentication failed", "pg_hba.conf", 'role "'),
    "3D000": ('database "',),
}
"""Words that show the SQLSTATE of a refused connection: libpq gives only a message for it."""


END_OTHERS = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND usename = current_user AND application_name = :name
        AND pid != pg_backend_pid()
"""
DEFINITIONS = """
    WITH own AS (
        SELECT oid, relname, relkind FROM pg_class
        WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p') AND NOT EXISTS (
            SELECT 1 FROM pg_depend WHERE objid = pg_class.oid AND deptype = 'e'))
    SELECT 'table ' || relname, string_agg(
        concat_ws(' ', attname, format_type(atttypid, atttypmod), attnotnull, attcollation::regcollation,
            pg_get_expr(adbin, adrelid)), ', ' ORDER BY attnum)
    FROM own JOIN pg_attribute ON attrelid = own.oid AND attnum > 0 AND NOT attisdropped
    LEFT JOIN pg_attrdef ON adrelid = own.oid AND adnum = attnum GROUP BY relname
    UNION ALL SELECT 'constraint ' || relname || '.' || conname, pg_get_constraintdef(pg_constraint.oid)
        FROM own JOIN pg_constraint ON conrelid = own.oid
    UNION ALL SELECT 'index ' || indexrelid::regclass::text, pg_get_indexdef(indexrelid)
        FROM own JOIN pg_index ON indrelid = own.oid
    UNION ALL SELECT 'trigger ' || tgname,
            concat_ws(' ', pg_get_triggerdef(pg_trigger.oid), tgenabled, prosrc)
        FROM own JOIN pg_trigger ON tgrelid = own.oid AND NOT tgisinternal
        JOIN pg_proc ON pg_proc.oid = tgfoid
"""
"""SQL for the definitions of tables, constraints, indexes and triggers in the current schema, without those
of extensions."""


class PostgresqlConnection:
    """Runs statements in the SQL that SQLite and PostgreSQL share, with its `:names`."""

    def __init__(self, raw: psycopg.Connection, database: "PostgresqlDatabase", *, read_only: bool) -> None:
        self.raw = raw
        self._database = database
        self._read_only = read_only

    def execute(self, statement: str, values: Mapping[str, Any] | None = None, /) -> psycopg.Cursor:
        """Run a statement. Raises StoreBusy, StoreUnavailable.

        If a statement fails on a read-only connection, the next one begins a new transaction. So reading goes
        on after a failure, as it does with SQLite.
        """
        with self._database.errors():
            if self._read_only and self.raw.info.transaction_status == TransactionStatus.INERROR:
                self.raw.rollback()
                self.raw.execute(self._database.begin_reading)
            return self.raw.execute(translated(statement), values or {})

    def beside(self, raw: Any) -> "PostgresqlConnection":
        """Wrap another driver's connection to the same database."""
        return PostgresqlConnection(raw, self._database, read_only=False)

    def rollback(self) -> None:
        if not self.raw.closed:
            with self._database.errors():
                self.raw.rollback()

    def close(self) -> None:
        self.raw.close()


class PostgresqlDatabase:
    """A record on a server (`dart.store.database.Database`)."""

    begin_reading = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
    begin_writing = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
    enter_epoch = """
        WITH current AS (SELECT value FROM counters WHERE name = 'epoch' FOR SHARE)
        UPDATE counters SET value = counters.value + 1 FROM current WHERE name = 'writes'
        RETURNING current.value, counters.value
    """
    last_write = "SELECT value FROM counters WHERE name = 'writes' FOR UPDATE"

    def __init__(self, address: ServerAddress) -> None:
        self._address = address

    def connect(self, *, read_only: bool, create: bool = True) -> PostgresqlConnection:
        """Open a connection; threads may use it one at a time. The database itself is never created."""
        with self.errors():
            raw = self._connected(READER_NAME if read_only else WRITER_NAME)
            with ExitStack() as on_failure:
                on_failure.callback(raw.close)
                raw.execute(SESSION if read_only else _writer_session())
                on_failure.pop_all()
        return PostgresqlConnection(raw, self, read_only=read_only)

    def _connected(self, name: str) -> psycopg.Connection:
        given = conninfo.conninfo_to_dict(str(self._address))
        asked: dict[str, Any] = {**CONNECTING, "application_name": name, **given}
        # The driver begins no transactions: `BEGIN` is executed explicitly.
        raw = psycopg.connect(autocommit=True, **asked)
        raw.adapters.register_dumper(str, _EscapingDumper)
        for kind in ("text", "varchar"):
            raw.adapters.register_loader(kind, _UnescapingLoader)
        raw.adapters.register_loader("numeric", _SumLoader)
        return raw

    def open_engine(self, *, create: bool = True) -> "Engine":
        """Make a SQLAlchemy engine for the database."""
        from sqlalchemy import create_engine, event
        from sqlalchemy.pool import NullPool

        creator = partial(self._driver_connection, create=create)
        engine = create_engine(
            "postgresql+psycopg://", creator=creator, poolclass=NullPool, use_native_hstore=False
        )
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(self.begin_writing))
        return engine

    def _driver_connection(self, *, create: bool) -> psycopg.Connection:
        return self.connect(read_only=False, create=create).raw

    def connection_of(self, driver_connection: Any) -> PostgresqlConnection:
        return PostgresqlConnection(driver_connection, self, read_only=False)

    def is_lost(self, connection: PostgresqlConnection) -> bool:
        """Whether the server or the network has ended a connection."""
        return connection.raw.closed

    def end_other_writers(self, connection: PostgresqlConnection) -> None:
        """End the sessions of other writers, one of which may be frozen and hold locks."""
        values = {"name": WRITER_NAME}
        connection.execute(END_OTHERS, values).fetchall()

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Raise the driver's errors as StoreUnavailable or StoreBusy, with address and remedy."""
        try:
            yield
        except psycopg.Error as error:
            named = self._named(error)
            if named is None:
                raise
            raise named from error

    def _named(self, error: psycopg.Error) -> StoreUnavailable | None:
        state, text = error.sqlstate or "", " ".join(str(error).split())
        if not state and isinstance(error, psycopg.OperationalError):
            state = _state_of_refusal(text)
        for kind, remedies in ((StoreBusy, PASSING), (StoreUnavailable, LASTING)):
            remedy = remedies.get(state) or remedies.get(state[:2])
            if remedy is not None:
                return kind(f"store {self._address}: {remedy} ({text})")
        return None

    def refuse_absent(self) -> None:
        """Do nothing: `connect` raises StoreUnavailable for a missing database."""

    def own_host(self) -> str:
        """The IP address of this machine as the server sees it; loopback if a Unix socket connects them."""
        with (
            closing(self.connect(read_only=True)) as connection,
            socket.socket(fileno=os.dup(connection.raw.pgconn.socket)) as way,
        ):
            return LOOPBACK if way.family == socket.AF_UNIX else str(way.getsockname()[0])

    @staticmethod
    def found_version(connection: PostgresqlConnection) -> str | None:
        """The newest migration that a database has, such as `0012`; None for an empty database."""
        ((table,),) = connection.execute("SELECT CAST(to_regclass('alembic_version') AS TEXT)").fetchall()
        if table is None:
            return None
        rows = connection.execute("SELECT version_num FROM alembic_version").fetchall()
        return str(rows[0][0]) if rows else None

    @staticmethod
    def schema_of(connection: PostgresqlConnection) -> dict[str, str]:
        """The definitions of tables, constraints, indexes and triggers, by kind and name.

        They are those of the current schema, and do not contain its name.
        """
        ((schema,),) = connection.execute("SELECT current_schema()").fetchall()
        found = connection.execute(DEFINITIONS).fetchall()
        return {name: definition.replace(f"{schema}.", "") for name, definition in found}

    def sync(self) -> None:
        """Do nothing: the server syncs every commit."""

    def clear(self) -> None:
        """Drop the tables of the record and the functions of its triggers."""
        with closing(self.connect(read_only=False)) as connection, self.errors():
            connection.execute(self.begin_writing)
            tables = (name.removeprefix("table ") for name in self.schema_of(connection) if "table " in name)
            for table in tables:
                connection.raw.execute(sql.SQL("DROP TABLE {} CASCADE").format(sql.Identifier(table)))
            functions = connection.execute("""
                SELECT proname FROM pg_proc
                WHERE pronamespace = current_schema()::regnamespace AND prorettype = 'trigger'::regtype
            """)
            for (name,) in functions.fetchall():
                connection.raw.execute(sql.SQL("DROP FUNCTION {}()").format(sql.Identifier(name)))
            connection.execute("COMMIT")

    def references(self) -> "Checks":
        from dart.store.postgresql_checks import broken_references

        return {"the references": broken_references}

    def checks(self) -> "Checks":
        from dart.store import postgresql_checks

        return {
            "the pages": postgresql_checks.damaged_pages,
            "the tables": partial(postgresql_checks.strange_tables, self.open_engine),
            "the sequences": postgresql_checks.late_sequences,
        }


def _writer_session() -> str:
    """SQL that sets the parameters of a writer's connection."""
    return f"""
        {SESSION}; SET lock_timeout = {LOCK_TIMEOUT_S * 1000:.0f};
        SET idle_in_transaction_session_timeout = {IDLE_TIMEOUT_S * 1000:.0f};
        SELECT set_config('synchronous_commit', 'on', false)
        WHERE current_setting('synchronous_commit') = 'off'
    """


def _state_of_refusal(message: str) -> str:
    """The SQLSTATE of a connection that failed with this message; 08000 if the server was not reached."""
    if "FATAL" not in message and "fe_sendauth" not in message:
        return "08000"
    states = (state for state, words in REFUSED.items() if any(word in message for word in words))
    return next(states, "08000")


class _EscapingDumper(StrDumperUnknown):
    def dump(self, obj: str) -> Buffer | None:
        return super().dump(escaped(obj))


class _UnescapingLoader(Loader):
    def load(self, data: Buffer) -> str:
        return unescaped(bytes(data).decode())


class _SumLoader(Loader):
    """Reads a `numeric` without fraction as int, because the sum of integers is `numeric` in PostgreSQL."""

    def load(self, data: Buffer) -> int | float:
        text = bytes(data)
        return float(text) if b"." in text or text == b"NaN" else int(text)
