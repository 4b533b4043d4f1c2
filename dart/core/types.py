"""The nouns of the training system, as plain frozen data.

Everything that crosses an actor boundary or reaches the store is made of these
classes. No torch, no I/O, no clock. Pixels and weights never travel in them:
a screenshot is named by its sha256, a checkpoint by its folder.
"""

from dataclasses import dataclass
from enum import StrEnum

SUCCESS_ABOVE = 0.5
"""A reward above it is a success, unless a run says otherwise (curation.success_above)."""


class FaultKind(StrEnum):
    """Who is to blame for an attempt that ended without a reward."""

    INFRASTRUCTURE = "infrastructure"
    """The environment broke; the attempt is spent, the rollout is tried again."""
    SYSTEM = "system"
    """No engine, or not the store, answered; the attempt is spent, and nothing is held against the task."""
    POLICY = "policy"
    """The policy cannot be asked this: a prompt that is too long, a screenshot that is lost. (An answer that
    is no action is an outcome.)"""
    EVALUATOR = "evaluator"
    """The episode ran, its score could not be had."""
    TASK = "task"
    """The task itself cannot be set up; trying again will not help."""


class Outcome(StrEnum):
    """How a finished episode ended. Each of them carries a reward."""

    TERMINATED = "terminated"
    """The environment ended the episode (it succeeded or failed)."""
    FINISHED = "finished"
    """The policy declared the task done."""
    STEP_CAP = "step_cap"
    """The step cap was reached; not an act of the policy."""
    PARSE_ERROR = "parse_error"
    """The policy's answer was not an action of the grammar; reward 0."""
    INFEASIBLE = "infeasible"
    """The policy declared that the task cannot be done; pays only where that is the right answer."""


class RolloutState(StrEnum):
    """Where an issued rollout is. Exactly one at any time (invariant one-fate)."""

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
    """1 for the first try; an infrastructure failure spends an attempt."""
    fence: int
    """Fencing token: grows with every lease of this rollout; a report with an older one is ignored."""
    deadline_unix_s: float
    parked_steps: int = 0
    """Steps played before the episode was parked: in the record, to be replayed before it goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptImage:
    """One screenshot in the prompt of a vision-language policy."""

    sha256: str
    tokens: int
    """It took, as the engine counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionSpan:
    """Which tokens of an answer one policy version sampled."""

    version: int
    end: int
    """Index after the last of these tokens; the first follows the span before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One environment step exactly as it was sampled (train-what-was-sampled).

    A step that was imported into the experience pool has no entropies, and log-probs only where its importer
    knew them. Where they are empty, training gives it the importance weight 1.
    """

    screenshot_sha256: str
    prompt_ids: tuple[int, ...]
    """The text tokens the policy saw (instruction and history), image placeholders included: with `images`
    one each, else all."""
    token_ids: tuple[int, ...]
    """The answer's tokens, end token included."""
    logprobs: tuple[float, ...]
    """Behaviour log-prob of each answer token in the sampling distribution; same length as token_ids."""
    entropies: tuple[float, ...]
    """Entropy in nats of the sampling distribution at each answer token; same length."""
    answer: str
    """The answer as text, in the action grammar when it parses."""
    policy_version: int
    observe_ms: float
    generate_ms: float
    act_ms: float
    images: tuple[PromptImage, ...] = ()
    """The screenshots in the prompt, oldest first; empty where a policy sees `screenshot_sha256` alone."""
    spans: tuple[VersionSpan, ...] = ()
    """Which version sampled which tokens, in order; empty when policy_version sampled them all. Of several,
    policy_version is the oldest."""

    @property
    def has_behaviour(self) -> bool:
        """Whether the log-probs of the policy that sampled it are known."""
        return bool(self.logprobs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstration:
    """One success of the experience pool: played by an oracle or another policy, not by this run."""

    pool_id: int
    """Its key in the record; 0 before it is there."""
    task_id: str
    seed: int
    origin: str
    """Who played it: `oracle`, or what its importer called it."""
    instruction: str
    reward: float
    """In (0, 1]."""
    steps: tuple[Step, ...]
    lacks_thought: bool = False
    """Some answer is an action without the thought that this policy writes before it."""
    guide_id: int | None = None
    """The demonstration whose actions the policy saw while it played this (self-rolled); None: imported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """One finished episode with its reward. Never changed after it was stored."""

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
    """The finished rollouts of one (task, seed): the unit GRPO compares within."""

    group_id: int
    task_id: str
    seed: int
    trajectories: tuple[Trajectory, ...]
    injected: tuple[Demonstration, ...] = ()
    """From the experience pool, when every rollout of the group failed (DART section 3.2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastStep:
    """A step before the one that is asked for."""

    screenshot_path: str
    screenshot_sha256: str
    token_ids: tuple[int, ...]
    """Of its answer, as it was sampled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateRequest:
    """What a policy needs to answer one step. The same for a 1 M and a 7 B policy."""

    screenshot_path: str
    """PNG on disk (the blob); it defines the pixel frame of the answer's coordinates."""
    screenshot_sha256: str
    instruction: str
    history: tuple[str, ...]
    """The actions so far in this episode, in the grammar of the screen, oldest first."""
    temperature: float
    hint: tuple[str, ...] = ()
    """Actions that did this task before, in the grammar of the screen: shown to the policy, and left out of
    the prompt that is recorded (`Generation.prompt_ids`)."""
    past: tuple[PastStep, ...] = ()
    """The newest steps so far, oldest first, as many as mail carries (`dart.policy.context`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """What the policy answered, with everything training needs of it."""

    prompt_ids: tuple[int, ...]
    """What training scores the answer under: the prompt without the hint, where the request had one."""
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    entropies: tuple[float, ...]
    answer: str
    policy_version: int
    """The oldest version that sampled a token of it."""
    spans: tuple[VersionSpan, ...] = ()
    """See `Step.spans`."""
    images: tuple[PromptImage, ...] = ()
    """See `Step.images`."""
