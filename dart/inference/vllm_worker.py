"""Methods added to vLLM's workers (`worker_extension_cls`), each of which is a process that holds the model.

vLLM adds the class to the bases of its worker; the engine calls the methods through `collective_rpc`.
"""

import hashlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from actors.process import die_with_parent
from dart.inference.tensor_layout import weight_files

ENTROPY_UNITS_PER_NAT = 10**8
"""vLLM's workers send entropies as integers of this many units per nat, in the place of the sampled token's
rank, which is not needed. 32 bits hold 21 nats, the entropy of a billion equally likely tokens."""


class WeightsNotTaken(RuntimeError):
    """The model now holds weights of two versions, so the engine must not answer any more."""


class UnsupportedVllm(RuntimeError):
    """The installed version of vLLM lacks a part that dartrl needs."""


def sampled_with_entropy(logprobs: Any, num_logprobs: int, token_ids: Any) -> Any:
    """Return log-probs of the sampled tokens, with entropies in the place of ranks.

    Replaces vLLM's `Sampler.gather_logprobs`.

    logprobs    log-probs of the sampling distribution (`processed_logprobs`), [T, vocabulary]
    token_ids   the sampled tokens, [T]
    """
    from vllm.v1.outputs import LogprobsTensors

    token_ids = token_ids.unsqueeze(-1)
    entropy = -(logprobs.exp() * logprobs).nan_to_num(0.0).sum(-1)
    units = (entropy * ENTROPY_UNITS_PER_NAT).to(token_ids.dtype)
    return LogprobsTensors(token_ids.int(), logprobs.gather(-1, token_ids), units)


class DartWorker:
    """Measures entropies while sampling, and loads new weights into the running model."""

    model_runner: Any
    vllm_config: Any
    model_config: Any

    def __new__(cls, *_: Any, **__: Any) -> "DartWorker":
        """Make sure, before weights are loaded, that a worker dies with its engine, even while suspended."""
        die_with_parent()
        return super().__new__(cls)

    def dartrl_begin(self) -> None:
        """Make the sampler measure entropies; called once, before the first request."""
        if not hasattr(self.model_runner.sampler, "gather_logprobs"):
            raise UnsupportedVllm(
                "this vLLM samples in another way than the one that was tested: its sampler has no "
                "gather_logprobs, so entropies cannot be had; install the version that docs/engines.md names"
            )
        self.model_runner.sampler.gather_logprobs = sampled_with_entropy

    def dartrl_load(self, folder: str) -> dict[str, str]:
        """Load the weights of a checkpoint in place, layer by layer; returns the sha256 of each file read.

        Raises WeightsNotTaken when vLLM did not load all of its weights.
        """
        from safetensors import safe_open
        from vllm.config import set_current_vllm_config
        from vllm.model_executor.model_loader.reload import (
            finalize_layerwise_reload,
            initialize_layerwise_reload,
        )

        files = weight_files(Path(folder))
        hasher = ThreadPoolExecutor(max_workers=1)
        digests = hasher.submit(_digests, files)
        hasher.shutdown(wait=False)

        def tensors() -> Iterator[tuple[str, Any]]:
            for file in files:
                with safe_open(file, framework="pt") as opened:
                    for name in opened.keys():  # noqa: SIM118  # it is no dictionary
                        yield name, opened.get_tensor(name)

        model = self.model_runner.get_model()
        expected = {name for name, _ in model.named_parameters()}
        with set_current_vllm_config(self.vllm_config):
            initialize_layerwise_reload(model)
            taken = model.load_weights(tensors())
            finalize_layerwise_reload(model, self.model_config)
            _pack_again(model)
        missing = sorted(expected - set(taken))
        if missing:
            raise WeightsNotTaken(
                f"vLLM did not load {len(missing)} of its weights from {folder}, such as {missing[:3]}"
            )
        return digests.result()


def _digests(files: Iterable[Path]) -> dict[str, str]:
    found = {}
    for path in files:
        with path.open("rb") as file:
            found[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def _pack_again(model: Any) -> None:
    """Repack an output head that is tied to the embedding.

    On CPUs vLLM uses a packed copy of such a head, which loading new weights does not change.
    """
    from vllm.model_executor.layers.vocab_parallel_embedding import UnquantizedEmbeddingMethod

    for module in model.modules():
        method = getattr(module, "quant_method", None)
        if isinstance(method, UnquantizedEmbeddingMethod):
            method.process_weights_after_loading(module)
