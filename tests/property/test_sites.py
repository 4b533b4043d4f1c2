"""Any machine: a shortest path reaches its goal, and no shorter one does; any task has a solution."""

from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from dart.environments.sites.machine import (
    Add,
    Assign,
    Effect,
    Element,
    Goal,
    Kind,
    Machine,
    RecordGuard,
    SiteRecord,
    SiteState,
    Toggle,
)
from dart.environments.sites.tasks import task_ids, task_of
from tests.examples import examples

SCREENS, RECORDS = ("a", "b", "c", "d"), ("x", "y", "z")

effects: st.SearchStrategy[Effect] = st.one_of(
    st.builds(Assign, st.sampled_from(RECORDS), st.integers(0, 2)),
    st.builds(Toggle, st.sampled_from(RECORDS)),
    st.builds(Add, st.sampled_from(RECORDS), st.just(1)),
)
guards = st.builds(
    RecordGuard,
    st.sampled_from(RECORDS),
    st.sampled_from(("is", "is not", "above", "below")),
    st.integers(0, 2),
)
elements = st.builds(
    Element,
    st.just(Kind.LINK),
    st.just("one"),
    st.sampled_from(("", *SCREENS)),
    st.lists(effects, max_size=2).map(tuple),
    st.lists(guards, max_size=2).map(tuple),
)
machines = st.builds(
    Machine,
    st.fixed_dictionaries({screen: st.lists(elements, max_size=4).map(tuple) for screen in SCREENS}),
    st.just({record: SiteRecord(0) for record in RECORDS}),
    st.just("a"),
)
goals = st.builds(
    Goal,
    st.sampled_from(("", *SCREENS)),
    st.dictionaries(st.sampled_from(RECORDS), st.integers(0, 2), max_size=2).map(
        lambda one: tuple(one.items())
    ),
    st.booleans(),
)

DEPTH = 5
"""How many transitions the search without any idea looks at."""


def reached_after(machine: Machine, goal: Goal) -> int | None:
    """Return how many transitions the goal takes, found by trying all of them; None if more than `DEPTH`."""
    states = {machine.start}
    for depth in range(DEPTH + 1):
        if any(machine.is_reached(goal, state) for state in states):
            return depth
        states = {after for state in states for after in after_one(machine, state)}
    return None


def after_one(machine: Machine, state: SiteState) -> Iterator[SiteState]:
    return (after for _, after in machine.successors(state))


@settings(deadline=None, max_examples=examples(100))
@given(machine=machines, goal=goals)
def test_a_shortest_path_is_as_long_as_that_of_a_search_that_ignores_nothing(
    machine: Machine, goal: Goal
) -> None:
    # Quantities can grow without end; a goal far away is none of this test.
    least = reached_after(machine, goal)
    if least is None:
        return
    path = machine.shortest_path(machine.start, goal)
    assert path is not None
    state = machine.start
    for act in path:
        state = machine.fire(state, act)
    assert machine.is_reached(goal, state)
    assert len(path) == least


@settings(deadline=None, max_examples=examples(30))
@given(
    task_id=st.sampled_from([one for one in task_ids() if not one.endswith("/explore")]),
    seed=st.integers(0, 2_999_999),
)
def test_any_task_is_solved_by_its_solution(task_id: str, seed: int) -> None:
    task = task_of(task_id, seed)
    state = task.site.machine.start
    assert task.goal is not None
    for act in task.solution:
        state = task.site.machine.fire(state, act)
    assert task.site.machine.is_reached(task.goal, state)
    assert task == task_of(task_id, seed)
