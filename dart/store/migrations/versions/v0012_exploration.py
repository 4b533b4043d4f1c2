"""Tables for exploration graphs: screens, leases and tried actions (`dart.store.exploration_writer`)."""

import sqlalchemy as sa
from alembic import op

from dart.store.schema import Number, Text

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

SCREEN = "screens.screen_id"


def upgrade() -> None:
    """Create the tables, empty."""
    op.create_table(
        "screens",
        sa.Column("screen_id", Number, primary_key=True),
        sa.Column("task_id", Text, nullable=False),
        *(sa.Column(name, Number, nullable=False) for name in ("seed", "depth", "found_actions")),
        *(sa.Column(name, Text, nullable=False) for name in ("screenshot_sha256", "shape")),
        sa.Column("view", sa.LargeBinary, nullable=False),
        sa.Column("found_unix_s", sa.Float, nullable=False),
        sa.Column("checksum", sa.LargeBinary, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("screens_by_task", "screens", ["task_id", "seed", "screen_id"])
    op.create_table(
        "exploration_leases",
        sa.Column("fence", Number, primary_key=True),
        sa.Column("task_id", Text, nullable=False),
        sa.Column("seed", Number, nullable=False),
        *(sa.Column(name, Number, sa.ForeignKey(SCREEN)) for name in ("screen_id", "goal_id")),
        sa.Column("explorer", Text, nullable=False),
        sa.Column("incarnation", Number, nullable=False),
        sa.Column("deadline_unix_s", sa.Float, nullable=False),
        sa.Column("ended", Text),
        sa.Column("held_screen", Number, unique=True),
        sa.Column("held_by", Text, unique=True),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "explored_steps",
        sa.Column("step_id", Number, primary_key=True),
        sa.Column("task_id", Text, nullable=False),
        sa.Column("seed", Number, nullable=False),
        sa.Column("fence", Number, sa.ForeignKey("exploration_leases.fence"), nullable=False),
        *(sa.Column(name, Number, nullable=False) for name in ("number", "actions")),
        sa.Column("source_id", Number, sa.ForeignKey(SCREEN)),
        *(sa.Column(name, Text, nullable=False) for name in ("act", "action", "effect")),
        sa.Column("target_id", Number, sa.ForeignKey(SCREEN)),
        sa.Column("expansion", Text, unique=True),
        sa.Column("unix_s", sa.Float, nullable=False),
        sa.UniqueConstraint("fence", "number", name="one_report_each"),
        sqlite_autoincrement=True,
    )
    op.create_index("explored_steps_by_task", "explored_steps", ["task_id", "seed", "step_id"])
    if op.get_bind().dialect.name == "sqlite":
        for table in ("exploration_leases", "explored_steps"):
            columns = [column["name"] for column in sa.inspect(op.get_bind()).get_columns(table)]
            op.create_index(f"copy_of_{table}", table, columns)
