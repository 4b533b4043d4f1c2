"""Ask the main process of a run to end, from another process of its machine."""

import select
import signal
import time

from dart.core.run_directory import RunPaths
from dart.inspect.signals import read

RECEIVED_S = 5.0
"""Longest wait until the main process has received its first signal; a second signal follows."""

POLL_S = 0.1


def ask_to_end(paths: RunPaths, pidfd: int, *, now: bool) -> None:
    """Send SIGTERM to the main process, so that the run drains; with `now` twice, so that it ends at once.

    pidfd    descriptor of the main process
    raises   ProcessLookupError if the process has ended
    """
    signal.pidfd_send_signal(pidfd, signal.SIGTERM)
    if now:
        _await_received(paths, pidfd)
        signal.pidfd_send_signal(pidfd, signal.SIGTERM)


def _await_received(paths: RunPaths, pidfd: int) -> None:
    """Wait until the main process has noted a signal or has ended, at most RECEIVED_S."""
    give_up_s = time.monotonic() + RECEIVED_S
    while read(paths) is None and time.monotonic() < give_up_s:
        if select.select([pidfd], [], [], POLL_S)[0]:
            return
