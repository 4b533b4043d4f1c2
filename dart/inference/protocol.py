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
"""Why a policy with a pointer head needs the other engine. As of vLLM 0.32."""

NO_BASE = (
    "{folder} is an adapter, and this engine does not hold the base policy: it was started for whole "
    "policies (training.lora.publish); it is started again"
)
"""Why an engine cannot take an adapter. As of its next start it can: it then starts from the base policy."""

Swap = Callable[[], None]
"""Makes an engine answer with a prepared version from now on."""


class Unanswerable(Exception):
    """A request that no engine of this policy can answer; the engine still answers other requests.

    The message says what is wrong with the request and the remedy.
    """


class EngineError(RuntimeError):
    """An engine has failed; its actor ends and is started again with a new engine."""


class Engine:
    """One copy of the policy that answers requests."""

    version: int
    """The policy version that the engine answers with."""

    is_concurrent: ClassVar[bool] = False
    """Whether the engine batches requests itself, in its own processes.

    If so, `generate` is called from many threads, also while another thread swaps: answers that have begun
    end with the new weights, or the swap waits for them.
    """

    proves_ahead: ClassVar[bool] = False
    """Whether `prepare` has the new version answer the probe, so that no answer is needed after the swap."""

    def generate(self, requests: Sequence[GenerateRequest]) -> list[Generation]:
        """Return one answer per request, in order, all of one version unless the engine is concurrent.

        Raises Unanswerable when a request cannot be answered; then none of the requests is answered.
        """
        raise NotImplementedError

    def prepare(self, folder: Path, version: int, probe: GenerateRequest | None = None) -> Swap:
        """Read and check a version while another thread calls `generate`, which goes on with the old one.

        Returns the swap, which takes little time and is called between two batches (a concurrent engine:
        at any time). Raises CorruptCheckpoint or CheckpointError when the checkpoint is missing or not what
        was written; then, and if the swap is never called, the engine keeps its old policy.

        probe   the request that proves the version, if the engine `proves_ahead`
        """
        raise NotImplementedError

    def load(self, folder: Path, version: int) -> None:
        """Prepare a version and answer with it from now on. Raises what `prepare` raises."""
        self.prepare(folder, version)()

    def prove(self, probe: GenerateRequest) -> int:
        """Answer a probe; returns the version that answered. Raises EngineError when no answer comes."""
        return self.generate([probe])[0].policy_version

    def check_alive(self) -> None:
        """Raise EngineDied if a process of the engine has ended. Takes microseconds."""

    def close(self) -> None:
        """End the processes of the engine."""
