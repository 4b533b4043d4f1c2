"""The screenshots in the prompt of a step: a vision-language policy sees more than the newest one."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Null in what is there: those steps saw their own screenshot alone."""
    for table in ("steps", "pool_steps"):
        op.add_column(table, sa.Column("images", sa.LargeBinary))
