"""Processes as the kernel shows them in /proc."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from actors.process import stat_fields

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

# Places in what `stat_fields` returns.
_STATE, _USER, _SYSTEM, _START, _RESIDENT = 0, 11, 12, 19, 21


class ProcessState(StrEnum):
    """The state of a process, which its supervisor may not know yet."""

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


def state_of_main(pid: int) -> str:
    """Say what is wrong with the main process of a run: `suspended`, `gone`, or an empty text.

    pid   the pid in the lock of the run; 0 while the main process has not written it yet
    """
    state = process_at(pid, 0).state if pid else ProcessState.ALIVE
    return "" if state is ProcessState.ALIVE else state.value


def parse(fields: Sequence[bytes], start_ticks: int) -> Process:
    """Make a `Process` of the fields of /proc/pid/stat; without fields the process is gone."""
    if not fields or fields[_STATE] in (b"Z", b"X") or (start_ticks and int(fields[_START]) != start_ticks):
        return GONE
    return Process(
        state=ProcessState.SUSPENDED if fields[_STATE] == b"T" else ProcessState.ALIVE,
        rss_bytes=int(fields[_RESIDENT]) * PAGE_BYTES,
        cpu_s=(int(fields[_USER]) + int(fields[_SYSTEM])) / TICKS_PER_S,
    )
