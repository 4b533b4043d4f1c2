"""Tests that need servers: PostgreSQL, an S3 server, Ray. `make test-cluster` installs and runs them.

Without DARTRL_TEST_CLUSTER=1 no module here is imported, and each is reported as skipped.
"""

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dart.testing.postgresql_server import PostgresqlServer, running_server

SWITCH = "DARTRL_TEST_CLUSTER"

_numbers = itertools.count(1)


class LeftOut(pytest.Module):
    """A module whose tests are not run, because `make test-cluster` has not set up what they need."""

    def collect(self) -> list[pytest.Item]:
        pytest.skip("it needs servers: make test-cluster", allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    if os.environ.get(SWITCH):
        return None
    left_out: pytest.Module = LeftOut.from_parent(parent, path=module_path)
    return left_out


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgresqlServer]:
    """A running PostgreSQL server; a test that stops it starts it again."""
    with running_server() as server:
        yield server


@pytest.fixture
def new_database(postgresql: PostgresqlServer) -> Iterator[Callable[[], str]]:
    """Makes empty databases and returns their addresses; they are dropped after the test."""
    names: list[str] = []

    def make() -> str:
        names.append(f"test_{next(_numbers)}")
        return postgresql.make_database(names[-1])

    yield make
    for name in names:
        postgresql.drop_database(name)


@pytest.fixture
def database(new_database: Callable[[], str]) -> str:
    """The address of an empty database."""
    return new_database()
