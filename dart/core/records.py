"""The rows of the record, and the results of writing to it, as frozen data classes without SQL and I/O."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Generic, NamedTuple, TypeVar

from dart.core.types import Outcome, RolloutState

R = TypeVar("R")

STALENESS_BOUND = "staleness_bound"
"""Name of a metric of each version: the largest staleness that was allowed in its batch."""


class StoredResult(StrEnum):
    """What the store did with a reported result: a trajectory, an evaluation episode, an update or a refused
    batch."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    """The record has this result already, because a sender that got no reply sent the report again."""
    FENCED = "fenced"
    """The lease of the report has ended; the report changes nothing and is counted (invariant fenced)."""


class Release(StrEnum):
    """What the store did with a lease that was taken back or given up."""

    AWAITING = "awaiting"
    """The attempt is spent; the rollout is still leased, without an environment, and is played again."""
    DROPPED = "dropped"
    """The last attempt is spent, and the rollout is dropped."""
    DUPLICATE = "duplicate"
    """This lease was taken back before; nothing changed."""
    SETTLED = "settled"
    """This lease ended with a stored trajectory; no attempt is spent."""
    FENCED = "fenced"
    """The rollout has had a newer lease since; the report is ignored and counted."""


class Reassignment(StrEnum):
    """Why a rollout was not leased again."""

    SETTLED = "settled"
    """The rollout is stored, trained or dropped."""
    OWNED = "owned"
    """An environment holds the rollout's lease, which must be released first."""


class Guided(StrEnum):
    """What the store did with an episode that was played with a demonstration's actions as a hint."""

    ADDED = "added"
    """The episode is a demonstration now."""
    FAILED = "failed"
    """The episode's reward is below that of the demonstration; only the attempt is counted."""
    DUPLICATE = "duplicate"
    """This attempt was recorded before."""


class Park(StrEnum):
    """What the store did with an episode that was interrupted between two steps."""

    PARKED = "parked"
    """Its steps are in the record, and an environment will continue it. No attempt is spent."""
    REFUSED = "refused"
    """The episode was parked too often: its parked steps are deleted and the attempt is spent."""
    DUPLICATE = "duplicate"
    """The episode was parked under this lease before; nothing changed."""
    FENCED = "fenced"
    """The lease was taken away; the report is ignored and counted."""


class DecisionKind(StrEnum):
    """Which property of a task a decision sets."""

    ROLLOUTS = "rollouts"
    """N, the number of rollouts of the task's next groups."""
    STEP_CAP = "step_cap"
    """The largest number of steps of the task's episodes."""
    QUARANTINE = "quarantine"
    """The task's quarantine. `TaskDecision.after` is the Unix time of its end, or empty to end it now."""


class GroupState(StrEnum):
    """The state of a group."""

    OPEN = "open"
    """Its rollouts are being played, or it is complete and waits for a batch."""
    BATCHED = "batched"
    """The group is part of the batch that is leased to the trainer."""
    CONSUMED = "consumed"
    DROPPED = "dropped"


class BatchState(StrEnum):
    """The state of a batch."""

    LEASED = "leased"
    CONSUMED = "consumed"
    RELEASED = "released"
    """The trainer gave the batch back without training it."""


class RunPhase(StrEnum):
    """What a run does now. The evaluations before and after training are optional."""

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
    """The number of rollouts of each fate, and of all issued ones (invariant one-fate).

    `issued` has a counter of its own in the record, which grows when a rollout is first leased."""

    issued: int = 0
    trained: int = 0
    dropped: int = 0
    stored: int = 0
    leased: int = 0

    @property
    def holds(self) -> bool:
        """Whether every issued rollout has exactly one fate."""
        return self.issued == self.trained + self.dropped + self.stored + self.leased

    def __str__(self) -> str:
        return (
            f"issued {self.issued} {'=' if self.holds else '≠'} trained {self.trained} + "
            f"dropped {self.dropped} + stored {self.stored} + leased {self.leased}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutRecord:
    """The present state of one rollout."""

    rollout_id: int
    group_id: int
    state: RolloutState
    environment: str | None
    """The environment that plays the rollout; None while none does."""
    attempt: int
    fence: int
    deadline_unix_s: float
    reward: float | None
    """Reward of its trajectory; None until that is stored."""
    oldest_version: int | None
    """Lowest policy version among its steps, parked ones included; None while it has no steps."""
    num_steps: int | None = None
    """Environment steps of its trajectory; None until it is stored."""
    parked_steps: int = 0
    """Number of parked steps that the next environment replays; 0 while it is not parked."""
    resumes: int = 0
    """How often it was parked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutChange(Generic[R]):
    """The result of a call that changes a rollout, and the rollout after the change."""

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
    """Oldest version that any engine served when the group was opened; no step of the group is older."""
    opened_unix_s: float
    batch_id: int | None
    rollouts: tuple[RolloutRecord, ...]
    probes_length: bool = False
    """Whether its episodes may reach the global step cap, to find out whether longer successes exist."""
    demonstrations: tuple[int, ...] = ()
    """Keys (pool_id) of the demonstrations that were added to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The groups leased to the trainer for one update."""

    batch_id: int
    group_ids: tuple[int, ...]
    fence: int = 1
    """Grows with every lease of this batch; a commit with an older fence is ignored."""
    deadline_unix_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One policy version."""

    version: int
    metrics: Mapping[str, float]
    """The metrics of the update that made this version; empty for version 0."""
    created_unix_s: float


RECENT_REWARDS = 32
"""How many of a task's newest rewards are read by default."""


class SeedReward(NamedTuple):
    """The reward of an episode, and the seed that it was played on."""

    seed: int
    reward: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStatistics:
    """Figures of one task from all its rollouts in a run, and what was decided about it."""

    task_id: str
    groups_opened: int
    finished: int = 0
    """Number of the task's trajectories that were ever stored."""
    recent: tuple[SeedReward, ...]
    """The seeds and rewards of its newest trajectories, newest last."""
    newest_stored_unix_s: float | None = None
    """When its newest trajectory was stored; None before the first."""
    longest_success_steps: int | None
    """Number of steps of its longest success; None before the first success."""
    decided: Mapping[DecisionKind, "TaskDecision"] = field(default_factory=dict)
    """The newest decision of each kind."""
    demonstrations: tuple["DemonstrationSummary", ...] = ()
    """Its demonstrations in the experience pool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDecision:
    """A decision of the curator that changed a property of a task, as text before and after, and why."""

    task_id: str
    kind: DecisionKind
    before: str
    after: str
    reason: str
    """The reason as text, such as `success 0.80 over the last 8`."""
    policy_version: int
    unix_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DemonstrationSummary:
    """One demonstration of the experience pool, without its steps."""

    pool_id: int
    task_id: str
    seed: int
    origin: str
    reward: float
    """Reward of its episode, above 0. A demonstration is used only if this is a success."""
    num_steps: int
    uses: int
    """Number of groups that it was added to."""
    dropped: bool
    """Whether the demonstration is out of use. Groups that it was added to keep it."""
    lacks_thought: bool = False
    """See `Demonstration.lacks_thought`."""
    guide_id: int | None = None
    """See `Demonstration.guide_id`."""
    rolls: int = 0
    """Number of guided episodes that the policy played with this demonstration's actions as the hint."""

    @property
    def is_self_rolled(self) -> bool:
        """Whether the policy of this run played the episode of this demonstration."""
        return self.guide_id is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All that a restarted curator reads from the record, in one transaction."""

    groups: tuple[GroupRecord, ...]
    """Live groups, oldest first."""
    tasks: tuple[TaskStatistics, ...]
    batch: Batch | None
    version: int | None
    """Newest policy version; None before version 0 was added."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """One evaluation episode on a held-out seed."""

    phase: EvaluationPhase
    policy_version: int
    task_id: str
    seed: int
    reward: float
    is_greedy: bool = False
    """Whether it was played with the most likely answers instead of samples at `evaluation.temperature`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationPlay:
    """How an evaluation episode was played."""

    environment: str
    """Name of the environment actor that played it."""
    instruction: str
    outcome: Outcome
    num_steps: int
    steps_sha256: str
    """Name of the blob of its packed steps."""
    started_unix_s: float
    duration_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedEpisode:
    """One stored trajectory without its steps."""

    rollout_id: int
    group_id: int
    rollouts_wanted: int
    """Number of rollouts of its group."""
    task_id: str
    reward: float
    num_steps: int
    steps_sha256: str
    """Name of the blob of its packed steps."""
    stored_unix_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event of the run (`dart.telemetry.events`)."""

    event_id: int
    unix_s: float
    kind: str
    subject: str
    data: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventCounts:
    """Number of events of each kind, counted up to and including the event `newest_id`."""

    newest_id: int
    of_kind: Mapping[str, int]


NO_EVENTS = EventCounts(newest_id=0, of_kind=MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """The totals of a run that the live view shows."""

    trajectories: int
    steps: int
    recent_success: float | None
    """Share of successes among the last trajectories; None before the first."""
    steps_per_minute: float
    """Number of environment steps of the trajectories that were stored in the last minute."""
    outcomes: Mapping[str, int]
    """Number of trajectories by outcome."""
    faults: Mapping[str, int]
    """Number of attempts that ended without a reward, by fault kind."""
    drops: Mapping[str, int]
    """Number of dropped rollouts by reason."""
