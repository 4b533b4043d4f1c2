"""When a lease is overdue, with an environment that could not store what it played."""

import pytest

from dart.curation.lease_deadline import SPARED_S, is_overdue

DEADLINE, LEASE_S, NEVER = 10_000.0, 120.0, 0.0


@pytest.mark.parametrize(
    ("waited", "at", "expected"),
    [
        (NEVER, DEADLINE - 1.0, False),
        (NEVER, DEADLINE, True),
        (DEADLINE - LEASE_S, DEADLINE, True),
        (DEADLINE - 1.0, DEADLINE + LEASE_S - 2.0, False),
        (DEADLINE - 1.0, DEADLINE + LEASE_S, True),
        (DEADLINE + SPARED_S - 2.0, DEADLINE + SPARED_S - 1.0, False),
    ],
)
def test_a_holder_has_a_lease_after_its_last_wait(waited: float, at: float, expected: bool) -> None:
    assert is_overdue(DEADLINE, waited, LEASE_S, at) is expected


def test_a_holder_that_waits_without_end_loses_its_lease() -> None:
    late = DEADLINE + SPARED_S
    assert is_overdue(DEADLINE, late, LEASE_S, late)
