"""What ranks say to one another, and how their weights are split."""

import pytest

from dart.testing.trajectories import step_at
from dart.training.batch_errors import MalformedStep, NonFiniteUpdate
from dart.training.distributed import RankGroup
from dart.training.distributed_learner import CommandFailure


def test_alone_all_results_are_its_own_and_its_error_is_raised() -> None:
    assert RankGroup().gather([1, 2]) == [1, 2]
    assert RankGroup().sum({"loss": 1.0}) == {"loss": 1.0}
    RankGroup().fail_together(None)
    with pytest.raises(OSError, match="full"):
        RankGroup().fail_together(OSError(28, "full"))


@pytest.mark.parametrize(
    "error", [MalformedStep(step_at(0), 7), NonFiniteUpdate("loss", float("inf"), 3), OSError(28, "full")]
)
def test_an_error_of_a_rank_is_the_trainers_error(error: Exception) -> None:
    made = CommandFailure.of(error).error()
    assert type(made) is type(error)
    assert (str(made), vars(made)) == (str(error), vars(error))
