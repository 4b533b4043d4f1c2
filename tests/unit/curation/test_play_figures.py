"""What the alarms measure of finished episodes: faults change it, other tasks and hard screens do not."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from random import Random

from dart.config.alarm_names import LearningAlarm
from dart.config.sections import AlarmsSettings
from dart.core.records import FinishedEpisode
from dart.curation.learning_alarms import AlarmBoard, Measured
from dart.curation.play_figures import (
    STREAK_MOST,
    TASK_RECENT,
    AnswerFigures,
    PlayHistory,
    answer_figures,
)
from dart.testing.trajectories import step_at

ANSWERS = AnswerFigures(steps=20, tokens=80, entropy=1.0, top_action="wait()", top_count=2)
NUMBERS = count(1)


def group(rewards: list[float], task_id: str = "a", num_steps: int = 2) -> list[FinishedEpisode]:
    """The episodes of one group."""
    group_id = next(NUMBERS)
    return [
        FinishedEpisode(
            rollout_id=next(NUMBERS),
            group_id=group_id,
            rollouts_wanted=len(rewards),
            task_id=task_id,
            reward=reward,
            num_steps=num_steps,
            steps_sha256="",
            stored_unix_s=float(group_id),
        )
        for reward in rewards
    ]


MANY = [f"task-{number}" for number in range(16)]
MIXED = [1.0, 0.0, 1.0, 0.0]
FAILED = [0.0] * 4
SUCCEEDED = [1.0] * 4


class Played:
    """Plays windows of four groups and has them measured."""

    def __init__(self, trained: Sequence[str] = ("a", "easy", "hard", *MANY)) -> None:
        self.history = PlayHistory(success_above=0.5, trained=trained)

    def window(
        self, *groups: list[FinishedEpisode], answers: AnswerFigures = ANSWERS
    ) -> dict[LearningAlarm, Measured]:
        episodes = [episode for one in groups for episode in one]
        self.history.add_window(episodes, answers)
        return self.history.figures(answers)

    def windows(self, number: int, rewards: list[float], task_id: str = "a") -> dict[LearningAlarm, Measured]:
        found: dict[LearningAlarm, Measured] = {}
        for _ in range(number):
            found = self.window(*(group(rewards, task_id) for _ in range(4)))
        return found


def test_the_action_of_an_answer_is_what_stands_after_its_thought() -> None:
    written = ["Thought: one\nAction: wait()", "Thought: two\nAction: wait()", "finished()"]
    figures = answer_figures([[replace(step_at(0), answer=answer) for answer in written]])
    assert (figures.top_action, figures.top_count, figures.steps, figures.tokens) == ("wait()", 2, 3, 9)
    assert answer_figures([]).entropy is None


def test_entropy_and_length_of_answers_are_compared_with_those_of_the_first_windows() -> None:
    played = Played()
    played.windows(3, MIXED)
    later = replace(ANSWERS, entropy=0.03, tokens=240, top_count=12)
    found = played.window(*(group(MIXED) for _ in range(4)), answers=later)
    assert found[LearningAlarm.ENTROPY_COLLAPSE].value == 0.03
    assert found[LearningAlarm.LENGTH_EXPLODES].value == 3.0
    assert found[LearningAlarm.ONE_ACTION].value == 0.6


def test_episodes_of_a_task_are_compared_with_its_own_first_ones() -> None:
    played = Played()
    played.windows(2, MIXED)
    longer = [group(MIXED, num_steps=8) for _ in range(8)]
    assert played.window(*longer)[LearningAlarm.LENGTH_EXPLODES].value == 4.0
    assert "4.0 times the steps" in played.window(*longer)[LearningAlarm.LENGTH_EXPLODES].text


def test_harder_tasks_are_no_fall_of_success() -> None:
    played = Played()
    for _ in range(10):
        played.window(group([1.0] * 4, "easy"), group(FAILED, "hard"))
    assert played.windows(5, FAILED, "hard")[LearningAlarm.SUCCESS_FALLS].value == 0.0


def test_success_falls_when_tasks_fail_that_succeeded() -> None:
    played = Played()
    played.windows(8, [1.0, 1.0, 1.0, 0.0])
    assert played.windows(3, FAILED)[LearningAlarm.SUCCESS_FALLS].value == 0.75


def test_new_tasks_of_a_continued_run_raise_no_alarm_and_a_fall_is_still_found() -> None:
    played, board = Played(), AlarmBoard(AlarmsSettings(), ())
    old, new = MANY[:4], MANY[4:8]
    for _ in range(20):
        assert board.next(played.window(*(group([1.0, 1.0, 1.0, 0.0], task_id) for task_id in old))) == []
    for _ in range(20):
        failing = [group(FAILED, task_id) for task_id in new]
        found = played.window(*failing, *(group([1.0, 1.0, 1.0, 0.0], task_id) for task_id in old))
        assert board.next(found) == []
        assert found[LearningAlarm.SUCCESS_FALLS].value == 0.0
    for _ in range(10):
        found = played.window(*(group(FAILED, task_id) for task_id in old + new))
    assert found[LearningAlarm.SUCCESS_FALLS].value == 0.375


def test_a_task_that_joins_during_a_fall_does_not_hide_it() -> None:
    played = Played()
    played.windows(8, [1.0, 1.0, 1.0, 0.0])
    for _ in range(8):
        found = played.window(group(FAILED), group(FAILED, "hard"))
    assert found[LearningAlarm.SUCCESS_FALLS].value == 0.5625


def test_many_new_tasks_that_fail_in_a_row_are_no_stuck_evaluator() -> None:
    played = Played()
    played.windows(8, MIXED)
    for _ in range(4):
        found = played.window(group(MIXED), *(group(FAILED, task_id) for task_id in MANY))
        assert found[LearningAlarm.EVALUATOR_STUCK].value > 0.01


def test_a_task_that_the_run_no_longer_trains_is_not_measured() -> None:
    played = Played(trained=("easy",))
    played.windows(TASK_RECENT // 16, MIXED)
    assert LearningAlarm.TASK_UNLEARNED not in played.windows(TASK_RECENT // 16, FAILED)
    found = played.windows(TASK_RECENT // 16, MIXED, "easy")
    assert found[LearningAlarm.TASK_UNLEARNED].text == "success of easy 50%, at best 50%"


def test_a_task_is_unlearned_when_it_fails_for_long_and_only_if_it_was_learned() -> None:
    played = Played()
    played.windows(TASK_RECENT // 16, MIXED)
    found = played.windows(2, FAILED)[LearningAlarm.TASK_UNLEARNED]
    assert 0.3 < found.value < 0.4, "half of the newest groups say little"
    found = played.windows(TASK_RECENT // 16, FAILED)[LearningAlarm.TASK_UNLEARNED]
    assert (found.value, found.text) == (1.0, "success of a 0%, at best 50%")
    never = Played()
    assert never.windows(20, FAILED)[LearningAlarm.TASK_UNLEARNED].value == 0.0


def test_the_share_of_groups_without_spread_is_measured() -> None:
    played = Played()
    found = played.window(group(MIXED), group(FAILED), group([0.5] * 4), group(MIXED))
    assert found[LearningAlarm.EQUAL_REWARDS].value == 0.5
    few = played.window(group(FAILED), group(FAILED))
    assert LearningAlarm.EQUAL_REWARDS not in few, "two groups say nothing"


def test_few_groups_are_measured_with_those_of_the_next_window() -> None:
    played = Played()
    few = [played.window(group(FAILED), group(MIXED)) for _ in range(4)]
    assert [LearningAlarm.EQUAL_REWARDS in found for found in few] == [False, True, False, True]
    assert few[3][LearningAlarm.EQUAL_REWARDS].text == "50% of 4 groups have equal rewards and no solved task"


def test_a_group_that_a_window_cuts_is_measured_once_and_whole() -> None:
    played = Played()
    cut = group([0.0, 0.0, 1.0, 1.0])
    before = played.window(*(group(FAILED) for _ in range(4)), cut[:2])
    assert (
        before[LearningAlarm.EQUAL_REWARDS].text == "100% of 4 groups have equal rewards and no solved task"
    )
    after = played.window(cut[2:], *(group(FAILED) for _ in range(3)))
    assert after[LearningAlarm.EQUAL_REWARDS].text == "75% of 4 groups have equal rewards and no solved task"
    assert after[LearningAlarm.EVALUATOR_STUCK].text.startswith("in the last 3 groups every reward is 0")


def test_a_group_without_its_last_rollout_has_ended_when_a_window_has_none_of_it() -> None:
    played = Played()
    played.window(*(group(FAILED) for _ in range(4)), group(MIXED)[:3])
    found = played.window(*(group(FAILED) for _ in range(4)))
    assert found[LearningAlarm.EQUAL_REWARDS].text == "80% of 5 groups have equal rewards and no solved task"


def solved(played: Played, board: AlarmBoard) -> None:
    """Play a task that succeeds half of the time, and then nearly always."""
    for _ in range(5):
        board.next(played.windows(1, MIXED))
    for _ in range(20):
        board.next(played.window(*(group(SUCCEEDED) for _ in range(3)), group([1.0, 1.0, 1.0, 0.0])))


def test_a_job_that_the_run_has_solved_raises_no_alarm_however_long_it_lasts() -> None:
    played, board = Played(), AlarmBoard(AlarmsSettings(), ())
    solved(played, board)
    assert [board.next(played.windows(1, SUCCEEDED)) for _ in range(50)] == [[]] * 50


def test_a_success_of_a_solved_task_is_no_group_that_teaches_nothing() -> None:
    played, board = Played(), AlarmBoard(AlarmsSettings(), ())
    solved(played, board)
    found = played.window(*(group(SUCCEEDED) for _ in range(6)), *(group(FAILED, "hard") for _ in range(2)))
    assert found[LearningAlarm.EQUAL_REWARDS].value == 0.25


def test_the_alarm_about_equal_rewards_is_cleared_when_the_tasks_are_solved() -> None:
    played, board = Played(), AlarmBoard(AlarmsSettings(off=("evaluator_stuck", "success_falls")), ())
    solved(played, board)
    changes = [change for _ in range(5) for change in board.next(played.windows(1, FAILED))]
    changes += [change for _ in range(9) for change in board.next(played.windows(1, SUCCEEDED))]
    equal = [change.is_raised for change in changes if change.rule.alarm is LearningAlarm.EQUAL_REWARDS]
    assert equal == [True, False]


def test_a_solved_task_that_fails_altogether_is_an_alarm() -> None:
    played, board = Played(), AlarmBoard(AlarmsSettings(off=("evaluator_stuck",)), ())
    solved(played, board)
    changes = [change for _ in range(3) for change in board.next(played.windows(1, FAILED))]
    assert LearningAlarm.EQUAL_REWARDS in [change.rule.alarm for change in changes]


def test_a_job_that_is_too_easy_or_too_hard_from_the_start_is_an_alarm() -> None:
    for rewards in (SUCCEEDED, FAILED, [0.5] * 4):
        played, board = Played(), AlarmBoard(AlarmsSettings(), ())
        changes = [change for _ in range(6) for change in board.next(played.windows(1, rewards))]
        assert [(change.rule.alarm, change.is_raised) for change in changes] == [
            (LearningAlarm.EQUAL_REWARDS, True)
        ]


def test_success_of_one_task_does_not_fall_because_some_screens_are_harder() -> None:
    for seed in range(3):
        draw, played, board = Random(seed), Played(trained=("a",)), AlarmBoard(AlarmsSettings(), ())
        for _ in range(200):
            groups = [group(draw.choice((SUCCEEDED, FAILED, MIXED))) for _ in range(16)]
            assert board.next(played.window(*groups)) == [], "half of the episodes succeed all the time"


def test_a_fall_of_the_only_task_is_found() -> None:
    played, board = Played(trained=("a",)), AlarmBoard(AlarmsSettings(off=("evaluator_stuck",)), ())
    for _ in range(50):
        board.next(played.windows(1, [1.0, 1.0, 1.0, 0.0]))
    raised = [board.next(played.windows(1, [0.0, 0.0, 1.0, 0.0])) for _ in range(25)]
    assert [change.rule.alarm for changes in raised for change in changes] == [LearningAlarm.SUCCESS_FALLS]


def test_groups_of_one_reward_in_a_row_are_unlikely_only_where_they_were_rare() -> None:
    usual, rare = Played(), Played()
    for _ in range(16):
        usual.window(group(FAILED), group(FAILED), group(FAILED), group(MIXED))
        rare.window(group(MIXED), group(MIXED), group(FAILED), group(MIXED))
    assert usual.windows(2, FAILED)[LearningAlarm.EVALUATOR_STUCK].value > 0.05
    assert rare.windows(3, FAILED)[LearningAlarm.EVALUATOR_STUCK].value < 1e-6
    assert rare.windows(1, MIXED)[LearningAlarm.EVALUATOR_STUCK].value == 1.0, "the rewards differ again"


def test_a_solved_job_is_no_stuck_evaluator_however_long_it_lasts() -> None:
    solved = Played()
    for _ in range(20):
        solved.window(*(group([1.0] * 4) for _ in range(3)), group(MIXED))
    assert solved.windows(50, [1.0] * 4)[LearningAlarm.EVALUATOR_STUCK].value > 0.7**STREAK_MOST


def test_a_run_that_has_just_begun_raises_nothing_about_success() -> None:
    assert Played().window(group(FAILED), group(FAILED))[LearningAlarm.EVALUATOR_STUCK].value == 1.0
    many = Played()
    found = many.window(*(group(MIXED, task_id) for task_id in MANY))
    assert LearningAlarm.SUCCESS_FALLS not in found, "most tasks were played too little"
