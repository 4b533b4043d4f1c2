"""`dartrl pretrain`: trains a small base policy by imitation.

The base policy of the laptop job learns to see and to point from other tasks (`laptop_base`): from
demonstrations of their oracles, and from instructions that name one element of a page. Of the tasks that
reinforcement learning will train it gets too few demonstrations to solve them.
docs/decisions/0034-base-policy-of-other-tasks.md has the reasons and the figures.
"""

import asyncio
import random
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer

from dart.config.config import Config
from dart.core.screenspot import read_screenspot
from dart.environments.browser.demonstrations import collect
from dart.environments.miniwob.pages import task_ids
from dart.grounding.pages import collect_pages
from dart.imitation.evaluation import mean_success, play_held_out
from dart.imitation.model_card import card_text
from dart.imitation.oracle_kinds import oracle_kind_of
from dart.imitation.pointing import instructions, pointing_steps
from dart.imitation.samples import batches, imitation_loss, lowest_seeds, steps_by_task
from dart.policy.codec import PromptCodec
from dart.policy.configuration import GuiPolicyConfig
from dart.policy.modeling import GuiPolicyModel, new_policy
from dart.policy.small_policy import save_policy
from dart.policy.tokenizer import train_tokenizer
from dart.policy.vocabulary import Coordinates
from dart.training.updates import Report, run_updates

PAGES = "pages"
"""Folder of the pages in a folder of data."""

LAYOUT_SEED = 7
"""What is added to the seed for the distances on pages, so that they do not depend on the draws of steps."""

EPISODES_PER_TASK = 140
"""Number of demonstrations of a task that a user names, unless the user says how many."""

OTHER_TASKS = tuple(
    f"miniwob/{name}"
    for name in (
        *("choose-list", "click-checkboxes", "click-checkboxes-transfer", "click-tab-2", "click-tab-2-hard"),
        *("click-tab-2-medium", "click-test", "copy-paste", "drag-box", "focus-text", "grid-coordinate"),
        *("identify-shape", "simple-arithmetic", "text-transform", "use-spinner", "click-test-transfer"),
    )
)
"""Tasks whose demonstrations the laptop job's base policy imitates."""

UNSEEN_TASKS = tuple(
    f"miniwob/{name}"
    for name in (
        *("click-button", "click-button-sequence", "click-color", "click-link", "click-option"),
        *("click-tab-2-easy", "enter-text-2", "unicode-test"),
    )
)
"""Tasks of which the base policy sees nothing, neither demonstrations nor pages: a second set to train on."""

SHOWN: Mapping[Coordinates, tuple[tuple[str, int, float], ...]] = {
    "bins": (
        ("miniwob/focus-text-2", 6, 0.5),
        ("miniwob/click-widget", 24, 1.0),
        ("miniwob/enter-password", 1, 0.03),
        ("miniwob/login-user", 3, 0.1),
    ),
    "pointer": (
        ("miniwob/focus-text-2", 3, 0.3),
        ("miniwob/click-widget", 8, 0.3),
        ("miniwob/enter-password", 3, 0.1),
        ("miniwob/login-user", 5, 0.2),
    ),
}
"""Tasks of the laptop job of which the base policy imitates a few demonstrations: how many, and how often
their steps are drawn, relative to 1 for other tasks. Without the first two it would not know what their words
mean. With the last two the policy with a pointer head sometimes solves forms. The one with bins does not, and
learns them with the experience pool of configs/laptop.toml (docs/decisions/0039-the-laptop-jobs-pool.md)."""

MOVING = ("miniwob/chase-circle",)
"""Tasks whose elements have moved on when a screenshot of them is looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PretrainConfig:
    """All settings for making a base policy."""

    episodes: tuple[tuple[str, int], ...]
    """Number of demonstrations of each task, by task id; all tasks are of one kind of environment."""
    measured_tasks: tuple[str, ...] = ()
    """Ids of the tasks whose success the model card shows; empty: those of `episodes`."""
    coordinates: Coordinates = "bins"
    """How the policy writes points: `bins`, as coordinate tokens, or `pointer`, with a pointer head."""
    pages: int = 0
    """Number of pages from which pointing is learned: a step is an instruction that names one element, and a
    click on it."""
    page_tasks: tuple[str, ...] = ()
    """Ids of the tasks whose pages these are."""
    moved_pages: bool = False
    """Whether each step on a page is shown with other distances between its elements
    (`dart.imitation.page_layouts`)."""
    emphasis: tuple[tuple[str, float], ...] = ()
    """How often steps of a task are drawn, relative to 1 for other tasks."""
    page_emphasis: float = 1.0
    """How often the elements of a kind on pages are drawn, relative to 1 for a task."""
    updates: int = 130
    batch_size: int = 16
    lr: float = 1.5e-3
    warmup_updates: int = 50
    weight_decay: float = 0.01
    max_grad_norm: float = 1.0
    sigma_bins: float = 0.5
    """Standard deviation of the Gaussian targets of coordinate tokens, in bins of 4 px."""
    pointer_weight: float = 0.5
    """Weight of the pointer loss relative to the answer loss."""
    pointer_temperature: float = 1.0
    """Number by which the pointer's scores are divided after training (`soften_pointer`)."""
    seed: int = 0
    threads: int = 1
    """Number of CPU threads. Another number changes rounding and thereby the weights slightly."""
    environments: int = 4
    held_out_episodes: int = 50
    """Number of episodes per task that measure the success rates of the model card; 0: no measurement."""
    step_cap: int = 8

    @property
    def measured(self) -> tuple[str, ...]:
        """Ids of the tasks that are measured for the model card."""
        return self.measured_tasks or tuple(task for task, _ in self.episodes)


def laptop_base(coordinates: Coordinates = "bins") -> PretrainConfig:
    """Return the settings with which the base policy of the laptop job was made.

    The scores of the pointer head are divided by more, so that both policies begin about as unsure.
    """
    tasks = Config().tasks.train
    not_shown, shown = {*tasks, *UNSEEN_TASKS, *MOVING}, SHOWN[coordinates]
    return PretrainConfig(
        episodes=tuple([(task, 85) for task in OTHER_TASKS] + [(task, count) for task, count, _ in shown]),
        measured_tasks=tasks,
        pages=4633,
        page_tasks=tuple(task for task in task_ids() if task not in not_shown),
        moved_pages=coordinates == "bins",
        emphasis=(("miniwob/click-test-transfer", 0.3), *((task, weight) for task, _, weight in shown)),
        page_emphasis=0.3,
        coordinates=coordinates,
        pointer_temperature=3.5 if coordinates == "pointer" else 2.0,
        updates=3000,
        batch_size=24,
        warmup_updates=100,
        held_out_episodes=25,
    )


def main_job(
    config: PretrainConfig, out: Path, demonstrations: Path | None = None, report: Report = print
) -> None:
    """Make a base policy: train it, write it to the folder `out`, and measure it for its model card.

    demonstrations   folder of data that `collect_data` made before; None: `out/demonstrations`, which is made
                     now unless an earlier call has made it
    report           called with each line of progress

    Raises UsageError if the tasks are not of one kind of environment with oracles, and InfrastructureFault if
    an environment fails twice in one episode.
    """
    folder = demonstrations if demonstrations is not None else out / "demonstrations"
    if folder.exists():
        report(f"using the data in {folder}")
    elif demonstrations is None:
        collect_data(config, folder, report)
    model, tokenizer = pretrain(config, folder, report)
    save_policy(model, tokenizer, out)
    codec = PromptCodec(tokenizer, model.config.image_tokens)

    def measure(temperature: float) -> dict[str, list[float]]:
        rewards = asyncio.run(play_held_out(model, codec, config, temperature))
        if config.held_out_episodes:
            report(f"success at temperature {temperature:g}: {mean_success(rewards):.1%}")
        return rewards

    sampled, greedy = measure(1.0), measure(0.0)
    parameters = sum(weight.numel() for weight in model.parameters())
    (out / "README.md").write_text(card_text(config, parameters, sampled, greedy))


def collect_data(config: PretrainConfig, folder: Path, report: Report) -> None:
    """Let oracles play the demonstrations that a configuration asks for, and read its pages, into a folder.

    The folder gets its name when it is complete; an incomplete one of an earlier call is removed.

    Raises UsageError if the tasks are not of one kind of environments with oracles, and InfrastructureFault.
    """
    kind = oracle_kind_of([task for task, _ in config.episodes])
    new = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    for count in sorted({count for _, count in config.episodes}):
        tasks = [task for task, wanted in config.episodes if wanted == count]
        report(f"collecting {count} episodes of each of {len(tasks)} tasks")
        collect(kind, tasks, count, new, environments=config.environments)
    if config.pages:
        report(f"reading {config.pages} pages of {len(config.page_tasks)} tasks")
        collect_pages(config.page_tasks, config.pages, "train", new / PAGES, config.environments)
    new.rename(folder)


def pretrain(
    config: PretrainConfig, demonstrations: Path, report: Report
) -> tuple[GuiPolicyModel, Tokenizer]:
    """Train a policy on the data of a folder; the same inputs give the same weights."""
    episodes = lowest_seeds(demonstrations, dict(config.episodes))
    pages = read_screenspot(demonstrations / PAGES) if config.pages else []
    texts = [one.instruction for one in episodes] + [text for one in pages for text in instructions(one)]
    tokenizer = train_tokenizer(texts, config.coordinates)
    torch.set_num_threads(config.threads)
    sizes = GuiPolicyConfig(config.coordinates, vocab_size=tokenizer.get_vocab_size())
    model = new_policy(sizes, config.seed)
    codec = PromptCodec(tokenizer, model.config.image_tokens)
    pointing = pointing_steps(pages, codec, moved=config.moved_pages)
    examples = steps_by_task(episodes, demonstrations, codec) | pointing
    report(f"imitating {sum(map(len, examples.values()))} steps")
    emphasis = dict(config.emphasis) | dict.fromkeys(pointing, config.page_emphasis)
    stream = batches(examples, config.batch_size, config.seed, emphasis)
    draw = random.Random(config.seed + LAYOUT_SEED)

    def add_gradient() -> str:
        steps, pixels = zip(*(example.shown(codec, draw) for example in next(stream)), strict=True)
        loss = imitation_loss(model, steps, pixels, config.sigma_bins)
        (loss.answer + config.pointer_weight * loss.pointer).backward()  # type: ignore[no-untyped-call]
        return f"answer {loss.answer:.3f} pointer {loss.pointer:.3f}"

    lrs = [config.lr * lr_factor(update, config) for update in range(1, config.updates + 1)]
    weights = list(model.parameters())
    run_updates(_optimizer(model, config), weights, lrs, config.max_grad_norm, add_gradient, report)
    soften_pointer(model, config.pointer_temperature)
    return model.eval(), tokenizer


def soften_pointer(model: GuiPolicyModel, temperature: float) -> None:
    """Divide the pointer's scores by a temperature, so that the policy is less sure where to point.

    Imitation makes a policy surer than it is right. Then all rollouts of a group point at the same wrong
    element, and reinforcement learning has nothing to compare. The order of the scores stays the same.
    """
    with torch.no_grad():
        for weight in model.pointer.query.parameters():
            weight.div_(temperature)


def lr_factor(update: int, config: PretrainConfig) -> float:
    """Return the factor of the learning rate at an update, counted from 1.

    The factor rises linearly to 1 during the warm-up, then falls linearly to 0 after the last update.
    """
    remaining = (config.updates + 1 - update) / max(1, config.updates + 1 - config.warmup_updates)
    return min(1.0, update / config.warmup_updates, remaining)


def _optimizer(model: GuiPolicyModel, config: PretrainConfig) -> torch.optim.AdamW:
    """Return AdamW with weight decay for matrices, but not for vectors (norms, biases)."""
    matrices = [weight for weight in model.parameters() if weight.dim() >= 2]
    vectors = [weight for weight in model.parameters() if weight.dim() < 2]
    groups = [
        {"params": matrices, "weight_decay": config.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=config.lr, betas=(0.9, 0.95))
