"""How actors use the record: writes are sent to the store actor, reads go to the database itself."""

from collections.abc import Callable
from typing import Any, TypeVar

from actors.actor import Actor
from actors.codec import from_plain
from actors.errors import AskError, MailboxFull
from dart.core import messages as m
from dart.store.errors import StoreConflict
from dart.store.reader import StoreReader

T = TypeVar("T")

WRITE_DEADLINE_S = 15.0
"""Deadline of one write, in seconds, which may wait behind other writes and for the disk. After this time the
store counts as lost."""

RESTART_PATIENCE_S = 60.0
"""Seconds for which a write without a reply is repeated, because the store may be restarting."""

RESTART_RETRY_S = 0.2


async def write(
    actor: Actor, call: m.Call[T], on_pause: Callable[[str], None] = lambda _: None, to: str = "store"
) -> T:
    """Send a call to the store actor (or to `to`) and return its result; repeat it while the reply is Paused.

    `on_pause` gets the reason when a pause begins and an empty text when the pause ends. Raises AskError if
    the store does not reply, and StoreConflict if the call contradicts the record.
    """
    since_s = actor.clock.monotonic_s()
    answer = await actor.ask(to, call, deadline_s=WRITE_DEADLINE_S)
    if isinstance(answer, m.Paused):
        on_pause(answer.reason)
        actor.log.warning("store_paused", call=type(call).__name__, reason=answer.reason)
        try:
            while isinstance(answer, m.Paused):
                await actor.sleep(answer.retry_after_s)
                answer = await actor.ask(to, call, deadline_s=WRITE_DEADLINE_S)
        finally:
            on_pause("")
        actor.log.info(
            "store_goes_on", call=type(call).__name__, paused_s=actor.clock.monotonic_s() - since_s
        )
    return result_of(call, answer)


async def write_through_restarts(
    actor: Actor, call: m.Call[T], to: str = "store", is_over: Callable[[], bool] = lambda: False
) -> T:
    """Send a call and return its result; repeat it while the receiver restarts or replies with Paused.

    Use it only for calls of which a repetition has no second effect.

    to        `store`, or an actor that passes the call on to the store
    is_over   returns True when no reply can come any more; the call is then not repeated

    Raises AskError or MailboxFull after `RESTART_PATIENCE_S` without a reply (Paused counts as a reply), and
    StoreConflict if the call contradicts the record.
    """
    last_reply_s = actor.clock.monotonic_s()

    def on_pause(_: str) -> None:
        nonlocal last_reply_s
        last_reply_s = actor.clock.monotonic_s()

    while True:
        try:
            return await write(actor, call, on_pause, to)
        except (AskError, MailboxFull):
            if is_over() or actor.clock.monotonic_s() - last_reply_s >= RESTART_PATIENCE_S:
                raise
            await actor.sleep(RESTART_RETRY_S)


def result_of(call: m.Call[T], answer: Any) -> T:
    """The result of a call, from the store's reply. Raises StoreConflict if the reply is a Contradiction."""
    if isinstance(answer, m.Contradiction):
        raise StoreConflict(answer.text)
    return from_plain(answer.value, m.result_type(type(call)))


class RecordClient:
    """The record for the service of the curator: implements `dart.curation.service.Record`."""

    def __init__(self, actor: Actor, reader: StoreReader) -> None:
        self._actor = actor
        self.rollout, self.demonstrations = reader.rollout, reader.demonstrations
        self.snapshot = reader.snapshot
        self.paused = ""
        """Why the disk refuses writes now; empty if it does not."""

    async def write(self, call: m.Call[T]) -> T:
        """Have the store actor carry out a call, and return the result; see the function `write`."""
        return await write(self._actor, call, self._note_pause)

    def _note_pause(self, reason: str) -> None:
        self.paused = reason
