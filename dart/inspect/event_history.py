"""What happened in a run: the events of its record and the reports of its supervisors, as one story."""

import difflib
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from dart.core.errors import UsageError
from dart.core.run_directory import RunPaths
from dart.inference.worker_state import WorkerState
from dart.inspect.exit_reports import all_reports
from dart.inspect.terminal_safe import one_line
from dart.inspect.time_format import clock
from dart.store.reader import StoreReader
from dart.telemetry.events import KINDS, REPORTS, WORKER_STATE
from dart.telemetry.load_meter import LOAD
from supervision.reports import SupervisorReport

LIMIT = 1000
"""Most that is read at once, the newest."""

ROUTINE = frozenset({WorkerState.HEALTHY.value, WorkerState.UPDATING.value})
"""States of engines between which they go back and forth."""

OVERLAP_S = 30.0
"""A follower looks back so far: what was written late is not missed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    """One event of the record, or one report of a supervisor."""

    unix_s: float
    kind: str
    subject: str
    data: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """Which of them."""

    subject: str | None = None
    """An actor, a task, or whoever else events are about; None for all."""
    kinds: Collection[str] | None = None
    """None for what is news: all but `load`, which every actor records every few seconds, and engines that
    take over a version as they should."""
    since_unix_s: float = 0.0


def read_events(paths: RunPaths, wanted: EventFilter, limit: int = LIMIT) -> list[HistoryEntry]:
    """The newest that fit, oldest first.

    raises    StoreUnavailable
    """
    with StoreReader(paths.store) as store:
        recorded = store.find_events(
            since_unix_s=wanted.since_unix_s,
            subject=wanted.subject,
            kinds=wanted.kinds,
            without=(LOAD,) if wanted.kinds is None else (),
            limit=limit if wanted.kinds else LIMIT,
        )
    if wanted.kinds is None:
        recorded = tuple(event for event in recorded if is_news(event.kind, event.data))
    found = [HistoryEntry(unix_s=e.unix_s, kind=e.kind, subject=e.subject, data=e.data) for e in recorded]
    found += [
        _told(report) for report in all_reports(paths.root, wanted.since_unix_s) if _fits(report, wanted)
    ]
    return sorted(found, key=lambda one: one.unix_s)[-limit:]


def is_news(kind: str, data: Mapping[str, object]) -> bool:
    """Whether somebody who reads what happened wants to be told: not that an engine takes over a version and
    is well with it, which all of them do at each update."""
    return kind != WORKER_STATE or not {data.get("state"), data.get("before")} <= ROUTINE


def _fits(report: SupervisorReport, wanted: EventFilter) -> bool:
    is_about = wanted.subject in (None, report.offender.id)
    return is_about and (wanted.kinds is None or report.context in wanted.kinds)


def _told(report: SupervisorReport) -> HistoryEntry:
    return HistoryEntry(
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
    """See that there are events of these kinds.

    raises    UsageError
    """
    known = [*KINDS, *REPORTS]
    for kind in kinds:
        if kind not in known:
            similar = difflib.get_close_matches(kind, known, n=2, cutoff=0.55)
            hint = f"did you mean {' or '.join(similar)}?" if similar else f"there are {', '.join(known)}"
            raise UsageError(f"there are no events of kind {kind!r}; {hint}")


class EventFollower:
    """What happens from now on, each once. Made before anything else is read, it misses nothing.

    read   what happened since a moment
    """

    def __init__(
        self, read: Callable[[float], list[HistoryEntry]], now_unix_s: Callable[[], float] = time.time
    ) -> None:
        self._read, self._now_unix_s = read, now_unix_s
        self._newest_unix_s = now_unix_s()
        self._seen: set[_Identity] = set()
        self.new()

    def has_shown(self, shown: Collection[HistoryEntry]) -> None:
        """These need not be shown again."""
        self._seen |= {_identity(one) for one in shown}

    def new(self) -> list[HistoryEntry]:
        """Oldest first."""
        # A clock that was put back must not hide what happens after that.
        found = self._read(min(self._newest_unix_s, self._now_unix_s()) - OVERLAP_S)
        fresh = [one for one in found if _identity(one) not in self._seen]
        self._seen = {_identity(one) for one in found}
        self._newest_unix_s = max([self._newest_unix_s, *(one.unix_s for one in fresh)])
        return fresh


_Identity = tuple[float, str, str]


def _identity(one: HistoryEntry) -> _Identity:
    return one.unix_s, one.kind, one.subject


def in_words(one: HistoryEntry) -> str:
    """One line: when, what, about whom, and what its fields say."""
    shown = {key: value for key, value in one.data.items() if value not in (None, "", [])}
    if one.kind in REPORTS:
        shown = {key: shown[key] for key in ("incarnation", "reason") if key in shown}
    fields = "  ".join("=".join(told(key, value)) for key, value in shown.items())
    return one_line(f"{clock(one.unix_s)}  {one.kind:16}  {one.subject:16}  {fields}".rstrip())


def told(key: str, value: object) -> tuple[str, str]:
    """A field as people read it: a moment as a time of day, figures in few digits."""
    if isinstance(value, float) and key.endswith("_unix_s"):
        return key.removesuffix("_unix_s"), clock(value)
    return key, f"{value:g}" if isinstance(value, float) and abs(value) < 1e6 else str(value)
