"""That a process ended, the kernel says (its pidfd); why, its supervisor says on the board a moment later.

Nobody polls for life. The board is looked at while a process is being forked, after it ended until its
supervisor wrote the reason (`REASON_DEADLINE_S` at most), and for actors of another host, whose processes are
not here.
"""

import itertools
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from actors.board import LIVING, Board
from actors.process import start_ticks

LOOK_S = 0.02
"""How often the board is looked at while its supervisor forks a process or finds out why one ended."""

ELSEWHERE_LOOK_S = 0.25
"""How often the board is looked at for an actor of another host."""

REASON_DEADLINE_S = 1.0
"""A supervisor that needs longer than this to say why its child ended is itself in trouble."""


class ExitWatch(Protocol):
    """What watching needs of an actor's runtime."""

    def pidfd(self, pid: int) -> int: ...

    def watch(self, fd: int, ready: Callable[[], None]) -> None: ...

    def unwatch(self, fd: int) -> None: ...


@dataclass(slots=True)
class _Watch:
    slot: int
    incarnation: int
    ended: Callable[[str], None]
    grace_s: float | None
    fd: int = -1
    looks_left: int = 0
    """After the process ended: how often the board is still looked at for the reason."""


class ExitWatcher:
    """Calls back once, with the reason, when an incarnation of an actor ended. On the actor's own thread.

    after   the actor's timers: `after(seconds, callback)`
    """

    def __init__(
        self, board: Board, runtime: ExitWatch, after: Callable[[float, Callable[[], None]], None]
    ) -> None:
        self._board = board
        self._runtime = runtime
        self._after = after
        self._refs = itertools.count(1)
        self._watches: dict[int, _Watch] = {}

    def watch(
        self, slot: int, incarnation: int, ended: Callable[[str], None], *, grace_s: float | None = None
    ) -> int:
        """Returns the reference to forget it by. `ended` is called in a turn of the actor, never from here.

        grace_s   call back this long after the end, with the reason if it is known by then; None: wait for it
        """
        ref = next(self._refs)
        self._watches[ref] = _Watch(slot, incarnation, ended, grace_s)
        self._look(ref)
        return ref

    def forget(self, ref: int) -> None:
        """Never call back; one that is already forgotten, or has called back, is no error."""
        watch = self._watches.pop(ref, None)
        if watch is not None:
            self._close(watch)

    def close(self) -> None:
        """Let go of every descriptor."""
        for ref in list(self._watches):
            self.forget(ref)

    # ---- inside ----

    def _look(self, ref: int) -> None:
        """Without a descriptor yet: open one, look again, or see that it is over."""
        watch = self._watches.get(ref)
        if watch is None:
            return
        if not self._lives(watch):
            self._gone(ref)
            return
        pid = self._board.get(watch.slot, "pid")
        is_elsewhere = bool(self._board.get(watch.slot, "route"))
        if pid == 0 or is_elsewhere:
            self._after(ELSEWHERE_LOOK_S if is_elsewhere else LOOK_S, lambda: self._look(ref))
            return
        try:
            is_open = self._open(ref, watch, pid)
        except OSError:  # no descriptor is to be had now: until there is one, the board says who lives
            self._after(ELSEWHERE_LOOK_S, lambda: self._look(ref))
            return
        if not is_open:
            self._gone(ref)

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
        """In the loop, between turns: what follows may crash the actor and belongs into a turn."""
        watch = self._watches.get(ref)
        if watch is not None:
            self._close(watch)
            self._gone(ref)

    def _gone(self, ref: int) -> None:
        watch = self._watches[ref]
        watch.looks_left = int(REASON_DEADLINE_S / LOOK_S) if watch.grace_s is None else 0
        self._after(watch.grace_s or 0.0, lambda: self._look_for_reason(ref))

    def _look_for_reason(self, ref: int) -> None:
        watch = self._watches.get(ref)
        if watch is None:
            return
        reason = reason_of(self._board, watch.slot, watch.incarnation)
        if reason is None and watch.looks_left > 0:
            watch.looks_left -= 1
            self._after(LOOK_S, lambda: self._look_for_reason(ref))
            return
        del self._watches[ref]
        watch.ended(reason or "unknown: its supervisor has not said why")

    def _close(self, watch: _Watch) -> None:
        if watch.fd >= 0:
            self._runtime.unwatch(watch.fd)
            os.close(watch.fd)
            watch.fd = -1


def reason_of(board: Board, slot: int, incarnation: int) -> str | None:
    """Why an incarnation ended, as its supervisor says; None as long as it says nothing."""
    if board.get(slot, "ended_incarnation") == incarnation:
        return str(board.get(slot, "ended_reason"))
    if board.get(slot, "incarnation") == incarnation and board.state(slot) in LIVING:
        return None
    return str(board.get(slot, "last_reason")) or "unknown"
