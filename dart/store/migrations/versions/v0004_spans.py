"""Which policy version sampled which tokens of an answer: weights may change in the middle of one."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Null in what is there: those answers had one version each."""
    for table in ("steps", "pool_steps"):
        op.add_column(table, sa.Column("spans", sa.LargeBinary))
