"""Compute how much time each actor of a run spent in each activity, and how many actors the run had.

The sources are two kinds of events. Every actor emits a load event every few seconds, with its totals since
its start (`dart.telemetry.load_meter`). The events `pools_sized` say how many environments and engines there
are. Between two load events an actor counts as evenly busy. The utilisation of a kind of actor is the time
that these actors spent in its activity, divided by their number times the wall time. An environment that is
down counts, too: its time is unused.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

from dart.core.records import Event
from dart.telemetry.load_meter import is_new_incarnation

if TYPE_CHECKING:
    from dart.config.config import Config

ACTIVITIES = {
    "environments": ("env-", "in_episode_s"),
    "engines": ("rollout-", "busy_s"),
    "trainer": ("trainer", "update_s"),
}
"""For each kind of actor: the prefix of its names, and the field of load events that is its used time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeWindow:
    """The part of a run that is measured, in unix seconds."""

    begins_unix_s: float
    ends_unix_s: float

    def __post_init__(self) -> None:
        if self.seconds <= 0:
            raise ValueError(
                f"expected a window that ends after it begins, got {self.begins_unix_s} to "
                f"{self.ends_unix_s}: the run made too few updates after its warm-up; let it run longer"
            )

    @property
    def seconds(self) -> float:
        return self.ends_unix_s - self.begins_unix_s

    def holds(self, unix_s: float | None) -> bool:
        """Whether a moment lies in the window: after its begin, at most at its end. False for None."""
        return unix_s is not None and self.begins_unix_s < unix_s <= self.ends_unix_s

    def share(self, begins_unix_s: float, ends_unix_s: float) -> float:
        """Return the share of an interval, 0 to 1, that lies in the window."""
        if ends_unix_s <= begins_unix_s:
            return float(self.holds(ends_unix_s))
        begins, ends = max(begins_unix_s, self.begins_unix_s), min(ends_unix_s, self.ends_unix_s)
        return max(0.0, ends - begins) / (ends_unix_s - begins_unix_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class UtilisationInterval:
    """What one actor counted between two moments: amounts, by the field of its load events."""

    actor: str
    begins_unix_s: float
    ends_unix_s: float
    amounts: Mapping[str, float]


def intervals(load: Iterable[Event], apart_s: float = 0.0) -> Iterator[UtilisationInterval]:
    """Yield what each actor counted between each load event and its next one.

    The first interval of an incarnation begins at its start and ends at its first load event.

    load      load events in any order
    apart_s   usual time between two places of a sample of events, or 0 for all events. If an actor was
              replaced between two places, the time between its last event before and the start of the later
              incarnation counts as busy as the two incarnations were on average
    """
    in_order = sorted(load, key=lambda event: (event.subject, event.unix_s))
    for actor, own in groupby(in_order, key=lambda event: event.subject):
        before_unix_s, before = -math.inf, dict[str, float]()
        for event in own:
            totals = {name: float(str(value)) for name, value in event.data.items()}
            started_unix_s = event.unix_s - totals["wall_s"]
            if is_new_incarnation(event.unix_s, totals["wall_s"], before_unix_s, before.get("wall_s", 0.0)):
                if 0.0 < started_unix_s - before_unix_s <= apart_s:
                    yield _between(actor, before_unix_s, started_unix_s, before, totals)
                before_unix_s, before = started_unix_s, {}  # a new incarnation, which counts from 0
            yield UtilisationInterval(
                actor=actor,
                begins_unix_s=before_unix_s,
                ends_unix_s=event.unix_s,
                amounts={name: amount - before.get(name, 0.0) for name, amount in totals.items()},
            )
            before_unix_s, before = event.unix_s, totals


def _between(
    actor: str,
    begins_unix_s: float,
    ends_unix_s: float,
    before: Mapping[str, float],
    after: Mapping[str, float],
) -> UtilisationInterval:
    """Estimate what an actor counted in a time of which a sample has no event, from the totals around it."""
    share = (ends_unix_s - begins_unix_s) / max(before["wall_s"] + after["wall_s"], 1.0)
    amounts = {name: share * (before.get(name, 0.0) + amount) for name, amount in after.items()}
    return UtilisationInterval(
        actor=actor, begins_unix_s=begins_unix_s, ends_unix_s=ends_unix_s, amounts=amounts
    )


def spent(load: Iterable[Event], window: TimeWindow, apart_s: float = 0.0) -> dict[str, dict[str, float]]:
    """Sum what each actor counted within the window, over all its incarnations.

    apart_s   see `intervals`

    Returns {actor: {field of its load events: amount}}.
    """
    found: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for interval in intervals(load, apart_s):
        share = window.share(interval.begins_unix_s, interval.ends_unix_s)
        for name, amount in interval.amounts.items():
            found[interval.actor][name] += share * amount
    return {actor: dict(amounts) for actor, amounts in found.items()}


def worked(load: Iterable[Event], window: TimeWindow, apart_s: float = 0.0) -> tuple[TimeWindow, ...]:
    """Return the parts of a window in which at least one actor ran, oldest first.

    What lies between them is the time in which the run was stopped. Without any load event the whole window
    counts, because nothing is known.

    apart_s   see `intervals`
    """
    parts: list[TimeWindow] = []
    for interval in sorted(intervals(load, apart_s), key=lambda interval: interval.begins_unix_s):
        begins = max(interval.begins_unix_s, window.begins_unix_s)
        ends = min(interval.ends_unix_s, window.ends_unix_s)
        if parts and begins <= parts[-1].ends_unix_s:
            begins, ends = parts[-1].begins_unix_s, max(ends, parts.pop().ends_unix_s)
        if begins < ends:
            parts.append(TimeWindow(begins_unix_s=begins, ends_unix_s=ends))
    return tuple(parts) or (window,)


def total(counted: Mapping[str, Mapping[str, float]], prefix: str, name: str) -> float:
    """Sum one field over all actors whose names begin with `prefix`.

    counted   the result of `spent`
    name      the field, such as `busy_s`
    """
    return sum(amounts.get(name, 0.0) for actor, amounts in counted.items() if actor.startswith(prefix))


# ---- how many there were ----


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many actors of one kind a run had over time."""

    changes: tuple[tuple[float, int], ...]
    """(unix seconds, number), oldest first; the first number also holds for the time before."""

    def mean(self, begins_unix_s: float, ends_unix_s: float) -> float:
        """The mean number of actors between two moments."""
        if ends_unix_s <= begins_unix_s:
            return float(self._at(begins_unix_s))
        inside = [at for at, _ in self.changes if begins_unix_s < at < ends_unix_s]
        parts = pairwise([begins_unix_s, *inside, ends_unix_s])
        return sum(self._at(low) * (high - low) for low, high in parts) / (ends_unix_s - begins_unix_s)

    def most(self) -> int:
        """The largest number of actors at any time."""
        return max(count for _, count in self.changes)

    def _at(self, unix_s: float) -> int:
        return next((count for at, count in reversed(self.changes) if at <= unix_s), self.changes[0][1])


def sizes_in(config: "Config") -> dict[str, int]:
    """Return the configured numbers of environments and engines, as the fields of an event `pools_sized`."""
    return {"environments": config.environments.count, "engines": config.rollout.count}


def sizes_of(events: Sequence[Event], config: "Config") -> dict[str, Sizes]:
    """Return how many actors the run had over time, by kind: trainer, environments and engines.

    events   the events `pools_sized`, oldest first
    config   has the numbers that are used if there are no such events
    """
    found = {"trainer": Sizes(((0.0, 1),))}
    for kind, now in sizes_in(config).items():
        changes = tuple((event.unix_s, int(str(event.data[kind]))) for event in events)
        found[kind] = Sizes(changes or ((0.0, now),))
    return found
