"""`dartrl pretrain`: trains a small base policy by imitation.

The base policy of the laptop job learns to see and to point from other tasks (`laptop_base`): from
demonstrations of their oracles, and from instructions that name one element of a page. Of the tasks that
reinforcement learning will train it gets too few demonstrations to solve them.
docs/decisions/0034-base-policy-of-other-tasks.md has the reasons and the figures.
"""

import asyncio
import random
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import nn

from dart.config.config import Config
from dart.core.screenspot import read_screenspot
from dart.environments.browser.demonstrations import collect
from dart.environments.miniwob.pages import task_ids
from dart.grounding.pages import collect_pages
from dart.grounding.words import read_words
from dart.imitation.drawn_pages import collect_drawn_pages
from dart.imitation.evaluation import mean_success, play_held_out
from dart.imitation.model_card import card_text
from dart.imitation.oracle_kinds import oracle_kind_of
from dart.imitation.pointing import instructions, pointing_steps
from dart.imitation.reading import ReadingLessons, reading_pages
from dart.imitation.samples import batches, imitation_loss, lowest_seeds, steps_by_task
from dart.policy.codec import PromptCodec
from dart.policy.configuration import GuiPolicyConfig
from dart.policy.modeling import GuiPolicyModel, new_policy
from dart.policy.small_policy import save_policy
from dart.policy.tokenizer import train_tokenizer
from dart.policy.vocabulary import Coordinates
from dart.training.updates import Report, run_updates

PAGES, DRAWN = "pages", "drawn"
"""Folders of the tasks' pages, and of drawn pages, in a folder of data."""

LAYOUT_SEED, READING_SEED = 7, 8
"""What is added to the seed for the distances on pages and for the pages to read, so that neither depends on
the draws of steps."""

READING_CHANNELS, READING_POINTER_SIZE = (48, 64, 40), 72
"""Sizes of the layers of a policy that reads (`GuiPolicyConfig`)."""

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
    drawn_pages: int = 0
    """Number of pages with random elements and words (`dart.imitation.drawn_pages`) from which pointing is
    learned, too."""
    read_pages: int = 0
    """Number of pages in each update whose words are read (`dart.imitation.reading`); 0: the policy has no
    layers for it."""
    emphasis: tuple[tuple[str, float], ...] = ()
    """How often steps of a task are drawn, relative to 1 for other tasks."""
    page_emphasis: float = 1.0
    """How often the elements of a kind on pages are drawn, relative to 1 for a task."""
    reading_updates: int = 0
    """Number of updates before the others in which the policy only reads."""
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


def laptop_base_that_reads() -> PretrainConfig:
    """Return the settings of a base policy for the laptop job that learns letters and words, too.

    It sees click-widget half as often as the one of `laptop_base`.
    """
    base = laptop_base()
    return replace(
        base,
        drawn_pages=10_000,
        read_pages=16,
        reading_updates=3000,
        emphasis=tuple(
            (task, 0.5 if task == "miniwob/click-widget" else factor) for task, factor in base.emphasis
        ),
        updates=2500,
        batch_size=36,
        threads=2,
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
    if config.drawn_pages:
        report(f"drawing {config.drawn_pages} pages")
        collect_drawn_pages(config.drawn_pages, new / DRAWN, config.environments)
    new.rename(folder)


def pretrain(
    config: PretrainConfig, demonstrations: Path, report: Report
) -> tuple[GuiPolicyModel, Tokenizer]:
    """Train a policy on the data of a folder; the same inputs give the same weights."""
    episodes = lowest_seeds(demonstrations, dict(config.episodes))
    counts = {PAGES: config.pages, DRAWN: config.drawn_pages}
    folders = [demonstrations / name for name, count in counts.items() if count]
    words = {folder: read_words(folder) for folder in folders if config.read_pages}
    pages = [sample for folder in folders for sample in read_screenspot(folder)]
    texts = [one.instruction for one in episodes] + [text for one in pages for text in instructions(one)]
    tokenizer = train_tokenizer(texts, config.coordinates)
    torch.set_num_threads(config.threads)
    model = new_policy(_sizes(config, tokenizer), config.seed)
    codec = PromptCodec(tokenizer, model.config.image_tokens)
    pointing = pointing_steps(pages, codec, moved=config.moved_pages)
    examples = steps_by_task(episodes, demonstrations, codec) | pointing
    report(f"imitating {sum(map(len, examples.values()))} steps")
    emphasis = dict(config.emphasis) | dict.fromkeys(pointing, config.page_emphasis)
    stream = batches(examples, config.batch_size, config.seed, emphasis)
    draw = random.Random(config.seed + LAYOUT_SEED)
    lessons = None
    if config.read_pages:
        to_read = reading_pages(words, pages)
        lessons = ReadingLessons(model, to_read, config.read_pages, config.seed + READING_SEED)

    def imitate() -> str:
        chosen = next(stream)
        steps, pixels = zip(*(example.shown(codec, draw) for example in chosen), strict=True)
        named = None if lessons is None else lessons.named([example.named for example in chosen])
        loss = imitation_loss(model, steps, pixels, config.sigma_bins, named)
        total = loss.answer + config.pointer_weight * loss.pointer + loss.naming
        total.backward()  # type: ignore[no-untyped-call]
        told = f"answer {loss.answer:.3f} pointer {loss.pointer:.3f}"
        return told if lessons is None else f"{told} naming {loss.naming:.3f} {lessons.read()}"

    def train(updates: int, add_gradient: Callable[[], str]) -> None:
        weights = [*model.parameters(), *(lessons.heads.parameters() if lessons is not None else ())]
        lrs = [config.lr * lr_factor(update, updates, config) for update in range(1, updates + 1)]
        run_updates(_optimizer(weights, config), weights, lrs, config.max_grad_norm, add_gradient, report)

    if lessons is not None:
        train(config.reading_updates, lessons.read)
    train(config.updates, imitate)
    soften_pointer(model, config.pointer_temperature)
    return model.eval(), tokenizer


def _sizes(config: PretrainConfig, tokenizer: Tokenizer) -> GuiPolicyConfig:
    reading = (
        {"reading_channels": READING_CHANNELS, "pointer_size": READING_POINTER_SIZE}
        if config.read_pages
        else {}
    )
    return GuiPolicyConfig(config.coordinates, vocab_size=tokenizer.get_vocab_size(), **reading)


def soften_pointer(model: GuiPolicyModel, temperature: float) -> None:
    """Divide the pointer's scores by a temperature, so that the policy is less sure where to point.

    Imitation makes a policy surer than it is right. Then all rollouts of a group point at the same wrong
    element, and reinforcement learning has nothing to compare. The order of the scores stays the same.
    """
    with torch.no_grad():
        for weight in model.pointer.query.parameters():
            weight.div_(temperature)


def lr_factor(update: int, updates: int, config: PretrainConfig) -> float:
    """Return the factor of the learning rate at one of some updates, counted from 1.

    The factor rises linearly to 1 during the warm-up, then falls linearly to 0 after the last update.
    """
    remaining = (updates + 1 - update) / max(1, updates + 1 - config.warmup_updates)
    return min(1.0, update / config.warmup_updates, remaining)


def _optimizer(weights: Sequence[nn.Parameter], config: PretrainConfig) -> torch.optim.AdamW:
    """Return AdamW with weight decay for matrices, but not for vectors (norms, biases)."""
    matrices = [weight for weight in weights if weight.dim() >= 2]
    vectors = [weight for weight in weights if weight.dim() < 2]
    groups = [
        {"params": matrices, "weight_decay": config.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=config.lr, betas=(0.9, 0.95))
