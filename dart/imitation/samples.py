"""Demonstrations as training samples, and the loss by which the small policy imitates them.

The targets of coordinate tokens are soft: the target of an x or y token is a Gaussian over neighbouring bins
instead of a single bin. A second loss trains the pointer: at each x token it scores the cells of the screen.
Without both, a policy that starts from random weights does not learn to point within minutes
(docs/decisions/0005-laptop-policy.md).

In a policy with a pointer head (`coordinates = "pointer"`), points are patch tokens. The target of a patch
token is a Gaussian over patches, and the pointer loss is the loss of these tokens.
"""

import math
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from dart.core.actions import Click, format_action, parse_action
from dart.core.types import Step
from dart.imitation.page_layouts import PageLayout
from dart.policy.configuration import GuiPolicyConfig
from dart.policy.modeling import GuiPolicyModel, GuiPolicyOutput
from dart.policy.protocols import Codec, Pixels, Screen
from dart.policy.sampling import teacher_forced
from dart.policy.vocabulary import BIN_PX, PATCH_PX
from dart.training.demonstration_format import BadDemonstrations, DemonstrationEpisode, screenshot_path
from dart.training.demonstration_import import demonstration_of, read_episodes

T = TypeVar("T")


def lowest_seeds(folder: Path, counts: Mapping[str, int]) -> list[DemonstrationEpisode]:
    """Return the episodes with the lowest seeds of each task, in the order of tasks and seeds.

    counts   how many episodes of each task, by task id

    An episode that the folder has twice, because its data was made twice, counts once.

    Raises BadDemonstrations if a task has fewer episodes than that.
    """
    read = read_episodes(folder, lambda episode: episode)
    episodes = {episode.model_dump_json(): episode for episode in read}.values()
    chosen: list[DemonstrationEpisode] = []
    for task, count in counts.items():
        own = sorted((one for one in episodes if one.task_id == task), key=lambda one: one.seed)
        if len(own) < count:
            raise BadDemonstrations(f"expected {count} episodes of {task} in {folder}, found {len(own)}")
        chosen += own[:count]
    return chosen


@dataclass(frozen=True, slots=True)
class ImitatedStep:
    """A step to imitate, and its screenshot."""

    step: Step
    screen: Screen
    layout: PageLayout | None = None
    """Of a click on an element of a page that is shown with other distances each time; else None."""
    named: str = ""
    """The words by which the instruction names the element; empty if it names it otherwise."""

    def shown(self, codec: Codec, draw: random.Random) -> tuple[Step, Pixels]:
        """Return the step and the pixels to imitate it on, both with other distances if there is a layout."""
        if self.layout is None:
            return self.step, self.screen.pixels
        click = parse_action(self.step.answer)
        assert isinstance(click, Click)
        pixels, x, y = self.layout.moved(click.x, click.y, draw)
        ids = codec.encode_action(format_action(Click(x, y)), "", self.screen.frame)
        return replace(self.step, token_ids=tuple(ids)), pixels


def steps_by_task(
    episodes: Sequence[DemonstrationEpisode], folder: Path, codec: Codec
) -> dict[str, list[ImitatedStep]]:
    """Return the steps of all episodes, by task id.

    folder   the folder of demonstrations with the screenshots of these episodes
    """
    screen = cache(partial(screen_of, folder=folder, codec=codec))
    examples: defaultdict[str, list[ImitatedStep]] = defaultdict(list)
    for episode in episodes:
        steps = demonstration_of(episode, folder, codec).steps
        examples[episode.task_id] += [ImitatedStep(step, screen(step.screenshot_sha256)) for step in steps]
    return dict(examples)


def screen_of(sha256: str, folder: Path, codec: Codec) -> Screen:
    """Read a screenshot from a folder of demonstrations; return it decoded."""
    return codec.screen(sha256, screenshot_path(folder, sha256).read_bytes())


def batches(
    examples: Mapping[str, Sequence[T]], size: int, seed: int, emphasis: Mapping[str, float]
) -> Iterator[list[T]]:
    """Yield batches of `size` examples without end. Each is a random step of a random task.

    The probability of a task is proportional to its emphasis (1 unless given) times the square root of its
    number of steps. With equal probabilities, the policy would not learn whole episodes of tasks with five
    steps. With probabilities by steps, tasks with one step would hardly be drawn.
    """
    draw = random.Random(seed)
    tasks = sorted(examples)
    weights = [emphasis.get(task, 1.0) * math.sqrt(len(examples[task])) for task in tasks]
    while True:
        yield [draw.choice(examples[task]) for task in draw.choices(tasks, weights, k=size)]


@dataclass(frozen=True, slots=True)
class ImitationLoss:
    """Two losses in nats: `answer` is the mean over answer tokens, `pointer` the mean over x tokens or
    patches. `naming` is 1 less the mean cosine of the pointer's queries and the embeddings of the words by
    which instructions name elements."""

    answer: Tensor
    pointer: Tensor
    naming: Tensor


def imitation_loss(
    model: GuiPolicyModel,
    batch: Sequence[Step],
    pixels: Sequence[Pixels],
    sigma_bins: float,
    named: Tensor | None = None,
) -> ImitationLoss:
    """Return the cross-entropies of the demonstrated answers and of the pointer, with soft targets.

    pixels       the screenshot of each step, uint8 [H, W, 3]
    sigma_bins   standard deviation of the soft targets, in bins
    named        embeddings of the words by which instructions name elements, [B, size]; zeros for an
                 instruction that names none
    """
    images = torch.stack([torch.from_numpy(image) for image in pixels])
    out, targets, mask = teacher_forced(
        model, [step.prompt_ids for step in batch], [step.token_ids for step in batch], images
    )
    wanted = soft_targets(targets, model.config, sigma_bins)
    token_loss = -(wanted * F.log_softmax(out.logits, -1)).sum(-1)
    answer = (token_loss * mask).sum() / mask.sum()
    if model.has_patches:
        points = _patches(targets, model.config) & mask
        pointer = (token_loss * points).sum() / points.sum().clamp(min=1)
    else:
        pointer = _pointer_loss(out.pointer, targets, wanted, model.config)
    naming = answer * 0.0 if named is None else _naming_loss(model, out, targets, named)
    return ImitationLoss(answer, pointer, naming)


def soft_targets(targets: Tensor, config: GuiPolicyConfig, sigma_bins: float) -> Tensor:
    """Return the target distribution of each token, float32 [B, K, V], given its id, int64 [B, K].

    B is the number of answers, K the number of tokens of an answer, V the size of the vocabulary. The target
    of a coordinate token is a Gaussian over the bins of its axis, with the standard deviation `sigma_bins`.
    The target of a patch token is a Gaussian over the patches of the screen, with the same standard deviation
    in pixels. All other targets are one-hot.
    """
    wanted = F.one_hot(targets, config.vocab_size).to(torch.float32)
    if config.coordinates == "pointer":
        here = _patches(targets, config)
        first = config.first_patch_token_id
        near = _near_patches(targets[here] - first, config, sigma_bins * BIN_PX / PATCH_PX)
        wanted[here] = F.pad(near, (first, config.vocab_size - first - config.patches))
        return wanted
    for first, bins in _axes(config):
        here = (targets >= first) & (targets < first + bins)
        distance = torch.arange(bins) - (targets[here] - first)[:, None]
        rows = torch.zeros(len(distance), config.vocab_size)
        rows[:, first : first + bins] = torch.softmax(-0.5 * (distance / sigma_bins) ** 2, -1)
        wanted[here] = rows
    return wanted


def _patches(targets: Tensor, config: GuiPolicyConfig) -> Tensor:
    """Return which of these token ids are patch tokens, as bool of the same shape."""
    first = config.first_patch_token_id
    found: Tensor = (targets >= first) & (targets < first + config.patches)
    return found


def _near_patches(patch: Tensor, config: GuiPolicyConfig, sigma_patches: float) -> Tensor:
    """Return a Gaussian over all m patches around each of these N patches, as [N, m]; `patch` is [N]."""
    every = torch.arange(config.patches)
    down = every // config.patch_columns - patch[:, None] // config.patch_columns
    across = every % config.patch_columns - patch[:, None] % config.patch_columns
    return torch.softmax(-0.5 * (down**2 + across**2) / sigma_patches**2, -1)


def _pointer_loss(scores: Tensor, targets: Tensor, wanted: Tensor, config: GuiPolicyConfig) -> Tensor:
    """Return the mean cross-entropy of the pointer's scores for screen cells at x tokens; 0 if there are
    none.

    The target of a cell is the product of the soft targets of its column and its row.
    """
    (first_x, x_bins), (first_y, y_bins) = _axes(config)
    row, column = ((targets >= first_x) & (targets < first_x + x_bins)).nonzero(as_tuple=True)
    if not len(row):
        return scores.sum() * 0.0
    x = wanted[row, column, first_x : first_x + x_bins]
    y = wanted[row, column + 1, first_y : first_y + y_bins]
    cells = (y[:, :, None] * x[:, None, :]).flatten(1)
    return -(cells * F.log_softmax(scores[row, column], -1)).sum(-1).mean()


def _naming_loss(model: GuiPolicyModel, out: GuiPolicyOutput, targets: Tensor, named: Tensor) -> Tensor:
    """Return 1 less the mean cosine of the first channels of the pointer's query at the x tokens and `named`,
    over the answers whose instruction names an element; 0 if none does."""
    (first_x, x_bins), _ = _axes(model.config)
    is_x = (targets >= first_x) & (targets < first_x + x_bins)
    row, column = (is_x & named.any(-1)[:, None]).nonzero(as_tuple=True)
    assert out.hidden is not None
    query = model.pointer.query(out.hidden[row, column])[:, : named.shape[-1]]
    likeness: Tensor = F.cosine_similarity(query, named[row])
    return 1 - likeness.mean() if len(row) else query.sum() * 0.0


def _axes(config: GuiPolicyConfig) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return (first token id, number of bins) of the x axis and of the y axis."""
    return (config.first_x_token_id, config.x_bins), (config.first_y_token_id, config.y_bins)
