"""What a child spec may say, the wait before a restart, and the restart budget."""

import math
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import actors.timers
from actors.actor import Actor
from actors.codec import from_plain, to_plain
from supervision import management
from supervision.actions import Ended
from supervision.backoff import backoff_s
from supervision.budget import add_restart
from supervision.child_spec import (
    LONGEST_S,
    Backoff,
    Breaker,
    ChildSpec,
    Restart,
    Retirement,
    Strategy,
    SupervisorFlags,
    check_unique_ids,
)
from supervision.core import SupervisorCore
from supervision.errors import InvalidChildSpec
from supervision.run import worker
from supervision.spec_parsing import changed
from supervision.supervisor import dynamic_supervisor_spec, supervisor_args, supervisor_spec


class Word(str):
    """Text of a type of its own, as numpy has one."""


def spec(**changes: Any) -> ChildSpec:
    return ChildSpec(**({"id": "a", "actor": "module:Class"} | changes))


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"id": ""}, "id must be a name of at most 60 letters, digits and _ @ + - . :"),
        ({"id": "a~"}, "(it also names files), got 'a~'"),
        ({"id": "../a"}, "(it also names files), got '../a'"),
        ({"id": "a/b"}, "(it also names files), got 'a/b'"),
        (
            {"probe_every_s": math.inf},
            "child 'a': probe_every_s must be at least 0 and at most 1e+09, got inf",
        ),
        (
            {"restart": Restart.TEMPORARY, "retirement": Retirement(max_uses=1)},
            "child 'a': a temporary child is never started again, so it cannot be replaced",
        ),
        ({"actor": "module.Class"}, "actor must be 'module:Class', got 'module.Class'"),
        ({"actor": "a:b:c"}, "actor must be 'module:Class'"),
        ({"shutdown_s": -1.0}, "shutdown_s must be at least 0, got -1.0"),
        ({"start_deadline_s": 0.0}, "start_deadline_s must be positive, got 0.0"),
        ({"hang_deadline_s": -2.0}, "hang_deadline_s must be positive, got -2.0"),
        ({"significant": True}, "child 'a': significant must be false for a permanent child"),
        ({"shutdown_s": 1e11}, "shutdown_s must be at most 1e+09, or inf for ever, got 1"),
        ({"start_deadline_s": 1e11}, "start_deadline_s must be at most 1e+09, or inf"),
        ({"hang_deadline_s": 1e11}, "hang_deadline_s must be at most 1e+09, or inf for ever"),
        ({"probe_every_s": 1e11}, "child 'a': probe_every_s must be at least 0 and at most 1e+09, got 1"),
    ],
)
def test_a_child_spec_that_makes_no_sense_is_refused_by_field_and_value(
    changes: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(InvalidChildSpec) as refusal:
        spec(**changes)
    assert complaint in str(refusal.value)


@pytest.mark.parametrize("restart", [Restart.TRANSIENT, Restart.TEMPORARY])
def test_a_child_that_may_end_for_good_can_be_significant(restart: Restart) -> None:
    assert spec(restart=restart, significant=True).significant


def test_shutdown_0_is_a_brutal_kill_and_allowed() -> None:
    assert spec(shutdown_s=0.0).shutdown_s == 0


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"initial_s": -0.1}, "backoff.initial_s must be at least 0"),
        ({"factor": 0.5}, "backoff.factor must be from 1 to 1,000,000"),
        ({"initial_s": 5.0, "max_s": 1.0}, "backoff.max_s must be at least initial_s, got 1.0"),
        ({"jitter": 1.0}, "backoff.jitter must be in [0, 1), got 1.0"),
        ({"jitter": -0.1}, "backoff.jitter must be in [0, 1)"),
        ({"reset_after_s": 0.0}, "backoff.reset_after_s must be positive"),
        ({"max_s": 1e11}, "backoff.max_s must be at most 1e+09, got 1"),
        ({"max_s": math.inf}, "backoff.max_s must be at most 1e+09, got inf"),
    ],
)
def test_a_backoff_that_makes_no_sense_is_refused(fields: dict[str, float], complaint: str) -> None:
    with pytest.raises(InvalidChildSpec) as refusal:
        Backoff(**fields)
    assert complaint in str(refusal.value)


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"max_restarts": -1}, "max_restarts must be at least 0, got -1"),
        ({"max_seconds": 0.0}, "max_seconds must be positive, got 0.0"),
        ({"ordered": False, "strategy": Strategy.REST_FOR_ONE}, "rest_for_one needs ordered=true"),
    ],
)
def test_flags_that_make_no_sense_are_refused(fields: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidChildSpec) as refusal:
        SupervisorFlags(**fields)
    assert complaint in str(refusal.value)


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: spec(id=5), "child 5: id must be text, got 5"),
        (lambda: spec(actor=None), "child 'a': actor must be text, got None"),
        (lambda: spec(shutdown_s="5"), "child 'a': shutdown_s must be a number, got '5'"),
        (lambda: spec(hang_deadline_s=None), "child 'a': hang_deadline_s must be a number, got None"),
        (lambda: spec(restart="transient"), "child 'a': restart must be of type Restart, got 'transient'"),
        (lambda: spec(backoff=0.5), "child 'a': backoff must be of type Backoff, got 0.5"),
        (
            lambda: spec(breaker=True),
            "child 'a': breaker must be of type supervision.child_spec.Breaker | None",
        ),
        (lambda: spec(significant="yes"), "child 'a': significant must be true or false, got 'yes'"),
        (lambda: Backoff(initial_s="1"), "backoff.initial_s must be a number, got '1'"),  # type: ignore[arg-type]
        (lambda: Breaker(max_failures=2.5), "breaker.max_failures must be a whole number, got 2.5"),  # type: ignore[arg-type]
        (lambda: Retirement(max_uses=True), "retirement.max_uses must be a whole number, got True"),
        (lambda: SupervisorFlags(strategy="one_for_all"), "flag strategy must be of type Strategy, got 'one"),  # type: ignore[arg-type]
        (lambda: SupervisorFlags(max_seconds="60"), "supervisor flag max_seconds must be a number, got '60'"),  # type: ignore[arg-type]
    ],
)
def test_a_value_of_another_type_is_refused_by_field_and_value_where_it_is_written(
    make: Callable[[], object], complaint: str
) -> None:
    with pytest.raises(InvalidChildSpec) as refusal:
        make()
    assert complaint in str(refusal.value)


def test_a_whole_number_of_seconds_and_numpys_float_are_numbers() -> None:
    assert spec(shutdown_s=5, hang_deadline_s=np.float64(7.5)).hang_deadline_s == 7.5


def test_two_children_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidChildSpec, match="'a' is used twice"):
        check_unique_ids((spec(), spec(id="b"), spec()))


def test_a_spec_survives_the_way_to_another_process() -> None:
    original = spec(
        args={"config": {"a": [1, 2]}, "seed": 7},
        restart=Restart.TRANSIENT,
        significant=True,
        backoff=Backoff(initial_s=1.0, max_s=60.0),
    )
    assert from_plain(to_plain(original), ChildSpec) == original


def test_a_spec_that_makes_no_sense_is_refused_on_arrival_too() -> None:
    plain = to_plain(spec()) | {"hang_deadline_s": -1.0}
    with pytest.raises(Exception, match="hang_deadline_s"):
        from_plain(plain, ChildSpec)


def test_a_supervisor_is_given_the_time_its_children_need() -> None:
    children = (spec(id="a", shutdown_s=5.0, start_deadline_s=20.0), spec(id="b", shutdown_s=7.0))
    pool = supervisor_spec("pool", SupervisorFlags(), children)
    assert pool.shutdown_s > 5.0 + 7.0
    assert pool.start_deadline_s > 20.0 + 30.0
    assert pool.args == supervisor_args(SupervisorFlags(), children)
    assert supervisor_spec("pool", SupervisorFlags(), children, shutdown_s=3.0).shutdown_s == 3.0


def test_a_dynamic_supervisor_is_given_the_time_its_future_children_need() -> None:
    sessions = dynamic_supervisor_spec("sessions", shutdown_s=31.0, max_children=4)
    assert sessions.shutdown_s == 31.0
    assert dynamic_supervisor_spec("sessions").shutdown_s > spec().shutdown_s
    assert sessions.start_deadline_s == spec().start_deadline_s


# ---- backoff ----


@pytest.mark.parametrize(
    ("policy", "waits_s"),
    [
        (Backoff(), [0.0, 0.1, 0.2, 0.4, 0.8]),
        (Backoff(initial_s=1.0), [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]),
        (Backoff(initial_s=1.0, factor=3.0, max_s=10.0), [1.0, 3.0, 9.0, 10.0]),
        (Backoff(initial_s=2.0, factor=1.0), [2.0, 2.0, 2.0]),
        (Backoff(initial_s=0.0, max_s=0.0), [0.0, 0.0, 0.0]),
    ],
)
def test_waits_grow_by_the_factor_up_to_the_limit(policy: Backoff, waits_s: list[float]) -> None:
    waits = [backoff_s(policy, number, draw=0.5) for number in range(1, len(waits_s) + 1)]
    assert waits == pytest.approx(waits_s)


def test_jitter_spreads_a_wait_by_its_share_both_ways() -> None:
    policy = Backoff(initial_s=10.0, jitter=0.2)
    assert backoff_s(policy, 1, draw=0.0) == pytest.approx(8.0)
    assert backoff_s(policy, 1, draw=1.0) == pytest.approx(12.0)


def test_a_thousand_failures_in_a_row_still_wait_a_finite_time() -> None:
    assert backoff_s(Backoff(initial_s=1.0, factor=10.0), 1000, draw=0.5) == 30.0


# ---- budget ----


def spend(moments: list[float], max_restarts: int, max_seconds: float) -> list[bool]:
    window: tuple[float, ...] = ()
    verdicts = []
    for now_s in moments:
        window, holds = add_restart(window, now_s, max_restarts=max_restarts, max_seconds=max_seconds)
        verdicts.append(holds)
    return verdicts


@pytest.mark.parametrize(
    ("moments", "max_restarts", "verdicts"),
    [
        ([0.0], 0, [False]),
        ([0.0, 1.0, 2.0], 3, [True, True, True]),
        ([0.0, 1.0, 2.0, 3.0], 3, [True, True, True, False]),
        ([0.0, 1.0, 2.0, 5.0], 3, [True, True, True, False]),
        ([0.0, 1.0, 2.0, 5.001], 3, [True, True, True, True]),
        ([0.0, 10.0, 20.0, 30.0, 40.0], 1, [True] * 5),
        ([0.0, 0.0], 1, [True, False]),
    ],
)
def test_the_budget_holds_for_max_restarts_in_any_window(
    moments: list[float], max_restarts: int, verdicts: list[bool]
) -> None:
    assert spend(moments, max_restarts, 5.0) == verdicts


def test_the_budget_remembers_no_more_than_its_window() -> None:
    window: tuple[float, ...] = ()
    for now_s in range(1000):
        window, _ = add_restart(window, float(now_s), max_restarts=3, max_seconds=5.0)
    assert len(window) == 6


# ---- times that can be counted ----


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: Breaker(open_s=1e11), "breaker.open_s must be at most 1e+09, or inf for ever"),
        (lambda: Breaker(healthy_s=1e11), "breaker.healthy_s must be at most 1e+09, or inf"),
        (lambda: Retirement(max_age_s=1e11), "retirement.max_age_s must be at most 1e+09, or"),
        (lambda: Retirement(max_age_s=math.nan), "retirement.max_age_s must be positive"),
        (lambda: Retirement(max_uses=10**30), "retirement.max_uses must be at most 1,000,000,000, got 1"),
        (lambda: SupervisorFlags(max_restarts=10**30), "max_restarts must be at most 1,000,000,000, got"),
    ],
)
def test_a_number_that_nothing_can_count_to_is_refused_where_it_is_written(
    make: Callable[[], object], complaint: str
) -> None:
    with pytest.raises(InvalidChildSpec) as refusal:
        make()
    assert complaint in str(refusal.value)


def test_an_update_with_a_time_that_no_timer_can_count_is_refused_and_changes_nothing() -> None:
    core = SupervisorCore(SupervisorFlags(), (spec(),))
    with pytest.raises(InvalidChildSpec, match="hang_deadline_s"):
        management.update_child(core, "a", changed(spec(), {"hang_deadline_s": 1e11}), 0.0)
    assert core.children["a"].spec == spec()


def test_a_supervisor_of_children_with_the_longest_deadlines_is_a_spec_too() -> None:
    patient = tuple(spec(id=f"a{n}", shutdown_s=LONGEST_S, start_deadline_s=LONGEST_S) for n in range(16))
    pool = supervisor_spec("pool", SupervisorFlags(), patient)
    assert (pool.shutdown_s, pool.start_deadline_s) == (LONGEST_S, LONGEST_S)
    for_ever = supervisor_spec("pool", SupervisorFlags(), (spec(shutdown_s=math.inf),))
    assert for_ever.shutdown_s == math.inf


seconds = st.sampled_from([0.5, 1e9, 1e10, 1e300, math.inf, math.nan]) | st.floats(0.0, 1e9)


@given(
    *(seconds for _ in range(4)),
    st.builds(dict, initial_s=seconds, factor=st.sampled_from([1.0, 1e6]), max_s=seconds),
    st.builds(dict, open_s=seconds, healthy_s=seconds),
    st.integers(0, 60),
)
def test_what_a_spec_allows_a_timer_can_count(
    shutdown_s: float,
    start_deadline_s: float,
    hang_deadline_s: float,
    max_age_s: float,
    backoff: dict[str, float],
    breaker: dict[str, float],
    failures: int,
) -> None:
    try:
        allowed = spec(
            shutdown_s=shutdown_s,
            start_deadline_s=start_deadline_s,
            hang_deadline_s=hang_deadline_s,
            retirement=Retirement(max_age_s=max_age_s),
            backoff=Backoff(**backoff),
            breaker=Breaker(**breaker),
        )
    except InvalidChildSpec:
        return
    core = SupervisorCore(SupervisorFlags(ordered=False), (allowed,), draw=lambda: 0.999)
    core.children["a"].failures_in_row = failures
    for feed in (
        lambda: core.tick(0.0),
        lambda: core.ready("a", 1, 0.0),
        lambda: core.exited("a", 1, Ended("exit code 70"), 0.0),
    ):
        feed()
        assert core.next_wake_s() == math.inf or core.next_wake_s() <= actors.timers.LONGEST_S


# ---- mistakes that would be seen only in the child's process ----


class Painter(Actor):
    class Apprentice(Actor):
        pass


def test_the_launchers_name_is_no_name_for_a_child() -> None:
    with pytest.raises(InvalidChildSpec, match=r"id must not be 'launcher'.*; give the child another id"):
        spec(id="launcher")


@pytest.mark.parametrize("preload", ["numpy", True, (1,)])
def test_a_preload_that_is_no_tuple_of_names_is_refused(preload: Any) -> None:
    with pytest.raises(InvalidChildSpec) as refusal:
        spec(preload=preload)
    assert str(refusal.value) == (
        "child 'a': preload must be a tuple of module names, as in ('numpy',), " + f"got {preload!r}"
    )


@pytest.mark.parametrize(
    ("args", "where"),
    [({1: "one"}, "args"), ({"sizes": {2: 3}}, "args['sizes']"), ({"a": [0, {None: 1}]}, "args['a'][1]")],
)
def test_args_whose_keys_are_no_text_are_refused(args: Any, where: str) -> None:
    with pytest.raises(InvalidChildSpec) as refusal:
        spec(args=args)
    complaint = str(refusal.value)
    assert complaint.startswith(f"child 'a': {where} must have text for keys")
    assert "write the keys as text" in complaint


@pytest.mark.parametrize(
    ("args", "begins"),
    [
        ({"home": Path("here")}, "args['home'] must be plain data, got PosixPath('here') of type PosixPath"),
        ({"a": [0, {"b": print}]}, "args['a'][1]['b'] must be plain data, got <built-in function print>"),
        ({"a": MappingProxyType({"b": 1})}, "args['a'] must be plain data, got mappingproxy({'b': 1})"),
        ({"a": Word("x")}, "args['a'] must be plain data, got 'x' of type Word"),
    ],
)
def test_args_that_are_no_plain_data_are_refused_by_name(args: Any, begins: str) -> None:
    with pytest.raises(InvalidChildSpec) as refusal:
        spec(args=args)
    complaint = str(refusal.value)
    assert complaint.startswith(f"child 'a': {begins}")
    assert "make the object from them in on_start" in complaint


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1])
def test_a_whole_number_that_mail_cannot_carry_is_refused_by_name(number: int) -> None:
    with pytest.raises(InvalidChildSpec) as refusal:
        spec(args={"seeds": [0, number]})
    assert str(refusal.value) == (
        f"child 'a': args['seeds'][1] must be a whole number of 64 bits; write larger ones as text, "
        f"got {number}"
    )


def test_the_largest_and_the_smallest_whole_number_that_mail_can_carry_are_taken() -> None:
    numbers = {"seeds": [2**64 - 1, -(2**63)]}
    assert spec(args=numbers).args == numbers


def test_a_worker_that_is_no_actor_is_refused() -> None:
    with pytest.raises(InvalidChildSpec, match=r"child 'a': actor must be a subclass of Actor.*got .*Path"):
        worker("a", Path)  # type: ignore[type-var]


def test_a_worker_that_another_process_cannot_import_is_refused() -> None:
    class Local(Actor):
        pass

    for actor in (Painter.Apprentice, Local):
        with pytest.raises(InvalidChildSpec) as refusal:
            worker("a", actor)
        assert str(refusal.value) == (
            f"child 'a': actor {actor.__qualname__!r} is defined inside a class or function, where a new "
            "process cannot import it; move it to the top of its module"
        )
