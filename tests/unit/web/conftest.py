"""A recorded run, made once, and its page behind a client without sockets."""

import fcntl
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from dart.core.run_directory import RunPaths
from dart.web.app import web_app
from dart.web.auth import access_for
from tests.recorded_run import record_run

TOKEN = "a-token-of-a-good-length-0123456789"


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunPaths]:
    """It seems to run: its lock is held."""
    paths = record_run(tmp_path_factory.mktemp("recorded") / "run")
    with paths.lock.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield paths


@pytest.fixture(scope="session")
def client(recorded: RunPaths) -> Iterator[TestClient]:
    with TestClient(
        web_app(recorded, access_for("127.0.0.1", None)), base_url="http://localhost:8700"
    ) as opened:
        yield opened


@pytest.fixture
def guarded(recorded: RunPaths) -> Iterator[TestClient]:
    app = web_app(recorded, access_for("127.0.0.1", TOKEN))
    with TestClient(app, base_url="http://localhost:8700", follow_redirects=False) as opened:
        yield opened


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[TestClient]:
    """The page of a directory in which nothing ever ran."""
    with TestClient(
        web_app(RunPaths(tmp_path), access_for("127.0.0.1", None)), base_url="http://localhost"
    ) as opened:
        yield opened
