"""The loop of optimizer steps of supervised training. Imports torch."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import nn

REPORT_EVERY = 20

Report = Callable[[str], None]


def run_updates(
    optimizer: torch.optim.Optimizer,
    weights: Sequence[nn.Parameter],
    lrs: Sequence[float],
    max_grad_norm: float,
    add_gradient: Callable[[], str],
    report: Report,
) -> None:
    """Make one optimizer step for each learning rate in `lrs`.

    weights        the trained weights; the norm of their gradient is clipped to `max_grad_norm`
    add_gradient   computes one loss, adds its gradient to the weights, and returns the loss as text
    report         called with a line of text about the loss every REPORT_EVERY updates and at the end

    Raises FloatingPointError when a gradient is not finite.
    """
    for update, lr in enumerate(lrs, 1):
        for group in optimizer.param_groups:
            group["lr"] = lr
        optimizer.zero_grad(set_to_none=True)
        loss = add_gradient()
        norm = float(nn.utils.clip_grad_norm_(weights, max_grad_norm))
        if not math.isfinite(norm):
            raise FloatingPointError(
                f"training diverged: the gradient of update {update} is {norm} at the learning rate {lr:g}; "
                "lower the learning rate or try another seed"
            )
        optimizer.step()
        if update % REPORT_EVERY == 0 or update == len(lrs):
            report(f"update {update}/{len(lrs)} {loss}")
