"""Processes as the kernel shows them in /proc."""

import os
from dataclasses import dataclass
from enum import StrEnum

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

STAT_BYTES = 4096
"""More than /proc/pid/stat ever holds. It is read without a file object: a scrape may read a thousand."""

# Places in /proc/pid/stat behind the name (proc_pid_stat(5), field 3 is 0 here).
_STATE, _USER, _SYSTEM, _START, _RESIDENT = 0, 11, 12, 19, 21


class ProcessState(StrEnum):
    """The state of a process, which its supervisor may not know yet."""

    ALIVE = "alive"
    SUSPENDED = "suspended"
    """Stopped by a signal (SIGSTOP): it does nothing until a SIGCONT."""
    GONE = "gone"
    """It has ended; its number may belong to another process by now."""


@dataclass(frozen=True, slots=True)
class Process:
    """One process at one moment."""

    state: ProcessState
    rss_bytes: int = 0
    """Memory it holds."""
    cpu_s: float = 0.0
    """Processor time it has used."""


GONE = Process(ProcessState.GONE)


def process_at(pid: int, start_ticks: int) -> Process:
    """Read the process with this number and this start time.

    start_ticks   field 22 of its /proc/pid/stat; 0 where it is not known
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
    """What is wrong with the main process of a run: `suspended`, `gone`, or an empty text.

    pid   the number in the lock of the run; 0 while the process has not written it yet
    """
    state = process_at(pid, 0).state if pid else ProcessState.ALIVE
    return "" if state is ProcessState.ALIVE else state.value


def parse(stat: bytes, start_ticks: int) -> Process:
    """Read one line of /proc/pid/stat. The name of the process in it may hold brackets and spaces."""
    fields = stat.rpartition(b")")[2].split(None, _RESIDENT + 1)
    if fields[_STATE] in (b"Z", b"X") or (start_ticks and int(fields[_START]) != start_ticks):
        return GONE
    return Process(
        state=ProcessState.SUSPENDED if fields[_STATE] == b"T" else ProcessState.ALIVE,
        rss_bytes=int(fields[_RESIDENT]) * PAGE_BYTES,
        cpu_s=(int(fields[_USER]) + int(fields[_SYSTEM])) / TICKS_PER_S,
    )
