"""Line charts over time. Pure: the template asks a chart for SVG attributes.

A chart has no size in pixels: x and y are shares of 1000, of which the template makes percentages, so the
text of a chart is as large on a phone as on a large screen. The plot lies between PLOT_TOP and PLOT_BOTTOM,
with the labels of time below it.
"""

import json
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

SIZE = 1000.0
PLOT_TOP = 60.0
PLOT_BOTTOM = 860.0

DOT_MARGIN = 12.0
"""Least distance of a dot from the left and right edges, so that all of it is visible."""

TICKS = 4
DAY_S = 86400.0

Points = Sequence[tuple[float, float | None]]
"""(unix time, value) in ascending order of time; None is a gap."""


@dataclass(frozen=True, slots=True)
class Series:
    """One line."""

    name: str
    points: Points
    colour: str = "c1"
    """A class of the style sheet."""
    low_high: Sequence[tuple[float, float, float]] = ()
    """(unix time, low, high): a band around the line."""
    is_thin: bool = False


@dataclass(frozen=True, slots=True)
class Dot:
    """A measurement with its interval."""

    unix_s: float
    value: float
    low: float
    high: float
    name: str


@dataclass(frozen=True)
class Chart:
    """Lines and dots over the unix times from `span[0]` to `span[1]`."""

    title: str
    series: Sequence[Series]
    span: tuple[float, float]
    about: str = ""
    dots: Sequence[Dot] = ()
    is_percent: bool = False
    """Whether the values are shares, drawn from 0 to 1."""

    @property
    def is_empty(self) -> bool:
        return not self.dots and all(y is None for one in self.series for _, y in one.points)

    @cached_property
    def top(self) -> float:
        """The value at the top of the plot: 1 for shares, else the first tick at or above all values."""
        most = max((y for one in self.series for _, y in one.points if y is not None), default=1.0)
        if self.is_percent or most <= 0:
            return 1.0
        return math.ceil(most / tick_step(most) - 1e-9) * tick_step(most)

    def x(self, unix_s: float) -> float:
        """The place of a moment."""
        begins, ends = self.span
        return round(SIZE * (unix_s - begins) / (ends - begins), 1)

    def dot_x(self, dot: Dot) -> float:
        return min(SIZE - DOT_MARGIN, max(DOT_MARGIN, self.x(dot.unix_s)))

    def y(self, value: float) -> float:
        """The place of a value; one outside of the plot is moved to its edge."""
        share = min(1.0, max(0.0, value / self.top))
        return round(PLOT_BOTTOM - share * (PLOT_BOTTOM - PLOT_TOP), 1)

    def text(self, value: float) -> str:
        return f"{100 * value:.0f} %" if self.is_percent else figure(value)

    def path(self, points: Points) -> str:
        """The attribute `d` of a line."""
        return path((self.x(at), None if value is None else self.y(value)) for at, value in points)

    def band(self, one: Series) -> str:
        """The attribute `d` of the band around a line; empty for none."""
        if len(one.low_high) < 2:
            return ""
        there = [(self.x(at), self.y(high)) for at, _, high in one.low_high]
        back = [(self.x(at), self.y(low)) for at, low, _ in reversed(one.low_high)]
        return f"{_run([*there, *back])}Z"

    def last(self, one: Series) -> str:
        """The newest value of a line, as text."""
        return next((self.text(value) for _, value in reversed(one.points) if value is not None), "–")

    @property
    def y_ticks(self) -> list[float]:
        step = tick_step(self.top)
        return [round(number * step, 10) for number in range(math.floor(self.top / step + 1e-9) + 1)]

    @property
    def x_ticks(self) -> list[tuple[float, str, str]]:
        """(unix time, label, anchor of the label) of begin, middle and end."""
        begins, ends = self.span
        places = (begins, "start"), ((begins + ends) / 2, "middle"), (ends, "end")
        return [(at, self._time(at), anchor) for at, anchor in places]

    @property
    def readout(self) -> str:
        """JSON for the pointer: for each moment its place, its label, and the values of all lines."""
        texts = [{at: self.text(y) for at, y in one.points if y is not None} for one in self.series]
        moments = sorted({at for one in self.series for at, _ in one.points})
        rows = [[self.x(at), self._time(at), [one.get(at) for one in texts]] for at in moments]
        return json.dumps({"names": [one.name for one in self.series], "rows": rows}, separators=(",", ":"))

    def _time(self, unix_s: float) -> str:
        """Local time of day; with the date where the chart spans over a day, with seconds if it is short."""
        span_s = self.span[1] - self.span[0]
        form = "%d %b %H:%M" if span_s > DAY_S else "%H:%M" if span_s > 600 else "%H:%M:%S"
        return time.strftime(form, time.localtime(unix_s))


def sparkline(points: Points, span: tuple[float, float]) -> str:
    """The path of a share between 0 and 1, in a box of 1000 by 1000; empty when there is nothing to draw."""
    return Chart("", (), span, is_percent=True).path(points)


def path(points: Iterable[tuple[float, float | None]]) -> str:
    """The attribute `d` of a line with gaps; a single point between gaps is a short dash."""
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
    """The distance between about four ticks up to a value: 1, 2 or 5 times a power of ten."""
    rough = top / TICKS
    unit = 10.0 ** math.floor(math.log10(rough))
    return next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough * 0.999)


def figure(value: float) -> str:
    """`12 k`, `340`, `1.5`, `0.02`."""
    if abs(value) >= 1e6:
        return f"{value / 1e6:.3g} M"
    if abs(value) >= 1e4:
        return f"{value / 1e3:.3g} k"
    return f"{value:.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.2g}"
