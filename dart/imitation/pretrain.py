"""`dartrl pretrain`: trains the base policy of the laptop job by imitation of oracle demonstrations.

The policy is deliberately weak: training uses few demonstrations and soft coordinate targets, and stops
early. A policy from which RL starts should succeed often enough to be rewarded, and fail often enough to
have something to learn.
"""

import asyncio
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import torch
from transformers import PreTrainedTokenizerFast

from dart.config.config import Config
from dart.environments.browser.demonstrations import collect
from dart.imitation.evaluation import mean_success, play_held_out
from dart.imitation.model_card import card_text
from dart.imitation.oracle_kinds import oracle_kind_of
from dart.imitation.samples import batches, imitation_loss, lowest_seeds, screens_of, steps_by_task
from dart.policy.codec import PromptCodec
from dart.policy.configuration import GuiPolicyConfig
from dart.policy.modeling import GuiPolicyForImageTextToText, new_policy
from dart.policy.small_policy import save_policy
from dart.policy.tokenizer import train_tokenizer
from dart.policy.vocabulary import Coordinates
from dart.training.updates import Report, run_updates

EMPHASIS = (
    ("miniwob/click-widget", 5.0),
    ("miniwob/focus-text-2", 5.0),
    ("miniwob/click-test-2", 4.0),
    ("miniwob/login-user", 1.2),
    ("miniwob/enter-text", 0.7),
    ("miniwob/enter-password", 0.5),
    ("miniwob/click-tab", 0.25),
    ("miniwob/click-dialog", 0.15),
)
"""Factors by which tasks are drawn more or less often for a batch; 1 for tasks that are not listed.

Tasks in which the policy must distinguish elements are drawn more often, because imitation learns this slowly
and RL hardly at all. Tasks that only need the right position are drawn less often, because RL learns this
quickly and should have something left to learn.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PretrainConfig:
    """All settings with which the base policy is made."""

    tasks: tuple[str, ...] = field(default_factory=lambda: Config().tasks.train)
    """Ids of the tasks to imitate, all of the same kind of environment; by default those of the laptop
    job."""
    coordinates: Coordinates = "bins"
    """How the policy writes points: `bins`, as coordinate tokens, or `pointer`, with a pointer head."""
    emphasis: tuple[tuple[str, float], ...] = EMPHASIS
    episodes_per_task: int = 140
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
    seed: int = 0
    threads: int = 1
    """Number of CPU threads. Another number changes rounding and thereby the weights slightly."""
    environments: int = 4
    held_out_episodes: int = 50
    """Number of episodes per task that measure the success rates of the model card; 0: no measurement."""
    step_cap: int = 8


def main_job(
    config: PretrainConfig, out: Path, demonstrations: Path | None = None, report: Report = print
) -> None:
    """Make the base policy: train it on demonstrations, write it to the folder `out`, and measure it for its
    model card.

    demonstrations   folder with the demonstrations to use; None: oracles play them into `out/demonstrations`
    report           called with each line of progress

    Raises UsageError if the tasks are not of one kind of environment with oracles.
    """
    kind = oracle_kind_of(config.tasks)
    folder = demonstrations if demonstrations is not None else out / "demonstrations"
    if demonstrations is None:
        report(f"collecting {config.episodes_per_task} episodes of {len(config.tasks)} tasks")
        folder.mkdir(parents=True)
        collect(kind, config.tasks, config.episodes_per_task, folder, environments=config.environments)
    model, tokenizer = pretrain(config, folder, report)
    save_policy(model, tokenizer, out)
    codec = PromptCodec(tokenizer.backend_tokenizer, model.config.image_tokens)

    def measure(temperature: float) -> dict[str, list[float]]:
        rewards = asyncio.run(play_held_out(model, codec, config, temperature))
        if config.held_out_episodes:
            report(f"success at temperature {temperature:g}: {mean_success(rewards):.1%}")
        return rewards

    sampled, greedy = measure(1.0), measure(0.0)
    parameters = sum(weight.numel() for weight in model.parameters())
    (out / "README.md").write_text(card_text(config, parameters, sampled, greedy))


def pretrain(
    config: PretrainConfig, demonstrations: Path, report: Report
) -> tuple[GuiPolicyForImageTextToText, PreTrainedTokenizerFast]:
    """Train a policy on the demonstrations of a folder; the same inputs give the same weights."""
    episodes = lowest_seeds(demonstrations, config.tasks, config.episodes_per_task)
    tokenizer = train_tokenizer([episode.instruction for episode in episodes], config.coordinates)
    torch.set_num_threads(config.threads)
    model = new_policy(GuiPolicyConfig(config.coordinates, vocab_size=len(tokenizer)), config.seed)
    codec = PromptCodec(tokenizer.backend_tokenizer, model.config.image_tokens)
    steps = steps_by_task(episodes, demonstrations, codec)
    screens = screens_of(chain.from_iterable(steps.values()), demonstrations, codec)
    report(f"imitating {sum(map(len, steps.values()))} steps of {len(episodes)} episodes")
    stream = batches(steps, config.batch_size, config.seed, dict(config.emphasis))

    def add_gradient() -> str:
        loss = imitation_loss(model, next(stream), screens, config.sigma_bins)
        (loss.answer + config.pointer_weight * loss.pointer).backward()  # type: ignore[no-untyped-call]
        return f"answer {loss.answer:.3f} pointer {loss.pointer:.3f}"

    lrs = [config.lr * lr_factor(update, config) for update in range(1, config.updates + 1)]
    weights = list(model.parameters())
    run_updates(_optimizer(model, config), weights, lrs, config.max_grad_norm, add_gradient, report)
    return model.eval(), tokenizer


def lr_factor(update: int, config: PretrainConfig) -> float:
    """Return the factor of the learning rate at an update, counted from 1.

    The factor rises linearly to 1 during the warm-up, then falls linearly to 0 after the last update.
    """
    remaining = (config.updates + 1 - update) / max(1, config.updates + 1 - config.warmup_updates)
    return min(1.0, update / config.warmup_updates, remaining)


def _optimizer(model: GuiPolicyForImageTextToText, config: PretrainConfig) -> torch.optim.AdamW:
    """Return AdamW with weight decay for matrices, but not for vectors (norms, biases)."""
    matrices = [weight for weight in model.parameters() if weight.dim() >= 2]
    vectors = [weight for weight in model.parameters() if weight.dim() < 2]
    groups = [
        {"params": matrices, "weight_decay": config.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=config.lr, betas=(0.9, 0.95))
