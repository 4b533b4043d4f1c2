"""Judges the stored episodes of a run again, by the evaluators that are installed now.

::

    python -m dart.environments.osworld.rescore runs/20260101 --tasks evaluation_examples/examples

Nothing of the run is changed. Each line has the task, the score that counted, and the new one; an episode
that cannot be judged again has the reason in its place: the new version asks what was not read, pages of a
browser were read, rules of the task name days from today, or the task's file has changed.
"""

import argparse
import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from dart.environments.deadlines import counting_down
from dart.environments.faults import EnvironmentFault
from dart.environments.osworld.judgements import KeptJudgement, RecordedAnswers, read_judgements
from dart.environments.osworld.judging import judged
from dart.environments.osworld.scoring_environment import (
    EvaluatorsMissing,
    ScoringEnvironment,
    find_evaluators,
)
from dart.environments.osworld.tasks import load_task

DEADLINE_S = 300.0
TODAY = "rule_relativeTime"


async def rescore(
    run_dir: Path, tasks: Path, scoring: ScoringEnvironment
) -> AsyncIterator[tuple[KeptJudgement, float | str]]:
    """Yield each judgement of a run with the new score, or the reason why there is none."""
    for kept in read_judgements(run_dir):
        try:
            yield kept, await _score(kept, run_dir, tasks, scoring)
        except EnvironmentFault as error:
            yield kept, str(error)


async def _score(kept: KeptJudgement, run_dir: Path, tasks: Path, scoring: ScoringEnvironment) -> float | str:
    task = load_task(kept.task_id, tasks)
    if task.sha256 != kept.task_sha256:
        return "the task's file has changed"
    if any(look.get("type") == TODAY for look in task.looks()):
        return "its rules name days from today"
    answers = RecordedAnswers(run_dir, kept)
    return (await judged(task, scoring, answers, counting_down(DEADLINE_S))).score


async def _print(run_dir: Path, tasks: Path, scoring: ScoringEnvironment) -> int:
    relations: Counter[str] = Counter()
    async for kept, found in rescore(run_dir, tasks, scoring):
        print(f"{kept.task_id}  {kept.evaluator}: {kept.score:g}  {scoring.name}: {found}")
        relations["not judged again" if isinstance(found, str) else _relation(kept.score, found)] += 1
    print(", ".join(f"{count} {name}" for name, count in relations.most_common()) or "no judgements")
    return 0 if relations else 1


def _relation(before: float, after: float) -> str:
    return "the same" if before == after else "different"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m dart.environments.osworld.rescore")
    parser.add_argument("run", type=Path, help="run directory")
    parser.add_argument("--tasks", type=Path, default=Path("evaluation_examples/examples"))
    parser.add_argument("--evaluators", type=Path, default=Path(".venv-osworld-score"))
    options = parser.parse_args(arguments)
    try:
        scoring = find_evaluators(options.evaluators)
    except EvaluatorsMissing as error:
        print(error, file=sys.stderr)
        return 1
    return asyncio.run(_print(options.run, options.tasks, scoring))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
