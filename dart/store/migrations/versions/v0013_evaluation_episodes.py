"""A table for what evaluation episodes were, with their steps. Those of before have rewards only."""

import sqlalchemy as sa
from alembic import op

from dart.store.schema import Number, Text

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table, empty."""
    op.create_table(
        "evaluation_episodes",
        sa.Column("evaluation_id", Number, sa.ForeignKey("evaluations.evaluation_id"), primary_key=True),
        *(sa.Column(name, Text, nullable=False) for name in ("environment", "instruction", "outcome")),
        sa.Column("num_steps", Number, nullable=False),
        *(sa.Column(name, sa.Float, nullable=False) for name in ("started_unix_s", "duration_s")),
        sa.Column("checksum", sa.LargeBinary, nullable=False),
        sa.Column("steps_sha256", Text, nullable=False, server_default="", index=True),
    )
