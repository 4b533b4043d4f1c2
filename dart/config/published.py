"""Which policy a run begins with, and in which form its trainer publishes versions for the engines."""

from dart.config.config import Config


def reads_policy(config: Config) -> bool:
    """Return whether an engine or the trainer of a run reads `training.policy`."""
    return config.rollout.engine not in ("simulated", "oracle") or config.training.learner == "grpo"


def published_dtype(config: Config) -> str:
    """Return the data type in which the engines of a run read weights, such as `bfloat16`."""
    return config.rollout.vllm.dtype if config.rollout.engine == "vllm" else "float32"


def publishes_adapter(config: Config) -> bool:
    """Whether a published version is a LoRA adapter without the weights of the base policy, which the engines
    have already."""
    lora = config.training.lora
    return lora.rank > 0 and lora.publish == "adapter"
