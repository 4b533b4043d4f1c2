"""Orphans: processes that an earlier system left in a run directory, identified by pid and start time.

When its launcher, its admin or a supervisor dies, the kernel kills every process of a system. A process that
escaped is found by its row on the board and killed before a new system begins. A pid alone is not enough: the
kernel may have given it to another process since.
"""

import json
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from actors.board import rows_of
from actors.errors import SystemStartFailed
from actors.process import has_ended, is_running, start_ticks

REAP_DEADLINE_S = 5.0

DYING_S = 0.5
"""Seconds for the processes of a killed system to end. A process that still runs then has escaped."""

FOLDER = "folder"
"""Key in the file of processes: which folder it was written in (`identity_of`)."""


_Recorded = tuple[str, tuple[int, int]]
"""A process: its name or role, and (pid, start time in ticks)."""


@dataclass(frozen=True, slots=True)
class Orphan:
    """One process of an earlier system that still ran."""

    name: str
    pid: int


def identity_of(folder: Path) -> list[int]:
    """Return device and inode number of a folder. It keeps them when it is moved; a copy has others."""
    found = folder.stat()
    return [found.st_dev, found.st_ino]


def record_processes(path: Path, **pids: int) -> None:
    """Write pid and start time of this system's processes that are not actors to a file, by role."""
    recorded = {role: [pid, start_ticks(pid)] for role, pid in pids.items()}
    path.write_text(json.dumps({**recorded, FOLDER: identity_of(path.parent)}))


def refuse_if_in_use(path: Path) -> None:
    """Raise SystemStartFailed when the recorded launcher still runs: two systems would share a board.

    A launcher that uses the folder of which this one is a copy is no reason."""
    launchers = [process for process in _recorded(path) if process[0] == "launcher"]
    for _, (pid, _) in _not_gone_by_itself(launchers):
        raise SystemStartFailed(
            f"{path.parent} is in use by process {pid}, which started a system there; "
            "end it, or choose another directory"
        )


def still_running(processes: Path, board: Path) -> tuple[Orphan, ...]:
    """The recorded processes of a system, and the actors on its board, that run now. None is killed."""
    recorded = _left_in(processes, board)
    return tuple(Orphan(name, pid) for name, (pid, ticks) in recorded if is_running(pid, ticks))


def reap(processes: Path, board: Path) -> tuple[Orphan, ...]:
    """Kill the processes of an earlier system that still run; returns them.

    A system that was killed a moment ago gets `DYING_S` to end by itself. Raises SystemStartFailed when a
    process survives SIGKILL.
    """
    recorded = [process for process in _left_in(processes, board) if process[1][0] != os.getpid()]
    left = _not_gone_by_itself(recorded)
    return tuple(Orphan(name, pid) for name, (pid, ticks) in left if _kill(name, pid, ticks))


def _not_gone_by_itself(recorded: list[_Recorded]) -> list[_Recorded]:
    """Wait until all these processes have ended, at most `DYING_S`; return those that still run."""
    give_up = time.monotonic() + DYING_S
    while (left := [process for process in recorded if is_running(*process[1])]) and (
        time.monotonic() < give_up
    ):
        time.sleep(0.005)
    return left


def _left_in(processes: Path, board: Path) -> Iterator[_Recorded]:
    """Yield the recorded processes of a system and the actors on its board; of a copy of its folder, none."""
    yield from _recorded(processes)
    if not _is_copied(processes):
        yield from _on(board)


def _recorded(path: Path) -> Iterator[_Recorded]:
    if not _is_copied(path):
        for role, (pid, ticks) in _content(path).items():
            if role != FOLDER:
                yield role, (int(pid), int(ticks))


def _is_copied(path: Path) -> bool:
    """Whether the file was written in another folder: its processes are those of the original."""
    here = identity_of(path.parent)
    return _content(path).get(FOLDER, here) != here


def _content(path: Path) -> dict[str, list[int]]:
    try:
        content: dict[str, list[int]] = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return content


def _on(path: Path) -> Iterator[_Recorded]:
    for row in rows_of(path):
        if row.route == 0:
            yield row.name, (row.pid, row.pid_start_ticks)


def _kill(name: str, pid: int, ticks: int) -> bool:
    """Kill one process; False when it ended by itself meanwhile."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        if not is_running(pid, ticks):
            return False
        signal.pidfd_send_signal(fd, signal.SIGKILL)
        if not has_ended(fd, REAP_DEADLINE_S):
            raise SystemStartFailed(
                f"{name!r} (process {pid}) of an earlier system did not end within {REAP_DEADLINE_S:g} s "
                "of SIGKILL; it hangs in the kernel"
            )
    finally:
        os.close(fd)
    return True
