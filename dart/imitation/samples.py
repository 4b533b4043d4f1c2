"""Imitation: demonstrations as training samples, and the loss that makes a policy answer like them.

Coordinates are learned softly: the target of an x or y token is a Gaussian over its neighbours, not
one bin. A second loss makes the pointer behind each x token see the target cell itself. Without
these two a policy from scratch does not learn to point in minutes (docs/decisions/0005-laptop-policy.md).
"""

import json
import math
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dart.core.errors import UnavailableError
from dart.policy.codec import PromptCodec, load_pixels
from dart.policy.configuration import GuiPolicyConfig
from dart.policy.modeling import GuiPolicyForImageTextToText
from dart.policy.protocols import Pixels
from dart.policy.sampling import pad_left, pad_right


class DemonstrationError(UnavailableError):
    """A folder of demonstrations that cannot be trained on."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One demonstrated step."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    pixels: Pixels
    """uint8 [H, W, 3]."""


def read_episodes(folder: Path, tasks: Sequence[str], per_task: int) -> list[dict[str, Any]]:
    """The `per_task` episodes of lowest seed of each task (`dart.environments.miniwob.demonstrations`); their
    order does not depend on which browser was faster."""
    path = folder / "demonstrations.jsonl"
    if not path.is_file():
        raise DemonstrationError(f"expected demonstrations in {path}: collect them first")
    episodes = [json.loads(line) for line in path.read_text().splitlines()]
    chosen: list[dict[str, Any]] = []
    for task in tasks:
        own = sorted((one for one in episodes if one["task_id"] == task), key=lambda one: int(one["seed"]))
        if len(own) < per_task:
            raise DemonstrationError(f"expected {per_task} episodes of {task} in {path}, found {len(own)}")
        chosen += own[:per_task]
    return chosen


def samples_by_task(
    episodes: Sequence[Mapping[str, Any]], folder: Path, codec: PromptCodec
) -> dict[str, list[Sample]]:
    """Every step of every episode, by task id."""
    samples: defaultdict[str, list[Sample]] = defaultdict(list)
    for episode in episodes:
        history: list[str] = []
        for step in episode["steps"]:
            pixels = load_pixels(folder / "screenshots" / f"{step['screenshot_sha256']}.png")
            prompt = codec.encode_prompt(episode["instruction"], history)
            answer = codec.encode_answer(step["action"], episode["instruction"])
            samples[episode["task_id"]].append(Sample(tuple(prompt), tuple(answer), pixels))
            history.append(codec.decode_answer(answer, episode["instruction"]))
    return dict(samples)


def batches(
    samples: Mapping[str, Sequence[Sample]], size: int, seed: int, emphasis: Mapping[str, float]
) -> Iterator[list[Sample]]:
    """Endless batches; a task is drawn in proportion to its emphasis (1 unless given) times the square
    root of its number of steps, then one of them.

    Drawn evenly, a task of five steps would see each of them too seldom to play a whole episode well;
    drawn by steps, the tasks of one step would be crowded out.
    """
    draw = random.Random(seed)
    tasks = sorted(samples)
    weights = [emphasis.get(task, 1.0) * math.sqrt(len(samples[task])) for task in tasks]
    while True:
        yield [draw.choice(samples[task]) for task in draw.choices(tasks, weights, k=size)]


@dataclass(frozen=True, slots=True)
class ImitationLoss:
    """`answer` is the mean over answer tokens, `pointer` the mean over x tokens; both in nats."""

    answer: Tensor
    pointer: Tensor


def imitation_loss(
    model: GuiPolicyForImageTextToText, batch: Sequence[Sample], sigma_bins: float
) -> ImitationLoss:
    """Cross-entropy of the demonstrated answers with soft coordinates, and of the pointer."""
    config = model.config
    ids, mask = pad_left([sample.prompt for sample in batch], config.pad_token_id)
    targets, answer_mask = pad_right([sample.answer for sample in batch], config.pad_token_id)
    out = model(
        torch.cat([ids, targets[:, :-1]], 1),
        torch.cat([mask, answer_mask[:, :-1]], 1),
        _screens(batch),
        logits_to_keep=targets.shape[1],
    )
    wanted = soft_targets(targets, config, sigma_bins)
    token_loss = -(wanted * F.log_softmax(out.logits, -1)).sum(-1)
    answer = (token_loss * answer_mask).sum() / answer_mask.sum()
    return ImitationLoss(answer, _pointer_loss(out.pointer, targets, wanted, config))


def soft_targets(targets: Tensor, config: GuiPolicyConfig, sigma_bins: float) -> Tensor:
    """[B, K, V] target distributions: one-hot, but a Gaussian of `sigma_bins` over the bins of its axis
    where the token is a coordinate."""
    wanted = F.one_hot(targets, config.vocab_size).to(torch.float32)
    for first, bins in _axes(config):
        here = (targets >= first) & (targets < first + bins)
        distance = torch.arange(bins) - (targets[here] - first)[:, None]
        rows = torch.zeros(len(distance), config.vocab_size)
        rows[:, first : first + bins] = torch.softmax(-0.5 * (distance / sigma_bins) ** 2, -1)
        wanted[here] = rows
    return wanted


def _pointer_loss(scores: Tensor, targets: Tensor, wanted: Tensor, config: GuiPolicyConfig) -> Tensor:
    """Cross-entropy of the cell scores where an x token is due, against the outer product of the soft
    x and y targets; 0 without any."""
    (first_x, x_bins), (first_y, y_bins) = _axes(config)
    row, column = ((targets >= first_x) & (targets < first_x + x_bins)).nonzero(as_tuple=True)
    if not len(row):
        return scores.sum() * 0.0
    x = wanted[row, column, first_x : first_x + x_bins]
    y = wanted[row, column + 1, first_y : first_y + y_bins]
    cells = (y[:, :, None] * x[:, None, :]).flatten(1)
    return -(cells * F.log_softmax(scores[row, column], -1)).sum(-1).mean()


def _axes(config: GuiPolicyConfig) -> tuple[tuple[int, int], tuple[int, int]]:
    """First token id and number of bins, for x and for y."""
    return (config.first_x_token_id, config.x_bins), (config.first_y_token_id, config.y_bins)


def _screens(batch: Sequence[Sample]) -> Tensor:
    return torch.stack([torch.from_numpy(sample.pixels) for sample in batch]).permute(0, 3, 1, 2)
