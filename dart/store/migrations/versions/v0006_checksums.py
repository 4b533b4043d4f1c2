"""Damage becomes visible: checksums of large content, and small tables kept twice."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

HASHED = ("trajectories", "parked", "pool", "events")
KEPT_TWICE = (
    "counters",
    "groups",
    "rollouts",
    "attempts",
    "pool",
    "group_demonstrations",
    "task_statistics",
    "decisions",
    "tallies",
    "batches",
    "versions",
    "evaluations",
    "parked",
)
PARKED_STEPS = ("parked", "steps")
"""Large: it has a checksum."""


def upgrade() -> None:
    """Null in what is there: nobody knows what those rows held when they were written."""
    for table in HASHED:
        op.add_column(table, sa.Column("checksum", sa.LargeBinary))
    columns_of = sa.inspect(op.get_bind()).get_columns
    for table in KEPT_TWICE:
        names = [column["name"] for column in columns_of(table)]
        op.create_index(f"copy_of_{table}", table, [name for name in names if (table, name) != PARKED_STEPS])
