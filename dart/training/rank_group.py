"""The processes that train one policy together, and the group of a single process. Imports torch.

`dart.training.distributed` has the group of several processes. It imports torch's distributed tensors, so a
single process imports it only to read what several have written.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from dart.training.checkpoint_copy import WriteOptimizer, copied_optimizer, copied_weights, write_state

T = TypeVar("T")

OPTIMIZER_FILE = "optimizer.pt"
"""Name of the file in which a single process writes the optimizer's state."""


class RankGroup:
    """The `count` processes that train one policy together; this process is number `index`.

    This base class is a group of one process, which does all the work.
    """

    index = 0
    count = 1

    def shard(self, module: nn.Module) -> None:
        """Split the weights among all ranks; a single process keeps all of them."""

    def gather(self, mine: Sequence[T], group: Any = None) -> list[T]:
        """Return the items of all ranks in one list, in the order of the ranks.

        group   the torch process group that communicates; None: the default group
        """
        return list(mine)

    def fail_together(self, failed: Exception | None, group: Any = None) -> None:
        """Raise this rank's error, or else the error of the first rank that has one; return if there is none.

        failed   this rank's error; None: this rank has no error
        group    the torch process group that communicates; None: the default group
        """
        if failed is not None:
            raise failed

    def sum(self, figures: Mapping[str, float]) -> dict[str, float]:
        """Return the sums of the figures over all ranks; a name that a rank lacks counts as 0 there."""
        return dict(figures)

    def full_norm(self, value: Tensor) -> float:
        """Return the gradient norm over all ranks; `value` is what torch's clipping returned on this rank."""
        return float(value)

    def copied_weights(
        self, module: nn.Module, *, only_trained: bool, is_shared: bool
    ) -> dict[str, Tensor] | None:
        """Return whole, unsplit copies of the weights that this rank writes; None if it writes none.

        only_trained   leave frozen weights out
        is_shared      whether every rank writes a share of the weights; if false, rank 0 writes all of them
        """
        return copied_weights(module, only_trained=only_trained)

    def read_weights(self, module: nn.Module, weights: dict[str, Tensor]) -> None:
        """Load whole, unsplit weights into a module; of a weight's several names one is enough."""
        module.load_state_dict(weights, strict=False)

    def copied_optimizer(self, module: nn.Module, optimizer: torch.optim.Optimizer) -> WriteOptimizer:
        """Copy the optimizer's state; returns the function that writes it: one file, or one part per rank."""
        state = copied_optimizer(optimizer)
        return lambda folder: write_state(state, folder / OPTIMIZER_FILE)

    def read_optimizer(self, module: nn.Module, optimizer: torch.optim.Optimizer, folder: Path) -> None:
        """Read the optimizer's state from a checkpoint that any number of processes has written.

        The optimizer keeps its own settings, such as the weight decay: the configuration may have changed.
        """
        if (folder / OPTIMIZER_FILE).is_file():
            self._read_single_file(module, optimizer, folder / OPTIMIZER_FILE)
        else:
            from dart.training.distributed import read_parts

            read_parts(module, optimizer, folder)

    def _read_single_file(self, module: nn.Module, optimizer: torch.optim.Optimizer, file: Path) -> None:
        written = torch.load(file, weights_only=True)
        pairs = zip(optimizer.state_dict()["param_groups"], written["param_groups"], strict=True)
        groups = [{**here, "params": there["params"]} for here, there in pairs]
        optimizer.load_state_dict({"state": written["state"], "param_groups": groups})
