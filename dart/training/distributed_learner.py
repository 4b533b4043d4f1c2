"""A learner whose work is done by several processes, under torchrun (`dart.training.rank_main`).

To the trainer actor it is a learner like any other (`dart.training.learner_factory.AnyLearner`). When a rank
dies, or cannot be started, torchrun ends the others, and whatever the trainer asks next, or is waiting for,
raises RankDied: the actor ends with it, its supervisor starts it again, and the ranks go on from the newest
committed checkpoint. No rank outlives the actor: the kernel ends torchrun with it, and a rank with torchrun.
"""

import importlib
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Any

from dart.config.config import Config
from dart.core.types import Group

KEY_VARIABLE = "DARTRL_RANKS_KEY"
"""Environment variable with the secret by which rank 0 knows the trainer."""

LOOK_S = 0.2
LAST_WORDS = 2_000
"""Characters of the ranks' log that a message quotes."""

Command = tuple[str, tuple[Any, ...]]


class RankDied(RuntimeError):
    """A rank ended, and with it all of them."""

    def __init__(self, code: int, log: Path) -> None:
        words = log.read_text(errors="replace")[-LAST_WORDS:] if log.exists() else ""
        super().__init__(
            f"a rank of the trainer ended (torchrun: {code}); the log {log} ends with:\n{words}\n"
            "training goes on from the newest committed checkpoint"
        )


@dataclass(frozen=True, slots=True)
class Made:
    """What a command made, and the version that is there now."""

    result: Any
    version: int


@dataclass(frozen=True, slots=True)
class Failed:
    """An error in parts: those of `dart.training.batch_errors` have arguments of their own."""

    module: str
    name: str
    args: tuple[Any, ...]
    facts: Mapping[str, Any]

    @classmethod
    def of(cls, error: BaseException) -> "Failed":
        """The parts of an error."""
        kind = type(error)
        return cls(kind.__module__, kind.__qualname__, error.args, dict(vars(error)))

    def error(self) -> BaseException:
        """The error of these parts."""
        kind: type[BaseException] = getattr(importlib.import_module(self.module), self.name)
        made = kind.__new__(kind, *self.args)
        vars(made).update(self.facts)
        return made


class DistributedLearner:
    """The learner of `training.ranks` processes. One thread calls it."""

    def __init__(self, config: Config, resume: Path | None, log: Path) -> None:
        """Returns when every rank has the policy. Raises RankDied.

        log   what the ranks say is added to this file
        """
        self._log = log
        self._folder = tempfile.TemporaryDirectory(prefix="dartrl-ranks-")
        socket = Path(self._folder.name) / "trainer"
        settings = Path(self._folder.name) / "config.json"
        settings.write_text(config.model_dump_json())
        key = secrets.token_hex(32)
        going_on = ["--resume", str(resume)] if resume is not None else []
        with log.open("ab") as file:
            self._torchrun = subprocess.Popen(
                [*_torchrun(config.training.ranks), str(settings), str(socket), *going_on],
                stdout=file,
                stderr=file,
                stdin=subprocess.DEVNULL,
                env={**os.environ, KEY_VARIABLE: key},
            )
        self._line = self._connected(socket, bytes.fromhex(key))
        self.version = 0
        self._answered()
        self._folder.cleanup()  # read, and connected: who is killed later leaves nothing behind

    def update(self, groups: Sequence[Group], blobs_dir: Path) -> Any:
        """See `dart.training.learner.Learner.update`. Raises RankDied, too."""
        return self._ask(("update", (groups, blobs_dir)))

    def save(self, parent: Path, progress: Mapping[str, Any] | None = None) -> Path:
        """See `dart.training.learner.Learner.save`. Raises RankDied, too."""
        folder: Path = self._ask(("save", (parent, progress)))
        return folder

    def close(self) -> None:
        """End the ranks."""
        self._line.close()
        self._torchrun.terminate()
        self._torchrun.wait()

    def _ask(self, command: Command) -> Any:
        try:
            self._line.send(command)
        except OSError as gone:
            raise self._died() from gone
        return self._answered()

    def _answered(self) -> Any:
        while not self._line.poll(LOOK_S):
            if self._torchrun.poll() is not None:
                raise self._died()
        try:
            answer = self._line.recv()
        except (EOFError, OSError) as gone:
            raise self._died() from gone
        if isinstance(answer, Failed):
            raise answer.error()
        self.version = answer.version
        return answer.result

    def _connected(self, socket: Path, key: bytes) -> "Connection[Any, Any]":
        """The limit of the wait is the supervisor's (`supervision.trainer.start_deadline_s`)."""
        while True:
            try:
                return Client(str(socket), authkey=key)
            except (FileNotFoundError, ConnectionRefusedError):
                if self._torchrun.poll() is not None:
                    raise self._died() from None
                time.sleep(LOOK_S)

    def _died(self) -> RankDied:
        self._folder.cleanup()
        return RankDied(self._torchrun.wait(), self._log)


def _torchrun(ranks: int) -> list[str]:
    """torchrun by this interpreter, ended by the kernel along with this process; it starts no rank anew."""
    tied = ["setpriv", "--pdeathsig", "KILL", "--"]
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nnodes=1", "--max-restarts=0"]
    return [*tied, *run, f"--nproc-per-node={ranks}", "-m", "dart.training.rank_main"]
