"""In which form a trainer publishes policy versions for the engines of its run."""

from dart.config.config import Config


def published_dtype(config: Config) -> str:
    """Return the data type in which the engines of a run read weights, such as `bfloat16`."""
    return config.rollout.vllm.dtype if config.rollout.engine == "vllm" else "float32"


def publishes_adapter(config: Config) -> bool:
    """Whether a published version is a LoRA adapter without the weights of the base policy, which the engines
    have already."""
    lora = config.training.lora
    return lora.rank > 0 and lora.publish == "adapter"
