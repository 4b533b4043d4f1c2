"""The Thespian actor around an actor: it owns the process, the actor owns the behaviour.

Thespian runs a failing handler a second time on a copy of its message and lets
the actor live on. Here an uncaught error is written down as last words and ends
the process, with a code that its supervisor understands.
"""

import contextlib
import faulthandler
import importlib
import io
import os
import resource
import select
import signal
import sys
import time
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgpack
from thespian.actors import Actor as ThespianActor
from thespian.actors import ThespianWatch, WatchMessage

from actors import log
from actors.actor import Actor
from actors.board import LAUNCHER, Board
from actors.clock import SystemClock
from actors.errors import ActorError, ChildNotStarted, WorkOverdue
from actors.last_words import (
    crash_file,
    crash_report,
    flush_standard_streams,
    remove_old_crashes,
    say_on_console,
)
from actors.mail import Mail
from actors.process import EXIT_CRASHED, EXIT_OVERDUE, can_open, drop_parents_descriptors, start_ticks
from actors.runtime import Identity, identity_of
from actors.thespian_base import Boot, close_transport, newborn, send_log_records_to
from actors.timerfd import Alarm
from actors.transport import listen

SPARE_DESCRIPTORS = 16
"""Descriptors that a supervisor keeps free: without one it could not watch or stop a child."""

DESCRIPTORS_PER_CHILD = 3
"""The descriptors for each child: its pidfd, and a connection in each direction."""

OWN_DESCRIPTORS = 48
"""Descriptors that a supervisor needs for itself, for its mailbox for example."""


class ChildProcess:
    """A forked actor process as its supervisor holds it. Only the pidfd decides whether it has ended."""

    def __init__(self, process: Any) -> None:
        self._process = process
        self.pid: int = process.pid
        self.pidfd = os.pidfd_open(self.pid)
        process._popen.finalizer()  # closes two pipes to the child that the pidfd replaces

    def returncode(self) -> int | None:
        """The exit code, or minus the signal; None while it runs."""
        code: int | None = self._process.exitcode
        return code

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)

    def close(self) -> None:
        os.close(self.pidfd)


class ThespianHost(ThespianActor):  # type: ignore[misc]  # Thespian is untyped
    """Receives everything that Thespian delivers, and runs one actor after `Boot`."""

    def __init__(self) -> None:
        super().__init__()
        self._actor: Actor | None = None
        self._identity: Identity | None = None
        self._watched: dict[int, Callable[[], None]] = {}
        self._epoll = select.epoll()
        self._alarm = Alarm()
        self.watch(self._alarm.fd, self._alarm.acknowledge)
        _hosts.add(self)

    def receiveMessage(self, message: Any, sender: Any) -> ThespianWatch:
        try:
            self._receive(message)
        except BaseException as error:
            self._crash(error)
        return ThespianWatch([self._epoll.fileno()])

    # ---- Runtime ----

    def watch(self, fd: int, ready: Callable[[], None]) -> None:
        self._epoll.register(fd, select.EPOLLIN)
        self._watched[fd] = ready

    def unwatch(self, fd: int) -> None:
        """Stop watching `fd`; call this before closing it.

        A forked child may still have the same file open, and epoll would then report it for ever.
        """
        if self._watched.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def wake_at(self, monotonic_s: float) -> None:
        self._alarm.set_no_later_than(monotonic_s)

    def spawn(self, boot: Mapping[str, Any]) -> ChildProcess:
        children = len(getattr(self._myRef, "_child_procs", ()))
        wanted = OWN_DESCRIPTORS + DESCRIPTORS_PER_CHILD * (children + 1)
        has_room = wanted <= resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if not has_room or not can_open(SPARE_DESCRIPTORS, self._epoll.fileno()):
            raise ChildNotStarted(
                f"its supervisor has {children} children and may open too few files for one more; "
                "raise ulimit -n, or put children below a supervisor of their own"
            )
        with listen(Path(boot["mail_dir"]), boot["slot"], boot["incarnation"]) as inbox:
            # The child inherits the inbox, so mail arrives before it has run a line.
            plain = _packed({**boot, "inbox_fd": inbox.fileno()})
            with newborn(plain, _run_newborn):
                return self._fork(boot["name"])

    def _fork(self, name: str) -> ChildProcess:
        address = self.createActor(ThespianHost)
        # Thespian keeps a failed fork to itself; the last process would then be an older child's.
        started = getattr(self._myRef, "_child_procs", [])[-1:]
        if not started or started[0].childAddr != address:
            raise ChildNotStarted(f"no process could be forked for {name!r}; see ulimit -u and free memory")
        try:
            return ChildProcess(started[0].childProc)
        except OSError:
            started[0].childProc.kill()  # it runs, and cannot be watched
            raise

    def pidfd(self, pid: int) -> int:
        return os.pidfd_open(pid)

    def exit(self, code: int) -> None:
        if self._actor is not None:
            self._actor.board.note_own_exit(self._actor.identity.slot, code)
        flush_standard_streams()
        os._exit(code)

    def abandon(self) -> None:
        """Close what a forked child has inherited of its parent's loop."""
        self._alarm.close()
        self._epoll.close()
        _hosts.discard(self)

    # ---- inside ----

    def _receive(self, message: Any) -> None:
        if isinstance(message, Boot) and self._actor is None:
            boot = msgpack.unpackb(message.plain)
            self._identity = identity_of(boot)
            _prepare(self._identity)
            self.boot(boot, self._identity)
            self._serve(0.0)
        elif isinstance(message, WatchMessage):
            self._serve(0.0)
        if self._actor is not None and not self._actor.forks:
            close_transport(self._myRef.transport)
            self.serve_for_ever()

    def serve_for_ever(self) -> None:
        """The loop of an actor without children: it needs nothing of Thespian any more. Never returns."""
        assert self._actor is not None
        beat_s = self._actor.identity.beat_s
        try:
            while True:
                self._serve(beat_s)
        except BaseException as error:
            self._crash(error)

    def _serve(self, timeout_s: float) -> None:
        """Run one turn when there is something to do, or write a beat after `timeout_s` without."""
        assert self._actor is not None
        events = self._epoll.poll(timeout_s)
        if not events and timeout_s:
            self._actor.beat()
            return
        for fd, _ in events:
            ready = self._watched.get(fd)  # the call before may have unwatched it
            if ready is not None:
                ready()
        self._actor.turn()

    def boot(self, boot: Mapping[str, Any], identity: Identity) -> None:
        """Make the actor that the boot map names, and start it."""
        try:
            self._boot(boot, identity)
        except BaseException as error:
            self._crash(error)

    def _boot(self, boot: Mapping[str, Any], identity: Identity) -> None:
        self._identity = identity
        board = Board(identity.run_dir / "board")
        mail = Mail(board, identity.mail_dir, (identity.run_dir / "key").read_bytes())
        inbox_fd = mail.bind(identity.slot, identity.incarnation, boot.get("inbox_fd"))
        if (
            identity.parent == LAUNCHER
        ):  # which forked it by way of Thespian and learns its pid from the board
            board.set(identity.slot, pid_start_ticks=start_ticks(os.getpid()), pid=os.getpid())
        board.set(identity.slot, beat_ns=time.monotonic_ns())
        board.clear_gauges(identity.slot)
        wanted = actor_class(boot["actor"])
        actor = wanted(identity, boot["args"], board=board, mail=mail, clock=SystemClock(), runtime=self)
        if wanted.forks:
            actor.every(identity.beat_s, actor.beat)
        self._actor = actor
        if not wanted.forks and identity.parent != LAUNCHER:
            self._hear_sigterm(actor)
        actor.boot(inbox_fd)

    def _hear_sigterm(self, actor: Actor) -> None:
        """Have the actor announce a preemption at a SIGTERM, in a turn of its own."""
        fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

        def announce() -> None:
            os.eventfd_read(fd)
            actor.announce_preemption()

        self.watch(fd, announce)
        signal.signal(signal.SIGTERM, lambda *_: os.eventfd_write(fd, 1))

    def _crash(self, error: BaseException) -> None:
        text = crash_report(error)
        self.abandon()  # there may be no other descriptor left to write with
        if self._identity is not None:
            leave_last_words(self._identity, text)
            if self._actor is not None:
                self._actor.log.error("actor_crashed", traceback=text)
            has_no_supervisor = self._identity.parent == LAUNCHER
            if self._identity.prints_reports and has_no_supervisor:
                say_on_console(f"[{self._identity.name}] crashed:\n{text}")
        if isinstance(error, WorkOverdue):
            self.exit(EXIT_OVERDUE)
        flush_standard_streams()
        os._exit(EXIT_CRASHED)


def leave_last_words(identity: Identity, text: str) -> None:
    """Write down why this incarnation ends; its supervisor reads the last line."""
    plain = text.encode(errors="backslashreplace")  # an error may quote half a letter
    with contextlib.suppress(OSError):  # on a full disk the process ends all the same
        crash_file(identity.run_dir, identity.name, identity.incarnation, "txt").write_bytes(plain)
    with contextlib.suppress(OSError):  # an actor that failed before it opened the board says so all the same
        board = Board(identity.run_dir / "board")
        board.set(identity.slot, last_error=plain.decode().strip().rpartition("\n")[2])
        board.close()


def actor_class(path: str) -> type[Actor]:
    """Import the class that `module:Class` names. Raises TypeError when it is no Actor."""
    global _being_imported
    module_name, _, class_name = path.partition(":")
    _being_imported = module_name
    try:
        found = getattr(importlib.import_module(module_name), class_name)
    finally:
        _being_imported = ""
    if not (isinstance(found, type) and issubclass(found, Actor)):
        raise TypeError(f"{path!r} names no actor: {found!r} is no subclass of actors.Actor")
    return found


_being_imported = ""
"""The module that this process imports for the class of its actor; empty otherwise."""


def refuse_system_in_import() -> None:
    """Raise ActorError while this process imports the module of its actor, which would start it again."""
    if _being_imported:
        raise ActorError(
            f"the module {_being_imported!r} starts a system while a new actor imports it; "
            'start the system below `if __name__ == "__main__":`'
        )


def _packed(boot: Mapping[str, Any]) -> bytes:
    try:
        return bytes(msgpack.packb(boot))
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise ChildNotStarted(f"the args of {boot['name']!r} cannot be packed: {error}") from error


def _run_newborn(plain: bytes) -> None:
    """Run an actor in the process just forked, until it ends; a supervisor returns, to Thespian's loop."""
    boot = msgpack.unpackb(plain)
    identity = identity_of(boot)
    try:
        _prepare(identity)
        wanted = actor_class(boot["actor"])
        if wanted.prints_to_stderr:
            os.dup2(2, 1)
    except BaseException as error:
        leave_last_words(identity, crash_report(error))
        flush_standard_streams()
        os._exit(EXIT_CRASHED)
    if not wanted.forks:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        log.take_over_logging()
        drop_parents_descriptors(except_fd=boot["inbox_fd"])
        host = ThespianHost()
        host.boot(boot, identity)
        host.serve_for_ever()


def _prepare(identity: Identity) -> None:
    """Have logs and crashes written to the run's files, and printed text flushed after each line."""
    _default_signals()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    log.log_to(identity.run_dir / "logs" / f"{identity.name}.jsonl")
    send_log_records_to(log.library_records)
    with contextlib.suppress(OSError):  # a full disk is no reason not to start
        remove_old_crashes(identity.run_dir, identity.name, identity.incarnation)
        fault = crash_file(identity.run_dir, identity.name, identity.incarnation, "fault")
        faulthandler.enable(fault.open("w"))


def _default_signals() -> None:
    """Undo Thespian's handlers, so that signals end the process. Ctrl-C is left to the launcher."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}:
        if signal.getsignal(number) not in (signal.SIG_DFL, signal.SIG_IGN, None):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)


_hosts: "weakref.WeakSet[ThespianHost]" = weakref.WeakSet()
"""The hosts of this process; a forked child finds those of its parent."""


def _abandon_parents_hosts() -> None:
    for host in list(_hosts):
        host.abandon()


os.register_at_fork(after_in_child=_abandon_parents_hosts)
