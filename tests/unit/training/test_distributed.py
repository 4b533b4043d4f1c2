"""What ranks say to one another, and how their weights are split."""

import errno
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from dart.store.checkpoints import CheckpointNotWritten
from dart.store.disk_wait import is_no_room
from dart.testing.trajectories import step_at
from dart.training import distributed
from dart.training.batch_errors import MalformedStep, NonFiniteUpdate
from dart.training.distributed_learner import CommandFailure
from dart.training.rank_group import RankGroup

MOMENTS = ("exp_avg", "exp_avg_sq")


class Copies(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the copies of tensors to main memory."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func is torch.ops.aten._to_copy.default
        return func(*args, **(kwargs or {}))


def with_moments(device: str) -> tuple[nn.Module, torch.optim.Optimizer]:
    """A module of one weight and its optimizer, as after a step."""
    module = nn.ParameterDict({"weight": torch.empty(4, 3, device=device)})
    optimizer = torch.optim.AdamW(module.parameters())
    moments = {name: torch.zeros(4, 3, device=device) for name in MOMENTS}
    optimizer.state[module["weight"]] = {"step": torch.tensor(1.0), **moments}
    return module, optimizer


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


def test_moments_are_copied_from_a_gpu_once() -> None:
    with FakeTensorMode():  # shapes and devices without memory, so no GPU is needed
        module, optimizer = with_moments("cuda")
        with Copies() as copies:  # type: ignore[no-untyped-call]
            parts = distributed.copied_parts(module, optimizer)["state"]["weight"]
        assert {parts[name].device.type for name in MOMENTS} == {"cpu"}
    assert copies.count == len(MOMENTS) + 1, "the moments and the number of the step"


def test_copied_moments_are_not_those_that_the_next_update_changes() -> None:
    module, optimizer = with_moments("cpu")
    parts = distributed.copied_parts(module, optimizer)["state"]["weight"]
    for name, moment in optimizer.state[next(module.parameters())].items():
        assert parts[name].data_ptr() != moment.data_ptr(), name
