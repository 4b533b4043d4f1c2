"""The terminal a run was started on: whether it is there still, and what is done when it is not."""

import os
import stat
from contextlib import suppress

STREAMS = (1, 2)


def has_terminal() -> bool:
    """Whether this process has a controlling terminal: one that sends it SIGHUP when it is closed."""
    try:
        fd = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    os.close(fd)
    return True


def leave_terminal() -> None:
    """What a terminal that was closed had to show goes nowhere from now on, and no write of it fails."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for fd in STREAMS:
        with suppress(OSError):  # one that was closed before has nothing to show
            if stat.S_ISCHR(os.fstat(fd).st_mode) and not os.isatty(fd):
                os.dup2(nowhere, fd)
    os.close(nowhere)
