"""The server that the tests run on: each test gets a database of its own, and a killed server comes back."""

from collections.abc import Callable

import psycopg

from dart.testing.postgresql_server import PostgresqlServer


def test_each_database_is_empty_and_apart_from_the_others(new_database: Callable[[], str]) -> None:
    first, second = new_database(), new_database()
    with psycopg.connect(first, autocommit=True) as connection:
        connection.execute("CREATE TABLE kept (number BIGINT)")
    with psycopg.connect(second) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
    assert tables == []


def test_a_killed_server_still_has_what_it_acknowledged(postgresql: PostgresqlServer, database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 7 AS number")
        postgresql.kill()
    postgresql.start()
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT number FROM kept").fetchall() == [(7,)]
