"""Which old LOAD events are deleted, so that a run of weeks fits on the disk.

Every actor sends a LOAD event every few seconds. Its figures are totals since the actor started, so the last
event of a stretch of time is enough: each total that is kept is right. Only what an actor counted in the last
minute before it died may be lost.
"""

from collections.abc import Iterator
from typing import NamedTuple

from dart.telemetry.load_meter import LOAD

EVERY_S = 600.0
"""Seconds between two deletions of old events."""

FLOODING = LOAD
"""The kind whose old events are deleted: the only kind sent periodically, 40 a second by 200 environments."""


TIERS = ((3600.0, 60.0), (86_400.0, 900.0))
"""Ages and intervals, in seconds: of events older than the age, one per subject and interval is kept.

With 200 environments: 144,000 rows for the newest hour, 276,000 for the day, 19,200 a day before it."""


class Stretch(NamedTuple):
    """The events of [begin, end), of which one per subject and `keep_every_s` is kept.

    Begin and end are multiples of `keep_every_s`."""

    begin_unix_s: float
    end_unix_s: float
    keep_every_s: float


def grown_old(now_unix_s: float, looked_unix_s: float | None) -> Iterator[Stretch]:
    """The stretches that have become old enough since the last deletion, at `looked_unix_s`; None: all."""
    for age_s, keep_every_s in TIERS:
        end_unix_s = _whole(now_unix_s - age_s, keep_every_s)
        begin_unix_s = 0.0 if looked_unix_s is None else _whole(looked_unix_s - age_s, keep_every_s)
        if begin_unix_s < end_unix_s:
            yield Stretch(begin_unix_s, end_unix_s, keep_every_s)


def _whole(unix_s: float, every_s: float) -> float:
    return unix_s // every_s * every_s
