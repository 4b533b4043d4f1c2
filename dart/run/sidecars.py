"""Sidecars: processes beside a run that serve its web page and write its tracking data.

A sidecar reads the board and the record; it can neither slow nor end the run. It is a Python process of its
own, at a low priority and in a session of its own, and the kernel ends it with the main process, which
supervises it (`dart.run.main_supervisor`).
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from actors.log import log_to, take_over_logging
from actors.process import die_with_parent
from dart.config.config import Config
from dart.core.run_directory import RunPaths
from dart.inspect.sidecar_status import TRACKING, WEB, Sidecar, read_sidecar, silent_s
from dart.run.main_supervisor import BACKOFF
from supervision.child_spec import ChildSpec

NICENESS = 10
"""Added to the niceness of the main process: training comes first."""

HANG_DEADLINE_S = 120.0
"""A sidecar without a sign of life for this long is killed and started again."""

REASON_BYTES = 4096


def sidecar_specs(config: Config, *, serves_page: bool) -> Iterator[ChildSpec]:
    """The sidecars of a run."""
    if config.web.enabled and serves_page:
        yield sidecar_spec(WEB, "dart.web.__main__", shutdown_s=3.0)
    if config.tracking.writers:
        yield sidecar_spec(TRACKING, "dart.tracking.__main__", shutdown_s=30.0)


def sidecar_spec(name: str, module: str, shutdown_s: float) -> ChildSpec:
    """The child spec of a sidecar whose program is the function `main` of a module."""
    return ChildSpec(
        id=name,
        actor=f"{module}:main",
        shutdown_s=shutdown_s,
        hang_deadline_s=HANG_DEADLINE_S,
        backoff=BACKOFF,
    )


class SidecarProcess:
    """One process of a sidecar: `python -m MODULE RUN_DIR PID`, which ends with the process PID.

    Raises OSError when it cannot be started.
    """

    def __init__(self, paths: RunPaths, spec: ChildSpec) -> None:
        self._paths, self._name = paths, spec.id
        self._stderr = paths.logs / f"{spec.id}.stderr"
        module = spec.actor.partition(":")[0]
        with self._stderr.open("wb") as stderr, _sigterm_blocked():
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, str(paths.root), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                start_new_session=True,  # Ctrl-C is for the main process, which stops the sidecar in the end
            )

    def end_reason(self) -> str:
        """How it ended, with the last line of its standard error; empty while it runs."""
        code = self._process.poll()
        if code is None:
            return ""
        if code < 0:
            return f"ended by {signal.Signals(-code).name}"
        ended = f"ended with exit code {code}"
        with suppress(OSError):
            said = self._stderr.read_bytes()[-REASON_BYTES:].decode(errors="replace").strip()
            return f"{ended}: {said.splitlines()[-1]}" if said else ended
        return ended

    def silent_s(self) -> float:
        """Seconds since its last sign of life; 0 before the first."""
        return silent_s(self._paths, self._name, time.time())

    def status(self) -> Sidecar | None:
        """What it has written about itself; None before that."""
        return read_sidecar(self._paths, self._name)

    def stop(self) -> None:
        """Send SIGTERM."""
        self._process.terminate()

    def kill(self) -> None:
        """Send SIGKILL."""
        self._process.kill()


@contextmanager
def _sigterm_blocked() -> Iterator[None]:
    """A process started in this block takes SIGTERM once it calls `begin_sidecar`: it may have work left."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def begin_sidecar(name: str, arguments: list[str], on_end: Callable[[], None] | None = None) -> RunPaths:
    """Set up the process of a sidecar: its end with the main process, its priority, its log.

    arguments   as `SidecarProcess` passes them: the run directory and the pid of the main process
    on_end      called when the run is over; None: the process ends at once then
    """
    root, parent_pid = arguments
    die_with_parent(int(parent_pid))
    os.nice(NICENESS)
    paths = RunPaths(Path(root))
    log_to(paths.logs / f"{name}.jsonl")
    take_over_logging()
    if on_end is not None:
        signal.signal(signal.SIGTERM, lambda *_: on_end())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM,))
    return paths
