"""The learning curve: a moving rate, drawn twice."""

from pathlib import Path

import pytest
from PIL import Image

from dart.core.statistics import Score
from dart.inspect.learning_curve import (
    EpisodePoint,
    learning_curve,
    render,
    window_for,
    write_png,
)
from dart.inspect.report import EvaluationResult, SuccessReport

LEARNS = [EpisodePoint(float(i), f"task-{i % 2}", success=i >= 50) for i in range(100)]


def episodes(*outcomes: int) -> list[EpisodePoint]:
    """One episode a second."""
    return [EpisodePoint(float(second), "a", bool(outcome)) for second, outcome in enumerate(outcomes)]


def test_each_point_is_the_rate_of_the_window_before_it() -> None:
    points = learning_curve(episodes(0, 1, 1, 1, 0, 0, 0, 0), window=2)

    assert [rate for _, rate in points] == [0.5, 1.0, 1.0, 0.5, 0.0, 0.0, 0.0]
    assert points[0][0] == 1.0


def test_episodes_count_in_the_order_they_ended() -> None:
    late_first = [EpisodePoint(2.0, "a", True), EpisodePoint(1.0, "a", False)]

    assert learning_curve(late_first, window=1) == [(1.0, 0.0), (2.0, 1.0)]


def test_a_short_run_gets_a_smaller_window_and_an_empty_one_no_points() -> None:
    assert window_for(1000, 100) == 100
    assert window_for(40, 100) == 10
    assert window_for(2, 100) == 1
    assert learning_curve([]) == []


def test_the_terminal_curve_rises_from_left_to_right_and_fits_its_width() -> None:
    lines = render(LEARNS, width=70).splitlines()

    assert all(len(line) <= 70 for line in lines)
    assert "over the last 25 episodes" in lines[0]
    top, bottom = lines[1], lines[12]
    assert top.startswith("100┤")
    assert (top[30], top[-1]) == (" ", "█")
    assert (bottom[4], bottom[-1]) == (" ", "█")
    assert lines[13].startswith("  0└─")
    assert lines[14].split() == ["0", "2", "minutes"]


def test_a_rate_of_one_half_fills_the_lower_half_of_the_terminal_curve() -> None:
    half = render(episodes(0, 1, 0, 1, 0, 1, 0, 1), width=20).splitlines()

    assert half[7][-1] == "█"
    assert half[6][-1] == " "


def test_too_little_for_a_curve_draws_nothing() -> None:
    assert render([]) == ""
    assert render(episodes(0, 1, 1)) == ""


def test_the_picture_is_a_png_with_both_measurements(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "curve.png"

    report = SuccessReport(
        EvaluationResult({"task-0": Score(1, 9)}), EvaluationResult({"task-0": Score(8, 9)})
    )
    write_png(LEARNS, report, path)

    with Image.open(path) as picture:
        assert picture.format == "PNG"
        assert picture.width > 800


def test_a_run_without_episodes_still_gets_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")

    write_png([], SuccessReport(), tmp_path / "curve.png")

    assert (tmp_path / "curve.png").stat().st_size > 0
