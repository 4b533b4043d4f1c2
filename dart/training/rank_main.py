"""One rank of a distributed learner: a process that `distributed_learner` starts through torchrun.

Rank 0 receives commands from the trainer, broadcasts them to all ranks and sends the results back. In each
rank, a second thread writes the rank's part of a checkpoint from a copy while the rank computes the next
update. These threads have a connection and a process group of their own. A rank that fails ends; torchrun
then ends the others, and the trainer notices.
"""

import argparse
import os
import threading
import traceback
from dataclasses import replace
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from typing import Any

import torch.distributed as dist

from actors.process import die_with_parent
from dart.config.config import Config
from dart.policy.configuration import SMALL_POLICY
from dart.policy.load import model_type
from dart.policy.placement import DTYPES
from dart.store.checkpoints import Checkpoint, CheckpointState, read_state
from dart.training.batch_errors import SHARED_BY_RANKS
from dart.training.checkpoint_copy import CheckpointCopy
from dart.training.distributed import IDLE, ProcessGroup, join_ranks
from dart.training.distributed_learner import (
    KEY_VARIABLE,
    MEETING,
    PARENT_VARIABLE,
    Command,
    CommandFailure,
)
from dart.training.learner import Learner
from dart.training.learner_factory import learner_config
from dart.training.rank_checkpoints import write_together


class Rank:
    """This rank: its learner and its connection to the other ranks."""

    def __init__(self, config: Config, resume: Path | None, meeting: Path) -> None:
        """Load the policy and split it among the ranks.

        meeting  file by which the ranks find each other
        resume   checkpoint to resume from. The trainer has verified its files (`learner_at`). A rank does not
                 hash them again: each rank would read every file, with the moments of all other ranks.
        """
        device = join_ranks(config.training.device, meeting)
        self._command_group = dist.new_group(backend="gloo", timeout=IDLE)
        self.index = dist.get_rank()
        if model_type(config.training.policy) == SMALL_POLICY:
            raise SystemExit(
                f"training.ranks = {dist.get_world_size()} needs a vision-language policy, but "
                f"{config.training.policy} holds the small policy ({SMALL_POLICY}); set training.ranks = 1, "
                "or name a vision-language checkpoint in training.policy"
            )
        settings = learner_config(config)
        ranks = ProcessGroup(device, compute=DTYPES[settings.placement.precision])
        self._ranks = ranks
        self.learner = Learner(
            config.training.policy,
            replace(settings, placement=replace(settings.placement, device=str(device))),
            resume=None if resume is None else Checkpoint(folder=resume, state=read_state(resume)),
            ranks=ranks,
        )
        self._copied: tuple[CheckpointState, CheckpointCopy] | None = None
        """The copy of the version that is written next; None before the first copy."""

    def broadcast(self, value: Any = None) -> Any:
        """Send rank 0's value to all ranks; returns it on every rank."""
        values = [value]
        dist.broadcast_object_list(values, src=0, group=self._command_group)
        return values[0]

    def execute(self, command: Command) -> Any:
        """Execute a command, `copy` or `update`, together with the other ranks."""
        what, arguments = command
        return self._copy() if what == "copy" else self.learner.update(*arguments)

    def _copy(self) -> None:
        """Copy this rank's part of the current version, and wait until all ranks have copied theirs."""
        self._copied = self.learner.state(), self.learner.copy_files()
        dist.barrier(group=self._command_group)

    def write_checkpoints(self, trainer: "Connection[Any, Any] | None") -> None:
        """Write the copied version whenever the trainer sends a folder, until the trainer disconnects.

        trainer   connection to the trainer; None on all ranks but rank 0
        """
        while (parent := self._ranks.announced(_received(trainer))) is not None:
            assert self._copied is not None, "a version is copied before it is written"
            try:
                result: Any = write_together(self._ranks, parent, *self._copied)
            except SHARED_BY_RANKS as error:
                result = CommandFailure.of(error)
            if trainer is not None:
                trainer.send(result)


def serve(rank: Rank, trainer: "Connection[Any, Any] | None") -> None:
    """Execute the trainer's commands until the trainer disconnects.

    trainer   connection to the trainer on rank 0, for commands and results; None on the other ranks
    """
    while (command := rank.broadcast(_received(trainer))) is not None:
        try:
            result = rank.execute(command)
        except SHARED_BY_RANKS as error:
            result = CommandFailure.of(error)
        if trainer is not None:
            trainer.send(result)


def _received(trainer: "Connection[Any, Any] | None") -> Any:
    """Return what the trainer sends next; None if the trainer has disconnected, or on ranks other than 0."""
    try:
        return None if trainer is None else trainer.recv()
    except EOFError:
        return None


def main() -> None:
    """Run this rank until the trainer disconnects."""
    die_with_parent(int(os.environ[PARENT_VARIABLE]))
    parser = argparse.ArgumentParser(description="One rank of a trainer. The trainer starts it.")
    parser.add_argument("config", type=Path, help="the run's configuration as JSON")
    parser.add_argument("socket", type=Path, help="path of the socket at which rank 0 waits for the trainer")
    parser.add_argument("--resume", type=Path, default=None, help="verified checkpoint to resume from")
    options = parser.parse_args()
    config = Config.model_validate_json(options.config.read_text())
    rank = Rank(config, options.resume, options.socket.with_name(MEETING))
    trainer = to_write = None
    if rank.index == 0:
        with Listener(str(options.socket), authkey=bytes.fromhex(os.environ[KEY_VARIABLE])) as listener:
            trainer, to_write = listener.accept(), listener.accept()
        trainer.send(rank.learner.version)
    threading.excepthook = _end_this_rank
    writer = threading.Thread(target=rank.write_checkpoints, args=(to_write,), daemon=True)
    writer.start()
    serve(rank, trainer)
    writer.join()
    dist.destroy_process_group()


def _end_this_rank(failure: threading.ExceptHookArgs) -> None:
    """End the process when its writing thread fails, so that torchrun ends the others."""
    traceback.print_exception(failure.exc_value)
    os._exit(1)


if __name__ == "__main__":
    main()
