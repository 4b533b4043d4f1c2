"""The supervisor's decisions as tables: OTP's truth, in milliseconds and without processes."""

from typing import Any

import pytest

from supervision import management
from supervision.actions import Action, Answer, AskToStop, Ended, Finish, Kill, Report, Spawn
from supervision.child_spec import (
    AutoShutdown,
    Backoff,
    Breaker,
    Budget,
    ChildSpec,
    Failure,
    Restart,
    Strategy,
    SupervisorFlags,
)
from supervision.core import SupervisorCore
from supervision.errors import InvalidChildSpec

ALL = (Strategy.ONE_FOR_ONE, Strategy.ONE_FOR_ALL, Strategy.REST_FOR_ONE)


def child(id_: str, **changes: Any) -> ChildSpec:
    return ChildSpec(id=id_, actor="module:Class", **changes)


class Tree:
    """A core and the processes it believes in; a test says what becomes of them."""

    def __init__(self, *specs: ChildSpec | str, **flags: Any) -> None:
        children = tuple(child(spec) if isinstance(spec, str) else spec for spec in specs)
        self.core = SupervisorCore(SupervisorFlags(**flags), children, draw=lambda: 0.5)
        self.now_s = 100.0
        self.alive: dict[str, int] = {}
        self.done: list[str] = []
        self.reports: list[Report] = []
        self.finish: Finish | None = None

    def take(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Spawn(id_, incarnation):
                    assert id_ not in self.alive, f"a second {id_}"
                    self.alive[id_] = incarnation
                    self.done.append(f"start {id_}")
                case AskToStop(id_):
                    self.done.append(f"stop {id_}")
                case Kill(id_):
                    self.done.append(f"kill {id_}")
                case Report():
                    self.reports.append(action)
                case Finish():
                    assert self.finish is None, "finished twice"
                    assert self.alive == {}, f"finished while {list(self.alive)} still run"
                    self.finish = action

    def tick(self, seconds: float = 0.0) -> list[str]:
        """Time passes; what was done since the last look."""
        self.now_s += seconds
        self.take(self.core.tick(self.now_s))
        return self.look()

    def ready(self, id_: str) -> list[str]:
        self.take(self.core.ready(id_, self.alive[id_], self.now_s))
        return self.look()

    def exit(self, id_: str, *, normal: bool = False, reason: str = "exit code 70") -> list[str]:
        incarnation = self.alive.pop(id_)
        ended = Ended("normal" if normal else reason, normal=normal)
        self.take(self.core.exited(id_, incarnation, ended, self.now_s))
        return self.look()

    def stop(self) -> list[str]:
        self.take(self.core.stop("told to stop", self.now_s))
        return self.look()

    def up(self) -> "Tree":
        """Everything started and ready."""
        for _ in range(3 * len(self.core.children) + 1):
            self.tick()
            for id_ in list(self.alive):
                self.ready(id_)
        assert set(self.alive) == set(self.core.children)
        self.look()
        return self

    def look(self) -> list[str]:
        done, self.done = self.done, []
        return done

    def settle(self) -> None:
        """Whoever is told to end ends, whoever starts becomes ready, until all is quiet; backoffs pass."""
        for _ in range(10 * len(self.core.children) + 10):
            self.tick(0.1)
            for id_ in list(self.alive):
                status = self.core.children[id_].status
                if status == "stopping":
                    self.exit(id_, normal=True)
                elif status == "starting":
                    self.ready(id_)


# ---- start ----


def test_children_start_left_to_right_each_once_the_one_before_is_ready() -> None:
    tree = Tree("a", "b", "c")
    assert tree.tick() == ["start a"]
    assert tree.tick(1.0) == []
    assert tree.ready("a") == ["start b"]
    assert tree.ready("b") == ["start c"]
    assert tree.ready("c") == []


def test_a_pool_starts_all_at_once() -> None:
    assert Tree("a", "b", "c", ordered=False).tick() == ["start a", "start b", "start c"]


def test_a_first_start_that_fails_brings_the_others_down_in_reverse_and_ends_abnormally() -> None:
    tree = Tree("a", "b", "c")
    tree.tick()
    tree.ready("a")
    tree.ready("b")
    assert tree.exit("c", reason="no disk") == ["stop b"]
    assert tree.exit("b", normal=True) == ["stop a"]
    assert tree.exit("a", normal=True) == []
    assert tree.finish == Finish(normal=False, reason="child 'c' failed to start: no disk")
    assert [report.context for report in tree.reports] == ["start_error"]


def test_a_temporary_child_that_fails_to_start_is_no_child_while_the_others_go_down() -> None:
    tree = Tree("a", child("c", restart=Restart.TEMPORARY))
    tree.tick()
    tree.ready("a")
    assert tree.exit("c", reason="no disk") == ["stop a"]
    assert list(tree.core.children) == ["a"]


def test_in_a_pool_a_first_start_that_fails_is_a_failure_like_any_other() -> None:
    tree = Tree("a", "b", ordered=False)
    tree.tick()
    assert tree.exit("a") == ["start a"]
    assert tree.finish is None


def test_a_child_that_is_not_ready_in_time_is_killed() -> None:
    tree = Tree(child("a", start_deadline_s=30.0))
    tree.tick()
    assert tree.tick(29.9) == []
    assert tree.tick(0.1) == ["kill a"]
    tree.exit("a", reason="SIGKILL")
    assert tree.finish is not None
    assert not tree.finish.normal


def test_a_second_start_that_takes_too_long_is_killed_and_tried_again() -> None:
    tree = Tree(child("a", start_deadline_s=30.0)).up()
    assert tree.exit("a") == ["start a"]
    assert tree.tick(30.0) == ["kill a"]
    tree.exit("a")
    assert tree.tick(1.0) == ["start a"]


def test_readiness_of_an_old_incarnation_means_nothing() -> None:
    tree = Tree("a", "b").up()
    old = tree.alive["a"]
    tree.exit("a")
    tree.take(tree.core.ready("a", old, tree.now_s))
    assert tree.core.children["a"].status == "starting"


def test_no_children_at_all_is_a_supervisor_with_nothing_to_do() -> None:
    tree = Tree()
    assert tree.tick() == []
    tree.stop()
    assert tree.finish == Finish(normal=True, reason="told to stop")


def test_two_children_of_one_id_are_refused() -> None:
    with pytest.raises(InvalidChildSpec, match="'a' is used twice"):
        Tree("a", "a")


# ---- restart types ----


@pytest.mark.parametrize(
    ("restart", "normal", "comes_back"),
    [
        (Restart.PERMANENT, True, True),
        (Restart.PERMANENT, False, True),
        (Restart.TRANSIENT, True, False),
        (Restart.TRANSIENT, False, True),
        (Restart.TEMPORARY, True, False),
        (Restart.TEMPORARY, False, False),
    ],
)
@pytest.mark.parametrize("strategy", ALL)
def test_who_comes_back_after_which_end(
    restart: Restart, normal: bool, comes_back: bool, strategy: Strategy
) -> None:
    tree = Tree(child("a", restart=restart), strategy=strategy).up()
    tree.exit("a", normal=normal)
    tree.tick(10.0)
    assert ("a" in tree.alive) is comes_back
    assert tree.finish is None


def test_an_abnormal_end_is_reported_a_normal_one_of_a_transient_child_is_not() -> None:
    tree = Tree(child("a", restart=Restart.TRANSIENT), child("b", restart=Restart.TRANSIENT)).up()
    tree.exit("a", normal=True)
    tree.exit("b", reason="SIGSEGV")
    assert tree.reports == [Report("child_terminated", "SIGSEGV", "b")]


@pytest.mark.parametrize(
    ("strategy", "along"),
    [
        (Strategy.ONE_FOR_ONE, ()),
        (Strategy.REST_FOR_ONE, ("c",)),
        (Strategy.ONE_FOR_ALL, ("a", "c")),
    ],
)
def test_a_report_says_who_ended_with_the_child(strategy: Strategy, along: tuple[str, ...]) -> None:
    tree = Tree("a", "b", "c", strategy=strategy).up()
    tree.exit("b", reason="SIGSEGV")
    assert tree.reports == [Report("child_terminated", "SIGSEGV", "b", along)]


def test_every_incarnation_has_a_number_of_its_own() -> None:
    tree = Tree("a", max_restarts=10).up()
    seen = {tree.alive["a"]}
    for _ in range(5):
        tree.exit("a")
        tree.tick(100.0)
        tree.ready("a")
        seen.add(tree.alive["a"])
    assert len(seen) == 6


def test_a_late_notice_of_an_old_incarnations_exit_changes_nothing() -> None:
    tree = Tree("a").up()
    old = tree.alive["a"]
    tree.exit("a")
    tree.ready("a")
    tree.take(tree.core.exited("a", old, Ended("exit code 70"), tree.now_s))
    assert tree.look() == []
    assert tree.core.children["a"].status == "running"
    assert tree.core.children["a"].restarts == 1


def test_an_exit_that_is_noticed_twice_counts_once() -> None:
    tree = Tree(child("a", backoff=Backoff(initial_s=5.0))).up()
    old = tree.alive["a"]
    tree.exit("a")
    tree.take(tree.core.exited("a", old, Ended("exit code 70"), tree.now_s))
    assert tree.core.children["a"].restarts == 1


# ---- strategies ----


def test_one_for_one_leaves_the_others_alone() -> None:
    tree = Tree("a", "b", "c").up()
    assert tree.exit("b") == ["start b"]


def test_one_for_one_does_not_wait_for_a_sibling_that_backs_off() -> None:
    tree = Tree(child("a", backoff=Backoff(initial_s=30.0)), "b").up()
    assert tree.exit("a") == []
    assert tree.exit("b") == ["start b"]


def test_one_for_all_stops_the_others_in_reverse_and_starts_all_in_order() -> None:
    tree = Tree("a", "b", "c", strategy=Strategy.ONE_FOR_ALL).up()
    assert tree.exit("b") == ["stop c"]
    assert tree.exit("c", normal=True) == ["stop a"]
    assert tree.exit("a", normal=True) == ["start a"]
    assert tree.ready("a") == ["start b"]
    assert tree.ready("b") == ["start c"]


def test_one_for_all_of_equals_starts_nobody_before_all_are_down() -> None:
    tree = Tree("a", "b", "c", strategy=Strategy.ONE_FOR_ALL, ordered=False).up()
    assert tree.exit("b") == ["stop c", "stop a"]
    assert tree.tick(0.1) == []
    assert tree.exit("a", normal=True) == []
    assert tree.exit("c", normal=True) == ["start a", "start b", "start c"]


def test_rest_for_one_takes_along_those_after_it_and_none_before() -> None:
    tree = Tree("a", "b", "c", "d", strategy=Strategy.REST_FOR_ONE).up()
    assert tree.exit("b") == ["stop d"]
    assert tree.exit("d", normal=True) == ["stop c"]
    assert tree.exit("c", normal=True) == ["start b"]
    assert tree.ready("b") == ["start c"]
    assert tree.ready("c") == ["start d"]
    assert tree.alive["a"] == 1


@pytest.mark.parametrize("strategy", [Strategy.REST_FOR_ONE, Strategy.ONE_FOR_ALL])
def test_an_independent_child_goes_on_when_its_siblings_are_restarted(strategy: Strategy) -> None:
    tree = Tree("a", child("b", independent=True), "c", strategy=strategy).up()
    assert tree.exit("a") == ["stop c"]
    assert tree.exit("c", normal=True) == ["start a"]
    assert tree.ready("a") == ["start c"]
    assert tree.alive["b"] == 1


def test_an_independent_child_that_ends_meanwhile_starts_in_its_turn() -> None:
    independent = child("b", independent=True)
    tree = Tree(child("a", backoff=Backoff(initial_s=1.0)), independent, strategy=Strategy.REST_FOR_ONE).up()
    assert tree.exit("a") == []
    assert tree.exit("b") == []
    assert tree.tick(60.0) == ["start a"]
    assert tree.ready("a") == ["start b"]


def store_curator_and(last: ChildSpec, strategy: Strategy = Strategy.REST_FOR_ONE) -> Tree:
    return Tree("store", "curator", last, strategy=strategy, max_restarts=10).up()


def test_an_independent_child_that_is_preempted_does_not_hold_up_the_sibling_it_needs() -> None:
    tree = store_curator_and(child("trainer", independent=True, shutdown_s=20.0))
    tree.take(tree.core.preempted("trainer", 1, tree.now_s))
    assert tree.look() == ["stop trainer"]
    assert tree.exit("store") == ["stop curator"]
    assert tree.exit("curator", normal=True) == ["start store"]
    assert tree.ready("store") == ["start curator"]
    assert tree.ready("curator") == []
    assert tree.exit("trainer", normal=True) == ["start trainer"]


def test_an_independent_child_that_is_terminated_does_not_hold_up_its_siblings() -> None:
    tree = store_curator_and(child("pool", independent=True, shutdown_s=60.0))
    tree.take(management.terminate_child(tree.core, "pool", tree.now_s)[0])
    assert tree.look() == ["stop pool"]
    assert tree.exit("store") == ["stop curator"]
    assert tree.exit("curator", normal=True) == ["start store"]


def test_those_after_an_independent_child_that_is_preempted_start_after_it() -> None:
    tree = Tree("a", child("b", independent=True), "c", strategy=Strategy.REST_FOR_ONE, max_restarts=10).up()
    tree.take(tree.core.preempted("b", 1, tree.now_s))
    assert tree.look() == ["stop c"]
    assert tree.exit("c", normal=True) == ["stop b"]
    assert tree.exit("a") == ["start a"]
    assert tree.ready("a") == []
    assert tree.exit("b", normal=True) == ["start b"]
    assert tree.ready("b") == ["start c"]


def test_with_one_for_all_an_independent_child_that_is_preempted_is_waited_for() -> None:
    tree = store_curator_and(child("trainer", independent=True), Strategy.ONE_FOR_ALL)
    tree.take(tree.core.preempted("trainer", 1, tree.now_s))
    assert tree.look() == ["stop trainer"]
    assert tree.exit("trainer", normal=True) == ["stop curator"]
    assert tree.exit("curator", normal=True) == ["stop store"]
    assert tree.exit("store", normal=True) == ["start store"]


def test_at_the_end_an_independent_child_is_stopped_in_its_turn() -> None:
    tree = store_curator_and(child("trainer", independent=True))
    assert tree.stop() == ["stop trainer"]
    assert tree.exit("trainer", normal=True) == ["stop curator"]


def test_the_failure_of_an_independent_child_takes_along_those_that_depend_on_it() -> None:
    tree = Tree("a", child("b", independent=True), "c", strategy=Strategy.REST_FOR_ONE).up()
    assert tree.exit("b") == ["stop c"]
    assert tree.exit("c", normal=True) == ["start b"]


def test_those_taken_along_wait_for_the_failed_one_through_its_backoff() -> None:
    tree = Tree(child("a", backoff=Backoff(initial_s=7.0)), "b", strategy=Strategy.REST_FOR_ONE).up()
    assert tree.exit("a") == ["stop b"]
    assert tree.exit("b", normal=True) == []
    assert tree.tick(6.9) == []
    assert tree.tick(0.1) == ["start a"]


def test_a_sibling_still_starting_is_killed_when_it_is_taken_along() -> None:
    tree = Tree("a", "b", strategy=Strategy.REST_FOR_ONE)
    tree.tick()
    tree.ready("a")
    assert tree.exit("a") == ["kill b"]
    assert tree.exit("b", reason="SIGKILL") == ["start a"]
    assert tree.finish is None, "it was killed, it did not fail to start"


def test_a_temporary_sibling_that_is_taken_along_does_not_come_back() -> None:
    tree = Tree("a", child("t", restart=Restart.TEMPORARY), "c", strategy=Strategy.ONE_FOR_ALL).up()
    tree.exit("a")
    tree.settle()
    assert set(tree.alive) == {"a", "c"}


def test_a_transient_sibling_that_is_taken_along_comes_back_though_it_ends_normally() -> None:
    tree = Tree("a", child("t", restart=Restart.TRANSIENT), strategy=Strategy.REST_FOR_ONE).up()
    assert tree.exit("a") == ["stop t"]
    tree.exit("t", normal=True)
    tree.ready("a")
    assert set(tree.alive) == {"a", "t"}


def test_a_transient_sibling_that_had_ended_for_good_stays_down() -> None:
    tree = Tree("a", child("t", restart=Restart.TRANSIENT), "c", strategy=Strategy.REST_FOR_ONE).up()
    tree.exit("t", normal=True)
    tree.settle()
    tree.exit("a")
    tree.settle()
    assert set(tree.alive) == {"a", "c"}


def test_a_sibling_that_dies_by_itself_while_it_is_taken_along_comes_back() -> None:
    """It was no failure of its own, and the run must not hang for ever because it never was restarted."""
    for normal in (True, False):
        tree = Tree("a", "b", "c", strategy=Strategy.REST_FOR_ONE, max_restarts=1).up()
        assert tree.exit("a") == ["stop c"]
        tree.exit("b", normal=normal)
        tree.exit("c", normal=normal)
        tree.settle()
        assert set(tree.alive) == {"a", "b", "c"}
        assert len(tree.core.restarts) == 1, "one failure, one restart"


def test_another_failure_while_the_first_is_being_repaired_is_repaired_as_well() -> None:
    tree = Tree("a", "b", "c", "d", strategy=Strategy.REST_FOR_ONE).up()
    assert tree.exit("c") == ["stop d"]
    assert tree.exit("a") == []
    assert tree.exit("d", normal=True) == ["stop b"]
    assert tree.exit("b", normal=True) == ["start a"]
    tree.settle()
    assert set(tree.alive) == {"a", "b", "c", "d"}


def test_a_restart_that_fails_is_tried_again_from_there() -> None:
    tree = Tree("a", "b", strategy=Strategy.ONE_FOR_ALL).up()
    tree.exit("a")
    tree.exit("b", normal=True)
    tree.exit("a")
    tree.tick(1.0)
    assert tree.ready("a") == ["start b"]


# ---- backoff ----


def test_failures_in_a_row_wait_longer_and_longer() -> None:
    tree = Tree(child("a", backoff=Backoff(initial_s=1.0)), max_restarts=9, max_seconds=1.0).up()
    for wait_s in (1.0, 2.0, 4.0):
        assert tree.exit("a") == []
        assert tree.core.next_wake_s() == tree.now_s + wait_s
        assert tree.tick(wait_s - 0.01) == []
        assert tree.tick(0.01) == ["start a"]
        tree.ready("a")


def test_a_child_that_ran_long_enough_starts_from_the_shortest_wait() -> None:
    policy = Backoff(initial_s=1.0, reset_after_s=60.0)
    tree = Tree(child("a", backoff=policy), max_restarts=9, max_seconds=1.0).up()
    for ran_s, wait_s in ((59.0, 1.0), (59.0, 2.0), (60.0, 1.0)):
        tree.tick(ran_s)
        tree.exit("a")
        assert tree.core.next_wake_s() == tree.now_s + wait_s
        tree.tick(wait_s)
        tree.ready("a")


def test_the_time_a_start_takes_is_no_time_it_ran() -> None:
    policy = Backoff(initial_s=1.0, reset_after_s=60.0)
    tree = Tree(child("a", backoff=policy, start_deadline_s=999.0), max_restarts=9).up()
    tree.exit("a")
    tree.tick(1.0)
    tree.tick(100.0)
    tree.exit("a")
    assert tree.core.next_wake_s() == tree.now_s + 2.0


# ---- budget and escalation ----


@pytest.mark.parametrize("strategy", ALL)
def test_one_failure_too_many_ends_the_supervisor_abnormally_after_its_children(strategy: Strategy) -> None:
    tree = Tree("a", "b", strategy=strategy, max_restarts=2, max_seconds=50.0).up()
    for _ in range(2):
        tree.exit("a", reason="SIGKILL")
        tree.settle()
    assert tree.exit("a", reason="SIGKILL") == ["stop b"]
    tree.exit("b", normal=True)
    assert tree.finish is not None
    assert not tree.finish.normal
    assert tree.finish.reason == "child 'a' failed once more (SIGKILL): over 2 restarts in 50 s"
    assert tree.reports[-1].context == "shutdown"


def test_failures_of_different_children_spend_one_budget() -> None:
    tree = Tree("a", "b", "c", max_restarts=2, max_seconds=50.0).up()
    for id_ in "ab":
        tree.exit(id_)
        tree.settle()
    tree.exit("c")
    tree.settle()
    assert tree.finish is not None


def test_a_failure_that_takes_all_along_is_one_failure() -> None:
    tree = Tree("a", "b", "c", "d", strategy=Strategy.ONE_FOR_ALL, max_restarts=1).up()
    tree.exit("b")
    tree.settle()
    assert tree.finish is None
    assert set(tree.alive) == {"a", "b", "c", "d"}


def test_an_old_failure_is_forgotten() -> None:
    tree = Tree("a", max_restarts=1, max_seconds=5.0).up()
    for _ in range(5):
        tree.exit("a")
        tree.tick(6.0)
        tree.ready("a")
    assert tree.finish is None


def test_no_restarts_allowed_means_the_first_failure_ends_the_supervisor() -> None:
    tree = Tree("a", max_restarts=0).up()
    tree.exit("a")
    assert tree.finish is not None
    assert not tree.finish.normal


def test_the_first_reason_to_finish_is_the_one_that_counts() -> None:
    tree = Tree("a", "b", max_restarts=0).up()
    tree.exit("a", reason="no disk")
    tree.stop()
    tree.exit("b")
    assert tree.finish is not None
    assert "no disk" in tree.finish.reason


# ---- significant ----


@pytest.mark.parametrize(
    ("restart", "normal", "ends"),
    [
        (Restart.TRANSIENT, True, True),
        (Restart.TRANSIENT, False, False),
        (Restart.TEMPORARY, True, True),
        (Restart.TEMPORARY, False, True),
    ],
)
def test_a_significant_child_that_ends_for_good_ends_the_supervisor(
    restart: Restart, normal: bool, ends: bool
) -> None:
    job = child("job", restart=restart, significant=True)
    tree = Tree("a", job, auto_shutdown=AutoShutdown.ANY_SIGNIFICANT).up()
    tree.exit("job", normal=normal)
    tree.settle()
    assert (tree.finish is not None) is ends
    if tree.finish:
        assert tree.finish.normal
        assert "significant child 'job' ended" in tree.finish.reason


def test_a_significant_child_that_is_only_taken_along_does_not_end_it() -> None:
    job = child("job", restart=Restart.TRANSIENT, significant=True)
    tree = Tree("a", job, strategy=ALL[2], auto_shutdown=AutoShutdown.ANY_SIGNIFICANT).up()
    tree.exit("a")
    tree.settle()
    assert tree.finish is None
    assert set(tree.alive) == {"a", "job"}


def test_a_child_that_is_not_significant_may_end_for_good_without_consequence() -> None:
    tree = Tree("a", child("job", restart=Restart.TEMPORARY)).up()
    tree.exit("job", normal=True)
    tree.settle()
    assert tree.finish is None


# ---- stop ----


def test_stop_brings_all_down_in_reverse_one_by_one_then_finishes() -> None:
    tree = Tree("a", "b", "c").up()
    assert tree.stop() == ["stop c"]
    assert tree.stop() == [], "told twice changes nothing"
    assert tree.exit("c", normal=True) == ["stop b"]
    assert tree.exit("b", normal=True) == ["stop a"]
    assert tree.finish is None
    tree.exit("a", normal=True)
    assert tree.finish == Finish(normal=True, reason="told to stop")


def test_a_pool_is_told_to_stop_all_at_once() -> None:
    assert Tree("a", "b", "c", ordered=False).up().stop() == ["stop c", "stop b", "stop a"]


def test_who_does_not_stop_in_time_is_killed_and_the_stop_goes_on() -> None:
    tree = Tree("a", child("b", shutdown_s=5.0)).up()
    tree.stop()
    assert tree.tick(4.9) == []
    assert tree.tick(0.1) == ["kill b"]
    assert tree.exit("b") == ["stop a"]


def test_shutdown_0_kills_at_once() -> None:
    assert Tree(child("a", shutdown_s=0.0)).up().stop() == ["kill a"]


def test_a_child_still_starting_is_killed_at_stop() -> None:
    tree = Tree("a", "b")
    tree.tick()
    tree.ready("a")
    assert tree.stop() == ["kill b"]
    assert tree.exit("b") == ["stop a"]


def test_a_child_that_waits_for_its_restart_needs_no_stopping() -> None:
    tree = Tree(child("a", backoff=Backoff(initial_s=20.0)), "b").up()
    tree.exit("a")
    assert tree.stop() == ["stop b"]
    tree.exit("b", normal=True)
    assert tree.finish is not None
    assert tree.tick(100.0) == [], "nothing is started after the end"


def test_a_child_that_fails_while_it_stops_is_not_restarted() -> None:
    tree = Tree("a", "b").up()
    tree.stop()
    tree.exit("b", reason="SIGSEGV")
    tree.exit("a", reason="SIGSEGV")
    assert tree.finish == Finish(normal=True, reason="told to stop")


def test_whoever_dies_out_of_turn_during_the_stop_is_not_waited_for() -> None:
    tree = Tree("a", "b", "c").up()
    tree.stop()
    tree.exit("a")
    assert tree.exit("c", normal=True) == ["stop b"]
    tree.exit("b", normal=True)
    assert tree.finish is not None


def test_after_the_end_nothing_is_done_any_more() -> None:
    tree = Tree("a").up()
    tree.stop()
    tree.exit("a", normal=True)
    tree.take(tree.core.exited("a", 1, Ended("late"), tree.now_s))
    tree.stop()
    assert tree.tick(1000.0) == []


# ---- hangs ----


def test_a_hung_child_is_killed_and_comes_back_with_its_reason() -> None:
    tree = Tree("a").up()
    tree.take(tree.core.hung("a", tree.alive["a"], "no beat for 11.0 s"))
    assert tree.look() == ["kill a"]
    assert tree.exit("a", reason="killed: no beat for 11.0 s") == ["start a"]
    assert tree.core.children["a"].last_reason == "killed: no beat for 11.0 s"


def test_what_is_said_of_an_old_incarnation_or_of_one_that_stops_kills_nobody() -> None:
    tree = Tree("a").up()
    tree.take(tree.core.hung("a", tree.alive["a"] + 1, "no beat"))
    assert tree.stop() == ["stop a"]
    tree.take(tree.core.hung("a", tree.alive["a"], "no beat"))
    assert tree.look() == []


# ---- time ----


def test_the_next_moment_is_the_next_thing_that_time_alone_brings_about() -> None:
    tree = Tree(child("a", start_deadline_s=30.0, shutdown_s=5.0))
    tree.tick()
    assert tree.core.next_wake_s() == tree.now_s + 30.0
    tree.ready("a")
    assert tree.core.next_wake_s() == float("inf")
    tree.stop()
    assert tree.core.next_wake_s() == tree.now_s + 5.0


def test_whoever_waits_for_another_does_not_ask_to_be_woken() -> None:
    tree = Tree(child("a", backoff=Backoff(initial_s=7.0)), "b", strategy=Strategy.REST_FOR_ONE).up()
    tree.exit("a")
    tree.exit("b", normal=True)
    assert tree.core.next_wake_s() == tree.now_s + 7.0


# ---- beyond OTP ----


def test_a_start_that_is_asked_for_is_answered_though_a_sibling_takes_it_down_before_it_began() -> None:
    tree = Tree(child("a"), strategy=Strategy.ONE_FOR_ALL, max_restarts=10).up()
    tree.exit("a")
    spec = child("t", restart=Restart.TEMPORARY)
    actions, waits = management.start_child(tree.core, spec, tree.now_s)
    assert waits is management.WAITS
    tree.take(actions)
    actions = tree.core.exited("a", tree.alive.pop("a"), Ended("exit code 70"), tree.now_s)
    assert Answer("t", ok=False, reason="it was taken down") in actions


def test_on_probation_a_failure_with_a_budget_of_its_own_opens_the_breaker_as_well() -> None:
    policy = Breaker(max_failures=0, within_s=60.0, open_s=5.0, healthy_s=60.0)
    budgets = {Failure.CRASH: Budget(max_restarts=9, max_seconds=60.0)}
    tree = Tree(child("a", breaker=policy, budgets=budgets)).up()
    tree.take(tree.core.exited("a", tree.alive.pop("a"), Ended("SIGKILL", by_signal=True), tree.now_s))
    assert tree.core.children["a"].is_quarantined
    tree.tick(5.0)
    tree.ready("a")
    tree.exit("a")
    assert tree.core.children["a"].is_quarantined
