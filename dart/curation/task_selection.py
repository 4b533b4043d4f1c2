"""Selection of the task and the seed of the next group.

There are two orders of tasks. Both follow from the record (the number of groups of each task, and its latest
rewards), so a restarted curator continues where the earlier one stopped:

* `RoundRobin`: the task with the fewest groups is next. Of the tasks that may have a group, none is ever more
  than one group ahead of another. What a task missed while it was not played is not counted. After a restart
  such a task may get one group more than without the restart.
* `ByExpectedSpread`: each task gets groups in proportion to the probability that the rewards of its next
  group differ. A group of equal rewards is dropped after it was played. So with round robin, tasks that are
  solved or hopeless cost as much as others and teach nothing. Foster et al. choose prompts by a similar
  measure (arXiv 2502.12272).
"""

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Sequence
from itertools import accumulate
from random import Random
from typing import Protocol

from dart.curation.indexed_heap import IndexedHeap

LEAST_WEIGHT = 0.1
"""Smallest weight of a task in `ByExpectedSpread`; 1 is the weight of a task whose next group certainly has
spread. So a task without spread is still played now and then, and a change is noticed."""

EQUAL_DIGITS = 6
"""Number of decimals to which rewards are compared (as by `dart.curation.groups.SPREAD`)."""

GOLDEN = (math.sqrt(5) - 1) / 2
"""The golden ratio minus 1. Its first n multiples, modulo 1, are spread evenly over [0, 1) for every n."""


class TaskOrder(Protocol):
    """Decides which of the tasks that may have a group gets the next one."""

    def place(self, task_id: str, opened: int, spread: float, *, is_allowed: bool) -> None:
        """Update what is known of a task.

        opened       number of groups that the task has had
        spread       probability that the rewards of its next group differ
        is_allowed   whether the task may have a group now
        """

    def first(self) -> str | None:
        """Return the task of the next group; None if no task may have one."""


class RoundRobin:
    """The task with the fewest groups is next. Tasks with equally many groups are in random order.

    A new task, and one that becomes allowed again, joins the round that the others are in. If it caught up,
    whole updates would contain no other task.
    """

    def __init__(self, tasks: Sequence[str], order_seed: int) -> None:
        self._position = {name: position for position, name in enumerate(tasks)}
        self._order_seed = order_seed
        self._turns: IndexedHeap[str] = IndexedHeap()
        self._added = dict.fromkeys(tasks, 0)
        """What is added to the number of groups of each task."""
        self._joining: dict[str, int] = {}
        """The tasks that became allowed after the last choice, each with its number of groups."""

    def place(self, task_id: str, opened: int, spread: float, *, is_allowed: bool) -> None:
        if not is_allowed:
            self._turns.discard(task_id)
            self._joining.pop(task_id, None)
        elif task_id in self._turns:
            self._set_turn(task_id, opened)
        else:
            self._joining[task_id] = opened

    def first(self) -> str | None:
        if self._joining:
            self._join()
        return self._turns.first()

    def _join(self) -> None:
        """Give each joining task a turn in the present round or in the next one."""
        counted = {task_id: opened + self._added[task_id] for task_id, opened in self._joining.items()}
        leader = self._turns.first()
        rank = None if leader is None else self._turns.rank(leader)
        present = max(counted.values()) - 1 if rank is None else rank[0]
        for task_id, opened in self._joining.items():
            self._added[task_id] += min(max(counted[task_id], present), present + 1) - counted[task_id]
            self._set_turn(task_id, opened)
        self._joining.clear()

    def _set_turn(self, task_id: str, opened: int) -> None:
        rank = turn(task_id, opened + self._added[task_id], self._order_seed)
        self._turns.put(task_id, (*rank, self._position[task_id]))


class ByExpectedSpread:
    """Tasks get groups in proportion to the probability that their next group has spread, evenly over
    time."""

    def __init__(self, tasks: Sequence[str], order_seed: int) -> None:
        self._tasks = tuple(tasks)
        self._position = {name: position for position, name in enumerate(tasks)}
        self._start = Random(f"{order_seed}/by expected spread").random()
        self._opened = [0] * len(self._tasks)
        self._all_opened = 0
        self._weights = [0.0] * len(self._tasks)

    def place(self, task_id: str, opened: int, spread: float, *, is_allowed: bool) -> None:
        position = self._position[task_id]
        self._all_opened += opened - self._opened[position]
        self._opened[position] = opened
        self._weights[position] = max(LEAST_WEIGHT, spread) if is_allowed else 0.0

    def first(self) -> str | None:
        if not any(self._weights):
            return None
        sums = list(accumulate(self._weights))
        point = (self._start + self._all_opened * GOLDEN) % 1.0 * sums[-1]
        return self._tasks[bisect_right(sums, min(point, math.nextafter(sums[-1], 0.0)))]


def expected_spread(rewards: Collection[float], rollouts: int) -> float:
    """Return the probability that the rewards of `rollouts` episodes of a task are not all equal.

    rewards   the rewards of the task's latest episodes

    The probability of each reward is estimated with one more episode of each value (Laplace's rule of
    succession). At least two values are possible, so nothing is certain.
    """
    counts = list(Counter(round(reward, EQUAL_DIGITS) for reward in rewards).values())
    counts += [0] * (2 - len(counts))
    return float(1 - sum(((count + 1) / (len(rewards) + len(counts))) ** rollouts for count in counts))


def turn(task_id: str, opened: int, order_seed: int) -> tuple[int, float]:
    """Return the rank of a task for which `opened` groups are counted. The task of least rank gets the next
    group.

    Tasks are ordered by their number of groups, then at random; `order_seed` determines the random order.
    """
    return opened, Random(f"{order_seed}/{task_id}/{opened}").random()


def next_seed(task_id: str, opened: int, seeds: Sequence[int], order_seed: int) -> int:
    """Return the seed of a task's group number `opened` (from 0).

    Each task goes through the seeds with a start and a stride of its own. The stride is coprime to the number
    of seeds, so no seed is repeated before all were used.
    """
    chance = Random(f"{order_seed}/{task_id}")
    start = chance.randrange(len(seeds))
    stride = next(
        step
        for step in iter(lambda: chance.randrange(1, len(seeds) + 1), None)
        if math.gcd(step, len(seeds)) == 1
    )
    return seeds[(start + opened * stride) % len(seeds)]
