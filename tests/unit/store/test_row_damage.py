"""Rows that are not what was written are named, whoever changed them: SQL, a flipped bit, another version.

Only SQLite's are: bits of the file and its header, the second copies of small tables, values of another type
than their column's, and the last number of a table, which a rollback of PostgreSQL leaves ahead. What only
PostgreSQL has is in tests/cluster/test_postgresql_checks.py.
"""

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dart.core.record_address import RecordAddress
from dart.store.blobs import FolderBlobs
from dart.store.browse_queries import RunBrowser
from dart.store.errors import StoreUnavailable
from dart.store.reader import StoreReader
from dart.store.run_blobs import local_blobs
from dart.store.store import Store
from dart.store.write_ahead_log import log_of
from dart.testing.trajectories import EVALUATION, demonstration_of, evaluation_play, step_at, trajectory_for
from tests.record_places import RecordPlaces


def sound(store: Store) -> None:
    """A dropped group (rollouts 1, 2), a stored rollout (3), a parked one (4), a demonstration, events."""
    store.add_version()
    dropped = store.open_group("click-test", 7, 2, 10, 0)
    for reward in (0.0, 0.0):
        finish(store, dropped, reward)
    store.drop_group(dropped, "no_spread")
    live = store.open_group("click-test", 8, 2, 10, 0)
    finish(store, live, 1.0)
    parked = store.lease_rollout(live, "env-000", 60.0)
    store.park_rollout(parked.rollout_id, 1, (step_at(0), step_at(0, 1)), "the run is stopped", 8)
    store.add_demonstrations([demonstration_of("log-in", 7, [step_at(0)])])
    store.record_evaluation(EVALUATION, evaluation_play(steps_sha256=store._put_steps((step_at(0, 3),))))
    for number in range(3):
        store.record_event("engine_state", "rollout-0", {"state": "healthy", "number": number})


def finish(store: Store, group_id: int, reward: float) -> None:
    lease = store.lease_rollout(group_id, "env-000", 60.0)
    played = replace(trajectory_for(lease, reward), started_unix_s=1000, duration_s=2)  # whole numbers
    store.finish_rollout(lease.rollout_id, 1, played)


@pytest.fixture
def address(places: RecordPlaces) -> RecordAddress:
    return places.copy_of(sound)


@pytest.fixture
def path(address: RecordAddress) -> Path:
    """The file of the record, for what is about files."""
    assert isinstance(address, Path)
    return address


@pytest.fixture
def steps(places: RecordPlaces, address: RecordAddress, tmp_path: Path) -> FolderBlobs:
    """Copies of the steps of all records, which may be damaged."""
    copies = local_blobs(tmp_path).steps
    assert isinstance(places.steps, FolderBlobs)
    assert isinstance(copies, FolderBlobs)
    shutil.copytree(places.steps.root, copies.root)
    return copies


@pytest.fixture
def reader(address: RecordAddress, steps: FolderBlobs) -> Iterator[StoreReader]:
    with StoreReader(address, steps=steps) as opened:
        yield opened


ONLY_SQLITE = pytest.mark.only_sqlite
OTHER_STEPS = f"SET steps_sha256 = '{'0' * 64}'"


def found(reader: StoreReader, *, full: bool = True) -> list[str]:
    return [str(finding) for finding in reader.damaged_rows(full=full)]


@pytest.mark.parametrize(
    ("query", "which"),
    [
        ("SELECT steps_sha256 FROM trajectories WHERE rollout_id = 2", "trajectory of rollout 2"),
        ("SELECT steps_sha256 FROM parked", "parked episode of rollout 4"),
        ("SELECT steps_sha256 FROM pool", "demonstration 1"),
        ("SELECT steps_sha256 FROM evaluation_episodes", "evaluation episode 1"),
    ],
)
def test_steps_that_are_lost_or_damaged_are_named(
    places: RecordPlaces,
    address: RecordAddress,
    steps: FolderBlobs,
    reader: StoreReader,
    query: str,
    which: str,
) -> None:
    ((sha256,),) = places.run(address, query)
    blob = steps.path(sha256)
    blob.write_bytes(blob.read_bytes()[:-1])
    assert any(which in line and "with sha256" in line for line in found(reader)), found(reader)
    blob.unlink()
    assert any(which in line and "is missing" in line for line in found(reader)), found(reader)


@pytest.mark.parametrize("full", [False, True])
def test_what_was_written_is_what_is_there(reader: StoreReader, full: bool) -> None:
    assert found(reader, full=full) == []


@pytest.mark.parametrize(
    ("statement", "finding"),
    [
        pytest.param(
            "UPDATE trajectories SET reward = 'abc' WHERE rollout_id = 1",
            "trajectory of rollout 1: it is not what",
            marks=ONLY_SQLITE,
        ),
        (
            "UPDATE trajectories SET reward = 0.25 WHERE rollout_id = 1",
            "trajectory of rollout 1: it is not what",
        ),
        (
            "UPDATE trajectories SET instruction = 'x' WHERE rollout_id = 1",
            "trajectory of rollout 1: it is not",
        ),
        (
            f"UPDATE trajectories {OTHER_STEPS} WHERE rollout_id = 2",
            "trajectory of rollout 2: it is not what",
        ),
        (f"UPDATE parked {OTHER_STEPS}", "parked episode of rollout 4: it is not what"),
        (f"UPDATE pool {OTHER_STEPS}", "demonstration 1: it is not what"),
        ("UPDATE pool SET reward = 0.5", "demonstration 1: it is not what"),
        ("UPDATE evaluation_episodes SET num_steps = 9", "evaluation episode 1: it is not what"),
        ("UPDATE events SET data = '{' WHERE event_id = 2", "event 2: it is not what"),
        ("UPDATE events SET unix_s = unix_s + 1 WHERE event_id = 2", "event 2: it is not what"),
        pytest.param(
            "UPDATE sqlite_sequence SET seq = 2 WHERE name = 'events'",
            "the last number of table events: it is 2, the last row has 3",
            marks=ONLY_SQLITE,
        ),
        pytest.param(
            "UPDATE groups SET seed = 'many' WHERE group_id = 1",
            "row 1 of table groups: its seed is text",
            marks=ONLY_SQLITE,
        ),
        pytest.param(
            "DROP TRIGGER rollout_moved", "rollout_moved: its definition is missing", marks=ONLY_SQLITE
        ),
        ("DROP TABLE attempts", "attempts: its definition is missing"),
    ],
)
def test_a_row_that_is_not_what_was_written_is_named(
    places: RecordPlaces, address: RecordAddress, reader: StoreReader, statement: str, finding: str
) -> None:
    places.run(address, statement)
    assert any(finding in line for line in found(reader)), found(reader)


@pytest.mark.parametrize(
    ("statement", "names"),
    [
        (f"UPDATE trajectories {OTHER_STEPS} WHERE rollout_id = 3", ["trajectory of rollout 3"]),
        (f"UPDATE trajectories {OTHER_STEPS} WHERE rollout_id = 1", []),
        (f"UPDATE parked {OTHER_STEPS}", ["parked episode of rollout 4"]),
    ],
)
def test_what_may_still_be_trained_is_read_without_full(
    places: RecordPlaces, address: RecordAddress, reader: StoreReader, statement: str, names: list[str]
) -> None:
    places.run(address, statement)
    assert [line.partition(":")[0] for line in found(reader, full=False)] == names


def test_a_dropped_demonstration_is_read_in_full_only_unless_a_live_group_has_it(
    tmp_path: Path, places: RecordPlaces
) -> None:
    steps = local_blobs(tmp_path).steps
    address = places.empty()
    with Store(address, steps=steps) as store, StoreReader(address, steps=steps) as reader:
        store.add_demonstrations([demonstration_of("click-test", 7, [step_at(0)])])
        group_id = store.open_group("click-test", 7, 1, 10, 0)
        finish(store, group_id, 0.0)
        store.use_demonstration(group_id, 1)
        store.drop_demonstration(1)
        steps.delete(places.run(address, "SELECT steps_sha256 FROM pool")[0][0])
        assert [line.partition(":")[0] for line in found(reader, full=False)] == ["demonstration 1"]
        store.drop_group(group_id, "damaged_steps")
        assert found(reader, full=False) == []
        assert [line.partition(":")[0] for line in found(reader)] == ["demonstration 1"]


def test_damage_is_named_on_whichever_page_of_rows_it_is(
    places: RecordPlaces, address: RecordAddress, reader: StoreReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dart.store.row_damage.PAGE_ROWS", 1)
    places.run(address, "UPDATE trajectories SET reward = 0.25")
    assert [line.split(":")[0] for line in found(reader) if "checksum is wrong" in line] == [
        f"trajectory of rollout {number}" for number in (1, 2, 3)
    ]


@ONLY_SQLITE
def test_no_transaction_reads_the_record_while_steps_are_read(
    steps: FolderBlobs, reader: StoreReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write-ahead log of a running run would grow meanwhile."""
    read, in_transaction = steps.read, []

    def note(sha256: str) -> bytes:
        in_transaction.append(reader._bare.in_transaction)
        return read(sha256)

    monkeypatch.setattr(steps, "read", note)
    assert found(reader) == []
    assert in_transaction == [False] * 6


@ONLY_SQLITE
@pytest.mark.parametrize(
    ("table", "text"),
    [
        ("counters", b"issued"),
        ("groups", b"no_spread"),
        ("rollouts", b"stored"),
        ("pool", b"oracle"),
        ("tallies", b"finished"),
        ("versions", b"{}"),
        ("task_statistics", b"log-in"),
    ],
)
def test_a_flipped_bit_in_a_small_table_is_named(
    path: Path, steps: FolderBlobs, table: str, text: bytes
) -> None:
    """The row in the table differs from its second copy, the index over all columns."""
    with sqlite3.connect(path) as connection:
        query = "SELECT rootpage FROM sqlite_master WHERE name = ?"
        (page,) = connection.execute(query, (table,)).fetchone()
        (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
    connection.close()
    content = bytearray(path.read_bytes())
    content[content.index(text, (page - 1) * page_bytes, page * page_bytes)] ^= 1
    path.write_bytes(content)
    named = found_in(path, steps)
    assert any(f"copy_of_{table}" in line for line in named), named


def found_in(path: Path, steps: FolderBlobs) -> list[str]:
    """What is found in a file that was changed."""
    with StoreReader(path, steps=steps) as opened:
        return found(opened)


@ONLY_SQLITE
def test_bytes_that_are_no_text_are_named_and_not_raised(
    places: RecordPlaces, path: Path, steps: FolderBlobs, reader: StoreReader
) -> None:
    """PostgreSQL refuses them: the encoding of the database is UTF8."""
    places.run(path, "UPDATE trajectories SET instruction = CAST(x'ff41' AS TEXT) WHERE rollout_id = 1")
    assert any("trajectory of rollout 1" in line for line in found(reader))
    with RunBrowser(path, steps=steps) as record:
        trajectory = record.trajectory(1)
    assert trajectory is not None
    assert trajectory.instruction == r"\xffA"


def test_a_row_that_cannot_be_read_is_an_error_with_the_remedy(
    places: RecordPlaces, address: RecordAddress, reader: StoreReader
) -> None:
    places.run(address, "UPDATE versions SET metrics = '{'")
    places.run(address, "UPDATE events SET data = 'no json' WHERE event_id = 1")
    for read in (reader.latest_version, reader.find_events):
        with pytest.raises(StoreUnavailable, match=r"holds a row that cannot be read.*doctor --data --full"):
            read()


def test_a_record_without_a_table_is_an_error_with_the_remedy(
    places: RecordPlaces, address: RecordAddress, reader: StoreReader
) -> None:
    places.run(address, "DROP TABLE task_statistics")
    missing = 'no such table: task_statistics|relation "task_statistics" does not exist'
    with pytest.raises(StoreUnavailable, match=missing) as refused:
        reader.totals()
    assert "doctor --data --full" in str(refused.value)


def test_metrics_that_are_no_json_are_found_by_the_audit(
    places: RecordPlaces, address: RecordAddress, reader: StoreReader
) -> None:
    places.run(address, "UPDATE versions SET metrics = '[1'")
    assert [str(one) for one in reader.integrity(3)] == ["version 0: its metrics are no JSON object: '[1'"]


@ONLY_SQLITE
def test_a_definition_that_is_no_text_is_an_error_with_the_remedy(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[content.index(b"TRIGGER rollout_moved") + 2] ^= 0x80
    path.write_bytes(content)
    with pytest.raises(StoreUnavailable, match=r"store\.db: it is damaged: put a copy"):
        StoreReader(path)


WRITES_AND_CLOSES = """
import sqlite3, sys
record = sqlite3.connect(sys.argv[1])
with record:
    record.execute("UPDATE counters SET value = value")
record.close()
"""


@ONLY_SQLITE
def test_a_writer_that_ends_during_a_full_check_leaves_the_log_that_the_check_reads(
    path: Path, reader: StoreReader
) -> None:
    """SQLite deletes the log when the last connection closes; the lock of the check shows it another one."""

    def write_meanwhile(statement: str) -> None:
        if statement == "PRAGMA integrity_check":
            subprocess.run([sys.executable, "-c", WRITES_AND_CLOSES, path], check=True)

    reader._bare.set_trace_callback(write_meanwhile)
    assert found(reader) == []
    assert log_of(path).exists()


@ONLY_SQLITE
def test_damage_of_pages_is_told_without_the_heading_of_sqlite(path: Path, steps: FolderBlobs) -> None:
    """The list of free pages of the header names a page that is in use."""
    content = bytearray(path.read_bytes())
    content[32:40] = (9).to_bytes(4, "big") + (1).to_bytes(4, "big")
    path.write_bytes(content)
    lines = [line for line in found_in(path, steps) if line.startswith("the database file")]
    assert lines
    assert not any("***" in line for line in lines)
