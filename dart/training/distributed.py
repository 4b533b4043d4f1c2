"""The distribution of a learner's work among several ranks (FSDP2). Imports torch.

Every rank gets the whole batch and runs its own passes of it (`dart.training.passes`); weights, gradients and
the optimizer's state are split among the ranks (Zhao et al. 2023, arXiv 2304.11277;
`torch.distributed.fsdp.fully_shard`).
"""

import math
import os
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.filesystem import FileSystem, FileSystemWriter
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor

from dart.policy.pointer.head import PointerHead
from dart.training.checkpoint_copy import WriteOptimizer, copy_tensors
from dart.training.distributed_learner import CommandFailure
from dart.training.rank_group import RankGroup, T
from dart.training.weight_shares import writers_of

if TYPE_CHECKING:
    from torch.distributed.checkpoint.api import CheckpointException

SHARDS_FOLDER = "optimizer"

IDLE = timedelta(days=365)
"""Timeout of the process groups that broadcast commands: a trainer may wait very long for its next batch."""


class ProcessGroup(RankGroup):
    """The ranks of an initialised process group."""

    def __init__(self, device: torch.device, compute: torch.dtype = torch.float32) -> None:
        """compute   precision in which weights are gathered for a pass

        Each process keeps its part of the weights, and runs the optimizer, in the precision of the module.
        Gradients are summed over the processes in float32.
        """
        self.index = dist.get_rank()
        self.count = dist.get_world_size()
        self._compute = compute
        self._mesh = init_device_mesh(device.type, (self.count,))
        self.writers = dist.new_group(backend="gloo", timeout=IDLE)
        """A second torch process group of all ranks, used only by the threads that write checkpoints."""

    def shard(self, module: nn.Module) -> None:
        """Split the weights layer by layer, so that no process ever holds all of them during a pass."""
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        # Inputs keep their precision: rotary angles in bfloat16 would not be those of the engines.
        precision = MixedPrecisionPolicy(
            param_dtype=self._compute, reduce_dtype=torch.float32, cast_forward_inputs=False
        )
        layers = {*getattr(module, "_no_split_modules", ()), PointerHead.__name__}  # called on its own
        for part in list(module.modules()):
            if type(part).__name__ in layers:
                fully_shard(part, mesh=self._mesh, mp_policy=precision)
        fully_shard(module, mesh=self._mesh, mp_policy=precision)

    def gather(self, mine: Sequence[T], group: Any = None) -> list[T]:
        made: list[Sequence[T]] = [[] for _ in range(self.count)]
        dist.all_gather_object(made, list(mine), group=group)
        return [one for rank in made for one in rank]

    def fail_together(self, failed: Exception | None, group: Any = None) -> None:
        found = self.gather([] if failed is None else [CommandFailure.of(failed)], group)
        if failed is None and found:
            raise found[0].error()
        super().fail_together(failed)

    def sum(self, figures: Mapping[str, float]) -> dict[str, float]:
        gathered: list[Any] = [None] * self.count
        dist.all_gather_object(gathered, dict(figures))
        names = dict.fromkeys(name for one in gathered for name in one)
        return {name: sum(one.get(name, 0.0) for one in gathered) for name in names}

    def full_norm(self, value: Tensor) -> float:
        return float(value.full_tensor())  # type: ignore[attr-defined]  # clipping returns a split tensor

    @torch.no_grad()
    def copied_weights(
        self, module: nn.Module, *, only_trained: bool, is_shared: bool
    ) -> dict[str, Tensor] | None:
        held: dict[str, Tensor] = module.state_dict(keep_vars=True)  # ties are seen by identity
        if only_trained:
            held = {name: weight for name, weight in held.items() if weight.requires_grad}
        names = Counter(id(weight) for weight in held.values())
        tied = [name for name, weight in held.items() if names[id(weight)] > 1]
        sizes = {name: weight.numel() * weight.element_size() for name, weight in held.items()}
        writers = writers_of(sizes, self.count if is_shared else 1, tied)
        copies: dict[int, Tensor] = {}
        for name, weight in held.items():  # in the same order on all ranks
            if id(weight) not in copies:
                copies[id(weight)] = self._copied_at(writers[name], weight)
        return {n: copies[id(weight)] for n, weight in held.items() if writers[n] == self.index} or None

    def _copied_at(self, writer: int, weight: Tensor) -> Tensor:
        """Return a copy of a whole weight in main memory on the rank `writer`, an empty tensor on others."""
        is_writer = self.index == writer
        if not isinstance(weight, DTensor):
            return weight.detach().to("cpu", copy=True) if is_writer else torch.empty(0)
        mine: Tensor = weight.to_local().detach()
        rows = math.ceil(weight.shape[0] / self.count)  # the last ranks may hold fewer rows, or none
        padded = torch.cat([mine, mine.new_zeros(rows - len(mine), *mine.shape[1:])])
        if not is_writer:
            dist.gather(padded, dst=writer)
            return torch.empty(0)
        whole = mine.new_empty(self.count * rows, *mine.shape[1:])
        dist.gather(padded, list(torch.chunk(whole, self.count)), dst=writer)
        return whole[: weight.shape[0]].cpu()

    def read_weights(self, module: nn.Module, weights: dict[str, Tensor]) -> None:
        from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

        held: dict[str, Any] = dict(weights)
        set_model_state_dict(module, held, options=StateDictOptions(full_state_dict=True, strict=False))

    def announced(self, value: Any = None) -> Any:
        """Return rank 0's value on every rank. The threads that write checkpoints call this method."""
        values = [value]
        dist.broadcast_object_list(values, src=0, group=self.writers)
        return values[0]

    def copied_optimizer(self, module: nn.Module, optimizer: torch.optim.Optimizer) -> WriteOptimizer:
        state = copied_parts(module, optimizer)
        return lambda folder: write_parts(state, folder, self.writers)

    def _read_single_file(self, module: nn.Module, optimizer: torch.optim.Optimizer, file: Path) -> None:
        """Read the state that a single process wrote, and split it among all ranks.

        The file identifies trained weights by their numbers, in order; a split state identifies them by name.
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


def join_ranks(wanted: str, meeting: Path | None = None) -> torch.device:
    """Join the process group of the ranks that torchrun has started; returns this rank's device.

    wanted    name of a torch device; every name but `cpu` is the rank's own GPU where there are GPUs
    meeting   file by which the ranks find each other, which exists as long as they do; None: torchrun's port
    """
    if wanted == "cpu" or not torch.cuda.is_available():
        _join("gloo", meeting)
        return torch.device("cpu")
    device = torch.device(f"cuda:{os.environ['LOCAL_RANK']}")
    torch.cuda.set_device(device)
    _join("nccl", meeting)
    return device


def _join(backend: str, meeting: Path | None) -> None:
    if meeting is None:
        dist.init_process_group(backend)
        return
    rank, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = dist.FileStore(str(meeting), count)  # type: ignore[attr-defined]  # it is exported
    dist.init_process_group(backend, store=store, rank=rank, world_size=count)


def copied_parts(module: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Copy this process's part of the optimizer's state, by weight names, to main memory."""
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

    parts: dict[str, Any] = copy_tensors(get_optimizer_state_dict(module, optimizer))
    return parts


def write_parts(state: Mapping[str, Any], folder: Path, group: Any = None) -> None:
    """Write each process's part of the optimizer's state (torch.distributed.checkpoint).

    group   processes that write together; None: all

    Raises OSError on all of them when one of them could not write.
    """
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.state_dict_saver import save

    writer = FileSystemWriter(folder / SHARDS_FOLDER)
    writer.fs = _Files()
    try:
        with _maybe_alone() as is_alone:
            save(
                {"optimizer": dict(state)},
                storage_writer=writer,
                no_dist=is_alone,
                process_group=group,
            )
    except CheckpointException as failed:  # no Exception, and it holds those of all processes
        raise _first_os_error(failed) from None


class _Files(FileSystem):
    """Files of torch's checkpoints, which raise the OSError of a write that failed.

    torch's own raise a RuntimeError of the format in its place, wherever the disk gets full within a tensor.
    """

    @contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Iterator[Any]:
        with super().create_stream(path, mode) as stream:
            try:
                yield stream
            except RuntimeError as error:
                if isinstance(error.__context__, OSError):
                    raise error.__context__ from None
                raise


def _first_os_error(failed: "CheckpointException") -> BaseException:
    """Return the error of the first process that could not write, or `failed` if none has an OSError."""
    for rank, (error, _) in sorted(failed.failures.items()):
        if isinstance(error, OSError):
            return OSError(error.errno, error.strerror, f"optimizer of rank {rank}")
    return failed


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
    """Yield True if torch.distributed has no process group; silence its warning about that in the block."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")
        yield not dist.is_initialized()
