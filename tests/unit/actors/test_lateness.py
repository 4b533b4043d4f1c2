"""A reader of beats that was suspended itself."""

import math

from actors.lateness import LATE_S, Lateness


def test_a_reader_that_wakes_in_time_counts_all_silence() -> None:
    lateness = Lateness()
    lateness.note(due_s=10.0, now_s=10.0 + LATE_S)
    assert lateness.since_s(1000.0) == math.inf


def test_a_reader_that_wakes_late_counts_only_the_silence_since() -> None:
    lateness = Lateness()
    lateness.note(due_s=10.0, now_s=70.0)
    lateness.note(due_s=71.0, now_s=71.0)
    assert lateness.since_s(71.0) == 1.0
