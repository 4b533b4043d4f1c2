"""When a child counts as hung, at the edges of its deadline."""

import pytest

from supervision.hang import LATE_BEAT_S, MAX_BEAT_S, REMEDY, HangCheck, beat_s, check_hang


def checked(*, busy_s: float = 0.0, silent_s: float = 0.0, beat: float = 2.5) -> HangCheck:
    return check_hang(busy_s=busy_s, handler="Load", silent_s=silent_s, beat_every_s=beat, deadline_s=10.0)


def test_a_child_that_beats_and_answers_does_not_hang() -> None:
    assert checked(busy_s=10.0, silent_s=10.0) == HangCheck("", 0.0), "neither is longer than the deadline"


def test_a_child_that_stays_in_one_handler_hangs_and_its_remedy_is_named() -> None:
    why = checked(busy_s=10.1).why
    assert why == f"hung: in Load for 10.1 s (hang_deadline_s=10); {REMEDY}"


def test_a_child_without_a_beat_hangs() -> None:
    assert checked(silent_s=10.1).why == "hung: no beat for 10.1 s (hang_deadline_s=10)"


def test_the_next_check_is_when_the_child_could_first_count_as_hung() -> None:
    assert checked(busy_s=4.0, silent_s=1.0).again_in_s == pytest.approx(6.0)
    assert checked(busy_s=1.0, silent_s=4.0).again_in_s == pytest.approx(6.0)


def test_a_deadline_below_the_beat_of_the_running_process_waits_for_a_late_beat() -> None:
    assert checked(silent_s=12.9, beat=10.0).why == "", "the process was started with a beat every 10 s"
    assert checked(silent_s=13.1, beat=10.0).why != ""


@pytest.mark.parametrize(
    ("deadline_s", "every_s"), [(1.0, 0.25), (8.0, 3.0), (20.0, 10.0), (600.0, MAX_BEAT_S)]
)
def test_beats_are_as_seldom_as_the_deadline_allows(deadline_s: float, every_s: float) -> None:
    assert beat_s(deadline_s) == pytest.approx(every_s)
    assert beat_s(deadline_s) + LATE_BEAT_S / 8 <= deadline_s
