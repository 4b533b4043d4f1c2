"""What an earlier system left behind is known by pid and start time, killed, and reported; nobody else is."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors import orphans
from actors.board import Board
from actors.errors import SystemStartFailed
from actors.orphans import Orphan, reap, record_processes, refuse_if_in_use, still_running
from actors.process import start_ticks


@pytest.fixture(autouse=True)
def _no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orphans, "DYING_S", 0.0)


@pytest.fixture
def escaped() -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def board_with(folder: Path, pid: int, ticks: int, route: int = 0) -> Path:
    board = Board.create(folder / "board")
    board.set(board.claim("env", "root"), pid=pid, pid_start_ticks=ticks, route=route)
    board.close()
    return board.path


def test_a_process_on_the_old_board_is_killed_and_reported(
    tmp_path: Path, escaped: "subprocess.Popen[bytes]"
) -> None:
    board = board_with(tmp_path, escaped.pid, start_ticks(escaped.pid))
    assert reap(tmp_path / "processes.json", board) == (Orphan("env", escaped.pid),)
    assert escaped.wait(10) == -9
    assert reap(tmp_path / "processes.json", board) == (), "and only once"


def test_a_recorded_admin_is_killed_and_reported(tmp_path: Path, escaped: "subprocess.Popen[bytes]") -> None:
    record_processes(tmp_path / "processes.json", admin=escaped.pid)
    assert reap(tmp_path / "processes.json", tmp_path / "board") == (Orphan("admin", escaped.pid),)


@pytest.mark.parametrize(("later_ticks", "route"), [(1, 0), (None, 0), (0, 1)])
def test_a_pid_alone_is_nobody(
    tmp_path: Path, escaped: "subprocess.Popen[bytes]", later_ticks: int | None, route: int
) -> None:
    """Given out again, never recorded with its start, or a process of another host."""
    ticks = 0 if later_ticks is None else start_ticks(escaped.pid) + later_ticks
    assert reap(tmp_path / "processes.json", board_with(tmp_path, escaped.pid, ticks, route)) == ()
    assert escaped.poll() is None


def test_a_process_that_is_dead_and_not_collected_is_no_leftover(
    tmp_path: Path, escaped: "subprocess.Popen[bytes]"
) -> None:
    ticks = start_ticks(escaped.pid)
    record_processes(tmp_path / "processes.json", launcher=escaped.pid)
    assert start_ticks(escaped.pid) == ticks > 0
    with pytest.raises(SystemStartFailed, match=rf"in use by process {escaped.pid}"):
        refuse_if_in_use(tmp_path / "processes.json")
    escaped.kill()
    os.waitid(os.P_PID, escaped.pid, os.WEXITED | os.WNOWAIT)  # dead, and still a line in the process table
    refuse_if_in_use(tmp_path / "processes.json")
    assert reap(tmp_path / "processes.json", tmp_path / "board") == ()


def test_a_copy_of_the_folder_of_a_system_that_runs_is_free_and_the_system_is_not_harmed(
    tmp_path: Path, escaped: "subprocess.Popen[bytes]"
) -> None:
    original = tmp_path / "original"
    original.mkdir()
    record_processes(original / "processes.json", launcher=escaped.pid)
    board_with(original, escaped.pid, start_ticks(escaped.pid))
    copy = Path(shutil.copytree(original, tmp_path / "copy"))

    refuse_if_in_use(copy / "processes.json")
    assert still_running(copy / "processes.json", copy / "board") == ()
    assert reap(copy / "processes.json", copy / "board") == ()
    assert escaped.poll() is None


def test_a_folder_that_was_moved_while_its_system_runs_is_still_in_use(
    tmp_path: Path, escaped: "subprocess.Popen[bytes]"
) -> None:
    (tmp_path / "first").mkdir()
    record_processes(tmp_path / "first" / "processes.json", launcher=escaped.pid)
    moved = (tmp_path / "first").rename(tmp_path / "moved")

    with pytest.raises(SystemStartFailed, match=rf"in use by process {escaped.pid}"):
        refuse_if_in_use(moved / "processes.json")


@pytest.mark.parametrize("content", [None, "", "not json"])
def test_a_first_start_or_a_torn_file_is_no_hindrance(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "processes.json").write_text(content)
        (tmp_path / "board").write_text(content)
    refuse_if_in_use(tmp_path / "processes.json")
    assert reap(tmp_path / "processes.json", tmp_path / "board") == ()


def test_a_process_that_is_gone_has_no_start_time() -> None:
    assert start_ticks(2**22 + 1) == 0
