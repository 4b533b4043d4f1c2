"""Prefixes of the small policy: a prompt with its screenshot, computed once for all answers that follow it.

The policy is a prefix-LM, whose prefix does not see the answer. The rollouts of a group start from the same
screen with the same prompt, so their first answers, and many later ones, have a common prefix.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from dart.core.types import Step
from dart.policy.modeling import GuiPolicyModel, GuiPolicyOutput, PolicyCache
from dart.policy.sampling import pad_left

Prefix = tuple[tuple[int, ...], str]
"""The policy's input for an answer: prompt tokens, and the screenshot's sha256."""

KEPT_PREFIXES = 128
"""Number of prefixes that an engine keeps. One takes about half a megabyte."""


def prefix_of(step: Step) -> Prefix:
    """Return the prefix of a recorded step."""
    return step.prompt_ids, step.screenshot_sha256


def compute_prefixes(
    model: GuiPolicyModel, prefixes: Sequence[Prefix], pixels: Mapping[str, Tensor]
) -> GuiPolicyOutput:
    """Return the model's output after each prefix, with the cache for the answers.

    Prefixes with the same screenshot share what the stem makes of it.

    pixels   screenshots uint8 [H, W, 3] by sha256
    """
    ids, valid = pad_left([prompt for prompt, _ in prefixes], model.config.pad_token_id)
    shown: dict[str, int] = {}
    screen_of = torch.tensor([shown.setdefault(sha256, len(shown)) for _, sha256 in prefixes])
    screens = torch.stack([pixels[sha256] for sha256 in shown]).permute(0, 3, 1, 2)
    out: GuiPolicyOutput = model(ids, valid, screens, use_cache=True, logits_to_keep=1, screen_of=screen_of)
    return out


class PrefixCache:
    """The model's outputs after the prefixes that were used last. Only one thread may use it, in inference
    mode, and the model's weights must not change."""

    def __init__(self, model: GuiPolicyModel, capacity: int = KEPT_PREFIXES) -> None:
        self._model = model
        self._capacity = capacity
        self.computed = 0
        """Number of prefixes that were computed."""
        self._kept: OrderedDict[Prefix, GuiPolicyOutput] = OrderedDict()
        """Outputs of one row; the one that was used last is at the end."""

    def outputs(self, prefixes: Sequence[Prefix], pixels: Mapping[str, Tensor]) -> GuiPolicyOutput:
        """Return the model's output after each prefix; each distinct one is computed at most once.

        pixels   screenshots uint8 [H, W, 3] by sha256
        """
        missing = [prefix for prefix in dict.fromkeys(prefixes) if prefix not in self._kept]
        if missing:
            computed = compute_prefixes(self._model, missing, pixels)
            self.computed += len(missing)
            self._kept.update((prefix, _row(computed, row)) for row, prefix in enumerate(missing))
        for prefix in prefixes:
            self._kept.move_to_end(prefix)
        outputs = [self._kept[prefix] for prefix in prefixes]
        while len(self._kept) > self._capacity:
            self._kept.popitem(last=False)
        return _stacked(outputs)


def _row(out: GuiPolicyOutput, row: int) -> GuiPolicyOutput:
    """Return one row of an output as an output of its own, without the padding."""
    assert out.past_key_values is not None
    cache, one = out.past_key_values, slice(row, row + 1)
    start = int(cache.mask[row].int().argmax())
    layers = [(key[one, :, start:].clone(), value[one, :, start:].clone()) for key, value in cache.layers]
    kept = PolicyCache(
        layers, cache.mask[one, start:].clone(), cache.positions[one].clone(), cache.pointer_keys[one].clone()
    )
    return GuiPolicyOutput(out.logits[one].clone(), out.pointer[one].clone(), kept)


def _stacked(outputs: Sequence[GuiPolicyOutput]) -> GuiPolicyOutput:
    """Return outputs of one row each as one output, padded on the left."""
    caches = [out.past_key_values for out in outputs if out.past_key_values is not None]
    width = max(cache.mask.shape[1] for cache in caches)
    missing = [width - cache.mask.shape[1] for cache in caches]

    def padded(tensors: Sequence[Tensor]) -> Tensor:
        return torch.cat([F.pad(one, (0, 0, count, 0)) for one, count in zip(tensors, missing, strict=True)])

    layers = [
        (padded([key for key, _ in rows]), padded([value for _, value in rows]))
        for rows in zip(*(cache.layers for cache in caches), strict=True)
    ]
    masks = [F.pad(cache.mask, (count, 0)) for cache, count in zip(caches, missing, strict=True)]
    cache = PolicyCache(
        layers,
        torch.cat(masks),
        torch.cat([cache.positions for cache in caches]),
        torch.cat([cache.pointer_keys for cache in caches]),
    )
    logits, pointer = (torch.cat([getattr(out, name) for out in outputs]) for name in ("logits", "pointer"))
    return GuiPolicyOutput(logits, pointer, cache)
