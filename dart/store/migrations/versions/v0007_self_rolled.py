"""Demonstrations without thoughts, and those that the policy played itself under the actions of another."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """What was imported before is taken to have its thoughts: importing it again says whether it has."""
    op.add_column("pool", sa.Column("lacks_thought", sa.Boolean, nullable=False, server_default="0"))
    op.add_column("pool", sa.Column("guide_id", sa.Integer))
    op.add_column("pool", sa.Column("rolls", sa.Integer, nullable=False, server_default="0"))
    names = [column["name"] for column in sa.inspect(op.get_bind()).get_columns("pool")]
    op.drop_index("copy_of_pool", "pool")
    op.create_index("copy_of_pool", "pool", names)
