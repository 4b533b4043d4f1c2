"""Imitation of demonstrations by a vision-language policy, before it is trained by reward. Imports torch.

Prompts and answer tokens are those that an engine would use (`dart.training.demonstration_import`). The loss
is the mean over answers of their mean negative log-prob per token. `python -m dart.imitation.vlm FOLDER
POLICY OUT` writes a checkpoint to start a run from.
"""

import argparse
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

import torch

from dart.config.sections import ContextSettings
from dart.core.module_main import errors_as_messages, new_folder
from dart.core.types import Step
from dart.grounding.data import IMAGES_HELD
from dart.imitation.samples import screen_of
from dart.policy.base import Policy
from dart.policy.load import load
from dart.policy.placement import ModelPlacement
from dart.policy.prompt_spec import PromptSpec, prompt_spec_of
from dart.policy.protocols import Screen, screenshots_of
from dart.training.demonstration_import import read_demonstrations
from dart.training.loss import sequence_mean_token_mean
from dart.training.updates import Report, run_updates


@dataclass(frozen=True, slots=True, kw_only=True)
class ImitationConfig:
    """The settings of imitation, except the data and the policy."""

    updates: int = 200
    batch: int = 8
    """Number of demonstrated steps in the batch of one update."""
    lr: float = 1e-3
    warmup_updates: int = 10
    max_grad_norm: float = 1.0
    seed: int = 0


def imitate(
    policy: Policy,
    steps: Sequence[Step],
    screen: Callable[[str], Screen],
    config: ImitationConfig,
    report: Report = print,
) -> float:
    """Train a policy on the answers of these steps. Returns the loss of the last update, in nats per token.

    screen   returns a screenshot of the steps by its sha256; called for those of one batch at a time
    report   called with each line of progress

    Raises FloatingPointError when a gradient is not finite.
    """
    draw = random.Random(config.seed)
    optimizer = torch.optim.AdamW(policy.trainable(), lr=config.lr, betas=(0.9, 0.95), weight_decay=0.0)
    losses = [math.nan]

    def add_gradient() -> str:
        batch = draw.sample(list(steps), min(config.batch, len(steps)))
        screens = {name: screen(name) for step in batch for name in screenshots_of(step)}
        scores = policy.score(sorted(batch, key=policy.sort_key), screens, 1.0)
        loss = -sequence_mean_token_mean(scores.logprobs, scores.mask)
        loss.backward()  # type: ignore[no-untyped-call]
        losses.append(float(loss.detach()))
        return f"loss {losses[-1]:.3f} nats per token"

    warmup = max(1, config.warmup_updates)
    lrs = [config.lr * min(1.0, update / warmup) for update in range(1, config.updates + 1)]
    run_updates(optimizer, policy.trainable(), lrs, config.max_grad_norm, add_gradient, report)
    return losses[-1]


def imitate_folder(
    folder: Path,
    base: Path,
    out: Path,
    config: ImitationConfig,
    placement: ModelPlacement,
    prompt_spec: PromptSpec | None = None,
    report: Report = print,
) -> float:
    """Train a policy on the demonstrations in `folder`, and write it to `out` as a checkpoint.

    base          folder of the checkpoint to start from
    placement     device and precision of the model
    prompt_spec   settings of the prompts; a run that uses the checkpoint needs the same settings

    Returns the loss of the last update, in nats per token. Raises BadDemonstrations, CheckpointError, and
    FloatingPointError when a gradient is not finite.
    """
    policy = load(base, prompt_spec, placement)
    # sorted, so that the order does not depend on which browser was faster
    demonstrations = sorted(
        read_demonstrations(folder, policy.codec), key=lambda one: (one.task_id, one.seed)
    )
    steps = [step for one in demonstrations for step in one.steps]
    screen = lru_cache(IMAGES_HELD)(partial(screen_of, folder=folder, codec=policy.codec))
    report(f"imitating {len(steps)} steps of {len(demonstrations)} episodes")
    loss = imitate(policy, steps, screen, config, report)
    out.mkdir(parents=True)
    policy.save(out)
    return loss


def main() -> None:
    """Run the command `python -m dart.imitation.vlm`: imitate a folder of demonstrations."""
    usual = ImitationConfig()
    parser = argparse.ArgumentParser(
        description="Make a checkpoint that imitates demonstrations.",
        epilog="python -m dart.imitation.vlm demonstrations tiny imitated --updates 300",
    )
    parser.add_argument("folder", type=Path, help="folder with a demonstrations.jsonl and its screenshots")
    parser.add_argument("policy", type=Path, help="checkpoint to start from")
    parser.add_argument("out", type=new_folder, help="folder to write the checkpoint to; it must not exist")
    parser.add_argument("--updates", type=int, default=usual.updates)
    parser.add_argument("--batch", type=int, default=usual.batch)
    parser.add_argument("--lr", type=float, default=usual.lr)
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--prompt", default="", help="text file; later runs need it as context.prompt")
    options = parser.parse_args()
    config = ImitationConfig(updates=options.updates, batch=options.batch, lr=options.lr)
    placement = ModelPlacement(is_trained=True, precision=options.precision)
    with errors_as_messages(parser):
        prompt_spec = prompt_spec_of(ContextSettings(prompt=options.prompt))
        imitate_folder(options.folder, options.policy, options.out, config, placement, prompt_spec)


if __name__ == "__main__":
    main()
