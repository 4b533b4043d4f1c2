"""The healing witness: the event by which a run shows that it noticed each fault done to it, and repaired it.

A fault has healed when both are there within `HEALS_WITHIN_S`: an event that the run itself wrote, and the
first real work after it (`benchmarks.chaos_report`). What the event is depends on the fault:

  SIGKILL, SIGSTOP       the report `child_terminated` about that incarnation of the victim, or about the
                         supervisor above it, which took it along before its own end was noticed; for a
                         child of a pool also `child_quarantined`, or the `outage` of its pool. Where the disk
                         was full, on which reports are lost: its next incarnation
  disk full, locked      the event `paused`: an actor waited and went on
  fault in an episode    the attempt that it spent
  fault of a reset       none of its own, as a reset is repeated within its attempt: the next start counts
"""

import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from benchmarks import runs
from benchmarks.chaos_faults import DISK_FULL, LASTS_S, Fault, is_any
from benchmarks.chaos_report import RESET_FAULTS, Episode, injected_recovery_s, recovery_s
from dart.core.records import Event
from dart.core.run_directory import RunPaths
from dart.environments.fault_injection import Injection
from dart.store.reader import StoreReader
from dart.telemetry.events import PAUSED
from supervision import reports
from supervision.reports import SupervisorReport

HEALS_WITHIN_S = 120.0
"""Longest time from a fault to its event, and to the first real work after it."""

WRITTEN_EARLY_S = 1.0
"""An event may bear a time this much before the fault's: two processes took them from the clock."""

ENDS = frozenset({"child_terminated", "child_quarantined"})
"""Contexts of reports about the end of a child that is started again."""

HANGS_S = 20.0
"""How long a stopped actor may go unnoticed: its report may come when the disk is full by then."""

SUPERVISORS = {"env-": "environment_pool", "rollout-": "rollout_pool"}
"""Who may end with a child of a pool, by its name's prefix."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a run wrote that may be the event of a fault."""

    reports: Sequence[SupervisorReport]
    pauses: Sequence[Event]
    spent: Mapping[int, Sequence[float]]
    """When attempts of a rollout were spent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Healing:
    """One fault and its recovery, in seconds since the fault."""

    what: str
    kind: str
    """The fault without the victim's number."""
    event: str
    """What shows that it was noticed; empty when nothing does."""
    event_s: float | None
    work_s: float | None
    """To the first real work."""

    @property
    def is_healed(self) -> bool:
        times = self.event_s, self.work_s
        return all(time is not None and time <= HEALS_WITHIN_S for time in times)

    @property
    def missing(self) -> str:
        """What is not there, in words; empty when the fault has healed."""
        if self.is_healed:
            return ""
        if self.event_s is None:
            return f"{self.what}: no event"
        if self.work_s is None:
            return f"{self.what}: no work after it"
        return f"{self.what}: {max(self.event_s, self.work_s):.1f} s"


def evidence_of(paths: RunPaths) -> Evidence:
    """Read what a run wrote about its faults."""
    written = [
        report
        for file in sorted((paths.root / "reports").glob("*.jsonl"))
        for report in reports.read(paths.root, file.stem)
    ]
    with StoreReader(paths.store) as reader:
        pauses = tuple(reader.find_events(kinds=(PAUSED,)))
    spent: defaultdict[int, list[float]] = defaultdict(list)
    with closing(sqlite3.connect(f"file:{paths.store}?mode=ro", uri=True)) as connection:
        for rollout_id, unix_s in connection.execute("SELECT rollout_id, spent_unix_s FROM attempts"):
            spent[rollout_id].append(unix_s)
    return Evidence(written, pauses, spent)


def healings(
    faults: Sequence[Fault],
    injections: Sequence[Injection],
    evidence: Evidence,
    episodes: Sequence[Episode],
    commits: Sequence[float],
) -> list[Healing]:
    """Every fault with its recovery, in the order in which they were done."""
    full = [fault for fault in faults if fault.kind == DISK_FULL]
    found = [
        (fault.unix_s, _healing_of_signal(fault, evidence, full, recovery_s(fault, episodes, commits)))
        for fault in faults
    ]
    found += [
        (
            injection.unix_s,
            _healing_of_injection(injection, evidence, injected_recovery_s(injection, episodes)),
        )
        for injection in injections
    ]
    return [healing for _, healing in sorted(found, key=lambda one: one[0])]


def _healing_of_signal(
    fault: Fault, evidence: Evidence, full: Sequence[Fault], work_s: float | None
) -> Healing:
    event, event_s = _pause(fault, evidence) if fault.kind in LASTS_S else _report(fault, evidence)
    is_full = any(disk.unix_s - disk.lasted_s - HANGS_S <= fault.unix_s <= disk.unix_s for disk in full)
    if not event and is_full and fault.ready_after_s is not None:  # a report is lost on a full disk
        event, event_s = "the next incarnation", fault.ready_after_s
    prefix = next((prefix for prefix in SUPERVISORS if is_any(fault.victim, prefix)), "")
    kind = f"{fault.kind} {prefix}N" if prefix else fault.what
    return Healing(what=fault.what, kind=kind, event=event, event_s=event_s, work_s=work_s)


def _report(fault: Fault, evidence: Evidence) -> tuple[str, float | None]:
    above = [name for prefix, name in SUPERVISORS.items() if is_any(fault.victim, prefix)]
    for report in sorted(evidence.reports, key=lambda one: one.unix_s):
        offender, after_s = report.offender, report.unix_s - fault.unix_s
        is_outage = report.context == "outage" and report.supervisor in above
        if is_outage and abs(after_s) <= HEALS_WITHIN_S:  # the failures after its first have no report
            return f"outage of {report.supervisor}", max(0.0, after_s)
        if after_s < -WRITTEN_EARLY_S or report.context not in ENDS:
            continue
        is_own = (offender.id, offender.incarnation) == (fault.victim, fault.incarnation)
        if is_own or offender.id in above:
            return f"{report.context} of {offender.id}", max(0.0, after_s)
    return "", None


def _pause(fault: Fault, evidence: Evidence) -> tuple[str, float | None]:
    """A pause that began while the disk was full or the record locked, and how long after it ended."""
    began_unix_s = fault.unix_s - fault.lasted_s - WRITTEN_EARLY_S
    for pause in evidence.pauses:
        if began_unix_s <= float(pause.data["began_unix_s"]) <= fault.unix_s + WRITTEN_EARLY_S:
            return f"{PAUSED} of {pause.subject}", max(0.0, pause.unix_s - fault.unix_s)
    return "", None


def _healing_of_injection(injection: Injection, evidence: Evidence, work_s: float | None) -> Healing:
    kind = f"injected {injection.kind.value}"
    if injection.kind in RESET_FAULTS or not injection.rollout_id:
        event, event_s = ("the next start" if work_s is not None else ""), work_s
    else:
        ends = evidence.spent.get(injection.rollout_id, ())
        later = [unix_s for unix_s in ends if unix_s >= injection.unix_s - WRITTEN_EARLY_S]
        event = "attempt spent" if later else ""
        event_s = max(0.0, min(later) - injection.unix_s) if later else None
    what = f"{kind} in {injection.environment}"
    return Healing(what=what, kind=kind, event=event, event_s=event_s, work_s=work_s)


def witness_lines(found: Sequence[Healing]) -> list[str]:
    """For people: of each kind how many were done and healed, and how long the event and the work took."""
    lines = [f"    {'healed of done, seconds to event and work':38}{'count':>9}{'event':>16}{'work':>16}"]
    for kind in sorted({healing.kind for healing in found}):
        of_kind = [healing for healing in found if healing.kind == kind]
        healed = sum(healing.is_healed for healing in of_kind)
        events, work = [healing.event_s for healing in of_kind], [healing.work_s for healing in of_kind]
        lines.append(f"    {kind:38}{f'{healed}/{len(of_kind)}':>9}{_times(events):>16}{_times(work):>16}")
    return lines


def _times(times: Sequence[float | None]) -> str:
    known = [time for time in times if time is not None]
    if not known:
        return "never"
    median, _, _ = runs.median_and_quartiles(known)
    return f"{median:.2f} ({max(known):.2f})"
