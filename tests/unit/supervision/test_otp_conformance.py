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


@pytest.fixture(params=[None, 1, 2], ids=["in-order", "seed-1", "seed-2"])
def world(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[BenchWorld]:
    world = BenchWorld(tmp_path, seed=request.param)
    yield world
    world.close()
