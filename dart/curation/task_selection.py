"""Which task and seed the next group plays.

Round robin: the task with the fewest groups is next, so no task is ever more than one group ahead of another.
Task and seed follow from how many groups each task had, which is in the record. So a restarted curator goes
on where the last one stopped.
"""

import math
from collections.abc import Sequence
from random import Random


def turn(task_id: str, opened: int, order_seed: int) -> tuple[int, float]:
    """The rank of a task that has had `opened` groups: the task of least rank gets the next group.

    Tasks are ordered by their number of groups, then at random, in the same way for the same `order_seed`.
    """
    return opened, Random(f"{order_seed}/{task_id}/{opened}").random()


def next_seed(task_id: str, opened: int, seeds: Sequence[int], order_seed: int) -> int:
    """The seed of a task's group number `opened` (from 0).

    The seeds are walked from a start and with a stride that differ by task. The stride is coprime to the
    number of seeds, so no seed is repeated before all were used.
    """
    chance = Random(f"{order_seed}/{task_id}")
    start = chance.randrange(len(seeds))
    stride = next(
        step
        for step in iter(lambda: chance.randrange(1, len(seeds) + 1), None)
        if math.gcd(step, len(seeds)) == 1
    )
    return seeds[(start + opened * stride) % len(seeds)]
