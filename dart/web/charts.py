"""Series of figures as the geometry of a line chart. Pure: numbers in, SVG attributes out.

The picture has no size in pixels: x and y are shares of 1000, the template makes percentages of them, so the
text of a chart is as large on a phone as on a wall. The plot lies between PLOT_TOP and PLOT_BOTTOM, with the
labels of time below it.
"""

import json
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

SIZE = 1000.0
PLOT_TOP = 60.0
PLOT_BOTTOM = 860.0

DOT_MARGIN = 12.0

DAY_S = 86400.0


@dataclass(frozen=True, slots=True)
class Series:
    """One line. Its points are in ascending order of x; None is a gap."""

    name: str
    points: tuple[tuple[float, float | None], ...]
    colour: str = "c1"
    """A class of the style sheet."""
    low_high: tuple[tuple[float, float, float], ...] = ()
    """(x, low, high): a band around the line."""
    is_thin: bool = False


@dataclass(frozen=True, slots=True)
class Dot:
    """A measurement with its interval."""

    x: float
    y: float
    low: float
    high: float
    name: str


@dataclass(frozen=True, slots=True)
class Tick:
    """A place on an axis, in shares of 1000."""

    at: float
    text: str
    anchor: str = "start"


@dataclass(frozen=True, slots=True)
class LineView:
    """One series, drawn."""

    name: str
    colour: str
    path: str
    band: str
    last: str
    """The newest figure, as text."""
    is_thin: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartView:
    """Everything a template needs to draw a chart."""

    title: str
    about: str
    lines: tuple[LineView, ...]
    dots: tuple[Dot, ...]
    """In shares of 1000."""
    y_ticks: tuple[Tick, ...]
    x_ticks: tuple[Tick, ...]
    readout: str
    """JSON for the pointer: for each x its place, its label, and the figures of all lines."""

    @property
    def is_empty(self) -> bool:
        return not any(line.path for line in self.lines) and not self.dots


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisScale:
    """Which numbers the plot spans, and how they are written."""

    x_low: float
    x_high: float
    y_low: float
    y_high: float
    is_percent: bool = False

    def x(self, value: float) -> float:
        return round(SIZE * _share(value, self.x_low, self.x_high), 1)

    def y(self, value: float) -> float:
        share = min(1.0, max(0.0, _share(value, self.y_low, self.y_high)))
        return round(PLOT_BOTTOM - share * (PLOT_BOTTOM - PLOT_TOP), 1)

    def text(self, value: float) -> str:
        return f"{100 * value:.0f} %" if self.is_percent else figure(value)


def chart(
    title: str,
    series: Sequence[Series],
    span: tuple[float, float],
    *,
    about: str = "",
    dots: Sequence[Dot] = (),
    is_percent: bool = False,
) -> ChartView:
    """A chart over unix time from `span[0]` to `span[1]`; percentages go from 0 to 1."""
    scale = _scale(series, span, is_percent=is_percent)
    return ChartView(
        title=title,
        about=about,
        lines=tuple(_line(one, scale) for one in series),
        dots=tuple(
            Dot(_within(scale.x(dot.x)), scale.y(dot.y), scale.y(dot.low), scale.y(dot.high), dot.name)
            for dot in dots
        ),
        y_ticks=tuple(Tick(scale.y(value), scale.text(value)) for value in ticks(scale.y_low, scale.y_high)),
        x_ticks=_clock_ticks(scale),
        readout=_readout(series, scale),
    )


def sparkline(points: Sequence[tuple[float, float | None]], span: tuple[float, float]) -> str:
    """The path of a share between 0 and 1, in a box of 1000 by 1000; empty when there is nothing to draw."""
    scale = AxisScale(x_low=span[0], x_high=span[1], y_low=0.0, y_high=1.0)
    return path((scale.x(x), None if y is None else scale.y(y)) for x, y in points)


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
    if not rest:
        return f"M{x:g} {y:g}h4"
    return f"M{x:g} {y:g}" + "".join(f"L{x:g} {y:g}" for x, y in rest)


def ticks(low: float, high: float, wanted: int = 4) -> list[float]:
    """Round numbers between two bounds, about as many as wanted: steps of 1, 2 or 5 times a power of ten."""
    if high <= low:
        return [low]
    rough = (high - low) / wanted
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(number * step, 10) for number in range(first, last + 1)]


def figure(value: float) -> str:
    """`12 k`, `340`, `1.5`, `0.02`."""
    if abs(value) >= 1e6:
        return f"{value / 1e6:.3g} M"
    if abs(value) >= 1e4:
        return f"{value / 1e3:.3g} k"
    return f"{value:.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.2g}"


def time_label(unix_s: float, span_s: float) -> str:
    """Local time of day; with the date where the chart spans more than a day, with seconds if it is short."""
    form = "%d %b %H:%M" if span_s > DAY_S else "%H:%M" if span_s > 600 else "%H:%M:%S"
    return time.strftime(form, time.localtime(unix_s))


def _scale(series: Sequence[Series], span: tuple[float, float], *, is_percent: bool) -> AxisScale:
    values = [y for one in series for _, y in one.points if y is not None]
    top = 1.0 if is_percent else _round_up(max(values, default=1.0))
    return AxisScale(x_low=span[0], x_high=span[1], y_low=0.0, y_high=top, is_percent=is_percent)


def _round_up(value: float) -> float:
    """The next tick at or above a value: the top of the plot."""
    if value <= 0:
        return 1.0
    step = ticks(0.0, value)[1] if len(ticks(0.0, value)) > 1 else value
    return math.ceil(value / step - 1e-9) * step


def _line(one: Series, scale: AxisScale) -> LineView:
    known = [y for _, y in one.points if y is not None]
    return LineView(
        name=one.name,
        colour=one.colour,
        path=path((scale.x(x), None if y is None else scale.y(y)) for x, y in one.points),
        band=_band(one, scale),
        last=scale.text(known[-1]) if known else "–",
        is_thin=one.is_thin,
    )


def _band(one: Series, scale: AxisScale) -> str:
    if len(one.low_high) < 2:
        return ""
    there = [(scale.x(x), scale.y(high)) for x, _, high in one.low_high]
    back = [(scale.x(x), scale.y(low)) for x, low, _ in reversed(one.low_high)]
    return f"{_run([*there, *back])}Z"


def _clock_ticks(scale: AxisScale) -> tuple[Tick, ...]:
    """Begin, middle and end."""
    span_s = scale.x_high - scale.x_low
    places = ((0.0, "start"), (0.5, "middle"), (1.0, "end"))
    return tuple(
        Tick(SIZE * share, time_label(scale.x_low + share * span_s, span_s), anchor)
        for share, anchor in places
    )


def _readout(series: Sequence[Series], scale: AxisScale) -> str:
    figures = [dict(one.points) for one in series]
    moments = sorted({x for one in figures for x in one})
    span_s = scale.x_high - scale.x_low
    rows = [
        [
            scale.x(x),
            time_label(x, span_s),
            [None if one.get(x) is None else scale.text(float(one[x] or 0.0)) for one in figures],
        ]
        for x in moments
    ]
    return json.dumps({"names": [one.name for one in series], "rows": rows}, separators=(",", ":"))


def _within(x: float) -> float:
    """Move a place away from the edges, so that a dot is seen whole."""
    return min(SIZE - DOT_MARGIN, max(DOT_MARGIN, x))


def _share(value: float, low: float, high: float) -> float:
    return 0.0 if high <= low else (value - low) / (high - low)
