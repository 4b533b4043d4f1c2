"""Mail between actors: names resolved on the vitals board, frames signed, each taken once.

Thespian starts actors; their mail goes here, because a Thespian message costs
half a millisecond of CPU and a hung peer can block a sender for minutes.
Sending never blocks: a full mailbox is `MailboxFull`, a name without a living
actor is `ActorDied`, both at once. `actors.transport` carries the frames.

Delivery is at most once, in order per sender and receiver incarnation. A frame
that is recorded and sent again is refused: every frame carries the receiver's
incarnation and a number that only grows.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from actors.board import LIVING, ActorState, Board
from actors.codec import MAX_MESSAGE_BYTES, SIGNATURE_BYTES, Envelope, decode, encode
from actors.errors import ActorDied, MailboxFull, MalformedMessage, Unauthenticated
from actors.replay_guard import ReplayGuard
from actors.transport import Transport

MAX_FRAME_BYTES = MAX_MESSAGE_BYTES + SIGNATURE_BYTES


class Address(NamedTuple):
    """The row and incarnation that a name stood for when it was resolved."""

    slot: int
    incarnation: int


class Carrier(Protocol):
    """Carries frames: `Transport` between processes, memory in tests."""

    lost: int

    def bind(self, slot: int, incarnation: int, listener_fd: int | None) -> int: ...

    def put(self, slot: int, incarnation: int, frame: bytes) -> bool: ...

    def take(self) -> bytes | None: ...

    def flush(self, timeout_s: float) -> bool: ...

    def close(self) -> None: ...


class Mail:
    """The inbox and outboxes of one actor incarnation."""

    def __init__(self, board: Board, mail_dir: Path, key: bytes, *, carrier: Carrier | None = None) -> None:
        self._board = board
        self._key = key
        self._carrier: Carrier = carrier or Transport(mail_dir, MAX_FRAME_BYTES, self._is_current)
        self._replay_guard = ReplayGuard()
        self._sequence = 0
        self.is_mine: Callable[[str], bool] | None = None
        """Says whether mail to a name is decoded; other mail stays undecoded. None: all mail is decoded."""
        self.refused = 0
        """The number of frames that were dropped: not authentic, not understood, or not new."""

    @property
    def lost(self) -> int:
        """The number of messages that were accepted, but whose receivers ended before the delivery."""
        return self._carrier.lost

    def bind(self, slot: int, incarnation: int, listener_fd: int | None = None) -> int:
        """Open the inbox; returns the descriptor that becomes readable when mail may have come.

        listener_fd: an inbox that was opened for this actor before it was forked.
        """
        return self._carrier.bind(slot, incarnation, listener_fd)

    def resolve(self, name: str) -> Address:
        """The address that a name stands for now. Raises ActorDied when no living actor has it."""
        slot = self._board.find(name)
        state = ActorState.FREE if slot is None else self._board.state(slot)
        if slot is None or state not in LIVING:
            why = "" if slot is None else self._board.get(slot, "last_reason")
            raise ActorDied(
                f"no actor is running under the name {name!r} (state {state}{f': {why}' if why else ''})"
            )
        return Address(slot, int(self._board.get(slot, "incarnation")))

    def is_living(self, address: Address) -> bool:
        """Whether that incarnation still lives."""
        return self._is_current(address.slot, address.incarnation)

    def send(self, envelope: Envelope) -> Address:
        """Send one envelope; returns the address it was sent to.

        For a row with a `route`, the frame goes to the inbox of a bridge; the envelope stays the same.
        Raises ActorDied, MailboxFull or MessageTooLarge; then nothing was sent.
        """
        address = self._address_of(envelope.to, envelope.to_incarnation)
        self._sequence = max(self._sequence + 1, time.monotonic_ns())
        stamped = replace(envelope, to_incarnation=address.incarnation, sequence=self._sequence)
        inbox = self._inbox_of(address, envelope.to)
        try:
            is_taken = self._carrier.put(*inbox, encode(stamped, self._key))
        except ConnectionError:
            raise ActorDied(f"the process of {envelope.to!r} has just ended") from None
        if not is_taken:
            raise MailboxFull(f"{envelope.to!r} takes no more messages now: its mailbox is full")
        return address

    def receive(self) -> Envelope | None:
        """The next good envelope, or None when the inbox is empty. Bad frames are counted and skipped."""
        while (frame := self._carrier.take()) is not None:
            try:
                envelope = decode(frame, self._key, self.is_mine)
            except (Unauthenticated, MalformedMessage):
                self.refused += 1
                continue
            if self._replay_guard.is_new(envelope.sender, envelope.sender_incarnation, envelope.sequence):
                return envelope
            self.refused += 1
        return None

    def flush(self, timeout_s: float) -> bool:
        """Wait until all that was sent has left this process; False if not. For senders without a loop."""
        return self._carrier.flush(timeout_s)

    def close(self) -> None:
        """Try for a moment to send what still waits, then close everything."""
        self._carrier.close()

    def _address_of(self, name: str, incarnation: int) -> Address:
        """The address of a name (incarnation 0), or of one incarnation."""
        current = self.resolve(name)
        if incarnation not in (0, current.incarnation):
            raise ActorDied(
                f"incarnation {incarnation} of {name!r} has ended; the name has incarnation "
                f"{current.incarnation} now"
            )
        return current

    def _inbox_of(self, address: Address, name: str) -> Address:
        route = int(self._board.get(address.slot, "route"))
        if not route:
            return address
        bridge = route - 1
        if self._board.state(bridge) not in LIVING:
            raise ActorDied(
                f"mail cannot reach {name!r}: its bridge {self._board.get(bridge, 'name')!r} is not running"
            )
        return Address(bridge, int(self._board.get(bridge, "incarnation")))

    def _is_current(self, slot: int, incarnation: int) -> bool:
        is_same = int(self._board.get(slot, "incarnation")) == incarnation
        return is_same and self._board.state(slot) in LIVING
