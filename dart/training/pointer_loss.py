"""The supervised loss of a pointer head, which is added to the policy objective. It teaches where the element
is, not which point was clicked. Imports torch.

A step takes part if its advantage is positive, the box of its element is known and its answer has one point.
The loss is GUI-Actor's KL(label || attention) (Wu et al. 2025, arXiv 2506.03143, section 3.2), but the label
is uniform over the patches whose centre is in the box. GUI-Actor's label has every patch that shares area
with the box. Here a patch is drawn and its centre is clicked, which from most patches of the border misses
the element. A drag is left out: one box says nothing about its second point.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from dart.policy.base import Policy
from dart.policy.pointer.head import pointer_kl
from dart.policy.pointer.patches import patch_labels
from dart.policy.protocols import Screen
from dart.policy.sampling import AnswerScores
from dart.training.batch import StepSample


def pointer_loss(
    samples: Sequence[StepSample], scores: AnswerScores, screens: Mapping[str, Screen], policy: Policy
) -> Tensor:
    """Return the loss in nats, summed over the steps that take part and divided by the number of samples.

    scores    the scores of the samples' answers, in the same order
    screens   the samples' screenshots, by sha256
    """
    patches = scores.patches
    if patches is None:
        return torch.zeros(())
    counts = torch.bincount(patches.rows, minlength=len(samples)).tolist()
    is_labelled = [
        counts[row] == 1 and samples[row].advantage > 0 and samples[row].step.box is not None
        for row in patches.rows.tolist()
    ]
    if not any(is_labelled):
        return torch.zeros(())
    chosen = torch.tensor(is_labelled)
    logits = patches.logits[chosen]
    targets = torch.zeros(logits.shape)
    for target, row in zip(targets, patches.rows[chosen].tolist(), strict=True):
        label = _label(samples[row], screens[samples[row].step.screenshot_sha256], policy)
        target[: len(label)] = label
    return pointer_kl(logits[:, None], targets[:, None]) * len(targets) / len(samples)


def _label(sample: StepSample, screen: Screen, policy: Policy) -> Tensor:
    """Return the target distribution over the patches of a step's screenshot."""
    assert sample.step.box is not None  # only labelled steps come here
    box = screen.frame.shares_of(sample.step.box)
    return torch.from_numpy(patch_labels(box, policy.patch_grid(screen), "centre"))
