"""What happened in a run: the events of its record and the reports of its supervisors, in order of time."""

import time
from collections.abc import Callable, Collection, Iterator
from functools import partial

from dart.core.errors import UsageError
from dart.core.records import Event
from dart.core.run_directory import RunPaths
from dart.core.suggestions import did_you_mean, near
from dart.inference.engine_state import EngineState
from dart.inspect.exit_reports import all_reports
from dart.inspect.formatting import clock
from dart.inspect.terminal_safe import one_line
from dart.store.reader import StoreReader
from dart.telemetry.events import ENGINE_STATE, KINDS, REPORTS
from dart.telemetry.load_meter import LOAD
from supervision.reports import SupervisorReport

LIMIT = 1000
"""How many events are read at once at most; older events are left out."""

STATES_MOST = 2048
"""How many changes of engine states `read_news` looks through at most. Older ones are left out.

The page looks every few seconds, and this many take some 0.1 s.
"""

ROUTINE = frozenset({EngineState.HEALTHY.value, EngineState.UPDATING.value})
"""States of an engine that loads a version as it should. Changes between them are not shown by default."""

OVERLAP_S = 30.0
"""How many seconds before the newest known event `EventFollower` begins to read.

An event can reach the record later than its time says.
"""


def read_events(
    paths: RunPaths,
    *,
    subject: str | None = None,
    kinds: Collection[str] | None = None,
    since_unix_s: float = 0.0,
    limit: int = LIMIT,
) -> list[Event]:
    """Read the newest events and supervisors' reports about a subject and of some kinds, oldest first.

    subject   an actor, a task, or another subject of events; None for all subjects
    kinds     the kinds to read. None for all kinds except routine: events `load`, which every actor records
              every few seconds, and events of engines that load a new version without trouble
    limit     largest number of events to return
    raises    StoreUnavailable if the record cannot be read
    """
    with StoreReader(paths.record) as store:
        if kinds is None:
            found = read_news(store, subject=subject, since_unix_s=since_unix_s, limit=limit)
        else:
            found = list(
                store.find_events(subject=subject, kinds=kinds, since_unix_s=since_unix_s, limit=limit)
            )
    for report in map(event_of, all_reports(paths.root, since_unix_s)):
        if subject in (None, report.subject) and (kinds is None or report.kind in kinds):
            found.append(report)
    return sorted(found, key=lambda event: event.unix_s)[-limit:]


def read_news(
    store: StoreReader, *, subject: str | None = None, since_unix_s: float = 0.0, limit: int
) -> list[Event]:
    """Read the newest `limit` events of a record that are not routine, oldest first.

    In a long run most events are changes of engine states, and most of these are routine. So the other kinds
    are read apart, and changes of states further back until none is missing, or `STATES_MOST` were read.

    subject   an actor, a task, or another subject of events; None for all subjects
    """
    find = partial(store.find_events, subject=subject, since_unix_s=since_unix_s)
    others = find(without=(LOAD, ENGINE_STATE), limit=limit)
    count = limit
    while True:
        states = find(kinds=(ENGINE_STATE,), limit=count)
        found = [*others, *filter(is_news, states)]
        news = sorted(found, key=lambda event: event.event_id)[-limit:]
        is_all = len(states) < count or (len(news) == limit and news[0].event_id >= states[0].event_id)
        if is_all or count == STATES_MOST:
            return news
        count = min(STATES_MOST, 4 * count)


def is_news(event: Event) -> bool:
    """Whether an event is shown by default; false for an engine that loads a version without trouble."""
    states = {event.data.get("state"), event.data.get("before")}
    return event.kind != ENGINE_STATE or not states <= ROUTINE


def event_of(report: SupervisorReport) -> Event:
    """Convert a supervisor's report into an event. Subject: the child; kind: the report's `context`."""
    return Event(
        event_id=0,  # a report is not in the record
        unix_s=report.unix_s,
        kind=report.context,
        subject=report.offender.id,
        data={
            "supervisor": report.supervisor,
            "reason": report.reason,
            "incarnation": report.offender.incarnation,
            "pid": report.offender.pid,
            "exit_code": report.exit_code,
            "signal": report.signal,
            "chain": list(report.chain),
        },
    )


def refuse_unknown(kinds: Collection[str]) -> None:
    """Check that every one of these kinds of events exists.

    raises    UsageError for an unknown kind
    """
    known = [*KINDS, *REPORTS]
    for kind in kinds:
        if kind not in known:
            hint = did_you_mean(near(kind, known)) or f"; there are {', '.join(known)}"
            raise UsageError(f"there are no events of kind {kind!r}{hint}")


class EventFollower:
    """Returns each new event once.

    To show earlier events first, create the follower, then read the earlier events and pass them to
    `has_shown`: so no event is missed in between.

    read   returns the events since a moment, which is given in unix seconds
    """

    def __init__(
        self, read: Callable[[float], list[Event]], now_unix_s: Callable[[], float] = time.time
    ) -> None:
        self._read, self._now_unix_s = read, now_unix_s
        self._newest_unix_s = now_unix_s()
        self._seen: set[_Identity] = set()
        self.new()

    def has_shown(self, shown: Collection[Event]) -> None:
        """Note that these events were shown, so that `new` does not return them."""
        self._seen |= {_identity(event) for event in shown}

    def new(self) -> list[Event]:
        """Return the events since the last call, or since the follower was created, oldest first."""
        # A clock that was put back must not hide what happens after that.
        found = self._read(min(self._newest_unix_s, self._now_unix_s()) - OVERLAP_S)
        fresh = [event for event in found if _identity(event) not in self._seen]
        self._seen = {_identity(event) for event in found}
        self._newest_unix_s = max([self._newest_unix_s, *(event.unix_s for event in fresh)])
        return fresh


_Identity = tuple[float, str, str]


def _identity(event: Event) -> _Identity:
    return event.unix_s, event.kind, event.subject


# ---- as text ----


def event_line(event: Event) -> str:
    """Format an event as one line: time, kind, subject and fields."""
    fields = "  ".join(f"{name}={value}" for name, value in fields_of(event))
    return one_line(f"{clock(event.unix_s)}  {event.kind:16}  {event.subject:16}  {fields}".rstrip())


def fields_of(event: Event) -> Iterator[tuple[str, str]]:
    """Yield the name and the value, as text, of each field of an event that is not empty.

    For a supervisor's report, yield only the incarnation and the reason.
    """
    names = ("incarnation", "reason") if event.kind in REPORTS else tuple(event.data)
    for name in names:
        value = event.data.get(name)
        if value in (None, "", []):
            continue
        if isinstance(value, float) and name.endswith("_unix_s"):
            yield name.removesuffix("_unix_s"), clock(value)
        else:
            yield name, f"{value:g}" if isinstance(value, float) and abs(value) < 1e6 else str(value)
