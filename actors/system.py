"""Starting and ending an actor system, from the launcher's side.

The launcher is an ordinary process (a command line, a test). It starts
Thespian's admin, has it create one root actor, and talks to it by mail. When
the launcher dies, by any signal, the kernel kills the admin, the root and every
process below (invariant no-orphans).
"""

import contextlib
import os
import shutil
import signal
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgpack
import structlog

from actors import orphans, thespian_base
from actors.board import LAUNCHER, LIVING, MAX_SLOTS, SLOTS, ActorState, Board, Vitals
from actors.client import TELL_DEADLINE_S, Client, name_in_use, random_incarnation
from actors.codec import Envelope, MessageKind
from actors.errors import ActorDied, ActorError, MailboxFull, NotReady, SystemStartFailed
from actors.last_words import last_words
from actors.lateness import Lateness
from actors.mail import Mail
from actors.process import fill_standard_streams, has_ended, kill_process
from actors.system_messages import Stop
from actors.thespian_host import ThespianHost, refuse_system_in_import

ADMIN_EXIT_DEADLINE_S = 5.0

LONGEST_MAIL_DIR_BYTES = 107 - len(f"/{MAX_SLOTS}.{2**63}")
"""Longest path of a `mail_dir`: it leaves room for the name of a socket in a path of at most 107 bytes."""

_start_alone = threading.RLock()
"""Held while a system starts, because Thespian's key and port are settings of the whole process.

A process that is forked meanwhile has a copy of the lock. That copy belongs to its only thread.
"""

_NOT_OVER = LIVING | {ActorState.BACKOFF, ActorState.QUARANTINED}


READY_DEADLINE_S = 30.0
READY_CHECK_S = 0.005
MISSING_SHOWN = 10
"""How many of the actors that are not ready an error names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RootSpec:
    """The one actor that the launcher starts; all others are below it."""

    name: str
    actor: str
    args: Mapping[str, Any]


class ActorSystem:
    """A running tree. Use as a context manager: leaving it ends every process of the tree.

    The tree dies with the thread that made this object, even if its process lives on: the kernel's
    PR_SET_PDEATHSIG follows the thread that forked. Make it in a thread that outlives the tree.

    run_dir           directory for the board, the key, logs and crash files; only one system may use it
    mail_dir          directory for the sockets of the mailboxes; a path of at most LONGEST_MAIL_DIR_BYTES
    start_deadline_s  seconds within which the root's own process must start
    prints_reports    whether supervisors also print to the standard error why a child ended
    rows              rows of the board: the largest number of actors, those of other hosts included

    Both directories may be relative; they are resolved here. Only one thread may call `tell` and `ask`: the
    first that calls one of them. Raises SystemStartFailed when the directory is in use, the path of
    `mail_dir` is too long, or the root does not start.
    """

    def __init__(
        self,
        run_dir: Path,
        mail_dir: Path,
        root: RootSpec,
        *,
        start_deadline_s: float = 60.0,
        prints_reports: bool = True,
        rows: int = SLOTS,
    ) -> None:
        refuse_system_in_import()
        fill_standard_streams()
        run_dir, mail_dir = run_dir.absolute(), mail_dir.absolute()
        _refuse_long(mail_dir)
        self.run_dir = run_dir
        self.root = root
        self._prints_reports = prints_reports
        for folder in (run_dir, mail_dir):
            _make_private(folder)
        self._processes_file = run_dir / "processes.json"
        orphans.refuse_if_in_use(self._processes_file)
        self.reaped = orphans.reap(self._processes_file, run_dir / "board")
        """Processes of an earlier system in this directory; they were killed."""
        for orphan in self.reaped:
            with contextlib.suppress(TypeError):  # structlog cannot print to a closed standard output
                structlog.get_logger().warning("orphan_killed", name=orphan.name, pid=orphan.pid)
        # The launcher keeps this socket open until the admin listens, so that the kernel gives the port to no
        # other process.
        self._held_port = _hold_free_port()
        _set_aside_crashes(run_dir)
        for name in ("logs", "crash"):
            (run_dir / name).mkdir(mode=0o700, exist_ok=True)
        # A new key for each start: recorded frames of an earlier system are refused.
        key = thespian_base.new_key(run_dir / "key")
        self._admin_pid_file = run_dir / "admin.pid"
        self._admin_pid_file.unlink(missing_ok=True)
        self.board = Board.create(run_dir / "board", rows)
        self._mail = Mail(self.board, mail_dir, key)
        self._incarnation = random_incarnation()
        self._mail_dir = mail_dir
        self._key = key
        self._client: Client | None = None
        self._clients = threading.Lock()
        self._thread = 0
        """The thread that may `tell` and `ask`; 0 before the first use."""
        self._is_killed = False
        self._failure = ""
        self._slot = self.board.claim(root.name, LAUNCHER)
        self.board.set_state(self._slot, ActorState.STARTING, incarnation=1, started_unix_s=time.time())
        self._pidfd = -1
        self._admin_pidfd = -1
        self._lateness = Lateness()
        self._thespian: Any = None
        try:
            with _start_alone:
                thespian_base.install(key, self._admin_pid_file, self._held_port)
                self._start(mail_dir, start_deadline_s)
        except BaseException:
            self.kill()
            raise

    def __enter__(self) -> "ActorSystem":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def tell(self, to: str, content: Any) -> bool:
        """Send a message into the tree; False when its receiver does not live, or the system has ended.

        It arrives before what this launcher sends to the same actor afterwards. Raises ActorError in another
        thread than the one that used `tell` or `ask` first.
        """
        self._check_thread("tell")
        return self._send(self._mail, self._incarnation, to, content)

    def ask(self, to: str, content: Any, deadline_s: float | None = None) -> Any:
        """Ask an actor of the tree and wait for its answer, at most `deadline_s` (see `Actor.ask`).

        The launcher gets an inbox and a row on the board with its first ask. Raises ActorDied (also when the
        system has ended), AskTimeout, Refused or MailboxFull, and ActorError in another thread than the one
        that used `tell` or `ask` first.
        """
        self._check_thread("ask")
        if self._is_killed:
            raise ActorDied(f"{to!r} cannot be asked: {self._why_over()}")
        if self._client is None:
            # Asks and tells share one mail, so that they arrive in the order they were sent.
            self._client = Client(
                self.board, self._mail_dir, self._key, mail=self._mail, incarnation=self._incarnation
            )
        return self._client.ask(to, content, deadline_s=deadline_s)

    def client(self, name: str) -> Client:
        """Make a client for the calling thread, which tells and asks under `name`. Close it in that thread.

        Raises ActorError when the name is in use or the board is full, and ActorDied after the end.
        """
        if self._is_killed:
            raise ActorDied(f"client {name!r} cannot be made: {self._why_over()}")
        with self._clients:
            slot = self.board.find(name)
            if name == LAUNCHER or (slot is not None and self.board.state(slot) is not ActorState.FREE):
                raise name_in_use(name)
            return Client(self.board, self._mail_dir, self._key, name=name)

    def stop(self) -> None:
        """Ask the tree to end by itself, children first. Returns at once; see `wait`. For any thread."""
        if self._thread in (0, threading.get_ident()):
            self._send(self._mail, self._incarnation, self.root.name, Stop())
            return
        mail = Mail(self.board, self._mail_dir, self._key)
        self._send(mail, random_incarnation(), self.root.name, Stop())
        mail.close()

    def wait(self, timeout_s: float) -> bool:
        """Wait at most `timeout_s` for the root's process to end; True once it has, with all processes
        below.
        """
        began_s = time.monotonic()
        is_over = self._pidfd < 0 or has_ended(self._pidfd, timeout_s)
        self._lateness.note(began_s, began_s + timeout_s, time.monotonic())
        if is_over and not self._is_killed:
            self._mark_ended()
        return is_over

    def vitals(self, name: str) -> Vitals:
        """An actor's row of the board now. Raises ActorDied when no actor ever had the name."""
        slot = self.board.find(name)
        if slot is None:
            raise ActorDied(f"no actor ever had the name {name!r}")
        return self.board.vitals(slot)

    def await_ready(self, *names: str, incarnation: int = 1, deadline_s: float = READY_DEADLINE_S) -> None:
        """Wait until these actors are ready, in this incarnation or a later one.

        Raises ActorDied when the system ended meanwhile, NotReady naming those who are missing.
        """
        give_up_s = time.monotonic() + deadline_s
        while missing := [name for name in names if not self._is_ready(name, incarnation)]:
            if self.wait(READY_CHECK_S):
                raise ActorDied(f"the system ended while {missing[:MISSING_SHOWN]} started: {self.verdict()}")
            if time.monotonic() > give_up_s:
                states = {name: self._state(name) for name in missing[:MISSING_SHOWN]}
                others = f" and {more} more" if (more := len(missing) - len(states)) else ""
                raise NotReady(f"not ready within {deadline_s:g} s: {states}{others}")

    def root_beat_age_s(self) -> float:
        """Seconds since the root's last beat. No supervisor watches the root, so its launcher must.

        If this process woke late from `wait`, it was suspended, and the root probably with it: the seconds
        that it lost so are not counted.
        """
        age_s = self.board.vitals(self._slot).beat_age_s or 0.0
        return self._lateness.counted_s(age_s, time.monotonic())

    def verdict(self) -> str:
        """Why the root ended, as the board says; empty when it ended normally."""
        return str(self.board.get(self._slot, "last_reason")) or last_words(self.run_dir, self.root.name, 1)

    def failure(self) -> str:
        """Why the system failed.

        Empty while it runs, when it was asked to stop or killed by its launcher, and when its work is done.
        """
        if self._is_killed or not self.wait(0.0):
            return self._failure
        if self.board.own_exit(self._slot) == 0:
            return ""
        return self.verdict() or f"the root actor {self.root.name!r} was killed"

    def kill(self) -> None:
        """Kill every process of the tree now: this call kills the admin, and the kernel all below it.

        The board can still be read; nothing else of the system can be used any more.
        """
        if self._is_killed:
            return
        self._failure = self.failure() if self._pidfd >= 0 else ""
        self._is_killed = True
        self._kill_admin()
        self._admin_pid_file.unlink(missing_ok=True)
        if self._pidfd >= 0:
            has_ended(self._pidfd, ADMIN_EXIT_DEADLINE_S)
            os.close(self._pidfd)
            self._pidfd = -1
        self._close_thespian()
        if self._client is not None:
            self._client.close()
            self._client = None
        self._mark_ended()
        self._mail.close()
        self._processes_file.unlink(missing_ok=True)
        self.board.detach()

    def _send(self, mail: Mail, incarnation: int, to: str, content: Any) -> bool:
        if self._is_killed:
            return False
        envelope = Envelope(
            kind=MessageKind.TELL,
            id=0,
            to=to,
            to_incarnation=0,
            sender=LAUNCHER,
            sender_incarnation=incarnation,
            deadline_unix_ms=0,
            message=content,
        )
        try:
            mail.send(envelope)
            mail.flush(TELL_DEADLINE_S)
        except (ActorDied, MailboxFull):
            return False
        return True

    def _check_thread(self, what: str) -> None:
        thread = threading.get_ident()
        self._thread = self._thread or thread
        if thread != self._thread:
            raise ActorError(
                f"ActorSystem.{what} belongs to the thread that first used tell or ask; "
                "give every other thread a client of its own: ActorSystem.client(name)"
            )

    def _why_over(self) -> str:
        return f"the system has ended ({self.verdict() or 'it was stopped'})"

    def _kill_admin(self) -> None:
        """Kill the admin by its pidfd, which does not depend on the directory or the file with its pid."""
        fd, self._admin_pidfd = self._admin_pidfd, -1
        if fd < 0:
            return
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(fd, signal.SIGKILL)
        if has_ended(fd, ADMIN_EXIT_DEADLINE_S):
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PIDFD, fd, os.WEXITED)
        os.close(fd)

    def _open_admin_pidfd(self) -> None:
        with contextlib.suppress(FileNotFoundError, ValueError, ProcessLookupError):
            self._admin_pidfd = os.pidfd_open(int(self._admin_pid_file.read_text()))

    def _is_ready(self, name: str, incarnation: int) -> bool:
        slot = self.board.find(name)
        if slot is None or self.board.state(slot) is not ActorState.RUNNING:
            return False
        return bool(self.board.get(slot, "ready")) and self.board.get(slot, "incarnation") >= incarnation

    def _state(self, name: str) -> str:
        slot = self.board.find(name)
        return "unknown" if slot is None else str(self.board.state(slot))

    def _mark_ended(self) -> None:
        """Mark every row as ended, and kill what outlived the root: no supervisor is left to do it."""
        why = f"the system ended: {self.verdict() or 'it was stopped'}"
        for row in self.board.rows():
            if row.route == 0:
                kill_process(row.pid, row.pid_start_ticks)  # a process may have cleared its death signal
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
        port = int(self._held_port.getsockname()[1])
        try:
            self._thespian = ThespianSystem(
                "multiprocTCPBase",
                capabilities={"Admin Port": port},
                logDefs={"version": 1, "disable_existing_loggers": False},
                transientUnique=True,
            )
        except InvalidActorAddress as error:
            raise SystemStartFailed(
                f"Thespian's admin did not answer on port {port} within "
                f"{thespian_base.ADMIN_DEADLINE.total_seconds():g} s; the machine may be overloaded, so try "
                "again"
            ) from error
        finally:
            self._held_port.close()
            self._open_admin_pidfd()
        address = self._thespian.createActor(ThespianHost)
        boot = {
            "name": self.root.name,
            "parent": LAUNCHER,
            "slot": self._slot,
            "incarnation": 1,
            "actor": self.root.actor,
            "args": dict(self.root.args),
            "run_dir": str(self.run_dir),
            "mail_dir": str(mail_dir),
            "prints_reports": self._prints_reports,
        }
        self._thespian.tell(address, thespian_base.Boot(msgpack.packb(boot)))
        self._await_root(give_up, deadline_s)
        self._close_thespian()

    def _close_thespian(self) -> None:
        """Close Thespian in the launcher: it has started the root and is needed no more."""
        if self._thespian is not None:
            thespian_base.close_transport(self._thespian._systemBase.transport)
            self._thespian = None

    def _await_root(self, give_up: float, deadline_s: float) -> None:
        """Wait until the root's own process is up; its children may still be starting."""
        while not self.board.get(self._slot, "pid"):
            if last_words(self.run_dir, self.root.name, 1):  # it may end before the board has its pid
                raise self._death_at_start()
            if time.monotonic() > give_up:
                raise SystemStartFailed(
                    f"the root actor {self.root.name!r} did not start within {deadline_s} s; "
                    "raise start_deadline_s"
                )
            time.sleep(0.005)
        pid = self.board.get(self._slot, "pid")
        try:
            self._pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            raise self._death_at_start() from None
        admin_pid = int(self._admin_pid_file.read_text())
        orphans.record_processes(self._processes_file, launcher=os.getpid(), admin=admin_pid)
        self.board.set_state(self._slot, ActorState.RUNNING)

    def _death_at_start(self) -> SystemStartFailed:
        words = last_words(self.run_dir, self.root.name, 1)
        return SystemStartFailed(f"the root actor {self.root.name!r} died at start: {words}")


def _refuse_long(mail_dir: Path) -> None:
    """Refuse a path that leaves no room for the name of a socket: no actor could open its mailbox."""
    size_bytes = len(os.fsencode(mail_dir))
    if size_bytes > LONGEST_MAIL_DIR_BYTES:
        raise SystemStartFailed(
            f"mail_dir has a path of {size_bytes} bytes, and sockets there need one of at most "
            f"{LONGEST_MAIL_DIR_BYTES}; name a shorter directory, got {str(mail_dir)!r}"
        )


def _make_private(folder: Path) -> None:
    """Make a folder private to its user: it holds the key, the board, the logs and every inbox."""
    owner = folder.stat().st_uid
    if owner != os.geteuid():
        raise SystemStartFailed(
            f"{folder} belongs to user {owner}; use a folder of the user who starts the run"
        )
    folder.chmod(0o700)


def _set_aside_crashes(run_dir: Path) -> None:
    """Move the crash files of the system before to `crash.earlier`, and remove those of the one before that.

    Incarnations are counted anew by each system: its files would be taken for those of this one.
    """
    earlier = run_dir / "crash.earlier"
    if (run_dir / "crash").exists():
        shutil.rmtree(earlier, ignore_errors=True)
        (run_dir / "crash").rename(earlier)


def _hold_free_port() -> socket.socket:
    """Return a socket that is bound to a free port. Raises SystemStartFailed when there is none.

    A process that asks for any port is not given this one. One that binds it by its number with SO_REUSEADDR,
    as Thespian's admin does, may listen there.
    """
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        held.bind(("127.0.0.1", 0))
    except OSError as error:
        held.close()
        raise SystemStartFailed(f"127.0.0.1 has no free port: {error.strerror}") from error
    return held
