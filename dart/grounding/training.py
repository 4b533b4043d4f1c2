"""Training a grounding model on boxes: first the new weights, then all weights. Imports torch.

GUI-Actor's two stages (arXiv 2506.03143): a warm-up of the head and of the rows of new tokens while the
policy stays as it is, then all weights with a smaller learning rate.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from dart.config.sections import GroundingSettings
from dart.core.screenspot import GroundingSample
from dart.grounding.data import batch_of
from dart.policy.pointer.model import GroundingModel, WarmUp
from dart.training.updates import Report, run_updates


def train_grounding(
    model: GroundingModel,
    samples: Sequence[GroundingSample],
    settings: GroundingSettings,
    report: Report = print,
) -> None:
    """Train a model on samples. The same samples and seed give the same batches for every head.

    A model that is trained from no `base` has no warm-up, because none of its weights are trained yet.

    Raises FloatingPointError when a gradient is not finite, GroundingDataError for a bad screenshot.
    """
    batches = _batches(samples, settings.batch, settings.seed)
    torch.manual_seed(settings.seed)  # dropout
    model.module.train()
    new = model.warm_up()
    if settings.base and settings.warmup_updates and (new.weights or new.rows):
        with only(new, model.module):
            _stage(model, batches, _constant(settings.warmup_lr, settings.warmup_updates), settings, report)
    _stage(model, batches, _falling(settings.lr, settings.updates), settings, report)
    model.module.eval()


def _stage(
    model: GroundingModel,
    batches: Iterator[list[GroundingSample]],
    lrs: Sequence[float],
    settings: GroundingSettings,
    report: Report,
) -> None:
    weights = [weight for weight in model.module.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=settings.lr, betas=(0.9, 0.95), weight_decay=0.0)

    def add_gradient() -> str:
        batch = batch_of(next(batches))
        loss = model.loss(batch.images, batch.instructions, batch.boxes)
        loss.backward()  # type: ignore[no-untyped-call]
        return f"loss {float(loss.detach()):.3f} nats"

    run_updates(optimizer, weights, lrs, settings.max_grad_norm, add_gradient, report)


def _constant(lr: float, updates: int) -> list[float]:
    return [lr] * updates


def _falling(lr: float, updates: int) -> list[float]:
    """Return rates that rise for the first tenth of the updates and then fall linearly to zero."""
    rise = max(1, updates // 10)
    return [
        lr * min(update / rise, (updates + 1 - update) / (updates + 1 - rise))
        for update in range(1, updates + 1)
    ]


def _batches(samples: Sequence[GroundingSample], size: int, seed: int) -> Iterator[list[GroundingSample]]:
    """Yield batches of random samples without end. Every sample comes once before any sample comes again."""
    draw, waiting = random.Random(seed), list[GroundingSample]()
    while True:
        while len(waiting) < size:
            waiting += draw.sample(list(samples), len(samples))
        yield waiting[:size]
        del waiting[:size]


@contextmanager
def only(new: WarmUp, module: nn.Module) -> Iterator[None]:
    """Restrict training to these weights and rows within the block; all others keep their values."""
    trained = {id(weight): weight.requires_grad for weight in module.parameters()}
    chosen = {id(weight) for weight in (*new.weights, *(matrix for matrix, _ in new.rows))}
    for weight in module.parameters():
        weight.requires_grad_(id(weight) in chosen)
    hooks: list[RemovableHandle] = [
        matrix.register_hook(_keeps(rows))  # type: ignore[no-untyped-call]
        for matrix, rows in new.rows
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
        for weight in module.parameters():
            weight.requires_grad_(trained[id(weight)])


def _keeps(rows: Sequence[int]) -> Callable[[Tensor], Tensor]:
    """Return a gradient hook for a matrix that sets the gradient of all rows but these to zero."""

    def hook(gradient: Tensor) -> Tensor:
        kept = torch.zeros_like(gradient)
        kept[list(rows)] = gradient[list(rows)]
        return kept

    return hook
