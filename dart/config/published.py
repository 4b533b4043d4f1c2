"""What a trainer publishes for the engines of its run. Pure."""

from dart.config.config import Config


def published_dtype(config: Config) -> str:
    """The precision in which the engines of a run read weights."""
    return config.rollout.vllm.dtype if config.rollout.engine == "vllm" else "float32"


def publishes_adapter(config: Config) -> bool:
    """Whether a version is an adapter beside the base policy, which engines read once."""
    lora = config.training.lora
    return lora.rank > 0 and lora.publish == "adapter"
