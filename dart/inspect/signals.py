"""A file with the signals that the main process took, so that other processes can see it is ending."""

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from actors.process import is_running, start_ticks
from dart.core.run_directory import RunPaths


@dataclass(frozen=True, slots=True)
class Ending:
    """A main process that took a signal to end."""

    signal: int
    """The first one."""
    since_unix_s: float
    """When that one was taken."""
    count: int
    """How many were taken so far."""


def note(paths: RunPaths, number: int, now_unix_s: float) -> None:
    """Note that this process took one more signal.

    Safe in a signal handler: it appends one line and replaces nothing. On a full disk the note is lost.
    """
    me = os.getpid()
    line = f"{me} {start_ticks(me)} {number} {now_unix_s}\n"
    with suppress(OSError):
        fd = os.open(_file(paths), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(fd, line.encode())
        os.close(fd)


def read(paths: RunPaths) -> Ending | None:
    """The signals that the running process took; None where it took none, or has ended."""
    with suppress(OSError, ValueError):
        taken = [line.split() for line in _file(paths).read_text().splitlines()]
        pid, ticks = (int(word) for word in taken[0][:2]) if taken else (0, 0)
        if is_running(pid, ticks):
            return Ending(signal=int(taken[0][2]), since_unix_s=float(taken[0][3]), count=len(taken))
    return None


def forget(paths: RunPaths) -> None:
    """Remove the file, when a run begins or is over."""
    _file(paths).unlink(missing_ok=True)


def _file(paths: RunPaths) -> Path:
    return paths.root / "signals"
