"""How events that come every few seconds are thinned as they grow old, so that weeks fit on the disk.

The figures of a load are totals since its actor started. What is kept of a stretch is its last event, so
every total that is kept is right; what an actor counted in the minute before it died may be missed.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from dart.telemetry.load_meter import LOAD

EVERY_S = 600.0
"""How often the store looks for what has grown old."""

FLOODING = LOAD
"""The kind that is thinned: with 200 environments it comes 40 times a second. No other comes by the clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """Of what is older than `age_s`, one event of a subject is kept for each `keep_every_s`."""

    age_s: float
    keep_every_s: float


TIERS = (Tier(age_s=3600.0, keep_every_s=60.0), Tier(age_s=86_400.0, keep_every_s=900.0))
"""With 200 environments: 144,000 rows for the newest hour, 276,000 for the day, 19,200 a day before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Events of [begin, end), both multiples of what is kept: one per subject and `keep_every_s` stays."""

    begin_unix_s: float
    end_unix_s: float
    keep_every_s: float


def grown_old(now_unix_s: float, looked_unix_s: float | None) -> Iterator[Stretch]:
    """What has grown old since the last look, `looked_unix_s`; everything before it when there was none."""
    for tier in TIERS:
        end_unix_s = _whole(now_unix_s - tier.age_s, tier.keep_every_s)
        begin_unix_s = 0.0 if looked_unix_s is None else _whole(looked_unix_s - tier.age_s, tier.keep_every_s)
        if begin_unix_s < end_unix_s:
            yield Stretch(begin_unix_s=begin_unix_s, end_unix_s=end_unix_s, keep_every_s=tier.keep_every_s)


def _whole(unix_s: float, every_s: float) -> float:
    return unix_s // every_s * every_s
