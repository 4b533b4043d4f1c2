"""A learner of several processes under torchrun (`dart.training.rank_main`).

It implements `dart.training.learner_factory.AnyLearner` like every learner. When a rank dies or cannot start,
torchrun ends the others, and the current or the next call raises RankDied. The trainer actor then ends, its
supervisor restarts it, and new ranks resume from the newest committed checkpoint. No rank outlives the actor:
the kernel ends torchrun with the actor, and each rank with torchrun.
"""

import os
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Any

from dart.config.config import Config
from dart.core.module_command import module_command
from dart.core.types import Group
from dart.store.blobs import BlobStore
from dart.store.checkpoints import WriteCheckpoint
from dart.training.update_report import UpdateSummary

KEY_VARIABLE = "DARTRL_RANKS_KEY"
"""Environment variable with the secret that authenticates the trainer to rank 0."""

PARENT_VARIABLE = "DARTRL_RANKS_PARENT"
"""Environment variable with the pid of torchrun, the parent of the ranks."""

PREFIX = "ranks-"
SOCKET = "trainer"
MEETING = "meeting"
"""File by which the ranks find each other, beside the socket."""

ONE_MACHINE = {"GLOO_SOCKET_IFNAME": "lo", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""Environment variables of torchrun and its ranks: gloo listens at the loopback address only, and torchrun
opens no port by which ranks of several machines would find each other."""

POLL_S = 0.2
NEVER_S = 365 * 86_400
LOG_TAIL_CHARACTERS = 2_000
"""How many characters of the ranks' log a message quotes."""

TORCHRUN = "torch/distributed/elastic/multiprocessing/api.py"
"""The module of torchrun that logs the end of a rank, as it stands in the log."""

Command = tuple[str, tuple[Any, ...]]


class RankDied(Exception):
    """A rank ended, and torchrun ended all others.

    It is no RuntimeError: `dart.store.disk_wait` would take a rank's "No space left on device" that the
    message quotes for a full disk and repeat the call, but the ranks do not come back.
    """

    def __init__(self, code: int, log: Path, began_at: int) -> None:
        """
        code       torchrun's exit code
        log        the file with the output of the ranks
        began_at   size of the file when the ranks were started
        """
        written = log.read_bytes()[began_at:].decode(errors="replace") if log.exists() else ""
        super().__init__(
            f"a rank of the trainer ended (torchrun's exit code {code}); the log {log} has at the end:\n"
            f"{_last_words(written)}\ntraining resumes from the newest committed checkpoint"
        )


def _last_words(log: str) -> str:
    """Return the end of what the ranks wrote, and torchrun's line about the rank that failed first.

    The lines that torchrun logs before and after that line are left out: they are longer than a message, and
    say nothing of the cause.
    """
    lines: list[str] = []
    for line in log.splitlines():
        if TORCHRUN in line and "closing signal" in line:
            continue
        lines.append(line)
        if TORCHRUN in line and "failed (exitcode" in line:
            break
    return "\n".join(lines)[-LOG_TAIL_CHARACTERS:]


@dataclass(frozen=True, slots=True)
class CommandFailure:
    """An exception that can be sent between processes: its class, arguments and attributes."""

    kind: type[BaseException]
    args: tuple[Any, ...]
    attributes: Mapping[str, Any]
    cause: "CommandFailure | None" = None
    """The OSError that caused it, if one did: its number says whether the disk is full."""

    @classmethod
    def of(cls, error: BaseException) -> "CommandFailure":
        """Take an exception apart, so that it can be sent."""
        cause = error.__cause__
        sent = cls.of(cause) if isinstance(cause, OSError) else None
        return cls(type(error), error.args, dict(vars(error)), sent)

    def error(self) -> BaseException:
        """Rebuild the exception from its parts."""
        made = self.kind.__new__(self.kind, *self.args)
        vars(made).update(self.attributes)
        made.__cause__ = None if self.cause is None else self.cause.error()
        return made


class DistributedLearner:
    """The learner of `training.ranks` processes.

    Only one thread may call its methods. Another thread may call the function that `copy` returns.
    """

    def __init__(self, config: Config, resume: Path | None, log: Path, mail_dir: Path) -> None:
        """Start the ranks and wait until each has loaded the policy. Raises RankDied.

        log        file to which the output of the ranks is appended
        mail_dir   folder for sockets that only this user can enter, which the run empties at its end
        """
        self._log = log
        for left_over in mail_dir.glob(f"{PREFIX}*"):  # a killed trainer's
            shutil.rmtree(left_over, ignore_errors=True)
        self._folder = folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=mail_dir))
        socket = folder / SOCKET
        settings = folder / "config.json"
        settings.write_text(config.model_dump_json())
        key = secrets.token_hex(32)
        resume_options = ["--resume", str(resume)] if resume is not None else []
        with log.open("ab") as file:
            self._log_began_at = file.tell()
            self._torchrun = subprocess.Popen(
                [*_torchrun(config.training.ranks, folder), str(settings), str(socket), *resume_options],
                stdout=file,
                stderr=file,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **ONE_MACHINE, KEY_VARIABLE: key},
            )
        self._connection = self._connect(socket, bytes.fromhex(key))
        self._to_write = self._connect(socket, bytes.fromhex(key))
        """A second connection to rank 0, for commands to write a checkpoint while an update is computed."""
        self.version: int = self._receive(self._connection)

    def update(self, groups: Sequence[Group], screenshots: BlobStore) -> UpdateSummary:
        """See `dart.training.learner.Learner.update`. Also raises RankDied."""
        report: UpdateSummary = self._ask(self._connection, ("update", (groups, screenshots)))
        self.version = report.version
        return report

    def copy(self) -> WriteCheckpoint:
        """See `dart.training.learner.Learner.copy`. A new copy replaces the previous one.

        This method and the function that it returns also raise RankDied.
        """
        self._ask(self._connection, ("copy", ()))
        return lambda parent: self._ask(self._to_write, parent)

    def close(self) -> None:
        """End the ranks."""
        self._connection.close()
        self._to_write.close()
        self._torchrun.terminate()
        self._torchrun.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _ask(self, connection: "Connection[Any, Any]", command: Command | Path) -> Any:
        try:
            connection.send(command)
        except OSError as gone:
            raise self._died() from gone
        return self._receive(connection)

    def _receive(self, connection: "Connection[Any, Any]") -> Any:
        while not connection.poll(POLL_S):
            if self._torchrun.poll() is not None:
                raise self._died()
        try:
            result = connection.recv()
        except (EOFError, OSError) as gone:
            raise self._died() from gone
        if isinstance(result, CommandFailure):
            raise result.error()
        return result

    def _connect(self, socket: Path, key: bytes) -> "Connection[Any, Any]":
        """Wait until rank 0 listens; the supervisor limits the wait
        (`supervision.trainer.start_deadline_s`)."""
        while True:
            try:
                return Client(str(socket), authkey=key)
            except (FileNotFoundError, ConnectionRefusedError):
                if self._torchrun.poll() is not None:
                    raise self._died() from None
                time.sleep(POLL_S)

    def _died(self) -> RankDied:
        code = self._torchrun.wait()
        shutil.rmtree(self._folder, ignore_errors=True)
        return RankDied(code, self._log, self._log_began_at)


def _torchrun(ranks: int, folder: Path) -> list[str]:
    """Return torchrun's command line. The kernel ends torchrun when this process ends; no rank restarts.

    The shell, which torchrun replaces, says its pid to the ranks. By default torchrun keeps its state behind
    a port that is open to all machines and has no key, and unpickles what it finds there: who reaches the
    port could run any program. So the state is in a file of a folder that only this user can enter.

    folder   a private folder that exists until torchrun has ended
    """
    pid = ["sh", "-c", f'export {PARENT_VARIABLE}=$$; exec "$@"', "sh"]
    tied = ["setpriv", "--pdeathsig", "KILL", "--", *pid]
    run = [*module_command("torch.distributed.run"), "--nnodes=1", "--max-restarts=0"]
    # Each sign of life makes the file longer, and without other machines none is needed.
    conf = f"store_type=file,keep_alive_interval={NEVER_S}"
    state = ["--rdzv-backend=c10d", f"--rdzv-endpoint={folder / 'torchrun'}", f"--rdzv-conf={conf}"]
    here = ["--local-addr=127.0.0.1", f"--nproc-per-node={ranks}"]
    return [*tied, *run, *state, *here, "--no-python", *module_command("dart.training.rank_main")]
