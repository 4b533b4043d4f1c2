"""Ask the main process of a run to end, from another process."""

import select
import signal
import time

from dart.core.run_directory import RunPaths
from dart.inspect.signals import read

RECEIVED_S = 5.0
"""Longest wait until the main process has noted its first signal, before it gets the second signal."""

POLL_S = 0.1


def ask_to_end(paths: RunPaths, pidfd: int, *, now: bool) -> None:
    """Let the run drain: send SIGTERM to the main process, unless a signal has reached it already.

    pidfd    pidfd of the main process
    now      whether to send one more SIGTERM, so that the run ends at once
    raises   ProcessLookupError if the process has ended
    """
    if read(paths) is None:
        signal.pidfd_send_signal(pidfd, signal.SIGTERM)
    if now:
        _await_received(paths, pidfd)
        signal.pidfd_send_signal(pidfd, signal.SIGTERM)


def still_runs(pid: int, run: str, after_s: float) -> str:
    """Say that the main process of a run has not ended yet, and what to do.

    run   which run, such as "in runs/laptop"
    """
    return (
        f"process {pid} still runs the run {run} after {after_s:g} s; wait for longer with "
        "`dartrl down --wait SECONDS`, or end it at once with `dartrl down --now`"
    )


def _await_received(paths: RunPaths, pidfd: int) -> None:
    """Wait until the main process has noted a signal or has ended, at most RECEIVED_S."""
    give_up_s = time.monotonic() + RECEIVED_S
    while read(paths) is None and time.monotonic() < give_up_s:
        if select.select([pidfd], [], [], POLL_S)[0]:
            return
