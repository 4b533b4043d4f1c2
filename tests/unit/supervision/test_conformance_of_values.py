"""Cases of OTP's and Elixir's suites about values: what a spec may say, defaults, what is remembered."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from actors.errors import MalformedMessage
from actors.testing import InMemorySystem
from supervision.child_spec import (
    AutoShutdown,
    Breaker,
    ChildSpec,
    ChildType,
    Restart,
    Strategy,
    SupervisorFlags,
    check_fits,
)
from supervision.errors import InvalidChildSpec
from supervision.messages import TerminateChild, start_child
from supervision.spec_parsing import changed, parse
from supervision.supervisor import Supervisor, dynamic_supervisor_spec, supervisor_args, supervisor_spec
from tests.conformance.world import SUBJECT, BenchWorld, case, child


@pytest.fixture
def world(tmp_path: Path) -> Iterator[BenchWorld]:
    world = BenchWorld(tmp_path)
    yield world
    world.close()


def plain(**fields: Any) -> dict[str, Any]:
    return {"id": "a", "actor": SUBJECT} | fields


@case("sup_start_map", "sup_start_map_simple")
def test_what_a_spec_leaves_out_has_otps_default() -> None:
    spec = parse(plain(), ChildSpec)
    assert (spec.restart, spec.type, spec.shutdown_s, spec.significant) == (
        Restart.PERMANENT,
        ChildType.WORKER,
        5.0,
        False,
    )


@case("sup_start_map_faulty_specs", "child_specs", "child_specs_map")
@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"id": 7}, "$.id"),
        ({"actor": 7}, "$.actor"),
        ({"actor": "no_class"}, "actor must be 'module:Class', got 'no_class'"),
        ({"args": 7}, "$.args"),
        ({"restart": "sometimes"}, "'sometimes' - at `$.restart`"),
        ({"significant": "yes"}, "$.significant"),
        ({"shutdown_s": -1.0}, "shutdown_s must be at least 0, got -1.0"),
        ({"shutdown_s": "infinity"}, "$.shutdown_s"),
        ({"type": "gardener"}, "'gardener' - at `$.type`"),
        ({"significant": True}, "significant must be false for a permanent child"),
        ({"shutdwn_s": 1.0}, "'shutdwn_s' is no field of ChildSpec; did you mean 'shutdown_s'?"),
        ({"modules": []}, "'modules' is no field of ChildSpec"),
    ],
)
def test_a_spec_is_refused_by_the_field_that_is_wrong(fields: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidChildSpec) as refusal:
        parse(plain(**fields), ChildSpec)
    assert complaint in str(refusal.value)


@case("sup_start_map_faulty_specs")
@pytest.mark.parametrize("missing", ["id", "actor"])
def test_a_spec_without_id_or_actor_is_refused(missing: str) -> None:
    with pytest.raises(InvalidChildSpec, match=f"missing required field `{missing}`"):
        parse({key: value for key, value in plain().items() if key != missing}, ChildSpec)


@case("child_specs_map")
@pytest.mark.parametrize("auto_shutdown", AutoShutdown)
def test_a_significant_child_needs_a_supervisor_that_ends_with_it(auto_shutdown: AutoShutdown) -> None:
    spec = child("a", restart=Restart.TRANSIENT, significant=True)
    flags = SupervisorFlags(auto_shutdown=auto_shutdown)
    if auto_shutdown is not AutoShutdown.NEVER:
        check_fits(spec, flags)
        return
    with pytest.raises(InvalidChildSpec, match="auto_shutdown is never"):
        check_fits(spec, flags)


@case("sup_flags")
@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"strategy": "none_for_all"}, "'none_for_all' - at `$.strategy`"),
        ({"max_restarts": -1}, "max_restarts must be at least 0, got -1"),
        ({"max_restarts": "many"}, "$.max_restarts"),
        ({"max_seconds": 0.0}, "max_seconds must be positive, got 0.0"),
        ({"max_seconds": "long"}, "$.max_seconds"),
        ({"auto_shutdown": "sometimes"}, "'sometimes' - at `$.auto_shutdown`"),
        ({"max_children": -1}, "max_children must be at least 0, got -1"),
        ({"intensity": 3}, "'intensity' is no field of SupervisorFlags"),
    ],
)
def test_flags_are_refused_by_the_field_that_is_wrong(fields: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidChildSpec) as refusal:
        parse(fields, SupervisorFlags)
    assert complaint in str(refusal.value)


@case("sup_start_error_return", "DynamicSupervisor: start_link: with non-ok init")
def test_a_supervisor_whose_flags_make_no_sense_does_not_start(tmp_path: Path) -> None:
    with InMemorySystem(tmp_path, live_children=True) as bench:
        args = supervisor_args(SupervisorFlags(), (child("a"),))
        with pytest.raises(MalformedMessage, match="sideways"):
            bench.start(Supervisor, "root", {**args, "flags": {"strategy": "sideways"}})
        assert not bench.is_alive("root")


@case("Supervisor: init/2", "DynamicSupervisor: init set default options")
def test_flags_have_elixirs_defaults() -> None:
    flags = SupervisorFlags()
    assert (flags.strategy, flags.max_restarts, flags.max_seconds) == (Strategy.ONE_FOR_ONE, 3, 5.0)
    assert (flags.auto_shutdown, flags.max_children) == (AutoShutdown.NEVER, 0)
    pool = parse(dynamic_supervisor_spec("pool").args["flags"], SupervisorFlags)
    assert (pool.strategy, pool.max_restarts, pool.max_seconds, pool.max_children) == (
        Strategy.ONE_FOR_ONE,
        3,
        5.0,
        0,
    )


@case("Supervisor: generates child_spec/1", "DynamicSupervisor: generates child_spec/1")
@pytest.mark.parametrize("spec", [supervisor_spec("sup", SupervisorFlags()), dynamic_supervisor_spec("sup")])
def test_a_supervisor_is_a_child_like_any_other(spec: ChildSpec) -> None:
    assert (spec.id, spec.type, spec.restart) == ("sup", ChildType.SUPERVISOR, Restart.PERMANENT)
    assert spec.actor == "supervision.supervisor:Supervisor"


@case("Supervisor: child_spec/2")
def test_a_spec_is_changed_field_by_field_with_helpful_errors() -> None:
    spec = child("a", shutdown_s=3.0)
    changes = {"restart": "transient", "breaker": {"max_failures": 2}}
    assert changed(spec, changes) == child(
        "a", shutdown_s=3.0, restart=Restart.TRANSIENT, breaker=changed(spec, changes).breaker
    )
    with pytest.raises(InvalidChildSpec, match=r"'breaker.max_failure' is no field of Breaker; did you mean"):
        changed(spec, {"breaker": {"max_failure": 2}})


@case(
    "do_not_save_start_parameters_for_temporary_children",
    "do_not_save_child_specs_for_temporary_children",
    "simple_one_for_one_scale_many_temporary_children",
    "scale_start_stop_many_children",
)
@pytest.mark.parametrize("is_dynamic", [False, True])
def test_of_hundreds_of_temporary_children_nothing_is_remembered(world: BenchWorld, is_dynamic: bool) -> None:
    world.grow(dynamic_supervisor_spec("pool") if is_dynamic else supervisor_spec("pool", SupervisorFlags()))
    for round_ in range(5):
        names = [f"t{number}" for number in range(40)]
        for name in names:
            assert world.call(start_child(child(name, restart=Restart.TEMPORARY)), "pool").ok
        assert world.lives(*names) == (round_ + 1,) * len(names)
        for name in names[:20]:
            world.end(name, "normal")
        for name in names[20:]:
            assert world.call(TerminateChild(id=name), "pool").ok
        world.until(lambda: world.counts("pool").specs == 0, "all are gone")
    pool = world.bench.actor("pool")
    assert (pool._core.children, pool._deaths, pool._starts, pool._ends, pool._processes._held) == ({},) * 5
    assert len(world.bench.board.rows()) == len(names) + 3, "names are used again"


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"budgets": {"crash": {"max_restart": 1}}}, "'budgets.crash.max_restart' is no field of Budget"),
        ({"budgets": {"crash": 7}}, "$.budgets"),
        ({"budgets": 7}, "$.budgets"),
        ({"budgets": {"boredom": {"max_restarts": 1, "max_seconds": 1.0}}}, "'boredom'"),
        ({"retirement": {"max_agee_s": 1.0}}, "did you mean 'retirement.max_age_s'?"),
        ({"preemptions": {"max_restart": 1}}, "did you mean 'preemptions.max_restarts'?"),
        ({"colour": "red"}, "known are "),
    ],
)
def test_policies_are_refused_by_the_field_that_is_wrong(fields: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidChildSpec) as refusal:
        parse(plain(**fields), ChildSpec)
    assert complaint in str(refusal.value)


def test_a_breaker_needs_siblings_that_can_do_without_the_child() -> None:
    for strategy in (Strategy.ONE_FOR_ALL, Strategy.REST_FOR_ONE):
        with pytest.raises(InvalidChildSpec, match="a breaker needs strategy one_for_one"):
            check_fits(child("a", breaker=Breaker()), SupervisorFlags(strategy=strategy))
