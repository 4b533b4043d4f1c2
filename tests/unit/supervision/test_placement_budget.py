"""The count of the failures of placed actors."""

import pytest

from supervision.child_spec import Budget
from supervision.errors import PlacedActorsFail
from supervision.placement_budget import PlacementBudget


@pytest.fixture
def budget() -> PlacementBudget:
    return PlacementBudget(Budget(max_restarts=2, max_seconds=100.0))


def up(budget: PlacementBudget, restarts: int, *, number: int = 1, for_s: float = 1.0) -> None:
    budget.was_up("job", "b", number, restarts=restarts, reason="SIGKILL", for_s=for_s)


def test_failures_are_forgotten_when_the_actor_has_been_up_for_the_window(budget: PlacementBudget) -> None:
    for restarts in range(20):
        up(budget, restarts, for_s=60.0)


def test_failures_of_all_actors_count_together(budget: PlacementBudget) -> None:
    for name in ("one", "two"):
        budget.failed(name, "b", "SIGKILL")
    with pytest.raises(PlacedActorsFail, match="'three' on 'b'"):
        budget.failed("three", "b", "SIGKILL")


def test_restarts_begin_at_zero_with_each_placement(budget: PlacementBudget) -> None:
    up(budget, 1, number=1)
    up(budget, 1, number=1)
    up(budget, 1, number=2)
    with pytest.raises(PlacedActorsFail):
        up(budget, 2, number=2)


def test_restarts_between_two_looks_all_count(budget: PlacementBudget) -> None:
    up(budget, 0)
    with pytest.raises(PlacedActorsFail):
        up(budget, 3)


def test_one_broken_host_ends_nothing_while_an_equal_actor_is_up_on_another_host(
    budget: PlacementBudget,
) -> None:
    for _ in range(20):
        budget.failed("one", "b", "no GPU", has_equal=True)
    with pytest.raises(PlacedActorsFail, match="'two' on 'c'"):
        budget.failed("two", "c", "no GPU", has_equal=True)


def test_one_broken_host_is_too_much_if_no_equal_actor_is_up(budget: PlacementBudget) -> None:
    for _ in range(3):
        budget.failed("one", "b", "no GPU", has_equal=True)
    with pytest.raises(PlacedActorsFail):
        budget.failed("one", "b", "no GPU")
