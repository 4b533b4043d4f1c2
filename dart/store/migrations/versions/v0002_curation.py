"""Adaptive curation and exactly-once batches: decisions, the experience pool, parking, batch fences."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add what is new; what an older run has recorded stays and is counted."""
    add_columns()
    create_parked()
    create_pool()
    create_task_statistics()
    create_decisions()
    create_tallies()


def add_columns() -> None:
    for table, column in (
        ("groups", sa.Column("probes_length", sa.Boolean, nullable=False, server_default="0")),
        ("rollouts", sa.Column("resumes", sa.Integer, nullable=False, server_default="0")),
        ("batches", sa.Column("fence", sa.Integer, nullable=False, server_default="1")),
        ("batches", sa.Column("deadline_unix_s", sa.Float, nullable=False, server_default="0")),
    ):
        op.add_column(table, column)
    op.execute("INSERT INTO counters (name, value) VALUES ('fenced_commits', 0)")


def create_parked() -> None:
    op.create_table(
        "parked",
        sa.Column("rollout_id", sa.Integer, sa.ForeignKey("rollouts.rollout_id"), primary_key=True),
        sa.Column("fence", sa.Integer, nullable=False),
        sa.Column("steps", sa.LargeBinary, nullable=False),
        sa.Column("num_steps", sa.Integer, nullable=False),
        sa.Column("oldest_version", sa.Integer),
        sa.Column("reason", sa.String, nullable=False),
        sa.Column("parked_unix_s", sa.Float, nullable=False),
    )


def create_pool() -> None:
    op.create_table(
        "pool",
        sa.Column("pool_id", sa.Integer, primary_key=True),
        sa.Column("task_id", sa.String, nullable=False, index=True),
        sa.Column("seed", sa.Integer, nullable=False),
        sa.Column("origin", sa.String, nullable=False),
        sa.Column("instruction", sa.String, nullable=False),
        sa.Column("reward", sa.Float, nullable=False),
        sa.Column("num_steps", sa.Integer, nullable=False),
        sa.Column("content_sha256", sa.String, nullable=False, unique=True),
        sa.Column("uses", sa.Integer, nullable=False),
        sa.Column("dropped", sa.Boolean, nullable=False),
        sa.Column("added_unix_s", sa.Float, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "pool_steps",
        sa.Column("pool_id", sa.Integer, sa.ForeignKey("pool.pool_id"), primary_key=True),
        sa.Column("step", sa.Integer, primary_key=True),
        sa.Column("screenshot_sha256", sa.String, nullable=False),
        sa.Column("prompt_ids", sa.LargeBinary, nullable=False),
        sa.Column("token_ids", sa.LargeBinary, nullable=False),
        sa.Column("logprobs", sa.LargeBinary),
        sa.Column("entropies", sa.LargeBinary),
        sa.Column("answer", sa.String, nullable=False),
        sa.Column("policy_version", sa.Integer, nullable=False),
        sa.Column("observe_ms", sa.Float, nullable=False),
        sa.Column("generate_ms", sa.Float, nullable=False),
        sa.Column("act_ms", sa.Float, nullable=False),
    )
    op.create_table(
        "group_demonstrations",
        sa.Column("group_id", sa.Integer, sa.ForeignKey("groups.group_id"), primary_key=True),
        sa.Column("pool_id", sa.Integer, sa.ForeignKey("pool.pool_id"), primary_key=True, index=True),
        sa.Column("added_unix_s", sa.Float, nullable=False),
    )


def create_task_statistics() -> None:
    op.create_table(
        "task_statistics",
        sa.Column("task_id", sa.String, primary_key=True),
        sa.Column("groups_opened", sa.Integer, nullable=False),
        sa.Column("finished", sa.Integer, nullable=False),
        sa.Column("steps_played", sa.Integer, nullable=False),
        sa.Column("longest_success_steps", sa.Integer),
    )
    op.execute(
        """
        INSERT INTO task_statistics
            (task_id, groups_opened, finished, steps_played, longest_success_steps)
        SELECT task_id, count(*),
            (SELECT count(*) FROM trajectories WHERE task_id = groups.task_id),
            (SELECT coalesce(sum(num_steps), 0) FROM trajectories WHERE task_id = groups.task_id),
            (SELECT max(num_steps) FROM trajectories WHERE task_id = groups.task_id AND reward > 0.0)
        FROM groups GROUP BY task_id
        """
    )


def create_decisions() -> None:
    op.create_table(
        "decisions",
        sa.Column("decision_id", sa.Integer, primary_key=True),
        sa.Column("task_id", sa.String, nullable=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("before", sa.String, nullable=False),
        sa.Column("after", sa.String, nullable=False),
        sa.Column("reason", sa.String, nullable=False),
        sa.Column("policy_version", sa.Integer, nullable=False),
        sa.Column("unix_s", sa.Float, nullable=False),
        sa.UniqueConstraint("task_id", "kind", "unix_s", "before", "after", name="one_decision_each"),
        sqlite_autoincrement=True,
    )
    op.create_index("decisions_by_task", "decisions", ["task_id", "kind", "decision_id"])


ADD = """
    INSERT INTO tallies (what, task_id, name, value) VALUES ('{what}', {task}, {name}, 1)
    ON CONFLICT (what, task_id, name) DO UPDATE SET value = value + 1;
"""


def create_tallies() -> None:
    """Triggers count, so that no writer can forget to."""
    op.create_table(
        "tallies",
        sa.Column("what", sa.String, primary_key=True),
        sa.Column("task_id", sa.String, primary_key=True),
        sa.Column("name", sa.String, primary_key=True),
        sa.Column("value", sa.Integer, nullable=False),
    )
    for what, task, name, table in (
        ("state", "''", "state", "rollouts"),
        ("drop", "''", "drop_reason", "rollouts"),
        ("outcome", "''", "outcome", "trajectories"),
        ("fault", "''", "fault_kind", "attempts"),
        ("group_drop", "task_id", "drop_reason", "groups"),
    ):
        op.execute(
            f"INSERT INTO tallies SELECT '{what}', {task}, {name}, count(*) FROM {table} "
            f"WHERE {name} IS NOT NULL GROUP BY 2, 3"
        )
    state = ADD.format(what="state", task="''", name="new.state")
    left = "UPDATE tallies SET value = value - 1 WHERE what = 'state' AND task_id = '' AND name = old.state;"
    parking = ADD.format(what="parking", task="''", name="''")
    drop = ADD.format(what="drop", task="''", name="new.drop_reason")
    outcome = ADD.format(what="outcome", task="''", name="new.outcome")
    fault = ADD.format(what="fault", task="''", name="new.fault_kind")
    group_drop = ADD.format(what="group_drop", task="new.task_id", name="new.drop_reason")
    for name, event, body in (
        ("rollout_issued", "INSERT ON rollouts", state),
        ("rollout_moved", "UPDATE OF state ON rollouts WHEN new.state != old.state", left + state),
        ("rollout_parked", "UPDATE OF resumes ON rollouts WHEN new.resumes > old.resumes", parking),
        ("rollout_dropped", "UPDATE OF drop_reason ON rollouts WHEN new.drop_reason IS NOT NULL", drop),
        ("trajectory_stored", "INSERT ON trajectories", outcome),
        ("attempt_spent", "INSERT ON attempts", fault),
        ("group_dropped", "UPDATE OF drop_reason ON groups WHEN new.drop_reason IS NOT NULL", group_drop),
    ):
        op.execute(f"CREATE TRIGGER {name} AFTER {event} BEGIN {body} END")
