"""The tables of the record, in SQLAlchemy Core.

Each row is something that happened; only leases, states and counters change later. A change here needs a new
migration (`dart.store.migrations`): a test compares what the migrations make with these tables.

Two things make damage visible (`dart.store.row_damage`). Large content that is written once has a checksum.
With SQLite, a small table has an index over all its columns, which is a second copy of each row: SQLite
writes it in the same transaction, and `PRAGMA integrity_check` compares the two.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
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

Number = Integer().with_variant(BigInteger(), "postgresql")
"""An integer of 64 bits: seeds are above 2^31, and a long run has more events than that."""

Text = String().with_variant(String(collation="C"), "postgresql")
"""Text of any length, ordered by its bytes, as SQLite orders it."""

metadata = MetaData()


def steps_sha256(index: bool = False) -> Column[str]:
    """The column that names the blob of an episode's packed steps. No row is written without it."""
    return Column(
        "steps_sha256",
        Text,
        nullable=False,
        server_default="",
        index=index,
        comment="blob of its packed steps",
    )


counters = Table(
    "counters",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", Number, nullable=False),
    comment="issued: rollouts ever leased; fenced, fenced_commits: late reports; screenshots_since: groups "
    "opened before may lack screenshots; a server's: epoch, writes",
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
    Column("environment", Text, comment="the one that plays it; null while it awaits a new lease"),
    Column("attempt", Number, nullable=False),
    Column("fence", Number, nullable=False),
    Column("deadline_unix_s", Float, nullable=False),
    Column("drop_reason", Text),
    Column("batch_id", Number, ForeignKey("batches.batch_id"), index=True),
    Column("resumes", Number, nullable=False, server_default="0", comment="how often it was parked"),
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
    comment="attempts spent without a reward",
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
    Column("oldest_version", Number, nullable=False, comment="least policy version among its steps"),
    Column("started_unix_s", Float, nullable=False),
    Column("duration_s", Float, nullable=False),
    Column("fence", Number, nullable=False, comment="the lease under which it was played"),
    Column("stored_unix_s", Float, nullable=False, index=True),
    Column("checksum", LargeBinary, nullable=False, comment="of this row"),
    steps_sha256(index=True),
)
Index("trajectories_by_task", trajectories.c.task_id, trajectories.c.stored_unix_s)

parked = Table(
    "parked",
    metadata,
    Column("rollout_id", Number, ForeignKey("rollouts.rollout_id"), primary_key=True),
    Column("fence", Number, nullable=False, comment="the lease under which it was parked"),
    Column("num_steps", Number, nullable=False),
    Column("oldest_version", Number, comment="null where there are no steps"),
    Column("reason", Text, nullable=False),
    Column("parked_unix_s", Float, nullable=False),
    Column("checksum", LargeBinary, nullable=False, comment="of what describes the steps"),
    steps_sha256(),
    comment="steps of interrupted episodes; deleted when the episode or the attempt ends",
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
    Column("uses", Number, nullable=False, comment="number of its rows in group_demonstrations"),
    Column("dropped", Boolean, nullable=False),
    Column("added_unix_s", Float, nullable=False),
    Column("checksum", LargeBinary, nullable=False, comment="of what never changes"),
    Column(
        "lacks_thought",
        Boolean,
        nullable=False,
        server_default="0",
        comment="some answer is an action without the thought that the policy writes",
    ),
    Column("guide_id", Number, comment="the demonstration that was its hint, if the policy played it itself"),
    Column("rolls", Number, nullable=False, server_default="0", comment="episodes played with it as a hint"),
    steps_sha256(),
    sqlite_autoincrement=True,
    comment="demonstrations of the experience pool",
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
    Column("finished", Number, nullable=False, comment="trajectories ever stored"),
    Column("steps_played", Number, nullable=False, comment="environment steps of those"),
    Column("longest_success_steps", Number, comment="null before the first success"),
    comment="updated in the transaction of what it counts; a check of the data recounts it",
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
    Column("what", Text, primary_key=True, comment="state, drop, outcome, fault, group_drop or parking"),
    Column("task_id", Text, primary_key=True, comment="empty where it is not counted by task"),
    Column("name", Text, primary_key=True),
    Column("value", Number, nullable=False),
    comment="numbers of rows by state or reason; triggers count, a check of the data recounts",
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
        comment="the version that its update made",
        unique=True,
    ),
    Column("fence", Number, nullable=False, server_default="1", comment="grows with every lease"),
    Column("deadline_unix_s", Float, nullable=False, server_default="0"),
    sqlite_autoincrement=True,
)

versions = Table(
    "versions",
    metadata,
    Column("version", Number, primary_key=True, autoincrement=False),
    Column("metrics", Text, nullable=False, comment="JSON object of the update's figures"),
    Column("created_unix_s", Float, nullable=False),
)

evaluations = Table(
    "evaluations",
    metadata,
    Column("evaluation_id", Number, primary_key=True),
    Column("phase", Text, nullable=False, comment="before, after"),
    Column("policy_version", Number, nullable=False),
    Column("task_id", Text, nullable=False),
    Column("seed", Number, nullable=False),
    Column("reward", Float, nullable=False),
    Column("created_unix_s", Float, nullable=False),
    Column("is_greedy", Boolean, nullable=False, server_default="0"),
    UniqueConstraint("phase", "policy_version", "task_id", "seed", "is_greedy", name="one_evaluation_each"),
)

evaluation_episodes = Table(
    "evaluation_episodes",
    metadata,
    Column("evaluation_id", Number, ForeignKey("evaluations.evaluation_id"), primary_key=True),
    Column("environment", Text, nullable=False),
    Column("instruction", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("num_steps", Number, nullable=False),
    Column("started_unix_s", Float, nullable=False),
    Column("duration_s", Float, nullable=False),
    Column("checksum", LargeBinary, nullable=False, comment="of this row"),
    steps_sha256(index=True),
)

events = Table(
    "events",
    metadata,
    Column("event_id", Number, primary_key=True),
    Column("unix_s", Float, nullable=False),
    Column("kind", Text, nullable=False, index=True),
    Column("subject", Text, nullable=False),
    Column("data", Text, nullable=False, comment="JSON object"),
    Column("checksum", LargeBinary, nullable=False, comment="of the event"),
    sqlite_autoincrement=True,
)

control_node = Table(
    "control_node",
    metadata,
    Column("one", Number, primary_key=True, autoincrement=False, comment="always 1: there is one row"),
    Column("address", Text, nullable=False, comment="host:port of the inspection endpoint"),
    Column("token", Text, nullable=False, comment="what a request to that endpoint has to send"),
    Column("version", Text, nullable=False, comment="of dartrl"),
    Column("pid", Number, nullable=False, comment="the main process"),
    Column("config", Text, nullable=False, comment="TOML"),
    Column("session", Text, nullable=False, comment="JSON object of times"),
    Column("began_unix_s", Float, nullable=False),
    Column("seen_unix_s", Float, nullable=False),
    Column("ended_unix_s", Float, comment="null while the run runs, and if its machine was lost"),
    comment="where a run can be inspected from elsewhere; written only if the record is on a server",
)

screens = Table(
    "screens",
    metadata,
    Column("screen_id", Number, primary_key=True),
    Column("task_id", Text, nullable=False),
    Column("seed", Number, nullable=False),
    Column("depth", Number, nullable=False, comment="actions from the start screen when it was found"),
    Column("found_actions", Number, nullable=False, comment="actions of the exploration by then"),
    Column("screenshot_sha256", Text, nullable=False),
    Column("shape", Text, nullable=False),
    Column("view", LargeBinary, nullable=False, comment="the screen without its pixels, packed"),
    Column("found_unix_s", Float, nullable=False),
    Column("checksum", LargeBinary, nullable=False, comment="of this row"),
    sqlite_autoincrement=True,
    comment="nodes of exploration graphs",
)
Index("screens_by_task", screens.c.task_id, screens.c.seed, screens.c.screen_id)

exploration_leases = Table(
    "exploration_leases",
    metadata,
    Column("fence", Number, primary_key=True),
    Column("task_id", Text, nullable=False),
    Column("seed", Number, nullable=False),
    Column("screen_id", Number, ForeignKey("screens.screen_id"), comment="the screen that it is for now"),
    Column("goal_id", Number, ForeignKey("screens.screen_id"), comment="the screen that it was given for"),
    Column("explorer", Text, nullable=False),
    Column("incarnation", Number, nullable=False),
    Column("deadline_unix_s", Float, nullable=False),
    Column("ended", Text, comment="why it ended; null while it is held"),
    Column("held_screen", Number, unique=True, comment="screen_id while it is held: one holder each"),
    Column("held_by", Text, unique=True, comment="explorer while it is held: one lease each"),
    sqlite_autoincrement=True,
)

explored_steps = Table(
    "explored_steps",
    metadata,
    Column("step_id", Number, primary_key=True),
    Column("task_id", Text, nullable=False),
    Column("seed", Number, nullable=False),
    Column("fence", Number, ForeignKey("exploration_leases.fence"), nullable=False),
    Column("number", Number, nullable=False, comment="of the report within its lease"),
    Column("actions", Number, nullable=False, comment="of the exploration so far, this one included"),
    Column("source_id", Number, ForeignKey("screens.screen_id"), comment="null for a reset"),
    Column("act", Text, nullable=False),
    Column("action", Text, nullable=False, comment="key of the candidate"),
    Column("effect", Text, nullable=False),
    Column("target_id", Number, ForeignKey("screens.screen_id")),
    Column("expansion", Text, unique=True, comment="screen and action at their first try, else null"),
    Column("unix_s", Float, nullable=False),
    UniqueConstraint("fence", "number", name="one_report_each"),
    sqlite_autoincrement=True,
)
Index("explored_steps_by_task", explored_steps.c.task_id, explored_steps.c.seed, explored_steps.c.step_id)

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
    parked,
    exploration_leases,
    explored_steps,
)
for _table in KEPT_TWICE:
    Index(f"copy_of_{_table.name}", *_table.columns).ddl_if(dialect="sqlite")
