"""Figures as the geometry of a chart."""

import json

import pytest

from dart.web.charts import PLOT_BOTTOM, PLOT_TOP, Dot, Series, chart, figure, path, sparkline, ticks


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.0, 1.0, [0.0, 0.5, 1.0]),
        (0.0, 8.0, [0.0, 2.0, 4.0, 6.0, 8.0]),
        (0.0, 0.03, [0.0, 0.01, 0.02, 0.03]),
        (0.0, 12_000.0, [0.0, 5000.0, 10_000.0]),
        (5.0, 5.0, [5.0]),
    ],
)
def test_ticks_are_round_numbers_within_the_bounds(low: float, high: float, expected: list[float]) -> None:
    assert ticks(low, high) == expected


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (3.0, "3"),
        (1.5, "1.5"),
        (0.021, "0.021"),
        (340.4, "340"),
        (12_300.0, "12.3 k"),
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
    drawn = chart("t", [Series("s", ((0.0, 0.0), (50.0, 1.0), (100.0, 0.25)))], (0.0, 100.0), is_percent=True)

    assert drawn.lines[0].path == f"M0 {PLOT_BOTTOM:g}L500 {PLOT_TOP:g}L1000 660"
    assert [tick.text for tick in drawn.y_ticks] == ["0 %", "50 %", "100 %"]
    assert drawn.lines[0].last == "25 %"


def test_the_top_of_other_figures_is_the_next_round_number() -> None:
    drawn = chart("t", [Series("s", ((0.0, 7.2),))], (0.0, 100.0))

    assert [tick.text for tick in drawn.y_ticks] == ["0", "2", "4", "6", "8"]


def test_a_band_goes_there_along_its_top_and_back_along_its_bottom() -> None:
    series = Series("s", ((0.0, 0.5), (10.0, 0.5)), low_high=((0.0, 0.0, 1.0), (10.0, 0.0, 1.0)))

    drawn = chart("t", [series], (0.0, 10.0), is_percent=True)

    assert drawn.lines[0].band == "M0 60L1000 60L1000 860L0 860Z"


def test_the_readout_has_the_figures_of_all_lines_at_every_moment() -> None:
    drawn = chart("t", [Series("a", ((0.0, 1.0), (5.0, None))), Series("b", ((5.0, 2.0),))], (0.0, 10.0))

    readout = json.loads(drawn.readout)

    assert readout["names"] == ["a", "b"]
    assert [(x, figures) for x, _, figures in readout["rows"]] == [(0.0, ["1", None]), (500.0, [None, "2"])]


def test_a_chart_of_nothing_is_empty_and_has_its_axes() -> None:
    drawn = chart("t", [Series("s", ())], (0.0, 10.0))

    assert drawn.is_empty
    assert (drawn.lines[0].last, len(drawn.x_ticks), drawn.lines[0].band) == ("–", 3, "")
    assert not chart("t", [], (0.0, 10.0), dots=[Dot(0.0, 0.5, 0.4, 0.6, "before")]).is_empty


def test_a_sparkline_spans_the_whole_stretch() -> None:
    assert sparkline([(0.0, 0.0), (10.0, 1.0)], (0.0, 10.0)) == "M0 860L1000 60"
