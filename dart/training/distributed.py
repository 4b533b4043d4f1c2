"""How a learner's work is shared among processes: alone, or as one of several ranks (FSDP2).

Every rank has the same batch and takes its share of the passes; weights, gradients and the optimizer's
state are split among them (Zhao et al. 2023, arXiv 2304.11277; `torch.distributed.fsdp.fully_shard`). Each
collective needs all ranks, so a rank with less to do repeats its last pass with weight 0. A leaf: torch.
"""

import io
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh

T = TypeVar("T")

OPTIMIZER_FILE = "optimizer.pt"
SHARDS_FOLDER = "optimizer"


class RankGroup(Protocol):
    """The processes that train one policy together; `count` of them, this one is `index`."""

    index: int
    count: int

    def shard(self, module: nn.Module) -> None:
        """Split the weights among all."""
        ...

    def mine(self, passes: Sequence[T]) -> Iterator[tuple[T, bool]]:
        """The passes this rank makes, as many as every other; False: only for the others' sake."""
        ...

    def all_of(self, mine: Sequence[T], count: int) -> list[T]:
        """What all ranks made of `count` passes, in their order; `mine` is this rank's, with the repeated."""
        ...

    def added(self, figures: Mapping[str, float]) -> dict[str, float]:
        """The sums over all ranks."""
        ...

    def norm(self, value: Tensor) -> float:
        """Of all gradients, from what clipping says."""
        ...

    def weights(self, module: nn.Module) -> dict[str, Tensor] | None:
        """All of them, whole, where a checkpoint is written; None where the module has them as they are."""
        ...

    def write_optimizer(self, module: nn.Module, optimizer: torch.optim.Optimizer, folder: Path) -> None:
        """Its state, into the checkpoint's folder."""
        ...

    def read_optimizer(self, module: nn.Module, optimizer: torch.optim.Optimizer, folder: Path) -> None:
        """What `write_optimizer` wrote, of however many processes."""
        ...


class SingleProcess:
    """One process does everything."""

    index = 0
    count = 1

    def shard(self, module: nn.Module) -> None:
        """There is nobody to split them with."""

    def mine(self, passes: Sequence[T]) -> Iterator[tuple[T, bool]]:
        """All of them."""
        return ((one, True) for one in passes)

    def all_of(self, mine: Sequence[T], count: int) -> list[T]:
        """They are all there."""
        return list(mine)

    def added(self, figures: Mapping[str, float]) -> dict[str, float]:
        """They are complete."""
        return dict(figures)

    def norm(self, value: Tensor) -> float:
        """It is whole."""
        return float(value)

    def weights(self, module: nn.Module) -> None:
        """The module has them."""

    def write_optimizer(self, module: nn.Module, optimizer: torch.optim.Optimizer, folder: Path) -> None:
        """One file."""
        state = io.BytesIO()
        torch.save(optimizer.state_dict(), state)
        (folder / OPTIMIZER_FILE).write_bytes(state.getbuffer())

    def read_optimizer(self, module: nn.Module, optimizer: torch.optim.Optimizer, folder: Path) -> None:
        """One file, or the parts of ranks."""
        if (folder / OPTIMIZER_FILE).is_file():
            optimizer.load_state_dict(torch.load(folder / OPTIMIZER_FILE, weights_only=True))
        else:
            read_parts(module, optimizer, folder)


class ProcessGroup:
    """One rank of a process group that was initialised."""

    def __init__(self, device: torch.device) -> None:
        self.index = dist.get_rank()
        self.count = dist.get_world_size()
        self._mesh = init_device_mesh(device.type, (self.count,))

    def shard(self, module: nn.Module) -> None:
        """Layer by layer, so that the whole is nowhere at any time."""
        from torch.distributed.fsdp import fully_shard

        layers = set(getattr(module, "_no_split_modules", ()))
        for part in list(module.modules()):
            if type(part).__name__ in layers:
                fully_shard(part, mesh=self._mesh)
        fully_shard(module, mesh=self._mesh)

    def mine(self, passes: Sequence[T]) -> Iterator[tuple[T, bool]]:
        """Every `count`-th."""
        for first in range(0, len(passes), self.count):
            place = first + self.index
            yield passes[min(place, len(passes) - 1)], place < len(passes)

    def all_of(self, mine: Sequence[T], count: int) -> list[T]:
        """Exchanged as objects: they are a few numbers for each token."""
        made: list[Sequence[T]] = [[] for _ in range(self.count)]
        dist.all_gather_object(made, list(mine))
        return [made[place % self.count][place // self.count] for place in range(count)]

    def added(self, figures: Mapping[str, float]) -> dict[str, float]:
        """Names may be missing where a rank had nothing to count."""
        everybody: list[Any] = [None] * self.count
        dist.all_gather_object(everybody, dict(figures))
        names = dict.fromkeys(name for one in everybody for name in one)
        return {name: sum(one.get(name, 0.0) for one in everybody) for name in names}

    def norm(self, value: Tensor) -> float:
        """Each rank knows its part only."""
        return float(value.full_tensor())  # type: ignore[attr-defined]

    def weights(self, module: nn.Module) -> dict[str, Tensor]:
        """In main memory; empty but on rank 0."""
        from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        whole: dict[str, Any] = get_model_state_dict(module, options=options)
        return whole

    def write_optimizer(self, module: nn.Module, optimizer: torch.optim.Optimizer, folder: Path) -> None:
        """Each rank its part: a run may go on with another number of them, or with one process."""
        write_parts(module, optimizer, folder)

    def read_optimizer(self, module: nn.Module, optimizer: torch.optim.Optimizer, folder: Path) -> None:
        """Each rank its part, of parts or of one process's file."""
        if (folder / OPTIMIZER_FILE).is_file():
            _share_out(module, optimizer, folder)
        else:
            read_parts(module, optimizer, folder)


def write_parts(module: nn.Module, optimizer: torch.optim.Optimizer, folder: Path) -> None:
    """What each process holds of the optimizer's state, by the names of the weights (DCP)."""
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict
    from torch.distributed.checkpoint.state_dict_saver import save

    state = {"optimizer": get_optimizer_state_dict(module, optimizer)}
    with _maybe_alone() as is_alone:
        save(state, checkpoint_id=folder / SHARDS_FOLDER, no_dist=is_alone)


def read_parts(module: nn.Module, optimizer: torch.optim.Optimizer, folder: Path) -> None:
    """What `write_parts` wrote, of however many processes: to each what it holds. Settings stay those of
    `optimizer`: which of them fit depends on how many hold the weights."""
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict
    from torch.distributed.checkpoint.state_dict_loader import load

    here: dict[str, Any] = get_optimizer_state_dict(module, optimizer)
    wanted: dict[str, Any] = {"optimizer": {"state": here["state"]}}
    with _maybe_alone() as is_alone:
        load(wanted, checkpoint_id=folder / SHARDS_FOLDER, no_dist=is_alone)
    set_optimizer_state_dict(module, optimizer, {**here, **wanted["optimizer"]})


@contextmanager
def _maybe_alone() -> Iterator[bool]:
    """Whether there is no process group; DCP warns of that also when it was told."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")
        yield not dist.is_initialized()


def _share_out(module: nn.Module, optimizer: torch.optim.Optimizer, folder: Path) -> None:
    """What one process wrote, among all ranks. It numbers the trained weights in their order; here they
    have names."""
    from torch.distributed.checkpoint.state_dict import (
        StateDictOptions,
        get_optimizer_state_dict,
        set_optimizer_state_dict,
    )

    names = [name for name, weight in module.named_parameters() if weight.requires_grad]
    written = torch.load(folder / OPTIMIZER_FILE, map_location="cpu", weights_only=True)["state"]
    here: dict[str, Any] = get_optimizer_state_dict(module, optimizer)
    state = {**here, "state": {names[number]: moments for number, moments in written.items()}}
    set_optimizer_state_dict(module, optimizer, state, options=StateDictOptions(full_state_dict=True))
