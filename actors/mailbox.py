"""An actor's mailbox: each message goes to its handler, or back to its sender with the reason.

`Mailbox.drain` sees every message. The attributes that it reads for each message are plain, to be fast.
"""

import math
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from actors.asks import PendingAsks
from actors.board import Heartbeat
from actors.codec import Envelope, MessageKind, UndecodedMessage
from actors.envelope_writer import EnvelopeWriter
from actors.errors import ActorDied, MailboxFull, MessageTooLarge
from actors.future import settle
from actors.lifecycle import Lifecycle
from actors.mail import Mail
from actors.monitors import Linked, Unlinked
from actors.system_messages import ChildReady, Preempted, RefusalReason, Stop

if TYPE_CHECKING:
    from actors.actor import Actor

HELD_MESSAGES = 1000
"""The most messages that wait for an `async` on_start; further ones are refused."""

MAX_OPEN_HANDLERS = 1000
"""The most messages whose handlers have begun and not ended; further ones are refused."""

REASON_CHARACTERS = 1000
"""The longest reason of a refusal. It may quote the message, and must itself fit into mail."""

MAIL_PER_TURN = 64
"""The most messages that are taken before timers and finished work have their turn."""

_NEVER_REFUSED = (ChildReady, Preempted, Linked, Unlinked)
"""Types of messages that tell of another actor. Each is sent only once, so a full mailbox takes them too."""


@dataclass(frozen=True, slots=True)
class Sender:
    """Who sent the message that is handled."""

    name: str
    incarnation: int
    waits_until_s: float = math.inf
    """The moment on the monotonic clock at which the sender of an ask stops waiting; infinite for others."""


class Mailbox:
    """Takes one actor's mail, runs the handlers and sends their answers."""

    def __init__(
        self,
        actor: "Actor",
        mail: Mail,
        writer: EnvelopeWriter,
        asks: PendingAsks,
        lifecycle: Lifecycle,
        heartbeat: Heartbeat,
    ) -> None:
        self._actor = actor
        self._handlers = actor._handlers
        self._board = actor.board
        self._identity = actor.identity
        self._mail = mail
        self._writer = writer
        self._asks = asks
        self._lifecycle = lifecycle
        self._heartbeat = heartbeat
        self._held: deque[Envelope] = deque()
        self._held_news: list[tuple[Any, str, int]] = []
        self._open_handlers = 0
        self._is_drained = True
        self._messages = 0
        self._progress_ns = 0
        self._has_logged_full = False

    @property
    def is_all_answered(self) -> bool:
        """Whether no mail waits and no handler is open."""
        return self._is_drained and not self._open_handlers

    def note_progress(self) -> None:
        """Note that the actor finished a message or a piece of work now."""
        self._progress_ns = self._board.now_ns()

    def drain(self) -> None:
        """Take the mail of one turn, MAIL_PER_TURN messages at most."""
        lifecycle, heartbeat = self._lifecycle, self._heartbeat
        self._is_drained = self._has_logged_full = False
        for _ in range(MAIL_PER_TURN):
            if lifecycle.is_stop_requested and not lifecycle.is_stopping:
                break
            envelope = self._next_envelope()
            if envelope is None:
                self._is_drained = True
                break
            if self._waits_for_start(envelope):
                self._hold(envelope)
                continue
            self._messages += 1
            heartbeat.busy(type(envelope.message).__name__)
            self.take(envelope)
            heartbeat.idle()
        else:
            self._actor.runtime.wake_at(self._actor.clock.monotonic_s())
        self._board.set(
            self._identity.slot,
            messages=self._messages,
            refused=self._mail.refused,
            unsent=self._writer.unsent,
            progress_ns=self._progress_ns,
        )

    # ---- before the actor is started ----

    def _next_envelope(self) -> Envelope | None:
        if self._held and self._lifecycle.is_started:
            return self._held.popleft()
        return self._mail.receive()

    def _waits_for_start(self, envelope: Envelope) -> bool:
        """Whether an envelope must wait until `on_start` has ended.

        Answers, news of children and `Stop` need not wait: an `async` on_start may wait for answers and for
        news of children, and a `Stop` ends it.
        """
        return (
            not self._lifecycle.is_started
            and envelope.kind in (MessageKind.TELL, MessageKind.ASK)
            and not isinstance(envelope.message, Stop | ChildReady | Preempted)
        )

    def _hold(self, envelope: Envelope) -> None:
        if len(self._held) < HELD_MESSAGES or isinstance(envelope.message, _NEVER_REFUSED):
            self._held.append(envelope)
        else:
            self._turn_away(
                envelope,
                f"{self._writer.name!r} is still starting and keeps at most {HELD_MESSAGES} messages",
            )

    def take_news(self, news: Any, name: str, incarnation: int) -> None:
        """Handle a message about another actor that the runtime reports; before the start, keep it."""
        if not self._lifecycle.is_started:
            self._held_news.append((news, name, incarnation))
            return
        self._heartbeat.busy(type(news).__name__)
        handler = getattr(self._actor, self._handlers[type(news)])
        settle(handler(news, Sender(name, incarnation)))

    def release_held_news(self) -> None:
        """After the start, have each message that `take_news` kept handled in a turn of its own."""
        for held in self._held_news:
            self._actor.after(0.0, lambda held=held: self.take_news(*held))  # type: ignore[misc]

    # ---- one message ----

    def take(self, envelope: Envelope) -> None:
        """Handle one envelope, or refuse it and say why."""
        if not self._writer.is_own_name(envelope.to):
            self._actor.on_foreign(envelope)
        elif envelope.to_incarnation != self._identity.incarnation:
            self._mail.refused += 1
            self.refuse(envelope, f"incarnation {envelope.to_incarnation} of {self._writer.name!r} has ended")
        elif envelope.kind in (MessageKind.REPLY, MessageKind.REFUSAL):
            self._asks.take_answer(envelope)
        elif isinstance(envelope.message, Stop):
            self._lifecycle.take_stop(envelope.message)
        elif self._is_expired(envelope):
            self._turn_away(envelope, f"{self._writer.name!r} did not begin the message before its deadline")
        elif self._open_handlers >= MAX_OPEN_HANDLERS and not isinstance(envelope.message, _NEVER_REFUSED):
            self._turn_away(
                envelope,
                f"{self._writer.name!r} has {MAX_OPEN_HANDLERS} messages under way and takes no more now",
            )
        else:
            self._handle(envelope)

    def _is_expired(self, envelope: Envelope) -> bool:
        """Whether the sender has stopped waiting for the answer, so that the work need not begin."""
        return 0 < envelope.deadline_unix_ms < self._actor.clock.unix_s() * 1000

    def _waits_until_s(self, envelope: Envelope) -> float:
        if not envelope.deadline_unix_ms:
            return math.inf
        clock = self._actor.clock
        return clock.monotonic_s() + envelope.deadline_unix_ms / 1000 - clock.unix_s()

    def _handle(self, envelope: Envelope) -> None:
        handler_name = self._handlers.get(type(envelope.message))
        if handler_name is None:
            self._mail.refused += 1
            self.refuse(envelope, self._why_unhandled(envelope.message))
            return
        sender = Sender(envelope.sender, envelope.sender_incarnation, self._waits_until_s(envelope))
        self._open_handlers += 1
        outcome = getattr(self._actor, handler_name)(envelope.message, sender)
        settle(outcome, lambda answer: self._handled(envelope, answer))

    def _handled(self, envelope: Envelope, answer: Any) -> None:
        self._open_handlers -= 1
        self._progress_ns = self._board.now_ns()
        if envelope.kind is MessageKind.ASK:
            self._answer(envelope, MessageKind.REPLY, answer)

    def _why_unhandled(self, content: Any) -> str:
        name = self._identity.name
        if isinstance(content, UndecodedMessage):
            return f"{name!r} does not understand the message: {content.why}"
        return f"{name!r} has no handler for {type(content).__name__}"

    # ---- answers ----

    def _answer(self, asked: Envelope, kind: MessageKind, content: Any) -> None:
        """Send the answer. If it is too large or cannot be packed, send a refusal with that reason."""
        try:
            self._mail.send(self._writer.answer(asked, kind, content))
        except (ActorDied, MailboxFull) as error:
            self._writer.count_unsent()
            self._actor.log.info("answer_not_sent", to=asked.sender, reason=str(error))
        except (MessageTooLarge, TypeError) as error:
            self._writer.count_unsent()
            self.refuse(asked, f"{self._writer.name!r} cannot send its answer: {error}")

    def refuse(self, envelope: Envelope, reason: str) -> None:
        """Log a refusal; a sender that asked gets the reason."""
        self._actor.log.warning("message_refused", sender=envelope.sender, reason=reason)
        self._answer_refused(envelope, reason)

    def _turn_away(self, envelope: Envelope, reason: str) -> None:
        """Refuse a message that may come in floods: each is counted and answered, one per turn is logged."""
        self._mail.refused += 1
        if not self._has_logged_full:
            self._has_logged_full = True
            self._actor.log.warning("message_turned_away", sender=envelope.sender, reason=reason)
        self._answer_refused(envelope, reason)

    def _answer_refused(self, envelope: Envelope, reason: str) -> None:
        if envelope.kind is MessageKind.ASK:
            self._answer(envelope, MessageKind.REFUSAL, RefusalReason(text=reason[:REASON_CHARACTERS]))
