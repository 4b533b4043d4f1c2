"""Most of a pool fails at once: one event with one cause, one child that is tried for all the others."""

import math
from dataclasses import replace
from typing import Any

import pytest

from supervision import management
from supervision.actions import Action, Ended, Report, Spawn, Status
from supervision.child_spec import Backoff, Breaker, ChildSpec, SupervisorFlags
from supervision.core import SupervisorCore
from supervision.errors import InvalidChildSpec
from supervision.outage import STAYS_UP_S, WITHIN_S, Outage, cause_of

GONE = Ended("MachineHung: vm 7 did not respond within 30 s")
NAMES = tuple("abcdefgh")
HEALTHY_S = 900.0
"""A machine that has run this long is up, however long it took to boot."""


class Pool:
    """Eight children that are up, with backoff and quarantine."""

    def __init__(
        self, *, share: float = 0.5, names: tuple[str, ...] = NAMES, has_breaker: bool = True
    ) -> None:
        specs = tuple(
            ChildSpec(
                id=name,
                actor="module:Class",
                backoff=Backoff(initial_s=1.0, max_s=60.0, jitter=0.0),
                breaker=Breaker(max_failures=2, within_s=600.0, open_s=300.0, healthy_s=HEALTHY_S)
                if has_breaker
                else None,
            )
            for name in names
        )
        most = 0 if has_breaker else 100
        flags = SupervisorFlags(ordered=False, max_restarts=most, max_failing=share, max_quarantined=0.5)
        self.core = SupervisorCore(flags, specs, draw=lambda: 0.5)
        self.now_s = 100.0
        self.log: list[Action] = []
        self.core.tick(self.now_s)
        for name in names:
            self.core.ready(name, 1, self.now_s)

    def __getitem__(self, name: str) -> Any:
        return self.core.children[name]

    def scout_runs(self) -> None:
        """The one that is tried for the others says that it has started."""
        self.pass_(1.0)
        canary = self.core.outage.canary
        self.core.ready(canary, self[canary].incarnation, self.now_s)

    def fail(self, *names: str, ended: Ended = GONE) -> None:
        for name in names:
            self.log += self.core.exited(name, self[name].incarnation, ended, self.now_s)

    def pass_(self, seconds: float) -> list[Action]:
        self.now_s += seconds
        actions = self.core.tick(self.now_s)
        self.log += actions
        return actions

    def reports(self, context: str) -> list[Report]:
        return [one for one in self.log if isinstance(one, Report) and one.context == context]


def test_the_failure_of_over_half_within_a_minute_is_one_event_with_its_cause() -> None:
    pool = Pool()
    pool.fail(*"abcde")
    (event,) = pool.reports("outage")
    assert event.offender == "e"
    assert event.reason == (
        "5 of 8 children failed within 60 s: all ended with: MachineHung: vm 7 did not respond within 30 s; "
        "e is restarted until it stays up, the others wait"
    )


def test_in_an_outage_only_the_scout_is_tried_and_nothing_more_is_reported() -> None:
    pool = Pool()
    pool.fail(*"abcdefgh")
    assert len(pool.reports("child_terminated")) == 5
    for _ in range(100):
        spawned = [action.id for action in pool.pass_(70.0) if isinstance(action, Spawn)]
        assert spawned == ["e"]
        pool.fail("e")
    assert len(pool.reports("child_terminated")) == 5
    assert len(pool.reports("outage")) == 1


def test_an_outage_puts_nobody_into_quarantine_and_does_not_end_the_pool() -> None:
    pool = Pool()
    pool.fail(*"abcde")
    for _ in range(10):
        pool.pass_(70.0)
        pool.fail("e")
    assert not any(pool[name].is_quarantined for name in NAMES)
    assert pool.core.finishing is None


@pytest.mark.parametrize(("has_breaker", "holds_s"), [(True, HEALTHY_S), (False, STAYS_UP_S)])
def test_when_the_scout_has_run_for_long_enough_all_come_back(has_breaker: bool, holds_s: float) -> None:
    pool = Pool(has_breaker=has_breaker)
    pool.fail(*"abcde")
    pool.scout_runs()
    pool.pass_(holds_s - 0.1)
    assert pool.reports("outage_over") == []
    pool.pass_(0.2)
    (over,) = pool.reports("outage_over")
    assert over.reason == f"e stays up again after {holds_s + 1:.0f} s"
    pool.pass_(1.0)
    assert [pool[name].status for name in "abcd"] == [Status.STARTING] * 4


def test_a_scout_that_starts_in_a_moment_and_boots_for_minutes_shows_nothing_before_it_was_used() -> None:
    pool = Pool()
    pool.fail(*"abcde")
    for _ in range(5):
        pool.scout_runs()
        pool.core.used("e", pool["e"].incarnation, 0, pool.now_s)
        pool.pass_(400.0)  # its first boot does not come to an end
        pool.fail("e")
        pool.pass_(60.0)
    assert pool.reports("outage_over") == []
    assert [pool[name].status for name in "abcd"] == [Status.DOWN] * 4


def test_the_first_use_shows_that_the_outage_is_over() -> None:
    pool = Pool()
    pool.fail(*"abcde")
    pool.scout_runs()
    pool.pass_(90.0)
    pool.log += pool.core.used("e", pool["e"].incarnation, 1, pool.now_s)
    (over,) = pool.reports("outage_over")
    assert over.reason == "e stays up again after 91 s"
    pool.pass_(1.0)
    assert [pool[name].status for name in "abcd"] == [Status.STARTING] * 4


def test_uses_of_the_process_before_show_nothing_of_the_one_after() -> None:
    pool = Pool()
    pool.core.used("e", 1, 50, pool.now_s)
    pool.fail(*"abcde")
    pool.scout_runs()
    pool.pass_(1.0)
    assert pool.reports("outage_over") == []


def test_the_next_wake_is_when_the_scout_has_held() -> None:
    pool = Pool()
    pool.fail(*"abcde")
    assert pool.core.next_wake_s() == pool.now_s + 1.0
    pool.scout_runs()
    assert pool.core.next_wake_s() == pool.now_s + HEALTHY_S


def test_failures_that_are_not_close_together_are_each_childs_own() -> None:
    pool = Pool()
    for name in "abcde":
        pool.fail(name)
        pool.pass_(WITHIN_S / 2)
    assert pool.reports("outage") == []
    assert len(pool.reports("child_terminated")) == 5


def restart_and_use(pool: Pool, *names: str) -> None:
    """Each of them is restarted, and used once."""
    for name in names:
        pool.pass_(max(0.0, pool[name].start_at_s - pool.now_s))
        incarnation = pool[name].incarnation
        pool.log += pool.core.ready(name, incarnation, pool.now_s)
        pool.log += pool.core.used(name, incarnation, 1, pool.now_s)


def test_children_that_work_between_their_failures_are_no_outage_and_spend_their_budgets() -> None:
    pool = Pool()
    for _ in range(2):
        for name in "abcde":
            pool.fail(name)
            restart_and_use(pool, name)
    assert pool.reports("outage") == pool.reports("outage_over") == []
    assert [len(pool[name].circuit.failures) for name in "abcde"] == [2] * 5


def test_outages_that_come_and_go_do_not_keep_broken_children_alive_for_ever() -> None:
    pool = Pool()
    for _ in range(20):
        pool.fail(*(name for name in NAMES if pool[name].status is Status.RUNNING))
        canary = pool.core.outage.canary
        restart_and_use(pool, *([canary] if canary else []))
        waiting = [name for name in NAMES if pool[name].status is Status.DOWN]
        restart_and_use(pool, *(name for name in waiting if not pool[name].is_quarantined))
        if pool.core.finishing is not None:
            return
    raise AssertionError("the pool has not given up")


def test_what_a_process_did_before_the_outage_does_not_end_it() -> None:
    pool = Pool()
    pool.fail("a")
    pool.pass_(1.0)
    pool.core.ready("a", 2, pool.now_s)
    pool.pass_(1.0)
    pool.fail(*"bcde")
    pool.log += pool.core.used("a", 2, 1, pool.now_s)
    assert pool.reports("outage_over") == []
    pool.pass_(HEALTHY_S - 0.1)
    assert pool.reports("outage_over") == []
    pool.pass_(0.2)
    assert [over.offender for over in pool.reports("outage_over")] == ["a"], "it has run all the time"


def test_failures_from_before_an_outage_stay_spent() -> None:
    pool = Pool()
    pool.fail("a")
    pool.pass_(1.0)
    pool.core.ready("a", 2, pool.now_s)
    pool.pass_(WITHIN_S)
    pool.fail("a", *"bcde")
    assert len(pool.reports("outage")) == 1
    assert len(pool["a"].circuit.failures) == 2


def test_a_child_that_is_gone_counts_as_none_that_failed() -> None:
    flags = SupervisorFlags(dynamic=True, ordered=False, max_failing=0.5, max_restarts=100)
    core = SupervisorCore(flags, (), draw=lambda: 0.5)
    for name in "abcde":
        management.start_child(core, ChildSpec(id=name, actor="module:Class"), 0.0)
        core.ready(name, 1, 0.0)
    for name in "ab":
        core.exited(name, 1, GONE, 1.0)
        management.terminate_child(core, name, 1.0)
        core.exited(name, 2, GONE, 1.0)
    core.exited("c", 1, GONE, 2.0)
    assert not core.outage.is_on


def test_an_outage_ends_when_outages_are_switched_off() -> None:
    pool = Pool()
    pool.fail(*"abcde")
    actions, _ = management.update_flags(pool.core, replace(pool.core.flags, max_failing=1.0), pool.now_s)
    pool.log += actions
    (over,) = pool.reports("outage_over")
    assert over.reason == "after 0 s, because max_failing was set to 1"
    pool.pass_(1.0)
    assert [pool[name].status for name in "abcde"] == [Status.STARTING] * 5


def test_a_quarantine_from_before_an_outage_is_kept_after_it() -> None:
    pool = Pool()
    for _ in range(2):
        pool.fail("a")
        restart_and_use(pool, "a")
    pool.fail("a")
    until_s = pool["a"].start_at_s
    assert pool["a"].is_quarantined
    pool.fail(*"bcde")
    assert pool["a"].start_at_s == math.inf
    restart_and_use(pool, pool.core.outage.canary)
    assert pool["a"].start_at_s == until_s


@pytest.mark.parametrize(("names", "outages"), [(("a", "b"), 0), (("a", "b", "c"), 1)])
def test_three_failures_are_the_fewest_that_say_something_of_a_pool(
    names: tuple[str, ...], outages: int
) -> None:
    pool = Pool(names=names)
    pool.fail(*names)
    assert len(pool.reports("outage")) == outages


def test_without_a_share_there_are_no_outages() -> None:
    pool = Pool(share=1.0)
    pool.fail(*NAMES)
    assert pool.reports("outage") == []
    assert not pool.core.outage.failed


def test_a_scout_that_is_taken_down_is_replaced() -> None:
    pool = Pool()
    pool.fail(*"abcde")
    actions, _ = management.terminate_child(pool.core, "e", pool.now_s)
    spawned = [action.id for action in actions if isinstance(action, Spawn)]
    assert spawned == [pool.core.outage.canary] == ["a"]


def test_a_scout_that_is_taken_down_is_replaced_at_once_because_nothing_else_may_ever_happen() -> None:
    pool = Pool()
    pool.fail(*NAMES)
    scout = pool.core.outage.canary
    actions, _ = management.terminate_child(pool.core, scout, pool.now_s)
    assert pool.core.outage.canary != scout
    assert [action.id for action in actions if isinstance(action, Spawn)] == [pool.core.outage.canary]


def test_a_child_of_the_outage_can_be_released_by_hand() -> None:
    pool = Pool()
    pool.fail(*"abcde")
    assert pool["a"].start_at_s == math.inf
    actions, refusal = management.release_child(pool.core, "a", pool.now_s)
    assert not refusal
    assert Spawn("a", 2) in actions


def test_the_cause_is_what_most_said() -> None:
    said = {"a": (0.0, "vm 1 hung"), "b": (0.0, "no disk"), "c": (0.0, "vm 23 hung")}
    assert cause_of(said) == "2 of them ended with: vm 1 hung"


def test_an_outage_counts_only_the_last_minute() -> None:
    outage = Outage()
    for number in range(10):
        outage.note(str(number), "gone", number * WITHIN_S * 1.5)
    assert len(outage.failed) == 1


@pytest.mark.parametrize("share", [-0.1, 1.1])
def test_a_share_is_between_none_and_all(share: float) -> None:
    with pytest.raises(InvalidChildSpec, match="max_failing"):
        SupervisorFlags(max_failing=share)
