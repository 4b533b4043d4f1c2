"""The reward of an episode by how it ended. Pure.

On a task where declaring infeasibility pays, nothing else does: an agent that runs into the step cap there,
or does something and says it is done, has not recognised it.
"""

import math
from typing import Any

from dart.core.types import Outcome
from dart.environments.faults import EvaluatorFailed


def reward_of(outcome: Outcome, score: float, pays_infeasible: bool) -> float:
    """The reward in [0, 1].

    score             what the evaluator says of the screen as it was left, in [0, 1]
    pays_infeasible   whether declaring the task infeasible is the right answer
    """
    match outcome:
        case Outcome.PARSE_ERROR:
            return 0.0
        case Outcome.INFEASIBLE:
            return 1.0 if pays_infeasible else 0.0
        case Outcome.TERMINATED | Outcome.FINISHED | Outcome.STEP_CAP:
            return 0.0 if pays_infeasible else score


def clamped_score(task_id: str, raw: Any) -> float:
    """The evaluator's raw score in [0, 1]; raises `EvaluatorFailed` when it is not a number."""
    if isinstance(raw, bool) or not isinstance(raw, int | float) or not math.isfinite(raw):
        raise EvaluatorFailed(task_id, f"expected the raw score to be a number, got: {raw!r}")
    return min(1.0, max(0.0, float(raw)))
