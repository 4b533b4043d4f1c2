"""The interface of engines that the rollout actor uses. Importing it loads no library that runs models."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

from dart.core.types import GenerateRequest, Generation

NO_POINTER_ON_VLLM = (
    "the checkpoint has a pointer head, and vLLM cannot serve one: a patch is drawn from the hidden state of "
    "<pointer> before the next token, and vLLM returns no hidden state while it generates (its "
    "extract_hidden_states writes states without the final norm to a file when a request has ended); set "
    "rollout.engine = 'transformers'"
)
"""Message: why a policy with a pointer head needs the transformers engine. True for vLLM 0.32."""

NO_SMALL_POLICY_ON_VLLM = (
    "vLLM cannot serve the small policy, whose model it does not know: set rollout.engine = 'transformers', "
    "or name a vision-language checkpoint in training.policy"
)
"""Message: why the small policy needs the transformers engine."""

NO_BASE = (
    "{folder} is an adapter, and this engine does not hold the base policy: it was started for whole "
    "policies (training.lora.publish); the engine is restarted with the base policy"
)
"""Message: why an engine cannot load an adapter. After its restart it has the base policy and can."""

Swap = Callable[[], None]
"""Function that makes an engine answer with a prepared version from now on (the *swap*)."""


class Unanswerable(Exception):
    """No engine of this policy can answer a request; the engine can still answer other requests.

    The message says what is wrong with the request, and what to do.
    """


class EngineError(RuntimeError):
    """An engine has failed. Its rollout actor ends and is restarted with a new engine."""


class Engine:
    """One copy of the policy that answers requests."""

    version: int
    """The policy version that the engine answers with."""

    is_concurrent: ClassVar[bool] = False
    """Whether the engine batches requests itself, in its own processes.

    If so, several threads call `generate` at the same time, also while another thread swaps. Answers that
    have begun then continue with the new weights, or the swap waits for them.
    """

    proves_ahead: ClassVar[bool] = False
    """Whether `prepare` has the new version answer the probe, so that the swap needs no `prove`."""

    def generate(self, requests: Sequence[GenerateRequest]) -> list[Generation]:
        """Return one answer for each request, in the order of the requests.

        All answers are of one version, unless the engine is concurrent. Raises Unanswerable if a request
        cannot be answered; then none of the requests is answered.
        """
        raise NotImplementedError

    def prepare(self, folder: Path, version: int, probe: GenerateRequest | None = None) -> Swap:
        """Read and check a version, and return the swap. `generate` continues with the old version.

        The swap takes little time. Call it between two batches, or at any time if the engine is concurrent.
        If it is never called, or `prepare` raises, the engine keeps its old version.

        probe    request that the new version answers as a proof, if the engine `proves_ahead`; None: no proof
        raises   CorruptCheckpoint or CheckpointError if the checkpoint is missing or not as it was written
        """
        raise NotImplementedError

    def load(self, folder: Path, version: int) -> None:
        """Prepare a version and swap to it at once. Raises what `prepare` raises."""
        self.prepare(folder, version)()

    def prove(self, probe: GenerateRequest) -> int:
        """Answer a probe, and return the version that answered. Raises EngineError if no answer comes."""
        return self.generate([probe])[0].policy_version

    def check_alive(self) -> None:
        """Raise EngineDied if a process of the engine has ended. Takes microseconds."""

    def close(self) -> None:
        """End the processes of the engine."""
