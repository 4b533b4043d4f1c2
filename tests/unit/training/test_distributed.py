"""How passes are shared among ranks: each is made once, and all ranks make as many."""

import pytest

from dart.testing.trajectories import step_at
from dart.training.batch_errors import MalformedStep, NonFiniteUpdate
from dart.training.distributed import ProcessGroup, RankGroup
from dart.training.distributed_learner import CommandFailure


def rank(index: int, count: int) -> ProcessGroup:
    one = ProcessGroup.__new__(ProcessGroup)
    one.index, one.count = index, count
    return one


@pytest.mark.parametrize(("passes", "count"), [(1, 2), (4, 2), (5, 2), (5, 3), (2, 4)])
def test_every_pass_is_made_by_one_rank_and_none_waits_for_another(passes: int, count: int) -> None:
    shares = [list(rank(index, count).own_passes(range(passes))) for index in range(count)]
    assert len({len(share) for share in shares}) == 1
    assert sorted(one for share in shares for one, counts in share if counts) == list(range(passes))


def test_alone_makes_all() -> None:
    assert list(RankGroup().own_passes("abc")) == [("a", True), ("b", True), ("c", True)]
    assert RankGroup().gather([1, 2], 2) == [1, 2]
    assert RankGroup().sum({"loss": 1.0}) == {"loss": 1.0}


@pytest.mark.parametrize(
    "error", [MalformedStep(step_at(0), 7), NonFiniteUpdate("loss", float("inf"), 3), OSError(28, "full")]
)
def test_an_error_of_a_rank_is_the_trainers_error(error: Exception) -> None:
    made = CommandFailure.of(error).error()
    assert type(made) is type(error)
    assert (str(made), vars(made)) == (str(error), vars(error))
