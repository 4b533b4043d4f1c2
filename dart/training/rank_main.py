"""One rank of a trainer: a process that `distributed_learner` starts by torchrun, never by hand.

All ranks hear the same command at the same time; rank 0 hears it from the trainer and answers it. Whoever
fails ends: torchrun then ends the others, and the trainer notices.
"""

import argparse
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from actors.process import die_with_parent
from dart.config.config import Config
from dart.core.errors import DartError
from dart.policy.load import LAPTOP, model_type
from dart.store.checkpoints import load_checkpoint
from dart.training.batch_errors import REFUSED
from dart.training.distributed import ProcessGroup
from dart.training.distributed_learner import KEY_VARIABLE, Command, Failed, Made
from dart.training.learner import Learner
from dart.training.learner_factory import learner_config

IDLE = timedelta(days=365)
"""A trainer may wait for its next batch for long."""


class Rank:
    """This process, its learner, and the line to the others."""

    def __init__(self, config: Config, resume: Path | None) -> None:
        """Loads the policy and splits it among the ranks."""
        local = int(os.environ["LOCAL_RANK"])
        device = torch.device(f"cuda:{local}" if torch.cuda.is_available() else "cpu")
        if device.type == "cuda":
            torch.cuda.set_device(device)
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
        self._line = dist.new_group(backend="gloo", timeout=IDLE)
        self.index = dist.get_rank()
        if model_type(config.training.policy) == LAPTOP:
            raise SystemExit(f"training.ranks = {dist.get_world_size()} needs a vision-language policy")
        settings = learner_config(config)
        self.learner = Learner(
            config.training.policy,
            replace(settings, holding=replace(settings.holding, device=str(device))),
            resume=None if resume is None else load_checkpoint(resume),
            ranks=ProcessGroup(device),
        )

    def told(self, what: Any = None) -> Any:
        """What rank 0 says to all, itself included."""
        said = [what]
        dist.broadcast_object_list(said, src=0, group=self._line)
        return said[0]

    def carry_out(self, command: Command) -> Any:
        """Together with the others."""
        what, arguments = command
        if what == "save":
            return self._save(*arguments)
        return self.learner.update(*arguments)

    def _save(self, parent: Path, progress: Any) -> Path | None:
        """Rank 0 makes the folder and proves it; the parts are written by all."""
        if self.index > 0:
            folder = self.told()
            if folder is not None:
                self.learner.write_files(folder)
            return None
        is_told = False

        def write(folder: Path) -> None:
            nonlocal is_told
            is_told = True
            self.learner.write_files(self.told(folder))

        try:
            return self.learner.save(parent, progress, write)
        finally:
            if not is_told:
                self.told()


def serve(rank: Rank, receive: Callable[[], Command], answer: Callable[[Any], None]) -> None:
    """One command after the other, until the trainer hangs up."""
    while True:
        command = rank.told(receive())
        if command is None:
            return
        try:
            made = rank.carry_out(command)
        except (*REFUSED, DartError, OSError) as error:
            answer(Failed.of(error))
        else:
            answer(Made(result=made, version=rank.learner.version))


def main() -> None:
    """Take part until told otherwise."""
    die_with_parent()
    parser = argparse.ArgumentParser(description="One rank of a trainer; it is started by the trainer.")
    parser.add_argument("config", type=Path, help="the run's configuration as JSON")
    parser.add_argument("socket", type=Path, help="where rank 0 listens for the trainer")
    parser.add_argument("--resume", type=Path, default=None, help="checkpoint to go on from")
    options = parser.parse_args()
    rank = Rank(Config.model_validate_json(options.config.read_text()), options.resume)
    if rank.index > 0:
        serve(rank, lambda: ("", ()), lambda _: None)
    else:
        with Listener(str(options.socket), authkey=bytes.fromhex(os.environ[KEY_VARIABLE])) as listener:
            trainer = listener.accept()
        serve_trainer(rank, trainer)
    dist.destroy_process_group()


def serve_trainer(rank: Rank, trainer: "Connection[Any, Any]") -> None:
    """Rank 0: what the trainer says; None to all when it is gone."""
    trainer.send(Made(result=None, version=rank.learner.version))

    def receive() -> Any:
        try:
            return trainer.recv()
        except EOFError:
            return None

    serve(rank, receive, trainer.send)


if __name__ == "__main__":
    main()
