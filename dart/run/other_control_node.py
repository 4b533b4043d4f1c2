"""Continue a run on another machine after its control node was lost. The record must be on a server.

The new machine gets a run directory with the configuration of the run. All other data are in the record and
in object storage. The used time of the run is in the row of its last control node (`used_elsewhere_s`).
"""

import shlex
import time
from collections.abc import Callable
from contextlib import suppress

from dart.config.config import Config
from dart.core.errors import RunDirectoryError
from dart.core.record_address import RecordAddress, ServerAddress
from dart.core.run_directory import RunPaths, keep_config, make_private, refuse_unfit
from dart.inspect.time_budget import parse_session
from dart.store.control_node import ControlNode, read_control_node
from dart.store.errors import StoreBusy, StoreUnavailable
from dart.store.migrations import connected
from dart.store.queries import LAST_VERSION, scalar

SILENT_S = 15.0
"""Seconds without a new announcement after which a control node counts as lost. A control node renews its
announcement in the record every five seconds."""

WATCH_S = 11.0
"""The least number of seconds to wait for an announcement, however old the last one seems: two periods."""

LOOK_S = 0.5

LOCKED_WITHIN_S = 1.0
"""Largest difference between the two times (mtime, ctime) of a lock that a start in its directory wrote."""


def is_taken_over(config: Config, paths: RunPaths) -> bool:
    """Whether a run to continue has its record on a server and was never in this directory."""
    is_elsewhere = isinstance(paths.record_at(config.run.record), ServerAddress)
    return is_elsewhere and not paths.config.exists()


def refuse_nothing_to_take_over(config: Config, paths: RunPaths) -> None:
    """Check that the record holds a run, and that the folder can become its run directory.

    The record may be at an older migration, which the start that follows changes.

    raises   StoreUnavailable if the record holds no run, RunDirectoryError if the folder cannot be used
    """
    refuse_unfit(paths, resume=False)
    address = paths.record_at(config.run.record)
    with connected(address) as connection:
        if scalar(connection, LAST_VERSION) is None:
            raise StoreUnavailable(
                f"the record {address} holds no policy version, so there is no run to resume: start one "
                "without --resume"
            )


def take_over(
    config: Config,
    paths: RunPaths,
    *,
    unix_s: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Make a run directory for a run whose control node is lost.

    Waits up to SILENT_S for a new announcement, to make sure that the control node is lost.

    raises   RunDirectoryError if the control node still announces itself, or the folder holds other files;
             StoreUnavailable if the record holds no run
    """
    refuse_nothing_to_take_over(config, paths)
    address = paths.record_at(config.run.record)
    node = read_control_node(address)
    if node is not None:
        _refuse_living(address, node, silent_s=unix_s() - node.seen_unix_s, sleep=sleep)
    make_private(paths.root)
    keep_config(paths, config.to_toml())  # last, because its presence means that the run exists


def refuse_running_elsewhere(config: Config, paths: RunPaths) -> None:
    """Check that no other machine took over the run of this directory and still runs it.

    raises   RunDirectoryError if the control node of the other machine announces itself, StoreBusy if the
             record is away, so that this cannot be known
    """
    address = paths.record_at(config.run.record)
    if not isinstance(address, ServerAddress):
        return
    try:
        node = read_control_node(address)
    except StoreBusy:
        raise
    except StoreUnavailable:
        return  # the start that follows says why
    if node is not None and node.began_unix_s != _began_here_unix_s(paths):
        _refuse_living(address, node, silent_s=time.time() - node.seen_unix_s, sleep=time.sleep)


def _began_here_unix_s(paths: RunPaths) -> float | None:
    """Return when the last start in this directory locked it; None without a lock, and in a copy.

    A copy may have the time of the original's lock, but its own lock was made, or got this time, later.
    """
    with suppress(FileNotFoundError):
        lock = paths.lock.stat()
        return lock.st_mtime if lock.st_ctime - lock.st_mtime < LOCKED_WITHIN_S else None
    return None


def used_elsewhere_s(paths: RunPaths) -> float:
    """Return how much of its time a run had used when a control node last wrote its row in the record.

    Another machine may have continued the run since its last start in this directory. Returns 0.0 if the
    record has no such row.
    """
    node = read_control_node(paths.record)
    with suppress(ValueError, TypeError, LookupError):  # the row has no times, or damaged ones
        return parse_session(node.session)["elapsed_s"] if node is not None else 0.0
    return 0.0


def _refuse_living(
    address: RecordAddress, node: ControlNode, *, silent_s: float, sleep: Callable[[float], None]
) -> None:
    """Wait until a control node is silent for SILENT_S. Raise RunDirectoryError if it announces itself again.

    silent_s   age of the last announcement, by the clocks of both machines; only the rest of SILENT_S is
               waited, but at least WATCH_S, because the clocks may differ
    """
    left_s = min(SILENT_S, max(WATCH_S, SILENT_S - silent_s))
    now: ControlNode | None = node
    while now is not None and now.ended_unix_s is None and left_s > 0.0:
        sleep(LOOK_S)
        left_s -= LOOK_S
        now = read_control_node(address)
        if now is not None and (now.token, now.seen_unix_s) != (node.token, node.seen_unix_s):
            raise RunDirectoryError(
                f"the run with the record {address} is running: {_how_to_end(now, address)}"
            )


def _how_to_end(node: ControlNode, address: RecordAddress) -> str:
    if not node.address:
        return "its control node lives, but answers no other machine; end it there first, with `dartrl down`"
    command = f"dartrl down --run-dir {shlex.quote(str(address))}"
    return f"its control node answers at {node.address}; end it first, with `{command}`"
