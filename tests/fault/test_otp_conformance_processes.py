"""OTP's truth table on real processes; the same scenarios run under the manual clock in tests/unit."""

from collections.abc import Iterator

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
from tests.conformance.world import ProcessWorld

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
def world() -> Iterator[ProcessWorld]:
    world = ProcessWorld()
    yield world
    world.close()
