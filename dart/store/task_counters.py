"""Aggregates by task, kept current in the transaction of what they count: no reader scans trajectories."""

from sqlalchemy import Connection, bindparam, case, func, text, update

from dart.store.schema import task_statistics
from dart.store.writer import insert_new

NO_COUNTS = {"groups_opened": 0, "finished": 0, "steps_played": 0}
KNOWN_TASK = update(task_statistics).where(task_statistics.c.task_id == bindparam("task"))
GROUP_OPENED = KNOWN_TASK.values(groups_opened=task_statistics.c.groups_opened + 1)
FINISHED = KNOWN_TASK.values(
    finished=task_statistics.c.finished + 1,
    steps_played=task_statistics.c.steps_played + bindparam("num_steps"),
)
LONGEST = func.coalesce(task_statistics.c.longest_success_steps, 0)
SUCCEEDED = FINISHED.values(
    longest_success_steps=case((bindparam("num_steps") < LONGEST, LONGEST), else_=bindparam("num_steps"))
)

RECOUNT = text("""
    UPDATE task_statistics SET longest_success_steps = (
        SELECT max(num_steps) FROM trajectories
        WHERE trajectories.task_id = task_statistics.task_id AND reward > :success_above)
""")


def know_task(connection: Connection, task_id: str) -> None:
    """See that a task has a row."""
    insert_new(connection, task_statistics, {"task_id": task_id} | NO_COUNTS)


def count_group(connection: Connection, task_id: str) -> None:
    """A group of the task was opened."""
    know_task(connection, task_id)
    connection.execute(GROUP_OPENED, {"task": task_id})


def count_trajectory(connection: Connection, task_id: str, num_steps: int, *, is_success: bool) -> None:
    """An episode of the task was stored."""
    connection.execute(SUCCEEDED if is_success else FINISHED, {"task": task_id, "num_steps": num_steps})


def recount_successes(connection: Connection, success_above: float) -> None:
    """Find the longest success of every task anew, by another threshold of reward; looks at every episode."""
    connection.execute(RECOUNT, {"success_above": success_above})
