"""The data classes of the training system: leases, steps, trajectories, groups and requests.

Messages between actors and the record consist of these frozen classes. They contain no pixels and no weights:
a screenshot is named by its sha256, a checkpoint by its version. The module needs no torch and does no I/O.
"""

from dataclasses import dataclass
from enum import StrEnum

SUCCESS_ABOVE = 0.5
"""Reward above which an episode is a success by default (curation.success_above)."""

ACTORS_MOST = 1000
"""Largest number of environments and engines together. The board has 1024 rows, and an actor uses two of them
while it is replaced."""


class FaultKind(StrEnum):
    """What is to blame for an attempt that ended without a reward."""

    INFRASTRUCTURE = "infrastructure"
    """The environment broke; the attempt is spent and the rollout is tried again."""
    SYSTEM = "system"
    """No engine, store or file server answered; the attempt is spent, but does not count against the task."""
    POLICY = "policy"
    """The policy cannot answer the request, for instance because its prompt is too long. (An answer that is
    not an action is an outcome.)"""
    EVALUATOR = "evaluator"
    """The episode ran, but it could not be scored."""
    TASK = "task"
    """The task itself cannot be set up; trying again will not help."""


class Outcome(StrEnum):
    """How a finished episode ended. Every outcome has a reward."""

    TERMINATED = "terminated"
    """The environment ended the episode (it succeeded or failed)."""
    FINISHED = "finished"
    """The policy declared the task done."""
    STEP_CAP = "step_cap"
    """The episode reached its step cap."""
    PARSE_ERROR = "parse_error"
    """The policy's answer was not an action of the grammar; reward 0."""
    INFEASIBLE = "infeasible"
    """The policy declared that the task cannot be done; rewarded only if that is right."""


class RolloutState(StrEnum):
    """The fate of an issued rollout; it has exactly one at any time (invariant one-fate)."""

    LEASED = "leased"
    STORED = "stored"
    TRAINED = "trained"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutLease:
    """The right to play one episode, given by the curator to one environment."""

    rollout_id: int
    group_id: int
    """Rollouts of one group share task and seed, so they start from the same screen."""
    task_id: str
    seed: int
    step_cap: int
    attempt: int
    """Number of this attempt at the rollout, from 1; a fault spends an attempt."""
    fence: int
    """Grows with every lease of this rollout. Reports with an older fence are ignored."""
    deadline_unix_s: float
    parked_steps: int = 0
    """Number of parked steps. They are in the record and are replayed first; 0 if there are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptImage:
    """One screenshot in the prompt of a vision-language policy."""

    sha256: str
    tokens: int
    """Number of its image tokens, as the engine counted them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionSpan:
    """The tokens of an answer that one policy version sampled."""

    version: int
    end: int
    """Index after the last of these tokens; the span begins where the previous one ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One environment step exactly as it was sampled (invariant train-what-was-sampled).

    Imported steps of the experience pool have no entropies, and log-probs only if their file gave them.
    Without log-probs the importance weight is 1.
    """

    screenshot_sha256: str
    prompt_ids: tuple[int, ...]
    """The prompt's text tokens (instruction and history) and the placeholders of images. With `images`, one
    placeholder stands for all tokens of an image; if `images` is empty, each image token has one."""
    token_ids: tuple[int, ...]
    """The answer's tokens, end token included."""
    logprobs: tuple[float, ...]
    """Behaviour log-prob of each answer token in the sampling distribution; same length as token_ids."""
    entropies: tuple[float, ...]
    """Entropy in nats of the sampling distribution at each answer token; same length as token_ids."""
    answer: str
    """The answer's actions in the action grammar (`dart.core.actions`); other text if it does not parse."""
    policy_version: int
    observe_ms: float
    generate_ms: float
    act_ms: float
    images: tuple[PromptImage, ...] = ()
    """The screenshots in the prompt, oldest first; empty for a policy that sees `screenshot_sha256` alone."""
    spans: tuple[VersionSpan, ...] = ()
    """The tokens that each version sampled, in order; empty when policy_version sampled all of them. With
    several versions, policy_version is the oldest."""
    centres: tuple[tuple[float, float], ...] = ()
    """See `Generation.centres`. A step with centres was answered greedily, and is never trained on."""
    box: tuple[float, float, float, float] | None = None
    """Left, top, right and bottom of the element that the step acts on, in pixels of its screenshot; None if
    unknown. `training.click_unit`, `training.pointer_weight` and `curation.failure_penalty` use it."""

    @property
    def has_behaviour(self) -> bool:
        """Whether the log-probs of the policy that sampled the step are known."""
        return bool(self.logprobs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstration:
    """One success of the experience pool. An oracle, another policy, or this policy with a hint played it."""

    pool_id: int
    """Key in the record; 0 before it is stored."""
    task_id: str
    seed: int
    origin: str
    """Name of the player: `oracle`, or the name in the imported file."""
    instruction: str
    reward: float
    """In (0, 1]."""
    steps: tuple[Step, ...]
    lacks_thought: bool = False
    """Whether an answer lacks the thought that this policy writes before each action."""
    guide_id: int | None = None
    """For a self-rolled demonstration, the one whose actions were the policy's hint; None for all others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """One finished episode with its reward. It never changes after it is stored."""

    rollout_id: int
    group_id: int
    task_id: str
    seed: int
    environment: str
    """Name of the environment actor that played it."""
    instruction: str
    outcome: Outcome
    reward: float
    """In [0, 1]."""
    steps: tuple[Step, ...]
    started_unix_s: float
    duration_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The finished rollouts of one task and seed, whose rewards GRPO compares."""

    group_id: int
    task_id: str
    seed: int
    trajectories: tuple[Trajectory, ...]
    demonstrations: tuple[Demonstration, ...] = ()
    """Demonstrations that were added because every rollout failed (DART section 3.2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastStep:
    """An earlier step of the episode, which the prompt of a new request shows."""

    screenshot_sha256: str
    token_ids: tuple[int, ...]
    """Tokens of its answer, as they were sampled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateRequest:
    """A request for one answer of the policy. All kinds of policies take the same form of request."""

    screenshot_sha256: str
    """The screenshot, a PNG among the run's blobs. The coordinates of the answer are its pixels."""
    instruction: str
    history: tuple[str, ...]
    """The actions of this episode so far in the action grammar, oldest first."""
    temperature: float
    hint: tuple[str, ...] = ()
    """Actions that solved this task before, in the action grammar. The policy sees them, but the recorded
    prompt (`Generation.prompt_ids`) leaves them out."""
    past: tuple[PastStep, ...] = ()
    """The newest steps so far, oldest first, as many as fit into a message (`dart.policy.context`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """An answer of the policy, with everything that training needs."""

    prompt_ids: tuple[int, ...]
    """The prompt for which training computes log-probs of the answer. A hint of the request is left out."""
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    entropies: tuple[float, ...]
    answer: str
    policy_version: int
    """The oldest version that sampled a token of the answer."""
    spans: tuple[VersionSpan, ...] = ()
    """See `Step.spans`."""
    images: tuple[PromptImage, ...] = ()
    """See `Step.images`."""
    centres: tuple[tuple[float, float], ...] = ()
    """Points (x, y) of a greedy answer of a policy with a pointer head, in the order of its pointer tokens.
    Each point is the weighted centre of the region of patches with the most attention, in fractions of the
    screen's width and height. The action uses this point instead of the centre of the patch token. Empty for
    a sampled answer."""
