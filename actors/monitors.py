"""Monitors and links: an actor learns that another one ended (OTP `erlang:monitor/2`, `link/1`).

Two differences from OTP. A link passes on neither `normal` nor `shutdown`: the supervisor that shut the other
actor down decides which actors end with it. And mail that an actor sent before it ended may arrive after the
news of its end, because mail and news take different ways.
"""

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from actors.board import LIVING
from actors.codec import message
from actors.errors import LinkedActorEnded
from actors.exit_watch import ExitWatcher

if TYPE_CHECKING:
    from actors.actor import Actor

NOPROC = "noproc"
"""OTP's reason when no actor has the name."""

RETRY_S = 0.25
"""How often a link message is sent again to an actor whose mailbox was full."""

NORMAL = "normal"
SHUTDOWN = "shutdown"


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Down:
    """An actor that was monitored ended."""

    ref: int
    name: str
    incarnation: int
    """0 when no actor had the name."""
    reason: str
    """`normal`, `shutdown`, `noproc`, or the reason that its supervisor gives."""


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """Tells an actor that another one, linked to it, ended; sent only to an actor with `traps_exits`."""

    name: str
    incarnation: int
    reason: str


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Linked:
    """Sent to an actor by another that linked itself to it: the link holds both ways."""


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Unlinked:
    """Sent to an actor by another that ended their link."""


def is_abnormal(reason: str) -> bool:
    """Whether a link passes an end with this reason on."""
    return reason not in (NORMAL, SHUTDOWN)


@dataclass(slots=True)
class _Link:
    name: str
    incarnation: int
    watch: int


class MonitorsAndLinks:
    """The monitors and links of one actor."""

    def __init__(self, owner: "Actor", watcher: ExitWatcher) -> None:
        self._owner = owner
        self._watcher = watcher
        self._refs = itertools.count(1)
        self._monitors: dict[int, int] = {}
        """The watch of each reference; 0 where no actor had the name."""
        self._links: dict[tuple[int, int], _Link] = {}
        self._undelivered: dict[tuple[int, int], tuple[str, Linked | Unlinked]] = {}
        """The latest link message that an actor has not taken yet; it is sent again until it is taken."""

    def monitor(self, name: str) -> int:
        ref = next(self._refs)
        slot, incarnation = self._address_of(name)
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
        slot, incarnation = self._address_of(name)
        if slot is None:
            self._owner.after(0.0, lambda: self._exit(name, 0, NOPROC))
        elif (slot, incarnation) not in self._links:
            self._add_link(slot, name, incarnation)
            self._send(name, slot, incarnation, Linked())

    def unlink(self, name: str) -> None:
        for (slot, incarnation), link in list(self._links.items()):
            if link.name == name:
                self._remove_link(slot, incarnation)
                self._send(name, slot, incarnation, Unlinked())

    def linked_by(self, name: str, incarnation: int) -> None:
        """Note that another actor linked itself to this actor."""
        slot = self._owner.board.find(name)
        if slot is None:
            self._exit(name, incarnation, NOPROC)
        elif (slot, incarnation) not in self._links:
            self._add_link(slot, name, incarnation)

    def unlinked_by(self, name: str, incarnation: int) -> None:
        slot = self._owner.board.find(name)
        if slot is not None:
            self._remove_link(slot, incarnation)

    # ---- inside ----

    def _send(self, name: str, slot: int, incarnation: int, news: Linked | Unlinked) -> None:
        is_waiting = (slot, incarnation) in self._undelivered
        self._undelivered[slot, incarnation] = (name, news)
        if not is_waiting:
            self._deliver(slot, incarnation)

    def _deliver(self, slot: int, incarnation: int) -> None:
        """Send the last link message; retry until the other actor takes it or has ended."""
        name, news = self._undelivered[slot, incarnation]
        is_sent = self._owner.tell(name, news, incarnation=incarnation)
        if is_sent or not self._is_living(slot, incarnation):
            del self._undelivered[slot, incarnation]
        else:
            self._owner.after(RETRY_S, lambda: self._deliver(slot, incarnation))

    def _is_living(self, slot: int, incarnation: int) -> bool:
        board = self._owner.board
        return board.state(slot) in LIVING and board.get(slot, "incarnation") == incarnation

    def _address_of(self, name: str) -> tuple[int | None, int]:
        board = self._owner.board
        slot = board.find(name)
        if slot is None or board.state(slot) not in LIVING:
            return None, 0
        return slot, board.get(slot, "incarnation")

    def _add_link(self, slot: int, name: str, incarnation: int) -> None:
        def ended(reason: str) -> None:
            del self._links[slot, incarnation]
            self._exit(name, incarnation, reason)

        self._links[slot, incarnation] = _Link(
            name, incarnation, self._watcher.watch(slot, incarnation, ended)
        )

    def _remove_link(self, slot: int, incarnation: int) -> None:
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
