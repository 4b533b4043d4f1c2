"""Tasks get their share, seeds come once, and a restart changes nothing."""

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dart.curation.task_selection import (
    ByExpectedSpread,
    RoundRobin,
    TaskOrder,
    expected_spread,
    next_seed,
    turn,
)

TASKS = ("click-test", "login-user", "use-spinner")


def choose(count: int, order_seed: int = 0) -> list[str]:
    opened: Counter[str] = Counter()
    order = []
    for _ in range(count):
        turns = {task: turn(task, opened[task], order_seed) for task in TASKS}
        order.append(min(TASKS, key=lambda task: turns[task]))
        opened[order[-1]] += 1
    return order


@pytest.mark.parametrize("count", [1, 2, 3, 7, 30, 100])
def test_no_task_is_more_than_one_group_ahead_of_another(count: int) -> None:
    shares = Counter(choose(count))
    assert max(shares.values()) - min(shares[task] for task in TASKS) <= 1


def in_turn(order: TaskOrder, opened: Counter[str], allowed: Sequence[str], count: int) -> list[str]:
    """The tasks of so many groups, of which only `allowed` may have one; `opened` is kept up to date."""
    found: list[str] = []
    for task in TASKS:
        order.place(task, opened[task], 0.5, is_allowed=task in allowed)
    for _ in range(count):
        task_id = order.first()
        assert task_id is not None
        opened[task_id] += 1
        order.place(task_id, opened[task_id], 0.5, is_allowed=True)
        found.append(task_id)
    return found


def most_ahead(order: Sequence[str]) -> int:
    """By how many groups a task was ahead of another at most, counted from the first of these groups."""
    shares = [Counter(order[:count]) for count in range(1, len(order) + 1)]
    return max(max(share.values()) - min(share[task] for task in TASKS) for share in shares)


def test_a_task_that_comes_back_catches_up_nothing() -> None:
    order, opened = RoundRobin(TASKS, 0), Counter[str]()
    in_turn(order, opened, TASKS, 30)
    in_turn(order, opened, TASKS[1:], 600)
    assert most_ahead(in_turn(order, opened, TASKS, 90)) <= 2


@pytest.mark.parametrize("is_chosen_between", [True, False])
def test_a_task_that_is_quarantined_before_it_had_a_turn_gets_none(is_chosen_between: bool) -> None:
    order = RoundRobin(TASKS, 0)
    order.place(TASKS[0], 0, 0.5, is_allowed=True)
    if is_chosen_between:
        assert order.first() == TASKS[0]
    order.place(TASKS[0], 0, 0.5, is_allowed=False)
    assert order.first() is None


def test_a_task_that_was_played_alone_does_not_wait_for_those_that_come_back() -> None:
    order, opened = RoundRobin(TASKS, 0), Counter[str]()
    in_turn(order, opened, TASKS[:1], 300)
    in_turn(order, opened, TASKS[1:], 10)
    assert most_ahead(in_turn(order, opened, TASKS, 90)) <= 2


@pytest.mark.parametrize("new", TASKS)
def test_a_new_task_of_a_continued_run_catches_up_nothing(new: str) -> None:
    opened = Counter({task: 300 for task in TASKS if task != new})
    assert most_ahead(in_turn(RoundRobin(TASKS, 0), opened, TASKS, 90)) <= 2


def test_a_restarted_round_robin_continues_in_the_same_order() -> None:
    whole = in_turn(RoundRobin(TASKS, 0), Counter(), TASKS, 50)
    assert in_turn(RoundRobin(TASKS, 0), Counter(whole[:20]), TASKS, 30) == whole[20:]


def test_the_order_within_a_round_changes() -> None:
    order = choose(60)
    assert len({tuple(order[start : start + 3]) for start in range(0, 60, 3)}) > 1


def test_the_same_seed_makes_the_same_choices_and_another_seed_others() -> None:
    assert choose(30, order_seed=5) == choose(30, order_seed=5)
    assert choose(30, order_seed=5) != choose(30, order_seed=6)


@pytest.mark.parametrize("count", [1, 2, 12, 97, 100])
def test_every_seed_comes_once_before_any_comes_again(count: int) -> None:
    seeds = range(1000, 1000 + count)
    order = [next_seed("click-test", opened, seeds, 0) for opened in range(2 * count)]
    assert sorted(order[:count]) == sorted(order[count:]) == list(seeds)


def test_tasks_walk_the_seeds_differently() -> None:
    walks = {tuple(next_seed(task, opened, range(1000), 0) for opened in range(5)) for task in TASKS}
    assert len(walks) == len(TASKS)


def by_spread(spreads: dict[str, float], count: int, order: ByExpectedSpread | None = None) -> list[str]:
    """The tasks of so many groups, each of which is opened before the next is chosen."""
    order = order or ByExpectedSpread(tuple(spreads), 0)
    opened: Counter[str] = Counter()
    found: list[str] = []
    for _ in range(count):
        for task, spread in spreads.items():
            order.place(task, opened[task], spread, is_allowed=True)
        task = order.first()
        assert task is not None
        opened[task] += 1
        found.append(task)
    return found


def test_tasks_get_groups_in_proportion_to_their_expected_spread_evenly_over_time() -> None:
    order = by_spread({"solved": 0.25, "half": 1.0, "hard": 0.75}, 400)
    for start in range(0, 400, 40):
        shares = Counter(order[start : start + 40])
        assert abs(shares["solved"] - 5) <= 2
        assert abs(shares["half"] - 20) <= 2


def test_a_task_without_expected_spread_is_still_played() -> None:
    shares = Counter(by_spread({"solved": 0.0, "half": 1.0}, 110))
    assert 8 <= shares["solved"] <= 12


def test_a_task_that_may_have_no_group_gets_none() -> None:
    order = ByExpectedSpread(("a", "b"), 0)
    assert order.first() is None
    order.place("a", 3, 0.5, is_allowed=False)
    order.place("b", 0, 0.5, is_allowed=True)
    assert order.first() == "b"


@given(
    spreads=st.lists(st.sampled_from((0.0, 0.1, 0.5, 1.0)), min_size=1, max_size=40),
    fraction=st.floats(0, 1, exclude_max=True),
)
def test_a_task_is_found_at_its_share_of_all_weight(spreads: list[float], fraction: float) -> None:
    order = ByExpectedSpread([str(number) for number in range(len(spreads))], 0)
    order._start = fraction
    for number, spread in enumerate(spreads):
        order.place(str(number), 0, spread, is_allowed=spread > 0)
    found = order.first()
    if not any(spreads):
        assert found is None
        return
    assert found is not None
    assert spreads[int(found)] > 0
    point, before = fraction * sum(spreads), sum(spreads[: int(found)])
    assert before - 1e-9 <= point <= before + spreads[int(found)] + 1e-9


def test_a_restarted_order_goes_on_where_the_last_one_stopped() -> None:
    spreads = {"a": 0.3, "b": 0.9, "c": 0.5}
    whole = by_spread(spreads, 50)
    opened, restarted = Counter(whole[:20]), ByExpectedSpread(tuple(spreads), 0)
    for task in ("c", "a", "b"):
        restarted.place(task, opened[task], spreads[task], is_allowed=True)
    assert restarted.first() == whole[20]


@pytest.mark.parametrize(
    ("successes", "episodes", "rollouts", "expected"),
    [(0, 0, 8, 1 - 2 * 0.5**8), (30, 30, 8, 0.224), (0, 30, 8, 0.224), (15, 30, 2, 0.5)],
)
def test_groups_of_tasks_that_are_solved_or_hopeless_will_hardly_have_spread(
    successes: int, episodes: int, rollouts: int, expected: float
) -> None:
    rewards = [1.0] * successes + [0.0] * (episodes - successes)
    assert expected_spread(rewards, rollouts) == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize(
    "rewards", [[0.73, 0.81, 0.9] * 10, [0.1, 0.2, 0.3] * 10, [n / 32 for n in range(32)]]
)
def test_rewards_that_differ_count_as_spread_whether_they_are_successes_or_not(rewards: list[float]) -> None:
    assert expected_spread(rewards, 8) >= expected_spread([0.0, 1.0] * 15, 8)


def test_rewards_that_count_as_equal_in_a_group_are_no_expected_spread() -> None:
    assert expected_spread([n * 1e-9 for n in range(30)], 8) == expected_spread([0.0] * 30, 8)
