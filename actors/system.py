"""Starting and ending an actor system, from the launcher's side.

The launcher is an ordinary process (a command line, a test). It starts
Thespian's admin, has it create one root actor, and talks to it by mail. When
the launcher dies, by whatever signal, the kernel takes the admin, the root and
everything below along (invariant no-orphans).
"""

import contextlib
import errno
import os
import secrets
import select
import signal
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgpack
import structlog

from actors import leftovers, thespian_base
from actors.actor import ASK_DEADLINE_S, Stop
from actors.board import LAUNCHER, LIVING, ActorState, Board, Vitals
from actors.client import TELL_DEADLINE_S, Client
from actors.codec import Envelope, Kind
from actors.errors import ActorDied, MailboxFull, NotReady, SystemStartFailed
from actors.mail import Mail
from actors.process import send_signal
from actors.shell import Shell, last_words

ADMIN_EXIT_DEADLINE_S = 5.0

PORT_DEADLINE_S = 2.0
"""For an earlier system on the port to be gone; killed, it dies in milliseconds."""

_NOT_OVER = LIVING | {ActorState.BACKOFF, ActorState.QUARANTINED}


READY_DEADLINE_S = 30.0
READY_LOOK_S = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class RootSpec:
    """The one actor the launcher starts; everything else is below it."""

    name: str
    actor: str
    args: Mapping[str, Any]


class ActorSystem:
    """A running tree. Use as a context manager: leaving it ends every process of the tree.

    The tree dies with the thread that made this object, also when its process lives on: the kernel's
    PR_SET_PDEATHSIG follows the thread that forked. Make it in a thread that lasts as long as the tree is to.

    run_dir           the board, the key, logs and crash files of this system and no other
    mail_dir          where the sockets of the mailboxes are; a short path
    start_deadline_s  for the root's own process
    port              of Thespian's admin, on 127.0.0.1; None takes a free one
    Raises SystemStartFailed when the directory or the port is in use, or the root does not come up.
    """

    def __init__(
        self,
        run_dir: Path,
        mail_dir: Path,
        root: RootSpec,
        *,
        start_deadline_s: float = 60.0,
        port: int | None = None,
    ) -> None:
        self.run_dir = run_dir
        self.root = root
        for folder in (run_dir, mail_dir):
            _make_private(folder)
        self._processes_file = run_dir / "processes.json"
        leftovers.refuse_if_in_use(self._processes_file)
        self.reaped = leftovers.reap(self._processes_file, run_dir / "board")
        """Processes that an earlier system in this directory left behind; they were killed."""
        for leftover in self.reaped:
            structlog.get_logger().warning("leftover_killed", name=leftover.name, pid=leftover.pid)
        self.port = _usable_port(port)
        for name in ("logs", "crash"):
            (run_dir / name).mkdir(exist_ok=True)
        # Of every start: what was recorded before is nothing now.
        key = thespian_base.new_key(run_dir / "key")
        self._admin_pid_file = run_dir / "admin.pid"
        self._admin_pid_file.unlink(missing_ok=True)
        thespian_base.install(key, self._admin_pid_file)
        self.board = Board.create(run_dir / "board")
        self._mail = Mail(self.board, mail_dir, key)
        self._incarnation = secrets.randbits(62)
        self._mail_dir = mail_dir
        self._key = key
        self._client: Client | None = None
        self._slot = self.board.claim(root.name, LAUNCHER)
        self.board.set_state(self._slot, ActorState.STARTING, incarnation=1, started_unix_s=time.time())
        self._pidfd = -1
        self._thespian: Any = None
        try:
            self._start(mail_dir, start_deadline_s)
        except BaseException:
            self.kill()
            self.board.close()
            raise

    def __enter__(self) -> "ActorSystem":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def tell(self, to: str, content: Any) -> bool:
        """Send a message into the tree; False when its receiver is not there."""
        envelope = Envelope(
            kind=Kind.TELL,
            id=0,
            to=to,
            to_incarnation=0,
            sender=LAUNCHER,
            sender_incarnation=self._incarnation,
            deadline_unix_ms=0,
            message=content,
        )
        try:
            self._mail.send(envelope)
            self._mail.flush(TELL_DEADLINE_S)
        except (ActorDied, MailboxFull):
            return False
        return True

    def ask(self, to: str, content: Any, deadline_s: float = ASK_DEADLINE_S) -> Any:
        """Ask an actor of the tree and wait for its answer, at most `deadline_s`.

        The launcher gets an inbox and a row on the board with its first ask. Only the thread that asked first
        may ask. Raises ActorDied, AskTimeout, Refused or MailboxFull, and ActorError in another thread.
        """
        if self._client is None:
            self._client = Client(self.board, self._mail_dir, self._key)
        return self._client.ask(to, content, deadline_s=deadline_s)

    def stop(self) -> None:
        """Ask the tree to end by itself, children first. Returns at once; see `wait`."""
        self.tell(self.root.name, Stop())

    def wait(self, timeout_s: float) -> bool:
        """True once the root process has ended, and with it all below."""
        has_ended = bool(select.select([self._pidfd], [], [], timeout_s)[0])
        if has_ended:
            self._mark_ended()
        return has_ended

    def vitals(self, name: str) -> Vitals:
        """What the board says of an actor now. Raises ActorDied when nobody ever bore the name."""
        slot = self.board.find(name)
        if slot is None:
            raise ActorDied(f"no actor has ever borne the name {name!r}")
        return self.board.vitals(slot)

    def await_ready(self, *names: str, incarnation: int = 1, deadline_s: float = READY_DEADLINE_S) -> None:
        """Wait until these actors are ready, in this incarnation or a later one.

        Raises ActorDied when the system ended meanwhile, NotReady naming those who are missing.
        """
        give_up_s = time.monotonic() + deadline_s
        while missing := [name for name in names if not self._is_ready(name, incarnation)]:
            if self.wait(READY_LOOK_S):
                raise ActorDied(f"the system ended while {missing} started: {self.verdict()}")
            if time.monotonic() > give_up_s:
                states = {name: self._state(name) for name in missing}
                raise NotReady(f"not ready within {deadline_s:g} s: {states}")

    def root_beat_age_s(self) -> float:
        """Since the root's last sign of life. Nobody in the tree watches the root; its launcher does."""
        return self.board.vitals(self._slot).beat_age_s or 0.0

    def verdict(self) -> str:
        """Why the root ended, as it left it on the board; empty when it ended normally."""
        return str(self.board.get(self._slot, "last_reason")) or last_words(self.run_dir, self.root.name, 1)

    def kill(self) -> None:
        """End every process of the tree now. The kernel cascades the admin's death downwards."""
        with contextlib.suppress(FileNotFoundError, ValueError):
            admin_pid = int(self._admin_pid_file.read_text())
            send_signal(admin_pid, signal.SIGKILL)
            _reap(admin_pid)
        self._admin_pid_file.unlink(missing_ok=True)
        if self._pidfd >= 0:
            self.wait(ADMIN_EXIT_DEADLINE_S)
            os.close(self._pidfd)
            self._pidfd = -1
        self._let_go_of_thespian()
        if self._client is not None:
            self._client.close()
            self._client = None
        self._mark_ended()
        self._mail.close()
        self._processes_file.unlink(missing_ok=True)

    def _is_ready(self, name: str, incarnation: int) -> bool:
        slot = self.board.find(name)
        if slot is None or self.board.state(slot) is not ActorState.RUNNING:
            return False
        return bool(self.board.get(slot, "ready")) and self.board.get(slot, "incarnation") >= incarnation

    def _state(self, name: str) -> str:
        slot = self.board.find(name)
        return "unknown" if slot is None else str(self.board.state(slot))

    def _mark_ended(self) -> None:
        """Nobody below the root is left to say on the board that it ended."""
        why = f"the system ended: {self.verdict() or 'it was told to'}"
        for row in self.board.rows():
            if row.name == LAUNCHER or row.state not in _NOT_OVER:
                continue
            self.board.note_end(row.slot, row.incarnation, why)
            if row.slot == self._slot:
                self.board.set_state(row.slot, ActorState.STOPPED, ready=0)
            else:
                self.board.set_state(row.slot, ActorState.STOPPED, ready=0, last_reason=why)

    def _start(self, mail_dir: Path, deadline_s: float) -> None:
        from thespian.actors import ActorSystem as ThespianSystem
        from thespian.actors import InvalidActorAddress

        give_up = time.monotonic() + deadline_s
        try:
            self._thespian = ThespianSystem(
                "multiprocTCPBase",
                capabilities={"Admin Port": self.port},
                logDefs={"version": 1, "disable_existing_loggers": False},
                transientUnique=True,
            )
        except InvalidActorAddress as error:
            raise SystemStartFailed(
                f"Thespian's admin did not answer on port {self.port} within "
                f"{thespian_base.ADMIN_DEADLINE.total_seconds():g} s; see what else the machine does, "
                "or name another port"
            ) from error
        address = self._thespian.createActor(Shell)
        boot = {
            "name": self.root.name,
            "parent": LAUNCHER,
            "slot": self._slot,
            "incarnation": 1,
            "actor": self.root.actor,
            "args": dict(self.root.args),
            "run_dir": str(self.run_dir),
            "mail_dir": str(mail_dir),
        }
        self._thespian.tell(address, thespian_base.Boot(msgpack.packb(boot)))
        self._await_root(give_up, deadline_s)
        self._let_go_of_thespian()

    def _let_go_of_thespian(self) -> None:
        """It has started the root and is needed no more; the launcher leaves no port open."""
        if self._thespian is not None:
            thespian_base.let_go(self._thespian._systemBase.transport)
            self._thespian = None

    def _await_root(self, give_up: float, deadline_s: float) -> None:
        """Until the root's own process is up; its children may still be starting."""
        while not self.board.get(self._slot, "pid"):
            if time.monotonic() > give_up:
                raise SystemStartFailed(
                    f"the root actor {self.root.name!r} did not start within {deadline_s} s"
                )
            time.sleep(0.005)
        pid = self.board.get(self._slot, "pid")
        try:
            self._pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            words = last_words(self.run_dir, self.root.name, 1)
            raise SystemStartFailed(f"the root actor {self.root.name!r} died at start: {words}") from None
        admin_pid = int(self._admin_pid_file.read_text())
        leftovers.record_processes(self._processes_file, launcher=os.getpid(), admin=admin_pid)
        self.board.set_state(self._slot, ActorState.RUNNING)


def _make_private(folder: Path) -> None:
    """Nobody else may enter: behind this door lie the key, the board, the logs and every inbox."""
    owner = folder.stat().st_uid
    if owner != os.geteuid():
        raise SystemStartFailed(f"{folder} belongs to user {owner}; a run needs folders of its own user")
    folder.chmod(0o700)


def _usable_port(port: int | None) -> int:
    """The port itself when nobody listens there, or any free one for None. Raises SystemStartFailed."""
    give_up = time.monotonic() + PORT_DEADLINE_S
    while True:
        with socket.socket() as probe:
            # As Thespian does: connections of an earlier system that are still fading away are no listener.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port or 0))
                return int(probe.getsockname()[1])
            except OSError as error:
                if time.monotonic() > give_up or error.errno != errno.EADDRINUSE:
                    raise SystemStartFailed(
                        f"port {port} of 127.0.0.1 cannot be used: {error.strerror}; "
                        "end what listens there, or choose another port"
                    ) from error
        time.sleep(0.005)


def _reap(pid: int) -> None:
    give_up = time.monotonic() + ADMIN_EXIT_DEADLINE_S
    while time.monotonic() < give_up:
        try:
            if os.waitpid(pid, os.WNOHANG)[0]:
                return
        except ChildProcessError:
            return
        time.sleep(0.005)
