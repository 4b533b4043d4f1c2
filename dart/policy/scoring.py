"""Log-probs of recorded answers under the small policy, with each distinct prefix computed once.

The rollouts of a group start from the same screen with the same prompt, so many step samples of
a batch share (prompt, screenshot). The policy is a prefix-LM, whose prefix does not see the answer. Each
prefix therefore runs once, every answer after it uses its cache, and gradients add up.
"""

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from dart.core.types import Step
from dart.policy.modeling import GuiPolicyForImageTextToText, PolicyCache
from dart.policy.sampling import AnswerScores, pad_left, pad_right

Prefix = tuple[tuple[int, ...], str]


def prefix_of(step: Step) -> Prefix:
    """Return the policy's input for a step: prompt tokens and the screenshot's hash."""
    return step.prompt_ids, step.screenshot_sha256


def score_steps(
    model: GuiPolicyForImageTextToText,
    steps: Sequence[Step],
    pixels: Mapping[str, Tensor],
    temperature: float,
) -> AnswerScores:
    """Score the recorded answers under softmax(logits / temperature), with gradients.

    pixels   screenshots uint8 [H, W, 3] by sha256

    Equal to `dart.policy.sampling.answer_logprobs` on the same steps, and cheaper when prefixes repeat.
    """
    rows: dict[Prefix, int] = {}
    index = torch.tensor([rows.setdefault(prefix_of(step), len(rows)) for step in steps])
    targets, mask = pad_right([step.token_ids for step in steps], model.config.pad_token_id)
    logits = _answer_logits(model, list(rows), pixels, index, targets)
    logp = F.log_softmax(logits / temperature, -1)
    chosen = logp.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    entropy = -(logp.exp() * logp).sum(-1)
    return AnswerScores(chosen * mask, entropy * mask, mask)


def _answer_logits(
    model: GuiPolicyForImageTextToText,
    prefixes: Sequence[Prefix],
    pixels: Mapping[str, Tensor],
    index: Tensor,
    targets: Tensor,
) -> Tensor:
    """Return logits [B, K, V] before each answer token of `targets`; answer b follows prefix `index[b]`."""
    ids, valid = pad_left([prompt for prompt, _ in prefixes], model.config.pad_token_id)
    screens = torch.stack([pixels[sha256] for _, sha256 in prefixes]).permute(0, 3, 1, 2)
    first = model(ids, valid, screens, use_cache=True, logits_to_keep=1)
    opening: Tensor = first.logits[index]
    if targets.shape[1] == 1:
        return opening
    cache = _repeated(first.past_key_values, index)
    following = model(targets[:, :-1], past_key_values=cache, logits_to_keep=targets.shape[1] - 1)
    logits: Tensor = torch.cat([opening, following.logits], 1)
    return logits


def _repeated(cache: PolicyCache, index: Tensor) -> PolicyCache:
    """Return a cache whose row b is row `index[b]` of `cache`."""
    repeated = PolicyCache(len(cache.keys))
    repeated.keys = [_rows(key, index) for key in cache.keys]
    repeated.values = [_rows(value, index) for value in cache.values]
    repeated.mask = _rows(cache.mask, index)
    repeated.positions = _rows(cache.positions, index)
    repeated.pointer_keys = _rows(cache.pointer_keys, index)
    return repeated


def _rows(tensor: Tensor | None, index: Tensor) -> Tensor | None:
    return None if tensor is None else tensor[index]
