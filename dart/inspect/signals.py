"""The signals a run was told to end by, so that it can be seen from outside that they were taken."""

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from actors.process import is_alive, start_ticks
from dart.core.run_directory import RunPaths


@dataclass(frozen=True, slots=True)
class Ending:
    """A main process that was told to end."""

    signal: int
    """The first one."""
    since_unix_s: float
    """When it was taken."""
    count: int
    """How many were taken so far."""


def note(paths: RunPaths, number: int, now_unix_s: float) -> None:
    """This process has taken one more.

    Called where a signal is handled, in the midst of anything: one line is appended, and nothing is replaced.
    A full disk costs the note.
    """
    me = os.getpid()
    line = f"{me} {start_ticks(me)} {number} {now_unix_s}\n"
    with suppress(OSError):
        fd = os.open(_file(paths), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(fd, line.encode())
        os.close(fd)


def read(paths: RunPaths) -> Ending | None:
    """What the process that runs now has taken; None where it has taken nothing, or has ended."""
    with suppress(OSError, ValueError):
        taken = [line.split() for line in _file(paths).read_text().splitlines()]
        pid, ticks = (int(word) for word in taken[0][:2]) if taken else (0, 0)
        if ticks and start_ticks(pid) == ticks and is_alive(pid):
            return Ending(signal=int(taken[0][2]), since_unix_s=float(taken[0][3]), count=len(taken))
    return None


def forget(paths: RunPaths) -> None:
    """Of a run that begins, or is over."""
    _file(paths).unlink(missing_ok=True)


def _file(paths: RunPaths) -> Path:
    return paths.root / "signals"
