"""The first record: the tables of `dart.store.schema`, its first counters, and the triggers that count.

It takes the place of migrations 0001 to 0008, which no released version had. A test compares what it makes
with `tests/unit/store/first_record.sql`. When the schema changes, move that listing beside this file, execute
it here instead of reading the schema, and write the change as the next migration.
"""

from alembic import op

from dart.store import schema

revision = "0009"
down_revision = None
branch_labels = None
depends_on = None

COUNT = """
    INSERT INTO tallies (what, task_id, name, value) VALUES ('{what}', {task}, {name}, 1)
    ON CONFLICT (what, task_id, name) DO UPDATE SET value = value + 1;
"""
STATE = COUNT.format(what="state", task="''", name="new.state")
LEFT = "UPDATE tallies SET value = value - 1 WHERE what = 'state' AND task_id = '' AND name = old.state;"
PARKING = COUNT.format(what="parking", task="''", name="''")
DROP = COUNT.format(what="drop", task="''", name="new.drop_reason")
OUTCOME = COUNT.format(what="outcome", task="''", name="new.outcome")
FAULT = COUNT.format(what="fault", task="''", name="new.fault_kind")
GROUP_DROP = COUNT.format(what="group_drop", task="new.task_id", name="new.drop_reason")
TRIGGERS = (
    ("rollout_issued", "INSERT ON rollouts", STATE),
    ("rollout_moved", "UPDATE OF state ON rollouts WHEN new.state != old.state", LEFT + STATE),
    ("rollout_parked", "UPDATE OF resumes ON rollouts WHEN new.resumes > old.resumes", PARKING),
    ("rollout_dropped", "UPDATE OF drop_reason ON rollouts WHEN new.drop_reason IS NOT NULL", DROP),
    ("trajectory_stored", "INSERT ON trajectories", OUTCOME),
    ("attempt_spent", "INSERT ON attempts", FAULT),
    ("group_dropped", "UPDATE OF drop_reason ON groups WHEN new.drop_reason IS NOT NULL", GROUP_DROP),
)
"""Name, event and statements. Triggers count the tallies, so that no writer can forget to."""


def upgrade() -> None:
    """Make every table and index, the counters at 0, and the triggers."""
    schema.metadata.create_all(op.get_bind(), checkfirst=False)
    counters = ("issued", "fenced", "fenced_commits")
    op.bulk_insert(schema.counters, [{"name": name, "value": 0} for name in counters])
    for name, event, statements in TRIGGERS:
        op.execute(f"CREATE TRIGGER {name} AFTER {event} BEGIN {statements} END")
