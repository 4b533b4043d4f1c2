"""What an earlier system left in a run directory: processes known by pid and start time, and no others.

The kernel takes every process of a system along when its launcher, its admin or a supervisor dies. This is
for the day it did not: a process that escaped is found by what the board says of it and killed before a new
system begins. A pid alone is never believed; it may be somebody else's by now.
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
"""The kernel takes a killed system along in a few milliseconds; what is there after this escaped it."""


_Recorded = tuple[str, tuple[int, int]]
"""A name or role, its pid and its start time in ticks."""


@dataclass(frozen=True, slots=True)
class Orphan:
    """One process of an earlier system that was still there."""

    name: str
    pid: int


def record_processes(path: Path, **pids: int) -> None:
    """Note who runs this system besides its actors: pid and start time, by role."""
    path.write_text(json.dumps({role: [pid, start_ticks(pid)] for role, pid in pids.items()}))


def refuse_if_in_use(path: Path) -> None:
    """Two systems would share a board: raise SystemStartFailed when the launcher recorded here still runs."""
    launchers = [process for process in _recorded(path) if process[0] == "launcher"]
    for _, (pid, _) in _not_gone_by_itself(launchers):
        raise SystemStartFailed(
            f"{path.parent} is in use by process {pid}, which started a system there; "
            "end it, or choose another directory"
        )


def launcher_of(path: Path) -> int | None:
    """The process that started the system recorded here; None where none is up, or all were killed."""
    return next((pid for role, (pid, _) in _recorded(path) if role == "launcher"), None)


def still_running(processes: Path, board: Path) -> tuple[Orphan, ...]:
    """Who of the system in a run directory runs now; nobody is touched."""
    recorded = (*_recorded(processes), *_on(board))
    return tuple(Orphan(name, pid) for name, (pid, ticks) in recorded if is_running(pid, ticks))


def reap(processes: Path, board: Path) -> tuple[Orphan, ...]:
    """Kill what an earlier system recorded and what still runs; returns who that was.

    A system that was killed a moment ago gets `DYING_S` to be gone by itself. Raises SystemStartFailed when a
    process does not end when it is killed.
    """
    recorded = [process for process in (*_recorded(processes), *_on(board)) if process[1][0] != os.getpid()]
    left = _not_gone_by_itself(recorded)
    return tuple(Orphan(name, pid) for name, (pid, ticks) in left if _kill(name, pid, ticks))


def _not_gone_by_itself(recorded: list[_Recorded]) -> list[_Recorded]:
    """Those that still run when a killed system would be gone."""
    give_up = time.monotonic() + DYING_S
    while (left := [process for process in recorded if is_running(*process[1])]) and (
        time.monotonic() < give_up
    ):
        time.sleep(0.005)
    return left


def _recorded(path: Path) -> Iterator[_Recorded]:
    try:
        recorded = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return
    for role, (pid, ticks) in recorded.items():
        yield role, (int(pid), int(ticks))


def _on(path: Path) -> Iterator[_Recorded]:
    for row in rows_of(path):
        if row.route == 0:
            yield row.name, (row.pid, row.pid_start_ticks)


def _kill(name: str, pid: int, ticks: int) -> bool:
    """False when it ended by itself meanwhile."""
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
