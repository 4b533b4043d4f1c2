"""Methods that are added to vLLM's workers, the processes that hold the model.

vLLM adds the class that its setting `worker_extension_cls` names to the bases of its worker class. The engine
calls the methods through `collective_rpc`.
"""

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from actors.process import die_with_parent
from dart.inference.files_read import FilesRead

ENTROPY_UNITS_PER_NAT = 10**8
"""Entropies are sent as integers, with this many units per nat, in the field for the rank of the sampled
token, which is not needed. 32 bits suffice for 21 nats, the entropy of a billion equally likely tokens."""


class WeightsNotTaken(RuntimeError):
    """vLLM loaded only some of the new weights. The model has weights of two versions and must not answer."""


class UnsupportedVllm(RuntimeError):
    """The installed version of vLLM lacks a part that dartrl needs."""

    def __init__(self, lack: str) -> None:
        super().__init__(
            f"this version of vLLM is not supported: {lack}; install the version that docs/engines.md names"
        )


class DartWorker:
    """Measures entropies while sampling, and loads new weights into the running model."""

    model_runner: Any
    vllm_config: Any
    model_config: Any
    _dartrl_read: "Future[FilesRead]"
    """The files that are being read, or were read last."""

    def __new__(cls, *_: Any, **__: Any) -> "DartWorker":
        """Have the kernel kill this worker when its parent, the engine core, ends. Then make the worker."""
        parent = multiprocessing.parent_process()
        die_with_parent(None if parent is None else parent.pid)
        return super().__new__(cls)

    def dartrl_begin(self) -> None:
        """Make the sampler measure entropies. The engine calls this once, before the first request.

        Raises UnsupportedVllm if this vLLM lacks a part that is needed for it, or to load new weights later.
        """
        try:
            from dart.inference.vllm_internals import sampled_with_entropy
        except ImportError as missing:
            raise UnsupportedVllm(str(missing)) from missing
        if not hasattr(self.model_runner.sampler, "gather_logprobs"):
            raise UnsupportedVllm("its sampler has no gather_logprobs, so entropies cannot be measured")
        self.model_runner.sampler.gather_logprobs = sampled_with_entropy

    def dartrl_read(self, folder: str) -> None:
        """Begin to read and hash the files of a checkpoint in a thread, while the model answers."""
        reader = ThreadPoolExecutor(max_workers=1)
        self._dartrl_read = reader.submit(FilesRead.of, Path(folder))
        reader.shutdown(wait=False)

    def dartrl_was_read(self) -> dict[str, str] | None:
        """Return the sha256 of each file that was read, by name; None while they are being read."""
        return dict(self._dartrl_read.result().hashes) if self._dartrl_read.done() else None

    def dartrl_swap(self) -> None:
        """Load the files that were read, layer by layer, over the weights of the running model.

        Raises WeightsNotTaken if vLLM did not load all of its weights, and FilesChanged if a file was changed
        or replaced after it was read.
        """
        from safetensors import safe_open

        from dart.inference.vllm_internals import load_over

        read = self._dartrl_read.result()
        read.refuse_changes()

        def tensors() -> Iterator[tuple[str, Any]]:
            for file in read.files:
                with safe_open(file, framework="pt") as opened:
                    for name in opened.keys():  # noqa: SIM118  # it is no dictionary
                        yield name, opened.get_tensor(name)

        expected = {name for name, _ in self.model_runner.get_model().named_parameters()}
        missing = sorted(expected - load_over(self, tensors()))
        if missing:
            raise WeightsNotTaken(
                f"vLLM did not load {len(missing)} of its weights from {read.files[0].parent}, such as "
                f"{missing[:3]}"
            )
