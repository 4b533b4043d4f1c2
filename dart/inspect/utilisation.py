"""How much of its time each actor of a run spent on what. Pure.

The sources are the load events (`dart.telemetry.load_meter`: totals since an actor started, every few
seconds). A window cuts off the warm-up; inside a reporting interval an actor counts as evenly busy. The
utilisation of a kind of actors is the time spent in its activity, divided by the number of actors times the
wall time. An environment that is down counts like any other: its time is unused.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from dart.core.records import Event

ACTIVITIES = {
    "environments": ("env-", "in_episode_s"),
    "engines": ("rollout-", "busy_s"),
    "trainer": ("trainer", "update_s"),
}
"""Kinds of actors: how their names begin, and the time that counts as used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeWindow:
    """The part of a run that is measured, in unix seconds."""

    begins_unix_s: float
    ends_unix_s: float

    def __post_init__(self) -> None:
        if self.seconds <= 0:
            raise ValueError(
                f"a window must end after it begins, got {self.begins_unix_s} to {self.ends_unix_s}: "
                "the run made too few updates after its warm-up"
            )

    @property
    def seconds(self) -> float:
        return self.ends_unix_s - self.begins_unix_s

    def holds(self, unix_s: float | None) -> bool:
        """Whether a moment lies in it; its begin does not, so that windows in a row count nothing twice."""
        return unix_s is not None and self.begins_unix_s < unix_s <= self.ends_unix_s

    def share(self, begins_unix_s: float, ends_unix_s: float) -> float:
        """Which share of an interval lies in it."""
        if ends_unix_s <= begins_unix_s:
            return float(self.holds(ends_unix_s))
        begins, ends = max(begins_unix_s, self.begins_unix_s), min(ends_unix_s, self.ends_unix_s)
        return max(0.0, ends - begins) / (ends_unix_s - begins_unix_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPoint:
    """What one actor had counted at one moment since it started; `wall_s` among it."""

    actor: str
    unix_s: float
    totals: Mapping[str, float]

    @property
    def started_unix_s(self) -> float:
        return self.unix_s - self.totals["wall_s"]


def load_points(events: Sequence[Event]) -> list[LoadPoint]:
    """What load events say, as figures."""
    return [
        LoadPoint(
            actor=event.subject,
            unix_s=event.unix_s,
            totals={name: float(str(value)) for name, value in event.data.items()},
        )
        for event in events
        if "wall_s" in event.data
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class UtilisationInterval:
    """What one actor counted from one moment to the next."""

    actor: str
    begins_unix_s: float
    ends_unix_s: float
    amounts: Mapping[str, float]


def intervals(points: Iterable[LoadPoint]) -> Iterator[UtilisationInterval]:
    """From each of an actor's points to its next, and from its start to the first, in every incarnation."""
    in_order = sorted(points, key=lambda point: (point.actor, point.unix_s))
    for actor, own in groupby(in_order, key=lambda point: point.actor):
        before: LoadPoint | None = None
        for point in own:
            earlier = before if before is not None and _is_same_life(before, point) else None
            counted = {} if earlier is None else earlier.totals
            yield UtilisationInterval(
                actor=actor,
                begins_unix_s=point.started_unix_s if earlier is None else earlier.unix_s,
                ends_unix_s=point.unix_s,
                amounts={name: total - counted.get(name, 0.0) for name, total in point.totals.items()},
            )
            before = point


def spent(points: Iterable[LoadPoint], window: TimeWindow) -> dict[str, dict[str, float]]:
    """What each actor counted within the window: actor to name to amount, over all its incarnations."""
    found: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for interval in intervals(points):
        share = window.share(interval.begins_unix_s, interval.ends_unix_s)
        for name, amount in interval.amounts.items():
            found[interval.actor][name] += share * amount
    return {actor: dict(amounts) for actor, amounts in found.items()}


def _is_same_life(before: LoadPoint, point: LoadPoint) -> bool:
    """A new incarnation counts from zero, and started after the last word of the one before."""
    return point.totals["wall_s"] >= before.totals["wall_s"] and point.started_unix_s < before.unix_s


def total(counted: Mapping[str, Mapping[str, float]], prefix: str, name: str) -> float:
    """Sum what `spent` found under one name over all actors whose names begin so."""
    return sum(amounts.get(name, 0.0) for actor, amounts in counted.items() if actor.startswith(prefix))
