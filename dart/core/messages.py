"""Every message between the actors of a run.

environment -> curator   WorkRequest, RolloutStored, RolloutFailed, RolloutParked, EvaluationEnded,
                         EvaluationFailed, GuidedStored, GuidedFailed
environment -> rollout   Generate
environment -> store     FinishRollout, ParkRollout, ForgetParked, RecordGuided
curator     -> store     OpenGroup … LeaseBatch, RefuseBatch, RecordDecisions, UseDemonstration,
                         RecordEvaluation
trainer     -> curator   BatchRequest, BatchAheadRequest, UpdateCommitted
trainer     -> store     CommitUpdate, RefuseBatch
trainer     -> weight_sync   VersionPublished
weight_sync -> rollout   LoadVersion, Serve, Probe
environment -> weight_sync   EngineSuspect
operator    -> curator   PauseWork
any actor   -> store     RecordEvents
explorer    -> exploration   ExploreRequest, ExploredReport, GiveBackLease
exploration -> store     LeaseScreen, EndExplorationLease, RecordExplored
store       -> any caller   Paused, while the disk refuses writes
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, dataclass_transform, get_args

from actors import codec
from dart.core.exploration import (
    Candidate,
    Effect,
    ExploreAct,
    HeldLease,
    LeaseEnd,
    LeaseMove,
    PageScreen,
    PathHop,
    StepVerdict,
)
from dart.core.records import (
    Batch,
    Evaluation,
    EvaluationPlay,
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

DETAIL_CHARACTERS = 4000
"""Length of the longest reason in a message, which carries 64 KiB. The log has the whole reason."""


@dataclass_transform(frozen_default=True, kw_only_default=True)
def message(cls: type[T]) -> type[T]:
    """Turn a class into a frozen dataclass and register it as a message that actors can send."""
    return codec.message(dataclass(frozen=True, slots=True, kw_only=True)(cls))


class Call(Generic[T]):
    """A request to the store for one change of the record; T is the type of the result.

    The reply is CallResult, sent once the change is durable. It is Paused while the disk refuses writes, and
    Contradiction if the call contradicts the record.
    """

    __slots__ = ()


def result_type(call: type[Call[T]]) -> type[T]:
    """Return the class of the result of a call: the T of its `Call[T]`."""
    (base,) = call.__orig_bases__  # type: ignore[attr-defined]
    (result,) = get_args(base)
    return result  # type: ignore[no-any-return]


# ---- work: environment and curator ----


@message
class WorkRequest:
    """Sent by an idle environment to the curator to ask for an episode.

    The reply is RolloutLease, EvaluationTask or GuidedTask with an episode, or else NoWorkYet."""

    environment: str


@message
class EvaluationTask:
    """Play one held-out seed and report the reward. The episode is not trained on."""

    phase: str
    task_id: str
    seed: int
    step_cap: int
    temperature: float
    fence: int
    """The fence of the lease. EvaluationEnded and EvaluationFailed repeat it, and the curator ignores these
    messages if the lease has ended."""


@message
class GuidedTask:
    """Play the task of a demonstration with its actions as a hint; a success becomes a demonstration."""

    pool_id: int
    """Key of the demonstration in the record. Its actions are the hint."""
    task_id: str
    seed: int
    step_cap: int
    attempt: int
    """Number of this episode among those with this hint, from 1."""
    fence: int
    """The fence of the lease. GuidedStored and GuidedFailed repeat it, so that a late one ends no other
    lease."""


@message
class NoWorkYet:
    """There is nothing for the sender of the request now. The sender asks again after `retry_after_s`."""

    retry_after_s: float
    reason: str
    is_held: bool = False
    """Whether the run is or may be paused. Then an environment does no other work in the meantime either."""


@message
class PauseWork:
    """Sent by the operator's commands to the curator: hold new work back, give it out again, or only ask.

    The curator replies with WorkPaused, or with Paused if the store did not confirm the change. In that case
    the curator goes on as before, and the caller may repeat the request."""

    is_held: bool | None
    """True: hold new work back; False: give it out again; None: change nothing, only reply."""


@message
class WorkPaused:
    """The reply to PauseWork: whether new work is held back, as the record has it, and what still runs."""

    is_held: bool
    playing: int
    """Number of environments that play an episode, or explore because the curator had no work for them."""
    is_training: bool
    """Whether the trainer computes or writes an update, also one that is trained ahead of its lease."""


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
    """A leased rollout was interrupted between two steps. Its steps are in the record."""

    rollout_id: int


@message
class GuidedStored:
    """A guided episode ended with a reward and is in the record."""

    fence: int
    task_id: str


@message
class GuidedFailed:
    """A guided episode ended without a reward."""

    fence: int
    kind: FaultKind
    detail: str
    is_interrupted: bool = False
    """Whether the environment actor had to stop, which does not count as a failure of the episode."""


@message
class EvaluationEnded(Call[StoredResult]):
    """An evaluation episode ended with a reward; the result is `FENCED` if its lease had ended before."""

    fence: int
    policy_version: int
    """The oldest version that played a step. Only episodes of the newest version count after training."""
    reward: float
    play: EvaluationPlay | None = None
    """How it was played; None: only the reward is kept."""


@message
class EvaluationFailed:
    """An evaluation episode ended without a reward."""

    fence: int
    kind: FaultKind
    detail: str
    is_interrupted: bool = False
    """Whether the environment actor had to stop, which does not count as a failure of the episode."""


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
    """Load this policy version, answer a test request with it and serve it.

    The reply is VersionLoaded, or LoadFailed when the version could not be loaded.

    With `hold` the engine answers no request of environments from now until the message Serve, which comes
    when all engines have loaded the version."""

    version: int
    hold: bool = False


@message
class Serve:
    """Every engine has loaded the version: answer requests again. There is no reply."""


@message
class VersionLoaded:
    """The engine answered a test request with the policy of `version`."""

    version: int


@message
class LoadFailed:
    """The engine could not load the requested version. It still serves the version that it had."""

    reason: str


@message
class Probe:
    """Answer a test request to show that the engine works; the reply is VersionLoaded."""


@message
class EngineSuspect:
    """An engine did not reply to an environment, so weight_sync must probe the engine before its next use."""

    engine: str
    detail: str


@message
class VersionPublished:
    """A new policy version is committed."""

    version: int


# ---- batches: trainer and curator ----


@message
class BatchRequest:
    """The idle trainer asks for a batch; the reply is Batch, NoWorkYet or RunOver."""

    group_ids: tuple[int, ...] = ()
    """Groups of a `BatchAhead` that the trainer has trained on already, so that the lease must be for these;
    empty: any groups."""


@message
class BatchAheadRequest:
    """The trainer asks which groups come next, to train on them while it writes a checkpoint.

    The reply is BatchAhead or NoWorkYet. The record does not hold the answer: the groups are not leased.
    """


@message
class BatchAhead:
    """The groups of the batch that will be leased when the open one is committed."""

    group_ids: tuple[int, ...]


@message
class RunOver:
    """Training and evaluation are done: the trainer ends, and then the run ends."""


@message
class UpdateCommitted:
    """The record holds a new version, and the batch of the update is consumed."""

    version: int


# ---- exploration: explorers and the owner of the graph ----


@message
class ExploreRequest:
    """Sent by an explorer to the owner of the graph to ask where to explore.

    The reply is ExplorationLease, NoWorkYet, or ExplorationOver."""

    explorer: str
    incarnation: int
    task_id: str
    """The task that the explorer's screen shows; empty if it shows none."""
    seed: int
    at: int | None
    """The known screen that the explorer shows; None if only a reset leads to a known screen."""


@message
class ExplorationLease:
    """The right to expand one screen, and the known way there."""

    fence: int
    task_id: str
    seed: int
    screen_id: int | None
    """The screen; None if the start screen is not known or varies. Then the explorer resets its environment
    and reports the screen that it sees."""
    begins_with_reset: bool
    hops: tuple[PathHop, ...]
    repeats: str
    """Key of a known action to repeat on the screen, to see whether its effect is the same; empty: expand."""


@message
class ExploredReport:
    """One action of an explorer, with the screen after it. The reply is ExploredReply or NoWorkYet."""

    fence: int
    number: int
    cost: int
    source_id: int | None
    candidate: Candidate | None
    """The action; None for a reset."""
    effect: Effect | None
    """Set if there is no screen to report: the allowed pages were left, the episode ended, the environment
    broke, or the action was not on the screen. Else None, because the owner of the graph finds the effect."""
    screen: PageScreen | None
    move: LeaseMove


@message
class ExploredReply:
    """The reply of the owner of the graph to a report."""

    screen_id: int | None
    """The node of the graph that the reported screen is; None if no screen was reported."""
    effect: Effect
    holds: bool
    """Whether the lease is for that screen now."""
    is_fenced: bool = False
    """Whether the lease had ended. Then nothing was recorded, and the explorer asks for another lease."""


@message
class GiveBackLease:
    """An explorer does not need its lease any more. There is no reply."""

    fence: int
    why: LeaseEnd


@message
class ExplorationOver:
    """Nothing is left to explore, or the allowed number of actions is used up."""

    reason: str


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
    """Whether its episodes may reach the global step cap, to find out whether longer successes exist."""


@message
class LeaseRollout(Call[RolloutChange[RolloutLease]]):
    """Issue the next rollout of a group."""

    group_id: int
    environment: str
    deadline_unix_s: float


@message
class ReassignRollout(Call[RolloutChange[RolloutLease | Reassignment]]):
    """Lease an issued rollout again; no environment may hold its lease."""

    rollout_id: int
    environment: str
    deadline_unix_s: float


@message
class ReleaseRollout(Call[RolloutChange[Release]]):
    """End the lease of a rollout. This spends the attempt that was played under the lease."""

    rollout_id: int
    fence: int
    fault_kind: FaultKind
    detail: str
    max_attempts: int


@message
class FinishRollout(Call[StoredResult]):
    """Store the finished episode of a rollout, if its lease is still the newest one."""

    rollout_id: int
    fence: int
    trajectory: Trajectory
    """The trajectory without its steps, which do not fit into a message."""
    steps_sha256: str
    """The blob of its packed steps, which the sender has stored."""


@message
class ParkRollout(Call[Park]):
    """Store the steps of an interrupted episode, so that an environment can continue it."""

    rollout_id: int
    fence: int
    steps_sha256: str
    """The blob of its packed steps, which the sender has stored."""
    reason: str
    max_resumes: int
    max_attempts: int


@message
class ForgetParked(Call[StoredResult]):
    """Delete the parked steps of a rollout because they could not be replayed. The rollout is played anew."""

    rollout_id: int
    fence: int
    detail: str
    max_attempts: int


@message
class UseDemonstration(Call[None]):
    """Add a demonstration to a group in which every rollout failed."""

    group_id: int
    pool_id: int


@message
class RecordGuided(Call[Guided]):
    """Record a guided episode. It becomes a demonstration if its reward is at least that of its guide."""

    guide_id: int
    attempt: int
    instruction: str
    reward: float
    steps_sha256: str
    """The blob of its packed steps, which the sender has stored. They have no entropies."""


@message
class DropGroup(Call[int]):
    """Drop a group and its rollouts; the result is the number of dropped rollouts."""

    group_id: int
    reason: str


@message
class RecordDecisions(Call[int]):
    """Record decisions about tasks; the result is how many of them are new."""

    decisions: tuple[TaskDecision, ...]
    drops: tuple[DropGroup, ...] = ()
    """Groups that are dropped together with the decisions, because a decision is the reason."""


@message
class EventDraft:
    """An event that is not in the record yet; the store gives it its number and its time."""

    kind: str
    subject: str
    data: Mapping[str, str | int | float | bool | None]


@message
class RecordEvents(Call[int]):
    """Record events; the result is the number of recorded events. Most senders do not wait for the reply."""

    events: tuple[EventDraft, ...]


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
    """Record an update: its batch is consumed, its rollouts are trained, and a new version exists."""

    batch_id: int
    fence: int
    version: int
    metrics: Mapping[str, float]


@message
class RefuseBatch(Call[StoredResult]):
    """Give back a batch with groups or demonstrations that cannot be trained."""

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
    play: EvaluationPlay | None = None
    """How it was played, with steps that are stored already; None: only the result is kept."""


@message
class LeaseScreen(Call[HeldLease]):
    """Give an explorer the right to expand a screen."""

    task_id: str
    seed: int
    screen_id: int | None
    """None for the start screen, if it is not known or varies."""
    explorer: str
    incarnation: int
    deadline_unix_s: float


@message
class EndExplorationLease(Call[bool]):
    """End the lease of an explorer; the result is whether it was held until now."""

    fence: int
    why: LeaseEnd


@message
class RecordExplored(Call[StepVerdict]):
    """Record one action of exploration, if its lease is still held."""

    fence: int
    number: int
    """Number of the report within its lease. A report that is sent again has the same number."""
    cost: int
    """Number of actions that this step took, for the total of the exploration."""
    source_id: int | None
    act: ExploreAct
    action: str
    effect: Effect
    target_id: int | None
    screen: PageScreen | None
    """A new screen that the action led to; None if the target is a known screen or there is none."""
    is_expansion: bool
    move: LeaseMove
    deadline_unix_s: float


@message
class CallResult:
    """The reply to a Call, sent when its change is durable."""

    value: Any
    """The result; `dart.store.client.write` checks and converts it to the result type of the call."""


@message
class Paused:
    """The disk refuses writes, and nothing of this call was kept: repeat the call after `retry_after_s`."""

    reason: str
    retry_after_s: float


@message
class Contradiction:
    """The call contradicts the record and changed nothing, for instance because its group does not exist."""

    text: str
