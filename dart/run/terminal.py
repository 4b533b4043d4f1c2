"""The terminal that a run was started on, and what happens to its output when it closes."""

import os
import stat
from contextlib import suppress

STREAMS = (1, 2)


def has_terminal() -> bool:
    """Whether this process has a controlling terminal, which sends SIGHUP when it closes."""
    try:
        fd = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    os.close(fd)
    return True


def leave_terminal() -> None:
    """Redirect output to a terminal that has closed to /dev/null, so that no write fails."""
    null = os.open(os.devnull, os.O_WRONLY)
    for fd in STREAMS:
        with suppress(OSError):  # the stream was closed before
            if stat.S_ISCHR(os.fstat(fd).st_mode) and not os.isatty(fd):
                os.dup2(null, fd)
    os.close(null)
