"""Line charts over the time of a run, and the shares and rates that they show. No I/O.

The template asks a chart for SVG attributes. A chart has no size in pixels: x and y are numbers from 0 to
1000, and the template turns them into percentages. So the text of a chart has the same size on a phone as on
a large screen. The plot lies between PLOT_TOP and PLOT_BOTTOM, with the labels of time below it.
"""

import json
import math
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from dart.core.records import Event
from dart.core.statistics import Score
from dart.inspect.formatting import percent
from dart.inspect.learning_curve import window_for
from dart.inspect.utilisation import Sizes, intervals
from dart.telemetry.liveness import ACTOR_SILENT_S

Points = Sequence[tuple[float, float | None]]
"""Pairs of unix time in seconds and value, in ascending order of time; a value of None is a gap."""


class EpisodeCounts(NamedTuple):
    """How many episodes, successes and environment steps were stored within one bin of time."""

    episodes: int
    successes: int
    steps: int


MINUTE_S = 60.0
EPISODES_PER_POINT = 100
"""Number of episodes for each point of the success curve. The 95 % interval of so many independent episodes
is about ±10 percentage points. Episodes of a group are alike, so the true one is about twice as wide."""

KNOWN_SHARE = 0.25
"""Smallest share of a bin that load events must cover, so that the value of the bin is drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bins:
    """A stretch of time, cut into `count` equal bins."""

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
        """The moment at which each bin ends, in unix seconds; the value of a bin is drawn there."""
        return tuple(self.begins_unix_s + (index + 1) * self.width_s for index in range(self.count))

    def index(self, unix_s: float) -> int:
        """Return the index of the bin in which a moment lies; the nearest bin for a moment outside."""
        return min(self.count - 1, max(0, int((unix_s - self.begins_unix_s) / self.width_s)))


def utilisation_over_time(
    load: Iterable[Event],
    bins: Bins,
    prefix: str,
    activity: str,
    sizes: Sizes,
    apart_s: float = 0.0,
    silent_s: float = ACTOR_SILENT_S,
) -> Points:
    """Return the share of time that a kind of actor spent in an activity, 0 to 1, for each bin.

    The value of a bin is None if the bin has no load events, or if not every live actor has sent a load event
    for enough of it yet (`KNOWN_SHARE`).

    prefix     prefix of the names of these actors
    activity   field of their load events that has the time spent, such as `busy_s`
    sizes      how many of these actors there were over time
    apart_s    usual time between two places of a sample of events (`dart.inspect.utilisation.intervals`)
    silent_s   an actor does not count as live if its last load event is more than this older than the newest
               one of all; it is longer than the interval at which actors send load events
    """
    own = [event for event in load if event.subject.startswith(prefix)]
    until_s = _known_until(own, silent_s)
    spent_s: defaultdict[int, float] = defaultdict(float)
    for interval in intervals(own, apart_s):
        begins, ends = interval.begins_unix_s, interval.ends_unix_s
        for index in range(bins.index(begins), bins.index(ends) + 1):
            low = bins.begins_unix_s + index * bins.width_s
            overlap_s = min(ends, low + bins.width_s, until_s) - max(begins, low)
            if overlap_s > 0:
                spent_s[index] += overlap_s / (ends - begins) * interval.amounts.get(activity, 0.0)

    def used(index: int, end: float) -> float | None:
        known_s = min(end, until_s) - (end - bins.width_s)
        if index not in spent_s or known_s < KNOWN_SHARE * bins.width_s:
            return None
        begins = end - bins.width_s
        return min(1.0, spent_s[index] / (sizes.mean(begins, begins + known_s) * known_s))

    return tuple((end, used(index, end)) for index, end in enumerate(bins.ends))


def _known_until(load: Iterable[Event], silent_s: float) -> float:
    """Return the unix time up to which every live actor has sent a load event; 0 if there are no events.

    An actor does not count as live if its last event is more than `silent_s` older than the newest event of
    all.
    """
    last: dict[str, float] = {}
    for event in load:
        last[event.subject] = max(event.unix_s, last.get(event.subject, 0.0))
    newest = max(last.values(), default=0.0)
    return min((unix_s for unix_s in last.values() if unix_s > newest - silent_s), default=0.0)


def success_over_time(
    played: Mapping[int, EpisodeCounts], bins: Bins, *, episodes: int = EPISODES_PER_POINT
) -> list[tuple[float, Score]]:
    """Return pairs of unix time and success rate: one for the end of each bin in which an episode ended.

    Each rate is that of the newest episodes at that time. Bins before there are enough episodes have no pair.

    played     counts of episodes, by the index of the bin; a bin without episodes is not a key
    episodes   smallest number of episodes for a rate; a short run needs fewer (`window_for`)
    """
    wanted = window_for(sum(one.episodes for one in played.values()), episodes)
    found, window = [], list[EpisodeCounts]()
    for index, end in enumerate(bins.ends):
        if index not in played:
            continue
        window.append(played[index])
        while sum(one.episodes for one in window[1:]) >= wanted:
            window.pop(0)
        behind = sum(one.episodes for one in window)
        if behind >= wanted:
            found.append((end, Score(sum(one.successes for one in window), behind)))
    return found


def per_minute(counts: Mapping[int, float], bins: Bins) -> Points:
    """Convert counts, by index of the bin, into rates per minute; a bin without a count has the rate 0."""
    return tuple(
        (end, MINUTE_S * counts.get(index, 0.0) / bins.width_s) for index, end in enumerate(bins.ends)
    )


SIZE = 1000.0
PLOT_TOP = 60.0
PLOT_BOTTOM = 860.0

DOT_MARGIN = 12.0
"""Smallest distance of a dot from the left and right edges, so that the whole dot is visible."""

TICKS = 4
DAY_S = 86400.0


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a chart."""

    name: str
    points: Points
    colour: str = "c1"
    """CSS class that gives the line its colour."""
    low_high: Sequence[tuple[float, float, float]] = ()
    """The band around the line: triples of unix time, lowest and highest value."""
    is_thin: bool = False


@dataclass(frozen=True, slots=True)
class Dot:
    """A single measurement in a chart, with its confidence interval."""

    unix_s: float
    value: float
    low: float
    high: float
    name: str


@dataclass(frozen=True)
class Chart:
    """Lines and dots over the time from `span[0]` to `span[1]`, in unix seconds."""

    title: str
    series: Sequence[Series]
    span: tuple[float, float]
    about: str = ""
    empty: str = ""
    """What is shown in place of the plot if there are no values."""
    dots: Sequence[Dot] = ()
    is_percent: bool = False
    """Whether the values are shares, drawn from 0 to 1."""

    @property
    def is_empty(self) -> bool:
        return not self.dots and all(y is None for one in self.series for _, y in one.points)

    @cached_property
    def top(self) -> float:
        """The value at the top of the plot: 1 for shares, else the lowest tick that no value exceeds."""
        most = max((y for one in self.series for _, y in one.points if y is not None), default=1.0)
        if self.is_percent or most <= 0:
            return 1.0
        return math.ceil(most / tick_step(most) - 1e-9) * tick_step(most)

    def x(self, unix_s: float) -> float:
        """Return the x coordinate of a moment."""
        begins, ends = self.span
        return round(SIZE * (unix_s - begins) / (ends - begins), 1)

    def dot_x(self, dot: Dot) -> float:
        return min(SIZE - DOT_MARGIN, max(DOT_MARGIN, self.x(dot.unix_s)))

    def y(self, value: float) -> float:
        """Return the y coordinate of a value; a value outside the plot is moved to its edge."""
        share = min(1.0, max(0.0, value / self.top))
        return round(PLOT_BOTTOM - share * (PLOT_BOTTOM - PLOT_TOP), 1)

    def text(self, value: float) -> str:
        return percent(value) if self.is_percent else figure(value)

    def path(self, points: Points) -> str:
        """Return the attribute `d` of the SVG path of a line."""
        return path((self.x(at), None if value is None else self.y(value)) for at, value in points)

    def band(self, one: Series) -> str:
        """Return the attribute `d` of the SVG path of the band around a line; empty without a band."""
        if len(one.low_high) < 2:
            return ""
        there = [(self.x(at), self.y(high)) for at, _, high in one.low_high]
        back = [(self.x(at), self.y(low)) for at, low, _ in reversed(one.low_high)]
        return f"{_run([*there, *back])}Z"

    def last(self, one: Series) -> str:
        """Return the newest value of a line as text; a dash if there is none."""
        return next((self.text(value) for _, value in reversed(one.points) if value is not None), "–")

    @property
    def y_ticks(self) -> list[float]:
        step = tick_step(self.top)
        return [round(number * step, 10) for number in range(math.floor(self.top / step + 1e-9) + 1)]

    @property
    def x_ticks(self) -> list[tuple[float, str, str]]:
        """Unix time, label and SVG `text-anchor` at the begin, middle and end of the time axis."""
        begins, ends = self.span
        places = (begins, "start"), ((begins + ends) / 2, "middle"), (ends, "end")
        return [(at, self._time(at), anchor) for at, anchor in places]

    @cached_property
    def moments(self) -> list[float]:
        """The moments whose values a reader can ask for, in unix seconds."""
        return sorted({at for one in self.series for at, _ in one.points})

    @property
    def readout(self) -> str:
        """JSON with the values for the mouse pointer and the keys: x, label and the value of each line, by
        moment."""
        texts = [{at: self.text(y) for at, y in one.points if y is not None} for one in self.series]
        rows = [[self.x(at), self._time(at), [one.get(at) for one in texts]] for at in self.moments]
        return json.dumps(rows, separators=(",", ":"))

    def _time(self, unix_s: float) -> str:
        """Format a moment as local time: with date in charts over a day, with seconds up to 10 minutes."""
        span_s = self.span[1] - self.span[0]
        form = "%d %b %H:%M" if span_s > DAY_S else "%H:%M" if span_s > 600 else "%H:%M:%S"
        return time.strftime(form, time.localtime(unix_s))


def sparkline(points: Points, span: tuple[float, float]) -> str:
    """Draw values in [0, 1] as an SVG path in a box of 1000 x 1000; empty without points."""
    return Chart("", (), span, is_percent=True).path(points)


def path(points: Iterable[tuple[float, float | None]]) -> str:
    """Return the attribute `d` of the SVG path of a line with gaps; a single point is a short dash."""
    runs: list[list[tuple[float, float]]] = [[]]
    for x, y in points:
        if y is None:
            runs.append([])
        else:
            runs[-1].append((x, y))
    return " ".join(_run(run) for run in runs if run)


def _run(run: Sequence[tuple[float, float]]) -> str:
    (x, y), *rest = run
    return f"M{x:g} {y:g}" + ("".join(f"L{x:g} {y:g}" for x, y in rest) or "h4")


def tick_step(top: float) -> float:
    """Return the distance between ticks: 1, 2 or 5 times a power of ten, for about four ticks up to `top`."""
    rough = top / TICKS
    unit = 10.0 ** math.floor(math.log10(rough))
    return next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough * 0.999)


def figure(value: float) -> str:
    """Format a number as short text: `12 k`, `340`, `1.5` or `0.02`."""
    if abs(_rounded(value, 3)) >= 1e6:
        return f"{_rounded(value / 1e6, 3):g} M"
    if abs(round(value)) >= 1e4:
        return f"{_rounded(value / 1e3, 3):g} k"
    return f"{value:.0f}" if abs(value) >= 100 or value == int(value) else f"{_rounded(value, 2):g}"


def _rounded(value: float, digits: int) -> float:
    """Round to a number of significant digits. A value may get another digit by this: 99.6 becomes 100."""
    return float(f"{value:.{digits}g}")
