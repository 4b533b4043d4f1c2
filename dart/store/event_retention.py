"""Which old LOAD events are deleted, so that a run of weeks fits on the disk.

Every actor sends an event of the kind LOAD (`dart.telemetry.load_meter`) every few seconds; no other kind is
sent periodically. Its figures are totals since the actor started. So one event for a stretch of time is
enough, the last one: its totals include those of the deleted events. If the actor was replaced meanwhile, the
last event of each incarnation is kept.
"""

import math
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from dart.telemetry.load_meter import is_new_incarnation

EVERY_S = 600.0
"""Seconds between two deletions of old events."""

LOOK_EVENTS = 100_000
"""About how many events one deletion looks at: the store carries out nothing else meanwhile. A longer
backlog, as after a restart, takes several deletions."""

LEAST_LOOK_S = 60.0
"""The least time by which a deletion gets further, so that a backlog always comes to its end."""

TIERS = ((3600.0, 60.0), (86_400.0, 900.0))
"""Pairs of an age and an interval, in seconds. Of the events that are older than the age, the last one of
each subject is kept in each interval.

With 200 environments this leaves 144,000 rows for the newest hour, 276,000 for the other 23 hours of the
newest day, and 19,200 for each earlier day."""


WALL_S = re.compile(r'"wall_s": (\d+(?:\.\d+)?(?:e[-+]?\d+)?)')
"""The field `wall_s` in the JSON of an event. A search is faster than a parser, and skips damaged rows."""

ENDS_MOST = 1000
"""Largest number of replaced incarnations in a stretch, because each is a value of the statement."""


class Stretch(NamedTuple):
    """The time from `begin_unix_s` until before `end_unix_s`, both multiples of `keep_every_s`.

    Of the events in each `keep_every_s` of this time, the last one of each subject is kept, and the last one
    of each incarnation that was replaced."""

    begin_unix_s: float
    end_unix_s: float
    keep_every_s: float


class Thinned(NamedTuple):
    """The result of one deletion: the number of deleted events, and the moment until which it looked."""

    deleted: int
    looked_unix_s: float
    is_behind: bool
    """Whether the deletion ended before the present, because it would have taken too long."""


def grown_old(now_unix_s: float, looked_unix_s: float) -> Iterator[Stretch]:
    """The stretches of time that have reached an age of `TIERS` since the last deletion.

    looked_unix_s   when the last deletion was
    """
    for age_s, keep_every_s in TIERS:
        end_unix_s = _whole(now_unix_s - age_s, keep_every_s)
        begin_unix_s = _whole(looked_unix_s - age_s, keep_every_s)
        if begin_unix_s < end_unix_s:
            yield Stretch(begin_unix_s, end_unix_s, keep_every_s)


def last_of_incarnations(loads: Iterable[Any]) -> list[int]:
    """The ids of the load events that are the last of an incarnation which another one replaced.

    loads   rows with `event_id`, `subject`, `unix_s` and `data`, oldest first
    """
    found: list[int] = []
    newest: dict[str, tuple[int, float, float]] = {}
    for load in loads:
        if wall := WALL_S.search(load.data):
            wall_s = float(wall[1])
            event_id, *before = newest.get(load.subject, (0, -math.inf, 0.0))
            if event_id and is_new_incarnation(load.unix_s, wall_s, *before):
                found.append(event_id)
            newest[load.subject] = load.event_id, load.unix_s, wall_s
    return found[-ENDS_MOST:]


def _whole(unix_s: float, every_s: float) -> float:
    return unix_s // every_s * every_s
