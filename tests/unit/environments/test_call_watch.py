"""A call of an environment that does not return is noticed after a lease, and named."""

import pytest

from actors.errors import WorkOverdue
from dart.config.failing_time import RESET_FACTOR
from dart.environments.call_watch import CHECK_S, CallWatch
from dart.environments.faults import InfrastructureFault

LEASE_S = 100.0
LIMIT_S = RESET_FACTOR * LEASE_S


class Watched:
    """A watch on a clock that the test moves."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.watch = CallWatch("own", LEASE_S, lambda: self.now_s)

    def checks_for(self, seconds: float) -> None:
        """Let time pass with a check every `CHECK_S`, as the actor makes them."""
        for _ in range(round(seconds / CHECK_S)):
            self.now_s += CHECK_S
            self.watch.check()


def test_a_call_that_lasts_longer_than_a_lease_is_named_with_the_kind_and_the_remedy() -> None:
    watched = Watched()
    with (
        watched.watch.during("step"),
        pytest.raises(
            WorkOverdue,
            match=r"^step of an environment of kind 'own' has not returned for 110 s, .* "
            r"\(curation.lease_s\): let it end within its deadline_s, "
            r"and await what blocks in a thread \(asyncio.to_thread\)$",
        ),
    ):
        watched.checks_for(LIMIT_S + CHECK_S)


def test_a_call_that_uses_a_whole_lease_is_left_alone() -> None:
    watched = Watched()
    with watched.watch.during("reset"):
        watched.checks_for(LEASE_S)


def test_the_calls_of_an_episode_do_not_add_up() -> None:
    watched = Watched()
    for _ in range(5):
        with watched.watch.during("step"):
            watched.checks_for(LEASE_S)


def test_between_two_calls_nothing_is_overdue() -> None:
    watched = Watched()
    with pytest.raises(ValueError, match="a fault"), watched.watch.during("step"):
        raise ValueError("a fault")
    watched.checks_for(10 * LEASE_S)


@pytest.mark.parametrize(("says", "detail"), [("the server is silent", ": the server is silent"), ("", "")])
def test_something_that_is_late_inside_a_call_is_a_fault_of_the_environment(says: str, detail: str) -> None:
    watched = Watched()
    with (
        pytest.raises(InfrastructureFault, match=f"^step timed out inside the environment{detail}$"),
        watched.watch.during("step"),
    ):
        raise TimeoutError(says)
    watched.checks_for(10 * LEASE_S)


def test_the_time_in_which_the_process_was_suspended_does_not_count() -> None:
    watched = Watched()
    with watched.watch.during("step"):
        watched.checks_for(CHECK_S)
        watched.now_s += 3600.0
        watched.watch.check()
        watched.checks_for(LEASE_S - 2 * CHECK_S)
        with pytest.raises(WorkOverdue):
            watched.checks_for(LEASE_S)
