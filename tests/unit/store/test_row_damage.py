"""Rows that are not what was written are named, whoever changed them: SQL, a flipped bit, another version."""

import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from dart.store.browse_queries import RunBrowser
from dart.store.errors import StoreUnavailable
from dart.store.reader import StoreReader
from dart.store.store import Store
from dart.testing.trajectories import demonstration_of, step_at, trajectory_for


@pytest.fixture(scope="module")
def sound_record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dropped group (rollouts 1, 2), a stored rollout (3), a parked one (4), a demonstration, events."""
    path = tmp_path_factory.mktemp("sound") / "store.db"
    with Store(path) as store:
        store.add_version({"loss": 0.5})
        dropped = store.open_group("click-test", 7, 2, 10, 0)
        for reward in (0.0, 0.0):
            finish(store, dropped, reward)
        store.drop_group(dropped, "no_spread")
        live = store.open_group("click-test", 8, 2, 10, 0)
        finish(store, live, 1.0)
        parked = store.lease_rollout(live, "env-000", 60.0)
        store.park_rollout(parked.rollout_id, 1, (step_at(0), step_at(0, 1)), "the run is stopped", 8)
        store.add_demonstrations([demonstration_of("log-in", 7, [step_at(0)])])
        for number in range(3):
            store.record_event("engine_state", "rollout-0", {"state": "healthy", "number": number})
    return path


def finish(store: Store, group_id: int, reward: float) -> None:
    lease = store.lease_rollout(group_id, "env-000", 60.0)
    played = replace(trajectory_for(lease, reward), started_unix_s=1000, duration_s=2)  # whole numbers
    store.finish_rollout(lease.rollout_id, 1, played)


@pytest.fixture
def path(tmp_path: Path, sound_record: Path) -> Path:
    shutil.copytree(sound_record.parent, tmp_path, dirs_exist_ok=True)
    return tmp_path / "store.db"


OTHER_STEPS = f"SET steps_sha256 = '{'0' * 64}'"


def change(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path)
    with connection:
        connection.executescript(statement)
    connection.close()


def found(path: Path, *, full: bool = True) -> list[str]:
    with StoreReader(path) as record:
        return [str(finding) for finding in record.damaged_rows(full=full)]


@pytest.mark.parametrize(
    ("query", "which"),
    [
        ("SELECT steps_sha256 FROM trajectories WHERE rollout_id = 2", "trajectory of rollout 2"),
        ("SELECT steps_sha256 FROM parked", "parked episode of rollout 4"),
        ("SELECT steps_sha256 FROM pool", "demonstration 1"),
    ],
)
def test_steps_that_are_lost_or_damaged_are_named(path: Path, query: str, which: str) -> None:
    with sqlite3.connect(path) as connection:
        ((sha256,),) = connection.execute(query).fetchall()
    connection.close()
    blob = path.parent / "blobs" / "steps" / sha256[:2] / f"{sha256}.steps"
    blob.write_bytes(blob.read_bytes()[:-1])
    assert any(which in line and "with sha256" in line for line in found(path)), found(path)
    blob.unlink()
    assert any(which in line and "is missing" in line for line in found(path)), found(path)


@pytest.mark.parametrize("full", [False, True])
def test_what_was_written_is_what_is_there(path: Path, full: bool) -> None:
    assert found(path, full=full) == []


@pytest.mark.parametrize(
    ("statement", "finding"),
    [
        (
            "UPDATE trajectories SET reward = 'abc' WHERE rollout_id = 1",
            "trajectory of rollout 1: it is not what",
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
        ("UPDATE events SET data = '{' WHERE event_id = 2", "event 2: it is not what"),
        ("UPDATE events SET unix_s = unix_s + 1 WHERE event_id = 2", "event 2: it is not what"),
        (
            "DELETE FROM events WHERE event_id = 3",
            "the last number of table events: it is 3, the last row has 2",
        ),
        ("UPDATE groups SET seed = 'many' WHERE group_id = 1", "row 1 of table groups: its seed is text"),
        ("DROP TRIGGER rollout_moved", "rollout_moved: its definition is missing"),
        ("DROP TABLE attempts", "attempts: its definition is missing"),
    ],
)
def test_a_row_that_is_not_what_was_written_is_named(path: Path, statement: str, finding: str) -> None:
    change(path, statement)
    assert any(finding in line for line in found(path)), found(path)


@pytest.mark.parametrize(
    ("statement", "names"),
    [
        (f"UPDATE trajectories {OTHER_STEPS} WHERE rollout_id = 3", ["trajectory of rollout 3"]),
        (f"UPDATE trajectories {OTHER_STEPS} WHERE rollout_id = 1", []),
        (f"UPDATE parked {OTHER_STEPS}", ["parked episode of rollout 4"]),
    ],
)
def test_what_may_still_be_trained_is_read_without_full(path: Path, statement: str, names: list[str]) -> None:
    change(path, statement)
    assert [line.partition(":")[0] for line in found(path, full=False)] == names


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ("counters", b"issued"),
        ("groups", b"no_spread"),
        ("rollouts", b"stored"),
        ("pool", b"oracle"),
        ("tallies", b"finished"),
        ("versions", b"loss"),
        ("task_statistics", b"log-in"),
    ],
)
def test_a_flipped_bit_in_a_small_table_is_named(path: Path, table: str, text: bytes) -> None:
    """The row in the table differs from its second copy, the index over all columns."""
    with sqlite3.connect(path) as connection:
        query = "SELECT rootpage FROM sqlite_master WHERE name = ?"
        (page,) = connection.execute(query, (table,)).fetchone()
        (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
    connection.close()
    content = bytearray(path.read_bytes())
    content[content.index(text, (page - 1) * page_bytes, page * page_bytes)] ^= 1
    path.write_bytes(content)
    assert any(f"copy_of_{table}" in line for line in found(path)), found(path)


def test_bytes_that_are_no_text_are_named_and_not_raised(path: Path) -> None:
    change(path, "UPDATE trajectories SET instruction = CAST(x'ff41' AS TEXT) WHERE rollout_id = 1")
    assert any("trajectory of rollout 1" in line for line in found(path))
    with RunBrowser(path) as record:
        trajectory = record.trajectory(1)
    assert trajectory is not None
    assert trajectory.instruction == r"\xffA"


def test_a_row_that_cannot_be_read_is_an_error_with_the_remedy(path: Path) -> None:
    change(path, "UPDATE versions SET metrics = '{'; UPDATE events SET data = 'no json' WHERE event_id = 1")
    with StoreReader(path) as record:
        for read in (record.latest_version, record.events):
            with pytest.raises(
                StoreUnavailable, match=r"holds a row that cannot be read.*doctor --data --full"
            ):
                read()


def test_a_record_without_a_table_is_an_error_with_the_remedy(path: Path) -> None:
    change(path, "DROP TABLE task_statistics")
    with StoreReader(path) as record, pytest.raises(StoreUnavailable, match="no such table: task_statistics"):
        record.totals()


def test_metrics_that_are_no_json_are_found_by_the_audit(path: Path) -> None:
    change(path, "UPDATE versions SET metrics = '[1'")
    with StoreReader(path) as record:
        assert [str(one) for one in record.integrity(3)] == [
            "version 0: its metrics are no JSON object: '[1'"
        ]


def test_a_definition_that_is_no_text_is_an_error_with_the_remedy(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[content.index(b"TRIGGER rollout_moved") + 2] ^= 0x80
    path.write_bytes(content)
    with pytest.raises(StoreUnavailable, match=r"store\.db: it is damaged: put a copy"):
        StoreReader(path)


def test_a_header_that_makes_the_record_read_only_is_named(path: Path) -> None:
    """SQLite reads such a file, and refuses to write it."""
    content = bytearray(path.read_bytes())
    content[18] ^= 4
    path.write_bytes(content)
    assert found(path) == ["the database file: its formats for writing and reading are 0602, not 0202"]


def test_damage_of_pages_is_told_without_the_heading_of_sqlite(path: Path) -> None:
    """The list of free pages of the header names a page that is in use."""
    content = bytearray(path.read_bytes())
    content[32:40] = (9).to_bytes(4, "big") + (1).to_bytes(4, "big")
    path.write_bytes(content)
    lines = [line for line in found(path) if line.startswith("the database file")]
    assert lines
    assert not any("***" in line for line in lines)
