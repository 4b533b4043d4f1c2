"""The result of a run that has ended: report files, printed tables, and the reason if it failed."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from rich.console import Console

from dart.core.run_directory import RunPaths
from dart.curation.groups import DropReason
from dart.inspect import learning_curve, report
from dart.inspect.exit_reports import RESTARTED, all_reports
from dart.inspect.formatting import counted, counts
from dart.inspect.live import restarts, success_over_time
from dart.inspect.snapshot import RunSnapshot
from dart.inspect.terminal_safe import Printable, one_line
from dart.store.browse_queries import RunBrowser
from dart.telemetry.events import EVALUATION_FAILED

UNSOLVED_EPISODES = 32
"""Number of finished training episodes without a success after which the end of a run names a task."""

UNSOLVED_NAMED = 5
"""How many of these tasks are named at most."""


@dataclass(frozen=True, slots=True)
class Staleness:
    """How stale the trained steps of a run were, in policy versions."""

    mean: float
    """The mean over updates of each update's mean over steps."""
    p95: float
    """The 95th percentile over the steps of one update, in the update where this is highest."""
    most: float


def staleness_of(updates: Iterable[Mapping[str, float]]) -> Staleness | None:
    """Summarise staleness over all updates of a run; None if there was no update.

    updates   the metrics of each update
    """
    figures = [metrics for metrics in updates if "staleness_mean" in metrics]
    if not figures:
        return None
    return Staleness(
        mean=fmean(metrics["staleness_mean"] for metrics in figures),
        p95=max(metrics["staleness_p95"] for metrics in figures),
        most=max(metrics["staleness_max"] for metrics in figures),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainResult:
    """How a training run ended."""

    snapshot: RunSnapshot
    """The run as it was at its end."""
    report: report.RunReport
    """Results of all evaluations; the part of an evaluation that did not take place is empty."""
    episodes: tuple[learning_curve.EpisodePoint, ...]
    """Every finished training episode of the run, including those before a resume."""
    seed: int
    stopped_by: int | None = None
    """Number of the signal that ended the run before all work was done; None if no signal did."""
    is_drained: bool = False
    """Whether, after the signal `stopped_by`, all actors ended by themselves before they had to be killed."""
    staleness: Staleness | None = None
    """Staleness of the trained steps of all updates; None if there was no update."""
    violations: tuple[str, ...] = ()
    """Damage that the check of the data found at the end of the run; empty if there is none. The run must not
    continue with it."""
    lost_screenshots: tuple[str, ...] = ()
    """Lost screenshots that this check found. They cost only the groups that name them: these are dropped if
    the run continues."""
    failure: str = ""
    """Why the run failed, with the remedy; empty if it did not fail."""


def publish(result: TrainResult, console: Console, paths: RunPaths) -> None:
    """Write the report and the learning curve into the run directory, and print both."""
    report.write_json(result.report, paths.report, about=_about(result))
    learning_curve.write_png(result.episodes, result.report.sampled, paths.curve)
    with suppress(OSError):  # a terminal that was closed, a reader that left, a full disk
        _show(result, console, paths)


def _show(result: TrainResult, console: Console, paths: RunPaths) -> None:
    text = learning_curve.render(result.episodes, width=min(console.width, 100))
    if text:
        console.print(text, markup=False, highlight=False)
    for measured in result.report.measured:
        console.print(Printable(report.render(measured)))
    files = f"{paths.root}: report.json, curve.png, checkpoints/"
    lines = [
        *success_lines(result),
        *unsolved_lines(result),
        *curation_lines(result),
        books_line(result),
        files,
    ]
    for line in lines:
        console.print(one_line(line), markup=False, highlight=False, soft_wrap=True)


def success_lines(result: TrainResult) -> list[str]:
    """Return the line about success over time; none for a run without training episodes."""
    line = success_over_time(result.snapshot)
    return [line] if line else []


def unsolved_lines(result: TrainResult) -> list[str]:
    """Return the line about tasks that never succeeded while training, with the remedies; none without such
    tasks. A task counts from its `UNSOLVED_EPISODES`th episode on."""
    solved = {episode.task_id for episode in result.episodes if episode.success}
    tasks = result.snapshot.tasks
    never = [one for one in tasks if one.trajectories >= UNSOLVED_EPISODES and one.task_id not in solved]
    if not never:
        return []
    named = ", ".join(f"{one.task_id} (0 of {one.trajectories})" for one in never[:UNSOLVED_NAMED])
    more = f" and {len(never) - UNSOLVED_NAMED} more" if len(never) > UNSOLVED_NAMED else ""
    return [
        f"{len(never)} of {counted(len(tasks), 'task')} had no success while training: {named}{more}; a task "
        "whose rewards are all equal teaches nothing: leave it out of tasks.train, train easier ones first, "
        "or give demonstrations (curation.experience_pool)"
    ]


def books_line(result: TrainResult) -> str:
    """Return one line about the fates of all rollouts, whether the data are sound, and restarts."""
    lost = counted(len(result.lost_screenshots), "lost screenshot")
    sound = f"sound but for {lost}" if result.lost_screenshots else "sound"
    verdict = f"DAMAGED ({len(result.violations)} findings)" if result.violations else sound
    return f"{result.snapshot.conservation}; data {verdict}; {restarts(result.snapshot)}"


def curation_lines(result: TrainResult) -> list[str]:
    """Return lines about staleness, drops, demonstrations and parked episodes; figures of 0 get no line."""
    snapshot, old = result.snapshot, result.staleness
    lines = []
    if old is not None:
        lines.append(
            f"staleness of trained steps: mean {old.mean:.2f}, p95 {old.p95:.0f} (of the worst update), "
            f"max {old.most:.0f} versions"
        )
    if snapshot.drops:
        lines.append(f"rollouts dropped: {counts(snapshot.drops)}")
    if snapshot.pool_uses:
        lines.append(f"demonstrations used: {snapshot.pool_uses}, of {snapshot.pool_size} in the pool")
    if snapshot.pool_without_thought:
        lines.append(f"demonstrations without a thought: {snapshot.pool_without_thought}")
    if snapshot.pool_self_rolled:
        lines.append(f"demonstrations that the policy played itself: {snapshot.pool_self_rolled}")
    if snapshot.parkings:
        taken_up = snapshot.parkings - snapshot.parked_now
        lines.append(f"episodes parked: {snapshot.parkings}, taken up again or played anew: {taken_up}")
    return lines


def _about(result: TrainResult) -> dict[str, Any]:
    snapshot = result.snapshot
    return {
        "seed": result.seed,
        "seconds": round(snapshot.elapsed_s, 1),
        "updates": snapshot.updates,
        "policy_version": snapshot.policy_version,
        "trajectories": snapshot.trajectories,
        "success_while_training": [asdict(window) for window in snapshot.success_windows],
        "restarts": snapshot.restarts,
        "restarts_since_seconds": round(snapshot.used_before_s, 1),
        "faults": dict(snapshot.faults),
        **asdict(snapshot.conservation),
        "drops": dict(snapshot.drops),
        "staleness": asdict(result.staleness) if result.staleness else None,
        "demonstrations_used": snapshot.pool_uses,
        "demonstrations_without_thought": snapshot.pool_without_thought,
        "demonstrations_self_rolled": snapshot.pool_self_rolled,
        "parked": snapshot.parkings,
        "parked_now": snapshot.parked_now,
        "violations": list(result.violations),
        "lost_screenshots": list(result.lost_screenshots),
        "completed": result.stopped_by is None and not result.failure,
    }


# ---- a run that failed ----

REMEDY = "repair the cause before the next start"


def why_nothing_was_played(snapshot: RunSnapshot, scores: report.RunReport, paths: RunPaths) -> str:
    """Explain why the run finished no episode, with the remedy; empty if it finished an episode."""
    if snapshot.trajectories or any(one.before.scores or one.after.scores for one in scores.measured):
        return ""
    attempts = sum(snapshot.faults.values())
    with RunBrowser(paths.record) as record:
        newest = record.newest_attempts(1)
        evaluations = [one for one in record.find_events(kinds=(EVALUATION_FAILED,)) if one.data["attempts"]]
    if attempts:
        (last,) = newest
        return (
            f"no episode was played: {counted(attempts, 'attempt')} failed, the last one of "
            f"{last.environment} ({last.fault_kind}): {one_line(last.detail)}; {REMEDY}"
        )
    if evaluations:
        what = evaluations[-1].data
        return (
            f"no episode was played: evaluation episodes failed, the last one of {evaluations[-1].subject} "
            f"({what['kind']}): {one_line(str(what['detail']))}; {REMEDY}"
        )
    deaths = [one for one in all_reports(paths.root) if one.context == RESTARTED]
    if deaths:
        return (
            f"no episode was played: {deaths[-1].offender.id} failed, {one_line(deaths[-1].reason)}; {REMEDY}"
        )
    return (
        "no episode was played: the time of the run was over before its first episode ended; "
        "give the run more time with --set run.minutes=N"
    )


def why_nothing_was_trained(snapshot: RunSnapshot) -> str:
    """Explain why a run with a time limit made no update, with the remedy; empty if it made one."""
    if snapshot.updates or not snapshot.budget_s:
        return ""
    dropped = f" (rollouts dropped: {counts(snapshot.drops)})" if snapshot.drops else ""
    equal = (
        "; a group whose rewards are all equal (no_spread) teaches nothing: train tasks in which the policy "
        "sometimes succeeds"
    )
    return (
        f"no update was made: run.minutes = {snapshot.budget_s / 60:g} was used up before the first one, by "
        f"evaluations or by episodes{dropped}; give the run more with --set run.minutes=N, or evaluate less "
        "(evaluation.before, evaluation.after, evaluation.seeds_per_task)"
    ) + (equal if DropReason.NO_SPREAD in snapshot.drops else "")
