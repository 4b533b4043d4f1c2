"""What the inspection endpoint reads of a run directory, and what it never reads."""

import fcntl
import os
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.board import SLOT_BYTES
from actors.process import start_ticks
from dart.core.errors import UsageError
from dart.core.run_directory import RunPaths
from dart.run.inspection_protocol import FILE_BYTES, FileState, decode_state, encode_state
from dart.run.inspection_state import machine_state, read_part
from tests.recorded_run import ACTORS, record_run


@pytest.fixture
def paths(tmp_path: Path) -> Iterator[RunPaths]:
    """A recorded run that seems to run as this process."""
    made = record_run(tmp_path / "run")
    made.lock.write_text(f"{os.getpid()}\n")
    with made.lock.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield made


def test_a_state_has_what_readers_need(paths: RunPaths) -> None:
    state = machine_state(paths)

    assert (state.pid, state.main_is) == (os.getpid(), "")
    assert state.session == (paths.root / "session.json").read_text()
    assert len(zlib.decompress(state.board)) == SLOT_BYTES * len(rows_written(state.board))
    assert state.processes.get(os.getpid(), (start_ticks(os.getpid()),))[0] == start_ticks(os.getpid())
    assert decode_state(encode_state(state)) == state


def rows_written(board: bytes) -> list[bytes]:
    rows = zlib.decompress(board)
    names = [rows[at : at + 64].rstrip(b"\0") for at in range(0, len(rows), SLOT_BYTES)]
    assert set(ACTORS) <= {name.decode() for name in names}
    return names


def test_reports_are_always_listed_and_logs_of_the_actors_that_were_asked_about(paths: RunPaths) -> None:
    for folder, name in (
        *(("logs", "env-000.jsonl"), ("logs", "env-000.jsonl.1"), ("logs", "env-0001.jsonl")),
        *(("crash", "env-000.3.txt"), ("crash", "env-001.1.txt")),
    ):
        (paths.root / folder / name).write_text("x")

    def listed(*about: str) -> set[tuple[str, str]]:
        files = {(file.folder, file.name) for file in machine_state(paths, about).files}
        return {(folder, name) for folder, name in files if folder != "reports"}

    reports = [file for file in machine_state(paths).files if file.folder == "reports"]
    assert len(reports) == len(list((paths.root / "reports").iterdir())) > 0
    assert listed() == set()
    assert listed("env-000") == {
        ("logs", "env-000.jsonl"),
        ("logs", "env-000.jsonl.1"),
        ("crash", "env-000.3.txt"),
    }


def test_a_file_is_read_in_parts_and_only_while_it_is_the_same_one(paths: RunPaths) -> None:
    log = paths.logs / "env-000.jsonl"
    log.write_bytes(b"a" * FILE_BYTES + b"rest")
    file = next(one for one in machine_state(paths, ["env-000"]).files if one.name == log.name)

    assert file.size_bytes == FILE_BYTES + 4
    assert read_part(paths, file, 0) == b"a" * FILE_BYTES
    assert read_part(paths, file, FILE_BYTES) == b"rest"
    assert read_part(paths, file, FILE_BYTES + 4) == b""

    log.rename(paths.logs / "env-000.jsonl.1")
    log.write_text("another file")
    assert read_part(paths, file, 0) == b""
    log.unlink()
    assert read_part(paths, file, 0) == b""


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        *(("", "key"), (".", "key"), ("logs", "../key"), ("logs", ".."), ("logs", ""), ("logs", ".hidden")),
        *(("scratch", "x"), ("checkpoints", "x"), ("logs/..", "key"), ("logs", "a\0b")),
    ],
)
def test_nothing_else_of_the_run_directory_is_read(paths: RunPaths, folder: str, name: str) -> None:
    paths.key.write_text("secret")
    with pytest.raises(UsageError, match="there is no file"):
        read_part(paths, FileState(folder, name, paths.key.stat().st_ino, 0), 0)


def test_a_link_is_neither_listed_nor_followed(paths: RunPaths) -> None:
    paths.key.write_text("secret")
    (paths.logs / "env-000.jsonl").unlink(missing_ok=True)
    (paths.logs / "env-000.jsonl").symlink_to(paths.key)

    assert "env-000.jsonl" not in [file.name for file in machine_state(paths, ["env-000"]).files]
    file = FileState("logs", "env-000.jsonl", paths.key.stat().st_ino, 0)
    assert read_part(paths, file, 0) == b""
