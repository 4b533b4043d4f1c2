"""Which task and seed the next group is about.

Weighted round robin: the task with the fewest groups for its weight is next, so after any number of groups
no task is more than one ahead of its share. All of it is a function of how many groups each task had, which
the record knows: a restarted curator goes on where the last one stopped.
"""

import math
from collections.abc import Mapping, Sequence
from random import Random


def next_task(
    tasks: Sequence[str], opened: Mapping[str, int], weights: Mapping[str, float], order_seed: int
) -> str:
    """The task whose share is served least; ties are broken by chance, the same for the same seed.

    opened   groups opened so far by task; a task that is not in it had none
    weights  relative share by task, 1 where not given
    """

    def turn(task_id: str) -> tuple[float, float]:
        count = opened.get(task_id, 0)
        return (count + 1) / weights.get(task_id, 1.0), Random(f"{order_seed}/{task_id}/{count}").random()

    return min(tasks, key=turn)


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
