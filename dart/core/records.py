"""What the store answers with: plain frozen data, no SQL and no I/O."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Generic, TypeVar

from dart.core.run_directory import RunPaths
from dart.core.types import RolloutState

R = TypeVar("R")

STALENESS_BOUND = "staleness_bound"
"""Among the figures of a version: how old a step might be, in versions, when it was trained."""


class StoredResult(StrEnum):
    """What became of a report: a trajectory, an evaluation episode, an update or a refused batch."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    """The record has it: a sender that got no reply sent it again."""
    FENCED = "fenced"
    """A newer lease exists; the report changes nothing and is counted (invariant fenced)."""


class Release(StrEnum):
    """What became of a lease that was taken back or given up."""

    AWAITING = "awaiting"
    """Still leased in the books, without an owner: it will be played again."""
    DROPPED = "dropped"
    """That was the last attempt."""
    DUPLICATE = "duplicate"
    """This lease had been taken back before."""
    SETTLED = "settled"
    """This lease ended with a stored trajectory; nothing was spent."""
    FENCED = "fenced"
    """Another environment holds a newer lease; the report is ignored and counted."""


class Reassignment(StrEnum):
    """Why a rollout cannot be leased again."""

    SETTLED = "settled"
    """It is stored, trained or dropped."""
    OWNED = "owned"
    """An environment holds its lease; release that first."""


class Guided(StrEnum):
    """What became of an episode that was played under the actions of a demonstration."""

    ADDED = "added"
    """It is a demonstration now."""
    FAILED = "failed"
    """Its reward is less than that of the demonstration; the attempt is counted."""
    DUPLICATE = "duplicate"
    """This attempt was recorded before."""


class Park(StrEnum):
    """What became of an episode that was interrupted at a step boundary."""

    PARKED = "parked"
    """Its steps are in the record; an environment will take it up. No attempt is spent."""
    REFUSED = "refused"
    """It was parked too often: the steps are forgotten, the attempt is spent."""
    DUPLICATE = "duplicate"
    """This lease had parked it before."""
    FENCED = "fenced"
    """The lease was taken away; the report is ignored and counted."""


class DecisionKind(StrEnum):
    """What about a task was decided."""

    ROLLOUTS = "rollouts"
    """N of its next groups."""
    STEP_CAP = "step_cap"
    """Steps an episode of it may have."""
    QUARANTINE = "quarantine"
    """It rests; `after` is the unix time until which, empty when it is released."""


class GroupState(StrEnum):
    """Where a group is."""

    OPEN = "open"
    """Its rollouts are being played, or it is complete and waits for a batch."""
    BATCHED = "batched"
    """Leased to the trainer."""
    CONSUMED = "consumed"
    DROPPED = "dropped"


class BatchState(StrEnum):
    """Where a batch is."""

    LEASED = "leased"
    CONSUMED = "consumed"
    RELEASED = "released"
    """Given back untrained."""


class RunPhase(StrEnum):
    """What a run does now; its evaluations before and after training are optional."""

    BASE_EVALUATION = "base evaluation"
    TRAINING = "training"
    FINAL_EVALUATION = "final evaluation"
    DONE = "done"


class EvaluationPhase(StrEnum):
    """When an evaluation took place."""

    BEFORE = "before"
    AFTER = "after"


@dataclass(frozen=True, slots=True, kw_only=True)
class Conservation:
    """The books of invariant one-fate: issued is a counter of its own."""

    issued: int = 0
    trained: int = 0
    dropped: int = 0
    stored: int = 0
    leased: int = 0

    @property
    def holds(self) -> bool:
        """Whether every issued rollout is in exactly one place."""
        return self.issued == self.trained + self.dropped + self.stored + self.leased

    def __str__(self) -> str:
        return (
            f"issued {self.issued} {'=' if self.holds else '≠'} trained {self.trained} + "
            f"dropped {self.dropped} + stored {self.stored} + leased {self.leased}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutRecord:
    """Where one rollout is."""

    rollout_id: int
    group_id: int
    state: RolloutState
    environment: str | None
    """None while no environment plays it."""
    attempt: int
    fence: int
    deadline_unix_s: float
    reward: float | None
    """None until it is stored."""
    oldest_version: int | None
    """Least policy version among its steps, parked ones included; None until there are any."""
    num_steps: int | None = None
    """Environment steps of its trajectory; None until it is stored."""
    parked_steps: int = 0
    """Steps kept of an episode that was parked and awaits being taken up."""
    resumes: int = 0
    """How often it was parked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutChange(Generic[R]):
    """What became of a call about a rollout, and the rollout as the call left it."""

    result: R
    rollout: RolloutRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRecord:
    """One live group: open, or leased to the trainer."""

    group_id: int
    task_id: str
    seed: int
    rollouts_wanted: int
    step_cap: int
    policy_version: int
    """Oldest version any engine served when the group was opened: no step of it is older."""
    batch_id: int | None
    rollouts: tuple[RolloutRecord, ...]
    probes_length: bool = False
    """It runs at the global step cap to see whether longer successes exist."""
    injected: tuple[int, ...] = ()
    """Demonstrations of the experience pool that were added to it (their pool_ids)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The groups leased to the trainer for one update."""

    batch_id: int
    group_ids: tuple[int, ...]
    fence: int = 1
    """Fencing token: grows with every lease of this batch; a commit with an older one is ignored."""
    deadline_unix_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One policy version."""

    version: int
    checkpoint: str
    """As recorded: the base policy of version 0, of every other version a folder of the run."""
    metrics: Mapping[str, float]
    """The figures of the update that made it; empty for version 0."""
    created_unix_s: float

    def folder(self, run_dir: Path) -> Path:
        """Where its checkpoint lies, or lay.

        Only the name counts of what was recorded, also of an absolute path: a run that was moved or copied
        finds its own checkpoints and never looks into the original.
        """
        recorded = Path(self.checkpoint)
        return RunPaths(run_dir).checkpoints / recorded.name if self.version > 0 else recorded


RECENT_REWARDS = 32
"""Of each task that are read where no more are needed: a group may have more rollouts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStatistics:
    """What is known about one task from training."""

    task_id: str
    groups_opened: int
    finished: int = 0
    """Episodes that were ever stored."""
    recent_rewards: tuple[float, ...]
    """Newest last."""
    longest_success_steps: int | None
    """None before the first success."""
    decided: Mapping[DecisionKind, "TaskDecision"] = field(default_factory=dict)
    """The newest decision of each kind."""
    demonstrations: tuple["DemonstrationSummary", ...] = ()
    """What the experience pool holds for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDecision:
    """Something the curator decided about a task, and why."""

    task_id: str
    kind: DecisionKind
    before: str
    after: str
    reason: str
    """In words with figures: `success 0.80 over the last 8`."""
    policy_version: int
    unix_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DemonstrationSummary:
    """One demonstration of the experience pool, without its steps."""

    pool_id: int
    task_id: str
    seed: int
    origin: str
    num_steps: int
    uses: int
    """How many groups it was added to."""
    dropped: bool
    """Taken out of use; groups that have it keep it."""
    lacks_thought: bool = False
    """See `Demonstration.lacks_thought`."""
    guide_id: int | None = None
    """See `Demonstration.guide_id`."""
    rolls: int = 0
    """How many episodes the policy played under its actions."""

    @property
    def is_self_rolled(self) -> bool:
        """Whether the policy of this run played it."""
        return self.guide_id is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything a restarted curator needs, read in one transaction."""

    groups: tuple[GroupRecord, ...]
    """Live groups, oldest first."""
    tasks: tuple[TaskStatistics, ...]
    batch: Batch | None
    version: int | None
    """Newest policy version; None before the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """One evaluation episode on a held-out seed."""

    phase: EvaluationPhase
    policy_version: int
    task_id: str
    seed: int
    reward: float
    is_greedy: bool = False
    """Played with the most likely answers instead of samples at `evaluation.temperature`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something worth telling that happened in the run."""

    event_id: int
    unix_s: float
    kind: str
    subject: str
    data: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventCounts:
    """How many events there were, up to one of them."""

    newest_id: int
    of_kind: Mapping[str, int]


NO_EVENTS = EventCounts(newest_id=0, of_kind=MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """The figures of the live view."""

    trajectories: int
    steps: int
    recent_success: float | None
    """Share of successes among the last trajectories; None before the first."""
    steps_per_minute: float
    """Over the last minute."""
    outcomes: Mapping[str, int]
    """Trajectories by outcome."""
    faults: Mapping[str, int]
    """Attempts spent, by fault kind."""
    drops: Mapping[str, int]
    """Rollouts dropped, by reason."""
    fenced: int
    """Late reports refused."""
