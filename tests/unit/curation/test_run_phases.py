"""Which phase a run is in follows from the record and the clock alone."""

import math
from dataclasses import replace

import pytest

from dart.core.records import Evaluation, EvaluationPhase, RunPhase
from dart.curation.run_phases import EvaluationEpisode, RunPlan, missing, phase_now, that_count


def plan(**changes: object) -> RunPlan:
    values: dict[str, object] = {
        "tasks": ("a", "b"),
        "held_out_seeds": (1, 2),
        "before": True,
        "after": True,
        "max_updates": 0,
        "training_ends_unix_s": 100.0,
    }
    return RunPlan(**{**values, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "updates", "now", "missing_before", "missing_after", "expected"),
    [
        ({}, 0, 0.0, 4, 4, RunPhase.BASE_EVALUATION),
        ({}, 0, 500.0, 1, 4, RunPhase.BASE_EVALUATION),  # a measured base is worth more than the clock
        ({"before": False}, 0, 0.0, 4, 4, RunPhase.TRAINING),
        ({}, 0, 0.0, 0, 4, RunPhase.TRAINING),
        ({}, 7, 0.0, 2, 4, RunPhase.TRAINING),  # too late to measure the base
        ({}, 7, 100.0, 0, 4, RunPhase.FINAL_EVALUATION),
        ({}, 7, 100.0, 0, 0, RunPhase.DONE),
        ({"after": False}, 7, 100.0, 0, 4, RunPhase.DONE),
        ({"max_updates": 7}, 6, 0.0, 0, 4, RunPhase.TRAINING),
        ({"max_updates": 7}, 7, 0.0, 0, 4, RunPhase.FINAL_EVALUATION),
        ({"max_actions": 5001}, 7, 0.0, 0, 4, RunPhase.TRAINING),
        ({"max_actions": 5000}, 7, 0.0, 0, 4, RunPhase.FINAL_EVALUATION),
        ({"training_ends_unix_s": math.inf}, 999, 1e12, 0, 4, RunPhase.TRAINING),
    ],
)
def test_the_phase_follows_from_record_and_clock(
    changes: dict[str, object],
    updates: int,
    now: float,
    missing_before: int,
    missing_after: int,
    expected: RunPhase,
) -> None:
    found = phase_now(
        plan(**changes),
        updates=updates,
        actions=5000,
        now_unix_s=now,
        missing_before=missing_before,
        missing_after=missing_after,
    )

    assert found is expected


def test_what_is_missing_is_every_pair_not_played_with_the_tasks_mixed() -> None:
    assert missing(plan(), [evaluation(EvaluationPhase.BEFORE, 0)]) == [
        EvaluationEpisode("b", 1),
        EvaluationEpisode("a", 2),
        EvaluationEpisode("b", 2),
    ]


def test_a_greedy_episode_is_another_one_than_the_sampled_one_of_its_seed() -> None:
    both = plan(tasks=("a",), held_out_seeds=(1, 2), greedy_seeds=(1,))
    sampled = evaluation(EvaluationPhase.BEFORE, 0)
    assert missing(both, [sampled]) == [EvaluationEpisode("a", 1, is_greedy=True), EvaluationEpisode("a", 2)]
    assert missing(both, [sampled, replace(sampled, is_greedy=True)]) == [EvaluationEpisode("a", 2)]


def evaluation(phase: EvaluationPhase, version: int) -> Evaluation:
    return Evaluation(phase=phase, policy_version=version, task_id="a", seed=1, reward=1.0)


def test_after_training_only_what_the_newest_version_played_counts() -> None:
    before, older, newest = (
        evaluation(*one)
        for one in ((EvaluationPhase.BEFORE, 0), (EvaluationPhase.AFTER, 3), (EvaluationPhase.AFTER, 7))
    )
    every = (before, older, newest)
    assert that_count(every, EvaluationPhase.BEFORE, 7) == (before,)
    assert that_count(every, EvaluationPhase.AFTER, 7) == (newest,)
    assert that_count(every, EvaluationPhase.AFTER, 9) == ()
