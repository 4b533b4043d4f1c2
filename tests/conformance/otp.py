"""OTP's `supervisor_SUITE` as scenarios for both worlds; its semantics are the documentation's.

Each class is a group of the suite. `case` names what a scenario answers; what is not here is answered in
process only, or listed with its reason in `docs/conformance.md`.
"""

import math
from itertools import product
from typing import Any

import pytest

from supervision.child_spec import AutoShutdown, Backoff, Restart, Strategy
from supervision.messages import (
    DeleteChild,
    Managed,
    RestartChild,
    TerminateChild,
    UpdateChild,
    UpdateFlags,
    start_child,
)
from supervision.supervisor import dynamic_supervisor_spec
from tests.conformance.world import FOR_EVER_S, SOON, Ping, World, below, case, child

STRATEGIES = tuple(Strategy)
ENDS_NORMALLY = ("normal", "shutdown")
ENDS_ABNORMALLY = ("crash", "exit", "kill")
ENDS = ENDS_NORMALLY + ENDS_ABNORMALLY


def ok(answer: Managed) -> Managed:
    assert answer.ok, answer.reason
    return answer


class TestStart:
    @case("sup_start_normal")
    def test_a_supervisor_starts_its_children_and_stops_when_it_is_told(self, world: World) -> None:
        world.grow(child("a"))
        assert world.call(Ping(), "a") == Ping()
        assert world.stop() == ""
        assert not world.is_alive("a")

    @case("sup_start_ignore_child")
    def test_a_permanent_child_that_ignores_its_start_is_kept_and_not_running(self, world: World) -> None:
        world.grow(child("idle", starts=["ignore"]), child("a"))
        counts = world.counts()
        assert (counts.specs, counts.active, counts.supervisors, counts.workers) == (2, 1, 0, 2)
        assert world.state("idle") == "undefined"

    @case("sup_start_ignore_temporary_child")
    def test_a_temporary_child_that_ignores_its_start_is_forgotten(self, world: World) -> None:
        world.grow(child("idle", starts=["ignore"], restart=Restart.TEMPORARY), child("a"))
        assert list(world.which()) == ["a"]

    @case("sup_start_ignore_temporary_child_start_child")
    def test_a_temporary_child_that_is_asked_for_and_ignores_it_is_forgotten(self, world: World) -> None:
        world.grow(child("a"))
        ok(world.call(start_child(child("idle", starts=["ignore"], restart=Restart.TEMPORARY))))
        assert list(world.which()) == ["a"]

    @case(
        "sup_start_ignore_temporary_child_start_child_simple",
        "sup_start_ignore_permanent_child_start_child_simple",
    )
    @pytest.mark.parametrize("restart", Restart)
    def test_a_dynamic_child_that_ignores_its_start_is_forgotten(
        self, world: World, restart: Restart
    ) -> None:
        world.grow(dynamic_supervisor_spec("pool"))
        ok(world.call(start_child(child("idle", starts=["ignore"], restart=restart)), "pool"))
        assert world.which("pool") == {}
        assert world.stop() == ""

    @case("sup_start_fail")
    def test_a_supervisor_that_cannot_start_is_a_child_that_failed_to_start(self, world: World) -> None:
        world.grow(child("a"), below("broken", child("twin"), child("twin")))
        assert "child 'broken' failed to start" in world.until_ended()
        assert "child id 'twin' is used twice" in world.ending()
        assert not world.is_alive("a")

    def test_when_a_start_fails_those_before_it_stop_in_reverse_and_those_after_never_start(
        self, world: World
    ) -> None:
        world.grow(child("a"), child("b"), child("bad", starts=["crash"]), child("c"))
        assert "child 'bad' failed to start" in world.until_ended()
        assert world.story("starts", "stops") == ["a starts", "b starts", "bad starts", "b stops", "a stops"]

    @case("sup_start_child_returns_error", "sup_start_child_returns_error_simple")
    @pytest.mark.parametrize("how", ["crash", "exit"])
    @pytest.mark.parametrize("is_dynamic", [False, True])
    def test_a_child_that_is_asked_for_and_fails_is_an_error_and_not_kept(
        self, world: World, how: str, is_dynamic: bool
    ) -> None:
        pool = dynamic_supervisor_spec("pool") if is_dynamic else below("pool")
        world.grow(pool)
        refused = world.call(start_child(child("bad", starts=[how])), "pool")
        assert not refused.ok
        assert ("ZeroDivisionError" if how == "crash" else "exit code 3") in refused.reason
        assert world.which("pool") == {}
        assert world.counts("pool").specs == 0
        assert world.lives("pool") == (1,), "the caller is told, nobody else suffers"

    @case("sup_start_restart_child_returns_error")
    def test_a_restart_that_is_asked_for_and_fails_leaves_the_child_down(self, world: World) -> None:
        world.grow(child("a", starts=["well", "crash"]))
        ok(world.call(TerminateChild(id="a")))
        refused = world.call(RestartChild(id="a"))
        assert not refused.ok
        assert "ZeroDivisionError" in refused.reason
        assert world.state("a") == "undefined"


class TestStop:
    @case("sup_stop_infinity")
    def test_whoever_may_take_as_long_as_it_wants_is_waited_for(self, world: World) -> None:
        world.grow(
            child("a", stop=0.3, shutdown_s=math.inf),
            below("pool", child("b", stop=0.3, shutdown_s=math.inf), spec={"shutdown_s": math.inf}),
        )
        assert world.stop() == ""
        assert world.story("stopped") == ["b stopped", "a stopped"]
        assert world.reported("shutdown_error") == []

    @case("sup_stop_timeout")
    def test_whoever_does_not_stop_in_time_is_killed_and_the_others_are_not(self, world: World) -> None:
        world.grow(child("a"), child("slow", stop="never", shutdown_s=0.2), child("c"))
        assert world.stop() == ""
        assert world.story("stops", "stopped") == [
            "c stops",
            "c stopped",
            "slow stops",
            "a stops",
            "a stopped",
        ]
        assert world.reported("shutdown_error") == [("slow", "killed: did not stop within 0.2 s")]

    @case("sup_stop_timeout_dynamic")
    def test_in_a_pool_too_only_those_who_do_not_stop_in_time_are_killed(self, world: World) -> None:
        world.grow(dynamic_supervisor_spec("pool"))
        for id_, stop, shutdown_s in (("a", "well", 20.0), ("slow", "never", 0.3), ("c", "well", 20.0)):
            ok(world.call(start_child(child(id_, stop=stop, shutdown_s=shutdown_s)), "pool"))
        assert world.stop() == ""
        assert sorted(world.story("stopped")) == ["a stopped", "c stopped"]
        assert [who for who, _ in world.reported("shutdown_error", "pool")] == ["slow"]

    @case("sup_stop_brutal_kill")
    def test_a_child_with_no_time_to_stop_is_killed_without_a_word(self, world: World) -> None:
        world.grow(child("a"), child("b", shutdown_s=0.0))
        assert world.stop() == ""
        assert world.story("stops") == ["a stops"]
        assert not world.is_alive("b")
        assert world.reported("shutdown_error") == []

    @case("sup_stop_brutal_kill_dynamic")
    def test_ten_children_with_no_time_to_stop_are_all_killed_without_a_word(self, world: World) -> None:
        names = [f"a{number}" for number in range(10)]
        world.grow(below("pool", *(child(name, shutdown_s=0.0) for name in names), ordered=False))
        assert world.stop() == ""
        assert world.story("stops") == []
        assert not any(world.is_alive(name) for name in names)

    @case("sup_stop_race")
    def test_children_that_end_by_themselves_while_they_are_stopped_do_not_hold_it_up(
        self, world: World
    ) -> None:
        names = {
            f"{restart}-{how}": how
            for restart, how in product(Restart, ("normal", "shutdown", "crash", "kill"))
        }
        world.grow(*(child(name, restart=Restart(name.partition("-")[0])) for name in names))
        for name, how in names.items():
            world.end(name, how)
        assert world.stop() == ""
        assert not any(world.is_alive(name) for name in names)

    @case("sup_stop_non_shutdown_exit_dynamic")
    def test_children_that_fail_while_they_stop_are_reported_and_the_stop_goes_on(self, world: World) -> None:
        world.grow(dynamic_supervisor_spec("pool"))
        for id_, stop in (("a", "crash"), ("b", "exit"), ("c", "well")):
            ok(world.call(start_child(child(id_, stop=stop)), "pool"))
        assert world.stop() == ""
        failed = dict(world.reported("shutdown_error", "pool"))
        assert set(failed) == {"a", "b"}
        assert "ZeroDivisionError" in failed["a"]
        assert failed["b"] == "exit code 3"


class TestManagement:
    @case("child_adm")
    def test_children_are_started_terminated_restarted_and_deleted_by_id(self, world: World) -> None:
        world.grow(child("first"))
        assert ok(world.call(start_child(child("a")))).incarnation == 1
        assert world.call(start_child(child("a"))).reason == "already_started"
        for busy in (RestartChild(id="a"), DeleteChild(id="a")):
            assert world.call(busy) == Managed(ok=False, reason="running", incarnation=1)
        ok(world.call(TerminateChild(id="a")))
        ok(world.call(TerminateChild(id="a")))
        assert world.state("a") == "undefined"
        assert not world.is_alive("a")
        counts = world.counts()
        assert (counts.specs, counts.active) == (2, 1)
        assert world.call(start_child(child("a"))).reason == (
            "already_present: 'a' is down and its spec is kept; RestartChild starts it again, "
            "DeleteChild forgets it so that another spec can be started"
        )
        assert ok(world.call(RestartChild(id="a"))).incarnation == 2
        assert world.call(Ping(), "a") == Ping()
        ok(world.call(TerminateChild(id="a")))
        ok(world.call(DeleteChild(id="a")))
        for unknown in (TerminateChild(id="a"), RestartChild(id="a"), DeleteChild(id="a")):
            assert world.call(unknown) == Managed(ok=False, reason="not_found")
        assert list(world.which()) == ["first"]

    @case("child_adm_simple")
    def test_dynamic_children_are_terminated_by_id_and_neither_restarted_nor_deleted(
        self, world: World
    ) -> None:
        world.grow(dynamic_supervisor_spec("pool"))
        ok(world.call(start_child(child("a")), "pool"))
        for call in (RestartChild(id="a"), DeleteChild(id="a")):
            assert world.call(call, "pool").reason == "not_found"
        ok(world.call(TerminateChild(id="a"), "pool"))
        assert world.which("pool") == {}
        assert world.call(TerminateChild(id="a"), "pool").reason == "not_found"
        assert ok(world.call(start_child(child("a")), "pool")).incarnation == 2

    @case("which_children")
    def test_the_newest_child_is_named_first_with_its_type_and_its_process(self, world: World) -> None:
        world.grow(child("a"), below("b"), child("idle", starts=["ignore"]))
        ok(world.call(start_child(child("c"))))
        which = world.which()
        assert list(which) == ["c", "idle", "b", "a"]
        assert [info.state for info in which.values()] == ["running", "undefined", "running", "running"]
        assert [info.type for info in which.values()] == ["worker", "worker", "supervisor", "worker"]
        assert [which[name].pid for name in "ab"] == [world.row(name).pid for name in "ab"]
        assert which["idle"].pid == 0

    @case("which_children_simple_one_for_one")
    def test_a_pools_children_are_named_while_they_are_there(self, world: World) -> None:
        world.grow(dynamic_supervisor_spec("pool"))
        for id_ in "abc":
            ok(world.call(start_child(child(id_)), "pool"))
        assert list(world.which("pool")) == ["c", "b", "a"]
        ok(world.call(TerminateChild(id="b"), "pool"))
        assert list(world.which("pool")) == ["c", "a"]

    @case("already_started_outside_supervisor")
    def test_a_name_that_somebody_elses_child_bears_is_refused(self, world: World) -> None:
        world.grow(below("one", child("a")), below("two"))
        refused = world.call(start_child(child("a")), "two")
        assert not refused.ok
        assert "already_started: the name 'a' belongs to a child of 'one'" in refused.reason
        assert world.lives("a") == (1,)

    def test_a_name_whose_bearer_waits_for_its_restart_is_refused_and_a_free_one_is_not(
        self, world: World
    ) -> None:
        waits = child("a", backoff=Backoff(initial_s=FOR_EVER_S, max_s=FOR_EVER_S))
        world.grow(below("one", waits), below("two"))
        world.end("a", "kill")
        world.until_state("a", "restarting", "one")
        assert "the name 'a' belongs to a child of 'one'" in world.call(start_child(child("a")), "two").reason
        ok(world.call(TerminateChild(id="a"), "one"))
        assert ok(world.call(start_child(child("a")), "two")).incarnation == 2


class TestRestartTypes:
    @case("permanent_normal", "permanent_shutdown", "permanent_abnormal")
    def test_a_permanent_child_comes_back_however_it_ended(self, world: World) -> None:
        world.grow(child("a"), child("bystander"))
        for how in ENDS:
            world.end_and_await_next("a", how)
        assert world.lives("a", "bystander") == (1 + len(ENDS), 1)

    @case("transient_normal", "transient_shutdown")
    @pytest.mark.parametrize("how", ENDS_NORMALLY)
    def test_a_transient_child_that_ended_normally_stays_down_and_is_kept(
        self, world: World, how: str
    ) -> None:
        world.grow(child("a", restart=Restart.TRANSIENT), child("bystander"))
        world.end_for_good("a", how, "undefined")
        assert world.reported("child_terminated") == []
        assert ok(world.call(RestartChild(id="a"))).incarnation == 2

    @case("transient_abnormal")
    def test_a_transient_child_that_ended_abnormally_comes_back(self, world: World) -> None:
        world.grow(child("a", restart=Restart.TRANSIENT), child("bystander"))
        for how in ENDS_ABNORMALLY:
            world.end_and_await_next("a", how)
        assert world.lives("a", "bystander") == (1 + len(ENDS_ABNORMALLY), 1)

    @case("temporary_normal", "temporary_shutdown", "temporary_abnormal")
    def test_a_temporary_child_is_forgotten_however_it_ended(self, world: World) -> None:
        world.grow(*(child(how, restart=Restart.TEMPORARY) for how in ENDS), child("bystander"))
        for how in ENDS:
            world.end_for_good(how, how, "gone")
        world.until(
            lambda: [who for who, _ in world.reported("child_terminated")] == list(ENDS_ABNORMALLY),
            "each abnormal end is reported, and no other",
        )
        assert world.lives(*ENDS, "bystander") == (1,) * (len(ENDS) + 1)

    @case("faulty_application_shutdown")
    def test_a_run_whose_root_gives_up_ends_with_the_reason(self, world: World) -> None:
        world.grow(child("a"), max_restarts=0)
        world.end("a", "exit")
        assert world.until_ended().startswith("gave up: child 'a' failed once more (exit code 3)")

    @case("temporary_bystander")
    @pytest.mark.parametrize("strategy", [Strategy.ONE_FOR_ALL, Strategy.REST_FOR_ONE])
    def test_a_temporary_sibling_that_is_taken_along_does_not_come_back(
        self, world: World, strategy: Strategy
    ) -> None:
        world.grow(child("a"), child("t", restart=Restart.TEMPORARY), strategy=strategy, max_restarts=1)
        world.end_and_await_next("a", "kill")
        world.until_state("t", "gone")
        assert world.lives("t") == (1,)
        assert world.lives("root") == (1,)

    @case("multiple_restarts")
    def test_many_restarts_within_the_limit_are_no_reason_to_give_up(self, world: World) -> None:
        world.grow(child("a"), child("bystander"), max_restarts=8)
        for _ in range(8):
            world.end_and_await_next("a", "kill")
        assert world.lives("a", "bystander") == (9, 1)


class TestStrategies:
    @case("one_for_one")
    def test_one_for_one_restarts_the_failed_child_alone(self, world: World) -> None:
        world.grow(child("a"), child("b"))
        world.end_and_await_next("a", "crash")
        assert world.lives("a", "b") == (2, 1)
        assert world.story() == ["a starts", "b starts", "a starts"]

    @case("one_for_one_escalation")
    def test_one_for_one_gives_up_when_the_restart_fails_too_often_and_stops_the_others(
        self, world: World
    ) -> None:
        world.grow(child("a", starts=["well", "exit"]), child("b"), max_restarts=2)
        world.end("a", "crash")
        assert "over 2 restarts" in world.until_ended()
        assert world.story() == [
            *("a starts", "b starts", "a starts", "a starts"),
            *("b stops", "b stopped"),
        ]

    @case("one_for_all")
    def test_one_for_all_stops_the_others_in_reverse_and_starts_all_in_order(self, world: World) -> None:
        world.grow(child("a"), child("b"), child("c"), strategy=Strategy.ONE_FOR_ALL)
        world.new_story()
        world.end("b", "crash")
        world.until(lambda: world.lives("a", "b", "c") == (2, 2, 2) and world.is_up("c"), "all are back")
        assert world.story("starts", "stops") == ["c stops", "a stops", "a starts", "b starts", "c starts"]

    @case("one_for_all_escalation")
    def test_one_for_all_gives_up_when_the_restart_fails_too_often(self, world: World) -> None:
        world.grow(
            child("a", starts=["well", "exit"]), child("b"), strategy=Strategy.ONE_FOR_ALL, max_restarts=2
        )
        world.end("a", "crash")
        assert "over 2 restarts" in world.until_ended()
        assert world.story("starts", "stops") == ["a starts", "b starts", "b stops", "a starts", "a starts"]

    @case("one_for_all_other_child_fails_restart")
    def test_one_for_all_begins_again_with_all_when_another_child_fails_its_restart(
        self, world: World
    ) -> None:
        world.grow(child("a"), child("b", starts=["well", "exit", "well"]), strategy=Strategy.ONE_FOR_ALL)
        world.new_story()
        world.end("a", "crash")
        world.until(lambda: world.lives("a", "b") == (3, 3) and world.is_up("b"), "both are back")
        assert world.story("starts", "stops") == [
            *("b stops", "a starts", "b starts"),
            *("a stops", "a starts", "b starts"),
        ]

    @case("rest_for_one")
    def test_rest_for_one_takes_along_those_after_it(self, world: World) -> None:
        world.grow(*(child(id_) for id_ in "abcd"), strategy=Strategy.REST_FOR_ONE)
        world.new_story()
        world.end("b", "crash")
        world.until(lambda: world.lives(*"abcd") == (1, 2, 2, 2) and world.is_up("d"), "the rest is back")
        assert world.story("starts", "stops") == ["d stops", "c stops", "b starts", "c starts", "d starts"]

    @case("rest_for_one_escalation")
    def test_rest_for_one_gives_up_when_the_restart_fails_too_often(self, world: World) -> None:
        world.grow(
            *(child("a"), child("b", starts=["well", "exit"]), child("c")),
            strategy=Strategy.REST_FOR_ONE,
            max_restarts=2,
        )
        world.new_story()
        world.end("b", "crash")
        assert "over 2 restarts" in world.until_ended()
        assert world.story("starts", "stops") == ["c stops", "b starts", "b starts", "a stops"]

    @case("rest_for_one_other_child_fails_restart")
    def test_rest_for_one_begins_again_where_another_child_fails_its_restart(self, world: World) -> None:
        world.grow(child("a"), child("b", starts=["well", "exit", "well"]), strategy=Strategy.REST_FOR_ONE)
        world.new_story()
        world.end("a", "crash")
        world.until(lambda: world.lives("a", "b") == (2, 3) and world.is_up("b"), "both are back")
        assert world.story("starts", "stops") == ["b stops", "a starts", "b starts", "b starts"]

    @case("simple_one_for_one")
    def test_a_dynamic_child_is_restarted_alone(self, world: World) -> None:
        world.grow(dynamic_supervisor_spec("pool"))
        for id_ in "ab":
            ok(world.call(start_child(child(id_)), "pool"))
        world.end_and_await_next("a", "crash")
        assert world.lives("a", "b") == (2, 1)

    @case("simple_one_for_one_shutdown")
    def test_a_dynamic_childs_time_to_stop_is_honoured(self, world: World) -> None:
        world.grow(dynamic_supervisor_spec("pool"))
        for id_, shutdown_s in (("patient", 20.0), ("brutal", 0.0)):
            ok(world.call(start_child(child(id_, stop=0.2, shutdown_s=shutdown_s)), "pool"))
            ok(world.call(TerminateChild(id=id_), "pool"))
        assert world.story("stops", "stopped") == ["patient stops", "patient stopped"]

    @case("simple_one_for_one_escalation")
    def test_a_pool_gives_up_when_a_restart_fails_too_often(self, world: World) -> None:
        world.grow(dynamic_supervisor_spec("pool", max_restarts=2, max_seconds=1000.0))
        for id_, starts in (("a", ["well", "exit"]), ("b", ["well"])):
            ok(world.call(start_child(child(id_, starts=starts)), "pool"))
        world.end("a", "crash")
        world.until(lambda: world.lives("pool") == (2,) and world.is_up("pool"), "the pool is back, empty")
        assert world.which("pool") == {}
        assert not world.is_alive("b")

    @case("simple_one_for_one_corruption")
    def test_a_start_that_fails_leaves_a_pool_as_it_was(self, world: World) -> None:
        world.grow(dynamic_supervisor_spec("pool"))
        ok(world.call(start_child(child("a")), "pool"))
        before = world.counts("pool")
        bad = child("bad", starts=["crash"], restart=Restart.TEMPORARY)
        assert not world.call(start_child(bad), "pool").ok
        assert world.counts("pool") == before
        world.end_and_await_next("a", "crash")
        assert list(world.which("pool")) == ["a"]

    @case("simple_one_for_one_restart_ignore")
    def test_a_dynamic_child_that_ignores_its_restart_is_forgotten(self, world: World) -> None:
        world.grow(dynamic_supervisor_spec("pool"))
        ok(world.call(start_child(child("a", starts=["well", "ignore"])), "pool"))
        world.end_for_good("a", "crash", "gone", "pool")
        assert world.lives("a", "pool") == (2, 1)


def significant(id_: str, restart: Restart, **spec: Any) -> Any:
    return child(id_, restart=restart, significant=True, **spec)


class TestSignificant:
    @case("nonsignificant_temporary")
    def test_a_temporary_child_that_is_not_significant_ends_nobody(self, world: World) -> None:
        specs = (child(how, restart=Restart.TEMPORARY) for how in ENDS)
        world.grow(child("a"), *specs, auto_shutdown=AutoShutdown.ANY_SIGNIFICANT)
        for how in ENDS:
            world.end_for_good(how, how, "gone")
        assert world.lives("a", "root") == (1, 1)

    @case("nonsignificant_transient")
    def test_a_transient_child_that_is_not_significant_ends_nobody(self, world: World) -> None:
        specs = (child(how, restart=Restart.TRANSIENT) for how in ENDS_NORMALLY)
        world.grow(child("a"), *specs, auto_shutdown=AutoShutdown.ANY_SIGNIFICANT)
        for how in ENDS_NORMALLY:
            world.end_for_good(how, how, "undefined")
        assert world.lives("a", "root") == (1, 1)

    @case("significant_temporary")
    @pytest.mark.parametrize("how", ENDS)
    def test_any_significant_temporary_child_that_ends_ends_the_supervisor(
        self, world: World, how: str
    ) -> None:
        specs = (child("a"), significant("s", Restart.TEMPORARY), significant("other", Restart.TEMPORARY))
        world.grow(*specs, auto_shutdown=AutoShutdown.ANY_SIGNIFICANT)
        world.end("s", how)
        assert world.until_ended().startswith("done: significant child 's' ended: ")
        assert world.story("stops") == ["other stops", "a stops"]

    @case("significant_temporary")
    def test_all_significant_temporary_children_must_have_ended(self, world: World) -> None:
        specs = (child("a"), significant("s1", Restart.TEMPORARY), significant("s2", Restart.TEMPORARY))
        world.grow(*specs, auto_shutdown=AutoShutdown.ALL_SIGNIFICANT)
        world.end_for_good("s1", "crash", "gone")
        assert world.lives("root", "s2") == (1, 1)
        world.end("s2", "kill")
        assert "done: significant child 's2' ended: SIGKILL" in world.until_ended()

    @case("significant_transient")
    @pytest.mark.parametrize("how", ENDS_NORMALLY)
    def test_any_significant_transient_child_that_ends_normally_ends_the_supervisor(
        self, world: World, how: str
    ) -> None:
        world.grow(
            child("a"), significant("s", Restart.TRANSIENT), auto_shutdown=AutoShutdown.ANY_SIGNIFICANT
        )
        world.end_and_await_next("s", "crash")
        world.end("s", how)
        assert world.until_ended().startswith("done: significant child 's' ended: ")

    @case("significant_transient")
    def test_all_significant_transient_children_must_have_ended_normally(self, world: World) -> None:
        specs = (child("a"), significant("s1", Restart.TRANSIENT), significant("s2", Restart.TRANSIENT))
        world.grow(*specs, auto_shutdown=AutoShutdown.ALL_SIGNIFICANT)
        world.end_for_good("s1", "normal", "undefined")
        world.end_and_await_next("s2", "kill")
        assert world.lives("root") == (1,)
        world.end("s2", "shutdown")
        assert world.until_ended().startswith("done: significant child 's2' ended: ")

    @case("significant_simple")
    @pytest.mark.parametrize("auto_shutdown", [AutoShutdown.ANY_SIGNIFICANT, AutoShutdown.ALL_SIGNIFICANT])
    def test_a_pool_too_ends_with_its_significant_children(
        self, world: World, auto_shutdown: AutoShutdown
    ) -> None:
        pool = dynamic_supervisor_spec("pool", auto_shutdown=auto_shutdown)
        world.grow(pool)
        for id_ in ("s1", "s2"):
            ok(world.call(start_child(significant(id_, Restart.TEMPORARY)), "pool"))
        if auto_shutdown is AutoShutdown.ALL_SIGNIFICANT:
            world.end_for_good("s1", "normal", "gone", "pool")
            assert world.lives("pool") == (1,)
        world.end("s2", "normal")
        world.until(lambda: world.lives("pool") == (2,), "the pool ended, and came back as it is permanent")
        world.until(lambda: world.row("pool").last_reason == "normal", "it ended normally")

    @case("significant_bystander")
    @pytest.mark.parametrize("auto_shutdown", [AutoShutdown.ANY_SIGNIFICANT, AutoShutdown.ALL_SIGNIFICANT])
    @pytest.mark.parametrize("strategy", STRATEGIES)
    def test_a_significant_child_that_is_taken_along_or_terminated_ends_nobody(
        self, world: World, auto_shutdown: AutoShutdown, strategy: Strategy
    ) -> None:
        specs = (child("a"), significant("s", Restart.TEMPORARY), significant("t", Restart.TRANSIENT))
        world.grow(*specs, auto_shutdown=auto_shutdown, strategy=strategy)
        world.end_and_await_next("a", "crash")
        if strategy is not Strategy.ONE_FOR_ONE:
            world.until(lambda: "s" not in world.which() and world.lives("t") == (2,), "they went along")
        ok(world.call(TerminateChild(id="t")))
        if strategy is Strategy.ONE_FOR_ONE:
            ok(world.call(TerminateChild(id="s")))
        assert world.lives("root") == (1,)
        assert world.call(Ping(), "a") == Ping()

    @case("significant_escalation")
    def test_a_significant_supervisor_that_is_done_ends_the_one_above(self, world: World) -> None:
        inner = below(
            "inner",
            significant("s", Restart.TRANSIENT),
            auto_shutdown=AutoShutdown.ANY_SIGNIFICANT,
            spec={"restart": Restart.TRANSIENT, "significant": True},
        )
        world.grow(child("a"), inner, auto_shutdown=AutoShutdown.ANY_SIGNIFICANT)
        world.end("s", "normal")
        assert world.until_ended().startswith("done: significant child 'inner' ended: ")
        assert world.story("stops") == ["a stops"]

    @case("significant_upgrade_never_any", "significant_upgrade_never_all")
    @pytest.mark.parametrize("to", [AutoShutdown.ANY_SIGNIFICANT, AutoShutdown.ALL_SIGNIFICANT])
    def test_significance_can_be_given_while_it_runs(self, world: World, to: AutoShutdown) -> None:
        world.grow(child("t", restart=Restart.TRANSIENT), child("a"))
        refused = world.call(UpdateChild(id="t", changes={"significant": True}))
        assert "auto_shutdown is never" in refused.reason
        ok(world.call(UpdateFlags(changes={"auto_shutdown": to.value})))
        ok(world.call(UpdateChild(id="t", changes={"significant": True})))
        assert world.lives("t", "a") == (1, 1), "nobody is restarted for it"
        world.end("t", "normal")
        assert world.until_ended().startswith("done: significant child 't' ended")

    @case("significant_upgrade_any_never", "significant_upgrade_all_never")
    @pytest.mark.parametrize("was", [AutoShutdown.ANY_SIGNIFICANT, AutoShutdown.ALL_SIGNIFICANT])
    def test_significance_can_be_taken_while_it_runs(self, world: World, was: AutoShutdown) -> None:
        world.grow(significant("t", Restart.TRANSIENT), child("a"), auto_shutdown=was)
        refused = world.call(UpdateFlags(changes={"auto_shutdown": "never"}))
        assert "child 't': significant is true" in refused.reason
        ok(world.call(UpdateChild(id="t", changes={"significant": False})))
        ok(world.call(UpdateFlags(changes={"auto_shutdown": "never"})))
        world.end_for_good("t", "normal", "undefined")
        assert world.lives("root") == (1,)

    @case("significant_upgrade_any_all")
    def test_from_any_to_all_the_first_end_is_no_longer_enough(self, world: World) -> None:
        specs = (significant("s1", Restart.TEMPORARY), significant("s2", Restart.TEMPORARY))
        world.grow(*specs, auto_shutdown=AutoShutdown.ANY_SIGNIFICANT)
        ok(world.call(UpdateFlags(changes={"auto_shutdown": "all_significant"})))
        world.end_for_good("s1", "normal", "gone")
        assert world.lives("root") == (1,)
        world.end("s2", "normal")
        assert "'s2' ended" in world.until_ended()

    @case("significant_upgrade_all_any")
    def test_from_all_to_any_the_next_end_is_enough(self, world: World) -> None:
        specs = tuple(significant(f"s{number}", Restart.TEMPORARY) for number in range(3))
        world.grow(*specs, auto_shutdown=AutoShutdown.ALL_SIGNIFICANT)
        world.end_for_good("s0", "normal", "gone")
        ok(world.call(UpdateFlags(changes={"auto_shutdown": "any_significant"})))
        assert world.lives("root") == (1,), "the change itself ends nobody"
        world.end("s1", "normal")
        assert "'s1' ended" in world.until_ended()

    @case("significant_upgrade_child")
    def test_a_child_can_become_significant_and_stop_being_it(self, world: World) -> None:
        specs = (child("t1", restart=Restart.TRANSIENT), significant("t2", Restart.TRANSIENT))
        world.grow(*specs, auto_shutdown=AutoShutdown.ANY_SIGNIFICANT)
        ok(world.call(UpdateChild(id="t1", changes={"significant": True})))
        ok(world.call(UpdateChild(id="t2", changes={"significant": False})))
        world.end_for_good("t2", "normal", "undefined")
        assert world.lives("root") == (1,)
        world.end("t1", "normal")
        assert "'t1' ended" in world.until_ended()


class TestMisc:
    @case("child_unlink")
    def test_a_child_that_does_not_react_does_not_hold_up_its_termination(self, world: World) -> None:
        world.grow(child("deaf", shutdown_s=0.2), child("b"))
        world.hang("deaf")
        ok(world.call(TerminateChild(id="deaf")))
        assert world.state("deaf") == "undefined"
        assert not world.is_alive("deaf")

    @case("tree")
    def test_failures_go_up_a_tree_level_by_level_and_no_further_than_they_must(self, world: World) -> None:
        world.grow(
            below("left", child("a"), child("b"), strategy=Strategy.ONE_FOR_ALL, max_restarts=1),
            below("right", child("c"), max_restarts=0),
            max_restarts=1,
        )
        world.end("a", "kill")
        world.until(lambda: world.lives("a", "b") == (2, 2) and world.is_up("b"), "left healed itself")
        assert world.lives("left", "right", "c") == (1, 1, 1)
        world.end("a", "kill")
        world.until(lambda: world.lives("left") == (2,) and world.is_up("left"), "left was healed")
        assert world.lives("a", "b", "right", "c") == (3, 3, 1, 1)
        world.end("c", "kill")
        assert "child 'right' failed once more (exit code 75: gave up: child 'c'" in world.until_ended()
        assert not any(world.is_alive(name) for name in ("left", "right", *"abc"))

    def test_a_transient_supervisor_that_gave_up_stays_down_as_its_reason_is_shutdown(
        self, world: World
    ) -> None:
        world.grow(below("pool", child("a"), max_restarts=0, spec={"restart": Restart.TRANSIENT}), child("b"))
        world.end("a", "kill")
        world.until_state("pool", "undefined")
        assert world.lives("pool", "b", "root") == (1, 1, 1)

    @pytest.mark.parametrize("strategy", [Strategy.ONE_FOR_ALL, Strategy.REST_FOR_ONE])
    def test_a_child_that_is_being_terminated_stays_down_though_a_sibling_fails_meanwhile(
        self, world: World, strategy: Strategy
    ) -> None:
        world.grow(child("a"), child("slow", stop="never", shutdown_s=FOR_EVER_S), strategy=strategy)
        terminated = world.asked(TerminateChild(id="slow"))
        world.until_state("slow", "stopping")
        world.end("a", "kill")
        world.until_state("a", "restarting")
        world.kill("slow")
        ok(world.result(terminated))
        world.until(lambda: world.lives("a") == (2,) and world.is_up("a"), "a is back")
        assert world.state("slow") == "undefined"
        assert world.lives("a", "slow") == (2, 1)

    @case("count_children")
    def test_children_are_counted_as_they_come_and_go(self, world: World) -> None:
        world.grow(child("a"), child("b"))
        ok(world.call(start_child(child("c"))))
        ok(world.call(TerminateChild(id="b")))
        counts = world.counts()
        assert (counts.specs, counts.active, counts.supervisors, counts.workers) == (3, 2, 0, 3)
        ok(world.call(DeleteChild(id="b")))
        assert world.counts().specs == 2

    @case("count_children_supervisor")
    def test_supervisors_are_counted_for_themselves(self, world: World) -> None:
        world.grow(child("a"), below("b"))
        ok(world.call(start_child(below("c"))))
        ok(world.call(TerminateChild(id="b")))
        counts = world.counts()
        assert (counts.specs, counts.active, counts.supervisors, counts.workers) == (3, 2, 2, 1)

    @case("count_restarting_children")
    def test_a_child_whose_restart_waits_is_counted_but_not_as_active(self, world: World) -> None:
        world.grow(child("a", starts=["well", "exit"], backoff=SOON), child("b"), max_restarts=10_000)
        world.end("a", "crash")
        world.until(lambda: world.counts().restarting == 1, "a waits for its restart")
        world.until(lambda: world.counts().active == 1, "only b has a process")
        assert world.counts().specs == 2
        ok(world.call(TerminateChild(id="a")))
        counts = world.counts()
        assert (counts.specs, counts.active, counts.restarting) == (2, 1, 0)

    @case("simple_global_supervisor")
    def test_a_restarted_child_is_found_under_its_name(self, world: World) -> None:
        world.grow(below("pool", child("a")))
        world.end_and_await_next("a", "kill")
        assert world.call(Ping(), "a") == Ping()

    @case("hanging_restart_loop", "hanging_restart_loop_rest_for_one", "hanging_restart_loop_simple")
    @pytest.mark.parametrize("kind", ["one_for_one", "rest_for_one", "dynamic"])
    def test_while_a_restart_fails_over_and_over_the_supervisor_answers_and_can_be_told(
        self, world: World, kind: str
    ) -> None:
        world.grow(
            dynamic_supervisor_spec("pool", max_restarts=10_000, max_seconds=1e6)
            if kind == "dynamic"
            else below("pool", strategy=Strategy(kind), max_restarts=10_000, max_seconds=1e6)
        )
        bad = child("bad", starts=["well", "exit"], backoff=SOON)
        ok(world.call(start_child(bad), "pool"))
        world.end("bad", "crash")
        world.until_state("bad", "restarting", "pool")
        refusal = "not_found" if kind == "dynamic" else "restarting"
        for call in (RestartChild(id="bad"), DeleteChild(id="bad")):
            assert world.call(call, "pool").reason == refusal
        assert world.call(start_child(bad), "pool").reason == "already_started"
        ok(world.call(TerminateChild(id="bad"), "pool"))
        assert world.state("bad", "pool") == ("gone" if kind == "dynamic" else "undefined")

    @case("hanging_restart_loop")
    def test_while_a_restart_fails_over_and_over_the_supervisor_can_be_stopped(self, world: World) -> None:
        world.grow(child("a"), child("bad", starts=["well", "exit"], backoff=SOON), max_restarts=10_000)
        world.end("bad", "crash")
        world.until_state("bad", "restarting")
        assert world.stop() == ""
        assert world.story("stops") == ["a stops"]

    @case("code_change", "code_change_map", "code_change_simple", "code_change_simple_map")
    @pytest.mark.parametrize("is_dynamic", [False, True])
    def test_specs_and_limits_change_while_the_children_run_on(self, world: World, is_dynamic: bool) -> None:
        world.grow(dynamic_supervisor_spec("pool") if is_dynamic else below("pool"))
        ok(world.call(start_child(child("a")), "pool"))
        ok(world.call(UpdateFlags(changes={"max_restarts": 0}), "pool"))
        ok(
            world.call(
                UpdateChild(id="a", changes={"restart": "transient", "args": {"starts": ["exit"]}}), "pool"
            )
        )
        assert world.lives("a", "pool") == (1, 1)
        assert world.which("pool")["a"].restart == "transient"
        for changes in (
            {"max_restarts": -1},
            {"max_restart": 1},
            {"strategy": "one_for_all"},
            {"dynamic": 7},
        ):
            assert not world.call(UpdateFlags(changes=changes), "pool").ok
        for changes in ({"shutdown_s": -1.0}, {"id": "b"}, {"restart": "sometimes"}):
            assert not world.call(UpdateChild(id="a", changes=changes), "pool").ok
        assert world.call(UpdateChild(id="nobody", changes={}), "pool").reason == "not_found"
        world.end("a", "crash")
        world.until(lambda: world.lives("pool") == (2,), "the new limit holds")

    @case("order_of_children")
    def test_the_order_is_kept_at_the_start_at_restarts_and_at_the_end(self, world: World) -> None:
        world.grow(*(child(id_) for id_ in "abcde"), strategy=Strategy.REST_FOR_ONE)
        assert world.story("starts") == [f"{id_} starts" for id_ in "abcde"]
        world.new_story()
        world.end("c", "kill")
        world.until(lambda: world.lives("e") == (2,) and world.is_up("e"), "the rest is back")
        assert world.story("stops") == ["e stops", "d stops"]
        assert world.story("starts") == ["c starts", "d starts", "e starts"]
        ok(world.call(TerminateChild(id="b")))
        ok(world.call(RestartChild(id="b")))
        world.new_story()
        assert world.stop() == ""
        assert world.story("stops") == [f"{id_} stops" for id_ in "edcba"]
