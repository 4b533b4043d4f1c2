"""Imitation of the small policy: demonstrations as training samples, and the loss.

The targets of coordinates are soft: an x or y token has a Gaussian over neighbouring bins as its target, not
one bin. A second loss trains the pointer behind each x token on the target cell. Without both, a policy
from scratch does not learn to point within minutes (docs/decisions/0005-laptop-policy.md).
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
    """A folder of demonstrations cannot be used for training."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One demonstrated step."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    pixels: Pixels
    """uint8 [H, W, 3]."""


def read_episodes(folder: Path, tasks: Sequence[str], per_task: int) -> list[dict[str, Any]]:
    """Return the `per_task` episodes with the lowest seeds of each task, in an order that does not depend on
    which browser was faster. Raises DemonstrationError."""
    path = folder / "demonstrations.jsonl"
    if not path.is_file():
        raise DemonstrationError(
            f"expected demonstrations in {path}, which does not exist: collect them with "
            "`python -m dart.environments.miniwob.demonstrations`"
        )
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
    """Return every step of every episode, by task id."""
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
    """Yield batches without end. Each sample is a random step of a random task.

    The probability of a task is proportional to its emphasis (1 unless given) times the square root of its
    number of steps. With equal probabilities, tasks with five steps would not learn whole episodes; with
    probabilities by steps, tasks with one step would hardly occur.
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
    """Return the cross-entropy of the demonstrated answers, with soft coordinates, and of the pointer."""
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
    """Return target distributions [B, K, V]: one-hot, but for coordinate tokens a Gaussian of `sigma_bins`
    over the bins of their axis."""
    wanted = F.one_hot(targets, config.vocab_size).to(torch.float32)
    for first, bins in _axes(config):
        here = (targets >= first) & (targets < first + bins)
        distance = torch.arange(bins) - (targets[here] - first)[:, None]
        rows = torch.zeros(len(distance), config.vocab_size)
        rows[:, first : first + bins] = torch.softmax(-0.5 * (distance / sigma_bins) ** 2, -1)
        wanted[here] = rows
    return wanted


def _pointer_loss(scores: Tensor, targets: Tensor, wanted: Tensor, config: GuiPolicyConfig) -> Tensor:
    """Return the cross-entropy of the cell scores at x tokens against the outer product of the soft x and y
    targets; 0 without x tokens."""
    (first_x, x_bins), (first_y, y_bins) = _axes(config)
    row, column = ((targets >= first_x) & (targets < first_x + x_bins)).nonzero(as_tuple=True)
    if not len(row):
        return scores.sum() * 0.0
    x = wanted[row, column, first_x : first_x + x_bins]
    y = wanted[row, column + 1, first_y : first_y + y_bins]
    cells = (y[:, :, None] * x[:, None, :]).flatten(1)
    return -(cells * F.log_softmax(scores[row, column], -1)).sum(-1).mean()


def _axes(config: GuiPolicyConfig) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return first token id and number of bins, for x and for y."""
    return (config.first_x_token_id, config.x_bins), (config.first_y_token_id, config.y_bins)


def _screens(batch: Sequence[Sample]) -> Tensor:
    return torch.stack([torch.from_numpy(sample.pixels) for sample in batch]).permute(0, 3, 1, 2)
