"""Processes as the kernel shows them in /proc; in a mirror, as /proc of the run's machine showed them."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

from actors.process import stat_fields

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

# Places in what `stat_fields` returns.
_STATE, _USER, _SYSTEM, _START, _RESIDENT = 0, 11, 12, 19, 21


class ProcessState(StrEnum):
    """The state of an actor's process as the operating system reports it.

    The actor's supervisor and the board may not know the end of the process yet.
    """

    ALIVE = "alive"
    SUSPENDED = "suspended"
    """Stopped by a signal (SIGSTOP): it does nothing until a SIGCONT."""
    GONE = "gone"
    """The process has ended; its pid may belong to another process by now."""


@dataclass(frozen=True, slots=True)
class Process:
    """One process at one moment."""

    state: ProcessState
    rss_bytes: int = 0
    """Resident memory of the process."""
    cpu_s: float = 0.0
    """Processor time that the process has used."""


GONE = Process(ProcessState.GONE)


def process_at(pid: int, start_ticks: int) -> Process:
    """Read the process with this pid and this start time from /proc.

    start_ticks   field 22 of /proc/pid/stat; 0 if unknown, and then any process with this pid is read
    """
    return parse(stat_fields(pid), start_ticks)


TABLE = "process_table.json"
"""The file of a mirror that has the processes of the run's machine and is read instead of /proc."""

UNREACHABLE = "unreachable"
"""What `state_of_main` returns if the machine of the main process does not answer."""

ProcessTable = Callable[[int, int], Process]
"""Finds a process by pid and start time, as `process_at` does."""


def write_table(run_dir: Path, main_is: str, processes: Mapping[int, tuple[int, str, int, float]]) -> None:
    """Write the processes of the run's machine into a mirror of the run.

    main_is     what is wrong with the main process: `suspended`, `unreachable`, or an empty text
    processes   by pid: start time in ticks, state, resident bytes, seconds of processor time
    """
    new = run_dir / f".{TABLE}.new"
    new.write_text(json.dumps({"main_is": main_is, "processes": processes}))
    new.replace(run_dir / TABLE)


def table_of(run_dir: Path) -> ProcessTable:
    """Return the function that finds the processes of a run: in /proc or, for a mirror, in its `TABLE`."""
    table = _read_table(run_dir)
    return process_at if table is None else partial(_copied, table["processes"])


def _read_table(run_dir: Path) -> Any:
    try:
        return json.loads((run_dir / TABLE).read_bytes())
    except FileNotFoundError:
        return None


def _copied(processes: Mapping[str, Sequence[Any]], pid: int, start_ticks: int) -> Process:
    ticks, state, rss_bytes, cpu_s = processes.get(str(pid), (0, "gone", 0, 0.0))
    if start_ticks and ticks != start_ticks:
        return GONE
    return GONE if state == "gone" else Process(ProcessState(state), rss_bytes, cpu_s)


def state_of_main(run_dir: Path, pid: int) -> str:
    """Say what is wrong with the main process of a run: `suspended`, `gone`, `unreachable`, or an empty text.

    pid   the pid in the lock of the run; 0 while the main process has not written it yet
    """
    table = _read_table(run_dir)
    if table is not None:
        return str(table["main_is"])
    state = process_at(pid, 0).state if pid else ProcessState.ALIVE
    return "" if state is ProcessState.ALIVE else state.value


def parse(fields: Sequence[bytes], start_ticks: int) -> Process:
    """Make a `Process` from the fields of /proc/pid/stat.

    The process is gone if there are no fields, if it is a zombie, or if its start time is not `start_ticks`.
    """
    if not fields or fields[_STATE] in (b"Z", b"X") or (start_ticks and int(fields[_START]) != start_ticks):
        return GONE
    return Process(
        state=ProcessState.SUSPENDED if fields[_STATE] == b"T" else ProcessState.ALIVE,
        rss_bytes=int(fields[_RESIDENT]) * PAGE_BYTES,
        cpu_s=(int(fields[_USER]) + int(fields[_SYSTEM])) / TICKS_PER_S,
    )
