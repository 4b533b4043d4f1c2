"""Statements are in the SQL that SQLite and PostgreSQL share (docs/decisions/0019-one-sql-layer.md)."""

import re
import sqlite3
from pathlib import Path

import pytest

import dart.store
from dart.store import sqlite
from dart.store.queries import scalars
from dart.store.sqlite import SqliteDatabase

ONLY_SQLITE = ("sqlite.py", "sqlite_checks.py", "write_ahead_log.py", "schema.py")
"""The last one says how SQLite numbers rows, which other databases pass over."""

WORDS = (
    "sqlite3",
    "sqlite_master",
    "PRAGMA",
    "rowid",
    "json_each",
    "json_extract",
    "json_valid",
    "dialects.sqlite",
    r"AS INTEGER\)",  # SQLite cuts off what PostgreSQL rounds
    r" IS NOT (?!NULL)",
    r"\(:\w+ IS NULL",  # PostgreSQL cannot tell the type of such a parameter
    r"\b(avg|sum)\([^()]*[<>=] :",  # PostgreSQL adds up no conditions
    r"= \?",  # parameters have names
)


@pytest.mark.parametrize("word", WORDS)
def test_no_statement_has_what_only_sqlite_understands(word: str) -> None:
    modules = sorted(Path(dart.store.__file__).parent.glob("*.py"))
    assert len(modules) > 10
    found = [
        f"{module.name}: {line.strip()}"
        for module in modules
        if module.name not in ONLY_SQLITE
        for line in module.read_text().splitlines()
        if re.search(word, line)
    ]
    assert found == []


@pytest.mark.slow
def test_a_list_is_as_many_parameters_as_it_has_items(tmp_path: Path) -> None:
    connection = SqliteDatabase(tmp_path / "any.db").connect(read_only=False)
    numbers = "SELECT 1 AS number UNION SELECT 2 UNION SELECT 3"
    query = f"SELECT number FROM ({numbers}) AS numbers WHERE number IN (:keys)"
    assert scalars(connection, query, keys=[3, 1, 7]) == [1, 3]
    assert scalars(connection, query, keys=[]) == []
    assert scalars(connection, query, keys=list(range(2, 32_000))) == [2, 3]
    connection.close()


def test_an_sqlite_without_functions_of_mathematics_gets_the_one_that_is_used() -> None:
    class Plain(sqlite3.Connection):
        has_floor = False

        def execute(self, sql: str, *values: object) -> sqlite3.Cursor:
            if "floor" in sql and not self.has_floor:
                raise sqlite3.OperationalError("no such function: floor")
            return super().execute(sql, *values)

        def create_function(self, *given: object, **named: object) -> None:
            self.has_floor = True
            super().create_function(*given, **named)

    connection = sqlite3.connect(":memory:", factory=Plain)
    sqlite._see_to_floor(connection)
    assert connection.execute("SELECT floor(7.9), floor(-0.5)").fetchone() == (7, -1)
    connection.close()
