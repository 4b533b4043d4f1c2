"""The learning curve: a moving rate, drawn twice."""

from pathlib import Path

import pytest
from PIL import Image

from dart.observe.curve import CurvePoint, Episode, learning_curve, render, write_png
from dart.observe.report import Report
from dart.observe.statistics import Score

LEARNS = [Episode(float(i), f"task-{i % 2}", success=i >= 50) for i in range(100)]


def test_each_point_is_the_rate_of_the_window_before_it() -> None:
    episodes = [Episode(t, "a", success) for t, success in ((1.0, False), (2.0, True), (3.0, True))]

    assert learning_curve(episodes, window=2) == [CurvePoint(2.0, 0.5), CurvePoint(3.0, 1.0)]


def test_episodes_count_in_the_order_they_ended() -> None:
    late_first = [Episode(2.0, "a", True), Episode(1.0, "a", False)]

    assert learning_curve(late_first, window=1) == [CurvePoint(1.0, 0.0), CurvePoint(2.0, 1.0)]


def test_fewer_episodes_than_a_window_make_one_point_and_none_make_none() -> None:
    assert learning_curve(LEARNS[48:52], window=100) == [CurvePoint(51.0, 0.5)]
    assert learning_curve([], window=100) == []


def test_the_terminal_curve_rises_and_fits_its_width() -> None:
    lines = render(LEARNS * 3, width=70, height=14).splitlines()

    assert all(len(line) <= 70 for line in lines)
    assert "success of training episodes" in lines[0]
    assert any(line.startswith("100") for line in lines)


def test_nothing_played_draws_nothing() -> None:
    assert render([]) == ""


def test_the_picture_is_a_png_with_both_measurements(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "curve.png"

    write_png(LEARNS, Report({"task-0": Score(1, 9)}, {"task-0": Score(8, 9)}), path)

    with Image.open(path) as picture:
        assert picture.format == "PNG"
        assert picture.width > 800


def test_a_run_without_episodes_still_gets_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")

    write_png([], Report({}, {}), tmp_path / "curve.png")

    assert (tmp_path / "curve.png").stat().st_size > 0
