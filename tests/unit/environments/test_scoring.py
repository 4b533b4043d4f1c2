"""The reward of an episode, as a table, and the scores of which it is made."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from dart.core.types import Outcome
from dart.environments.faults import EvaluatorFailed
from dart.environments.scoring import checked_score, reward_of


@pytest.mark.parametrize(
    ("outcome", "score", "ordinary", "infeasible_pays"),
    [
        (Outcome.TERMINATED, 1.0, 1.0, 0.0),
        (Outcome.TERMINATED, 0.0, 0.0, 0.0),
        (Outcome.FINISHED, 0.4, 0.4, 0.0),
        (Outcome.STEP_CAP, 1.0, 1.0, 0.0),
        (Outcome.STEP_CAP, 0.0, 0.0, 0.0),
        (Outcome.PARSE_ERROR, 1.0, 0.0, 0.0),
        (Outcome.INFEASIBLE, 1.0, 0.0, 1.0),
        (Outcome.INFEASIBLE, 0.0, 0.0, 1.0),
    ],
)
def test_the_reward_of_every_outcome(
    outcome: Outcome, score: float, ordinary: float, infeasible_pays: float
) -> None:
    assert reward_of(outcome, score, is_infeasible=False) == ordinary
    assert reward_of(outcome, score, is_infeasible=True) == infeasible_pays


@pytest.mark.parametrize(
    "raw",
    [1, 1.0, True, Fraction(1), np.float64(1), np.float32(1), np.int64(1), np.bool_(True), np.array(1.0)],
)
def test_every_number_that_an_own_evaluate_may_return_becomes_a_float(raw: Any) -> None:
    score = checked_score("square/one", "square", raw)
    assert (type(score), score) == (float, 1.0)


def test_a_sum_of_parts_that_misses_0_or_1_by_rounding_is_0_or_1() -> None:
    assert checked_score("square/one", "square", sum([0.05] * 20)) == 1.0
    assert checked_score("square/one", "square", -1e-12) == 0.0


@pytest.mark.parametrize(
    "raw",
    [
        None,
        "1",
        math.nan,
        math.inf,
        -0.1,
        1.1,
        -1,
        10**400,
        np.float64("nan"),
        np.array([0.0, 1.0]),
        torch.ones(2),
        [1.0],
    ],
)
def test_what_is_no_score_fails_the_evaluator_and_the_message_names_kind_task_value_and_remedy(
    raw: Any,
) -> None:
    with pytest.raises(EvaluatorFailed) as failed:
        checked_score("square/one", "square", raw)
    text = str(failed.value)
    assert text.startswith(
        "square/one could not be scored: expected evaluate of environments of kind 'square'"
    )
    assert f"a number in [0, 1], got {repr(raw)[:20]}" in text
    assert text.endswith("correct it, or let it raise EvaluatorFailed where there is no score")
