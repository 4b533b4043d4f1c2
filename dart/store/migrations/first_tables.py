"""The tables as the first migration makes them. Never change them here: write a later migration instead."""

from sqlalchemy import (
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    LargeBinary,
    MetaData,
    Table,
    UniqueConstraint,
)

from dart.store.schema import Number, Text

metadata = MetaData()

counters = Table(
    "counters",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", Number, nullable=False),
)

groups = Table(
    "groups",
    metadata,
    Column("group_id", Number, primary_key=True),
    Column("task_id", Text, nullable=False, index=True),
    Column("seed", Number, nullable=False),
    Column("rollouts_wanted", Number, nullable=False),
    Column("step_cap", Number, nullable=False),
    Column("policy_version", Number, nullable=False),
    Column("state", Text, nullable=False, index=True),
    Column("drop_reason", Text),
    Column("batch_id", Number, ForeignKey("batches.batch_id"), index=True),
    Column("opened_unix_s", Float, nullable=False),
    Column("probes_length", Boolean, nullable=False, server_default="0"),
    sqlite_autoincrement=True,
)

rollouts = Table(
    "rollouts",
    metadata,
    Column("rollout_id", Number, primary_key=True),
    Column("group_id", Number, ForeignKey("groups.group_id"), nullable=False, index=True),
    Column("state", Text, nullable=False, index=True),
    Column("environment", Text),
    Column("attempt", Number, nullable=False),
    Column("fence", Number, nullable=False),
    Column("deadline_unix_s", Float, nullable=False),
    Column("drop_reason", Text),
    Column("batch_id", Number, ForeignKey("batches.batch_id"), index=True),
    Column("resumes", Number, nullable=False, server_default="0"),
    sqlite_autoincrement=True,
)

attempts = Table(
    "attempts",
    metadata,
    Column("rollout_id", Number, ForeignKey("rollouts.rollout_id"), primary_key=True),
    Column("attempt", Number, primary_key=True),
    Column("environment", Text),
    Column("fault_kind", Text, nullable=False),
    Column("detail", Text, nullable=False),
    Column("spent_unix_s", Float, nullable=False),
)

trajectories = Table(
    "trajectories",
    metadata,
    Column("rollout_id", Number, ForeignKey("rollouts.rollout_id"), primary_key=True),
    Column("group_id", Number, ForeignKey("groups.group_id"), nullable=False, index=True),
    Column("task_id", Text, nullable=False),
    Column("seed", Number, nullable=False),
    Column("environment", Text, nullable=False),
    Column("instruction", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("reward", Float, nullable=False),
    Column("num_steps", Number, nullable=False),
    Column("oldest_version", Number, nullable=False),
    Column("started_unix_s", Float, nullable=False),
    Column("duration_s", Float, nullable=False),
    Column("fence", Number, nullable=False),
    Column("stored_unix_s", Float, nullable=False, index=True),
    Column("checksum", LargeBinary, nullable=False),
)
Index("trajectories_by_task", trajectories.c.task_id, trajectories.c.stored_unix_s)

steps = Table(
    "steps",
    metadata,
    Column("rollout_id", Number, ForeignKey("trajectories.rollout_id"), primary_key=True),
    Column("steps", LargeBinary, nullable=False),
)

parked = Table(
    "parked",
    metadata,
    Column("rollout_id", Number, ForeignKey("rollouts.rollout_id"), primary_key=True),
    Column("fence", Number, nullable=False),
    Column("steps", LargeBinary, nullable=False),
    Column("num_steps", Number, nullable=False),
    Column("oldest_version", Number),
    Column("reason", Text, nullable=False),
    Column("parked_unix_s", Float, nullable=False),
    Column("checksum", LargeBinary, nullable=False),
)

pool = Table(
    "pool",
    metadata,
    Column("pool_id", Number, primary_key=True),
    Column("task_id", Text, nullable=False, index=True),
    Column("seed", Number, nullable=False),
    Column("origin", Text, nullable=False),
    Column("instruction", Text, nullable=False),
    Column("reward", Float, nullable=False),
    Column("num_steps", Number, nullable=False),
    Column("content_sha256", Text, nullable=False, unique=True),
    Column("uses", Number, nullable=False),
    Column("dropped", Boolean, nullable=False),
    Column("added_unix_s", Float, nullable=False),
    Column("checksum", LargeBinary, nullable=False),
    Column(
        "lacks_thought",
        Boolean,
        nullable=False,
        server_default="0",
    ),
    Column(
        "guide_id",
        Number,
    ),
    Column("rolls", Number, nullable=False, server_default="0"),
    sqlite_autoincrement=True,
)

pool_steps = Table(
    "pool_steps",
    metadata,
    Column("pool_id", Number, ForeignKey("pool.pool_id"), primary_key=True),
    Column("steps", LargeBinary, nullable=False),
)

group_demonstrations = Table(
    "group_demonstrations",
    metadata,
    Column("group_id", Number, ForeignKey("groups.group_id"), primary_key=True),
    Column("pool_id", Number, ForeignKey("pool.pool_id"), primary_key=True, index=True),
    Column("added_unix_s", Float, nullable=False),
)

task_statistics = Table(
    "task_statistics",
    metadata,
    Column("task_id", Text, primary_key=True),
    Column("groups_opened", Number, nullable=False),
    Column("finished", Number, nullable=False),
    Column("steps_played", Number, nullable=False),
    Column("longest_success_steps", Number),
)

decisions = Table(
    "decisions",
    metadata,
    Column("decision_id", Number, primary_key=True),
    Column("task_id", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("before", Text, nullable=False),
    Column("after", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("policy_version", Number, nullable=False),
    Column("unix_s", Float, nullable=False),
    UniqueConstraint("task_id", "kind", "unix_s", "before", "after", name="one_decision_each"),
    sqlite_autoincrement=True,
)
Index("decisions_by_task", decisions.c.task_id, decisions.c.kind, decisions.c.decision_id)

tallies = Table(
    "tallies",
    metadata,
    Column("what", Text, primary_key=True),
    Column("task_id", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("value", Number, nullable=False),
)

batches = Table(
    "batches",
    metadata,
    Column("batch_id", Number, primary_key=True),
    Column("state", Text, nullable=False, index=True),
    Column("leased_unix_s", Float, nullable=False),
    Column(
        "version",
        Number,
        ForeignKey("versions.version"),
        unique=True,
    ),
    Column("fence", Number, nullable=False, server_default="1"),
    Column("deadline_unix_s", Float, nullable=False, server_default="0"),
    sqlite_autoincrement=True,
)

versions = Table(
    "versions",
    metadata,
    Column("version", Number, primary_key=True, autoincrement=False),
    Column("checkpoint", Text, nullable=False),
    Column("metrics", Text, nullable=False),
    Column("created_unix_s", Float, nullable=False),
)

evaluations = Table(
    "evaluations",
    metadata,
    Column("evaluation_id", Number, primary_key=True),
    Column("phase", Text, nullable=False),
    Column("policy_version", Number, nullable=False),
    Column("task_id", Text, nullable=False),
    Column("seed", Number, nullable=False),
    Column("reward", Float, nullable=False),
    Column("created_unix_s", Float, nullable=False),
    Column("is_greedy", Boolean, nullable=False, server_default="0"),
    UniqueConstraint("phase", "policy_version", "task_id", "seed", "is_greedy", name="one_evaluation_each"),
)

events = Table(
    "events",
    metadata,
    Column("event_id", Number, primary_key=True),
    Column("unix_s", Float, nullable=False),
    Column("kind", Text, nullable=False, index=True),
    Column("subject", Text, nullable=False),
    Column("data", Text, nullable=False),
    Column("checksum", LargeBinary, nullable=False),
    sqlite_autoincrement=True,
)

KEPT_TWICE = (
    counters,
    groups,
    rollouts,
    attempts,
    pool,
    group_demonstrations,
    task_statistics,
    decisions,
    tallies,
    batches,
    versions,
    evaluations,
)
for _table in KEPT_TWICE:
    Index(f"copy_of_{_table.name}", *_table.columns).ddl_if(dialect="sqlite")
Index("copy_of_parked", *(column for column in parked.columns if column is not parked.c.steps)).ddl_if(
    dialect="sqlite"
)
