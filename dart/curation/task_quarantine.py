"""The quarantine of tasks: tasks that cost rollouts and teach nothing are not played for a while.

A task enters quarantine when too many groups in a row had no success, too many attempts in a row ended by a
fault, or too many environments in a row died or hung while they played the task. After the quarantine one
group of the task is opened as a trial. A success releases the task. If the trial has no success, a new
quarantine begins that lasts twice as long. Groups that were opened earlier are no trial, whenever they end.
A trial in which no episode was played to its end and no attempt ended by a fault of the task says nothing
about the task: the next group is another trial. So a task that never succeeds costs less and less, but is
tried again and again.

With `groups_without_success` 0, only faults lead to quarantine. Then any episode that is played to its end
releases the task; otherwise a task without faults that is only hard would never be released.

The record holds the quarantines, but not the counts in a row: they begin at zero after a restart. A trial
whose faults all happened before the restart is therefore repeated.

The quarantine of an environment's process is something else: `supervision.circuit_breaker`.
"""

from dataclasses import dataclass, replace

from dart.config.sections import TaskQuarantineSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskQuarantine:
    """A quarantine of a task: when it ends, and how long it is."""

    until_unix_s: float
    length_s: float

    def shortened(self, now_unix_s: float) -> "TaskQuarantine":
        """Return this quarantine, which lasts no longer from now than its whole length.

        It would last longer if the clock was set back since it began.
        """
        return replace(self, until_unix_s=min(self.until_unix_s, now_unix_s + self.length_s))


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskHealth:
    """The numbers of failures in a row of a task, by kind, and its quarantine (None: not quarantined)."""

    groups_without_success: int = 0
    failed_attempts: int = 0
    lost_environments: int = 0
    has_failed_its_trial: bool = False
    """Whether the group that was opened as a trial after the quarantine was played without a success, or
    could not be played because of the task."""
    may_be_released: bool = False
    """Whether something has happened that releases a quarantined task, such as a success."""
    quarantine: TaskQuarantine | None = None

    def is_quarantined(self, unix_s: float) -> bool:
        """Whether a moment is before the end of the quarantine, so that no new group of the task is opened
        then."""
        return self.quarantine is not None and self.quarantine.until_unix_s > unix_s


HEALTHY = TaskHealth()


def after_fault(health: TaskHealth, *, environment_lost: bool) -> TaskHealth:
    """Return the health after an attempt that ended by a fault.

    environment_lost   whether the environment died or hung
    """
    return replace(
        health,
        failed_attempts=health.failed_attempts + 1,
        lost_environments=health.lost_environments + 1 if environment_lost else 0,
    )


def after_episode(health: TaskHealth, limits: TaskQuarantineSettings, *, succeeded: bool) -> TaskHealth:
    """Return the health after an episode that was played to its end."""
    return replace(
        health,
        failed_attempts=0,
        lost_environments=0,
        groups_without_success=0 if succeeded else health.groups_without_success,
        may_be_released=succeeded or limits.groups_without_success == 0,
    )


def after_demonstration(health: TaskHealth) -> TaskHealth:
    """Return the health after a demonstration was added to a group, which counts as a success."""
    return replace(health, groups_without_success=0, may_be_released=True)


def after_group_without_success(
    health: TaskHealth, opened_unix_s: float, *, any_finished: bool
) -> TaskHealth:
    """Return the health after a group ended without a success and without a demonstration.

    A group that was opened before the end of the present quarantine changes nothing. Neither does a group of
    which nothing was played, unless attempts ended by faults that count against the task.

    opened_unix_s   when the group was opened
    any_finished    whether at least one of its rollouts was played to its end; only then the group is counted
    """
    if health.is_quarantined(opened_unix_s):
        return health
    says_something = any_finished or health.failed_attempts > 0
    return replace(
        health,
        groups_without_success=health.groups_without_success + any_finished,
        has_failed_its_trial=health.quarantine is not None and says_something,
    )


def judge(
    health: TaskHealth, limits: TaskQuarantineSettings, now_unix_s: float
) -> tuple[TaskQuarantine | None, str] | None:
    """Decide whether a quarantine of the task begins or ends.

    returns   None for no change; else the quarantine that begins (None if the present one ends), and the
              reason
    """
    if health.quarantine is not None and health.may_be_released:
        what = (
            "a group had a success" if limits.groups_without_success else "an episode was played to its end"
        )
        return None, f"{what} after {health.quarantine.length_s:g} s of quarantine"
    reason = _broken_by(health, limits) or _without_success(health, limits)
    if not reason:
        return None
    length_s = limits.duration_s if health.quarantine is None else 2 * health.quarantine.length_s
    return TaskQuarantine(until_unix_s=now_unix_s + length_s, length_s=length_s), reason


def is_unplayable(health: TaskHealth, limits: TaskQuarantineSettings) -> bool:
    """Whether a task has so many faults in a row that its live groups are not played any further."""
    return bool(_broken_by(health, limits))


def _broken_by(health: TaskHealth, limits: TaskQuarantineSettings) -> str:
    if health.lost_environments >= limits.lost_environments:
        return f"{health.lost_environments} environments in a row died while playing it"
    if health.failed_attempts >= limits.failed_attempts:
        return f"{health.failed_attempts} attempts in a row ended by a fault"
    return ""


def _without_success(health: TaskHealth, limits: TaskQuarantineSettings) -> str:
    if 0 < limits.groups_without_success <= health.groups_without_success:
        return f"{health.groups_without_success} groups in a row had no success"
    if health.has_failed_its_trial:
        return "the group tried after its quarantine had no success"
    return ""
