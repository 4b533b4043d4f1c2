"""Watches for the ends of actors. The kernel reports that a process ended; its supervisor reports why.

The kernel makes the pidfd of an ended process readable; the supervisor writes the reason to the board a
moment later. The board is read again and again in three cases only: while a process is being forked; between
the end of a process and its reason, for at most `REASON_DEADLINE_S`; and for actors of another host, whose
processes have no pidfd here.
"""

import itertools
import os
from collections.abc import Callable
from dataclasses import dataclass

from actors.board import LIVING, Board
from actors.process import start_ticks
from actors.runtime import Runtime

CHECK_S = 0.02
"""How often the board is read while a supervisor forks a process or finds out why one ended."""

REMOTE_CHECK_S = 0.25
"""How often the board is read for an actor of another host."""

REASON_DEADLINE_S = 1.0
"""How long a watch waits for the reason. A supervisor that needs longer does not work any more."""


@dataclass(slots=True)
class _Watch:
    slot: int
    incarnation: int
    ended: Callable[[str], None]
    grace_s: float | None
    fd: int = -1
    checks_left: int = 0
    """How many more times the board is read for the reason, once the process has ended."""


class ExitWatcher:
    """Calls back once, on the actor's own thread, with the reason why an incarnation ended.

    after   the actor's timers: `after(seconds, callback)`
    """

    def __init__(
        self, board: Board, runtime: Runtime, after: Callable[[float, Callable[[], None]], None]
    ) -> None:
        self._board = board
        self._runtime = runtime
        self._after = after
        self._refs = itertools.count(1)
        self._watches: dict[int, _Watch] = {}

    def watch(
        self, slot: int, incarnation: int, ended: Callable[[str], None], *, grace_s: float | None = None
    ) -> int:
        """Begin a watch; return the reference for `forget`. `ended` is called in a later turn of the actor.

        grace_s   seconds after the end at which `ended` is called, even if the reason is not known by then;
                  None: wait for the reason, for at most REASON_DEADLINE_S
        """
        ref = next(self._refs)
        self._watches[ref] = _Watch(slot, incarnation, ended, grace_s)
        self._check(ref)
        return ref

    def forget(self, ref: int) -> None:
        """End a watch without a call; a watch that has ended already is no error."""
        watch = self._watches.pop(ref, None)
        if watch is not None:
            self._close(watch)

    def close(self) -> None:
        """Close every descriptor."""
        for ref in list(self._watches):
            self.forget(ref)

    # ---- inside ----

    def _check(self, ref: int) -> None:
        """Open a descriptor of the process, or try again later, or report that the process has ended."""
        watch = self._watches.get(ref)
        if watch is None:
            return
        if not self._lives(watch):
            self._process_gone(ref)
            return
        pid = self._board.get(watch.slot, "pid")
        is_remote = bool(self._board.get(watch.slot, "route"))
        if pid == 0 or is_remote:
            self._after(REMOTE_CHECK_S if is_remote else CHECK_S, lambda: self._check(ref))
            return
        try:
            is_open = self._open(ref, watch, pid)
        except OSError:  # out of descriptors: until one is free, the board says who lives
            self._after(REMOTE_CHECK_S, lambda: self._check(ref))
            return
        if not is_open:
            self._process_gone(ref)

    def _lives(self, watch: _Watch) -> bool:
        is_same = self._board.get(watch.slot, "incarnation") == watch.incarnation
        return is_same and self._board.state(watch.slot) in LIVING

    def _open(self, ref: int, watch: _Watch, pid: int) -> bool:
        try:
            fd = self._runtime.pidfd(pid)
        except ProcessLookupError:
            return False
        ticks = self._board.get(watch.slot, "pid_start_ticks")
        try:
            is_other = bool(ticks) and start_ticks(pid) != ticks
        except OSError:
            os.close(fd)
            raise
        if is_other:
            os.close(fd)  # the number belongs to another process by now
            return False
        watch.fd = fd
        self._runtime.watch(fd, lambda: self._ended(ref))
        return True

    def _ended(self, ref: int) -> None:
        """Have the callback called in the actor's next turn, because it may crash the actor."""
        watch = self._watches.get(ref)
        if watch is not None:
            self._close(watch)
            self._process_gone(ref)

    def _process_gone(self, ref: int) -> None:
        watch = self._watches[ref]
        watch.checks_left = int(REASON_DEADLINE_S / CHECK_S) if watch.grace_s is None else 0
        self._after(watch.grace_s or 0.0, lambda: self._check_reason(ref))

    def _check_reason(self, ref: int) -> None:
        watch = self._watches.get(ref)
        if watch is None:
            return
        reason = reason_of(self._board, watch.slot, watch.incarnation)
        if reason is None and watch.checks_left > 0:
            watch.checks_left -= 1
            self._after(CHECK_S, lambda: self._check_reason(ref))
            return
        del self._watches[ref]
        watch.ended(reason or "unknown: its supervisor wrote no reason")

    def _close(self, watch: _Watch) -> None:
        if watch.fd >= 0:
            self._runtime.unwatch(watch.fd)
            os.close(watch.fd)
            watch.fd = -1


def reason_of(board: Board, slot: int, incarnation: int) -> str | None:
    """Why an incarnation ended, as its supervisor wrote; None until it has written."""
    if board.get(slot, "ended_incarnation") == incarnation:
        return str(board.get(slot, "ended_reason"))
    if board.get(slot, "incarnation") == incarnation and board.state(slot) in LIVING:
        return None
    return str(board.get(slot, "last_reason")) or "unknown"
