"""What is known about every task, which task gets the next group, and what is decided about each task.

Each event updates the state of one task. A task that is not quarantined may have new groups. When its
quarantine is over, it may have one group as a trial, after its other groups have been played.
"""

import math
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from random import Random

from dart.core.messages import OpenGroup
from dart.core.records import DecisionKind, DemonstrationSummary, SeedReward, TaskDecision, TaskStatistics
from dart.curation import task_quarantine
from dart.curation.indexed_heap import IndexedHeap
from dart.curation.quota import success
from dart.curation.settings import CuratorSettings
from dart.curation.task_quarantine import HEALTHY, TaskHealth, TaskQuarantine
from dart.curation.task_selection import expected_spread, next_seed


@dataclass(slots=True, kw_only=True)
class TaskState:
    """What is known of one task."""

    task_id: str
    groups_opened: int
    played: deque[SeedReward]
    """The seeds and rewards of its latest episodes, newest last."""
    longest_success_steps: int | None
    rollouts: int
    """N, the number of rollouts of the task's next groups."""
    step_cap: int
    demonstrations: dict[int, DemonstrationSummary]
    health: TaskHealth
    is_unjudged: bool
    """Whether an episode may have ended since N was decided last."""
    why_quarantined: str = ""
    unfinished: int = 0
    """Number of the task's groups that are not complete yet."""

    @property
    def rewards(self) -> list[float]:
        """The rewards of its latest episodes, newest last."""
        return [reward for _, reward in self.played]


class TaskTable:
    """The states of the tasks of a run, by task id."""

    def __init__(self, settings: CuratorSettings, known: Iterable[TaskStatistics]) -> None:
        self._rules = settings
        self._tasks: dict[str, TaskState] = {}
        self._position = {name: position for position, name in enumerate(settings.tasks)}
        self._order = settings.task_order(settings.tasks, settings.order_seed)
        """The order of the tasks that may have a group now."""
        self._quarantined: IndexedHeap[str] = IndexedHeap()
        """Quarantined tasks without an unfinished group, ordered by the ends of their quarantines."""
        self._to_judge: dict[str, None] = {}
        self._known_unix_s = math.inf
        """The time at the last decision; infinity before the first one, because the clock may have been set
        back since the quarantines in the record began."""
        for statistics in known:
            self._tasks[statistics.task_id] = self._read(statistics)
        for name in settings.tasks:
            self._place(name)

    def __getitem__(self, task_id: str) -> TaskState:
        """Return the state of a task. If the task has none yet, a new state is made and kept."""
        if task_id not in self._tasks:
            new = TaskStatistics(task_id=task_id, groups_opened=0, recent=(), longest_success_steps=None)
            self._tasks[task_id] = self._read(new)
        return self._tasks[task_id]

    # ---- events ----

    def group_opened(self, task_id: str) -> None:
        task = self[task_id]
        task.groups_opened += 1
        task.unfinished += 1
        self._place(task_id)

    def group_is_played(self, task_id: str, change: int) -> None:
        """Change the number of a task's unfinished groups by `change`, 1 or -1."""
        self[task_id].unfinished += change
        self._place(task_id)

    def episode_ended(self, task_id: str, seed: int, reward: float, num_steps: int | None) -> None:
        """Update a task with a stored episode: its seed, its reward, its number of steps (None: unknown)."""
        task = self[task_id]
        task.played.append(SeedReward(seed, reward))
        task.is_unjudged = True
        is_success = reward > self._rules.success_above
        if is_success and num_steps is not None:
            task.longest_success_steps = max(num_steps, task.longest_success_steps or 0)
        if (limits := self._rules.task_quarantine) is not None:
            task.health = task_quarantine.after_episode(task.health, limits, succeeded=is_success)
        self._to_judge[task_id] = None
        self._place(task_id)

    def attempt_failed(self, task_id: str, *, environment_lost: bool) -> None:
        """Count an attempt that ended by a fault that the task may have caused."""
        before = self[task_id].health
        self._health_is(task_id, task_quarantine.after_fault(before, environment_lost=environment_lost))

    def group_without_success(self, task_id: str, opened_unix_s: float, *, any_finished: bool) -> None:
        """Count a group that ended without a success and without a demonstration.

        opened_unix_s   when the group was opened
        any_finished    whether at least one of its rollouts was played to its end
        """
        health = task_quarantine.after_group_without_success(
            self[task_id].health, opened_unix_s, any_finished=any_finished
        )
        self._health_is(task_id, health)

    def demonstration_used(self, task_id: str, pool_id: int) -> None:
        """Count that a demonstration was added to a group of its task."""
        task = self[task_id]
        used = task.demonstrations[pool_id]
        task.demonstrations[pool_id] = replace(used, uses=used.uses + 1)
        self._health_is(task_id, task_quarantine.after_demonstration(task.health))

    def pool_changed(self, task_id: str, held: Iterable[DemonstrationSummary]) -> None:
        """Replace the demonstrations of a task by `held`, those that the experience pool holds now."""
        self[task_id].demonstrations = {one.pool_id: one for one in held}

    def decided(self, decision: TaskDecision) -> None:
        """Apply a decision that has been written to the record."""
        task = self[decision.task_id]
        match decision.kind:
            case DecisionKind.ROLLOUTS:
                task.rollouts, task.is_unjudged = int(decision.after), False
                self._place(decision.task_id)
            case DecisionKind.STEP_CAP:
                task.step_cap = int(decision.after)
            case DecisionKind.QUARANTINE:
                task.health = TaskHealth(quarantine=quarantine_of(decision))
                task.why_quarantined = decision.reason
                self._place(decision.task_id)

    # ---- decisions ----

    def next_group(self, policy_version: int, now_unix_s: float) -> OpenGroup | None:
        """Return the next group to open; None if every task is in quarantine or on trial.

        policy_version   the oldest version that any engine serves
        """
        self._note_time(now_unix_s)
        self._wake(now_unix_s)
        task_id = self._order.first()
        if task_id is None:
            return None
        task, rule = self[task_id], self._rules.step_cap
        probes = (
            rule is not None
            and task.step_cap < rule.largest
            and rule.probes(task_id, task.groups_opened, self._rules.order_seed)
        )
        return OpenGroup(
            task_id=task_id,
            seed=self._seed_of(task),
            rollouts_wanted=task.rollouts,
            step_cap=self._rules.largest_step_cap if probes else task.step_cap,
            policy_version=policy_version,
            probes_length=probes,
        )

    def _seed_of(self, task: TaskState) -> int:
        """Return the seed of a task's next group: one with a demonstration if every rollout will probably
        fail (`PoolRule.seed_for`), else the next one in the task's order."""
        rules = self._rules
        if rules.pool is not None:
            chance = Random(f"{rules.order_seed}/{task.task_id}/{task.groups_opened}/demonstrated")
            known = tuple(task.demonstrations.values())
            if (seed := rules.pool.seed_for(task.rollouts, chance, known, task.played)) is not None:
                return seed
        return next_seed(task.task_id, task.groups_opened, rules.seeds, rules.order_seed)

    def why_none(self, now_unix_s: float) -> str:
        """Say in words why no task may have a new group now."""
        task_id = self._quarantined.first()
        every = f"every task is in quarantine ({len(self._position)})"
        if task_id is None:
            return f"{every}; those whose quarantine is over are being tried"
        task = self[task_id]
        assert task.health.quarantine is not None
        left_s = task.health.quarantine.until_unix_s - now_unix_s
        return f"{every}; the next one is {task_id} in {left_s:.0f} s: {task.why_quarantined}"

    def quarantined(self, now_unix_s: float) -> dict[str, str]:
        """Return the configured tasks that are in quarantine now, each with the reason."""
        return {
            task.task_id: task.why_quarantined
            for task in self._tasks.values()
            if task.task_id in self._position and task.health.is_quarantined(now_unix_s)
        }

    def decisions(self, policy_version: int, now_unix_s: float) -> tuple[TaskDecision, ...]:
        """Return the decisions that are due. A decision is returned again until `decided` gets it."""
        self._note_time(now_unix_s)
        found: list[TaskDecision] = []
        for task_id in tuple(self._to_judge):
            of_task = [
                TaskDecision(
                    task_id=task_id,
                    kind=kind,
                    before=before,
                    after=after,
                    reason=reason,
                    policy_version=policy_version,
                    unix_s=now_unix_s,
                )
                for kind, before, after, reason in self._changes(self[task_id], now_unix_s)
            ]
            if not of_task:
                del self._to_judge[task_id]
            found += of_task
        return tuple(found)

    def makes_unplayable(self, decision: TaskDecision) -> bool:
        """Whether a decision that is due puts its task into quarantine because of faults, so that the task's
        unfinished groups have to be dropped."""
        limits = self._rules.task_quarantine
        return bool(
            decision.kind is DecisionKind.QUARANTINE
            and decision.after
            and limits is not None
            and task_quarantine.is_unplayable(self[decision.task_id].health, limits)
        )

    # ---- internal ----

    def _changes(self, task: TaskState, now_unix_s: float) -> Iterator[tuple[DecisionKind, str, str, str]]:
        """Yield each change of a task that is due: its kind, the values before and after, and the reason."""
        rollouts = self._rules.quota.rollouts(task.rollouts, task.rewards)
        if task.is_unjudged and rollouts != task.rollouts:
            s = success(task.rewards, task.rollouts)
            reason = f"success {s:.2f} over the last {task.rollouts}"
            yield DecisionKind.ROLLOUTS, str(task.rollouts), str(rollouts), reason
        rule, longest = self._rules.step_cap, task.longest_success_steps
        if rule is not None and (cap := rule.after(longest)) != task.step_cap:
            yield DecisionKind.STEP_CAP, str(task.step_cap), str(cap), rule.reason(longest)
        limits, health = self._rules.task_quarantine, task.health
        if limits is not None and (verdict := task_quarantine.judge(health, limits, now_unix_s)) is not None:
            quarantine, reason = verdict
            yield DecisionKind.QUARANTINE, end_of(health.quarantine), end_of(quarantine), reason

    def _health_is(self, task_id: str, health: TaskHealth) -> None:
        if self._rules.task_quarantine is not None:
            self[task_id].health = health
            self._to_judge[task_id] = None

    def _read(self, statistics: TaskStatistics) -> TaskState:
        """Return the state of a task from its statistics in the record."""
        rules, decided = self._rules, statistics.decided
        number, cap, quarantine = (decided.get(kind) for kind in DecisionKind)
        largest = rules.largest_step_cap
        task = TaskState(
            task_id=statistics.task_id,
            groups_opened=statistics.groups_opened,
            played=deque(statistics.recent, maxlen=rules.kept_episodes),
            longest_success_steps=statistics.longest_success_steps,
            rollouts=rules.quota.at_first(None if number is None else int(number.after)),
            step_cap=largest if cap is None or rules.step_cap is None else min(largest, int(cap.after)),
            demonstrations={found.pool_id: found for found in statistics.demonstrations},
            health=HEALTHY
            if quarantine is None or rules.task_quarantine is None
            else TaskHealth(quarantine=quarantine_of(quarantine)),
            is_unjudged=_may_be_unjudged(statistics),
            why_quarantined="" if quarantine is None else quarantine.reason,
        )
        has_other_cap = (
            rules.step_cap is not None and rules.step_cap.after(task.longest_success_steps) != task.step_cap
        )
        if has_other_cap or task.is_unjudged:
            self._to_judge[task.task_id] = None
        return task

    def _place(self, task_id: str) -> None:
        """Make a task available in `_order`, or put it into `_quarantined`; during its trial it is in
        neither."""
        if task_id not in self._position:
            return  # it is in the record and not in the configuration any more
        task = self._tasks.get(task_id)
        quarantine = None if task is None else task.health.quarantine
        is_tried = task is not None and task.unfinished > 0
        self._set_order(task_id, is_allowed=quarantine is None)
        until = None if quarantine is None or is_tried else quarantine.until_unix_s
        self._quarantined.set(task_id, None if until is None else (until, self._position[task_id]))

    def _set_order(self, task_id: str, *, is_allowed: bool) -> None:
        task = self._tasks.get(task_id)
        rewards = [] if task is None else task.rewards[-self._rules.kept_rewards :]
        rollouts = self._rules.quota.at_first(None) if task is None else task.rollouts
        self._order.place(
            task_id,
            0 if task is None else task.groups_opened,
            expected_spread(rewards, rollouts),
            is_allowed=is_allowed,
        )

    def _note_time(self, now_unix_s: float) -> None:
        """Shorten the quarantines that a clock that was set back makes longer."""
        was_set_back = now_unix_s < self._known_unix_s
        self._known_unix_s = now_unix_s
        if not was_set_back:
            return
        for task in self._tasks.values():
            if (quarantine := task.health.quarantine) is not None:
                task.health = replace(task.health, quarantine=quarantine.shortened(now_unix_s))
                self._place(task.task_id)

    def _wake(self, now_unix_s: float) -> None:
        """Make the tasks available in `_order` whose quarantine is over."""
        for task_id in self._quarantined.up_to((now_unix_s, math.inf)):
            self._quarantined.discard(task_id)
            self._set_order(task_id, is_allowed=True)


def _may_be_unjudged(statistics: TaskStatistics) -> bool:
    """Whether an earlier curator may have ended before it judged the newest episode of a task.

    False if the number of rollouts was decided after that episode: to judge the same rewards by the new
    number would be another decision. If nothing was decided since the episode, it does no harm to judge it
    once more.
    """
    newest_unix_s, decided = statistics.newest_stored_unix_s, statistics.decided.get(DecisionKind.ROLLOUTS)
    return newest_unix_s is not None and (decided is None or decided.unix_s < newest_unix_s)


def end_of(quarantine: TaskQuarantine | None) -> str:
    """Return the end of a quarantine as text for the record; empty if there is no quarantine."""
    return "" if quarantine is None else repr(quarantine.until_unix_s)


def quarantine_of(decision: TaskDecision) -> TaskQuarantine | None:
    """Return the quarantine that a recorded decision began; None if the decision ended a quarantine."""
    if not decision.after:
        return None
    until_unix_s = float(decision.after)
    return TaskQuarantine(until_unix_s=until_unix_s, length_s=until_unix_s - decision.unix_s)
