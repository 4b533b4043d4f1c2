"""The store actor: the one process that writes the record.

Receives   every call of the record (`dart.core.messages.Call`) from any actor
Replies    `CallResult`, after the transaction is durable (invariant durable-before-ack). LOAD events (the
           load of an actor, `dart.telemetry.load_meter`) are the exception: the reply to them does not wait
           for the write.
           `Paused` while the disk is full, another process has locked the database, its server does not
           answer, or the object storage with the steps of the call does not answer. Nothing of the call was
           kept, and the caller repeats it.
           `Contradiction` if the call contradicts the record. Nothing was changed
Dies when  the database is damaged, another process has taken over the record, or the disk refuses writes for
           another reason than those above
On restart it opens the database again; nothing else is needed
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from actors.actor import Actor, Sender, receives
from actors.definition import Handler
from dart.config.sections import RunSettings
from dart.core import messages as m
from dart.core.record_address import parse_record_address
from dart.store.blobs import SHARDS
from dart.store.errors import (
    BlobDamage,
    BlobsBusy,
    BlobsUnavailable,
    StoreBusy,
    StoreConflict,
    StoreUnavailable,
)
from dart.store.event_retention import EVERY_S, Thinned
from dart.store.run_blobs import run_blobs
from dart.store.screenshot_sweep import ScreenshotsKept, ScreenshotSweeper
from dart.store.store import METHODS, Store
from dart.telemetry.board_gauges import Gauge
from dart.telemetry.emit import Data, log_event
from dart.telemetry.events import PAUSED
from dart.telemetry.load_meter import LOAD

T = TypeVar("T")

THIN_AGAIN_S = 0.1
"""Seconds between two deletions of old events while they are behind. Calls are carried out in between."""

LOAD_WRITE_S = 0.02
"""Seconds for which LOAD events are collected and then written together: at most 50 writes a second, however
many actors send them."""

DAY_S = 86_400.0

SWEEP_DEADLINE_S = DAY_S
"""Deadline of a sweep of screenshots. While one hangs in a disk or a network file system, the store carries
out calls, and only the next sweep waits for it."""

RETRY_S = 1.0
"""Seconds between two tries to write while the disk refuses writes. Calls that arrive between two tries get
`Paused` at once."""


BLOBS_RETRY_S = 5.0
"""Seconds after a request that object storage did not answer in which calls that name steps get `Paused` at
once. Each try blocks the actor for up to 7.4 s; all other calls are carried out in between."""

NAME_STEPS = (m.FinishRollout, m.ParkRollout, m.RecordGuided)
"""Calls that name steps by sha256, so that the actor reads them."""


def receives_every_call(handler: Handler) -> Handler:
    """Mark a method as the handler of every message that is a call of a method of `Store`."""
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
        """The reply to every call while the disk refuses writes; None while it accepts them."""
        self._paused_since_s = self._try_again_s = 0.0
        self._blobs_pause = m.Paused(reason="", retry_after_s=RETRY_S)
        """The reply to calls that name steps until `_blobs_again_s`."""
        self._blobs_again_s = 0.0
        self._thinned_unix_s: float | None = None
        self._lease_s: float = self.args["config"]["curation"]["lease_s"]
        run = RunSettings.model_validate(self.args["config"]["run"])
        self._blobs = run_blobs(run, self.identity.run_dir)
        self._load_events: list[m.EventDraft] = []
        """LOAD events that have been received but not written yet."""
        self._shard = int(self.clock.unix_s() / EVERY_S) % SHARDS
        """Number of the shard of the steps' blobs that the next sweep looks at. It starts from the clock, so
        that every shard has its turn even if the actor restarts often."""
        self.every(EVERY_S, self._thin)
        self.every(EVERY_S, self._sweep)
        self._screenshots_kept_s = run.screenshots_kept_days * DAY_S
        self._screenshot_sweeper = ScreenshotSweeper(self._blobs)
        self._screenshot_shard = self._shard
        if self._screenshots_kept_s:
            self.every(EVERY_S, self._sweep_screenshots)

    def on_probe(self) -> bool:
        """Return False during a pause, so that no probe ends the pause on the board."""
        return self._pause is None

    def on_stop(self) -> None:
        self._write_load()
        if self._open is not None:
            self._open.close()

    @receives_every_call
    def carry_out(self, call: m.Call[Any], sender: Sender) -> m.CallResult | m.Paused | m.Contradiction:
        if isinstance(call, m.RecordEvents) and all(event.kind == LOAD for event in call.events):
            return self._keep_load(call.events)
        if isinstance(call, NAME_STEPS) and self.clock.monotonic_s() < self._blobs_again_s:
            return self._blobs_pause
        return self._write(lambda store: m.CallResult(value=store.write(call)))

    def _keep_load(self, events: Sequence[m.EventDraft]) -> m.CallResult:
        """Keep LOAD events, to be written within `LOAD_WRITE_S`. The reply does not wait for the write."""
        if events and not self._load_events:
            self.after(LOAD_WRITE_S, self._write_load)
        self._load_events += events
        return m.CallResult(value=len(events))

    def _write_load(self) -> None:
        events, self._load_events = self._load_events, []
        if events:
            self._write(lambda store: store.record_events(events))  # or, while the disk refuses, never

    def _sweep(self) -> None:
        """Delete the steps in the next shard that no row of the record names.

        Killed environments and parked episodes that have ended leave such steps. A record that cannot be read
        ends the actor, as in every call, so no sweep relies on it.
        """
        shard, self._shard = self._shard, (self._shard + 1) % SHARDS
        try:  # or, while the disk refuses, at the next round
            deleted = self._write(lambda store: store.sweep_steps(shard, self._lease_s))
        except BlobsUnavailable as error:  # a reader of these steps meets it, too
            self.log.warning("steps_not_swept", reason=str(error))
            return
        if isinstance(deleted, int) and deleted:
            self.log.info("steps_swept", deleted=deleted)

    async def _sweep_screenshots(self) -> None:
        """Delete the old screenshots in the next shard that nothing needs, in a thread."""
        shard, self._screenshot_shard = self._screenshot_shard, (self._screenshot_shard + 1) % SHARDS
        kept = self._write(lambda store: store.give_up_screenshots(self._screenshots_kept_s, self._lease_s))
        if not isinstance(kept, ScreenshotsKept):
            return  # or at the next round
        work = partial(self._screenshot_sweeper.sweep, shard, kept)
        try:
            deleted = await self.in_thread(work, name="screenshots", deadline_s=SWEEP_DEADLINE_S)
        except (StoreUnavailable, BlobDamage, ValueError) as error:
            self.log.warning("screenshots_not_swept", reason=str(error))
        else:
            self.log.info("screenshots_swept", deleted=deleted)

    def _thin(self) -> None:
        """Delete old LOAD events. While the disk refuses writes, leave them for the next time."""
        thinned = self._write(lambda store: store.thin_events(self._thinned_unix_s))
        if not isinstance(thinned, Thinned):
            return
        self._thinned_unix_s = thinned.looked_unix_s
        self.log.debug("events_thinned", deleted=thinned.deleted)
        if thinned.is_behind:
            self.after(THIN_AGAIN_S, self._thin)

    def _write(self, write: Callable[[Store], T]) -> T | m.Paused | m.Contradiction:
        """Carry out a write and return its result, or Paused while the disk or the object storage refuses.

        If the write contradicts the record, return Contradiction. This does not end the actor, because the
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
        except BlobsBusy as busy:  # the record itself takes other writes
            self.log.warning("blobs_busy", reason=str(busy))
            self._blobs_pause = m.Paused(reason=str(busy), retry_after_s=RETRY_S)
            self._blobs_again_s = self.clock.monotonic_s() + BLOBS_RETRY_S
            self.set_gauges({Gauge.WAITED_UNIX_S: int(self.clock.unix_s())})
            return self._blobs_pause
        except StoreBusy as busy:
            return self._wait_for_the_disk(str(busy))

    def _store(self) -> Store:
        if self._open is None:
            opened = Store(
                self._address,
                create=False,
                success_above=self._success_above,
                epoch=self.args.get("epoch"),  # another run's takeover ends this store for good
                steps=self._blobs.steps,
            )
            self._open = self.enter_context(opened)
        return self._open

    def _wait_for_the_disk(self, reason: str) -> m.Paused:
        if self._pause is None:
            self._pause = m.Paused(reason=reason, retry_after_s=RETRY_S)
            self._paused_since_s = self.clock.monotonic_s()
            self.log.error("record_paused", reason=reason)
            self.set_ready(False)  # on the board, for readers outside
        self._try_again_s = self.clock.monotonic_s() + RETRY_S
        return self._pause

    def _go_on(self, store: Store) -> None:
        """End a pause, if there is one, and record it as an event. Raises StoreBusy if it must go on."""
        if self._pause is None:
            return
        paused_s = self.clock.monotonic_s() - self._paused_since_s
        data: Data = {
            "began_unix_s": self.clock.unix_s() - paused_s,
            "paused_s": paused_s,
            "reason": self._pause.reason,
        }
        event = m.EventDraft(kind=PAUSED, subject=self.identity.name, data=data)
        store.record_events((event,))
        log_event(self.log, event)
        self._pause = None
        self.set_ready(True)
