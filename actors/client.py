"""Asking actors from a process that is no actor: the launcher, a test, a console."""

import logging
import os
import secrets
import select
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import structlog

from actors.actor import Actor
from actors.board import LAUNCHER, MAX_PLACED_INCARNATION, ActorState, Board
from actors.clock import SystemClock
from actors.errors import ActorError
from actors.mail import Mail
from actors.runtime import Identity

TELL_DEADLINE_S = 1.0
"""How long a tell waits until a receiver that is being started takes the message."""


def random_incarnation() -> int:
    """Draw the incarnation of a client, above those of all actors.

    It is random, so that an answer to an earlier client of the same name never finds this one.
    """
    return MAX_PLACED_INCARNATION + 1 + secrets.randbits(61)


def name_in_use(name: str) -> ActorError:
    """Return the error of a client whose name another actor or client has."""
    return ActorError(f"the name {name!r} is in use; give each client a name of its own")


class _Loop:
    """The runtime of an actor that has no process of its own: it runs while the caller waits."""

    def __init__(self) -> None:
        self._watched: dict[int, Callable[[], None]] = {}
        self._wake_s = 0.0

    def watch(self, fd: int, ready: Callable[[], None]) -> None:
        self._watched[fd] = ready

    def unwatch(self, fd: int) -> None:
        self._watched.pop(fd, None)

    def wake_at(self, monotonic_s: float) -> None:
        self._wake_s = min(self._wake_s, monotonic_s)

    def pidfd(self, pid: int) -> int:
        return os.pidfd_open(pid)

    def spawn(self, boot: Mapping[str, Any]) -> NoReturn:
        raise ActorError(f"a client cannot start {boot['name']!r}; only supervisors start actors")

    def exit(self, code: int) -> NoReturn:
        raise ActorError("a client has no process of its own to end; call close()")

    def run_once(self, actor: Actor) -> None:
        """Wait until there is something to do, and run one turn of the actor."""
        poll = select.poll()
        for fd in self._watched:
            poll.register(fd, select.POLLIN)
        # A millisecond more than needed: poll takes whole ones, and waking too early would be spinning.
        wait_ms = max(0.0, self._wake_s - time.monotonic()) * 1000 + 1
        ready = poll.poll(None if self._wake_s == float("inf") else wait_ms)
        self._wake_s = float("inf")
        for fd, _ in ready:
            if fd in self._watched:
                self._watched[fd]()
        actor.turn()


class Client:
    """Tells and asks the actors of a running system. Every ask ends, as the asks of actors do.

    board         the system's board, on which the client claims a row named `name`
    mail_dir      the folder of the system's mailboxes
    key           the key that signs the system's mail
    actor         the class that takes the client's mail during `serve`; gets `args` as they are, not packed
    mail          the `Mail` of a sender that used this name and incarnation before; `close` closes it
    incarnation   the client's incarnation; None: a random number

    Use a client only in the thread that made it: other threads get an ActorError. As a context manager it is
    closed at the end of the block.
    """

    def __init__(
        self,
        board: Board,
        mail_dir: Path,
        key: bytes,
        *,
        name: str = LAUNCHER,
        actor: type[Actor] = Actor,
        args: Mapping[str, Any] | None = None,
        mail: Mail | None = None,
        incarnation: int | None = None,
    ) -> None:
        self._board = board
        self._thread = threading.get_ident()
        incarnation = random_incarnation() if incarnation is None else incarnation
        self._slot = board.claim(name, "", incarnation=incarnation, check=self._refuse_taken)
        board.set_state(self._slot, ActorState.RUNNING, incarnation=incarnation)
        self._mail = mail or Mail(board, mail_dir, key)
        self._loop = _Loop()
        identity = Identity(
            name=name,
            parent=LAUNCHER,
            slot=self._slot,
            incarnation=incarnation,
            run_dir=board.path.parent,
            mail_dir=mail_dir,
        )
        self._actor = actor(
            identity, args or {}, board=board, mail=self._mail, clock=SystemClock(), runtime=self._loop
        )
        self._actor.log = _silent_log()
        self._actor.boot(self._mail.bind(self._slot, incarnation))

    def _refuse_taken(self, slot: int) -> None:
        if self._board.state(slot) is not ActorState.FREE:
            raise name_in_use(str(self._board.get(slot, "name")))

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, to: str, content: Any, *, deadline_s: float | None = None) -> Any:
        """Send, wait, and return the answer. Raises ActorDied, AskTimeout, Refused or MailboxFull."""
        self._check_thread()
        asked = self._actor.ask(to, content, deadline_s=deadline_s)
        while not asked.is_done:
            self._loop.run_once(self._actor)
        return asked.result()

    def tell(self, to: str, content: Any) -> bool:
        """Send without waiting for an answer; False when no actor has the name or its mailbox is full."""
        self._check_thread()
        is_sent = self._actor.tell(to, content)
        self._mail.flush(TELL_DEADLINE_S)
        return is_sent

    def serve(self, is_over: Callable[[], bool]) -> None:
        """Run the actor, on its mail and the descriptors it watches, until `is_over()` is true."""
        self._check_thread()
        while not is_over():
            self._loop.run_once(self._actor)

    def close(self) -> None:
        """Close the inbox, and free the row for another client; the launcher keeps its row, as stopped."""
        identity = self._actor.identity
        state = ActorState.STOPPED if identity.name == LAUNCHER else ActorState.FREE
        self._board.note_end(self._slot, max(identity.incarnation, 1), "normal")
        self._board.set_state(self._slot, state, ready=0)
        self._actor.let_go()
        self._mail.close()

    def _check_thread(self) -> None:
        if threading.get_ident() != self._thread:
            raise ActorError(
                "a client belongs to the thread that made it; "
                "give every thread a Client of its own, under its own name"
            )


def _silent_log() -> Any:
    """Return a log that drops every event: the caller learns of errors from what it gets back."""
    silent = structlog.make_filtering_bound_logger(logging.CRITICAL)
    return structlog.wrap_logger(structlog.ReturnLogger(), wrapper_class=silent)
