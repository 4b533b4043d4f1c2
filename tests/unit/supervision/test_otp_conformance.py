"""OTP's truth table in process, under the manual clock; tests/fault runs the same scenarios on processes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.otp import (
    TestManagement,
    TestMisc,
    TestRestartTypes,
    TestSignificant,
    TestStart,
    TestStop,
    TestStrategies,
)
from tests.conformance.world import BenchWorld

__all__ = [
    "TestManagement",
    "TestMisc",
    "TestRestartTypes",
    "TestSignificant",
    "TestStart",
    "TestStop",
    "TestStrategies",
]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[BenchWorld]:
    world = BenchWorld(tmp_path)
    yield world
    world.close()
