"""Why actors ended: the supervisors' reports in `reports/` of the run, and the chain of causes they make.

Supervisors write one line of JSON for each death (`supervision.reports`).
"""

import json
import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from actors.codec import from_plain
from actors.errors import MalformedMessage
from dart.inspect.logs import LogLine
from supervision.reports import SupervisorReport

RESTARTED = "child_terminated"
"""Context of the reports of children that failed and were, or would have been, started again."""

_DEATHS = frozenset({RESTARTED, "start_error", "shutdown_error"})
"""Other contexts report a decision after a death (child_quarantined, shutdown) or a replacement."""


def reports_since(run_dir: Path, supervisor: str, since_unix_s: float = 0.0) -> list[SupervisorReport]:
    """Read the reports of one supervisor since a moment, oldest first; older lines are not parsed."""
    found = []
    for line in _newest_first(run_dir, supervisor):
        with suppress(ValueError, MalformedMessage):  # half a line; zeros, after a power failure
            report = from_plain(json.loads(line), SupervisorReport)
            if report.unix_s < since_unix_s:
                break
            found.append(report)
    return found[::-1]


def _newest_first(run_dir: Path, supervisor: str) -> Iterator[bytes]:
    newest = run_dir / "reports" / f"{supervisor}.jsonl"
    for path in (newest, newest.with_name(f"{newest.name}.1")):
        with suppress(FileNotFoundError):
            yield from reversed(path.read_bytes().splitlines())


def restarts_by_child(run_dir: Path, supervisor: str, since_unix_s: float) -> Counter[str]:
    """How often each child of a supervisor failed since a moment."""
    since = reports_since(run_dir, supervisor, since_unix_s)
    return Counter(report.offender.id for report in since if report.context == RESTARTED)


def all_reports(run_dir: Path, since_unix_s: float = 0.0) -> list[SupervisorReport]:
    """Read the reports of every supervisor of the run, oldest first."""
    folder = run_dir / "reports"
    names = {path.name.partition(".jsonl")[0] for path in folder.glob("*.jsonl*")}
    found = [report for name in names for report in reports_since(run_dir, name, since_unix_s)]
    return sorted(found, key=lambda report: report.unix_s)


# ---- the chain of causes ----


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorEnd:
    """One incarnation of an actor that ended, and why."""

    incarnation: int
    started_unix_s: float | None
    """When it got ready; None when its log no longer says so, or it never did."""
    report: SupervisorReport | None
    """Its own death, or the one that took it along; None when no supervisor reported any: it was asked to
    stop, or the whole run ended."""
    is_own: bool
    """Whether it failed itself."""


def ends(
    name: str,
    parents: Mapping[str, str],
    starts: Sequence[LogLine],
    reports: Iterable[SupervisorReport],
    *,
    is_up: bool = True,
) -> list[ActorEnd]:
    """Why each incarnation but the present one ended, oldest first.

    parents   every actor to its supervisor; empty for the root's
    starts    the lines of the actor's log with which its incarnations got ready, oldest first
    is_up     whether there is a present one
    An actor that did not fail itself was taken along by the last death before its next start that could.
    """
    deaths = sorted((one for one in reports if one.context in _DEATHS), key=lambda one: one.unix_s)
    own = [one for one in deaths if one.offender.id == name]
    others = [one for one in deaths if _takes_along(one, name, parents)]
    nexts_s = [start.unix_s for start in starts[1:]] + [math.inf] * bool(starts)
    ended = [_end(start, next_s, own, others) for start, next_s in zip(starts, nexts_s, strict=True)]
    if ended and is_up and not ended[-1].is_own:
        ended.pop()  # the present incarnation, whatever died since it began
    known = {id(one.report) for one in ended}
    ended += [_unready(death) for death in own if id(death) not in known]
    return sorted(ended, key=lambda one: (one.report.unix_s if one.report else one.started_unix_s) or 0.0)


def _end(
    start: LogLine, next_s: float, own: Sequence[SupervisorReport], others: Sequence[SupervisorReport]
) -> ActorEnd:
    """How the incarnation that began with `start` ended, before the next one began.

    Its number alone does not identify it: each start of the run counts from 1.
    """
    failures = _between(own, start.unix_s, next_s)
    failed = next((one for one in reversed(failures) if one.offender.incarnation == start.incarnation), None)
    return ActorEnd(
        incarnation=start.incarnation,
        started_unix_s=start.unix_s,
        report=failed or next(reversed(_between(others, start.unix_s, next_s)), None),
        is_own=failed is not None,
    )


def _between(
    deaths: Sequence[SupervisorReport], begins_s: float, ends_s: float
) -> Sequence[SupervisorReport]:
    """The deaths in a stretch of time, from a list in the order of time."""
    first = bisect_left(deaths, begins_s, key=lambda one: one.unix_s)
    return deaths[first : bisect_right(deaths, ends_s, key=lambda one: one.unix_s)]


def _unready(death: SupervisorReport) -> ActorEnd:
    """The end of an incarnation that never got ready, or whose log no longer says when it did."""
    return ActorEnd(incarnation=death.offender.incarnation, started_unix_s=None, report=death, is_own=True)


def _takes_along(report: SupervisorReport, name: str, parents: Mapping[str, str]) -> bool:
    """Whether a death also ended this actor.

    It did if a supervisor above the actor died, or if the report says that it ended the actor's branch.
    """
    above = ancestors_of(name, parents)
    return report.offender.id in above or not {name, *above}.isdisjoint(report.taken_along)


def ancestors_of(name: str, parents: Mapping[str, str]) -> list[str]:
    """The supervisors above an actor, nearest first; a board read while it changes may show a cycle."""
    found: list[str] = []
    while (name := parents.get(name, "")) and name not in found:
        found.append(name)
    return found
