"""Reports on tasks and demonstrations: what the record has of them, and what the curator decided."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from dart.config.config import Config
from dart.config.environment_kinds import kind_of
from dart.core.errors import UsageError
from dart.core.records import DecisionKind, DemonstrationSummary, TaskDecision, TaskStatistics
from dart.core.suggestions import did_you_mean, near
from dart.curation.settings import settings_of
from dart.curation.task_state import TaskState, TaskTable
from dart.inspect.formatting import clock, counted, counts, number, percent
from dart.store.reader import StoreReader

RECENT_PER_TASK = 40
"""Number of newest trajectories of a task from which its success rate is computed."""

CUT = "…"
"""The last character of a text that a table has cut."""

DECISIONS_MAX = 1000
"""How many of a task's newest decisions are read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReport:
    """One task as the curator sees it."""

    task_id: str
    groups: int
    """Number of groups of the task that were begun so far."""
    finished: int
    """Number of the task's episodes finished in training so far."""
    success_rate: float | None
    """Share of successes, 0 to 1, among its newest trajectories; None before the first trajectory."""
    recent: int
    """Number of trajectories over which `success_rate` is computed."""
    rollouts: int
    """N: number of rollouts of the task's next group."""
    step_cap: int
    """Largest number of steps of an episode of the task's next group."""
    longest_success_steps: int | None
    quarantined_until_unix_s: float | None
    """End of the task's quarantine; None if the task is not in quarantine."""
    quarantine_reason: str
    demonstrations: int
    """Number of the task's demonstrations in the experience pool that are in use."""
    uses: int
    """How often a demonstration of the task was added to a group."""
    drops: Mapping[str, int]
    """Number of the task's groups that were dropped, by reason."""


def task_reports(store: StoreReader, config: Config, now_unix_s: float | None = None) -> list[TaskReport]:
    """Read every task of the run, in the order of its configuration.

    `rollouts` and `step_cap` are computed with the present configuration, even if the configuration has
    changed since the curator last decided about the task.
    """
    now_s = time.time() if now_unix_s is None else now_unix_s
    statistics = store.task_statistics(RECENT_PER_TASK)
    curated = TaskTable(settings_of(config), statistics)
    drops = store.drops_by_task()
    played = {task.task_id: task for task in statistics}
    above = config.curation.success_above
    return [
        _report(curated[task_id], played.get(task_id), drops.get(task_id, {}), above, now_s)
        for task_id in config.tasks.train
    ]


def _report(
    task: TaskState,
    played: TaskStatistics | None,
    drops: Mapping[str, int],
    success_above: float,
    now_s: float,
) -> TaskReport:
    """Report on one task.

    played   what the record has of the task's episodes; None if no episode has finished
    """
    recent = [reward > success_above for _, reward in played.recent] if played else []
    quarantine = task.health.quarantine if task.health.is_quarantined(now_s) else None
    pool = task.demonstrations.values()
    return TaskReport(
        task_id=task.task_id,
        groups=task.groups_opened,
        finished=played.finished if played else 0,
        success_rate=fmean(recent) if recent else None,
        recent=len(recent),
        rollouts=task.rollouts,
        step_cap=task.step_cap,
        longest_success_steps=task.longest_success_steps,
        quarantined_until_unix_s=None if quarantine is None else quarantine.until_unix_s,
        quarantine_reason="" if quarantine is None else task.why_quarantined,
        demonstrations=sum(not one.dropped for one in pool),
        uses=sum(one.uses for one in pool),
        drops=drops,
    )


def find_task(name: str, tasks: Sequence[str]) -> str:
    """Find a task by its id, `miniwob/click-tab`, or by the part after a slash, `click-tab`, if it is unique.

    A part that a table has cut, `click-t…`, is enough, too.

    raises    UsageError if no task fits, or several do; the message suggests similar names
    """
    if name in tasks:
        return name
    start = name.removesuffix(CUT)
    fitting = [
        task for task in tasks if task.endswith(f"/{name}") or (start != name and f"/{start}" in f"/{task}")
    ]
    if len(fitting) == 1:
        return fitting[0]
    names = tasks if "/" in name else [task.rpartition("/")[2] for task in tasks]
    hint = did_you_mean(near(name, names)) or f"; its tasks are {', '.join(tasks)}"
    raise UsageError(f"the run has no task {name!r}{hint}")


# ---- as text ----


def quarantines(reports: Iterable[TaskReport]) -> list[str]:
    """Return a line for each task in quarantine, with the reason."""
    return [f"{one.task_id} is {state(one)}" for one in reports if one.quarantined_until_unix_s is not None]


def state(report: TaskReport) -> str:
    """Return `active`, or until when and why the task is in quarantine."""
    if report.quarantined_until_unix_s is None:
        return "active"
    return f"in quarantine until {clock(report.quarantined_until_unix_s)}: {report.quarantine_reason}"


def about(report: TaskReport) -> list[str]:
    """Describe one task in a few lines."""
    lines = [
        f"{report.task_id}  {state(report)}",
        f"success {percent(report.success_rate)} over the newest {report.recent}"
        if report.recent
        else "no episode finished yet",
        f"next group: {counted(report.rollouts, 'rollout')} of at most {counted(report.step_cap, 'step')} "
        f"(longest success so far: {number(report.longest_success_steps, 0)})",
        f"groups: {report.groups} opened, {sum(report.drops.values())} dropped"
        + (f" ({counts(report.drops)})" if report.drops else ""),
    ]
    if report.demonstrations:
        held, used = counted(report.demonstrations, "demonstration"), counted(report.uses, "time")
        lines.append(f"experience pool: {held}, used {used}")
    return lines


KIND_NAMES: Mapping[DecisionKind, str] = {DecisionKind.ROLLOUTS: "N", DecisionKind.STEP_CAP: "step cap"}


def history(decisions: Iterable[TaskDecision]) -> list[str]:
    """Return a line for each decision, with its reason, in the order given."""
    return [f"{clock(one.unix_s)}  {decision_text(one)}" for one in decisions]


def decision_text(decision: TaskDecision) -> str:
    """Format a decision, such as `N 8 -> 4: success 0.80 over the last 8 (version 12)`."""
    if decision.kind is not DecisionKind.QUARANTINE:
        change = f"{KIND_NAMES[decision.kind]} {decision.before} -> {decision.after}"
    elif decision.after:
        change = f"in quarantine until {clock(float(decision.after))}"
    else:
        change = "released"
    return f"{change}: {decision.reason} (version {decision.policy_version})"


# ---- demonstrations ----


def check_demonstration(pool_id: int, held: Iterable[DemonstrationSummary]) -> None:
    """Check that the experience pool has a demonstration with this id, whether in use or dropped.

    raises    UsageError if there is no such demonstration
    """
    if pool_id not in {one.pool_id for one in held}:
        raise UsageError(f"the pool has no demonstration {pool_id}; 'dartrl pool list' shows what it has")


def about_pool(held: Sequence[DemonstrationSummary], config: Config) -> list[str]:
    """Say why some demonstrations in use are not trained on, or only in some groups; a line for each reason.

    Where a setting helps, the line names the setting.

    held   the demonstrations in use
    """
    pool, lines = config.curation.experience_pool, []
    if idle := sum(one.task_id not in config.tasks.train for one in held):
        lines.append(f"demonstrations of tasks that this run does not train: {idle}")
    above = config.curation.success_above
    if failing := sum(one.reward <= above for one in held):
        lines.append(
            f"demonstrations whose reward is no success: {failing}; they are not used, because their reward "
            f"is not above curation.success_above ({above:g})"
        )
    if lacking := sum(one.lacks_thought for one in held):
        lines.append(f"demonstrations without a thought: {lacking}; {_without_thought(config)}")
    if held and kind_of(config.environments).content_follows_from_seed:
        lines.append(
            "a demonstration joins groups of its own seed only, because the seed determines the screens; "
            "a task that fails is played on the seeds of its demonstrations"
        )
    if not pool.enabled:
        lines.append("the run does not use its pool: set curation.experience_pool.enabled when you resume it")
    return lines


def _without_thought(config: Config) -> str:
    pool = config.curation.experience_pool
    if pool.without_thought:
        return (
            "curation.experience_pool.without_thought is set, so the policy learns to leave its thoughts out"
        )
    plays = "the policy plays with their actions as hints and writes its own thoughts"
    if pool.self_rolled:
        return f"they are not trained on; {plays}"
    return f"they are not trained on; set curation.experience_pool.self_rolled, and {plays}"


def remarks(one: DemonstrationSummary) -> str:
    """Name the special properties of a demonstration, such as `no thought, dropped`; empty if it has none."""
    found = [
        f"self-rolled with hints of {one.guide_id}" if one.is_self_rolled else "",
        f"guided {counted(one.rolls, 'time')}" if one.rolls else "",
        "no thought" if one.lacks_thought else "",
        "dropped" if one.dropped else "",
    ]
    return ", ".join(remark for remark in found if remark)
