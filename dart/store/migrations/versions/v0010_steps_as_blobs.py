"""Move packed steps from rows into blobs; the rows keep the sha256. Versions no longer name a folder.

The blobs are written and synced before the rows change. All rows change in one transaction. An interrupted
migration leaves the record as it was; the next try finds the blobs that were written, and writes the others.

A row whose checksum was wrong before keeps that checksum, so that it stays visible as damage.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa
from alembic import op

from dart.store.blobs import BlobStore
from dart.store.schema import Text
from dart.store.serialization import checksum

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

COPIED = ("pool", "parked", "versions")
"""Tables whose columns change and of which SQLite has a copy in an index (`dart.store.schema`)."""

STEPS = "steps"
"""Name of an attribute of Alembic's configuration: a function that returns the blob store for steps."""


class Moved(NamedTuple):
    """A table whose rows held packed steps before this migration."""

    table: str
    key: str
    row: str
    """Query for one row with its steps; the steps are null if they were lost."""
    columns: Sequence[str]
    """The columns that its checksum covered before; in the new checksum `steps_sha256` replaces `steps`."""


MOVED = (
    Moved(
        "trajectories",
        "rollout_id",
        "SELECT trajectories.*, steps.steps FROM trajectories "
        "LEFT JOIN steps ON steps.rollout_id = trajectories.rollout_id WHERE trajectories.rollout_id = :key",
        (
            *("rollout_id", "group_id", "task_id", "seed", "environment", "instruction", "outcome", "reward"),
            *("steps", "started_unix_s", "duration_s", "num_steps", "oldest_version", "fence"),
            "stored_unix_s",
        ),
    ),
    Moved(
        "pool",
        "pool_id",
        "SELECT pool.*, pool_steps.steps FROM pool "
        "LEFT JOIN pool_steps ON pool_steps.pool_id = pool.pool_id WHERE pool.pool_id = :key",
        (
            *("task_id", "seed", "origin", "instruction", "reward", "num_steps", "content_sha256"),
            *("added_unix_s", "steps"),
        ),
    ),
    Moved(
        "parked",
        "rollout_id",
        "SELECT * FROM parked WHERE rollout_id = :key",
        ("steps", "num_steps", "oldest_version"),
    ),
)


def upgrade() -> None:
    """Write all packed steps as blobs, and drop the tables and columns that held them."""
    has_copies = op.get_bind().dialect.name == "sqlite"
    for table in COPIED if has_copies else ():
        op.drop_index(f"copy_of_{table}", table)
    for moved in MOVED:
        op.add_column(moved.table, sa.Column("steps_sha256", Text, nullable=False, server_default=""))
        move_steps(moved)
    op.drop_table("steps")
    op.drop_table("pool_steps")
    op.drop_column("parked", "steps")
    op.drop_column("versions", "checkpoint")
    op.create_index("ix_trajectories_steps_sha256", "trajectories", ["steps_sha256"])
    for table in COPIED if has_copies else ():
        columns = [column["name"] for column in sa.inspect(op.get_bind()).get_columns(table)]
        op.create_index(f"copy_of_{table}", table, columns)


def move_steps(moved: Moved) -> None:
    """Write the steps of a table's rows as blobs, one row after another."""
    bind = op.get_bind()
    for key in bind.execute(sa.text(f"SELECT {moved.key} FROM {moved.table}")).scalars().all():
        row = dict(bind.execute(sa.text(moved.row), {"key": key}).mappings().one())
        if row["steps"] is None:
            continue  # they were lost before
        store: BlobStore = op.get_context().config.attributes[STEPS]()  # type: ignore[union-attr]
        values = {"sha256": store.put(bytes(row["steps"])), "key": key, "checksum": row["checksum"]}
        if row["checksum"] == checksum(row, moved.columns):
            values["checksum"] = new_checksum(row, values["sha256"], moved.columns)
        bind.execute(
            sa.text(
                f"UPDATE {moved.table} SET steps_sha256 = :sha256, checksum = :checksum "
                f"WHERE {moved.key} = :key"
            ),
            values,
        )


def new_checksum(row: Mapping[str, Any], sha256: str, columns: Sequence[str]) -> bytes:
    """The checksum of a row that has the sha256 of its steps instead of the steps."""
    renamed = ["steps_sha256" if column == "steps" else column for column in columns]
    return checksum({**row, "steps_sha256": sha256}, renamed)
