"""`dartrl pretrain`: trains the base policy of the laptop job by imitation of oracle demonstrations.

The policy is deliberately weak: training uses few demonstrations and soft coordinates, and stops early. A
starting point for RL should succeed often enough to be rewarded and fail often enough to learn.
"""

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from transformers import PreTrainedTokenizerFast

from dart.config.config import Config
from dart.environments.miniwob.demonstrations import collect
from dart.imitation.evaluation import Trial, mean_success, play_held_out
from dart.imitation.model_card import Card, write_card
from dart.imitation.samples import Sample, batches, imitation_loss, read_episodes, samples_by_task
from dart.policy.codec import PromptCodec
from dart.policy.configuration import GuiPolicyConfig
from dart.policy.modeling import GuiPolicyForImageTextToText, new_policy
from dart.policy.small_policy_files import build_processor, codec_of, save_policy
from dart.policy.tokenizer import train_tokenizer

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
"""How often each task is drawn, relative to 1. Tasks that need to distinguish elements are drawn more often,
because imitation learns that slowly and RL hardly at all. Tasks that need the right position are drawn less
often, because RL learns that quickly and should have something left to learn."""

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PretrainConfig:
    """All settings of the base policy."""

    tasks: tuple[str, ...] = field(default_factory=lambda: Config().tasks.train)
    """The tasks of the laptop job by default."""
    emphasis: tuple[tuple[str, float], ...] = EMPHASIS
    episodes_per_task: int = 140
    updates: int = 130
    batch_size: int = 16
    lr: float = 1.5e-3
    warmup_updates: int = 50
    weight_decay: float = 0.01
    max_grad_norm: float = 1.0
    sigma_bins: float = 0.5
    """Width of the soft coordinate targets, in bins of 4 px."""
    pointer_weight: float = 0.5
    """Weight of the pointer loss relative to the answer loss."""
    seed: int = 0
    threads: int = 1
    """CPU threads; another number rounds differently and gives slightly different weights."""
    environments: int = 4
    held_out_episodes: int = 50
    """Episodes per task for the figures of the model card, on seeds of their own; 0 omits the figures."""
    step_cap: int = 8


def main_job(
    config: PretrainConfig, out: Path, demonstrations: Path | None = None, report: Report = print
) -> None:
    """Collect demonstrations unless a folder of them is given, train, measure, and write the policy to
    `out`."""
    folder = demonstrations if demonstrations is not None else out / "demonstrations"
    if demonstrations is None:
        report(f"collecting {config.episodes_per_task} episodes of {len(config.tasks)} tasks")
        _collect(config, folder)
    model, tokenizer = pretrain(config, folder, report)
    save_policy(model, tokenizer, out)
    codec = codec_of(build_processor(tokenizer, model.config.image_tokens))
    sampled = _measure(model, codec, config, 1.0, report)
    greedy = _measure(model, codec, config, 0.0, report)
    parameters = sum(weight.numel() for weight in model.parameters())
    write_card(out / "README.md", Card(config, parameters, sampled, greedy))


def pretrain(
    config: PretrainConfig, demonstrations: Path, report: Report
) -> tuple[GuiPolicyForImageTextToText, PreTrainedTokenizerFast]:
    """Train a policy on the demonstrations of a folder; the same inputs give the same weights."""
    episodes = read_episodes(demonstrations, config.tasks, config.episodes_per_task)
    tokenizer = train_tokenizer([episode["instruction"] for episode in episodes])
    torch.set_num_threads(config.threads)
    model = new_policy(GuiPolicyConfig(vocab_size=len(tokenizer)), config.seed)
    codec = codec_of(build_processor(tokenizer, model.config.image_tokens))
    samples = samples_by_task(episodes, demonstrations, codec)
    report(f"imitating {sum(map(len, samples.values()))} steps of {len(episodes)} episodes")
    _train(model, samples, config, report)
    return model.eval(), tokenizer


def _train(
    model: GuiPolicyForImageTextToText,
    samples: dict[str, list[Sample]],
    config: PretrainConfig,
    report: Report,
) -> None:
    optimizer = _optimizer(model, config)
    stream = batches(samples, config.batch_size, config.seed, dict(config.emphasis))
    for update in range(1, config.updates + 1):
        for group in optimizer.param_groups:
            group["lr"] = config.lr * lr_factor(update, config)
        loss = imitation_loss(model, next(stream), config.sigma_bins)
        optimizer.zero_grad()
        (loss.answer + config.pointer_weight * loss.pointer).backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), config.max_grad_norm)
        if not math.isfinite(norm):
            raise FloatingPointError(
                f"pretraining diverged: the gradient of update {update} is {norm}; try another --seed "
                f"(the learning rate is {config.lr}: PretrainConfig in {__name__})"
            )
        optimizer.step()
        if update % 20 == 0 or update == config.updates:
            report(f"update {update}/{config.updates} answer {loss.answer:.3f} pointer {loss.pointer:.3f}")


def lr_factor(update: int, config: PretrainConfig) -> float:
    """Return the factor of the learning rate: linear warm-up to 1, then linearly down to 0 after the last
    update (`update` counts from 1)."""
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


def _collect(config: PretrainConfig, folder: Path) -> None:
    folder.mkdir(parents=True)
    with (folder / "demonstrations.jsonl").open("w") as lines:
        asyncio.run(collect(config.tasks, config.episodes_per_task, 0, config.environments, lines, folder))


def _measure(
    model: GuiPolicyForImageTextToText,
    codec: PromptCodec,
    config: PretrainConfig,
    temperature: float,
    report: Report,
) -> dict[str, Sequence[float]]:
    trial = Trial(config.tasks, config.held_out_episodes, temperature, config.step_cap, config.environments)
    rewards: dict[str, Sequence[float]] = dict(asyncio.run(play_held_out(model, codec, trial)))
    if config.held_out_episodes:
        report(f"success at temperature {temperature:g}: {mean_success(rewards):.1%}")
    return rewards
