"""What ranks say to one another, and how their weights are split."""

import errno
from pathlib import Path

import pytest
import torch

from dart.store.checkpoints import CheckpointNotWritten
from dart.store.disk_wait import is_no_room
from dart.testing.trajectories import step_at
from dart.training import distributed
from dart.training.batch_errors import MalformedStep, NonFiniteUpdate
from dart.training.distributed_learner import CommandFailure
from dart.training.rank_group import RankGroup


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


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_rank_without_room_lets_the_trainer_wait_for_it(number: int) -> None:
    refused = OSError(number, "the disk has no room")
    error = CheckpointNotWritten(Path("v000001"), refused)
    error.__cause__ = refused
    assert is_no_room(CommandFailure.of(error).error())


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [("cpu", ("gloo", torch.device("cpu"))), ("auto", ("nccl", torch.device("cuda:1")))],
)
def test_ranks_stay_on_the_cpu_when_the_device_says_so(
    monkeypatch: pytest.MonkeyPatch, wanted: str, expected: tuple[str, torch.device]
) -> None:
    backends: list[str] = []
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(distributed.dist, "init_process_group", backends.append)
    device = distributed.join_ranks(wanted)
    assert (*backends, device) == expected
