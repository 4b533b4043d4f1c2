"""The learning curve: a moving rate, drawn twice."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PIL import Image

from dart.config.config import load_config
from dart.core.statistics import Score
from dart.inspect.learning_curve import (
    EpisodePoint,
    learning_curve,
    render,
    training_episodes,
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
    assert lines[14].split() == ["0:00", "1:39"], "not 2 minutes, nor 0 for a run of 29 s"


def test_a_rate_of_one_half_fills_the_lower_half_of_the_terminal_curve() -> None:
    half = render(episodes(0, 1, 0, 1, 0, 1, 0, 1), width=20).splitlines()

    assert half[7][-1] == "█"
    assert half[6][-1] == " "


def episodes_of(stored_unix_s: list[float], began_unix_s: float, session: object) -> list[float]:
    """The seconds of running time at which the training episodes of a record ended."""
    store: Any = SimpleNamespace(
        rewards_over_time=lambda: [("a", 1.0, unix_s) for unix_s in stored_unix_s],
        versions=lambda limit: [SimpleNamespace(created_unix_s=began_unix_s)][:limit],
    )
    this_session: Any = session
    return [one.elapsed_s for one in training_episodes(store, load_config(), this_session)]


def test_episodes_before_an_interruption_lie_within_the_time_the_run_had_used() -> None:
    """Ten minutes in the evening, ten minutes the next morning."""
    next_morning = SimpleNamespace(started_unix_s=37_000.0, used_before_s=600.0)
    evening, morning = [1060.0, 1300.0, 1600.0], [37_000.0, 37_600.0]

    ended_s = episodes_of([*evening, *morning], 1000.0, next_morning)

    assert ended_s == [60.0, 300.0, 600.0, 600.0, 1200.0]


def test_the_episodes_of_several_earlier_starts_keep_their_order_within_the_used_time() -> None:
    third_day = SimpleNamespace(started_unix_s=200_000.0, used_before_s=1200.0)

    ended_s = episodes_of([1300.0, 1600.0, 100_000.0, 100_600.0, 200_060.0], 1000.0, third_day)

    assert ended_s == sorted(ended_s)
    assert (ended_s[0] > 0.0, ended_s[3:]) == (True, [1200.0, 1260.0])


def test_episodes_of_a_start_whose_times_were_lost_are_at_the_beginning() -> None:
    session = SimpleNamespace(started_unix_s=37_000.0, used_before_s=0.0)

    assert episodes_of([1300.0, 37_060.0], 1000.0, session) == [0.0, 60.0]


def test_too_little_for_a_curve_draws_nothing() -> None:
    assert render([]) == ""
    assert render(episodes(0, 1, 1)) == ""


def test_an_episode_is_a_success_only_above_the_threshold() -> None:
    store: Any = SimpleNamespace(
        rewards_over_time=lambda: [("a", 0.5, 1010.0), ("a", 0.6, 1020.0)],
        versions=lambda limit: [SimpleNamespace(created_unix_s=1000.0)],
    )
    session: Any = SimpleNamespace(started_unix_s=1000.0, used_before_s=0.0)

    played = training_episodes(store, load_config(), session)

    assert [(one.elapsed_s, one.success) for one in played] == [(10.0, False), (20.0, True)]


MEASURED = SuccessReport(EvaluationResult({"task-0": Score(1, 9)}), EvaluationResult({"task-0": Score(8, 9)}))


def test_the_picture_is_a_png_with_both_measurements(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "curve.png"

    write_png(LEARNS, MEASURED, path)

    with Image.open(path) as picture:
        assert picture.format == "PNG"
        assert picture.width > 800


def test_the_picture_counts_minutes_and_has_the_evaluations_at_its_begin_and_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pictures: list[Any] = []
    figure = pytest.importorskip("matplotlib.figure").Figure
    monkeypatch.setattr(figure, "savefig", lambda self, _: pictures.append(self))

    write_png(LEARNS, MEASURED, tmp_path / "curve.png")

    (axes,) = pictures[0].axes
    (curve,) = (line for line in axes.lines if line.get_label() == "all tasks")
    assert axes.get_xlabel() == "minutes"
    assert float(curve.get_xdata()[-1]) == pytest.approx(99 / 60)
    dots = [dot.lines[0].get_xydata()[0].tolist() for dot in axes.containers]
    assert dots == [pytest.approx([0.0, 1 / 9]), pytest.approx([99 / 60, 8 / 9])]


def test_a_run_without_episodes_still_gets_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")

    write_png([], SuccessReport(), tmp_path / "curve.png")

    assert (tmp_path / "curve.png").stat().st_size > 0
