"""The count of the failures of placed actors."""

import pytest

from supervision.child_spec import Budget
from supervision.placement_budget import HasEqual, PlacementBudget


@pytest.fixture
def budget() -> PlacementBudget:
    return PlacementBudget(Budget(max_restarts=2, max_seconds=100.0))


def no_equal(name: str, host: str) -> bool:
    return False


def equal_elsewhere(name: str, host: str) -> bool:
    return True


def up(budget: PlacementBudget, restarts: int, *, number: int = 1, for_s: float = 1.0) -> str:
    return budget.was_up(
        "job", "b", number, restarts=restarts, reason="SIGKILL", for_s=for_s, has_equal=no_equal
    )


def fail(budget: PlacementBudget, name: str, host: str, has_equal: HasEqual = no_equal) -> str:
    return budget.failed(name, host, "no GPU", has_equal=has_equal)


def test_failures_are_forgotten_when_the_actor_has_been_up_for_the_window(budget: PlacementBudget) -> None:
    assert not any(up(budget, restarts, for_s=60.0) for restarts in range(20))


def test_failures_of_all_actors_count_together(budget: PlacementBudget) -> None:
    assert not fail(budget, "one", "b")
    assert not fail(budget, "two", "b")
    assert fail(budget, "three", "b") == (
        "placed actors failed more than 2 times in 100 s; the last was 'three' on 'b': no GPU"
    )


def test_failures_on_several_hosts_name_each_of_these_hosts(budget: PlacementBudget) -> None:
    assert not fail(budget, "one", "b")
    assert not fail(budget, "one", "c")
    assert fail(budget, "two", "b") == (
        "placed actors failed more than 2 times in 100 s on 'b', 'c'; the last was 'two' on 'b': no GPU"
    )


def test_restarts_begin_at_zero_with_each_placement(budget: PlacementBudget) -> None:
    assert not up(budget, 1, number=1)
    assert not up(budget, 1, number=1)
    assert not up(budget, 1, number=2)
    assert up(budget, 2, number=2)


def test_restarts_between_two_looks_all_count(budget: PlacementBudget) -> None:
    assert not up(budget, 0)
    assert up(budget, 3)


def test_a_broken_host_is_not_too_much_and_leaves_the_others_all_their_failures(
    budget: PlacementBudget,
) -> None:
    assert not any(fail(budget, "one", "b", equal_elsewhere) for _ in range(20))
    assert not fail(budget, "two", "c", equal_elsewhere)
    assert not fail(budget, "two", "c", equal_elsewhere)
    assert "the last was 'three' on 'd'" in fail(budget, "three", "d", equal_elsewhere)


def test_the_broken_host_is_the_one_with_the_most_failures_and_not_the_first(budget: PlacementBudget) -> None:
    assert not any(fail(budget, "two", "c", equal_elsewhere) for _ in range(2))
    assert not any(fail(budget, "one", "b", equal_elsewhere) for _ in range(3))


def test_one_broken_host_is_too_much_if_no_equal_actor_is_up(budget: PlacementBudget) -> None:
    assert not any(fail(budget, "one", "b", equal_elsewhere) for _ in range(3))
    assert fail(budget, "one", "b")


def test_the_equals_are_those_of_what_failed_on_the_broken_host(budget: PlacementBudget) -> None:
    def is_engine(name: str, host: str) -> bool:
        return name == "engine" and host == "b"

    assert not any(fail(budget, "engine", "b", is_engine) for _ in range(4))
    assert not fail(budget, "environment", "c", is_engine), "one failure, and its host is not broken"


def test_a_broken_host_counts_no_more_when_its_actors_have_been_up_elsewhere(budget: PlacementBudget) -> None:
    for host in ("b", "c"):
        assert not any(fail(budget, "job", host, equal_elsewhere) for _ in range(2))
    up(budget, 0, for_s=101.0)
    assert not any(fail(budget, "other", host, equal_elsewhere) for host in ("d", "e"))


def test_the_failures_of_a_broken_host_take_no_more_memory_with_time(budget: PlacementBudget) -> None:
    for _ in range(1000):
        fail(budget, "one", "b", equal_elsewhere)
    assert len(budget._failures["b"]) == 3


def test_an_actor_that_is_placed_no_more_is_forgotten(budget: PlacementBudget) -> None:
    assert not any(fail(budget, name, "b") for name in ("one", "two"))
    budget.forget("one")
    assert not fail(budget, "three", "b")
    assert fail(budget, "four", "b")
