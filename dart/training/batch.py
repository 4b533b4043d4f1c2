"""From finished groups to step samples and padded micro-batches.

A sample is one environment step exactly as it was recorded (train-what-was-sampled): prompt
and answer token ids, behaviour log-probs, and the screenshot by its sha256. Text is never
tokenised again.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from dart.training.advantage import step_advantages
from dart.types import Group, Step

T = TypeVar("T")


class MalformedStep(ValueError):
    """A recorded step whose token ids and log-probs do not belong together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSample:
    """One step to train on, with the advantage of its trajectory."""

    step: Step
    advantage: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PaddedAnswers:
    """What the loss needs of a micro-batch; (samples, longest answer), zeros where mask is False."""

    token_ids: Tensor
    behaviour: Tensor
    mask: Tensor
    advantage: Tensor
    """(samples,)"""


def step_samples(groups: Sequence[Group]) -> tuple[list[StepSample], int]:
    """All step samples of the groups that have spread, and how many groups had none."""
    samples: list[StepSample] = []
    without_spread = 0
    for group in groups:
        advantages = step_advantages(group)
        if advantages is None:
            without_spread += 1
            continue
        for trajectory, advantage in zip(group.trajectories, advantages, strict=True):
            samples += [StepSample(step=_checked(step), advantage=advantage) for step in trajectory.steps]
    return samples, without_spread


def _checked(step: Step) -> Step:
    if not step.token_ids or len(step.token_ids) != len(step.logprobs):
        raise MalformedStep(
            f"step with answer {step.answer!r} (policy version {step.policy_version}) has "
            f"{len(step.token_ids)} token ids and {len(step.logprobs)} log-probs; "
            "it was not recorded by an engine of this system"
        )
    return step


def pad_answers(samples: Sequence[StepSample]) -> PaddedAnswers:
    """Right-pad the answers of a micro-batch."""
    longest = max(len(sample.step.token_ids) for sample in samples)
    shape = (len(samples), longest)
    token_ids, behaviour = torch.zeros(shape, dtype=torch.long), torch.zeros(shape)
    mask = torch.zeros(shape, dtype=torch.bool)
    for row, sample in enumerate(samples):
        length = len(sample.step.token_ids)
        token_ids[row, :length] = torch.tensor(sample.step.token_ids)
        behaviour[row, :length] = torch.tensor(sample.step.logprobs)
        mask[row, :length] = True
    advantage = torch.tensor([sample.advantage for sample in samples])
    return PaddedAnswers(token_ids=token_ids, behaviour=behaviour, mask=mask, advantage=advantage)


def chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """`items` in order, `size` at a time, the last one shorter."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def split_evenly(items: Sequence[T], parts: int) -> list[Sequence[T]]:
    """`items` in order in at most `parts` non-empty runs whose lengths differ by one at most."""
    parts = min(parts, len(items))
    edges = [round(index * len(items) / parts) for index in range(parts + 1)]
    return [items[low:high] for low, high in itertools.pairwise(edges)]
