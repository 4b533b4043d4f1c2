"""The distribution of a learner's work: one process alone, or several ranks (FSDP2). Imports torch.

Every rank has the same batch and runs its share of the passes; weights, gradients and the optimizer's state
are split among the ranks (Zhao et al. 2023, arXiv 2304.11277; `torch.distributed.fsdp.fully_shard`). Each
collective operation needs all ranks, so a rank with fewer passes than others repeats its last pass with
weight 0.
"""

import io
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh

from dart.policy.pointer.head import PointerHead

T = TypeVar("T")

OPTIMIZER_FILE = "optimizer.pt"
SHARDS_FOLDER = "optimizer"


class RankGroup:
    """The `count` processes that train one policy together; this process is number `index`.

    This class is a group of one process, which does all the work.
    """

    index = 0
    count = 1

    def shard(self, module: nn.Module) -> None:
        """Split the weights among all ranks; a single process keeps all of them."""

    def own_passes(self, passes: Sequence[T]) -> Iterator[tuple[T, bool]]:
        """Yield the passes of this rank, each with True, or False for a repeated pass, which does not count.

        Every rank gets the same number of passes.
        """
        return ((one, True) for one in passes)

    def gather(self, mine: Sequence[T], count: int) -> list[T]:
        """Collect the results of all ranks for `count` passes, in the order of the passes.

        mine   this rank's results, including those of repeated passes
        """
        return list(mine)

    def sum(self, figures: Mapping[str, float]) -> dict[str, float]:
        """Return the sums of the figures over all ranks; a name that a rank lacks counts as 0 there."""
        return dict(figures)

    def full_norm(self, value: Tensor) -> float:
        """Return the norm of all ranks' gradients together; `value` is what torch's clipping returned."""
        return float(value)

    def full_weights(self, module: nn.Module) -> dict[str, Tensor] | None:
        """Return all weights, unsplit, for a checkpoint; None when the module itself holds them all."""
        return None

    def write_optimizer(self, module: nn.Module, optimizer: torch.optim.Optimizer, folder: Path) -> None:
        """Write the optimizer's state into a checkpoint's folder: one file, or a part of each rank."""
        state = io.BytesIO()
        torch.save(optimizer.state_dict(), state)
        (folder / OPTIMIZER_FILE).write_bytes(state.getbuffer())

    def read_optimizer(self, module: nn.Module, optimizer: torch.optim.Optimizer, folder: Path) -> None:
        """Read the optimizer's state that `write_optimizer` wrote with any number of processes."""
        if (folder / OPTIMIZER_FILE).is_file():
            self._read_single_file(module, optimizer, folder / OPTIMIZER_FILE)
        else:
            read_parts(module, optimizer, folder)

    def _read_single_file(self, module: nn.Module, optimizer: torch.optim.Optimizer, file: Path) -> None:
        optimizer.load_state_dict(torch.load(file, weights_only=True))


class ProcessGroup(RankGroup):
    """The ranks of an initialised process group."""

    def __init__(self, device: torch.device) -> None:
        self.index = dist.get_rank()
        self.count = dist.get_world_size()
        self._mesh = init_device_mesh(device.type, (self.count,))

    def shard(self, module: nn.Module) -> None:
        """Split the weights layer by layer, so that no process ever holds all of them during a pass."""
        from torch.distributed.fsdp import fully_shard

        layers = {*getattr(module, "_no_split_modules", ()), PointerHead.__name__}  # called on its own
        for part in list(module.modules()):
            if type(part).__name__ in layers:
                fully_shard(part, mesh=self._mesh)
        fully_shard(module, mesh=self._mesh)

    def own_passes(self, passes: Sequence[T]) -> Iterator[tuple[T, bool]]:
        for first in range(0, len(passes), self.count):
            place = first + self.index
            yield passes[min(place, len(passes) - 1)], place < len(passes)

    def gather(self, mine: Sequence[T], count: int) -> list[T]:
        # exchanged as Python objects: the results are only a few numbers per token
        made: list[Sequence[T]] = [[] for _ in range(self.count)]
        dist.all_gather_object(made, list(mine))
        return [made[place % self.count][place // self.count] for place in range(count)]

    def sum(self, figures: Mapping[str, float]) -> dict[str, float]:
        gathered: list[Any] = [None] * self.count
        dist.all_gather_object(gathered, dict(figures))
        names = dict.fromkeys(name for one in gathered for name in one)
        return {name: sum(one.get(name, 0.0) for one in gathered) for name in names}

    def full_norm(self, value: Tensor) -> float:
        return float(value.full_tensor())  # type: ignore[attr-defined]  # clipping returns a split tensor

    def full_weights(self, module: nn.Module) -> dict[str, Tensor]:
        """Return all weights in main memory on rank 0; empty on the others."""
        from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        whole: dict[str, Any] = get_model_state_dict(module, options=options)
        return whole

    def write_optimizer(self, module: nn.Module, optimizer: torch.optim.Optimizer, folder: Path) -> None:
        write_parts(module, optimizer, folder)

    def _read_single_file(self, module: nn.Module, optimizer: torch.optim.Optimizer, file: Path) -> None:
        """Read the state that a single process wrote, and split it among all ranks.

        The file numbers the trained weights in order. Split states name them instead.
        """
        from torch.distributed.checkpoint.state_dict import (
            StateDictOptions,
            get_optimizer_state_dict,
            set_optimizer_state_dict,
        )

        names = [name for name, weight in module.named_parameters() if weight.requires_grad]
        written = torch.load(file, map_location="cpu", weights_only=True)["state"]
        here: dict[str, Any] = get_optimizer_state_dict(module, optimizer)
        state = {**here, "state": {names[number]: moments for number, moments in written.items()}}
        set_optimizer_state_dict(module, optimizer, state, options=StateDictOptions(full_state_dict=True))


def write_parts(module: nn.Module, optimizer: torch.optim.Optimizer, folder: Path) -> None:
    """Write each process's part of the optimizer's state, by weight names (torch.distributed.checkpoint)."""
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict
    from torch.distributed.checkpoint.state_dict_saver import save

    state = {"optimizer": get_optimizer_state_dict(module, optimizer)}
    with _maybe_alone() as is_alone:
        save(state, checkpoint_id=folder / SHARDS_FOLDER, no_dist=is_alone)


def read_parts(module: nn.Module, optimizer: torch.optim.Optimizer, folder: Path) -> None:
    """Read this process's part of the state that `write_parts` wrote with any number of processes.

    The optimizer's settings, such as the learning rate, are not read: some depend on the number of processes.
    """
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict
    from torch.distributed.checkpoint.state_dict_loader import load

    here: dict[str, Any] = get_optimizer_state_dict(module, optimizer)
    wanted: dict[str, Any] = {"optimizer": {"state": here["state"]}}
    with _maybe_alone() as is_alone:
        load(wanted, checkpoint_id=folder / SHARDS_FOLDER, no_dist=is_alone)
    set_optimizer_state_dict(module, optimizer, {**here, **wanted["optimizer"]})


@contextmanager
def _maybe_alone() -> Iterator[bool]:
    """Yield whether there is no process group. In the block, torch.distributed does not warn about that."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")
        yield not dist.is_initialized()
