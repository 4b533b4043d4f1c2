"""What a worker of vLLM does with parts of vLLM's inside, which another version of vLLM may not have.

A worker imports this module when the engine starts. So a part that is missing ends the engine in its first
minute, and not when the first new version comes.
"""

from collections.abc import Iterable
from typing import Any

from vllm.config import set_current_vllm_config
from vllm.model_executor.layers.vocab_parallel_embedding import UnquantizedEmbeddingMethod
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload
from vllm.v1.outputs import LogprobsTensors

from dart.inference.vllm_worker import ENTROPY_UNITS_PER_NAT


def sampled_with_entropy(logprobs: Any, num_logprobs: int, token_ids: Any) -> Any:
    """Return log-probs of the sampled tokens, with entropies instead of ranks.

    This function replaces vLLM's `Sampler.gather_logprobs`.

    logprobs    log-probs of the sampling distribution (`processed_logprobs`), [T, vocabulary]
    token_ids   the sampled tokens, [T]
    """
    token_ids = token_ids.unsqueeze(-1)
    entropy = -(logprobs.exp() * logprobs).nan_to_num(0.0).sum(-1)
    units = (entropy * ENTROPY_UNITS_PER_NAT).to(token_ids.dtype)
    return LogprobsTensors(token_ids.int(), logprobs.gather(-1, token_ids), units)


def load_over(worker: Any, tensors: Iterable[tuple[str, Any]]) -> set[str]:
    """Load tensors, layer by layer, over the weights of a worker's model; return the names that vLLM took."""
    model = worker.model_runner.get_model()
    with set_current_vllm_config(worker.vllm_config):
        initialize_layerwise_reload(model)
        taken = set(model.load_weights(tensors))
        finalize_layerwise_reload(model, worker.model_config)
        _pack_again(model)
    return taken


def _pack_again(model: Any) -> None:
    """Repack an output head that is tied to the embedding.

    On CPUs, vLLM computes with a packed copy of such a head, which new weights do not change.
    """
    for module in model.modules():
        method = getattr(module, "quant_method", None)
        if isinstance(method, UnquantizedEmbeddingMethod):
            method.process_weights_after_loading(module)
