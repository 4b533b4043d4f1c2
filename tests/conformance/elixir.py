"""Elixir's tests of `Supervisor` and `DynamicSupervisor` as scenarios for both worlds."""

import math

import pytest

from supervision.child_spec import AutoShutdown, ChildSpec, Restart
from supervision.messages import (
    DeleteChild,
    Managed,
    RestartChild,
    StartChild,
    TerminateChild,
    UpdateFlags,
    start_child,
)
from supervision.supervisor import dynamic_supervisor_spec
from tests.conformance.otp import ENDS, ENDS_ABNORMALLY, ENDS_NORMALLY, ok
from tests.conformance.world import SOON, SUBJECT, Ping, World, below, case, child

INVALID = [
    ({"actor": SUBJECT}, "missing required field `id`"),
    ({"id": "a"}, "missing required field `actor`"),
    ({"id": "a", "actor": "no class"}, "actor must be 'module:Class', got 'no class'"),
    ({"id": "a", "actor": SUBJECT, "shutdown_s": -1.0}, "shutdown_s must be at least 0, got -1.0"),
    ({"id": "a", "actor": SUBJECT, "shutdown_s": "soon"}, "shutdown_s"),
    ({"id": "a", "actor": SUBJECT, "restart": "sometimes"}, "sometimes"),
    ({"id": "a", "actor": SUBJECT, "type": "gardener"}, "gardener"),
    ({"id": "a", "actor": SUBJECT, "shutdown": 5}, "'shutdown' is no field of ChildSpec; did you mean"),
]
"""Specs that make no sense, and what is said of them."""

POOL = dynamic_supervisor_spec("pool", max_restarts=1000, max_seconds=1000.0)


def started(world: World, *specs: ChildSpec) -> None:
    """Children of the pool, each up."""
    for spec in specs:
        assert ok(world.call(start_child(spec), "pool")).incarnation


class TestSupervisor:
    @case(
        "Supervisor: start_link/3 with local",
        "Supervisor: start_link/3 with global",
        "Supervisor: start_link/2 (named child restarted, name usable again, bad names refused)",
    )
    def test_a_supervisor_bears_its_name_through_a_restart_and_so_do_its_children(self, world: World) -> None:
        world.grow(below("crowd", child("a")))
        assert list(world.which("crowd")) == ["a"]
        world.kill("crowd")
        world.until(lambda: world.lives("crowd", "a") == (2, 2) and world.is_up("crowd"), "both are back")
        assert list(world.which("crowd")) == ["a"]
        assert world.call(Ping(), "a") == Ping()
        assert "id must be a name" in world.call(StartChild(spec={"id": "", "actor": SUBJECT})).reason

    @case("Supervisor: start_child/2 new child spec")
    def test_a_child_is_started_from_a_spec(self, world: World) -> None:
        world.grow()
        assert ok(world.call(start_child(child("a")))) == Managed(ok=True, incarnation=1)
        assert world.call(Ping(), "a") == Ping()

    @case(
        "Supervisor: start_child/2 with invalid child spec",
        "DynamicSupervisor: start_child: invalid child spec",
    )
    @pytest.mark.parametrize("is_dynamic", [False, True])
    def test_a_spec_that_makes_no_sense_is_an_error_that_names_the_field(
        self, world: World, is_dynamic: bool
    ) -> None:
        world.grow(POOL if is_dynamic else below("pool"))
        for spec, complaint in INVALID:
            refused = world.call(StartChild(spec=spec), "pool")
            assert not refused.ok
            assert complaint in refused.reason
        assert world.which("pool") == {}

    @case("Supervisor: start_child/2 with valid child spec")
    def test_any_time_to_stop_from_none_to_for_ever_is_a_valid_one(self, world: World) -> None:
        world.grow()
        for shutdown_s in (0.0, 0.001, 1.0, math.inf):
            ok(world.call(start_child(child("a", shutdown_s=shutdown_s))))
            ok(world.call(TerminateChild(id="a")))
            ok(world.call(DeleteChild(id="a")))

    @case("Supervisor: child life cycle")
    def test_the_life_of_a_child(self, world: World) -> None:
        world.grow()
        ok(world.call(start_child(child("a"))))
        assert [(info.id, info.state) for info in world.which().values()] == [("a", "running")]
        counts = world.counts()
        assert (counts.specs, counts.active, counts.supervisors, counts.workers) == (1, 1, 0, 1)
        assert world.call(DeleteChild(id="a")).reason == "running"
        ok(world.call(TerminateChild(id="a")))
        ok(world.call(RestartChild(id="a")))
        assert world.call(RestartChild(id="a")).reason == "running"
        ok(world.call(TerminateChild(id="a")))
        ok(world.call(DeleteChild(id="a")))
        assert world.call(RestartChild(id="a")).reason == "not_found"


class TestDynamicStart:
    @case(
        "DynamicSupervisor: can be supervised directly", "DynamicSupervisor: multiple supervisors identified"
    )
    def test_several_pools_stand_side_by_side_below_one_supervisor(self, world: World) -> None:
        world.grow(dynamic_supervisor_spec("one"), dynamic_supervisor_spec("two"))
        for pool in ("one", "two"):
            ok(world.call(start_child(child(f"{pool}-a")), pool))
        assert [list(world.which(pool)) for pool in ("one", "two")] == [["one-a"], ["two-a"]]
        assert [info.type for info in world.which().values()] == ["supervisor", "supervisor"]

    @case("DynamicSupervisor: code_change with ok init", "DynamicSupervisor: code_change with non-ok init")
    def test_a_pools_limits_change_while_it_runs_or_stay_as_they_are(self, world: World) -> None:
        world.grow(dynamic_supervisor_spec("pool", max_children=1))
        started(world, child("a"))
        assert "max_children" in world.call(UpdateFlags(changes={"max_children": -1}), "pool").reason
        assert world.call(start_child(child("b")), "pool").reason == "max_children"
        ok(world.call(UpdateFlags(changes={"max_children": 2}), "pool"))
        started(world, child("b"))
        ok(world.call(UpdateFlags(changes={"max_children": 1}), "pool"))
        assert list(world.which("pool")) == ["b", "a"], "nobody has to go for it"

    @case("DynamicSupervisor: start_child: new spec")
    def test_a_dynamic_child_is_started_from_a_spec_and_answers(self, world: World) -> None:
        world.grow(POOL)
        started(world, child("a"))
        assert world.call(Ping(), "a") == Ping()

    @case("DynamicSupervisor: start_link: with registered process")
    def test_a_pool_whose_name_is_borne_by_another_is_refused(self, world: World) -> None:
        world.grow(below("crowd", child("taken")))
        refused = world.call(start_child(dynamic_supervisor_spec("taken")))
        assert "already_started: the name 'taken' belongs to a child of 'crowd'" in refused.reason

    @case(
        "DynamicSupervisor: start_child: different returns",
        "DynamicSupervisor: start_child: throw/error/exit",
    )
    def test_a_start_is_a_success_is_ignored_or_is_an_error_with_its_reason(self, world: World) -> None:
        world.grow(POOL)
        assert world.call(start_child(child("well")), "pool") == Managed(ok=True, incarnation=1)
        ignored = world.call(start_child(child("idle", starts=["ignore"])), "pool")
        assert (ignored.ok, ignored.reason, ignored.incarnation) == (True, "ignored", 0)
        raised = world.call(start_child(child("raises", starts=["crash"])), "pool")
        assert (raised.ok, "ZeroDivisionError: asked to" in raised.reason) == (False, True)
        left = world.call(start_child(child("exits", starts=["exit"])), "pool")
        assert (left.ok, left.reason) == (False, "exit code 3")
        late = world.call(start_child(child("late", starts=["never"], start_deadline_s=0.3)), "pool")
        assert (late.ok, late.reason) == (False, "killed: not ready within 0.3 s")
        assert list(world.which("pool")) == ["well"]

    @case("DynamicSupervisor: max_children")
    def test_beyond_max_children_nobody_is_started(self, world: World) -> None:
        world.grow(dynamic_supervisor_spec("pool", max_children=2))
        started(world, child("a"), child("b"))
        assert world.call(start_child(child("c")), "pool") == Managed(ok=False, reason="max_children")
        ok(world.call(TerminateChild(id="a"), "pool"))
        started(world, child("c"))


class TestDynamicRestart:
    @case("DynamicSupervisor: temporary not restarted regardless of reason")
    def test_a_temporary_dynamic_child_is_forgotten_however_it_ended(self, world: World) -> None:
        world.grow(POOL)
        for how in ENDS:
            started(world, child("a", restart=Restart.TEMPORARY))
            world.end_for_good("a", how, "gone", "pool")
        assert world.counts("pool").specs == 0

    @case("DynamicSupervisor: transient restarted unless normal, shutdown or {shutdown, _}")
    def test_a_transient_dynamic_child_comes_back_when_it_ended_abnormally(self, world: World) -> None:
        world.grow(POOL)
        for last in ENDS_NORMALLY:
            started(world, child("a", restart=Restart.TRANSIENT))
            for how in ENDS_ABNORMALLY:
                world.end_and_await_next("a", how)
            world.end_for_good("a", last, "gone", "pool")

    @case("DynamicSupervisor: permanent restarted regardless of reason")
    def test_a_permanent_dynamic_child_comes_back_however_it_ended(self, world: World) -> None:
        world.grow(POOL)
        started(world, child("a"), child("bystander"))
        for how in ENDS:
            world.end_and_await_next("a", how)
        assert world.lives("a", "bystander") == (1 + len(ENDS), 1)

    @case("DynamicSupervisor: child restarted with different values")
    def test_a_restart_may_hold_fail_or_be_ignored(self, world: World) -> None:
        world.grow(POOL)
        again = child("a", starts=["well", "well", "exit", "crash", "well", "ignore"], backoff=SOON)
        started(world, again, child("b"))
        world.end_and_await_next("a", "crash")
        assert world.lives("a") == (2,)
        world.end_and_await_next("a", "crash")
        assert world.lives("a") == (5,), "two starts failed in between"
        world.end_for_good("a", "crash", "gone", "pool")
        counts = world.counts("pool")
        assert (counts.specs, counts.active, counts.workers) == (1, 1, 1)

    @case("DynamicSupervisor: restarting on init children counted in max_children")
    def test_a_child_that_starts_counts_for_max_children(self, world: World) -> None:
        world.grow(dynamic_supervisor_spec("pool", max_children=1, max_restarts=1000, max_seconds=1000.0))
        starting = world.asked(start_child(child("a", starts=["never"])), "pool")
        world.until_state("a", "starting", "pool")
        assert world.call(start_child(child("b")), "pool").reason == "max_children"
        ok(world.call(TerminateChild(id="a"), "pool"))
        assert world.result(starting) == Managed(ok=False, reason="it was ordered to stop")

    @case("DynamicSupervisor: restarting on exit children counted in max_children")
    def test_a_child_that_waits_for_its_restart_counts_for_max_children(self, world: World) -> None:
        world.grow(dynamic_supervisor_spec("pool", max_children=1, max_restarts=10_000, max_seconds=1000.0))
        started(world, child("a", starts=["well", "exit"], backoff=SOON))
        world.end("a", "crash")
        world.until_state("a", "restarting", "pool")
        assert world.call(start_child(child("b")), "pool").reason == "max_children"

    @case("DynamicSupervisor: child is restarted when trying again")
    def test_a_restart_that_failed_is_tried_again_until_it_holds(self, world: World) -> None:
        world.grow(POOL)
        started(world, child("a", starts=["well", "exit", "exit", "well"]))
        world.end_and_await_next("a", "crash")
        assert world.lives("a", "pool") == (4, 1)

    @case("DynamicSupervisor: child triggers maximum restarts")
    def test_one_restart_too_many_ends_the_pool_abnormally(self, world: World) -> None:
        world.grow(dynamic_supervisor_spec("pool", max_restarts=1, max_seconds=1000.0))
        started(world, child("a"))
        world.end_and_await_next("a", "crash")
        world.end("a", "crash")
        world.until(lambda: world.lives("pool") == (2,), "the pool was restarted")
        world.until(lambda: "gave up: child 'a' failed once more" in world.row("pool").last_reason, "and why")

    @case("DynamicSupervisor: child triggers maximum intensity when trying again")
    def test_one_failed_restart_too_many_ends_the_pool_abnormally(self, world: World) -> None:
        world.grow(dynamic_supervisor_spec("pool", max_restarts=10, max_seconds=1000.0))
        started(world, child("a", starts=["well", "exit"]))
        world.end("a", "crash")
        world.until(lambda: world.lives("pool") == (2,), "the pool was restarted")
        assert world.lives("a") == (11,), "the first start and ten restarts"


class TestDynamicStop:
    @case("DynamicSupervisor: terminate: brutal kill")
    def test_children_of_a_pool_with_no_time_to_stop_are_killed_with_it(self, world: World) -> None:
        world.grow(POOL)
        started(world, *(child(id_, shutdown_s=0.0) for id_ in "abc"))
        assert world.stop() == ""
        assert world.story("stops") == []
        assert not any(world.is_alive(id_) for id_ in "abc")

    @case(
        "DynamicSupervisor: terminate: infinity", "DynamicSupervisor: terminate: infinity + abnormal reason"
    )
    @pytest.mark.parametrize("stop", [0.2, "crash"])
    def test_children_of_a_pool_that_may_take_for_ever_are_waited_for(
        self, world: World, stop: str | float
    ) -> None:
        world.grow(POOL)
        started(world, *(child(id_, stop=stop, shutdown_s=math.inf) for id_ in "abc"))
        assert world.stop() == ""
        assert sorted(world.story("stops")) == ["a stops", "b stops", "c stops"]
        failed = sorted(who for who, _ in world.reported("shutdown_error", "pool"))
        assert failed == (["a", "b", "c"] if stop == "crash" else [])

    @case("DynamicSupervisor: terminate: integer", "DynamicSupervisor: terminate: integer + abnormal reason")
    @pytest.mark.parametrize("stop", ["well", "exit"])
    def test_children_of_a_pool_that_stop_in_time_are_not_killed(self, world: World, stop: str) -> None:
        world.grow(POOL)
        started(world, *(child(id_, stop=stop) for id_ in "abc"))
        assert world.stop() == ""
        reasons = {why for _, why in world.reported("shutdown_error", "pool")}
        assert reasons == ({"exit code 3"} if stop == "exit" else set())

    @case("DynamicSupervisor: terminate: expired integer")
    def test_children_of_a_pool_that_do_not_stop_in_time_are_killed_at_the_same_time(
        self, world: World
    ) -> None:
        world.grow(dynamic_supervisor_spec("pool", max_restarts=0))
        started(world, *(child(id_, stop="never", shutdown_s=0.2) for id_ in "abc"))
        assert world.stop() == ""
        assert dict(world.reported("shutdown_error", "pool")) == dict.fromkeys(
            "abc", "killed: did not stop within 0.2 s"
        )

    @case("DynamicSupervisor: terminate: permanent + normal reason")
    def test_a_permanent_child_that_ends_normally_while_its_pool_stops_is_no_failure(
        self, world: World
    ) -> None:
        world.grow(POOL)
        started(world, *(child(id_) for id_ in "abc"))
        for id_ in "abc":
            world.end(id_, "normal")
        assert world.stop() == ""
        assert world.reported("shutdown_error", "pool") == []

    @case("DynamicSupervisor: terminate: mixed children")
    def test_children_with_all_kinds_of_times_to_stop_stop_at_the_same_time(self, world: World) -> None:
        world.grow(POOL)
        started(
            world,
            child("brutal", shutdown_s=0.0),
            child("for-ever", shutdown_s=math.inf),
            child("in-time", shutdown_s=20.0),
            child("late", stop="never", shutdown_s=0.3),
            child("fails", stop="exit", shutdown_s=20.0),
        )
        assert world.stop() == ""
        assert sorted(world.story("stopped")) == ["for-ever stopped", "in-time stopped"]
        assert dict(world.reported("shutdown_error", "pool")) == {
            "late": "killed: did not stop within 0.3 s",
            "fails": "exit code 3",
        }

    @case(
        "DynamicSupervisor: terminate_child: brutal kill",
        "DynamicSupervisor: terminate_child: integer",
        "DynamicSupervisor: with valid shutdown",
    )
    @pytest.mark.parametrize("shutdown_s", [0.0, 20.0])
    def test_one_child_of_a_pool_is_terminated_and_the_others_run_on(
        self, world: World, shutdown_s: float
    ) -> None:
        world.grow(POOL)
        started(world, *(child(id_, shutdown_s=shutdown_s) for id_ in "ab"))
        ok(world.call(TerminateChild(id="a"), "pool"))
        assert not world.is_alive("a")
        assert world.story("stops") == ["a stops"] * (shutdown_s > 0)
        assert world.call(TerminateChild(id="a"), "pool").reason == "not_found"
        assert world.lives("b") == (1,)

    @case("DynamicSupervisor: with invalid shutdown")
    def test_a_time_to_stop_that_is_none_is_refused(self, world: World) -> None:
        world.grow(POOL)
        for shutdown_s in (-1.0, math.nan, "brutal_kill", None):
            spec = {"id": "a", "actor": SUBJECT, "shutdown_s": shutdown_s}
            refused = world.call(StartChild(spec=spec), "pool")
            assert not refused.ok
            assert "shutdown_s" in refused.reason

    @case("DynamicSupervisor: terminate_child: terminates restarting child")
    def test_a_child_that_waits_for_its_restart_is_terminated_and_then_unknown(self, world: World) -> None:
        world.grow(dynamic_supervisor_spec("pool", max_restarts=10_000, max_seconds=1000.0))
        started(world, child("a", starts=["well", "exit"], backoff=SOON))
        world.end("a", "crash")
        world.until_state("a", "restarting", "pool")
        ok(world.call(TerminateChild(id="a"), "pool"))
        assert world.call(TerminateChild(id="a"), "pool").reason == "not_found"
        assert world.counts("pool").specs == 0

    def test_a_significant_child_that_is_dynamic_ends_its_pool(self, world: World) -> None:
        world.grow(dynamic_supervisor_spec("pool", auto_shutdown=AutoShutdown.ANY_SIGNIFICANT))
        started(world, child("a"), child("s", restart=Restart.TRANSIENT, significant=True))
        world.end("s", "normal")
        world.until(lambda: world.lives("pool") == (2,) and world.is_up("pool"), "the pool ended")
        assert world.story("stops") == ["a stops"]
