"""Why the earlier incarnations of an actor ended: the actor or another one failed, and what led to this."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from dart.core.run_directory import RunPaths
from dart.inspect.actor_table import find_actor, read_actors
from dart.inspect.exit_reports import ActorEnd, all_reports, ends
from dart.inspect.formatting import age, clock, counted, state_text
from dart.inspect.logs import READY, message, parse, read_log
from dart.inspect.snapshot import ActorRow
from supervision.reports import SupervisorReport

NOT_REPORTED = "no supervisor reported why: it was asked to stop, or the whole run ended"


def read_why(run_dir: Path, name: str) -> tuple[ActorRow, list[ActorEnd]]:
    """Read an actor of the tree, and why each of its incarnations ended, oldest first.

    raises    UsageError if there is no such actor, NotRunningError if the directory has no board
    """
    rows = read_actors(run_dir)
    row = find_actor(name, rows)
    return row, _ends_of(run_dir, name, rows, is_up=row.process != "gone")


def read_ends(run_dir: Path, name: str) -> tuple[ActorRow | None, list[ActorEnd]]:
    """Read what `read_why` reads, also of an actor that was removed from the tree: its row is then None.

    The removal itself is not among the ends, because no supervisor reports it.

    raises    UsageError if the run never had such an actor, NotRunningError if the directory has no board
    """
    rows = read_actors(run_dir)
    if all(row.name != name for row in rows) and _was_there(run_dir, name):
        return None, _ends_of(run_dir, name, rows, is_up=True)
    return read_why(run_dir, name)


def _was_there(run_dir: Path, name: str) -> bool:
    """Whether an actor has left a log, or a report of its supervisor."""
    logged = {path.name.partition(".jsonl")[0] for path in RunPaths(run_dir).logs.glob("*.jsonl*")}
    return name in logged or any(one.offender.id == name for one in all_reports(run_dir))


def _ends_of(run_dir: Path, name: str, rows: Sequence[ActorRow], *, is_up: bool) -> list[ActorEnd]:
    reports = all_reports(run_dir)
    parents = {one.offender.id: one.supervisor for one in reports} | {one.name: one.parent for one in rows}
    starts = [line for line in read_log(RunPaths(run_dir), name) if line.event == READY]
    return ends(name, parents, starts, reports, is_up=is_up)


# ---- as text ----


def summary(name: str, row: ActorRow | None, found: Sequence[ActorEnd]) -> str:
    """Say in one line in which state the actor is and how often it ended.

    row   None if the actor was removed from the tree
    """
    times = "once" if len(found) == 1 else f"{len(found)} times"
    if row is None:
        before = f"it ended {times}" if found else "it never ended"
        return f"{name} was removed from the tree; before that, {before}"
    if row.process == "gone" and not found:
        return f"{row.name} is {state_text(row)}: its process has ended, and no supervisor has reported why"
    state = state_text(row) + (f" for {age(row.age_s)}" if row.age_s is not None else "")
    if not found:
        return f"{row.name} is {state}; it never ended in this run"
    failures = counted(row.restarts_in_window, "failure")
    recent = f" ({failures} of its own in the last {row.window_s:.0f} s)" if row.restarts_in_window else ""
    return f"{row.name} is {state}; it ended {times}{recent}"


def end_line(one: ActorEnd) -> str:
    """Say in one line when and why an incarnation ended."""
    if one.report is None:
        return f"incarnation {one.incarnation}: {NOT_REPORTED}"
    when, why = clock(one.report.unix_s), one.report.reason
    if not one.is_own:
        return f"{when}  incarnation {one.incarnation} was ended when {one.report.offender.id} ended: {why}"
    began_s = one.started_unix_s
    lived = "" if began_s is None else f" after {age(one.report.unix_s - began_s)}"
    return f"{when}  incarnation {one.incarnation} ended{lived}: {why}"


def end_lines(one: ActorEnd) -> Iterator[str]:
    """Yield `end_line`, then a line for everything else that the supervisor reported about this end."""
    yield end_line(one)
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
    return text if line is None else f"{clock(line.unix_s)} {message(line)}"
