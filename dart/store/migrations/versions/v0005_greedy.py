"""Evaluations are played twice: with sampled answers and with the most likely ones."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

COPIED = "evaluation_id, phase, policy_version, task_id, seed, reward, created_unix_s"


def upgrade() -> None:
    """Keep what is there as played with `evaluation.temperature`, as it was."""
    op.rename_table("evaluations", "old_evaluations")
    op.create_table(
        "evaluations",
        sa.Column("evaluation_id", sa.Integer, primary_key=True),
        sa.Column("phase", sa.String, nullable=False),
        sa.Column("policy_version", sa.Integer, nullable=False),
        sa.Column("task_id", sa.String, nullable=False),
        sa.Column("seed", sa.Integer, nullable=False),
        sa.Column("reward", sa.Float, nullable=False),
        sa.Column("created_unix_s", sa.Float, nullable=False),
        sa.Column("is_greedy", sa.Boolean, nullable=False, server_default="0"),
        sa.UniqueConstraint(
            "phase", "policy_version", "task_id", "seed", "is_greedy", name="one_evaluation_each"
        ),
    )
    op.execute(f"INSERT INTO evaluations ({COPIED}) SELECT {COPIED} FROM old_evaluations")
    op.drop_table("old_evaluations")
