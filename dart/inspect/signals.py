"""A file of the signals that the main process received, so that other processes see that the run ends."""

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from actors.process import is_running, start_ticks
from dart.core.run_directory import RunPaths


@dataclass(frozen=True, slots=True)
class Ending:
    """The signals that asked a main process to end."""

    signal: int
    """The number of the first signal."""
    since_unix_s: float
    """When the first signal was received."""
    count: int
    """How many signals were received so far."""


def note(paths: RunPaths, number: int, now_unix_s: float) -> None:
    """Append to the file that this process received a signal.

    A signal handler may call this, because it only appends a line. On a full disk the line is lost.
    """
    me = os.getpid()
    line = f"{me} {start_ticks(me)} {number} {now_unix_s}\n"
    with suppress(OSError):
        fd = os.open(_file(paths), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(fd, line.encode())
        os.close(fd)


def read(paths: RunPaths) -> Ending | None:
    """Return the signals that the main process received; None if it received none or has ended."""
    with suppress(OSError, LookupError, ValueError):
        received = [line.split() for line in _file(paths).read_text().splitlines()]
        pid, ticks, number, unix_s = received[0]
        if is_running(int(pid), int(ticks)):
            return Ending(signal=int(number), since_unix_s=float(unix_s), count=len(received))
    return None


def forget(paths: RunPaths) -> None:
    """Remove the file of signals. The main process calls this when a run begins and when the run is over."""
    _file(paths).unlink(missing_ok=True)


def _file(paths: RunPaths) -> Path:
    return paths.root / "signals"
