"""The asks of one actor that wait for an answer. Every ask ends (invariant ask-ends).

An ask ends with its answer, with a refusal, at its deadline, or when the asked actor ends. The kernel reports
the end of a process of this machine at once. For actors of other machines the board is read every
LIVENESS_CHECK_S.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from actors.board import Board
from actors.clock import Clock
from actors.codec import Envelope, MessageKind, UndecodedMessage
from actors.envelope_writer import EnvelopeWriter
from actors.errors import ActorDied, AskTimeout, MailboxFull, Refused
from actors.exit_watch import ExitWatcher
from actors.future import Future
from actors.mail import Address, Mail
from actors.system_messages import RefusalReason
from actors.timers import Timers

LIVENESS_CHECK_S = 0.05
"""How often waiting asks are checked against their deadlines and against the board."""

ANSWER_GRACE_S = 0.01
"""How long an answer is waited for after the news that the asked actor has ended."""


@dataclass(slots=True)
class _PendingAsk:
    answer: Future[Any]
    to: str
    address: Address
    """Row and incarnation of the asked actor, which stay the same when its name changes."""
    deadline_s: float
    """The moment at which the ask ends, on the monotonic clock."""
    limit_s: float
    """The deadline as the caller gave it, in seconds from the ask."""


class PendingAsks:
    """Sends the asks of one actor, and ends each of them with its answer or an error."""

    def __init__(
        self,
        board: Board,
        mail: Mail,
        clock: Clock,
        writer: EnvelopeWriter,
        watcher: ExitWatcher,
        timers: Timers,
    ) -> None:
        self._board = board
        self._mail = mail
        self._clock = clock
        self._writer = writer
        self._watcher = watcher
        self._timers = timers
        self._pending: dict[int, _PendingAsk] = {}
        """The asks that wait, by the number of their envelope."""
        self._is_checking = False
        self._watched: set[Address] = set()
        """Asked incarnations whose processes are watched."""

    def send(self, envelope: Envelope, limit_s: float) -> Future[Any]:
        """Send an ask; return the future of its answer. ActorDied and MailboxFull end the future at once.

        Raises MessageTooLarge or TypeError, as `Mail.send` does, for a message that can be sent to no actor.
        """
        answer: Future[Any] = Future()
        try:
            address = self._mail.send(envelope)
        except (ActorDied, MailboxFull) as error:
            self._writer.count_unsent()
            answer.fail(error)
            return answer
        if address not in self._watched:
            self._watch(address)
        if not self._is_checking:
            self._is_checking = True
            self._timers.after(LIVENESS_CHECK_S, self._check)
        deadline_s = self._clock.monotonic_s() + limit_s
        self._pending[envelope.id] = _PendingAsk(answer, envelope.to, address, deadline_s, limit_s)
        return answer

    def take_answer(self, envelope: Envelope) -> None:
        """End the ask that this reply or refusal belongs to. An ask that has ended already stays as it is."""
        pending = self._pending.pop(envelope.id, None)
        if pending is None:
            return
        if isinstance(envelope.message, UndecodedMessage):
            self._mail.refused += 1
            pending.answer.fail(
                Refused(f"the answer of {pending.to!r} cannot be read: {envelope.message.why}")
            )
        elif envelope.kind is MessageKind.REFUSAL:
            pending.answer.fail(Refused(_reason_in(envelope, pending.to)))
        else:
            pending.answer.succeed(envelope.message)

    # ---- asks that get no answer ----

    def _check(self) -> None:
        """Fail asks whose actor ended or whose deadline passed."""
        now_s = self._clock.monotonic_s()
        self._fail(lambda pending: self._why_over(pending, now_s))
        self._is_checking = bool(self._pending)
        if self._pending:
            self._timers.after(LIVENESS_CHECK_S, self._check)

    def _why_over(self, pending: _PendingAsk, now_s: float) -> Exception | None:
        if not self._mail.is_living(pending.address):
            return ActorDied(self._describe_death(pending))
        if now_s >= pending.deadline_s:
            return AskTimeout(self._describe_timeout(pending))
        return None

    def _watch(self, address: Address) -> None:
        """Have the kernel report the end of the asked process, earlier than the next check of the board."""
        if self._board.get(address.slot, "pid") and not self._board.get(address.slot, "route"):
            self._watched.add(address)
            self._watcher.watch(
                *address, lambda reason: self._process_ended(address, reason), grace_s=ANSWER_GRACE_S
            )

    def _process_ended(self, address: Address, reason: str) -> None:
        self._watched.discard(address)
        self._fail(
            lambda pending: (
                ActorDied(f"{pending.to!r} ended before it answered: {reason}")
                if pending.address == address
                else None
            )
        )

    def _fail(self, why: Callable[[_PendingAsk], Exception | None]) -> None:
        """Fail every ask for which `why` gives an error."""
        for id_, pending in list(self._pending.items()):
            error = why(pending)
            if error is not None:
                del self._pending[id_]
                pending.answer.fail(error)

    def _describe_death(self, pending: _PendingAsk) -> str:
        slot, incarnation = pending.address
        if self._board.get(slot, "ended_incarnation") == incarnation:
            return f"{pending.to!r} ended before it answered: {self._board.get(slot, 'ended_reason')}"
        if self._board.get(slot, "incarnation") != incarnation:
            return f"{pending.to!r} was restarted before it answered"
        state, why = self._board.state(slot), self._board.get(slot, "last_reason")
        return f"{pending.to!r} ended before it answered (state {state}{f': {why}' if why else ''})"

    def _describe_timeout(self, pending: _PendingAsk) -> str:
        vitals = self._board.vitals(pending.address.slot)
        activity = f"in {vitals.handler} for {vitals.busy_s:.1f} s" if vitals.busy_s else "idle"
        return (
            f"{pending.to!r} did not answer within {pending.limit_s} s; it is {vitals.state}, {activity}, "
            f"last beat {vitals.beat_age_s or 0:.1f} s ago"
        )


def _reason_in(refusal: Envelope, asked: str) -> str:
    if isinstance(refusal.message, RefusalReason):
        return refusal.message.text
    return f"{asked!r} refused the message without a readable reason"
