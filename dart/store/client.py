"""The record as an actor uses it: writes go to the store actor, reads are done here."""

from collections.abc import Callable
from typing import Any, TypeVar

from actors.actor import Actor
from actors.codec import from_plain
from dart.core import messages as m
from dart.store.errors import StoreConflict
from dart.store.reader import StoreReader

T = TypeVar("T")

WRITE_DEADLINE_S = 15.0
"""A write waits behind others and for the disk; beyond this the store is as good as gone."""


async def write(
    actor: Actor, call: m.Call[T], on_pause: Callable[[str], None] = lambda _: None, to: str = "store"
) -> T:
    """Ask the store actor, or who writes to it, again and again while the disk refuses writes.

    `on_pause` is told the reason when that begins and an empty one when it is over. Raises AskError when the
    store is gone or silent, StoreConflict when it contradicts.
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


def result_of(call: m.Call[T], answer: Any) -> T:
    """What a call became, by its answer. Raises StoreConflict when the record contradicts it."""
    if isinstance(answer, m.Contradiction):
        raise StoreConflict(answer.text)
    return from_plain(answer.value, m.result_type(type(call)))


class RecordClient:
    """What the curator's service needs of the record (`dart.curation.service.Record`)."""

    def __init__(self, actor: Actor, reader: StoreReader) -> None:
        self._actor = actor
        self.rollout, self.demonstrations = reader.rollout, reader.demonstrations
        self.snapshot = reader.snapshot
        self.paused = ""
        """Why the disk refuses writes now; empty while it does not."""

    async def write(self, call: m.Call[T]) -> T:
        """Have the store actor carry out a call, however long the disk refuses."""
        return await write(self._actor, call, self._note_pause)

    def _note_pause(self, reason: str) -> None:
        self.paused = reason
