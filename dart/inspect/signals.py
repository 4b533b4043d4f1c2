"""A file of the signals that the main process received, so that other processes see that the run ends."""

import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from actors.process import is_running, start_ticks
from dart.core.run_directory import RunPaths

ROOM_BYTES = 512
"""Size of the file as it is made, for about fifteen signals."""


@dataclass(frozen=True, slots=True)
class Ending:
    """The signals that asked a main process to end."""

    signal: int
    """The number of the first signal; SIGTERM if the disk did not take it."""
    since_unix_s: float
    """When the first signal was received."""
    count: int
    """How many signals were received so far."""


def prepare(paths: RunPaths) -> None:
    """Make the file of this process, with room for the signals to come. Raises OSError.

    The room is blanks, which take up space on the disk, so that `note` needs none when the disk is full.
    """
    me = os.getpid()
    _file(paths).write_text(f"{me} {start_ticks(me)}\n".ljust(ROOM_BYTES))


def note(paths: RunPaths, number: int, now_unix_s: float) -> None:
    """Note in the file from `prepare` that this process received a signal. A signal handler may call this.

    A filesystem that copies what it overwrites may refuse the line on a full disk. Then the blanks are cut
    off, which needs no space, and `read` takes the short file for one signal.
    """
    line = f"{number} {now_unix_s}\n".encode()
    with suppress(OSError), _file(paths).open("r+b", buffering=0) as file:
        noted = file.read().rstrip(b" ")
        try:
            os.pwrite(file.fileno(), line, len(noted))
        except OSError:
            file.truncate(len(noted))


def read(paths: RunPaths) -> Ending | None:
    """Return the signals that the main process received; None if it received none or has ended."""
    with suppress(OSError, ValueError):
        text = _file(paths).read_text()
        lines = [line.split() for line in text.splitlines() if line.strip()]
        (pid, ticks, *_), *received = lines  # an earlier version wrote four words for each signal, no header
        if not is_running(int(pid), int(ticks)):
            return None
        if received:
            *_, number, unix_s = received[0]
            return Ending(signal=int(number), since_unix_s=float(unix_s), count=len(received))
        if len(text) < ROOM_BYTES:
            return Ending(signal=signal.SIGTERM, since_unix_s=_file(paths).stat().st_mtime, count=1)
    return None


def forget(paths: RunPaths) -> None:
    """Remove the file of signals. The main process calls this when the run is over."""
    _file(paths).unlink(missing_ok=True)


def _file(paths: RunPaths) -> Path:
    return paths.root / "signals"
