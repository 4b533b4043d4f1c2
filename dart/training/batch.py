"""Step samples of finished groups.

A sample is one environment step exactly as it was recorded (train-what-was-sampled): prompt
and answer token ids, behaviour log-probs, and the screenshot by its sha256. Text is never
tokenised again. Steps of demonstrations have behaviour log-probs only if their file gave them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from dart.core.types import Demonstration, Group, Step
from dart.training.advantage import group_members
from dart.training.batch_errors import MalformedStep
from dart.training.entropy import Pointing, entropy_threshold, is_kept
from dart.training.failure_penalty import FailurePenalty
from dart.training.step_credit import StepCredit, credited_advantages


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSample:
    """One step to train on, with its advantage."""

    step: Step
    advantage: float
    is_demonstration: bool = False
    """Whether the step belongs to a demonstration of the experience pool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """The step samples of some groups."""

    kept: tuple[StepSample, ...]
    """The samples that are in the loss."""
    steps: int
    """Number of all steps of the groups that have advantages, including steps that are left out of the loss,
    and of all steps that get a penalty. The loss is divided by this number."""
    low_entropy: int
    """Number of steps left out because of low entropy."""
    groups_without_spread: int
    """Number of groups that are not in the loss because their rewards are equal and nothing else teaches."""


def step_samples(
    groups: Sequence[Group],
    entropy_quantile: float | None = None,
    pointing: Pointing | None = None,
    credit: StepCredit | None = None,
    penalty: FailurePenalty | None = None,
) -> Samples:
    """Return the step samples of the groups that have advantages or get a penalty. Raises MalformedStep.

    entropy_quantile   steps below this quantile of their group's entropies are left out; None: no quantile
    pointing           how to read the patches of a policy with a pointer head; None: it has no such head
    credit             settings of credit for single steps; None: steps have their trajectory's advantage
    penalty            penalty of episodes of one step in groups without a success; None: they are left out

    Steps with an empty answer are always left out.
    """
    kept: list[StepSample] = []
    steps = low_entropy = without_spread = 0
    for group in groups:
        members, advantages = group_members(group), credited_advantages(group, credit)
        if advantages is None and penalty is not None:
            members, advantages = penalty.penalised(group)
        if not advantages:
            without_spread += 1
            continue
        share = entropy_quantile
        threshold = -math.inf if share is None else entropy_threshold(group, share, pointing)
        for member, of_steps in zip(members, advantages, strict=True):
            is_in_loss = [
                is_kept(_checked(step, group.group_id), threshold, pointing) for step in member.steps
            ]
            steps += len(is_in_loss)
            low_entropy += is_in_loss.count(False)
            kept += [
                StepSample(step=step, advantage=advantage, is_demonstration=isinstance(member, Demonstration))
                for step, advantage, is_in in zip(member.steps, of_steps, is_in_loss, strict=True)
                if is_in and step.token_ids
            ]
    return Samples(
        kept=tuple(kept), steps=steps, low_entropy=low_entropy, groups_without_spread=without_spread
    )


def _checked(step: Step, group_id: int) -> Step:
    tokens, logprobs, entropies = len(step.token_ids), len(step.logprobs), len(step.entropies)
    if logprobs not in (0, tokens) or entropies not in (0, tokens):
        raise MalformedStep(step, group_id)
    return step


def padded(rows: Sequence[Tensor | None], like: Tensor) -> Tensor:
    """Return the rows as one tensor with the shape of `like`.

    Where a row is shorter or None, the result has the values of `like`, without gradient.
    """
    filled = like.detach().clone()
    for index, row in enumerate(rows):
        if row is not None:
            filled[index, : len(row)] = row
    return filled
