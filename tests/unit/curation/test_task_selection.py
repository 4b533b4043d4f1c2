"""Tasks get their share, seeds come once, and a restart changes nothing."""

from collections import Counter

import pytest

from dart.curation.task_selection import next_seed, turn

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
