"""Addresses and numbers what an actor sends."""

import itertools
from typing import Any

from actors.board import Board
from actors.clock import Clock
from actors.codec import Envelope, MessageKind
from actors.mail import Mail
from actors.runtime import Identity


class EnvelopeWriter:
    """Numbers and addresses what one actor sends, and counts what could not be sent."""

    def __init__(self, identity: Identity, board: Board, mail: Mail, clock: Clock) -> None:
        self.name = identity.name
        self._slot = identity.slot
        self._incarnation = identity.incarnation
        self._board = board
        self._mail = mail
        self._clock = clock
        self._ids = itertools.count(1)
        self._unsent = 0

    def is_own_name(self, name: str) -> bool:
        """Whether mail to a name is for the owner of this writer."""
        return name == self.name

    def write(
        self, kind: MessageKind, to: str, content: Any, *, deadline_s: float = 0.0, to_incarnation: int = 0
    ) -> Envelope:
        """A new envelope. `deadline_s` counts from now; 0: the envelope has no deadline."""
        return Envelope(
            kind=kind,
            id=next(self._ids),
            to=to,
            to_incarnation=to_incarnation,
            sender=self.name,
            sender_incarnation=self._incarnation,
            deadline_unix_ms=int((self._clock.unix_s() + deadline_s) * 1000) if deadline_s else 0,
            message=content,
        )

    def answer(self, asked: Envelope, kind: MessageKind, content: Any) -> Envelope:
        """The envelope that answers `asked`."""
        return Envelope(
            kind=kind,
            id=asked.id,
            to=asked.sender,
            to_incarnation=asked.sender_incarnation,
            sender=self.name,
            sender_incarnation=self._incarnation,
            deadline_unix_ms=0,
            message=content,
        )

    @property
    def unsent(self) -> int:
        """The number of messages that could not be sent, or whose receiver ended before it took them."""
        return self._unsent + self._mail.lost

    def count_unsent(self) -> None:
        """Count one more message that could not be sent, and show the number on the board at once."""
        self._unsent += 1
        self._board.set(self._slot, unsent=self.unsent)
