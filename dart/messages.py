"""Everything the actors of the training system say to each other.

environment -> curator   WorkRequest, RolloutStored, RolloutFailed, EvaluationStored, EvaluationFailed
environment -> rollout   Generate
environment -> store     FinishRollout, RecordEvaluation
curator     -> store     OpenGroup … LeaseBatch
trainer     -> curator   BatchRequest, UpdateCommitted
trainer     -> store     CommitUpdate
trainer     -> weight_sync   VersionPublished
weight_sync -> rollout   LoadVersion
"""

from collections.abc import Mapping
from dataclasses import dataclass

from actors.codec import message
from dart.store.records import Evaluation
from dart.types import FaultKind, GenerateRequest, Generation, RolloutLease, Trajectory

message(RolloutLease)
message(Generation)


# ---- work: environment and curator ----


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class WorkRequest:
    """An idle environment asks; answered by RolloutLease, EvaluationTask or Wait."""

    environment: str


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationTask:
    """Play one held-out seed and record the reward; nothing is trained on it."""

    phase: str
    task_id: str
    seed: int
    step_cap: int
    temperature: float


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Nothing for you now; ask again later."""

    retry_after_s: float
    reason: str


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutStored:
    """A leased rollout ended and its trajectory is in the record."""

    rollout_id: int


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutFailed:
    """A leased rollout ended without a reward."""

    rollout_id: int
    fence: int
    kind: FaultKind
    detail: str


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationStored:
    """An evaluation episode is in the record."""

    task_id: str
    seed: int


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationFailed:
    """An evaluation episode ended without a reward."""

    task_id: str
    seed: int
    detail: str


# ---- generation and weights: rollout actors ----


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Generate:
    """Ask the policy for one answer; answered by Generation."""

    request: GenerateRequest


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class LoadVersion:
    """Serve this policy version from now on; answered by VersionLoaded once a generate proved it."""

    version: int
    folder: str


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class VersionLoaded:
    """What the engine serves now, as read back from a real answer."""

    version: int


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class VersionPublished:
    """A new policy version is committed."""

    version: int
    folder: str


# ---- batches: trainer and curator ----


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRequest:
    """The trainer is idle; answered by BatchLease, Wait or RunOver."""


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLease:
    """Whole groups for one update."""

    batch_id: int
    group_ids: tuple[int, ...]


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class RunOver:
    """Training and evaluation are done; the trainer may end, and with it the run."""


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateCommitted:
    """A batch is consumed and a new version exists."""

    version: int


# ---- the record: store ----


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class OpenGroup:
    """Answered by Number (the group's id)."""

    task_id: str
    seed: int
    rollouts_wanted: int
    step_cap: int
    policy_version: int


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRollout:
    """Answered by RolloutLease."""

    group_id: int
    environment: str
    deadline_unix_s: float


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class ReletRollout:
    """Answered by RolloutLease, or Verdict when it cannot be leased."""

    rollout_id: int
    environment: str
    deadline_unix_s: float


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseRollout:
    """Answered by Verdict."""

    rollout_id: int
    fence: int
    fault_kind: FaultKind
    detail: str
    max_attempts: int


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class FinishRollout:
    """Answered by Verdict, after it is durable."""

    rollout_id: int
    fence: int
    trajectory: Trajectory


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class DropGroup:
    """Answered by Number (rollouts dropped)."""

    group_id: int
    reason: str


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseBatch:
    """Answered by Number (the batch's id)."""

    group_ids: tuple[int, ...]


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class CommitUpdate:
    """Answered by Verdict, after it is durable."""

    batch_id: int
    version: int
    checkpoint: str
    metrics: Mapping[str, float]


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class RecordEvaluation:
    """Answered by Verdict."""

    evaluation: Evaluation


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """A count or a key."""

    value: int


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of a call, as the value of its enum in `dart.store.records`."""

    value: str


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Contradiction:
    """The call contradicts the record; nothing changed. The caller's picture of the record is wrong."""

    text: str
