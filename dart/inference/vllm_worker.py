"""What vLLM's workers do for us (`worker_extension_cls`): each in a process of its own, beside the model.

vLLM mixes the class into its worker; the methods are called by `collective_rpc` with plain arguments.
"""

import hashlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from actors.process import die_with_parent
from dart.inference.checkpoint_layout import weight_files

ENTROPY_UNITS_PER_NAT = 10**8
"""Entropies travel as integers in the place of the sampled token's rank, which is not needed. 32 bits hold 21
nats, the entropy of a billion equally likely tokens."""


class WeightsNotTaken(RuntimeError):
    """The model holds weights of two versions now: its process must end."""


class UnsupportedVllm(RuntimeError):
    """A part of vLLM that is needed here is not where it was."""


def sampled_with_entropy(logprobs: Any, num_logprobs: int, token_ids: Any) -> Any:
    """In the place of vLLM's `Sampler.gather_logprobs`: of the sampled tokens [T] alone, and no rank.

    logprobs [T, vocabulary] are those of the sampling distribution (`processed_logprobs`)
    """
    from vllm.v1.outputs import LogprobsTensors

    token_ids = token_ids.unsqueeze(-1)
    entropy = -(logprobs.exp() * logprobs).nan_to_num(0.0).sum(-1)
    units = (entropy * ENTROPY_UNITS_PER_NAT).to(token_ids.dtype)
    return LogprobsTensors(token_ids.int(), logprobs.gather(-1, token_ids), units)


class DartWorker:
    """Measures entropies while sampling, and takes weights over in place."""

    model_runner: Any
    vllm_config: Any
    model_config: Any

    def __new__(cls, *_: Any, **__: Any) -> "DartWorker":
        """From before its weights are loaded on, a worker dies along with its engine, stopped or not."""
        die_with_parent()
        return super().__new__(cls)

    def dartrl_begin(self) -> None:
        """Once, before the first request: measure what training needs."""
        if not hasattr(self.model_runner.sampler, "gather_logprobs"):
            raise UnsupportedVllm(
                "this vLLM samples in another way than the one that was tested: its sampler has no "
                "gather_logprobs, so entropies cannot be had; install the version that docs/engines.md names"
            )
        self.model_runner.sampler.gather_logprobs = sampled_with_entropy

    def dartrl_load(self, folder: str) -> dict[str, str]:
        """Take the weights of a checkpoint over, layer by layer; sha256 by file of what was read.

        Raises WeightsNotTaken when a weight of the model was not in it.
        """
        from safetensors import safe_open
        from vllm.config import set_current_vllm_config
        from vllm.model_executor.model_loader.reload import (
            finalize_layerwise_reload,
            initialize_layerwise_reload,
        )

        files = weight_files(Path(folder))
        digests = _Digests(files)

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
            raise WeightsNotTaken(f"{folder} was loaded, yet {len(missing)} weights were not: {missing[:3]}")
        return digests.read()


class _Digests:
    """Hashes files in a thread while their tensors are loaded."""

    def __init__(self, files: tuple[Path, ...]) -> None:
        self._found: dict[str, str] = {}
        self._thread = threading.Thread(target=self._hash, args=(files,), daemon=True)
        self._thread.start()

    def _hash(self, files: tuple[Path, ...]) -> None:
        for path in files:
            with path.open("rb") as file:
                self._found[path.name] = hashlib.file_digest(file, "sha256").hexdigest()

    def read(self) -> dict[str, str]:
        self._thread.join()
        return self._found


def _pack_again(model: Any) -> None:
    """An output head tied to the embedding keeps a packed copy on CPUs, which a reload leaves as it was."""
    from vllm.model_executor.layers.vocab_parallel_embedding import UnquantizedEmbeddingMethod

    for module in model.modules():
        method = getattr(module, "quant_method", None)
        if isinstance(method, UnquantizedEmbeddingMethod):
            method.process_weights_after_loading(module)
