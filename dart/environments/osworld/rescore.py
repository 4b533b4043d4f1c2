"""Judges stored episodes again, by the evaluators that are installed now (`dartrl eval rescore`).

The run is not changed and no machine is needed: the evaluators get the answers that were recorded
(`dart.environments.osworld.judgements`). An episode that cannot be judged again gets a reason instead of a
score: the new version asks a question whose answer was not recorded, the value of a getter that reads pages
of a browser was not kept, rules of the task name days relative to today, the task's file has changed,
recorded answers are lost, or the evaluation could not be made.

A getter that reads pages of a browser is not called again, because its pages are gone. The metrics judge the
value that it returned while the episode ran (`Rescored.by_values`).

Each evaluation runs in a child process, so one event loop judges several episodes at a time.
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dart.core.errors import DartError, UsageError
from dart.environments.deadlines import counting_down
from dart.environments.faults import EnvironmentFault
from dart.environments.osworld.judgements import KeptJudgement, RecordedAnswers, read_judgements
from dart.environments.osworld.judging import Judgement, judged
from dart.environments.osworld.scoring_environment import ScoringEnvironment
from dart.environments.osworld.tasks import load_task, task_ids
from dart.store.errors import BlobDamage

DEADLINE_S = 300.0
"""Deadline of the evaluation of one episode."""

MOST_WORKERS = 4
"""Largest number of episodes that are judged at a time by default. Each may take `MOST_SANDBOX_BYTES`."""

END_S = 15.0
"""Time in seconds in which the evaluations under way end after an interrupt."""

TODAY = "rule_relativeTime"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescored:
    """A stored judgement, and what the installed evaluators say of the same episode."""

    task_id: str
    seed: int
    rollout_id: int
    """Id of the rollout; 0 for an evaluation."""
    attempt: int
    environment: str
    evaluator: str
    score: float
    """The score that the run recorded."""
    new_evaluator: str
    new_score: float | None
    reason: str = ""
    """Why there is no new score; empty if there is one."""
    by_values: tuple[str, ...] = ()
    """Getters of which the value that they returned while the episode ran was judged, and not what they read:
    those that read pages of a browser. Changes of these getters have no effect on the new score."""


def judgements_of(run_dir: Path, environment_kind: str) -> tuple[KeptJudgement, ...]:
    """Return the judgements of a run. Raises UsageError when there are none.

    environment_kind   ``environments.kind`` of the run, for the message
    """
    if kept := tuple(read_judgements(run_dir)):
        return kept
    if environment_kind != "osworld":
        raise UsageError(
            f'the run in {run_dir} has no judgements: its environments.kind is "{environment_kind}", and '
            'only runs of kind "osworld" keep what an evaluation read; name such a run'
        )
    raise UsageError(
        f"the run in {run_dir} has no judgements: none of its episodes was scored yet, or the folder "
        "judgements is on another machine; name the run directory of the machine with the environments"
    )


def require_tasks(tasks: Path) -> None:
    """Raise UsageError when there is no task file."""
    if not task_ids(tasks):
        raise UsageError(
            f"there is no task file in {tasks}, but an episode is judged by the file of its task: "
            "pass with --tasks the folder or the set of tasks that the run had in environments.osworld.tasks"
        )


def default_workers() -> int:
    """Return how many episodes are judged at a time by default: the number of CPUs that this process may use,
    at most `MOST_WORKERS`."""
    return min(MOST_WORKERS, len(os.sched_getaffinity(0)))


async def rescore(
    run_dir: Path,
    judgements: Sequence[KeptJudgement],
    tasks: Path,
    scoring: ScoringEnvironment,
    *,
    workers: int,
    progress: Callable[[Rescored], None],
) -> list[Rescored]:
    """Return each judgement, in order, with the score that the evaluators ``scoring`` give the same episode,
    or with the reason why they give none.

    workers    number of episodes that are judged at the same time
    progress   called with each result when it is there, so in the order in which the evaluations end

    If this call is cancelled or raises, the evaluations under way are killed.
    """
    free = asyncio.Semaphore(workers)

    async def judged_in_turn(kept: KeptJudgement) -> Rescored:
        async with free:
            return await _rescored(kept, run_dir, tasks, scoring)

    judging = [asyncio.create_task(judged_in_turn(kept)) for kept in judgements]
    try:
        for ended in asyncio.as_completed(judging):
            progress(await ended)
    finally:
        await _end(judging)
    return [task.result() for task in judging]


async def _end(judging: "Sequence[asyncio.Task[Rescored]]") -> None:
    """Cancel the judgements that have not ended, and wait until their evaluations are killed."""
    running = [task for task in judging if task.cancel()]
    if running:
        await asyncio.wait(running, timeout=END_S)


async def _rescored(kept: KeptJudgement, run_dir: Path, tasks: Path, scoring: ScoringEnvironment) -> Rescored:
    new, reason = None, ""
    try:
        found = await _judged(kept, run_dir, tasks, scoring)
        new, reason = (None, found) if isinstance(found, str) else (found, "")
    except (EnvironmentFault, BlobDamage) as error:
        reason = str(error)
    except (DartError, OSError) as error:
        reason = f"its evaluation could not be made: {error}"
    return Rescored(
        task_id=kept.task_id,
        seed=kept.seed,
        rollout_id=kept.rollout_id,
        attempt=kept.attempt,
        environment=kept.environment,
        evaluator=kept.evaluator,
        score=kept.score,
        new_evaluator=scoring.name,
        new_score=new.score if new else None,
        reason=reason,
        by_values=new.by_values if new else (),
    )


async def _judged(
    kept: KeptJudgement, run_dir: Path, tasks: Path, scoring: ScoringEnvironment
) -> Judgement | str:
    """Return the new judgement, or the reason why there is none."""
    task = load_task(kept.task_id, tasks)
    if task.sha256 != kept.task_sha256:
        return "the task's file has changed"
    if any(look.get("type") == TODAY for look in task.looks()):
        return "rules of the task name days relative to today"
    answers = RecordedAnswers(run_dir, kept)
    return await judged(task, scoring, answers, counting_down(DEADLINE_S))
