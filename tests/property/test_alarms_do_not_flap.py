"""Whatever is measured: an alarm does not flap, and a restart of the curator changes nothing."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from dart.config.sections import AlarmsSettings
from dart.curation.learning_alarms import MEMORY, RULES, AlarmBoard, AlarmRule, Measured

SETTINGS = AlarmsSettings()
MEASURES = st.lists(st.floats(0.0, 4.0) | st.sampled_from((0.0, 2e3)), max_size=60)
"""Multiples of the threshold. `evaluator_stuck` is good beyond 1,000 times its threshold."""


def changes_of(rule: AlarmRule, values: list[float], board: AlarmBoard) -> list[tuple[int, bool]]:
    """(number of the measurement, whether the alarm was raised) of each change."""
    found = []
    for number, value in enumerate(values):
        measured = Measured(value * rule.threshold(SETTINGS), "text")
        found += [(number, change.is_raised) for change in board.next({rule.alarm: measured})]
    return found


@given(rule=st.sampled_from(RULES), values=MEASURES)
def test_between_two_changes_lie_as_many_measurements_as_the_rule_says(
    rule: AlarmRule, values: list[float]
) -> None:
    changes = changes_of(rule, values, AlarmBoard(SETTINGS))
    assert [is_raised for _, is_raised in changes] == [n % 2 == 0 for n in range(len(changes))]
    for (before, _), (after, is_raised) in pairwise(changes):
        assert after - before >= (rule.raise_after if is_raised else rule.clear_after)


@given(rule=st.sampled_from(RULES), values=MEASURES, at=st.integers(0, 60))
def test_the_next_curator_goes_on_with_the_same_counts(rule: AlarmRule, values: list[float], at: int) -> None:
    at = min(at, len(values))
    first = AlarmBoard(SETTINGS)
    before = changes_of(rule, values[:at], first)
    restarted = AlarmBoard(SETTINGS, raised=first.raised)
    changes_of(rule, values[max(0, at - MEMORY) : at], restarted)
    assert restarted.raised == first.raised, "the last measurements, once more, change nothing in the end"

    again = changes_of(rule, values[at:], restarted)
    assert before + [(at + number, is_raised) for number, is_raised in again] == changes_of(
        rule, values, AlarmBoard(SETTINGS)
    )
