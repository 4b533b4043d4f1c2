"""The first record: groups, rollouts, trajectories, batches, versions."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Build every table; parents first."""
    create_counters()
    create_versions_and_batches()
    create_groups_and_rollouts()
    create_trajectories_and_steps()
    create_evaluations_and_events()


def create_counters() -> None:
    counters = op.create_table(
        "counters",
        sa.Column("name", sa.String, primary_key=True),
        sa.Column("value", sa.Integer, nullable=False),
    )
    op.bulk_insert(counters, [{"name": "issued", "value": 0}, {"name": "fenced", "value": 0}])


def create_versions_and_batches() -> None:
    op.create_table(
        "versions",
        sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("checkpoint", sa.String, nullable=False),
        sa.Column("metrics", sa.String, nullable=False),
        sa.Column("created_unix_s", sa.Float, nullable=False),
    )
    op.create_table(
        "batches",
        sa.Column("batch_id", sa.Integer, primary_key=True),
        sa.Column("state", sa.String, nullable=False, index=True),
        sa.Column("leased_unix_s", sa.Float, nullable=False),
        sa.Column("version", sa.Integer, sa.ForeignKey("versions.version"), unique=True),
        sqlite_autoincrement=True,
    )


def create_groups_and_rollouts() -> None:
    op.create_table(
        "groups",
        sa.Column("group_id", sa.Integer, primary_key=True),
        sa.Column("task_id", sa.String, nullable=False, index=True),
        sa.Column("seed", sa.Integer, nullable=False),
        sa.Column("rollouts_wanted", sa.Integer, nullable=False),
        sa.Column("step_cap", sa.Integer, nullable=False),
        sa.Column("policy_version", sa.Integer, nullable=False),
        sa.Column("state", sa.String, nullable=False, index=True),
        sa.Column("drop_reason", sa.String),
        sa.Column("batch_id", sa.Integer, sa.ForeignKey("batches.batch_id"), index=True),
        sa.Column("opened_unix_s", sa.Float, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "rollouts",
        sa.Column("rollout_id", sa.Integer, primary_key=True),
        sa.Column("group_id", sa.Integer, sa.ForeignKey("groups.group_id"), nullable=False, index=True),
        sa.Column("state", sa.String, nullable=False, index=True),
        sa.Column("environment", sa.String),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("fence", sa.Integer, nullable=False),
        sa.Column("deadline_unix_s", sa.Float, nullable=False),
        sa.Column("drop_reason", sa.String),
        sa.Column("batch_id", sa.Integer, sa.ForeignKey("batches.batch_id"), index=True),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "attempts",
        sa.Column("rollout_id", sa.Integer, sa.ForeignKey("rollouts.rollout_id"), primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True),
        sa.Column("environment", sa.String),
        sa.Column("fault_kind", sa.String, nullable=False),
        sa.Column("detail", sa.String, nullable=False),
        sa.Column("spent_unix_s", sa.Float, nullable=False),
    )


def create_trajectories_and_steps() -> None:
    op.create_table(
        "trajectories",
        sa.Column("rollout_id", sa.Integer, sa.ForeignKey("rollouts.rollout_id"), primary_key=True),
        sa.Column("group_id", sa.Integer, sa.ForeignKey("groups.group_id"), nullable=False, index=True),
        sa.Column("task_id", sa.String, nullable=False),
        sa.Column("seed", sa.Integer, nullable=False),
        sa.Column("environment", sa.String, nullable=False),
        sa.Column("instruction", sa.String, nullable=False),
        sa.Column("outcome", sa.String, nullable=False),
        sa.Column("reward", sa.Float, nullable=False),
        sa.Column("num_steps", sa.Integer, nullable=False),
        sa.Column("oldest_version", sa.Integer, nullable=False),
        sa.Column("started_unix_s", sa.Float, nullable=False),
        sa.Column("duration_s", sa.Float, nullable=False),
        sa.Column("fence", sa.Integer, nullable=False),
        sa.Column("stored_unix_s", sa.Float, nullable=False, index=True),
    )
    op.create_index("trajectories_by_task", "trajectories", ["task_id", "stored_unix_s"])
    op.create_table(
        "steps",
        sa.Column("rollout_id", sa.Integer, sa.ForeignKey("trajectories.rollout_id"), primary_key=True),
        sa.Column("step", sa.Integer, primary_key=True),
        sa.Column("screenshot_sha256", sa.String, nullable=False),
        sa.Column("prompt_ids", sa.LargeBinary, nullable=False),
        sa.Column("token_ids", sa.LargeBinary, nullable=False),
        sa.Column("logprobs", sa.LargeBinary, nullable=False),
        sa.Column("entropies", sa.LargeBinary, nullable=False),
        sa.Column("answer", sa.String, nullable=False),
        sa.Column("policy_version", sa.Integer, nullable=False),
        sa.Column("observe_ms", sa.Float, nullable=False),
        sa.Column("generate_ms", sa.Float, nullable=False),
        sa.Column("act_ms", sa.Float, nullable=False),
    )


def create_evaluations_and_events() -> None:
    op.create_table(
        "evaluations",
        sa.Column("evaluation_id", sa.Integer, primary_key=True),
        sa.Column("phase", sa.String, nullable=False),
        sa.Column("policy_version", sa.Integer, nullable=False),
        sa.Column("task_id", sa.String, nullable=False),
        sa.Column("seed", sa.Integer, nullable=False),
        sa.Column("reward", sa.Float, nullable=False),
        sa.Column("created_unix_s", sa.Float, nullable=False),
        sa.UniqueConstraint("phase", "policy_version", "task_id", "seed", name="one_evaluation_each"),
    )
    op.create_table(
        "events",
        sa.Column("event_id", sa.Integer, primary_key=True),
        sa.Column("unix_s", sa.Float, nullable=False),
        sa.Column("kind", sa.String, nullable=False, index=True),
        sa.Column("subject", sa.String, nullable=False),
        sa.Column("data", sa.String, nullable=False),
        sqlite_autoincrement=True,
    )
