"""Every message between the actors of a run.

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
operator    -> curator   PauseWork
any actor   -> store     RecordEvents
store       -> any caller   Paused, while the disk refuses writes
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
    """A write to the record. The reply is a CallResult with a T, sent once the change is durable.

    While the disk refuses writes the reply is Paused; for a call that contradicts the record, Contradiction.
    """

    __slots__ = ()


def result_type(call: type[Call[T]]) -> type[T]:
    """The class T of a call's result."""
    (base,) = call.__orig_bases__  # type: ignore[attr-defined]
    (result,) = get_args(base)
    return result  # type: ignore[no-any-return]


# ---- work: environment and curator ----


@message
class WorkRequest:
    """An idle environment asks for an episode: RolloutLease, EvaluationTask, GuidedTask or NoWorkYet."""

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
    """Repeated in EvaluationEnded and EvaluationFailed: the curator ignores the report of an ended lease."""


@message
class GuidedTask:
    """Play the task of a demonstration with its actions as a hint; a success becomes a demonstration."""

    pool_id: int
    """Key of the demonstration; its actions are in the record."""
    task_id: str
    seed: int
    step_cap: int
    attempt: int
    """1 for the first episode with this hint."""


@message
class NoWorkYet:
    """There is no work for the sender of the request now; it asks again after `retry_after_s`."""

    retry_after_s: float
    reason: str


@message
class PauseWork:
    """Stop giving out episodes and batches, or give them out again.

    The reply is WorkPaused, or Paused if the record could not be written: then nothing changed."""

    is_held: bool | None
    """True: stop; False: give out again; None: change nothing, only reply."""


@message
class WorkPaused:
    """Whether new work is held back, as the record has it, and which work is still running."""

    is_held: bool
    playing: int
    """Episodes that are being played."""
    is_training: bool


@message
class RolloutStored:
    """The trajectory of a leased rollout is in the record."""

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
    """Whether its environment had to stop, which does not count as a failure of the episode."""


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
    """Whether its environment had to stop, which does not count as a failure of the episode."""


# ---- generation and weights: rollout actors ----


@message
class Generate:
    """Ask the policy for one answer.

    The reply is Generation, NoWorkYet if another engine may answer, or CannotAnswer if no engine can."""

    request: GenerateRequest


@message
class CannotAnswer:
    """The request itself is wrong, so that no engine can answer it."""

    reason: str


@message
class LoadVersion:
    """Load and serve this policy version; the reply is VersionLoaded after a test request, or LoadFailed.

    With `hold` the engine answers no request from now until `Serve` (weight sync of all engines at once)."""

    version: int
    folder: str
    hold: bool = False


@message
class Serve:
    """Every engine has loaded the version: answer requests again. There is no reply."""

    version: int


@message
class VersionLoaded:
    """The version that the engine serves, as its answer to a test request says."""

    version: int


@message
class LoadFailed:
    """The version could not be loaded; the engine still serves the one before."""

    version: int
    """What it serves."""
    reason: str


@message
class Probe:
    """Answer a test request to show that the engine works; the reply is VersionLoaded."""


@message
class EngineSuspect:
    """An ask of this engine ended without a reply: weight_sync sends it a Probe before it is used again."""

    engine: str
    detail: str


@message
class VersionPublished:
    """A new policy version is committed."""

    version: int
    folder: str


# ---- batches: trainer and curator ----


@message
class BatchRequest:
    """The idle trainer asks for a batch; the reply is Batch, NoWorkYet or RunOver."""


@message
class RunOver:
    """Training and evaluation are done: the trainer ends, and the run with it."""


@message
class UpdateCommitted:
    """A batch is consumed and a new version exists."""

    version: int


# ---- the record: store ----
#
# A call is a method of `dart.store.store.Store`, and its fields are the arguments.


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
    """Take a lease back. This spends its attempt."""

    rollout_id: int
    fence: int
    fault_kind: FaultKind
    detail: str
    max_attempts: int


@message
class StepFile:
    """The file with the steps of an episode (`dart.store.step_files`), which a message is too small for."""

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
    """Keep the steps of an episode that must be interrupted."""

    rollout_id: int
    fence: int
    steps: StepFile
    reason: str
    max_resumes: int
    max_attempts: int


@message
class ForgetParked(Call[StoredResult]):
    """Delete the parked steps of a rollout, because they could not be replayed: it is played anew."""

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
    """Count an episode that was played with a demonstration's actions as a hint."""

    guide_id: int
    attempt: int
    instruction: str
    reward: float
    steps: StepFile


@message
class RecordDecisions(Call[int]):
    """Record decisions about tasks; the result is how many of them are new."""

    decisions: tuple[TaskDecision, ...]


@message
class EventDraft:
    """An event before it is in the record, where it gets its number and time."""

    kind: str
    subject: str
    data: Mapping[str, str | int | float | bool | None]


@message
class RecordEvents(Call[int]):
    """Record events; the result is how many. Most senders do not wait for the reply."""

    events: tuple[EventDraft, ...]


@message
class DropGroup(Call[int]):
    """Drop a group and its rollouts; the result is how many rollouts these were."""

    group_id: int
    reason: str


@message
class LeaseBatch(Call[Batch]):
    """Lease complete groups to the trainer for one update."""

    group_ids: tuple[int, ...]
    deadline_unix_s: float


@message
class ReassignBatch(Call[Batch]):
    """Lease the open batch again, because the trainer was restarted."""

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
    """The groups that cannot be trained: they are dropped, and the others of the batch are open again."""
    pool_ids: tuple[int, ...]
    """The demonstrations that cannot be trained: they are taken out of use."""
    reason: str
    detail: str


@message
class RecordEvaluation(Call[StoredResult]):
    """Record one evaluation episode."""

    evaluation: Evaluation


@message
class CallResult:
    """The reply to a Call, sent when its change is durable."""

    value: Any
    """Of the call's result type; `dart.store.client.write` checks and converts it."""


@message
class Paused:
    """The disk refuses writes, and nothing of this call was kept: repeat it after `retry_after_s`."""

    reason: str
    retry_after_s: float


@message
class Contradiction:
    """The call contradicts the record and changed nothing: the caller assumed something that is not so."""

    text: str
