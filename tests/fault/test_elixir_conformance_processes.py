"""Elixir's truth table on real processes; tests/unit runs the same scenarios under the manual clock."""

from collections.abc import Iterator

import pytest

from tests.conformance.elixir import TestDynamicRestart, TestDynamicStart, TestDynamicStop, TestSupervisor
from tests.conformance.world import ProcessWorld

__all__ = ["TestDynamicRestart", "TestDynamicStart", "TestDynamicStop", "TestSupervisor"]


@pytest.fixture
def world() -> Iterator[ProcessWorld]:
    world = ProcessWorld()
    yield world
    world.close()
