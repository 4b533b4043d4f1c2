"""`dartrl down`: drain a run, end it and wait until it has ended."""

import contextlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dart.cli.exit_codes import ExitCode
from dart.cli.options import RunDir, chosen, is_address
from dart.cli.output import say

if TYPE_CHECKING:
    from dart.core.run_directory import LockHolder

DOWN_WAIT_S = 120.0
"""Seconds that `down` waits by default until the run has drained, checked its data and ended."""

POLL_S = 0.1


def down(
    now: Annotated[bool, typer.Option("--now", help="Do not drain: end everything at once.")] = False,
    wait_s: Annotated[
        float,
        typer.Option(
            "--wait",
            metavar="SECONDS",
            min=0.0,
            show_default=False,
            help="Wait at most this long until the run has ended; exit code 75 if it still runs then. "
            f"Default: {DOWN_WAIT_S:g}.",
        ),
    ] = DOWN_WAIT_S,
    run_dir: RunDir = None,
) -> None:
    """Drain a run, end it and wait until it has ended. With `--now`, end it without draining.

    Says what the next start continues from. Nothing that was stored is lost. A drain may take as long as the
    `shutdown_s` of the run's actors permits. It goes on when this command no longer waits; the same command
    waits for it again.

    Machines of a server and containers that killed environments have left are given back, also if the run is
    not running. Exit code 75 if some may still run; each is named, and the same command tries again.

    **Examples**

    * `dartrl down`
    * `dartrl down --wait 1800`
    * `dartrl down --now --run-dir runs/laptop`
    """
    from dart.core.errors import NotRunningError, SilentError, TemporaryError
    from dart.core.run_directory import lock_holder, still_held
    from dart.run.ending import still_runs

    if is_address(run_dir):
        _down_elsewhere(chosen(run_dir), wait_s, now=now)
        return
    root = chosen(run_dir)
    found = lock_holder(root)
    if found is None:
        if give_back_machines(root):
            return
        raise NotRunningError(f"the run in {root} is not running")
    if not found.pid:
        raise SilentError(
            f"{root} is locked by a process that has not written its pid yet; try again in a moment"
        )
    if not _end_process(root, found, wait_s, now=now):
        raise TemporaryError(still_runs(found.pid, f"in {root}", wait_s))
    if not _is_released(root, found):
        raise SilentError(still_held(root, found.pid))
    say(f"the run in {root} has ended")
    say_what_is_left(root)
    give_back_machines(root)


def _down_elsewhere(root: Path, wait_s: float, *, now: bool) -> None:
    """End the run on another machine whose mirror is the folder `root`."""
    from dart.core.run_directory import RunPaths
    from dart.run.mirror import mirror_in

    mirror = mirror_in(root)
    assert mirror is not None
    mirror.end(now=now, deadline_s=wait_s)
    say(f"the run in {RunPaths(root).title} has ended")


def _end_process(root: Path, found: "LockHolder", wait_s: float, *, now: bool) -> bool:
    """Ask the main process of a run to end, and return whether it ended within `wait_s`.

    How it is asked: `dart.run.ending.ask_to_end`. The end is read from a pidfd, because the pid stays in
    use until the parent of the process collects its exit code. A process that is not shown here gets no
    signal and counts as ended, because its pid may be that of another process. Raises SilentError for a
    process of another user than the owner of the run.
    """
    import select

    from dart.core.run_directory import RunPaths
    from dart.run.ending import ask_to_end

    try:
        fd = os.pidfd_open(found.pid)
    except ProcessLookupError:
        return True
    try:
        if not found.is_shown_here:
            return True
        _refuse_process_of_another(root, found.pid)
        ask_to_end(RunPaths(root), fd, now=now)
        return bool(select.select([fd], [], [], wait_s)[0])
    except ProcessLookupError:
        return True
    finally:
        os.close(fd)


def _refuse_process_of_another(root: Path, pid: int) -> None:
    """Raise SilentError if a process does not belong to the owner of the run whose lock names it.

    Users can write any pid into a lock of their own, also that of a process that only this user can end.
    """
    from dart.core.errors import SilentError

    try:
        user = Path(f"/proc/{pid}").stat().st_uid
    except FileNotFoundError:
        raise ProcessLookupError(pid) from None
    owner = root.stat().st_uid
    if user != owner:
        raise SilentError(
            f"{root} belongs to user {owner}, and its lock names process {pid} of user {user}, which is not "
            "the process of this run and was not ended; ask the owner of the run directory"
        )


def _is_released(root: Path, found: "LockHolder") -> bool:
    """Wait until a run has released its lock, at most ORPHANS_END_S, and return whether it has."""
    from dart.core.run_directory import ORPHANS_END_S, lock_holder

    give_up_s = time.monotonic() + ORPHANS_END_S
    while lock_holder(root) == found:  # another holder is the next start
        if time.monotonic() > give_up_s:
            return False
        time.sleep(POLL_S)
    return True


def give_back_machines(root: Path) -> bool:
    """Give back the machines that a run has left that does not run. Return whether it had left any.

    Each is named on standard error. Ends the command with exit code 75 if some may still run.
    """
    from dart.core.run_directory import RunPaths
    from dart.run.listener import RunListener
    from dart.run.machines import give_back_of_ended

    given = give_back_of_ended(RunPaths(root), RunListener())
    if given.left:
        raise typer.Exit(ExitCode.TEMPORARY)
    return given.count > 0


def say_what_is_left(root: Path) -> None:
    """Say what the next start of a run will find; nothing if its record cannot be read."""
    from dart.core.run_directory import RunPaths
    from dart.run.run_record import look_back
    from dart.store.errors import StoreError

    with contextlib.suppress(StoreError):
        say(f"the next start: {look_back(RunPaths(root)).text()}")
