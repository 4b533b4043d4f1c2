"""Copies of the weights and the optimizer's state of one version, from which its checkpoint is written while
the next update is computed.

The weights for engines are written in the engines' precision (`LearnerConfig.published_dtype`). If this
precision is lower than the trainer's, the checkpoint also has the trainer's own weights in the folder
`master/`, which no engine reads, so that training resumes exactly.
"""

import io
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from dart.policy.base import Policy
from dart.policy.protocols import UnsupportedCheckpoint
from dart.policy.written_weights import write_share
from dart.store.checkpoints import MASTER

Weights = Mapping[str, Tensor]
"""Tensors by name, as in a module's `state_dict`."""

WriteOptimizer = Callable[[Path], None]
"""Writes a copy of the optimizer's state, or this rank's part of it, into the folder of a checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointCopy:
    """A copy of one version. `write` may be called in any thread, and again after an error."""

    policy: Policy
    """The policy whose weights were copied. It writes the files, but its current weights are not read."""
    weights: Weights | None
    """The copied weights that this rank writes; None if it writes none."""
    write_optimizer: WriteOptimizer
    dtype: torch.dtype
    """Precision of the weights that engines read."""
    is_adapter: bool
    """Whether only an adapter is trained. The checkpoint has adapters in the trainer's precision anyway."""
    rank: int = 0
    """The rank that writes. All others than rank 0 write only weights and their part of the optimizer."""

    def write(self, folder: Path) -> None:
        """Write the files of this rank into the checkpoint's folder. Raises OSError, also for errors of
        safetensors.

        When all ranks have written, `dart.policy.written_weights.join_shares` completes the checkpoint.
        """
        self.write_optimizer(folder)
        if self.weights is None:
            return
        try:
            if self.rank == 0:
                self.policy.save(folder, self.weights, self.dtype)
            else:
                write_share(self.policy.module, folder, self.rank, self.weights, self.dtype)
            if self._has_master(self.weights):
                write_master(folder / MASTER, self.weights, self.rank)
        except SafetensorError as refused:
            raise _os_error(folder, refused) from refused

    def _has_master(self, weights: Weights) -> bool:
        """Whether the engines' precision is lower than the trainer's; never if the engines read float32."""
        if self.is_adapter or self.dtype is torch.float32:
            return False
        return any(tensor.is_floating_point() and tensor.dtype != self.dtype for tensor in weights.values())


def _os_error(folder: Path, refused: SafetensorError) -> OSError:
    """Return an error of safetensors as an OSError, with the number that its text ends with."""
    number = re.search(r"\(os error (\d+)\)", str(refused))
    return OSError(int(number[1]), str(refused), str(folder)) if number else OSError(f"{folder}: {refused}")


@torch.no_grad()
def copied_weights(module: nn.Module, *, only_trained: bool) -> dict[str, Tensor]:
    """Copy the trained weights of a module to main memory.

    only_trained   leave frozen weights out; if false, the result refers to them, as they never change

    Tensors that share their memory share it in the copy, too, so that a tied weight is written once.
    """
    trained = {weight.data_ptr() for weight in module.parameters() if weight.requires_grad}
    copies: dict[int, Tensor] = {}
    found: dict[str, Tensor] = {}
    for name, tensor in module.state_dict().items():
        key = tensor.data_ptr()
        if key not in trained:
            found |= {} if only_trained else {name: tensor.detach()}
            continue
        if key not in copies:
            copies[key] = tensor.detach().to("cpu", copy=True)
        found[name] = copies[key]
    return found


def copied_optimizer(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Copy the state of an optimizer to main memory."""
    copied: dict[str, Any] = copy_tensors(optimizer.state_dict())
    return copied


def copy_tensors(state: Any) -> Any:
    """Copy nested dictionaries, lists and tuples, with the tensors in them copied to main memory."""
    if isinstance(state, Tensor):
        return state.detach().to("cpu", copy=True)
    if isinstance(state, dict):
        return {key: copy_tensors(value) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return type(state)(copy_tensors(value) for value in state)
    return state


def write_state(state: Mapping[str, Any], file: Path) -> None:
    """Write an optimizer's state to a file in the format of `torch.save`."""
    content = io.BytesIO()
    torch.save(state, content)  # in memory first: torch turns a full disk into another error
    file.write_bytes(content.getbuffer())


def write_master(folder: Path, weights: Weights, rank: int) -> None:
    """Write the trainer's own weights of a rank; a tensor with several names only under the first.

    folder   the checkpoint's folder `master/`, which all ranks share
    """
    folder.mkdir(exist_ok=True)
    once: dict[int, str] = {}
    for name, tensor in weights.items():
        once.setdefault(tensor.data_ptr(), name)
    file = folder / (f"weights-{rank:05d}.safetensors" if rank else "weights.safetensors")
    save_file({name: weights[name].contiguous() for name in once.values()}, file)


def read_master(folder: Path) -> dict[str, Tensor]:
    """Read the trainer's own weights of all ranks from `master/`; empty if the checkpoint has no such
    folder."""
    found: dict[str, Tensor] = {}
    for file in sorted((folder / MASTER).glob("*.safetensors")):
        with safe_open(file, framework="pt") as opened:
            found |= {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118  # no dictionary
    return found


def refuse_missing_weights(module: nn.Module, master: Weights, folder: Path) -> None:
    """Raise UnsupportedCheckpoint when the trainer's own weights lack a trained weight of the module.

    Training would continue from the value that engines read, which is less precise. Of a weight's several
    names one is enough.

    master   the weights that `read_master` found in the checkpoint `folder`
    """
    names: dict[int, list[str]] = {}
    for name, weight in module.named_parameters(remove_duplicate=False):
        if weight.requires_grad:
            names.setdefault(id(weight), []).append(name)
    missing = [known[0] for known in names.values() if master.keys().isdisjoint(known)]
    if missing:
        raise UnsupportedCheckpoint(
            f"{folder / MASTER} lacks {len(missing)} weights that are trained, such as {min(missing)}: "
            "another version of transformers may name them otherwise; continue with the version that wrote "
            f"them, or start a new run with training.policy = {folder}"
        )
