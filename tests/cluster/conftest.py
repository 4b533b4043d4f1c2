"""Tests that need servers: PostgreSQL, an S3 server, Ray. `make test-cluster` installs and runs them.

Without DARTRL_TEST_CLUSTER=1 no module here is imported, and each is reported as skipped.
"""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from dart.testing.s3_server import BUCKET, S3Server, running_s3_server

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
def s3_server() -> Iterator[S3Server]:
    """A running S3 server."""
    with running_s3_server() as server:
        yield server


@pytest.fixture
def s3(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of an empty prefix, with what a client needs in the environment."""
    for name, value in s3_server.variables.items():
        monkeypatch.setenv(name, value)
    return f"s3://{BUCKET}/test-{next(_numbers)}"


@pytest.fixture(params=["s3", "file"])
def storage_address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of empty object storage: a prefix of the S3 server, and a shared folder."""
    if request.param == "s3":
        address: str = request.getfixturevalue("s3")
        return address
    return (tmp_path / "shared").as_uri()
