"""The rules of the alarms: each is raised by its fault, stays while it lasts, and is cleared afterwards."""

from pathlib import Path

import pytest

from dart.config.alarm_names import LearningAlarm
from dart.config.config import Config
from dart.config.problems import dotted
from dart.config.sections import AlarmsSettings
from dart.curation.learning_alarms import RULES, AlarmBoard, AlarmRule, Measured, update_figures

PAGE = Path(__file__).resolve().parents[3] / "docs" / "alarms.md"
SETTINGS = AlarmsSettings()
KEYS = dict(dotted(Config().model_dump(mode="json")))


def bad(rule: AlarmRule) -> float:
    """A value at the threshold."""
    return rule.threshold(SETTINGS)


def between(rule: AlarmRule) -> float:
    """A value that is neither bad nor good."""
    return rule.threshold(SETTINGS) * (1.0 + rule.clear_at) / 2


def good(rule: AlarmRule) -> float:
    return rule.threshold(SETTINGS) * rule.clear_at * (1.01 if rule.is_low_bad else 0.99)


def stages(rule: AlarmRule, values: list[float], board: AlarmBoard | None = None) -> list[bool]:
    """What the values change, in order: True where the alarm is raised, False where it is cleared."""
    board = board or AlarmBoard(SETTINGS)
    found = [change for value in values for change in board.next({rule.alarm: Measured(value, "text")})]
    assert all(change.rule is rule for change in found)
    return [change.is_raised for change in found]


def test_every_alarm_has_one_rule() -> None:
    assert [rule.alarm for rule in RULES] == list(LearningAlarm)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.alarm.value)
def test_a_fault_that_lasts_raises_its_alarm_once_and_its_end_clears_it(rule: AlarmRule) -> None:
    lasting = [bad(rule)] * (rule.raise_after + 5)
    assert stages(rule, lasting[: rule.raise_after - 1]) == []
    assert stages(rule, lasting) == [True]
    assert stages(rule, lasting + [good(rule)] * (rule.clear_after - 1)) == [True]
    assert stages(rule, lasting + [good(rule)] * (rule.clear_after + 5)) == [True, False]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.alarm.value)
def test_a_value_between_the_levels_neither_raises_nor_clears(rule: AlarmRule) -> None:
    assert stages(rule, [between(rule)] * 20) == []
    assert stages(rule, [bad(rule)] * rule.raise_after + [between(rule)] * 20) == [True]
    broken = ([bad(rule)] * (rule.raise_after - 1) + [between(rule)]) * 5
    assert stages(rule, broken) == [], "the bad values are not in a row"


@pytest.mark.parametrize(
    ("alarm", "key", "thresholds"),
    [
        (LearningAlarm.ENTROPY_COLLAPSE, "entropy_share", [0.001, 0.4, 0.5, 0.99]),
        (LearningAlarm.LENGTH_EXPLODES, "length_factor", [1.01, 1.25, 2.0, 100.0]),
        (LearningAlarm.GRADIENTS_CLIPPED, "gradient_factor", [1.01, 2.0, 10.0, 1e6]),
        (LearningAlarm.EVALUATOR_STUCK, "stuck_chance", [1e-12, 1e-3, 0.01, 0.99]),
    ],
)
def test_a_value_as_at_the_start_clears_an_alarm_whatever_its_threshold_is(
    alarm: LearningAlarm, key: str, thresholds: list[float]
) -> None:
    (rule,) = (rule for rule in RULES if rule.alarm is alarm)
    for threshold in thresholds:
        settings = AlarmsSettings(**{key: threshold})  # type: ignore[arg-type]
        values = [threshold] * rule.raise_after + [1.0] * rule.clear_after
        assert stages(rule, values, AlarmBoard(settings)) == [True, False], threshold
        assert not rule.is_good(threshold, settings), "it is bad"


@pytest.mark.parametrize(
    ("alarm", "key"),
    [
        (LearningAlarm.KL_RUNAWAY, "kl_nats"),
        (LearningAlarm.SUCCESS_FALLS, "success_fall"),
        (LearningAlarm.LOGPROB_MISMATCH, "mismatch_nats"),
        (LearningAlarm.EQUAL_REWARDS, "equal_share"),
        (LearningAlarm.ONE_ACTION, "action_share"),
        (LearningAlarm.TASK_UNLEARNED, "task_fall"),
    ],
)
def test_a_value_of_zero_clears_an_alarm_whatever_its_threshold_is(alarm: LearningAlarm, key: str) -> None:
    (rule,) = (rule for rule in RULES if rule.alarm is alarm)
    for threshold in (1e-6, 1.0):
        settings = AlarmsSettings(**{key: threshold})  # type: ignore[arg-type]
        values = [threshold] * rule.raise_after + [0.0] * rule.clear_after
        assert stages(rule, values, AlarmBoard(settings)) == [True, False], threshold


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.alarm.value)
def test_an_alarm_that_is_switched_off_is_not_raised_and_one_of_before_is_cleared(rule: AlarmRule) -> None:
    board = AlarmBoard(AlarmsSettings(off=(rule.alarm.value,)), raised=[rule.alarm])
    (change,) = board.clear_unwatched()
    assert (change.rule, change.is_raised) == (rule, False)
    assert stages(rule, [bad(rule)] * 10, board) == []


def test_what_was_not_measured_changes_nothing() -> None:
    board = AlarmBoard(SETTINGS)
    high = {LearningAlarm.LOGPROB_MISMATCH: Measured(1.0, "text")}
    changes = [*board.next(high), *board.next({}), *board.next(high)]
    assert [change.is_raised for change in changes] == [True], "an update without fresh steps is left out"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.alarm.value)
def test_every_key_that_a_remedy_names_exists(rule: AlarmRule) -> None:
    sections = {key.partition(".")[0] for key in KEYS}
    words = rule.remedy.replace(",", " ").replace(";", " ").replace("(", " ").replace(")", " ").split()
    named = [word for word in words if word.partition(".")[0] in sections and "." in word.rstrip(".")]
    assert [word for word in named if word.rstrip(".") not in KEYS] == []


def test_the_page_of_alarms_has_every_rule_with_its_levels() -> None:
    rows = [line.split("|")[1:-1] for line in PAGE.read_text(encoding="utf-8").splitlines()]
    told = {row[0].strip(" `"): [cell.strip() for cell in row[3:]] for row in rows if len(row) == 7}
    for rule in RULES:
        threshold = rule.threshold(SETTINGS)
        levels = [f"{threshold:g}", str(rule.raise_after)]
        levels += [f"{rule.clear_level(SETTINGS):g}", str(rule.clear_after)]
        assert told[rule.alarm.value] == levels


def test_an_update_is_measured_by_what_the_trainer_recorded() -> None:
    metrics = {"kl": 2.5, "grad_norm": 30.0, "mismatch_engine": 0.2, "mismatch_stale": 9.0}
    figures = update_figures(metrics, max_grad_norm=2.0)
    assert {alarm: measured.value for alarm, measured in figures.items()} == {
        LearningAlarm.KL_RUNAWAY: 2.5,
        LearningAlarm.LOGPROB_MISMATCH: 0.2,
        LearningAlarm.GRADIENTS_CLIPPED: 15.0,
    }
    assert update_figures({"seconds": 1.0}, max_grad_norm=2.0) == {}, "as those of a simulated learner"
