"""A write-ahead log that SQLite would cut short is named; one that an interrupted write left is not."""

import random
import shutil
import sqlite3
from pathlib import Path

import pytest

from dart.store.reader import StoreReader
from dart.store.store import Store
from dart.store.write_ahead_log import (
    FRAME_HEADER_BYTES,
    HEADER_BYTES,
    damage_of_log,
    damage_of_log_beside,
    log_of,
)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Of a record whose writer was killed after ten transactions."""
    path = tmp_path_factory.mktemp("killed") / "store.db"
    Store(path).close()
    with Store(path) as store:
        for number in range(10):
            store.record_event("restart", f"env-{number:03}")
        return log_of(path).read_bytes()


def test_a_log_that_grew_while_a_transaction_read_for_long_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dart.store.sqlite.LOG_BYTES", 64 << 10)
    path = tmp_path / "store.db"
    with Store(path) as store:
        with StoreReader(path) as reader, reader._reading() as connection:
            connection.execute("SELECT count(*) FROM events")
            for number in range(30):
                store.record_event("restart", f"env-{number:03}")
            assert log_of(path).stat().st_size > 64 << 10
        store._bare.execute("PRAGMA wal_checkpoint")
        store.record_event("restart", "env-030")
        assert log_of(path).stat().st_size == 64 << 10


def frames_in(log: bytes) -> int:
    return (len(log) - HEADER_BYTES) // (FRAME_HEADER_BYTES + 4096)


def test_a_whole_log_has_no_damage(log: bytes) -> None:
    assert damage_of_log(log) == ""
    assert damage_of_log(b"") == ""
    assert damage_of_log(bytes(HEADER_BYTES)) == ""


def test_a_flipped_bit_in_any_frame_is_named_with_the_first_frame_that_is_lost(log: bytes) -> None:
    drawn = random.Random(0)
    for _ in range(40):
        number = drawn.randrange(frames_in(log))
        at = HEADER_BYTES + number * (FRAME_HEADER_BYTES + 4096) + drawn.randrange(FRAME_HEADER_BYTES + 4096)
        flipped = bytearray(log)
        flipped[at] ^= 1 << drawn.randrange(8)
        assert damage_of_log(bytes(flipped)).startswith(f"frame {number + 1} is damaged"), at


@pytest.mark.parametrize("at", range(0, HEADER_BYTES, 3))
def test_a_flipped_bit_in_the_header_is_named(log: bytes, at: int) -> None:
    flipped = bytearray(log)
    flipped[at] ^= 4
    assert "header is damaged" in damage_of_log(bytes(flipped))


def test_a_log_that_ends_within_a_frame_was_being_written(log: bytes) -> None:
    assert damage_of_log(log[:-100]) == ""
    assert damage_of_log(log[:20]) == "it ends within its header, after 20 bytes"


def test_frames_of_an_earlier_generation_behind_the_newest_are_no_damage(tmp_path: Path) -> None:
    """After a checkpoint SQLite writes the same file again from its start, with another salt."""
    path = tmp_path / "store.db"
    with Store(path) as store:
        for number in range(10):
            store.record_event("restart", f"env-{number:03}")
        long_bytes = log_of(path).stat().st_size
        other = sqlite3.connect(path)
        other.execute("PRAGMA wal_checkpoint(RESTART)")
        other.close()
        store.record_event("restart", "env-010")
        content = log_of(path).read_bytes()
        assert len(content) == long_bytes
        assert damage_of_log(content) == ""


def test_what_is_named_is_what_sqlite_loses(tmp_path: Path) -> None:
    path, copy = tmp_path / "store.db", tmp_path / "copy.db"
    Store(path).close()
    with Store(path) as store:
        for number in range(10):
            store.record_event("restart", f"env-{number:03}")
        shutil.copy(path, copy)
        log = bytearray(log_of(path).read_bytes())
    log[HEADER_BYTES + (frames_in(bytes(log)) // 2) * (FRAME_HEADER_BYTES + 4096) + 100] ^= 1
    log_of(copy).write_bytes(log)
    named = damage_of_log(bytes(log))
    with sqlite3.connect(copy) as connection:
        kept = connection.execute("SELECT count(*) FROM events").fetchone()[0]
    connection.close()
    assert 0 < kept < 10
    assert named.endswith(f"loses {10 - kept} transactions from there on")


FRAME_BYTES = FRAME_HEADER_BYTES + 4096


def killed_while_it_wrote(folder: Path) -> tuple[Path, int]:
    """A record whose writer was killed between the header and the page of the frame that ends a transaction,
    where SQLite writes its log again from its start; and where that page is in the log."""
    path, killed = folder / "store.db", folder / "killed.db"
    with Store(path) as store:
        for number in range(10):
            store.record_event("restart", f"env-{number:03}")
        other = sqlite3.connect(path)
        other.execute("PRAGMA wal_checkpoint(RESTART)")
        other.close()
        store.record_event("restart", "env-010")
        before = log_of(path).read_bytes()
        for suffix in ("", "-shm"):
            shutil.copy(f"{path}{suffix}", f"{killed}{suffix}")
        store.record_event("restart", "env-011")
        after = log_of(path).read_bytes()
    changed = [
        at
        for at in range(HEADER_BYTES, len(after), FRAME_BYTES)
        if before[at : at + FRAME_BYTES] != after[at : at + FRAME_BYTES]
    ]
    page = changed[-1] + FRAME_HEADER_BYTES
    log_of(killed).write_bytes(after[:page] + before[page:])
    return killed, page


def test_a_transaction_that_was_killed_within_its_last_frame_is_no_damage(tmp_path: Path) -> None:
    killed, _ = killed_while_it_wrote(tmp_path)
    assert damage_of_log_beside(killed) == ""
    with Store(killed, create=False) as store:
        assert len(store.find_events(kinds=("restart",))) == 11
    assert damage_of_log_beside(tmp_path / "store.db") == ""


def test_a_frame_that_was_written_to_its_end_and_damaged_later_is_named(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with Store(path) as store:
        for number in range(3):
            store.record_event("restart", f"env-{number:03}")
        for suffix in ("", "-wal", "-shm"):
            shutil.copy(f"{path}{suffix}", f"{tmp_path / 'killed.db'}{suffix}")
    log = bytearray(log_of(tmp_path / "killed.db").read_bytes())
    log[-100] ^= 1
    log_of(tmp_path / "killed.db").write_bytes(log)
    assert damage_of_log_beside(tmp_path / "killed.db").endswith("loses 1 transactions from there on")
