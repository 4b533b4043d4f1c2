"""Emission of events: one call writes the log, the record and, through the record, the metrics.

An event is a line in the log of its emitter and a row of the record's table `events`; the metric
`dartrl_events_total` counts those rows. `dart.telemetry.events` declares all kinds, fields and levels.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from dart.core.messages import EventDraft, RecordEvents
from dart.telemetry.events import KINDS

Data = Mapping[str, str | int | float | bool | None]


class EventEmitter(Protocol):
    """What can emit events, with a log and messages to the store: an actor, or the main process of a run."""

    @property
    def log(self) -> Any:
        """The structlog logger."""

    def tell(self, to: str, content: Any, /) -> bool:
        """Send a message to an actor; False when the actor does not run."""


def emit(emitter: EventEmitter, kind: str, subject: str, data: Data) -> None:
    """Log an event and record it. The emitter does not wait for the store, so an event may get lost."""
    event = EventDraft(kind=kind, subject=subject, data=data)
    log_event(emitter.log, event)
    send_events(emitter, event)


def log_event(log: Any, event: EventDraft) -> None:
    """Write only the log line of an event, for callers that record the event in another way."""
    level = KINDS[event.kind].level
    if level is not None:
        getattr(log, level)(event.kind, subject=event.subject, **event.data)


def send_events(emitter: EventEmitter, *events: EventDraft) -> None:
    """Record events without log lines, all in one write."""
    emitter.tell("store", RecordEvents(events=events))
