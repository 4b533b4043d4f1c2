"""Computes the reward of an episode from its outcome and its score. Pure.

On an infeasible task only the declaration that it cannot be done is rewarded. A policy that reaches the step
cap, or declares the task done, has not recognised that the task is infeasible, and gets 0.
"""

import math
from typing import Any, SupportsFloat

from dart.config.problems import shortened
from dart.core.types import Outcome
from dart.environments.faults import EvaluatorFailed

ROUNDING = 1e-6
"""By how much a score may leave [0, 1]: a sum of parts that should be 1 may be a little more."""


def reward_of(outcome: Outcome, score: float, is_infeasible: bool) -> float:
    """Return the reward of an episode that ended with ``outcome``, in [0, 1].

    score           the evaluator's score of the final screen, in [0, 1]
    is_infeasible   whether declaring the task infeasible is the right answer
    """
    match outcome:
        case Outcome.PARSE_ERROR:
            return 0.0
        case Outcome.INFEASIBLE:
            return 1.0 if is_infeasible else 0.0
        case Outcome.TERMINATED | Outcome.FINISHED | Outcome.STEP_CAP:
            return 0.0 if is_infeasible else score


def clamped_score(task_id: str, raw: Any) -> float:
    """Return the raw score of an evaluator, clamped to [0, 1].

    Raises EvaluatorFailed when the raw score is not a finite number."""
    if isinstance(raw, bool) or not isinstance(raw, int | float) or not math.isfinite(raw):
        raise EvaluatorFailed(task_id, f"expected the raw score to be a finite number, got {raw!r}")
    return min(1.0, max(0.0, float(raw)))


def checked_score(task_id: str, kind: str, raw: Any) -> float:
    """Return what `Environment.evaluate` returned as a float.

    NumPy numbers and booleans count. Raises EvaluatorFailed when the score is no number in [0, 1]."""
    try:
        score = float(raw) if isinstance(raw, SupportsFloat) else math.nan
    except (TypeError, ValueError, OverflowError, RuntimeError):  # such as an array of several numbers
        score = math.nan
    if not -ROUNDING <= score <= 1.0 + ROUNDING:
        raise EvaluatorFailed(
            task_id,
            f"expected evaluate of environments of kind {kind!r} to return a number in [0, 1], got "
            f"{shortened(repr(raw))}; correct it, or let it raise EvaluatorFailed where there is no score",
        )
    return min(1.0, max(0.0, score))
