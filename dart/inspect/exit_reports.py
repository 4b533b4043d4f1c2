"""Why actors ended, from the reports of their supervisors (`supervision.reports`)."""

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dart.inspect.logs import LogLine
from supervision.reports import SupervisorReport, read

RESTARTED = "child_terminated"
"""The `context` of a report about a child that failed. Its supervisor restarted it, or would have restarted
it if restart budget had been left."""

_DEATHS = frozenset({RESTARTED, "start_error", "shutdown_error"})
"""The contexts that report a death. Other contexts report a replacement, or what was decided after a death
(`child_quarantined`, `shutdown`)."""


def restarts_by_child(run_dir: Path, supervisor: str, since_unix_s: float) -> Counter[str]:
    """Count how often each child of a supervisor failed since a moment."""
    since = read(run_dir, supervisor, since_unix_s)
    return Counter(report.offender.id for report in since if report.context == RESTARTED)


def all_reports(run_dir: Path, since_unix_s: float = 0.0) -> list[SupervisorReport]:
    """Read the reports of every supervisor of the run, oldest first."""
    folder = run_dir / "reports"
    names = {path.name.partition(".jsonl")[0] for path in folder.glob("*.jsonl*")}
    found = [report for name in names for report in read(run_dir, name, since_unix_s)]
    return sorted(found, key=lambda report: report.unix_s)


def newest_failure(run_dir: Path, error: str) -> str:
    """Return the whole message of the newest error of a class with which an actor of the run failed.

    error     the name of the class
    returns   an empty text if no actor failed with this error
    """
    failed = (one.reason for one in reversed(all_reports(run_dir)) if one.context == RESTARTED)
    return next((text for reason in failed if (text := reason.partition(f"{error}: ")[2])), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorEnd:
    """One incarnation of an actor that ended, and why."""

    incarnation: int
    started_unix_s: float | None
    """When the incarnation became ready; None if it never did, or if the log no longer has that line."""
    report: SupervisorReport | None
    """The report of the death that ended the incarnation: its own death, or that of another actor. None if no
    supervisor reported a death, because the actor was asked to stop or the whole run ended."""
    is_own: bool
    """Whether the incarnation itself failed."""


def ends(
    name: str,
    parents: Mapping[str, str],
    starts: Sequence[LogLine],
    reports: Iterable[SupervisorReport],
    *,
    is_up: bool = True,
) -> list[ActorEnd]:
    """Return why each earlier incarnation of an actor ended, oldest first.

    parents   the supervisor of every actor; an empty name for the root
    starts    the lines of the actor's log that say that an incarnation is ready, oldest first
    is_up     whether an incarnation of the actor is running; that incarnation is left out

    An incarnation that did not fail itself gets as its cause the last death of another actor that could have
    ended it, before the next incarnation began.
    """
    above = ancestors_of(name, parents)
    deaths = [one for one in reports if one.context in _DEATHS and _ends(one, name, above)]
    deaths.sort(key=lambda one: one.unix_s)
    nexts_s = [start.unix_s for start in starts[1:]] + [math.inf] * bool(starts)
    ended = [_end(start, next_s, name, deaths) for start, next_s in zip(starts, nexts_s, strict=True)]
    if ended and is_up and not ended[-1].is_own:
        ended.pop()  # the present incarnation, whatever died since it began
    known = {id(one.report) for one in ended}
    ended += [
        ActorEnd(incarnation=death.offender.incarnation, started_unix_s=None, report=death, is_own=True)
        for death in deaths
        if death.offender.id == name and id(death) not in known
    ]
    return sorted(ended, key=lambda one: (one.report.unix_s if one.report else one.started_unix_s) or 0.0)


def _ends(death: SupervisorReport, name: str, above: Sequence[str]) -> bool:
    """Whether a death ended this actor.

    An actor is ended by its own death and by the death of a supervisor above it. After some deaths a
    supervisor also stops other children: such a death ends the actor if the actor, or a supervisor above it,
    is among them.
    """
    return death.offender.id in (name, *above) or not {name, *above}.isdisjoint(death.taken_along)


def _end(start: LogLine, next_s: float, name: str, deaths: Sequence[SupervisorReport]) -> ActorEnd:
    """Find how the incarnation ended that began with the log line `start`.

    next_s   when the next incarnation began, in unix seconds; infinite if there is none
    deaths   the deaths that ended the actor, oldest first. The number of an incarnation does not identify its
             death, because each start of the run counts from 1.
    """
    first = bisect_left(deaths, start.unix_s, key=lambda one: one.unix_s)
    latest = deaths[first : bisect_right(deaths, next_s, key=lambda one: one.unix_s)][::-1]
    offender = name, start.incarnation
    own = next((one for one in latest if (one.offender.id, one.offender.incarnation) == offender), None)
    return ActorEnd(
        incarnation=start.incarnation,
        started_unix_s=start.unix_s,
        report=own or next((one for one in latest if one.offender.id != name), None),
        is_own=own is not None,
    )


def ancestors_of(name: str, parents: Mapping[str, str]) -> list[str]:
    """Return the supervisors above an actor, nearest first.

    A board that is read while it changes may show a cycle; then each supervisor is returned once.
    """
    found: list[str] = []
    while (name := parents.get(name, "")) and name not in found:
        found.append(name)
    return found
