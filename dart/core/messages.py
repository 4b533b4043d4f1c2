"""Everything the actors of the training system say to each other.

environment -> curator   WorkRequest, RolloutStored, RolloutFailed, EvaluationEnded, EvaluationFailed,
                         GuidedStored, GuidedFailed
environment -> rollout   Generate
environment -> store     FinishRollout, ParkRollout, ForgetParked, RecordGuided
curator     -> store     OpenGroup … LeaseBatch, RefuseBatch, RecordDecisions, InjectDemonstration,
                         RecordEvaluation
trainer     -> curator   BatchRequest, UpdateCommitted
trainer     -> store     CommitUpdate, RefuseBatch
trainer     -> weight_sync   VersionPublished
weight_sync -> rollout   LoadVersion, Serve, Probe
environment -> weight_sync   EngineSuspect
anyone      -> weight_sync   WhichEngines
operator    -> curator   PauseWork
anyone      -> store     RecordEvents
store       -> asker     Paused, when the disk refuses
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, dataclass_transform, get_args

from actors import codec
from dart.core.records import (
    Batch,
    Evaluation,
    GroupRecord,
    Guided,
    Park,
    Reassignment,
    Release,
    RolloutChange,
    StoredResult,
    TaskDecision,
)
from dart.core.types import FaultKind, GenerateRequest, Generation, RolloutLease, Trajectory

codec.message(RolloutLease)
codec.message(Generation)
codec.message(Batch)

T = TypeVar("T")


@dataclass_transform(frozen_default=True, kw_only_default=True)
def message(cls: type[T]) -> type[T]:
    """Make a frozen dataclass of a class, and a message that actors can send each other."""
    return codec.message(dataclass(frozen=True, slots=True, kw_only=True)(cls))


class Call(Generic[T]):
    """A question that changes the record. A CallResult with a T answers it once the change is durable.

    Paused answers it while the disk refuses writes, Contradiction where it contradicts the record.
    """

    __slots__ = ()


def result_type(call: type[Call[T]]) -> type[T]:
    """What the result of a call is an instance of."""
    (base,) = call.__orig_bases__  # type: ignore[attr-defined]
    (result,) = get_args(base)
    return result  # type: ignore[no-any-return]


# ---- work: environment and curator ----


@message
class WorkRequest:
    """An idle environment asks; answered by RolloutLease, EvaluationTask, GuidedTask or NoWorkYet."""

    environment: str


@message
class EvaluationTask:
    """Play one held-out seed and report the reward; nothing is trained on it."""

    phase: str
    task_id: str
    seed: int
    step_cap: int
    temperature: float
    fence: int
    """Repeated in EvaluationEnded and EvaluationFailed; the curator ignores that of an ended lease."""


@message
class GuidedTask:
    """Play the task of a demonstration with its actions as a hint; a success is one of the policy's own."""

    pool_id: int
    """The demonstration: its actions are in the record."""
    task_id: str
    seed: int
    step_cap: int
    attempt: int
    """1 for the first episode under it."""


@message
class NoWorkYet:
    """Nothing for you now; ask again later."""

    retry_after_s: float
    reason: str


@message
class PauseWork:
    """Give out no new episode and batch, or go on; answered by WorkPaused, or Paused: nothing changed."""

    is_held: bool | None
    """None asks how it is and changes nothing."""


@message
class WorkPaused:
    """Whether new work is held back, which is in the record, and what goes on."""

    is_held: bool
    playing: int
    """Episodes that are being played."""
    is_training: bool


@message
class RolloutStored:
    """A leased rollout ended and its trajectory is in the record."""

    rollout_id: int


@message
class RolloutFailed:
    """A leased rollout ended without a reward."""

    rollout_id: int
    fence: int
    kind: FaultKind
    detail: str


@message
class RolloutParked:
    """A leased rollout was interrupted at a step boundary; its steps are in the record."""

    rollout_id: int


@message
class GuidedStored:
    """An episode under a demonstration's actions ended and is in the record."""

    pool_id: int
    task_id: str


@message
class GuidedFailed:
    """An episode under a demonstration's actions ended without a reward."""

    pool_id: int
    detail: str
    is_interrupted: bool = False
    """Its environment was told to stop: that is no failure of the episode."""


@message
class EvaluationEnded(Call[StoredResult]):
    """An evaluation episode has a result: `FENCED` when the lease of the episode had ended before."""

    fence: int
    policy_version: int
    reward: float


@message
class EvaluationFailed:
    """An evaluation episode ended without a reward."""

    fence: int
    kind: FaultKind
    detail: str
    is_interrupted: bool = False
    """Its environment was told to stop: that is no failure of the episode."""


# ---- generation and weights: rollout actors ----


@message
class Generate:
    """Ask the policy for one answer; answered by Generation, by NoWorkYet: another engine may answer, or by
    CannotAnswer: none can."""

    request: GenerateRequest


@message
class CannotAnswer:
    """There is something wrong with the request itself; asking again will not help."""

    reason: str


@message
class LoadVersion:
    """Serve this policy version from now on; answered by VersionLoaded once a generate proved it.

    With `hold` the engine answers nothing from the moment it hears this until `Serve` (the coupled way)."""

    version: int
    folder: str
    hold: bool = False


@message
class Serve:
    """Every engine has loaded the version: go on. No answer."""

    version: int


@message
class VersionLoaded:
    """What the engine serves now, as read back from a real answer."""

    version: int


@message
class LoadFailed:
    """The version could not be taken over; the engine still serves the one it had."""

    version: int
    """What it serves."""
    reason: str


@message
class Probe:
    """Prove by a real generate that this engine answers; answered by VersionLoaded."""


@message
class EngineSuspect:
    """An ask of this engine ended without a reply. No reply; the engine is probed before it is used again."""

    engine: str
    detail: str


@message
class WhichEngines:
    """Ask weight_sync which engine serves which version; answered by Engines."""


@message
class EngineReport:
    """One engine as weight_sync sees it."""

    engine: str
    """The name of its rollout actor."""
    state: str
    """HEALTHY, UPDATING, STALE, SUSPECT or DEAD (`dart.inference.engine_state`), in lower case."""
    version: int
    """What it serves; -1 while it does not run."""
    reason: str
    """Why it is not healthy; empty when it is."""
    since_unix_s: float


@message
class Engines:
    """All engines, and the version they should serve."""

    version: int
    engines: tuple[EngineReport, ...]


@message
class VersionPublished:
    """A new policy version is committed."""

    version: int
    folder: str


# ---- batches: trainer and curator ----


@message
class BatchRequest:
    """The trainer is idle; answered by Batch, NoWorkYet or RunOver."""


@message
class RunOver:
    """Training and evaluation are done; the trainer may end, and with it the run."""


@message
class UpdateCommitted:
    """A batch is consumed and a new version exists."""

    version: int


# ---- the record: store ----
#
# A call is a method of `dart.store.store.Store`, and its fields are the arguments (`dart.store.calls`).


@message
class OpenGroup(Call[GroupRecord]):
    """Open a group of one task and seed."""

    task_id: str
    seed: int
    rollouts_wanted: int
    step_cap: int
    policy_version: int
    """The oldest version that any engine serves."""
    probes_length: bool = False
    """It runs at the global step cap to see whether longer successes exist."""


@message
class LeaseRollout(Call[RolloutChange[RolloutLease]]):
    """Issue the next rollout of a group."""

    group_id: int
    environment: str
    deadline_unix_s: float


@message
class ReassignRollout(Call[RolloutChange[RolloutLease | Reassignment]]):
    """Lease a rollout that no environment plays."""

    rollout_id: int
    environment: str
    deadline_unix_s: float


@message
class ReleaseRollout(Call[RolloutChange[Release]]):
    """Take a lease back: its attempt is spent."""

    rollout_id: int
    fence: int
    fault_kind: FaultKind
    detail: str
    max_attempts: int


@message
class StepFile:
    """The steps of an episode, in a file (`dart.store.step_files`): they may be more than mail carries."""

    path: str
    sha256: str


@message
class FinishRollout(Call[StoredResult]):
    """Store a finished episode under the lease it was played with."""

    rollout_id: int
    fence: int
    trajectory: Trajectory
    """Without its steps."""
    steps: StepFile


@message
class ParkRollout(Call[Park]):
    """Keep what was played of an episode that must be interrupted."""

    rollout_id: int
    fence: int
    steps: StepFile
    reason: str
    max_resumes: int
    max_attempts: int


@message
class ForgetParked(Call[StoredResult]):
    """Forget the parked steps of a rollout that could not be replayed: it is played anew."""

    rollout_id: int
    fence: int
    detail: str
    max_attempts: int


@message
class InjectDemonstration(Call[None]):
    """Add a demonstration to a group in which every rollout failed."""

    group_id: int
    pool_id: int


@message
class RecordGuided(Call[Guided]):
    """Count an episode that was played under a demonstration's actions."""

    guide_id: int
    attempt: int
    instruction: str
    reward: float
    steps: StepFile


@message
class RecordDecisions(Call[int]):
    """Record what was decided about tasks; answered by how many decisions are new."""

    decisions: tuple[TaskDecision, ...]


@message
class EventDraft:
    """Something that happened, before it is in the record."""

    kind: str
    subject: str
    data: Mapping[str, str | int | float | bool | None]


@message
class RecordEvents(Call[int]):
    """Record what happened; answered by how many events. Told, not asked: a lost one changes nothing."""

    events: tuple[EventDraft, ...]


@message
class DropGroup(Call[int]):
    """Drop a group and its rollouts; answered by how many rollouts."""

    group_id: int
    reason: str


@message
class LeaseBatch(Call[Batch]):
    """Lease complete groups to the trainer for one update."""

    group_ids: tuple[int, ...]
    deadline_unix_s: float


@message
class ReassignBatch(Call[Batch]):
    """Lease the open batch again, to a trainer that was started again."""

    batch_id: int
    deadline_unix_s: float


@message
class CommitUpdate(Call[StoredResult]):
    """Consume a batch: its rollouts are trained and the version it made exists."""

    batch_id: int
    fence: int
    version: int
    checkpoint: str
    metrics: Mapping[str, float]


@message
class RefuseBatch(Call[StoredResult]):
    """Give a batch back that cannot be trained."""

    batch_id: int
    fence: int
    group_ids: tuple[int, ...]
    """To blame: dropped. The others are open again."""
    pool_ids: tuple[int, ...]
    """Demonstrations to blame: taken out of use."""
    reason: str
    detail: str


@message
class RecordEvaluation(Call[StoredResult]):
    """Record one evaluation episode."""

    evaluation: Evaluation


@message
class CallResult:
    """The answer to a Call, after its effect is durable."""

    value: Any
    """Of the call's result type; `dart.store.client.write` checks and converts it."""


@message
class Paused:
    """The disk refuses writes. Nothing of this one was kept: ask again later."""

    reason: str
    retry_after_s: float


@message
class Contradiction:
    """The call contradicts the record; nothing changed. The caller's picture of the record is wrong."""

    text: str
