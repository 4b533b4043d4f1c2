"""What the evaluations of a run measured, from the record: successes by task, episodes without a result."""

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

from dart.config.config import Config
from dart.core.records import Evaluation, EvaluationPhase
from dart.core.statistics import Score
from dart.curation.run_phases import EvaluationEpisode, RunPlan, missing, still_to_play, that_count
from dart.inspect.report import EvaluationResult, RunReport, SuccessReport
from dart.store.reader import StoreReader
from dart.telemetry.events import EVALUATION_FAILED

NOT_PLAYED = "not played"
"""Why an episode has no result if its evaluation ended before the episode was played."""

GREEDY = "greedy"
"""The word of a report for answers that are chosen greedily: the most likely token each time."""

FAILURES_MAX = 100_000
"""How many failures of evaluation episodes are read at most; older failures are ignored."""


def scores(
    store: StoreReader, config: Config, phase: EvaluationPhase, *, is_greedy: bool = False
) -> dict[str, Score]:
    """Count the played episodes of one evaluation and their successes.

    Returns a score for each task that has a played episode, by task id.

    is_greedy   whether to count the episodes with greedy answers; otherwise those with sampled answers
    """
    played = [one for one in _measured(store, phase) if one.is_greedy == is_greedy]
    episodes = Counter(one.task_id for one in played)
    successes = Counter(one.task_id for one in played if one.reward > config.curation.success_above)
    return {task: Score(successes[task], count) for task, count in sorted(episodes.items())}


def final_report(store: StoreReader, config: Config) -> RunReport:
    """Return success before and after training on held-out seeds, with sampled and with greedy answers."""
    temperature = config.evaluation.temperature
    sampled = f"sampled at temperature {temperature:g}" if temperature > 0 else GREEDY
    return RunReport(
        sampled=_report(store, config, sampled, is_greedy=False),
        greedy=_report(store, config, GREEDY, is_greedy=True),
    )


def _report(store: StoreReader, config: Config, answers: str, *, is_greedy: bool) -> SuccessReport:
    before, after = (_result(store, config, phase, is_greedy=is_greedy) for phase in EvaluationPhase)
    return SuccessReport(before, after, answers)


def _result(
    store: StoreReader, config: Config, phase: EvaluationPhase, *, is_greedy: bool
) -> EvaluationResult:
    """Return what one evaluation measured, which planned episodes have no result, and why."""
    plan = RunPlan(config=config, training_ends_s=math.inf)
    measured = scores(store, config, phase, is_greedy=is_greedy)
    failed = failures(store, phase)
    if not plan.is_measured(phase) or not (failed or measured):
        return EvaluationResult(measured)
    gaps = [one for one in missing(plan, _measured(store, phase)) if one.is_greedy == is_greedy]
    messages = Counter(str(failed[one]["detail"]) for one in gaps if one in failed)
    return EvaluationResult(
        measured,
        left_out=Counter(one.task_id for one in gaps),
        reasons=Counter(str(failed[one]["kind"]) if one in failed else NOT_PLAYED for one in gaps),
        played_again=sum(one.is_greedy == is_greedy for one in failed.keys() - set(gaps)),
        commonest_failure=messages.most_common(1)[0][0] if messages else "",
    )


def still_missing(store: StoreReader, plan: RunPlan, phase: EvaluationPhase) -> int:
    """Count the episodes that an evaluation still has to play.

    An episode that failed too often is not played again and is not counted.
    """
    given_up = {one for one, why in failures(store, phase).items() if why["is_left_out"]}
    left = still_to_play(plan, store.evaluations(phase), phase, _newest(store))
    return sum(one not in given_up for one in left)


def _measured(store: StoreReader, phase: EvaluationPhase) -> tuple[Evaluation, ...]:
    """Return the played episodes of an evaluation.

    Of the evaluation after training, only episodes of the newest policy version are returned.
    """
    return that_count(store.evaluations(phase), phase, _newest(store))


def _newest(store: StoreReader) -> int | None:
    newest = store.latest_version()
    return None if newest is None else newest.version


def failures(store: StoreReader, phase: EvaluationPhase) -> dict[EvaluationEpisode, Mapping[str, Any]]:
    """Return the data of the last event `evaluation_failed` of each evaluation episode that ever failed.

    Of the evaluation after training, only failures of the newest policy version are returned.
    """
    newest = _newest(store)
    return {
        EvaluationEpisode(one.subject, int(str(one.data["seed"])), bool(one.data["is_greedy"])): one.data
        for one in store.find_events(kinds=(EVALUATION_FAILED,), limit=FAILURES_MAX)
        if one.data["phase"] == phase and (phase is EvaluationPhase.BEFORE or one.data["version"] == newest)
    }
