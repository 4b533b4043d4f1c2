"""Which task and seed the next group is about.

Round robin: the task with the fewest groups is next, so after any number of groups no task is more than one
ahead of another. All of it is a function of how many groups each task had, which
the record knows: a restarted curator goes on where the last one stopped.
"""

import math
from collections.abc import Sequence
from random import Random


def turn(task_id: str, opened: int, order_seed: int) -> tuple[int, float]:
    """When it is a task's turn, after `opened` groups of it: the least of all tasks is next.

    First by its number of groups, then by chance, the same for the same seed.
    """
    return opened, Random(f"{order_seed}/{task_id}/{opened}").random()


def next_seed(task_id: str, opened: int, seeds: Sequence[int], order_seed: int) -> int:
    """The seed of a task's group number `opened` (from 0).

    Walks the seeds from a start and with a stride that differ by task; the stride is coprime to their
    number, so none comes again before all came.
    """
    chance = Random(f"{order_seed}/{task_id}")
    start = chance.randrange(len(seeds))
    stride = next(
        step
        for step in iter(lambda: chance.randrange(1, len(seeds) + 1), None)
        if math.gcd(step, len(seeds)) == 1
    )
    return seeds[(start + opened * stride) % len(seeds)]
