"""Measurements of finished episodes for the learning alarms, window by window.

Success and lengths are compared task by task. The curator changes which tasks are played, so a lower mean
over a window may only mean that its tasks are harder.
"""

import math
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from statistics import fmean

from dart.config.alarm_names import LearningAlarm
from dart.core.records import FinishedEpisode
from dart.core.types import Step
from dart.curation.groups import SPREAD
from dart.curation.learning_alarms import Measured

REFERENCE_WINDOWS = 2
"""Number of windows that count as the start of the run."""

RECENT, TASK_RECENT = 32, 96
"""Numbers of the newest episodes of a task that are used: RECENT for means over tasks, and TASK_RECENT for
the success of one task.

The rewards of a group are alike, because its rollouts begin at the same screen. So a few groups say little
about one task: in a recorded run a task had 66 % success over 32 episodes and later 3 %, while the policy
improved."""

BEST_OF_ALL, NEWEST_OF_ALL = 512, 192
"""Smallest numbers of episodes, over all tasks, of which the best mean success of the tasks and the present
one are computed. A run of few tasks takes more than RECENT episodes of each. The best one takes more, because
the best of many means over few groups is far above the true success, so that success would seem to fall."""

SOLVED_FROM = 0.9
"""A task counts as solved if its success rate over its newest RECENT episodes is at least this, and was below
it before."""

LEARNED_FROM = 0.4
"""A task counts as learned if its best success rate was at least this."""

GROUPS_LEAST = 4
"""Smallest number of groups for a measurement of the alarm about equal rewards. Where a window has fewer, the
next one adds its own."""

BEFORE, BEFORE_LEAST = 64, 8
"""Largest number of groups before a streak (`Streak`) that its probability is estimated from, and the
smallest number for which there is an estimate."""

STREAK_MOST = 32
"""Largest length of a streak that counts; longer ones count as this long. Once a job is solved, long streaks
are normal."""

ACTION_MARK = "Action:"
"""Separates the thought from the action in answers of vision-language policies (`dart.policy.uitars`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerFigures:
    """Measurements of the answers of some episodes."""

    steps: int
    tokens: int
    entropy: float | None
    """Mean entropy in nats per token; None if no entropies were recorded."""
    top_action: str
    top_count: int
    """Number of steps with the most frequent action."""

    @property
    def tokens_per_answer(self) -> float:
        return self.tokens / max(1, self.steps)


def answer_figures(episodes: Collection[Sequence[Step]]) -> AnswerFigures:
    """Measure the answers of episodes, given as their steps."""
    steps = [step for episode in episodes for step in episode]
    entropies = [nats for step in steps for nats in step.entropies]
    actions = Counter(step.answer.rpartition(ACTION_MARK)[2].strip() for step in steps)
    ((top, count),) = actions.most_common(1) or [("", 0)]
    return AnswerFigures(
        steps=len(steps),
        tokens=sum(len(step.token_ids) for step in steps),
        entropy=fmean(entropies) if entropies else None,
        top_action=top,
        top_count=count,
    )


@dataclass(slots=True)
class Streak:
    """The newest groups in a row in which every reward has the same value, and the groups before them.

    Groups are counted, not episodes, because the rewards of one group are often alike without any fault.
    """

    before: deque[float | None] = field(default_factory=lambda: deque(maxlen=BEFORE))
    """The groups before the streak: the reward of each group, or None if its rewards differ."""
    reward: float | None = None
    length: int = 0

    def add(self, rewards: Sequence[float]) -> None:
        reward = _equal_reward(rewards)
        if reward != self.reward:
            self.before.extend([self.reward] * self.length)
            self.reward, self.length = reward, 0
        self.length += 1

    @property
    def chance(self) -> float:
        """Probability of the streak, estimated from the groups before it; 1 if there are too few of them, or
        if the rewards of the newest group differ."""
        if self.reward is None or len(self.before) < BEFORE_LEAST:
            return 1.0
        share = (self.before.count(self.reward) + 1) / (len(self.before) + 2)
        return share ** min(self.length, STREAK_MOST)


class GroupsInPlay:
    """Puts the episodes of groups together. A group may begin in one window and end in a later one."""

    def __init__(self) -> None:
        self._rewards: dict[int, tuple[str, list[float]]] = {}
        """Task and rewards so far of each group that has not ended, by group id."""

    def ended(self, episodes: Sequence[FinishedEpisode]) -> list[tuple[str, Sequence[float]]]:
        """Add the episodes of a window. Return task and rewards of each group with two episodes or more that
        has ended, in order.

        A group ends with its last rollout. A group of which a rollout was dropped ends with the first window
        that has none of its episodes.
        """
        played = {episode.group_id for episode in episodes}
        ended = [self._rewards.pop(group_id) for group_id in [*self._rewards] if group_id not in played]
        for episode in episodes:
            of_group = self._rewards.setdefault(episode.group_id, (episode.task_id, []))
            of_group[1].append(episode.reward)
            if len(of_group[1]) == episode.rollouts_wanted:
                ended.append(self._rewards.pop(episode.group_id))
        return [(task_id, rewards) for task_id, rewards in ended if len(rewards) > 1]


def _equal_reward(rewards: Sequence[float]) -> float | None:
    """Return the reward of a group in which all rewards are equal, else None."""
    return rewards[0] if max(rewards) - min(rewards) <= SPREAD else None


@dataclass(slots=True)
class _Task:
    """The history of one task."""

    successes: deque[bool] = field(default_factory=lambda: deque(maxlen=BEST_OF_ALL))
    steps: deque[int] = field(default_factory=lambda: deque(maxlen=RECENT))
    played: int = 0
    best: float = 0.0
    """Best success rate over `TASK_RECENT` episodes in a row."""
    steps_at_start: float = 0.0
    """Mean number of steps of the task's first `RECENT` episodes."""
    was_unsolved: bool = False
    """Whether its success rate over `RECENT` episodes in a row was ever below `SOLVED_FROM`."""

    def add(self, episode: FinishedEpisode, success_above: float) -> None:
        self.successes.append(episode.reward > success_above)
        self.steps.append(episode.num_steps)
        self.played += 1
        if self.played == RECENT:
            self.steps_at_start = fmean(self.steps)
        if self.played >= RECENT:
            self.was_unsolved = self.was_unsolved or self.success(RECENT) < SOLVED_FROM
        if self.played >= TASK_RECENT:
            self.best = max(self.best, self.success(TASK_RECENT))

    def success(self, last: int) -> float:
        """Return the success rate over its newest `last` episodes, or over all if there are fewer."""
        return fmean(list(self.successes)[-last:])

    @property
    def is_solved(self) -> bool:
        """Whether the run has solved the task. A task that hardly failed from the start was not solved by
        it."""
        return self.was_unsolved and self.success(RECENT) >= SOLVED_FROM

    @property
    def fall(self) -> float:
        """Share of its best success rate that the task has lost; 0 for a task that was never learned."""
        return 1.0 - self.success(TASK_RECENT) / self.best if self.best >= LEARNED_FROM else 0.0

    @property
    def length_factor(self) -> float | None:
        """Mean number of steps of the task's newest episodes, divided by that of its first ones; None while
        the two overlap."""
        return fmean(self.steps) / self.steps_at_start if self.played >= 2 * RECENT else None


class PlayHistory:
    """The history of a run's finished episodes. Add them window by window, in the order of being stored.

    A continued run may have other tasks than before. Episodes of tasks that it no longer trains are ignored;
    their answers count in the windows that hold them.
    """

    def __init__(self, success_above: float, trained: Iterable[str]) -> None:
        """trained   the tasks that the run trains now"""
        self._success_above = success_above
        self._trained = frozenset(trained)
        tasks = max(1, len(self._trained))
        self._of_best = max(RECENT, math.ceil(BEST_OF_ALL / tasks))
        """Number of episodes of each task of which the best mean success is computed."""
        self._of_newest = max(RECENT, math.ceil(NEWEST_OF_ALL / tasks))
        """Number of episodes of each task of which the present mean success is computed."""
        self._tasks: defaultdict[str, _Task] = defaultdict(_Task)
        self._groups = GroupsInPlay()
        self._compared: list[bool] = []
        """Whether all rewards are equal, for each group of the measurement about equal rewards."""
        self._streak = Streak()
        self._has_met_all = False
        """Whether the last window had no task for the first time."""
        self._windows = 0
        self._counted: list[str] = []
        """The tasks of which the mean success is measured."""
        self._best_success = 0.0
        self._at_start: list[AnswerFigures] = []

    def add_window(self, episodes: Sequence[FinishedEpisode], answers: AnswerFigures | None) -> None:
        """Add the episodes of a window.

        answers   the measurements of the window's answers; needed for the first `REFERENCE_WINDOWS` windows,
                  and may be None for later ones
        """
        trained = [episode for episode in episodes if episode.task_id in self._trained]
        self._meet({episode.task_id for episode in trained})
        ended = self._groups.ended(trained)
        self._compare(ended)
        for episode in trained:
            self._tasks[episode.task_id].add(episode, self._success_above)
        for _, rewards in ended:
            self._streak.add(rewards)
        self._windows += 1
        self._update_success()
        if answers is not None and self._windows <= REFERENCE_WINDOWS:
            self._at_start.append(answers)

    def figures(self, answers: AnswerFigures) -> dict[LearningAlarm, Measured]:
        """Return the measurements of the window that was added last; `answers` are those of its answers."""
        return dict(
            [
                *self._of_answers(answers),
                *self._of_success(),
                *self._of_groups(),
                *self._of_lengths(answers),
                self._of_streak(),
            ]
        )

    def _meet(self, task_ids: Set[str]) -> None:
        """Begin the streak anew when a continued run plays new tasks: it is not known what is usual for
        them."""
        has_new = not task_ids <= self._tasks.keys()
        if has_new and self._has_met_all:
            self._streak = Streak()
        self._has_met_all = not has_new

    def _compare(self, ended: Iterable[tuple[str, Sequence[float]]]) -> None:
        """Add the groups that have ended to the measurement about equal rewards, or begin a new one.

        Where every rollout succeeds in a task that the run has solved, the run has reached its aim, and
        nothing is wrong: such a group counts as one whose rewards differ.
        """
        solved = {name for name, task in self._tasks.items() if task.is_solved}
        compared = []
        for task_id, rewards in ended:
            reward = _equal_reward(rewards)
            is_aim = reward is not None and reward > self._success_above and task_id in solved
            compared.append(reward is not None and not is_aim)
        is_new = max(len(compared), len(self._compared)) >= GROUPS_LEAST
        self._compared = compared if is_new else [*self._compared, *compared]

    def _update_success(self) -> None:
        """Count the tasks that were played half as often as the best mean takes episodes of each, once they
        are half of all, and update the best mean success. If other tasks count than before, it changes by as
        much as the mean, because that is neither a rise nor a fall."""
        played = [name for name, task in self._tasks.items() if task.played >= self._of_best / 2]
        if 2 * len(played) >= len(self._tasks) and played != self._counted:
            if self._counted:
                before = self._mean_success(self._counted, self._of_best)
                self._best_success += self._mean_success(played, self._of_best) - before
            self._counted = played
        if self._counted:
            self._best_success = max(self._best_success, self._mean_success(self._counted, self._of_best))

    def _mean_success(self, names: Collection[str], last: int) -> float:
        """Return the mean over tasks of their success rates, each over its newest `last` episodes."""
        return fmean(self._tasks[name].success(last) for name in names)

    def _of_answers(self, answers: AnswerFigures) -> Iterator[tuple[LearningAlarm, Measured]]:
        at_start = [one.entropy for one in self._at_start if one.entropy]
        if at_start and answers.entropy is not None:
            share = answers.entropy / fmean(at_start)
            text = f"entropy {answers.entropy:.3g} nats per token, {share:.1%} of that at the start"
            yield LearningAlarm.ENTROPY_COLLAPSE, Measured(share, text)
        if answers.steps:
            share = answers.top_count / answers.steps
            yield (
                LearningAlarm.ONE_ACTION,
                Measured(share, f"{share:.0%} of the steps have the action {answers.top_action!r}"),
            )

    def _of_success(self) -> Iterator[tuple[LearningAlarm, Measured]]:
        if self._counted:
            success = self._mean_success(self._counted, self._of_newest)
            best = max(success, self._best_success)
            text = f"mean success of the tasks {success:.0%}, at best {best:.0%}"
            yield LearningAlarm.SUCCESS_FALLS, Measured(best - success, text)
        if self._tasks:
            name, worst = max(self._tasks.items(), key=lambda item: item[1].fall)
            text = f"success of {name} {worst.success(TASK_RECENT):.0%}, at best {worst.best:.0%}"
            yield LearningAlarm.TASK_UNLEARNED, Measured(worst.fall, text)

    def _of_groups(self) -> Iterator[tuple[LearningAlarm, Measured]]:
        if len(self._compared) >= GROUPS_LEAST:
            share = fmean(self._compared)
            text = f"{share:.0%} of {len(self._compared)} groups have equal rewards and no solved task"
            yield LearningAlarm.EQUAL_REWARDS, Measured(share, text)

    def _of_lengths(self, answers: AnswerFigures) -> Iterator[tuple[LearningAlarm, Measured]]:
        found = []
        if self._at_start and (before := fmean(one.tokens_per_answer for one in self._at_start)):
            factor = answers.tokens_per_answer / before
            text = (
                f"answers have {answers.tokens_per_answer:.3g} tokens, {factor:.1f} times those at the start"
            )
            found.append(Measured(factor, text))
        factors = [task.length_factor for task in self._tasks.values()]
        if known := [one for one in factors if one is not None]:
            text = f"episodes of a task have {fmean(known):.1f} times the steps of its first ones"
            found.append(Measured(fmean(known), text))
        if found:
            yield LearningAlarm.LENGTH_EXPLODES, max(found, key=lambda one: one.value)

    def _of_streak(self) -> tuple[LearningAlarm, Measured]:
        streak = self._streak
        before = sum(reward == streak.reward for reward in streak.before)
        text = "the rewards of the last group differ"
        if streak.reward is not None:
            text = (
                f"in the last {streak.length} groups every reward is {streak.reward:g}, which was so in "
                f"{before} of the {len(streak.before)} groups before"
            )
        return LearningAlarm.EVALUATOR_STUCK, Measured(streak.chance, text)
