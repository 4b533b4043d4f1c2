"""The size of the passes of a vLLM engine on GPUs. The engine and the estimate of its memory share it."""

from dart.config.sections import RolloutSettings

PASS_TOKENS = 8192
"""Largest number of tokens that a vLLM engine on GPUs computes in one pass: of prompts, and one per answer.

It is the default of a vLLM server on an H100; an engine that is no server would have 2,048. A screenshot of
1920x1080 is 2,691 tokens, so a pass has room for three of them, and a prompt of 14,000 tokens takes two
passes instead of seven. The activations of a pass of a 7B policy are 0.9 GiB. They take no room from the
cache, because vLLM reserves 1.6 GiB anyway: for the vision tower with the largest image of the Qwen-VL
family, which is 16,384 tokens. A pass of more than some 14,000 tokens takes more, and above 16,384 the
encoder cache and the number of images in the tower grow, too. The probe, and each token of the answers that
have begun, wait for the end of a pass, so larger is not faster for them. Not measured on a GPU.
"""


def pass_tokens(rollout: RolloutSettings) -> int:
    """Return the largest number of tokens in one pass of a vLLM engine with these settings, on GPUs."""
    return min(PASS_TOKENS, rollout.vllm.max_tokens * requests_at_once(rollout))


def requests_at_once(rollout: RolloutSettings) -> int:
    """Return how many requests vLLM computes at the same time: a full batch, and the probe beside it."""
    return rollout.max_batch + 1
