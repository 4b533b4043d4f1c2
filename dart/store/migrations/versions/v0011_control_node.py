"""A table for the announcement of the control node (`dart.store.control_node`)."""

import sqlalchemy as sa
from alembic import op

from dart.store.schema import Number, Text

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table, empty."""
    op.create_table(
        "control_node",
        sa.Column("one", Number, primary_key=True, autoincrement=False),
        *(sa.Column(name, Text, nullable=False) for name in ("address", "token", "version")),
        sa.Column("pid", Number, nullable=False),
        *(sa.Column(name, Text, nullable=False) for name in ("config", "session")),
        *(sa.Column(name, sa.Float, nullable=False) for name in ("began_unix_s", "seen_unix_s")),
        sa.Column("ended_unix_s", sa.Float),
    )
