"""Which tasks rest: those that cost rollouts or environments and teach nothing.

A task rests when groups in a row had no success, attempts in a row ended by a fault, or environments in a
row died or hung while they played it. After the rest one group of it is tried. A success releases the task;
without one it rests again, twice as long. So a hopeless task costs less and less, and none is given up.

Where groups without success do not count (`groups_without_success` 0), it is faults alone that make a task
rest: there any episode that was played to its end releases it, or a hard task would never be played again.

Only counts in a row are kept, and not in the record: after a restart they begin anew, the rests do not.
"""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineLimits:
    """How much is borne in a row."""

    groups_without_success: int
    """0: never a reason."""
    failed_attempts: int
    lost_environments: int
    duration_s: float
    """The first rest; each one in a row is twice as long as the one before."""

    def __post_init__(self) -> None:
        counts = (self.failed_attempts, self.lost_environments)
        if self.groups_without_success < 0 or min(counts) < 1 or self.duration_s <= 0:
            raise ValueError(
                "quarantine needs groups_without_success >= 0, failed_attempts >= 1, lost_environments >= 1 "
                f"and duration_s > 0, got {self}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantine:
    """A task is left alone."""

    until_unix_s: float
    length_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What happened to a task in a row, and its rest."""

    groups_without_success: int = 0
    failed_attempts: int = 0
    lost_environments: int = 0
    has_failed_its_trial: bool = False
    """The group that was tried after a rest ended without a success."""
    may_be_released: bool = False
    """What ends a rest has happened."""
    rest: Quarantine | None = None

    def is_tried(self, now_unix_s: float) -> bool:
        """Whether its rest is over, and what it does now decides about the next one."""
        return self.rest is not None and self.rest.until_unix_s <= now_unix_s


HEALTHY = Health()


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineVerdict:
    """A task's rest begins, or is over for good where `rest` is None."""

    rest: Quarantine | None
    reason: str


def after_fault(health: Health, *, environment_lost: bool) -> Health:
    """An attempt ended by a fault; the environment died or hung with it, or lived to tell."""
    return replace(
        health,
        failed_attempts=health.failed_attempts + 1,
        lost_environments=health.lost_environments + 1 if environment_lost else 0,
    )


def after_episode(health: Health, limits: QuarantineLimits, *, succeeded: bool) -> Health:
    """An episode was played to its end."""
    return replace(
        health,
        failed_attempts=0,
        lost_environments=0,
        groups_without_success=0 if succeeded else health.groups_without_success,
        may_be_released=succeeded or limits.groups_without_success == 0,
    )


def after_demonstration(health: Health) -> Health:
    """A group without a success of its own got one from the experience pool."""
    return replace(health, groups_without_success=0, may_be_released=True)


def after_group_without_success(health: Health, now_unix_s: float, *, any_finished: bool) -> Health:
    """A group is over, and neither a rollout of it nor the pool had a success."""
    return replace(
        health,
        groups_without_success=health.groups_without_success + any_finished,
        has_failed_its_trial=health.is_tried(now_unix_s),
    )


def judge(health: Health, limits: QuarantineLimits, now_unix_s: float) -> QuarantineVerdict | None:
    """What follows for the task; None for no change."""
    if health.rest is not None and health.may_be_released:
        what = (
            "a group had a success" if limits.groups_without_success else "an episode was played to its end"
        )
        return QuarantineVerdict(rest=None, reason=f"{what} after {health.rest.length_s:g} s of rest")
    reason = _broken_by(health, limits) or _without_success(health, limits)
    if not reason:
        return None
    length_s = limits.duration_s if health.rest is None else 2 * health.rest.length_s
    return QuarantineVerdict(
        rest=Quarantine(until_unix_s=now_unix_s + length_s, length_s=length_s), reason=reason
    )


def is_unplayable(health: Health, limits: QuarantineLimits) -> bool:
    """Whether faults make it rest: then what is live of it is not to be played on either."""
    return bool(_broken_by(health, limits))


def _broken_by(health: Health, limits: QuarantineLimits) -> str:
    if health.lost_environments >= limits.lost_environments:
        return f"{health.lost_environments} environments in a row died while playing it"
    if health.failed_attempts >= limits.failed_attempts:
        return f"{health.failed_attempts} attempts in a row ended by a fault"
    return ""


def _without_success(health: Health, limits: QuarantineLimits) -> str:
    if 0 < limits.groups_without_success <= health.groups_without_success:
        return f"{health.groups_without_success} groups in a row had no success"
    if health.has_failed_its_trial:
        return "the group tried after its rest had no success"
    return ""
