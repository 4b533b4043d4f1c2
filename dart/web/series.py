"""Shares and rates over the time of a run, in bins of equal length. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass

from dart.core.records import Event
from dart.core.statistics import Score
from dart.inspect.utilisation import Sizes, UtilisationInterval, intervals
from dart.telemetry.liveness import ACTOR_SILENT_S

Points = tuple[tuple[float, float | None], ...]

MINUTE_S = 60.0
EPISODES_PER_POINT = 100
"""Episodes behind each point of the success curve; its 95 % interval is about ±10 %."""

KNOWN_SHARE = 0.25
"""The last bin is drawn only if at least this share of it is covered by load events."""

POINTS_MIN = 4
"""A short run gets points of fewer episodes, so that there are this many that do not overlap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bins:
    """A stretch of time, cut into equal parts."""

    begins_unix_s: float
    ends_unix_s: float
    count: int

    @property
    def span(self) -> tuple[float, float]:
        return self.begins_unix_s, self.ends_unix_s

    @property
    def width_s(self) -> float:
        return (self.ends_unix_s - self.begins_unix_s) / self.count

    @property
    def ends(self) -> tuple[float, ...]:
        """The moment at which each part ends: where its figure is drawn."""
        return tuple(self.begins_unix_s + (index + 1) * self.width_s for index in range(self.count))

    def index(self, unix_s: float) -> int:
        """The part a moment lies in; the nearest one for a moment outside."""
        return min(self.count - 1, max(0, int((unix_s - self.begins_unix_s) / self.width_s)))


@dataclass(frozen=True, slots=True)
class EpisodeCounts:
    """Episodes that were stored within one bin."""

    episodes: int
    successes: int
    steps: int

    def __add__(self, other: "EpisodeCounts") -> "EpisodeCounts":
        return EpisodeCounts(*(sum(both) for both in zip(astuple(self), astuple(other), strict=True)))


NOTHING = EpisodeCounts(0, 0, 0)


def utilisation_over_time(
    load: Iterable[Event], bins: Bins, prefix: str, activity: str, sizes: Sizes
) -> Points:
    """The share of time that a kind of actors spent in an activity, in each bin; None without a load event.

    prefix   how the names of these actors begin
    sizes    how many of them there were
    The time after the last load event that all live actors have sent is not drawn.
    """
    own = [event for event in load if event.subject.startswith(prefix)]
    until_s = _known_until(own)
    spent_s: defaultdict[int, float] = defaultdict(float)
    for interval in intervals(own):
        for index, share in _shares(interval, bins, until_s):
            spent_s[index] += share * interval.amounts.get(activity, 0.0)

    def used(index: int, end: float) -> float | None:
        known_s = min(end, until_s) - (end - bins.width_s)
        if index not in spent_s or known_s < KNOWN_SHARE * bins.width_s:
            return None
        begins = end - bins.width_s
        return min(1.0, spent_s[index] / (sizes.mean(begins, begins + known_s) * known_s))

    return tuple((end, used(index, end)) for index, end in enumerate(bins.ends))


def _known_until(load: Iterable[Event]) -> float:
    """The time up to which every actor has reported; actors that are silent for long are left out."""
    last: dict[str, float] = {}
    for event in load:
        last[event.subject] = max(event.unix_s, last.get(event.subject, 0.0))
    newest = max(last.values(), default=0.0)
    return min((unix_s for unix_s in last.values() if unix_s > newest - ACTOR_SILENT_S), default=0.0)


def _shares(interval: UtilisationInterval, bins: Bins, until_s: float) -> Iterable[tuple[int, float]]:
    """The bins an interval overlaps before a moment, and which share of it lies in each."""
    begins, ends = interval.begins_unix_s, interval.ends_unix_s
    for index in range(bins.index(begins), bins.index(ends) + 1):
        low = bins.begins_unix_s + index * bins.width_s
        overlap = min(ends, low + bins.width_s, until_s) - max(begins, low)
        if overlap > 0:
            yield index, overlap / (ends - begins)


def success_over_time(
    played: Mapping[int, EpisodeCounts], bins: Bins, *, episodes: int = EPISODES_PER_POINT
) -> list[tuple[float, Score]]:
    """The success of the newest episodes at the end of each bin in which one ended.

    episodes   behind each point, at least; fewer where the whole stretch has few
    """
    total = sum(one.episodes for one in played.values())
    wanted = max(1, min(episodes, total // POINTS_MIN))
    found, window = [], list[EpisodeCounts]()
    for index, end in enumerate(bins.ends):
        if index not in played or not played[index].episodes:
            continue
        window.append(played[index])
        while sum(one.episodes for one in window[1:]) >= wanted:
            window.pop(0)
        behind = sum(one.episodes for one in window)
        if behind >= wanted:
            found.append((end, Score(sum(one.successes for one in window), behind)))
    return found


def per_minute(counts: Mapping[int, float], bins: Bins) -> Points:
    """Counts of bins as rates per minute; a bin without a count has the rate 0."""
    return tuple(
        (end, MINUTE_S * counts.get(index, 0.0) / bins.width_s) for index, end in enumerate(bins.ends)
    )
