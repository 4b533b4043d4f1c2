"""Figures as the geometry of a chart."""

import json
import re

import pytest

from dart.web.charts import (
    DOT_MARGIN,
    PLOT_BOTTOM,
    PLOT_TOP,
    SIZE,
    Chart,
    Dot,
    Series,
    figure,
    path,
    sparkline,
)


@pytest.mark.parametrize(
    ("most", "expected"),
    [
        (1.0, [0.0, 0.5, 1.0]),
        (7.2, [0.0, 2.0, 4.0, 6.0, 8.0]),
        (0.03, [0.0, 0.01, 0.02, 0.03]),
        (12_000.0, [0.0, 5000.0, 10_000.0, 15_000.0]),
        (0.0, [0.0, 0.5, 1.0]),
    ],
)
def test_ticks_are_round_numbers_up_to_the_next_above_all_figures(most: float, expected: list[float]) -> None:
    assert Chart("t", [Series("s", ((0.0, most),))], (0.0, 100.0)).y_ticks == pytest.approx(expected)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (3.0, "3"),
        (1.5, "1.5"),
        (0.021, "0.021"),
        (340.4, "340"),
        (99.4, "99"),
        (99.5, "100"),
        (99.6, "100"),
        (-99.6, "-100"),
        (9_999.0, "9999"),
        (9_999.9, "10 k"),
        (12_300.0, "12.3 k"),
        (999_499.0, "999 k"),
        (999_999.0, "1 M"),
        (999.9e6, "1000 M"),
        (2e6, "2 M"),
    ],
)
def test_figures_are_short(value: float, text: str) -> None:
    assert figure(value) == text


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ([], ""),
        ([(0.0, None), (1.0, None)], ""),
        ([(0.0, 1.0), (10.0, 2.0)], "M0 1L10 2"),
        ([(0.0, 1.0), (10.0, None), (20.0, 3.0), (30.0, 4.0)], "M0 1h4 M20 3L30 4"),
    ],
)
def test_a_path_has_gaps_where_nothing_is_known(
    points: list[tuple[float, float | None]], expected: str
) -> None:
    assert path(points) == expected


def test_a_share_is_drawn_between_the_bottom_and_the_top_of_the_plot() -> None:
    line = Series("s", ((0.0, 0.0), (50.0, 1.0), (100.0, 0.25)))

    chart = Chart("t", [line], (0.0, 100.0), is_percent=True)

    assert chart.path(line.points) == f"M0 {PLOT_BOTTOM:g}L500 {PLOT_TOP:g}L1000 660"
    assert [chart.text(value) for value in chart.y_ticks] == ["0 %", "50 %", "100 %"]
    assert chart.last(line) == "25 %"


def test_the_top_of_other_figures_is_the_next_round_number() -> None:
    chart = Chart("t", [Series("s", ((0.0, 7.2),))], (0.0, 100.0))

    assert [chart.text(value) for value in chart.y_ticks] == ["0", "2", "4", "6", "8"]


def test_a_band_goes_there_along_its_top_and_back_along_its_bottom() -> None:
    line = Series("s", ((0.0, 0.5), (10.0, 0.5)), low_high=((0.0, 0.0, 1.0), (10.0, 0.0, 1.0)))

    assert Chart("t", [line], (0.0, 10.0), is_percent=True).band(line) == "M0 60L1000 60L1000 860L0 860Z"


def test_the_readout_has_the_figures_of_all_lines_at_every_moment() -> None:
    chart = Chart("t", [Series("a", ((0.0, 1.0), (5.0, None))), Series("b", ((5.0, 2.0),))], (0.0, 10.0))

    rows = json.loads(chart.readout)

    assert [(x, figures) for x, _, figures in rows] == [(0.0, ["1", None]), (500.0, [None, "2"])]


def test_a_chart_of_nothing_is_empty_and_has_its_axes() -> None:
    line = Series("s", ())

    chart = Chart("t", [line], (0.0, 10.0))

    assert chart.is_empty
    assert (chart.last(line), len(chart.x_ticks), chart.band(line)) == ("–", 3, "")
    assert not Chart("t", [], (0.0, 10.0), dots=[Dot(0.0, 0.5, 0.4, 0.6, "before")]).is_empty


@pytest.mark.parametrize(
    ("span_s", "label"),
    [
        (600.0, r"\d\d:\d\d:\d\d"),
        (601.0, r"\d\d:\d\d"),
        (86_400.0, r"\d\d:\d\d"),
        (86_401.0, r"\d\d \w+ \d\d:\d\d"),
    ],
)
def test_the_times_of_a_chart_have_seconds_in_a_short_one_and_dates_in_one_over_days(
    span_s: float, label: str
) -> None:
    ticks = Chart("t", [], (0.0, span_s)).x_ticks

    assert all(re.fullmatch(label, text) for _, text, _ in ticks), ticks
    assert [at for at, _, _ in ticks] == [0.0, span_s / 2, span_s]


def test_a_dot_at_the_edge_is_drawn_whole() -> None:
    chart = Chart("t", [], (0.0, 10.0), dots=[Dot(0.0, 0.5, 0.4, 0.6, "before")])

    assert chart.dot_x(chart.dots[0]) == DOT_MARGIN
    assert chart.dot_x(Dot(10.0, 0.5, 0.4, 0.6, "after")) == SIZE - DOT_MARGIN


def test_a_sparkline_spans_the_whole_stretch() -> None:
    assert sparkline([(0.0, 0.0), (10.0, 1.0)], (0.0, 10.0)) == "M0 860L1000 60"
