"""Who ends is told to those who want to know: monitors and links (OTP `erlang:monitor/2`, `link/1`).

Different from OTP: a link passes on neither `normal` nor `shutdown`, because whoever shut the other one down
decides about this one; and what an actor sent before it ended may come after the news of its end, because
mail and news travel on different ways.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from actors.board import LIVING, Board
from actors.codec import message
from actors.errors import LinkedActorEnded
from actors.exit_watch import ExitWatcher

NOPROC = "noproc"
"""OTP's word for: nobody bore the name."""

RETRY_S = 0.25
"""How often an actor whose mailbox is full is told again that it is linked, or is not any more."""

NORMAL = "normal"
SHUTDOWN = "shutdown"


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Down:
    """An actor that was monitored ended."""

    ref: int
    name: str
    incarnation: int
    """0 when nobody bore the name."""
    reason: str
    """`normal`, `shutdown`, `noproc`, or what its supervisor says of it."""


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """An actor this one is linked to ended; only for those that trap exits."""

    name: str
    incarnation: int
    reason: str


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Linked:
    """From an actor to the one it linked itself to: the link holds both ways."""


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Unlinked:
    """From an actor to the one it was linked to."""


def is_abnormal(reason: str) -> bool:
    """Whether a link passes the end on."""
    return reason not in (NORMAL, SHUTDOWN)


class Owner(Protocol):
    """What monitors and links need of the actor they belong to."""

    board: Board
    traps_exits: ClassVar[bool]

    def after(self, seconds: float, callback: Callable[[], Any]) -> None: ...

    def take_news(self, news: Any, name: str, incarnation: int) -> None:
        """Hand a message to the actor as if it had come by mail from that incarnation."""

    def tell(self, to: str, content: Any, *, incarnation: int = 0) -> bool: ...


@dataclass(slots=True)
class _Link:
    name: str
    incarnation: int
    watch: int


class MonitorsAndLinks:
    """The monitors and links of one actor."""

    def __init__(self, owner: Owner, watcher: ExitWatcher) -> None:
        self._owner = owner
        self._watcher = watcher
        self._refs = itertools.count(1)
        self._monitors: dict[int, int] = {}
        """The watch behind each reference; 0 where there was nobody to watch."""
        self._links: dict[tuple[int, int], _Link] = {}
        self._unsaid: dict[tuple[int, int], tuple[str, Linked | Unlinked]] = {}
        """The last word to an actor that it could not be told yet: a link holds both ways or not at all."""

    def monitor(self, name: str) -> int:
        ref = next(self._refs)
        slot, incarnation = self._bearer(name)
        if slot is None:
            self._monitors[ref] = 0
            self._owner.after(0.0, lambda: self._down(ref, name, 0, NOPROC))
        else:
            self._monitors[ref] = self._watcher.watch(
                slot, incarnation, lambda reason: self._down(ref, name, incarnation, reason)
            )
        return ref

    def demonitor(self, ref: int) -> None:
        self._watcher.forget(self._monitors.pop(ref, 0))

    def link(self, name: str) -> None:
        slot, incarnation = self._bearer(name)
        if slot is None:
            self._owner.after(0.0, lambda: self._exit(name, 0, NOPROC))
        elif (slot, incarnation) not in self._links:
            self._tie(slot, name, incarnation)
            self._say(name, slot, incarnation, Linked())

    def unlink(self, name: str) -> None:
        for (slot, incarnation), link in list(self._links.items()):
            if link.name == name:
                self._untie(slot, incarnation)
                self._say(name, slot, incarnation, Unlinked())

    def linked_by(self, name: str, incarnation: int) -> None:
        """Another actor linked itself to this one."""
        slot = self._owner.board.find(name)
        if slot is None:
            self._exit(name, incarnation, NOPROC)
        elif (slot, incarnation) not in self._links:
            self._tie(slot, name, incarnation)

    def unlinked_by(self, name: str, incarnation: int) -> None:
        slot = self._owner.board.find(name)
        if slot is not None:
            self._untie(slot, incarnation)

    # ---- inside ----

    def _say(self, name: str, slot: int, incarnation: int, word: Linked | Unlinked) -> None:
        is_waiting = (slot, incarnation) in self._unsaid
        self._unsaid[slot, incarnation] = (name, word)
        if not is_waiting:
            self._say_now(slot, incarnation)

    def _say_now(self, slot: int, incarnation: int) -> None:
        """Send the last link message; retry until the other actor takes it or has ended."""
        name, word = self._unsaid[slot, incarnation]
        is_said = self._owner.tell(name, word, incarnation=incarnation)
        if is_said or not self._lives(slot, incarnation):
            del self._unsaid[slot, incarnation]
        else:
            self._owner.after(RETRY_S, lambda: self._say_now(slot, incarnation))

    def _lives(self, slot: int, incarnation: int) -> bool:
        board = self._owner.board
        return board.state(slot) in LIVING and board.get(slot, "incarnation") == incarnation

    def _bearer(self, name: str) -> tuple[int | None, int]:
        board = self._owner.board
        slot = board.find(name)
        if slot is None or board.state(slot) not in LIVING:
            return None, 0
        return slot, board.get(slot, "incarnation")

    def _tie(self, slot: int, name: str, incarnation: int) -> None:
        def ended(reason: str) -> None:
            del self._links[slot, incarnation]
            self._exit(name, incarnation, reason)

        self._links[slot, incarnation] = _Link(
            name, incarnation, self._watcher.watch(slot, incarnation, ended)
        )

    def _untie(self, slot: int, incarnation: int) -> None:
        link = self._links.pop((slot, incarnation), None)
        if link is not None:
            self._watcher.forget(link.watch)

    def _down(self, ref: int, name: str, incarnation: int, reason: str) -> None:
        if self._monitors.pop(ref, None) is not None:
            news = Down(ref=ref, name=name, incarnation=incarnation, reason=reason)
            self._owner.take_news(news, name, incarnation)

    def _exit(self, name: str, incarnation: int, reason: str) -> None:
        if self._owner.traps_exits:
            news = Exit(name=name, incarnation=incarnation, reason=reason)
            self._owner.take_news(news, name, incarnation)
        elif is_abnormal(reason):
            raise LinkedActorEnded(
                f"{name!r} (incarnation {incarnation}), linked to this actor, ended: {reason}"
            )
