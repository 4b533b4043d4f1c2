"""A reader of beats that was suspended itself."""

import pytest

from actors.lateness import LATE_S, MOST_KEPT, Lateness


def test_a_reader_that_wakes_in_time_counts_all_silence() -> None:
    lateness = Lateness()
    assert lateness.note(awake_s=8.0, due_s=10.0, now_s=10.0 + LATE_S) == 0.0
    assert lateness.counted_s(900.0, now_s=1000.0) == 900.0


def test_a_reader_that_wakes_late_counts_nothing_of_its_sleep() -> None:
    lateness = Lateness()
    assert lateness.note(awake_s=8.0, due_s=10.0, now_s=70.0) == 62.0
    assert lateness.note(awake_s=70.0, due_s=71.0, now_s=71.0) == 0.0
    assert lateness.counted_s(66.0, now_s=71.0) == 4.0, "3 s before the sleep and 1 s after it"


@pytest.mark.parametrize(("began_s", "counted_s"), [(70.0, 1.0), (40.0, 1.0), (8.0, 1.0), (7.0, 2.0)])
def test_only_what_was_lost_since_a_moment_is_taken_from_its_age(began_s: float, counted_s: float) -> None:
    lateness = Lateness()
    lateness.note(awake_s=8.0, due_s=10.0, now_s=70.0)
    assert lateness.counted_s(71.0 - began_s, now_s=71.0) == counted_s


def test_a_reader_that_is_always_late_counts_what_it_slept_until_it_was_due() -> None:
    lateness = Lateness()
    for awake_s in range(0, 40, 4):
        lateness.note(awake_s=awake_s, due_s=awake_s + 2.5, now_s=awake_s + 4.0)
    assert lateness.counted_s(40.0, now_s=40.0) == 9 * 2.5, "the first sleep alone is lost as a whole"


def test_two_timers_that_are_late_at_one_moment_lose_its_time_once() -> None:
    lateness = Lateness()
    assert lateness.note(awake_s=8.0, due_s=10.0, now_s=70.0) == 62.0
    assert lateness.note(awake_s=8.0, due_s=12.0, now_s=70.0) == 0.0
    assert lateness.counted_s(71.0, now_s=71.0) == 9.0


def test_a_turn_that_was_slow_itself_loses_what_it_took_since_the_timer_was_due() -> None:
    lateness = Lateness()
    assert lateness.note(awake_s=20.0, due_s=17.0, now_s=20.0) == 3.0
    assert lateness.counted_s(20.0, now_s=20.0) == 17.0


def test_a_reader_remembers_a_bounded_number_of_late_wakes() -> None:
    lateness = Lateness()
    for awake_s in range(0, 8 * MOST_KEPT, 4):
        lateness.note(awake_s=awake_s, due_s=awake_s + 2.0, now_s=awake_s + 4.0)
    end_s = 8.0 * MOST_KEPT
    assert lateness.counted_s(end_s, now_s=end_s) == end_s - 2.0 * MOST_KEPT
