"""Emission of events: one call writes an event to the log and to the record.

An event is a line in the log of its emitter and a row in the table `events` of the record. The metric
`dartrl_events_total` counts these rows. `dart.telemetry.events` declares all kinds, fields and levels.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from dart.core.messages import EventDraft, RecordEvents
from dart.telemetry.events import KINDS

Data = Mapping[str, str | int | float | bool | None]


class EventEmitter(Protocol):
    """An object that can emit events, because it has a log and can send messages to the store: an actor, or
    the main process of a run."""

    @property
    def log(self) -> Any:
        """The structlog logger of the emitter."""

    def tell(self, to: str, content: Any, /) -> bool:
        """Send a message to an actor; False when the actor does not run."""


def emit(emitter: EventEmitter, kind: str, subject: str, data: Data) -> None:
    """Write an event to the log, and send it to the store for the record.

    The emitter does not wait for the store, so the row in the record may get lost.
    """
    event = EventDraft(kind=kind, subject=subject, data=data)
    log_event(emitter.log, event)
    send_events(emitter, event)


def log_event(log: Any, event: EventDraft) -> None:
    """Write only the log line of an event, for a caller that records the event itself. Nothing is written for
    a kind that has no level."""
    level = KINDS[event.kind].level
    if level is not None:
        getattr(log, level)(event.kind, subject=event.subject, **event.data)


def send_events(emitter: EventEmitter, *events: EventDraft) -> None:
    """Send events to the store, which records all of them in one write; write no log lines."""
    emitter.tell("store", RecordEvents(events=events))
