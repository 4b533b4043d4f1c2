"""Why a run that is over played nothing: the last failure in the record or in the supervisors' reports."""

from dart.core.run_directory import RunPaths
from dart.inspect.exit_reports import RESTARTED, all_reports
from dart.inspect.report import RunReport
from dart.inspect.snapshot import RunSnapshot
from dart.inspect.terminal_safe import one_line
from dart.store.browse_queries import RunBrowser

REMEDY = "it has to be repaired before the next start"


def why_nothing_was_played(snapshot: RunSnapshot, report: RunReport, paths: RunPaths) -> str:
    """Explain why no episode of this run was finished, with the remedy; empty when one was."""
    if snapshot.trajectories or any(one.before.scores or one.after.scores for one in report.measured):
        return ""
    attempts = sum(snapshot.faults.values())
    if attempts:
        with RunBrowser(paths.store) as record:
            (last,) = record.newest_attempts(1)
        return (
            f"no episode was played: {attempts} attempts failed, the last one of {last.environment} "
            f"({last.fault_kind}): {one_line(last.detail)}; {REMEDY}"
        )
    deaths = [one for one in all_reports(paths.root) if one.context == RESTARTED]
    if deaths:
        last_death = deaths[-1]
        return (
            f"no episode was played: {last_death.offender.id} failed, {one_line(last_death.reason)}; {REMEDY}"
        )
    return (
        "no episode was played: the time of the run was over before the first one ended; "
        "give it more with --set run.minutes=N"
    )
