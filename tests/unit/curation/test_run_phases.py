"""Which phase a run is in follows from the record and the clock alone."""

import math
from dataclasses import replace

import pytest

from dart.config.config import load_config
from dart.config.sections import TasksSettings
from dart.core.records import Evaluation, EvaluationPhase, RunPhase
from dart.core.seeds import HELD_OUT_SEEDS
from dart.curation.run_phases import (
    EvaluationEpisode,
    RunPlan,
    missing,
    phase_now,
    still_to_play,
    that_count,
)

FIRST, SECOND = HELD_OUT_SEEDS[:2]


def plan(*overrides: str, tasks: tuple[str, ...] = ("a", "b"), ends_s: float = 100.0) -> RunPlan:
    two_seeds = ["evaluation.seeds_per_task=2", "evaluation.greedy_seeds_per_task=0"]
    config = load_config(None, [*two_seeds, *overrides])
    config = config.model_copy(update={"tasks": TasksSettings(train=tasks)})
    return RunPlan(config=config, training_ends_s=ends_s)


@pytest.mark.parametrize(
    ("override", "updates", "now", "missing_before", "missing_after", "expected"),
    [
        ("", 0, 0.0, 4, 4, RunPhase.BASE_EVALUATION),
        ("", 0, 500.0, 1, 4, RunPhase.BASE_EVALUATION),  # a measured base is worth more than the clock
        ("evaluation.before=false", 0, 0.0, 4, 4, RunPhase.TRAINING),
        ("", 0, 0.0, 0, 4, RunPhase.TRAINING),
        ("", 7, 0.0, 2, 4, RunPhase.TRAINING),  # too late to measure the base
        ("", 7, 100.0, 0, 4, RunPhase.FINAL_EVALUATION),
        ("", 7, 100.0, 0, 0, RunPhase.DONE),
        ("evaluation.after=false", 7, 100.0, 0, 4, RunPhase.DONE),
        ("training.updates=7", 6, 0.0, 0, 4, RunPhase.TRAINING),
        ("training.updates=7", 7, 0.0, 0, 4, RunPhase.FINAL_EVALUATION),
        ("training.actions=5001", 7, 0.0, 0, 4, RunPhase.TRAINING),
        ("training.actions=5000", 7, 0.0, 0, 4, RunPhase.FINAL_EVALUATION),
        ('training.learner="none"', 0, 0.0, 1, 4, RunPhase.BASE_EVALUATION),
        ('training.learner="none"', 0, -9e9, 0, 0, RunPhase.DONE),  # it has nothing to train, at any time
    ],
)
def test_the_phase_follows_from_record_and_clock(
    override: str,
    updates: int,
    now: float,
    missing_before: int,
    missing_after: int,
    expected: RunPhase,
) -> None:
    found = phase_now(
        plan(*([override] if override else [])),
        updates=updates,
        actions=5000,
        now_s=now,
        missing_before=missing_before,
        missing_after=missing_after,
    )

    assert found is expected


def test_without_limits_the_training_never_ends() -> None:
    endless = plan(ends_s=math.inf)
    found = phase_now(endless, updates=999, actions=5000, now_s=1e12, missing_before=0, missing_after=4)
    assert found is RunPhase.TRAINING


def test_what_is_missing_is_every_pair_not_played_with_the_tasks_mixed() -> None:
    assert missing(plan(), [evaluation(EvaluationPhase.BEFORE, 0)]) == [
        EvaluationEpisode("b", FIRST),
        EvaluationEpisode("a", SECOND),
        EvaluationEpisode("b", SECOND),
    ]


def test_a_greedy_episode_is_another_one_than_the_sampled_one_of_its_seed() -> None:
    both = plan("evaluation.greedy_seeds_per_task=1", tasks=("a",))
    sampled = evaluation(EvaluationPhase.BEFORE, 0)
    greedy, second = EvaluationEpisode("a", FIRST, is_greedy=True), EvaluationEpisode("a", SECOND)
    assert missing(both, [sampled]) == [greedy, second]
    assert missing(both, [sampled, replace(sampled, is_greedy=True)]) == [second]


def test_no_episode_is_greedy_where_every_answer_is_the_most_likely_one() -> None:
    assert not any(
        one.is_greedy
        for one in plan("evaluation.greedy_seeds_per_task=1", "evaluation.temperature=0").episodes
    )


def evaluation(phase: EvaluationPhase, version: int) -> Evaluation:
    return Evaluation(phase=phase, policy_version=version, task_id="a", seed=FIRST, reward=1.0)


def test_after_training_only_what_the_newest_version_played_counts() -> None:
    before, older, newest = (
        evaluation(*one)
        for one in ((EvaluationPhase.BEFORE, 0), (EvaluationPhase.AFTER, 3), (EvaluationPhase.AFTER, 7))
    )
    every = (before, older, newest)
    assert that_count(every, EvaluationPhase.BEFORE, 7) == (before,)
    assert that_count(every, EvaluationPhase.AFTER, 7) == (newest,)
    assert that_count(every, EvaluationPhase.AFTER, 9) == ()


@pytest.mark.parametrize(
    ("override", "phase", "newest", "count"),
    [
        ("", EvaluationPhase.BEFORE, 0, 3),
        ("", EvaluationPhase.AFTER, 0, 0),
        ("", EvaluationPhase.AFTER, 7, 4),
        ("evaluation.before=false", EvaluationPhase.AFTER, 0, 4),
    ],
)
def test_a_base_policy_that_was_measured_before_training_is_not_measured_after_it(
    override: str, phase: EvaluationPhase, newest: int, count: int
) -> None:
    config = plan(*([override] if override else []))
    done = [evaluation(EvaluationPhase.BEFORE, 0)]
    assert len(still_to_play(config, done, phase, newest)) == count


@pytest.mark.parametrize("left_out", EvaluationPhase)
def test_a_run_measures_the_phases_that_its_configuration_has(left_out: EvaluationPhase) -> None:
    of_one = plan(f"evaluation.{left_out.value}=false")
    assert [phase for phase in EvaluationPhase if not of_one.is_measured(phase)] == [left_out]
