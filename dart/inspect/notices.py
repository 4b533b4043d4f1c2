"""Notices: problems of a whole run, not of one actor, for `status`, the live view and the web page."""

import shutil
import signal
from collections.abc import Iterator, Sequence, Set
from operator import itemgetter

from actors.board import ActorState, Vitals
from dart.config.problems import shortened
from dart.core.records import Event
from dart.core.run_directory import RunPaths
from dart.curation.alarm_monitor import raised_alarms
from dart.curation.stall_diagnosis import Stage
from dart.inspect import signals
from dart.inspect.formatting import clock, size
from dart.inspect.terminal_safe import one_line
from dart.store.browse_queries import RunBrowser
from dart.store.reader import StoreReader
from dart.telemetry.events import CHECKPOINT_RESTORED, EVALUATION_FAILED, LOG_CUT, STARVED, WORK_HELD

FAILURES_READ = 1000
"""Number of newest failures among which the first one is looked for."""

REASON_CHARACTERS = 300
"""Largest number of characters of a failure's message that a notice quotes."""


def notices(
    paths: RunPaths,
    store: RunBrowser,
    vitals: Sequence[Vitals],
    *,
    is_running: bool,
    is_done: bool,
    has_played: bool,
) -> Iterator[str]:
    """Yield a text for each problem that an operator should know of, besides the states of actors.

    is_running   whether the run is running; a pause, alarms and a stall of an ended run are said to be of
                 its end
    is_done      whether the run has nothing more to do, so that its trainer stops by itself
    has_played   whether an episode has ended with a reward
    """
    if (ends := signals.read(paths)) is not None:
        yield (
            f"the run ends: it received {signal.Signals(ends.signal).name} at {clock(ends.since_unix_s)}. "
            "Episodes and updates continue to their end; `dartrl down --now` does not wait for them"
        )
    ended = "" if is_running else "when the run ended, "
    held = store.newest_event(WORK_HELD)
    if held is not None and held.data["is_held"]:
        yield _pause(held, is_running=is_running)
    for name, raised in raised_alarms(store).items():
        since = clock(float(str(raised["unix_s"])))
        yield f"{ended}since {since}: alarm {name}: {raised['text']}. {raised['remedy']}"
    stall = store.newest_event(STARVED)
    if stall is not None and stall.data["stage"] != Stage.ENDED:
        since = clock(stall.unix_s - float(str(stall.data["lasted_s"])))
        yield f"{ended}since {since}: {stall.data['text']}"
    if not has_played:
        yield from _first_failure(store)
    yield from _restored_checkpoint(paths, store)
    yield from _cut_log(paths, store)
    if not is_done:
        # The store and the trainer are not ready only while they wait for a disk or a server.
        waiting = {row.name for row in vitals if row.state is ActorState.RUNNING and not row.ready}
        yield from _waits(paths, waiting)


def _pause(held: Event, *, is_running: bool) -> str:
    """Return the notice of a paused run. The pause outlasts the end of the run.

    held   the event that says that the run is paused
    """
    alarm = held.data.get("alarm")
    who, since = f"the alarm {alarm}" if alarm else "an operator", clock(held.unix_s)
    if is_running:
        return (
            f"the run has been paused by {who} since {since}: no episode and no update begins until "
            "`dartrl resume`"
        )
    return (
        f"when the run ended, it had been paused by {who} since {since}; when it is started again, no "
        "episode and no update begins until `dartrl resume`"
    )


def _first_failure(store: RunBrowser) -> Iterator[str]:
    """Yield a notice of the first episode that failed. Call this while no episode has ended otherwise."""
    failed = [
        (one.unix_s, f"`dartrl events --for {one.subject}`", one.data["kind"], one.data["detail"])
        for one in store.find_events(kinds=(EVALUATION_FAILED,), limit=FAILURES_READ)
        if one.data["attempts"]  # else it was interrupted
    ]
    failed += [
        (one.spent_unix_s, f"`dartrl trajectories show {one.rollout_id}`", one.fault_kind, one.detail)
        for one in reversed(store.newest_attempts(FAILURES_READ))
    ]
    for _, command, kind, detail in sorted(failed, key=itemgetter(0))[:1]:
        reason = shortened(one_line(str(detail)), REASON_CHARACTERS)
        first = f"the first failure ({kind}): {reason}"
        yield f"no episode has ended with a reward yet; {first}; {command} shows more"


def _restored_checkpoint(paths: RunPaths, store: StoreReader) -> Iterator[str]:
    """Yield a notice of a damaged checkpoint that was replaced, until a person removes the damaged folder."""
    event = store.newest_event(CHECKPOINT_RESTORED)
    if event is not None and (folder := paths.root / str(event.data["damaged_folder"])).exists():
        what = event.data
        yield (
            f"the checkpoint of version {what['version']} was damaged ({what['damage']}) and is now a copy "
            f"of version {what['from_version']}: the updates between the two are lost. The damaged "
            f"checkpoint is in {folder}; remove that folder to end this notice"
        )


def _cut_log(paths: RunPaths, store: StoreReader) -> Iterator[str]:
    """Yield a notice of a damaged write-ahead log, until a person removes the copy of it."""
    event = store.newest_event(LOG_CUT)
    if event is not None and (copy := paths.root / str(event.data["copy"])).exists():
        yield (
            f"the write-ahead log of the record was damaged ({event.data['damage']}), and the run continued "
            f"without the lost transactions. The damaged log is {copy}; remove that file to end this notice"
        )


def _waits(paths: RunPaths, waiting: Set[str]) -> Iterator[str]:
    """Yield a notice for each of store and trainer that cannot go on, with the possible causes.

    waiting   names of the running actors that are not ready
    """
    free = f" ({size(shutil.disk_usage(paths.root).free)} are free at {paths.root})"
    if paths.mirror_of.exists():  # the disk that may be full is on another machine
        free = ""
    if "store" in waiting:
        yield (
            "the store takes no writes now: the disk is full, another process has locked the record, or its "
            f"server does not answer{free}; the store continues by itself as soon as it can write"
        )
    if "trainer" in waiting:
        yield (
            "the trainer waits: the disk is full, another process has locked the record, or its server or "
            f"the object storage does not answer{free}; it continues by itself"
        )
