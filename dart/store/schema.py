"""The tables of the record, in SQLAlchemy Core.

One row per thing that happened; only leases, states and counters ever change.
The migrations build these tables; a test asserts that both say the same.
"""

from sqlalchemy import (
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    UniqueConstraint,
)

SCHEMA_VERSION = "0001"
"""The newest migration; a test asserts that it is."""

metadata = MetaData()

counters = Table(
    "counters",
    metadata,
    Column("name", String, primary_key=True),
    Column("value", Integer, nullable=False),
    comment="issued: rollouts ever leased; fenced: late reports refused. Counted apart from the rows.",
)

groups = Table(
    "groups",
    metadata,
    Column("group_id", Integer, primary_key=True),
    Column("task_id", String, nullable=False, index=True),
    Column("seed", Integer, nullable=False),
    Column("rollouts_wanted", Integer, nullable=False),
    Column("step_cap", Integer, nullable=False),
    Column("policy_version", Integer, nullable=False),
    Column("state", String, nullable=False, index=True),
    Column("drop_reason", String),
    Column("batch_id", Integer, ForeignKey("batches.batch_id"), index=True),
    Column("opened_unix_s", Float, nullable=False),
    sqlite_autoincrement=True,
)

rollouts = Table(
    "rollouts",
    metadata,
    Column("rollout_id", Integer, primary_key=True),
    Column("group_id", Integer, ForeignKey("groups.group_id"), nullable=False, index=True),
    Column("state", String, nullable=False, index=True),
    Column("environment", String, comment="who plays it now; null while it awaits a new lease"),
    Column("attempt", Integer, nullable=False),
    Column("fence", Integer, nullable=False),
    Column("deadline_unix_s", Float, nullable=False),
    Column("drop_reason", String),
    Column("batch_id", Integer, ForeignKey("batches.batch_id"), index=True),
    sqlite_autoincrement=True,
)

attempts = Table(
    "attempts",
    metadata,
    Column("rollout_id", Integer, ForeignKey("rollouts.rollout_id"), primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("environment", String),
    Column("fault_kind", String, nullable=False),
    Column("detail", String, nullable=False),
    Column("spent_unix_s", Float, nullable=False),
    comment="attempts spent without a reward",
)

trajectories = Table(
    "trajectories",
    metadata,
    Column("rollout_id", Integer, ForeignKey("rollouts.rollout_id"), primary_key=True),
    Column("group_id", Integer, ForeignKey("groups.group_id"), nullable=False, index=True),
    Column("task_id", String, nullable=False),
    Column("seed", Integer, nullable=False),
    Column("environment", String, nullable=False),
    Column("instruction", String, nullable=False),
    Column("outcome", String, nullable=False),
    Column("reward", Float, nullable=False),
    Column("num_steps", Integer, nullable=False),
    Column("oldest_version", Integer, nullable=False, comment="least policy version among its steps"),
    Column("started_unix_s", Float, nullable=False),
    Column("duration_s", Float, nullable=False),
    Column("fence", Integer, nullable=False, comment="the lease under which it was played"),
    Column("stored_unix_s", Float, nullable=False, index=True),
)
Index("trajectories_by_task", trajectories.c.task_id, trajectories.c.stored_unix_s)

steps = Table(
    "steps",
    metadata,
    Column("rollout_id", Integer, ForeignKey("trajectories.rollout_id"), primary_key=True),
    Column("step", Integer, primary_key=True, comment="0 for the first"),
    Column("screenshot_sha256", String, nullable=False),
    Column("prompt_ids", LargeBinary, nullable=False),
    Column("token_ids", LargeBinary, nullable=False),
    Column("logprobs", LargeBinary, nullable=False),
    Column("entropies", LargeBinary, nullable=False),
    Column("answer", String, nullable=False),
    Column("policy_version", Integer, nullable=False),
    Column("observe_ms", Float, nullable=False),
    Column("generate_ms", Float, nullable=False),
    Column("act_ms", Float, nullable=False),
    comment="the four lists are MessagePack arrays",
)

batches = Table(
    "batches",
    metadata,
    Column("batch_id", Integer, primary_key=True),
    Column("state", String, nullable=False, index=True),
    Column("leased_unix_s", Float, nullable=False),
    Column("version", Integer, ForeignKey("versions.version"), comment="what its update made", unique=True),
    sqlite_autoincrement=True,
)

versions = Table(
    "versions",
    metadata,
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("checkpoint", String, nullable=False),
    Column("metrics", String, nullable=False, comment="JSON object of the update's figures"),
    Column("created_unix_s", Float, nullable=False),
)

evaluations = Table(
    "evaluations",
    metadata,
    Column("evaluation_id", Integer, primary_key=True),
    Column("phase", String, nullable=False, comment="before, after"),
    Column("policy_version", Integer, nullable=False),
    Column("task_id", String, nullable=False),
    Column("seed", Integer, nullable=False),
    Column("reward", Float, nullable=False),
    Column("created_unix_s", Float, nullable=False),
    UniqueConstraint("phase", "policy_version", "task_id", "seed", name="one_evaluation_each"),
)

events = Table(
    "events",
    metadata,
    Column("event_id", Integer, primary_key=True),
    Column("unix_s", Float, nullable=False),
    Column("kind", String, nullable=False, index=True),
    Column("subject", String, nullable=False),
    Column("data", String, nullable=False, comment="JSON object"),
    sqlite_autoincrement=True,
)
