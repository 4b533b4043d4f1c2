"""Why an actor ended the last times: its own failure, or whose took it along, and what led to that."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from dart.core.run_directory import RunPaths
from dart.inspect import live
from dart.inspect.actor_table import find_actor, read_actors
from dart.inspect.exit_reports import ActorEnd, all_reports, ends
from dart.inspect.logs import in_words, parse, read_log, starts
from dart.inspect.snapshot import ActorRow
from dart.inspect.time_format import clock
from supervision.reports import SupervisorReport

NOBODY_SAID = "no supervisor reported why: it was told to stop, or the whole run ended"


def read_why(run_dir: Path, name: str) -> tuple[ActorRow, list[ActorEnd]]:
    """An actor, and why each of its incarnations ended, oldest first.

    raises    UsageError when there is no such actor, NotRunningError when no run left a board
    """
    rows = read_actors(run_dir)
    row = find_actor(name, rows)
    return row, ends_of(RunPaths(run_dir), row, rows)


def ends_of(paths: RunPaths, row: ActorRow, rows: Iterable[ActorRow]) -> list[ActorEnd]:
    """Why each incarnation of an actor ended, oldest first."""
    parents = {one.name: one.parent for one in rows}
    reports, is_up = all_reports(paths.root), row.process != "gone"
    return ends(row.name, parents, starts(read_log(paths, row.name)), reports, is_up=is_up)


# ---- in words ----


def heading(row: ActorRow, found: Sequence[ActorEnd]) -> str:
    """Where the actor stands, in one line."""
    state = live.state_text(row).plain
    since = f" for {live.age(row.age_s)}" if row.age_s is not None else ""
    if row.process == "gone" and not found:
        return f"{row.name} is {state}: its process has ended, and no supervisor has said why"
    if not found:
        return f"{row.name} is {state}{since}; it never ended in this run"
    times = "once" if len(found) == 1 else f"{len(found)} times"
    failures = "1 failure" if row.restarts_in_window == 1 else f"{row.restarts_in_window} failures"
    recent = f" ({failures} of its own in the last {row.window_s:.0f} s)"
    return f"{row.name} is {state}{since}; it ended {times}{recent if row.restarts_in_window else ''}"


def in_a_line(name: str, one: ActorEnd) -> str:
    """When and why one incarnation ended."""
    if one.report is None:
        return f"incarnation {one.incarnation}: {NOBODY_SAID}"
    when = clock(one.report.unix_s)
    if one.is_own:
        lived = (
            "" if one.started_unix_s is None else f" after {live.age(one.report.unix_s - one.started_unix_s)}"
        )
        return f"{when}  incarnation {one.incarnation} ended{lived}: {one.report.reason}"
    whose = one.report.offender.id
    return f"{when}  incarnation {one.incarnation} was taken along by {whose}: {one.report.reason}"


def in_full(name: str, one: ActorEnd) -> Iterator[str]:
    """The same with everything that was found about it, one line each."""
    yield in_a_line(name, one)
    if one.report is not None:
        yield from (f"    {line}" for line in _details(one.report))


def _details(report: SupervisorReport) -> Iterator[str]:
    how = report.signal or (f"exit code {report.exit_code}" if report.exit_code is not None else "")
    process = f"process {report.offender.pid}" if report.offender.pid else ""
    yield ", ".join(part for part in (f"reported by {report.supervisor}", process, how) if part)
    yield from (f"because: {reason}" for reason in report.chain)
    yield from (f"it said: {line}" for line in report.last_words)
    yield from (f"its log: {_log_line(line)}" for line in report.log_lines)


def _log_line(text: str) -> str:
    line = parse(text.encode())
    return text if line is None else f"{clock(line.unix_s)} {in_words(line)}"
