"""The counter of `examples/counter.py`, tested without processes."""

from pathlib import Path

import pytest

from actors.testing import InMemorySystem
from examples.counter import Add, Counter, DivideBy, Total


def test_a_counter_adds_and_dies_of_a_division_by_zero(tmp_path: Path) -> None:
    with InMemorySystem(tmp_path) as system:
        system.start(Counter, "counter")
        answer = system.ask("counter", Add(number=2))
        system.settle()
        assert answer.result() == Total(value=2)

        system.tell("counter", DivideBy(number=0))
        with pytest.raises(ZeroDivisionError):
            system.settle()
