"""The reward of an episode, as a table."""

import pytest

from dart.core.types import Outcome
from dart.environments.scoring import reward_of


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
