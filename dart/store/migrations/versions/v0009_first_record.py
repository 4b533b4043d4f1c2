"""The first record: its tables, its first counters, and the triggers that keep the tallies.

A tally is a number of rows by state or reason. This migration takes the place of migrations 0001 to 0008,
which no released version had. A test compares the hash of the SQLite schema that it makes.
"""

from typing import NamedTuple

from alembic import op

from dart.store.migrations import first_tables

revision = "0009"
down_revision = None
branch_labels = None
depends_on = None

COUNT = """
    INSERT INTO tallies (what, task_id, name, value) VALUES ('{what}', {task}, {name}, 1)
    ON CONFLICT (what, task_id, name) DO UPDATE SET value = {value} + 1;
"""
LEFT = "UPDATE tallies SET value = value - 1 WHERE what = 'state' AND task_id = '' AND name = old.state;"


def count(what: str, name: str, task: str = "''") -> dict[str, str]:
    """What a tally counts, as values for the placeholders of `COUNT`."""
    return {"what": what, "task": task, "name": name}


STATE, PARKING = count("state", "new.state"), count("parking", "''")
DROP, OUTCOME, FAULT = (
    count("drop", "new.drop_reason"),
    count("outcome", "new.outcome"),
    count("fault", "new.fault_kind"),
)
GROUP_DROP = count("group_drop", "new.drop_reason", task="new.task_id")
TRIGGERS = (
    ("rollout_issued", "INSERT ON rollouts", "", "", STATE),
    ("rollout_moved", "UPDATE OF state ON rollouts", "new.state != old.state", LEFT, STATE),
    ("rollout_parked", "UPDATE OF resumes ON rollouts", "new.resumes > old.resumes", "", PARKING),
    ("rollout_dropped", "UPDATE OF drop_reason ON rollouts", "new.drop_reason IS NOT NULL", "", DROP),
    ("trajectory_stored", "INSERT ON trajectories", "", "", OUTCOME),
    ("attempt_spent", "INSERT ON attempts", "", "", FAULT),
    ("group_dropped", "UPDATE OF drop_reason ON groups", "new.drop_reason IS NOT NULL", "", GROUP_DROP),
)
"""Of each trigger: name, event, condition, a statement before the counting, and what it counts. The tallies
are kept by triggers, so that no writer can forget to count."""


class Syntax(NamedTuple):
    """How a database writes a trigger."""

    when: str
    value: str
    """SQL for the value that an existing tally has."""
    statements: tuple[str, ...]


SYNTAX = {
    "sqlite": Syntax(
        "WHEN {}", "value", ("CREATE TRIGGER {name} AFTER {event} {when} BEGIN {statements} END",)
    ),
    "postgresql": Syntax(
        "WHEN ({})",
        "tallies.value",
        (
            "CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ "
            "BEGIN {statements} RETURN NULL; END $$",
            "CREATE TRIGGER {name} AFTER {event} FOR EACH ROW {when} EXECUTE FUNCTION {name}()",
        ),
    ),
}
"""The syntax of each database, by the name of SQLAlchemy's dialect."""


def upgrade() -> None:
    """Create all tables and indexes, the counters with the value 0, and the triggers."""
    first_tables.metadata.create_all(op.get_bind(), checkfirst=False)
    counters = ("issued", "fenced", "fenced_commits")
    op.bulk_insert(first_tables.counters, [{"name": name, "value": 0} for name in counters])
    syntax = SYNTAX[op.get_bind().dialect.name]
    for name, event, condition, first, counted in TRIGGERS:
        when = condition and syntax.when.format(condition)
        statements = first + COUNT.format(**counted, value=syntax.value)
        for statement in syntax.statements:
            op.execute(statement.format(name=name, event=event, when=when, statements=statements))
