"""The store actor: the one process that writes the record.

Receives   every call of the record (`dart.core.messages.Call`), from curator, environments and trainer
Replies    after the transaction is durable (invariant durable-before-ack); Paused while the disk is full or
           another process has locked the database: nothing of the call was kept, the caller repeats it
Dies when  the database is damaged, or the disk refuses writes for any other reason
On restart it opens the database again; nothing else is needed
"""

from collections.abc import Callable
from typing import Any, TypeVar

from actors.actor import Actor, Sender, receives
from actors.definition import Handler
from dart.core import messages as m
from dart.core.record_address import parse_record_address
from dart.core.run_directory import RunPaths
from dart.store import step_files
from dart.store.errors import StoreBusy, StoreConflict
from dart.store.event_retention import EVERY_S
from dart.store.store import METHODS, Store
from dart.telemetry.emit import Data, log_event
from dart.telemetry.events import PAUSED

T = TypeVar("T")

RETRY_S = 1.0
"""Seconds between two tries to write while the disk refuses; calls in between get `Paused` without a try."""


def receives_every_call(handler: Handler) -> Handler:
    """Mark a method as the handler of every call of the record."""
    for call in METHODS:
        handler = receives(call)(handler)
    return handler


class StoreActor(Actor):
    """Opens the store at the first call, and carries out calls one at a time."""

    def on_start(self) -> None:
        self._address = parse_record_address(self.args["store"])
        self._success_above: float = self.args["config"]["curation"]["success_above"]
        self._open: Store | None = None
        self._pause: m.Paused | None = None
        """The reply to every call while the disk refuses writes."""
        self._paused_since_unix_s = self._try_again_s = 0.0
        self._thinned_unix_s: float | None = None
        self._step_files = RunPaths(self.identity.run_dir).step_files
        self.every(EVERY_S, self._thin)
        self.every(EVERY_S, self._sweep)

    def on_stop(self) -> None:
        if self._open is not None:
            self._open.close()

    @receives_every_call
    def carry_out(self, call: m.Call[Any], sender: Sender) -> m.CallResult | m.Paused | m.Contradiction:
        return self._write(lambda store: m.CallResult(value=store.write(call)))

    def _sweep(self) -> None:
        """Remove step files that killed environments have left behind."""
        older_than_unix_s = self.clock.unix_s() - EVERY_S
        removed = self._write(
            lambda store: step_files.sweep(self._step_files, store.is_held, older_than_unix_s)
        )
        if isinstance(removed, int) and removed:
            self.log.info("step_files_swept", removed=removed)

    def _thin(self) -> None:
        """Delete old events; while the disk refuses writes, leave them for the next time."""
        now_unix_s = self.clock.unix_s()
        thinned = self._write(lambda store: store.thin_events(self._thinned_unix_s))
        if isinstance(thinned, int):
            self._thinned_unix_s = now_unix_s
            self.log.debug("events_thinned", deleted=thinned)

    def _write(self, write: Callable[[Store], T]) -> T | m.Paused | m.Contradiction:
        """Carry out a write and return its result, or Paused while the disk refuses writes.

        A write that contradicts the record returns Contradiction and does not end the actor, because the
        caller is at fault.
        """
        if self._pause is not None and self.clock.monotonic_s() < self._try_again_s:
            return self._pause
        try:
            store = self._store()
            self._go_on(store)
            return write(store)
        except StoreConflict as conflict:
            return m.Contradiction(text=str(conflict))
        except StoreBusy as busy:
            return self._wait_for_the_disk(str(busy))

    def _store(self) -> Store:
        if self._open is None:
            opened = Store(
                self._address,
                create=False,
                success_above=self._success_above,
                epoch=self.args.get("epoch"),  # another run's takeover ends this store for good
            )
            self._open = self.enter_context(opened)
        return self._open

    def _wait_for_the_disk(self, reason: str) -> m.Paused:
        if self._pause is None:
            self._pause = m.Paused(reason=reason, retry_after_s=RETRY_S)
            self._paused_since_unix_s = self.clock.unix_s()
            self.log.error("record_paused", reason=reason)
            self.set_ready(False)  # on the board, for readers outside
        self._try_again_s = self.clock.monotonic_s() + RETRY_S
        return self._pause

    def _go_on(self, store: Store) -> None:
        """End a pause, if there is one, by recording it as an event. Raises StoreBusy if it lasts."""
        if self._pause is None:
            return
        data: Data = {
            "began_unix_s": self._paused_since_unix_s,
            "paused_s": self.clock.unix_s() - self._paused_since_unix_s,
            "reason": self._pause.reason,
        }
        event = m.EventDraft(kind=PAUSED, subject=self.identity.name, data=data)
        store.record_events((event,))
        log_event(self.log, event)
        self._pause = None
        self.set_ready(True)
