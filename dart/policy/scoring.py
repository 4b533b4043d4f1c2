"""Log-probs of recorded answers under the small policy. Each distinct prefix and screenshot is computed once.

The rollouts of a group start from the same screen with the same prompt, so many step samples of
a batch share (prompt, screenshot). The policy is a prefix-LM, whose prefix does not see the answer. Each
prefix is therefore computed once, all answers after this prefix use its cache, and their gradients add up.
Prefixes with the same screenshot, whose past answers differ, share what the stem makes of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from dart.core.types import Step
from dart.policy.modeling import GuiPolicyModel
from dart.policy.prefixes import Prefix, compute_prefixes, prefix_of
from dart.policy.sampling import (
    Alike,
    AnswerScores,
    PatchScores,
    answer_scores,
    of_elements,
    pad_right,
)


def score_steps(
    model: GuiPolicyModel,
    steps: Sequence[Step],
    pixels: Mapping[str, Tensor],
    temperature: float,
    alike: Sequence[Alike] = (),
) -> AnswerScores:
    """Score the recorded answers under softmax(logits / temperature), with gradients of the log-probs.

    pixels   screenshots uint8 [H, W, 3] by sha256
    alike    for each step, the tokens that click the same element; empty: `element_logprobs` is None
    """
    rows: dict[Prefix, int] = {}
    index = torch.tensor([rows.setdefault(prefix_of(step), len(rows)) for step in steps])
    targets, mask = pad_right([step.token_ids for step in steps], model.config.pad_token_id)
    first = compute_prefixes(model, list(rows), pixels)
    assert first.past_key_values is not None
    logits: Tensor = first.logits[index]  # before the first token of each answer
    if targets.shape[1] > 1:
        cache = first.past_key_values.rows(index)
        following = model(targets[:, :-1], past_key_values=cache, logits_to_keep=targets.shape[1] - 1)
        logits = torch.cat([logits, following.logits], 1)
    scores = answer_scores(logits, targets, mask, temperature)
    return replace(
        scores,
        patches=_patches(model, logits, targets),
        element_logprobs=of_elements(
            scores.logprobs, alike, lambda rows, columns: logits[rows, columns], temperature
        ),
    )


def _patches(model: GuiPolicyModel, logits: Tensor, targets: Tensor) -> PatchScores | None:
    """Return the pointer head's logits at every patch of the answers; None if no answer contains a patch."""
    if not model.has_patches:
        return None
    first, count = model.config.first_patch_token_id, model.config.patches
    row, column = ((targets >= first) & (targets < first + count)).nonzero(as_tuple=True)
    return PatchScores(row, logits[row, column, first : first + count]) if len(row) else None
