"""What the rollout actor needs of an engine. Light: importing it loads no library that runs models."""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from dart.core.types import GenerateRequest, Generation


class Unanswerable(Exception):
    """One request that no engine of this policy can answer. The engine is well, and so are other requests.

    The message says what is wrong with it and the remedy.
    """


class EngineError(RuntimeError):
    """An engine cannot be relied on; its actor ends and is started again with a new one."""


class Engine:
    """One copy of the policy that answers requests."""

    version: int
    """The policy version it answers with."""

    is_concurrent: ClassVar[bool] = False
    """Whether it batches by itself, in processes of its own.

    Then `generate` is called from many threads, also while another one calls `load`: answers that are under
    way end with the new weights, or `load` waits for them.
    """

    def generate(self, requests: Sequence[GenerateRequest]) -> list[Generation]:
        """One answer per request, in order; of the same policy version unless the engine is concurrent.

        Raises Unanswerable when one of them cannot be answered; then none of them is.
        """
        raise NotImplementedError

    def load(self, folder: Path, version: int) -> None:
        """Answer with this checkpoint from now on.

        Raises CorruptCheckpoint or CheckpointError when it is not there or not what was written; the old
        policy stays.
        """
        raise NotImplementedError

    def prove(self, probe: GenerateRequest) -> int:
        """Sample for the probe; returns the version that sampled. Raises EngineError when nothing comes."""
        return self.generate([probe])[0].policy_version

    def check_alive(self) -> None:
        """Raises EngineDied when a process of it has ended. Takes microseconds."""

    def close(self) -> None:
        """End its processes."""
