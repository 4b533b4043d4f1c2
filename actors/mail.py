"""Mail between actors: ZeroMQ over unix sockets, names resolved on the vitals board.

Thespian gives an actor its life; its mail goes here, because a Thespian message
costs half a millisecond of CPU and a hung peer can block a sender for minutes.
Every actor incarnation binds one inbox; a sender keeps one outbox per receiver
incarnation it talks to. Sending never blocks: a full outbox is told to the
sender (`MailboxFull`), a name without a living bearer is `ActorDied` at once.

Delivery: at most once, in order per sender and receiver incarnation.
"""

from pathlib import Path

import zmq

from actors.board import LIVING, ActorState, Board
from actors.codec import MAX_MESSAGE_BYTES, SIGNATURE_BYTES, Envelope, decode, encode
from actors.errors import ActorDied, MailboxFull, MalformedMessage, Unauthenticated

QUEUE_MESSAGES = 1000
"""Messages that may wait in one outbox, and in one inbox per sender, before the sender is told it is full."""

MAX_FRAME_BYTES = MAX_MESSAGE_BYTES + SIGNATURE_BYTES

LINGER_MS = 200
"""How long a stopping actor waits for its last replies to leave."""


class Mail:
    """The inbox and outboxes of one actor incarnation."""

    def __init__(self, board: Board, mail_dir: Path, key: bytes) -> None:
        self._board = board
        self._mail_dir = mail_dir
        self._key = key
        self._context = zmq.Context()
        self._outboxes: dict[int, tuple[int, zmq.Socket[bytes]]] = {}
        self._inbox: zmq.Socket[bytes] | None = None
        self.refused = 0
        """Frames that were not authentic or not understood; never decoded further, never a crash."""

    def bind(self, slot: int, incarnation: int) -> int:
        """Open the inbox; returns the descriptor that becomes readable when mail may have come."""
        self._inbox = self._context.socket(zmq.PULL)
        self._inbox.setsockopt(zmq.RCVHWM, QUEUE_MESSAGES)
        self._inbox.setsockopt(zmq.MAXMSGSIZE, MAX_FRAME_BYTES)  # who sends more is hung up on
        self._inbox.bind(self._endpoint(slot, incarnation))
        return int(self._inbox.getsockopt(zmq.FD))

    def living_incarnation(self, name: str) -> int:
        """The incarnation that bears a name now. Raises ActorDied when nobody does."""
        slot = self._board.find(name)
        state = ActorState.FREE if slot is None else self._board.state(slot)
        if slot is None or state not in LIVING:
            raise ActorDied(f"no actor is running under the name {name!r} (state {state})")
        return int(self._board.get(slot, "incarnation"))

    def send(self, envelope: Envelope) -> int:
        """Hand one envelope over; returns the incarnation it was sent to.

        Raises ActorDied, MailboxFull or MessageTooLarge; then nothing was sent.
        """
        incarnation = self.living_incarnation(envelope.to)
        if envelope.to_incarnation not in (0, incarnation):
            raise ActorDied(
                f"{envelope.to!r} incarnation {envelope.to_incarnation} is gone, {incarnation} bears the name"
            )
        frame = encode(envelope, self._key)
        slot = self._board.find(envelope.to)
        assert slot is not None
        try:
            self._outbox(slot, incarnation).send(frame, zmq.NOBLOCK)
        except zmq.Again:
            raise MailboxFull(
                f"{envelope.to!r} has {QUEUE_MESSAGES} messages waiting and takes no more; "
                "it is stopped or too slow"
            ) from None
        return incarnation

    def receive(self) -> Envelope | None:
        """The next good envelope, or None when the inbox is empty. Bad frames are counted and skipped."""
        assert self._inbox is not None, "bind() comes first"
        while True:
            try:
                frame = self._inbox.recv(zmq.NOBLOCK)
            except zmq.Again:
                return None
            try:
                return decode(frame, self._key)
            except (Unauthenticated, MalformedMessage):
                self.refused += 1

    def close(self) -> None:
        """Let the last replies leave, then close everything."""
        self._context.destroy(linger=LINGER_MS)

    def _outbox(self, slot: int, incarnation: int) -> "zmq.Socket[bytes]":
        known = self._outboxes.get(slot)
        if known is not None:
            if known[0] == incarnation:
                return known[1]
            known[1].close(linger=0)
        socket = self._context.socket(zmq.PUSH)
        socket.setsockopt(zmq.SNDHWM, QUEUE_MESSAGES)
        socket.setsockopt(zmq.LINGER, LINGER_MS)
        socket.connect(self._endpoint(slot, incarnation))
        self._outboxes[slot] = (incarnation, socket)
        return socket

    def _endpoint(self, slot: int, incarnation: int) -> str:
        return f"ipc://{self._mail_dir}/{slot}.{incarnation}"
