"""What the evaluations of a run measured, from the record: successes by task, episodes without a result."""

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

from dart.config.config import Config
from dart.core.records import Evaluation, EvaluationPhase
from dart.core.statistics import Score
from dart.curation.run_phases import EvaluationEpisode, missing, that_count
from dart.curation.settings import plan_of
from dart.inspect.report import LeftOut, RunReport, SuccessReport
from dart.store.reader import StoreReader
from dart.telemetry.events import EVALUATION_FAILED

NOT_PLAYED = "not played"
"""Reason of an episode without a result in an evaluation that ended early."""

FAILURES_MAX = 100_000
"""Most failures of evaluation episodes that are read, the newest."""


def scores(
    store: StoreReader, config: Config, phase: EvaluationPhase, *, is_greedy: bool = False
) -> dict[str, Score]:
    """Successes and episodes of one evaluation, by task."""
    episodes: Counter[str] = Counter()
    successes: Counter[str] = Counter()
    for evaluation in _measured(store, phase):
        if evaluation.is_greedy != is_greedy:
            continue
        episodes[evaluation.task_id] += 1
        successes[evaluation.task_id] += int(evaluation.reward > config.curation.success_above)
    return {task: Score(successes[task], count) for task, count in sorted(episodes.items())}


def final_report(store: StoreReader, config: Config) -> RunReport:
    """Success before and after training on held-out seeds, with sampled and with greedy answers."""
    temperature = config.evaluation.temperature
    sampled = f"sampled at temperature {temperature:g}" if temperature > 0 else "greedy"
    return RunReport(
        sampled=_report(store, config, sampled, is_greedy=False),
        greedy=_report(store, config, "greedy", is_greedy=True),
    )


def _report(store: StoreReader, config: Config, answers: str, *, is_greedy: bool) -> SuccessReport:
    before, after = EvaluationPhase.BEFORE, EvaluationPhase.AFTER
    return SuccessReport(
        before=scores(store, config, before, is_greedy=is_greedy),
        after=scores(store, config, after, is_greedy=is_greedy),
        left_out_before=left_out(store, config, before, is_greedy=is_greedy),
        left_out_after=left_out(store, config, after, is_greedy=is_greedy),
        answers=answers,
    )


def left_out(store: StoreReader, config: Config, phase: EvaluationPhase, *, is_greedy: bool) -> LeftOut:
    """Planned episodes of one evaluation that have no result, and why; none while it has not begun."""
    plan = plan_of(config, math.inf)
    done = _measured(store, phase)
    failed = failures(store, phase)
    gaps = [one for one in missing(plan, done) if one.is_greedy == is_greedy]
    has_begun = bool(failed) or any(one.is_greedy == is_greedy for one in done)
    if not plan.is_measured(phase) or not has_begun:
        return LeftOut()
    reasons = (str(failed[one]["kind"]) if one in failed else NOT_PLAYED for one in gaps)
    return LeftOut(
        tasks=Counter(one.task_id for one in gaps),
        reasons=Counter(reasons),
        played_again=sum(one.is_greedy == is_greedy for one in failed.keys() - set(gaps)),
    )


def _measured(store: StoreReader, phase: EvaluationPhase) -> tuple[Evaluation, ...]:
    """The episodes of an evaluation that count."""
    return that_count(store.evaluations(phase), phase, _newest(store))


def _newest(store: StoreReader) -> int | None:
    newest = store.latest_version()
    return None if newest is None else newest.version


def failures(store: StoreReader, phase: EvaluationPhase) -> dict[EvaluationEpisode, Mapping[str, Any]]:
    """The last failure of each episode that had any."""
    newest = _newest(store)
    return {
        EvaluationEpisode(one.subject, int(str(one.data["seed"])), bool(one.data["is_greedy"])): one.data
        for one in store.find_events(kinds=(EVALUATION_FAILED,), limit=FAILURES_MAX)
        if one.data["phase"] == phase and (phase is EvaluationPhase.BEFORE or one.data["version"] == newest)
    }
