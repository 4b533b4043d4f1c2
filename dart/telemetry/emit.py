"""Telling that something happened: one call that feeds the log, the record and, counted there, the metrics.

The event is a line in the log of whoever tells it, a row of the record's table `events`, and one more in the
metric `dartrl_events_total`, which counts those rows. Kinds, fields and levels are declared in
`dart.telemetry.events` and nowhere else.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from dart.core.messages import EventDraft, RecordEvents
from dart.telemetry.events import KINDS

Data = Mapping[str, str | int | float | bool | None]


class EventEmitter(Protocol):
    """Who has a log and reaches the store: every actor, and the main process of a run."""

    @property
    def log(self) -> Any:
        """Of structlog."""

    def tell(self, to: str, content: Any, /) -> bool:
        """Send to an actor; False when it is not there."""


def emit(speaker: EventEmitter, kind: str, subject: str, data: Data) -> None:
    """Log an event and record it. It is told, not asked: one that gets lost on its way changes nothing."""
    event = EventDraft(kind=kind, subject=subject, data=data)
    log_event(speaker.log, event)
    send_events(speaker, event)


def log_event(log: Any, event: EventDraft) -> None:
    """Only its line of the log: for whoever records it otherwise, with others or in a transaction."""
    level = KINDS[event.kind].level
    if level is not None:
        getattr(log, level)(event.kind, subject=event.subject, **event.data)


def send_events(speaker: EventEmitter, *events: EventDraft) -> None:
    """Only the rows of the record, all in one write."""
    speaker.tell("store", RecordEvents(events=events))
