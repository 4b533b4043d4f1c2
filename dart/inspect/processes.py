"""Processes as the kernel sees them, whatever they say of themselves."""

import os
from dataclasses import dataclass
from enum import StrEnum

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

STAT_BYTES = 4096
"""More than /proc/pid/stat ever holds. Read without a file object: a scrape may read a thousand."""

# Places in /proc/pid/stat behind the name (proc_pid_stat(5), field 3 is 0 here).
_STATE, _USER, _SYSTEM, _START, _RESIDENT = 0, 11, 12, 19, 21


class ProcessState(StrEnum):
    """What a supervisor may not know yet."""

    ALIVE = "alive"
    SUSPENDED = "suspended"
    """Stopped by a signal (SIGSTOP): it does nothing until it is told to go on."""
    GONE = "gone"
    """It has ended, or its number belongs to another process by now."""


@dataclass(frozen=True, slots=True)
class Process:
    """One process at one moment."""

    state: ProcessState
    rss_bytes: int = 0
    """Memory it holds."""
    cpu_s: float = 0.0
    """Processor time it has used."""


GONE = Process(ProcessState.GONE)


def look(pid: int, start_ticks: int) -> Process:
    """The process of this number that was started then.

    start_ticks   field 22 of its /proc/pid/stat, where it is known; 0 where it is not
    """
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
        try:
            return parse(os.read(fd, STAT_BYTES), start_ticks)
        finally:
            os.close(fd)
    except (FileNotFoundError, ProcessLookupError):
        return GONE


def state_of_main(pid: int) -> str:
    """What is wrong with the main process of a run, whose number its lock names: `suspended` or `gone`; empty
    when nothing is, and for 0, which it has not named yet."""
    state = look(pid, 0).state if pid else ProcessState.ALIVE
    return "" if state is ProcessState.ALIVE else state.value


def parse(stat: bytes, start_ticks: int) -> Process:
    """What one line of /proc/pid/stat says; the name in it may hold anything, brackets too."""
    fields = stat.rpartition(b")")[2].split(None, _RESIDENT + 1)
    if fields[_STATE] in (b"Z", b"X") or (start_ticks and int(fields[_START]) != start_ticks):
        return GONE
    return Process(
        state=ProcessState.SUSPENDED if fields[_STATE] == b"T" else ProcessState.ALIVE,
        rss_bytes=int(fields[_RESIDENT]) * PAGE_BYTES,
        cpu_s=(int(fields[_USER]) + int(fields[_SYSTEM])) / TICKS_PER_S,
    )
