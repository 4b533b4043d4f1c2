"""Beyond OTP, as tables: breaker, budgets by kind of failure, retirement, preemption, calls."""

import math
from typing import Any

import pytest

from supervision import circuit_breaker, management
from supervision.actions import (
    Action,
    Answer,
    AskToStop,
    Ended,
    Finish,
    Forget,
    Kill,
    Report,
    Spawn,
    Status,
    Target,
)
from supervision.child_spec import (
    AutoShutdown,
    Backoff,
    Breaker,
    Budget,
    ChildSpec,
    Failure,
    Restart,
    Retirement,
    Strategy,
    SupervisorFlags,
)
from supervision.circuit_breaker import Circuit, CircuitState
from supervision.core import SupervisorCore
from supervision.errors import InvalidChildSpec

POLICY = Breaker(max_failures=2, within_s=60.0, open_s=30.0, healthy_s=10.0)
SIGKILL = Ended("SIGKILL", by_signal=True)
CRASH = Ended("exit code 70")
OVERDUE = Ended("exit code 77", overdue=True)
NORMAL = Ended("normal", normal=True)


def child(id_: str = "a", **changes: Any) -> ChildSpec:
    return ChildSpec(id=id_, actor="module:Class", **changes)


class Pool:
    """A core whose children are up; a test says what becomes of them."""

    def __init__(self, *specs: ChildSpec, **flags: Any) -> None:
        limits: dict[str, Any] = {"ordered": False, "max_restarts": 0} | flags
        self.core = SupervisorCore(SupervisorFlags(**limits), specs, draw=lambda: 0.5)
        self.now_s = 100.0
        self.core.tick(self.now_s)
        for spec in specs:
            self.core.ready(spec.id, 1, self.now_s)

    def __getitem__(self, id_: str) -> Any:
        return self.core.children[id_]

    def pass_(self, seconds: float) -> list[Action]:
        self.now_s += seconds
        return self.core.tick(self.now_s)

    def exit(self, id_: str = "a", ended: Ended = CRASH, incarnation: int = 0) -> list[Action]:
        return self.core.exited(id_, incarnation or self[id_].incarnation, ended, self.now_s)

    def ready(self, id_: str = "a", incarnation: int = 0) -> list[Action]:
        return self.core.ready(id_, incarnation or self[id_].incarnation, self.now_s)

    def restart(self, id_: str = "a", ended: Ended = CRASH) -> None:
        """It fails and is up again, however long that takes."""
        self.exit(id_, ended)
        self.pass_(max(0.0, self[id_].start_at_s - self.now_s))
        self.ready(id_)


# ---- breaker ----


def test_a_circuit_opens_at_one_failure_too_many_within_its_window() -> None:
    circuit = Circuit()
    for now_s in (0.0, 1.0):
        circuit = circuit_breaker.failed(circuit, POLICY, now_s, own_clock_s=now_s)
        assert circuit.state is CircuitState.CLOSED
    late = circuit_breaker.failed(circuit, POLICY, 62.0, own_clock_s=62.0)
    assert late == Circuit(failures=(62.0,)), "the others are long ago"
    soon = circuit_breaker.failed(circuit, POLICY, 62.0, own_clock_s=2.0)
    assert soon == Circuit(CircuitState.OPEN, open_until_s=92.0), "it has only waited meanwhile"


@pytest.mark.parametrize(
    ("state", "ran_s", "after"),
    [
        (CircuitState.HALF_OPEN, 9.9, CircuitState.HALF_OPEN),
        (CircuitState.HALF_OPEN, 10.0, CircuitState.CLOSED),
        (CircuitState.OPEN, 99.0, CircuitState.OPEN),
        (CircuitState.CLOSED, 99.0, CircuitState.CLOSED),
    ],
)
def test_probation_is_over_once_it_ran_well_for_long_enough(
    state: CircuitState, ran_s: float, after: CircuitState
) -> None:
    assert circuit_breaker.after_running(Circuit(state), POLICY, ran_s).state is after


def test_only_an_open_circuit_is_put_on_probation_where_one_failure_opens_it_again() -> None:
    closed = Circuit(failures=(1.0,))
    assert circuit_breaker.on_probation(closed) is closed
    probation = circuit_breaker.on_probation(circuit_breaker.opened(POLICY, 5.0))
    assert probation == Circuit(CircuitState.HALF_OPEN)
    assert circuit_breaker.failed(probation, POLICY, 50.0, own_clock_s=50.0) == Circuit(
        CircuitState.OPEN, open_until_s=80.0
    )


def test_a_child_in_quarantine_costs_its_siblings_nothing_and_comes_back_on_probation() -> None:
    pool = Pool(child(breaker=POLICY), child("b"))
    for _ in range(2):
        pool.restart()
    actions = pool.exit()
    assert [a.context for a in actions if isinstance(a, Report)] == ["child_terminated", "child_quarantined"]
    assert pool["a"].is_quarantined
    assert pool["b"].status is Status.RUNNING
    assert pool.core.next_wake_s() == pool.now_s + 30.0
    assert pool.pass_(29.9) == []
    assert [type(a) for a in pool.pass_(0.1)] == [Spawn]
    pool.ready()
    assert pool.core.next_wake_s() == pool.now_s + 10.0, "when probation is over"
    pool.exit()
    assert pool["a"].is_quarantined, "on probation one failure is enough"
    pool.pass_(30.0)
    pool.ready()
    pool.pass_(10.0)
    assert pool["a"].circuit == Circuit()
    assert pool.core.next_wake_s() == math.inf


def test_when_too_large_a_share_is_in_quarantine_the_fault_is_not_theirs() -> None:
    hair_trigger = Breaker(max_failures=0)
    pool = Pool(*(child(id_, breaker=hair_trigger) for id_ in "abcd"), max_quarantined=0.5)
    pool.exit("a")
    pool.exit("b")
    assert pool.core.finishing is None
    reports = [a for a in pool.exit("c") if isinstance(a, Report)]
    assert "75% of the children are in quarantine" in reports[-1].reason
    assert pool.core.finishing is not None


# ---- budgets by kind ----


def fail(pool: Pool, kind: Failure) -> None:
    """One failure of a kind, and up again if it may."""
    if kind is Failure.HANG:
        pool.core.hung("a", pool["a"].incarnation, "no beat")
    if kind is Failure.START:
        pool["a"].status = Status.STARTING
    ends = {Failure.CRASH: CRASH, Failure.START: CRASH, Failure.OVERDUE: OVERDUE}
    pool.exit(ended=ends.get(kind, SIGKILL))
    pool.pass_(max(0.0, pool["a"].start_at_s - pool.now_s))
    pool.ready()


@pytest.mark.parametrize("kind", Failure)
@pytest.mark.parametrize("other", Failure)
def test_a_kind_with_a_budget_of_its_own_spends_that_and_no_other(kind: Failure, other: Failure) -> None:
    budget = Budget(max_restarts=2, max_seconds=1000.0)
    pool = Pool(child(budgets={kind: budget}), max_restarts=0)
    fail(pool, kind)
    fail(pool, kind)
    assert pool.core.restarts == ()
    assert pool.core.finishing is None
    fail(pool, other)
    assert pool.core.finishing is not None
    words = f"over 2 failures of kind '{kind.value}' in 1000 s" if other is kind else "over 0 restarts in 5 s"
    assert words in pool.core.finishing.reason


def test_a_budget_of_its_own_that_is_spent_opens_the_breaker_and_begins_anew() -> None:
    budgets = {Failure.SIGNAL: Budget(max_restarts=0, max_seconds=1000.0)}
    pool = Pool(child(breaker=POLICY, budgets=budgets))
    actions = pool.exit(ended=SIGKILL)
    assert pool["a"].is_quarantined
    assert isinstance(actions[-1], Report)
    assert "over 0 failures of kind 'signal' in 1000 s" in actions[-1].reason
    assert pool["a"].spent == {}


def test_a_failure_on_probation_within_a_budget_of_its_own_is_reported_as_one_on_probation() -> None:
    budgets = {Failure.START: Budget(max_restarts=5, max_seconds=600.0)}
    pool = Pool(child(breaker=Breaker(max_failures=0, open_s=30.0), budgets=budgets))
    pool.exit()
    pool.pass_(30.0)
    actions = pool.exit(ended=CRASH)  # it starts, on probation
    assert actions == [
        Report("child_terminated", "exit code 70", "a"),
        Report("child_quarantined", "exit code 70: failed on probation after a quarantine", "a"),
    ]


def test_a_child_that_hangs_before_it_is_ready_spends_the_budget_of_failed_starts() -> None:
    own = Budget(max_restarts=1, max_seconds=1000.0)
    pool = Pool(child(budgets={Failure.START: own, Failure.HANG: own}), max_restarts=1)
    pool.exit()
    assert pool.core.hung("a", 2, "no beat") == [Kill("a", 2, "no beat")]
    pool.exit(ended=SIGKILL)
    assert list(pool["a"].spent) == [Failure.START]


# ---- retirement ----


def test_a_child_that_is_old_is_replaced_and_no_budget_is_spent() -> None:
    pool = Pool(child(retirement=Retirement(max_age_s=50.0, jitter=0.0)))
    assert pool.core.next_wake_s() == 150.0
    assert pool.pass_(49.9) == []
    names = [type(a).__name__ for a in pool.pass_(0.1)]
    assert names == ["Report", "AskToStop"]
    assert [type(a) for a in pool.exit(ended=NORMAL)] == [Spawn]
    pool.ready()
    assert (pool["a"].restarts, pool.core.restarts) == (0, ())
    assert pool.core.next_wake_s() == pool.now_s + 50.0, "and again"


def test_age_is_drawn_within_its_jitter() -> None:
    core = SupervisorCore(
        SupervisorFlags(), (child(retirement=Retirement(max_age_s=50.0, jitter=0.1)),), draw=lambda: 0.0
    )
    core.tick(0.0)
    core.ready("a", 1, 0.0)
    assert core.children["a"].retire_at_s == 45.0


@pytest.mark.parametrize(
    ("limit", "uses", "retires"), [(0, 9, False), (5, 4, False), (5, 5, True), (5, 9, True)]
)
def test_a_child_that_is_used_up_is_replaced(limit: int, uses: int, retires: bool) -> None:
    pool = Pool(child(retirement=Retirement(max_uses=limit)))
    assert bool(pool.core.used("a", 1, uses, pool.now_s)) is retires
    assert pool["a"].status is (Status.STOPPING if retires else Status.RUNNING)


def test_a_child_that_stops_holds_up_no_restart_of_a_sibling() -> None:
    pool = Pool(child(retirement=Retirement(max_uses=1)), child("b"), max_restarts=1)
    pool.core.used("a", 1, 1, pool.now_s)
    assert pool["a"].status is Status.STOPPING
    assert Spawn("b", 2) in pool.exit("b")


def test_uses_of_another_process_or_of_nobody_retire_nobody() -> None:
    pool = Pool(child(retirement=Retirement(max_uses=1)))
    assert pool.core.used("a", 2, 9, pool.now_s) == []
    assert pool.core.used("nobody", 1, 9, pool.now_s) == []


# ---- preemption ----


def preempt(pool: Pool) -> list[str]:
    """A notice reaches the child, which ends in order and is up again if it may; returns the reports."""
    actions = pool.core.preempted("a", pool["a"].incarnation, pool.now_s)
    pool.exit(ended=NORMAL)
    pool.pass_(0.0)
    pool.ready()
    return [action.context for action in actions if isinstance(action, Report)]


def test_a_preempted_child_is_stopped_in_order_and_started_again_at_once_as_no_failure() -> None:
    pool = Pool(child(backoff=Backoff(initial_s=5.0)), child("b"), max_restarts=0)
    assert pool.core.preempted("a", 1, pool.now_s) == [
        Report("preempted", "preempted: a SIGTERM announced the end of its process", "a"),
        AskToStop("a", 1, 5.0, finish=True),
    ]
    assert pool.core.preempted("a", 1, pool.now_s) == [], "a second notice for the same process"
    assert pool.exit(ended=NORMAL) == [Spawn("a", 2)]
    assert (pool["a"].restarts, pool["a"].failures_in_row, pool.core.restarts) == (0, 0, ())
    assert len(pool["a"].preemptions) == 1


def test_a_preempted_child_whose_process_is_taken_before_it_ended_has_not_failed() -> None:
    pool = Pool(child(), max_restarts=0)
    pool.core.preempted("a", 1, pool.now_s)
    actions = pool.exit(ended=SIGKILL)
    assert actions == [Report("shutdown_error", "SIGKILL", "a"), Spawn("a", 2)]
    assert pool.core.finishing is None


def test_a_child_that_is_preempted_while_it_starts_is_killed_and_started_again() -> None:
    pool = Pool(child(), max_restarts=0)
    pool["a"].status = Status.STARTING
    actions = pool.core.preempted("a", 1, pool.now_s)
    assert [type(action) for action in actions] == [Report, Kill]
    assert pool.exit(ended=SIGKILL) == [Spawn("a", 2)]


def test_siblings_that_depend_on_a_preempted_child_are_restarted_with_it() -> None:
    core = SupervisorCore(
        SupervisorFlags(strategy=Strategy.REST_FOR_ONE, max_restarts=0), (child("a"), child("b")), lambda: 0.5
    )
    for id_ in "ab":
        core.tick(0.0)
        core.ready(id_, 1, 0.0)
    report, stop = core.preempted("a", 1, 1.0)
    assert isinstance(report, Report)
    assert report.taken_along == ("b",)
    assert stop == AskToStop("b", 1, 5.0), "the last that was started stops first"
    assert core.exited("b", 1, NORMAL, 2.0) == [AskToStop("a", 1, 5.0, finish=True)]
    assert core.exited("a", 1, NORMAL, 3.0) == [Spawn("a", 2)]
    assert core.ready("a", 2, 4.0) == [Spawn("b", 2)]


def test_a_temporary_child_that_is_preempted_is_not_started_again() -> None:
    budget = Budget(max_restarts=0, max_seconds=1.0)
    flags = SupervisorFlags(strategy=Strategy.ONE_FOR_ALL, max_restarts=0)
    core = SupervisorCore(
        flags, (child("a", restart=Restart.TEMPORARY, preemptions=budget), child("b")), lambda: 0.5
    )
    for id_ in "ab":
        core.tick(0.0)
        core.ready(id_, 1, 0.0)
    assert core.preempted("a", 1, 1.0) == [
        Report("preempted", "preempted: a SIGTERM announced the end of its process", "a"),
        AskToStop("a", 1, 5.0, finish=True),
    ]
    assert core.exited("a", 1, NORMAL, 2.0) == [Forget("a")]
    assert core.tick(9.0) == []
    assert (list(core.children), core.children["b"].incarnation, core.finishing) == (["b"], 1, None)


def test_a_transient_child_that_is_preempted_is_started_again_because_its_work_is_not_done() -> None:
    pool = Pool(child(restart=Restart.TRANSIENT), max_restarts=0)
    pool.core.preempted("a", 1, pool.now_s)
    assert pool.exit(ended=NORMAL) == [Spawn("a", 2)]


def test_a_significant_temporary_child_that_is_preempted_has_ended_by_itself() -> None:
    only = child(restart=Restart.TEMPORARY, significant=True)
    core = SupervisorCore(SupervisorFlags(auto_shutdown=AutoShutdown.ANY_SIGNIFICANT), (only,), lambda: 0.5)
    core.tick(0.0)
    core.ready("a", 1, 0.0)
    core.preempted("a", 1, 1.0)
    why = "significant child 'a' ended: preempted: a SIGTERM announced the end of its process"
    assert core.exited("a", 1, NORMAL, 2.0)[-1] == Finish(normal=True, reason=why)


def test_a_notice_for_an_earlier_process_or_an_unknown_child_changes_nothing() -> None:
    pool = Pool(child())
    assert pool.core.preempted("a", 2, pool.now_s) == []
    assert pool.core.preempted("unknown", 1, pool.now_s) == []


@pytest.mark.parametrize("breaker", [None, POLICY])
def test_preemptions_beyond_their_budget_quarantine_the_child_or_end_its_supervisor(
    breaker: Breaker | None,
) -> None:
    budget = Budget(max_restarts=2, max_seconds=100.0)
    pool = Pool(child(breaker=breaker, preemptions=budget), child("b"), max_restarts=0)
    preempt(pool)
    pool.pass_(101.0)
    assert preempt(pool) == preempt(pool) == ["preempted"], "the first has left the window"
    assert preempt(pool) == ["preempted", "shutdown" if breaker is None else "child_quarantined"]
    assert (pool.core.finishing is not None) is (breaker is None)
    if pool.core.finishing is not None:
        assert "over 2 preemptions in 100 s" in pool.core.finishing.reason
    else:
        assert pool["a"].status is Status.DOWN
        assert pool.core.next_wake_s() == pool.now_s + 30.0


@pytest.mark.parametrize(("lost_s", "deadline_s"), [(2.0, 3.0), (1000.0, 5.0)])
def test_a_child_that_stops_gets_the_time_that_its_supervisor_lost_and_no_more_than_it_had(
    lost_s: float, deadline_s: float
) -> None:
    pool = Pool(child(shutdown_s=5.0))
    pool.core.stop("SIGTERM", pool.now_s)
    pool.now_s += 4.0
    pool.core.resumed(lost_s, pool.now_s)
    assert pool.core.next_wake_s() == pool.now_s + deadline_s


@pytest.mark.parametrize(("lost_s", "deadline_s"), [(7.0, 17.0), (1000.0, 20.0)])
def test_a_child_that_starts_gets_the_time_that_its_supervisor_lost_and_no_more_than_it_had(
    lost_s: float, deadline_s: float
) -> None:
    pool = Pool(child(start_deadline_s=20.0), max_restarts=1)
    pool.exit()
    pool.now_s += 10.0
    pool.core.resumed(lost_s, pool.now_s)
    assert pool.core.next_wake_s() == pool.now_s + deadline_s


# ---- calls ----


def test_calls_about_nobody_are_refused() -> None:
    pool = Pool(child())
    for call in (management.terminate_child, management.restart_child, management.delete_child):
        assert call(pool.core, "nobody", pool.now_s) == ([], "not_found")
    assert management.release_child(pool.core, "nobody", pool.now_s) == ([], "not_found")
    assert management.update_child(pool.core, "nobody", None, pool.now_s) == ([], "not_found")


def test_a_supervisor_that_ends_starts_nobody_any_more() -> None:
    pool = Pool(child())
    pool.core.stop("told", pool.now_s)
    assert management.start_child(pool.core, child("b"), pool.now_s) == ([], "shutting_down")
    assert management.restart_child(pool.core, "a", pool.now_s) == ([], "shutting_down")


def test_a_call_that_waits_is_answered_when_the_supervisor_ends_first() -> None:
    pool = Pool(strategy=Strategy.ONE_FOR_ALL, max_restarts=9, ordered=True)
    management.start_child(pool.core, child("a"), pool.now_s)
    pool.ready("a")
    pool.core.children["a"].failures_in_row = 3
    pool.exit("a")
    _, outcome = management.start_child(pool.core, child("b"), pool.now_s)
    assert outcome is management.WAITS
    assert Answer("b", ok=False, reason="told") in pool.core.stop("told", pool.now_s)


def test_release_ends_a_quarantine_and_a_backoff_and_nothing_else() -> None:
    pool = Pool(child(breaker=Breaker(max_failures=0)))
    actions, refusal = management.release_child(pool.core, "a", pool.now_s)
    assert (actions, refusal) == (
        [],
        "the child is neither in quarantine nor waits for a restart; its state is running",
    )
    pool.exit()
    assert management.describe(pool["a"]) == "quarantined"
    actions, refusal = management.release_child(pool.core, "a", pool.now_s)
    assert (actions, refusal) == ([Spawn("a", 2)], "")
    assert pool["a"].circuit == Circuit()


def test_a_release_forgets_the_failures_of_a_child_and_its_next_wait_is_the_shortest() -> None:
    budgets = {Failure.SIGNAL: Budget(max_restarts=1, max_seconds=1000.0)}
    pool = Pool(child(backoff=Backoff(initial_s=1.0), budgets=budgets))
    pool.exit(ended=SIGKILL)
    management.release_child(pool.core, "a", pool.now_s)
    pool.ready()
    pool.exit(ended=SIGKILL)
    assert pool.core.finishing is None
    assert pool["a"].start_at_s == pool.now_s + 1.0


def test_a_child_that_a_call_restarts_waits_the_shortest_time_after_its_next_failure() -> None:
    pool = Pool(child(backoff=Backoff(initial_s=1.0)), max_restarts=9)
    pool.restart()
    pool.exit()
    assert pool["a"].start_at_s == pool.now_s + 2.0
    management.terminate_child(pool.core, "a", pool.now_s)
    management.restart_child(pool.core, "a", pool.now_s)
    pool.ready()
    pool.exit()
    assert pool["a"].start_at_s == pool.now_s + 1.0


def test_the_time_for_which_a_child_was_terminated_makes_its_failures_older() -> None:
    pool = Pool(child(), max_restarts=1, max_seconds=5.0)
    pool.exit()
    management.terminate_child(pool.core, "a", pool.now_s)
    pool.exit(ended=SIGKILL)
    pool.pass_(5.1)
    management.restart_child(pool.core, "a", pool.now_s)
    pool.ready()
    pool.exit()
    assert pool.core.finishing is None


def test_a_change_of_another_field_leaves_the_age_at_which_a_child_is_replaced() -> None:
    policy = Retirement(max_age_s=50.0, jitter=0.1)
    pool = Pool(child(retirement=policy))
    pool.core.draw = lambda: 0.0
    management.update_child(pool.core, "a", child(retirement=policy, shutdown_s=9.0), pool.now_s)
    assert pool["a"].retire_at_s == pool.now_s + 50.0


def test_terminating_one_that_waits_calls_its_restart_off() -> None:
    pool = Pool(child(breaker=Breaker(max_failures=0)))
    pool.exit()
    assert management.terminate_child(pool.core, "a", pool.now_s) == ([], "")
    assert management.describe(pool["a"]) == "undefined"
    assert pool.pass_(1e6) == []


def test_a_changed_policy_holds_from_now_on() -> None:
    pool = Pool(child(breaker=Breaker(max_failures=0)))
    pool.exit()
    actions, refusal = management.update_child(pool.core, "a", child(), pool.now_s)
    assert (actions, refusal) == ([Spawn("a", 2)], ""), "without a breaker there is no quarantine"
    pool.ready()
    policy = Retirement(max_age_s=7.0)
    pool.pass_(1.0)
    management.update_child(pool.core, "a", child(retirement=policy), pool.now_s)
    assert pool["a"].retire_at_s == pool.now_s + 6.0
    for other in (child("b"), ChildSpec(id="a", actor="another:Class")):
        with pytest.raises(InvalidChildSpec, match="id and actor of 'a' cannot be changed"):
            management.update_child(pool.core, "a", other, pool.now_s)


def test_children_are_counted_by_what_they_are_at() -> None:
    pool = Pool(
        child("a"), child("b", breaker=Breaker(max_failures=0)), child("c", restart=Restart.TRANSIENT)
    )
    pool.exit("b")
    pool.exit("c", NORMAL)
    counts = management.count_children(pool.core)
    assert (counts.specs, counts.active, counts.restarting, counts.quarantined) == (3, 1, 0, 1)


def test_a_child_that_was_never_started_waits() -> None:
    core = SupervisorCore(SupervisorFlags(), (child("a"), child("b")))
    core.tick(0.0)
    assert [management.describe(c) for c in core.children.values()] == ["starting", "waiting"]
    assert core.children["b"].target is Target.UP


def test_word_of_nobodys_child_changes_nothing_and_a_kill_is_sent_once() -> None:
    pool = Pool(child())
    assert pool.core.ready("nobody", 1, pool.now_s) == []
    assert pool.core.exited("nobody", 1, CRASH, pool.now_s) == []
    assert pool.core.hung("a", 1, "no beat") == [Kill("a", 1, "no beat")]
    assert pool.core.hung("a", 1, "no beat") == []


def test_probation_is_over_at_the_very_moment_the_supervisor_asked_to_be_woken_for_it() -> None:
    """1022.1 + 4.0 - 1022.1 is less than 4.0."""
    pool = Pool(child(breaker=Breaker(max_failures=0, healthy_s=4.0)))
    pool["a"].circuit, pool["a"].since_s = Circuit(CircuitState.HALF_OPEN), 1022.1
    pool.now_s = pool.core.next_wake_s()
    pool.core.tick(pool.now_s)
    assert pool["a"].circuit.state is CircuitState.CLOSED


# ---- budgets and waits ----


def fail_at_once(pool: Pool, *ids: str, failures: int) -> int:
    """Children that fail in the moment they are up, each after its backoff; how often until the end."""
    for number in range(failures):
        id_ = min(ids, key=lambda one: pool[one].start_at_s)
        pool.pass_(max(0.0, pool[id_].start_at_s - pool.now_s))
        pool.ready(id_)
        pool.exit(id_)
        if pool.core.finishing is not None or pool[id_].is_quarantined:
            return number + 1
    return failures


@pytest.mark.parametrize("max_restarts", [0, 3, 10, 40])
@pytest.mark.parametrize("backoff", [Backoff(), Backoff(max_s=0.0), Backoff(initial_s=9.0, max_s=9000.0)])
def test_a_child_that_fails_at_once_spends_the_budget_whatever_its_backoff(
    backoff: Backoff, max_restarts: int
) -> None:
    pool = Pool(child(backoff=backoff), max_restarts=max_restarts, max_seconds=5.0)
    assert fail_at_once(pool, "a", failures=100) == max_restarts + 1
    assert pool.core.finishing is not None


def test_two_children_that_fail_in_turns_spend_one_budget_while_the_other_one_waits() -> None:
    backoff = Backoff(initial_s=7.0, factor=1.0, max_s=7.0, jitter=0.0)
    pool = Pool(child("a", backoff=backoff), child("b", backoff=backoff), max_restarts=9, max_seconds=5.0)
    pool.exit("a")
    pool.pass_(3.0)
    pool.exit("b")
    assert fail_at_once(pool, "a", "b", failures=100) == 8, "the tenth failure of the two together"
    assert pool.core.finishing is not None


def test_time_that_a_child_runs_makes_its_failures_older_and_time_that_it_waits_does_not() -> None:
    backoff = Backoff(initial_s=100.0, factor=1.0, max_s=100.0, jitter=0.0)
    pool = Pool(child(backoff=backoff), max_restarts=3, max_seconds=5.0)
    for _ in range(20):
        pool.pass_(max(0.0, pool["a"].start_at_s - pool.now_s))
        pool.ready()
        pool.pass_(1.7)
        pool.exit()
    assert pool.core.finishing is None
    assert len(pool.core.restarts) == 3


def test_a_wait_that_is_cut_short_makes_no_failure_younger_than_it_is() -> None:
    pool = Pool(child(backoff=Backoff(initial_s=100.0, max_s=100.0)), max_restarts=1, max_seconds=5.0)
    pool.exit()
    management.release_child(pool.core, "a", pool.now_s)
    pool.ready()
    pool.pass_(5.1)
    pool.exit()
    assert pool.core.finishing is None


def test_a_breaker_counts_failures_whatever_the_backoff() -> None:
    policy = Breaker(max_failures=12, within_s=10.0, open_s=1000.0)
    pool = Pool(child(breaker=policy, backoff=Backoff()))
    assert fail_at_once(pool, "a", failures=100) == 13
    assert pool["a"].is_quarantined


def test_a_budget_of_a_kind_counts_failures_whatever_the_backoff() -> None:
    budgets = {Failure.CRASH: Budget(max_restarts=12, max_seconds=10.0)}
    pool = Pool(child(budgets=budgets, backoff=Backoff()))
    assert fail_at_once(pool, "a", failures=100) == 13
    assert pool.core.finishing is not None
