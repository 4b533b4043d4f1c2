"""Tests that need servers: PostgreSQL, an S3 server, Ray. `make test-cluster` installs and runs them.

Without DARTRL_TEST_CLUSTER=1 no module here is imported, and each is reported as skipped.
"""

import os
from pathlib import Path

import pytest

SWITCH = "DARTRL_TEST_CLUSTER"


class LeftOut(pytest.Module):
    """A module whose tests are not run, because `make test-cluster` has not set up what they need."""

    def collect(self) -> list[pytest.Item]:
        pytest.skip("it needs servers: make test-cluster", allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    if os.environ.get(SWITCH):
        return None
    left_out: pytest.Module = LeftOut.from_parent(parent, path=module_path)
    return left_out
