"""Waits between restarts decide when a budget is spent, never whether it is."""

from hypothesis import given, settings
from hypothesis import strategies as st

from supervision.actions import Ended
from supervision.child_spec import Backoff, ChildSpec, SupervisorFlags
from supervision.core import SupervisorCore
from tests.examples import examples

WINDOW_S = 5.05
NO_BACKOFF = Backoff(max_s=0.0)

runs_s = st.lists(st.sampled_from([0.0, 0.0, 0.1, 0.7, 2.0, 6.0]), min_size=1, max_size=40)
"""How long a child runs before each of its failures; no sum of them is the window to the last digit."""


@st.composite
def backoffs(draw: st.DrawFn) -> Backoff:
    initial_s = draw(st.sampled_from([0.0, 0.01, 1.0, 10.0]))
    return Backoff(
        initial_s=initial_s,
        factor=draw(st.sampled_from([1.0, 2.0, 10.0])),
        max_s=initial_s + draw(st.sampled_from([0.0, 1.0, 30.0, 3600.0])),
        jitter=draw(st.sampled_from([0.0, 0.2, 0.9])),
        reset_after_s=draw(st.sampled_from([0.5, 60.0])),
    )


def failures_survived(backoff: Backoff, runs_s: list[float], max_restarts: int, draws: list[float]) -> int:
    """How often a child is started again before its supervisor gives up."""
    left = list(draws)
    flags = SupervisorFlags(max_restarts=max_restarts, max_seconds=WINDOW_S)
    core = SupervisorCore(flags, (_child("a", backoff),), draw=lambda: left.pop() if left else 0.5)
    core.tick(0.0)
    now_s = 0.0
    for number, run_s in enumerate(runs_s):
        now_s = _fails_once_more(core, "a", now_s, run_s)
        if core.finishing is not None:
            return number
    return len(runs_s)


@settings(max_examples=examples(200), deadline=None)
@given(backoffs(), runs_s, st.integers(0, 12), st.lists(st.floats(0.0, 0.999), max_size=40))
def test_a_child_is_given_up_at_the_same_failure_with_any_backoff_and_with_none(
    backoff: Backoff, runs_s: list[float], max_restarts: int, draws: list[float]
) -> None:
    with_waits = failures_survived(backoff, runs_s, max_restarts, draws)
    assert with_waits == failures_survived(NO_BACKOFF, runs_s, max_restarts, [])


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(backoffs(), min_size=1, max_size=6), st.integers(0, 30))
def test_however_many_children_fail_at_once_their_supervisor_gives_up_at_the_promised_failure(
    waits: list[Backoff], max_restarts: int
) -> None:
    flags = SupervisorFlags(max_restarts=max_restarts, max_seconds=WINDOW_S, ordered=False)
    children = tuple(_child(f"child-{number}", backoff) for number, backoff in enumerate(waits))
    core = SupervisorCore(flags, children, draw=lambda: 0.5)
    core.tick(0.0)
    now_s, failures = 0.0, 0
    while core.finishing is None and failures < 100:
        next_one = min(core.children.values(), key=lambda child: child.start_at_s)
        now_s = _fails_once_more(core, next_one.spec.id, now_s, run_s=0.0)
        failures += 1
    assert failures == max_restarts + 1


def _child(id_: str, backoff: Backoff) -> ChildSpec:
    return ChildSpec(id=id_, actor="module:Class", backoff=backoff)


def _fails_once_more(core: SupervisorCore, id_: str, now_s: float, run_s: float) -> float:
    """Started after its wait, up for so long, then gone; the moment of that."""
    child = core.children[id_]
    now_s = max(now_s, child.start_at_s)
    core.tick(now_s)
    core.ready(id_, child.incarnation, now_s)
    core.exited(id_, child.incarnation, Ended("exit code 70"), now_s + run_s)
    return now_s + run_s
