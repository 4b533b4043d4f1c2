"""Success of training episodes in windows of a run's time."""

import pytest

from dart.inspect.success_windows import SuccessWindow, spans, text, width_for, without_empty_end


@pytest.mark.parametrize(
    ("span_s", "width_s"),
    [
        (60.0, 10.0),
        (90.0, 10.0),
        (720.0, 120.0),
        (3600.0, 600.0),
        (86_400.0, 21_600.0),
        (30e6, 35 * 86_400.0),
    ],
)
def test_the_width_follows_the_length_of_the_run(span_s: float, width_s: float) -> None:
    assert width_for(span_s) == width_s
    assert span_s <= 10 * width_s


def test_windows_begin_at_round_times_and_at_the_point_where_a_run_was_continued() -> None:
    assert list(spans(250.0, 720.0)) == [(0.0, 120.0), (120.0, 240.0), (240.0, 360.0)]
    assert list(spans(250.0, 720.0, since_s=130.0)) == [(130.0, 240.0), (240.0, 360.0)]
    assert list(spans(0.0, 720.0)) == []


def window(begins_s: float, successes: int, episodes: int, width_s: float = 120.0) -> SuccessWindow:
    return SuccessWindow(begins_s=begins_s, ends_s=begins_s + width_s, successes=successes, episodes=episodes)


def test_windows_after_the_last_episode_are_left_out_and_those_between_are_not() -> None:
    played, none, again = window(0, 1, 2), window(120, 0, 0), window(240, 2, 2)

    assert without_empty_end([played, none, again, window(360, 0, 0)]) == (played, none, again)
    assert without_empty_end([none]) == ()


def test_a_line_names_each_window_in_one_unit_and_what_the_base_policy_could() -> None:
    line = text([window(0, 1, 2), window(120, 0, 0), window(240, 9, 10)], base_rate=0.4)

    assert line == (
        "success: before training 40 % (held-out seeds); "
        "while training (sampled) 0–2 min 50 %, 2–4 min –, 4–6 min 90 %"
    )
    assert text([window(20, 1, 4, width_s=10.0)]) == "success: while training (sampled) 20–30 s 25 %"
    assert text([window(7200, 1, 4, width_s=3600.0)]) == "success: while training (sampled) 2–3 h 25 %"
    assert text([], base_rate=0.4) == ""


def test_a_run_that_was_continued_within_a_window_shows_that_time_as_a_clock_does() -> None:
    line = text([window(44.46, 1, 4, width_s=75.54), window(120, 1, 2)])

    assert line == "success: while training (sampled) 0:44–2 min 25 %, 2–4 min 50 %"


def test_the_line_says_when_success_before_and_after_does_not_differ() -> None:
    line = text([window(0, 1, 2)], base_rate=0.62, final_rate=0.25, verdict="within noise")

    assert "before training 62 %, after it 25 % (held-out seeds; within noise); while" in line


def test_the_line_of_a_run_that_is_done_names_what_its_policy_can() -> None:
    line = text([window(0, 1, 2)], base_rate=0.4, final_rate=0.9)

    assert line == (
        "success: before training 40 %, after it 90 % (held-out seeds); while training (sampled) 0–2 min 50 %"
    )
