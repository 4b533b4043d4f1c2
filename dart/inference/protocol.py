"""What the rollout actor needs of an engine. Light: importing it loads no library that runs models."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from dart.core.types import GenerateRequest, Generation


class Unanswerable(Exception):
    """One request that no engine of this policy can answer. The engine is well, and so are other requests.

    The message says what is wrong with it and the remedy.
    """


class EngineError(RuntimeError):
    """An engine cannot be relied on; its actor ends and is started again with a new one."""


class Engine(Protocol):
    """One copy of the policy that answers batches of requests."""

    @property
    def version(self) -> int:
        """The policy version it answers with."""
        ...

    def generate(self, requests: Sequence[GenerateRequest]) -> list[Generation]:
        """One answer per request, in order, all of the same policy version.

        Raises Unanswerable when one of them cannot be answered; then none of them is.
        """
        ...

    def load(self, folder: Path, version: int) -> None:
        """Answer with this checkpoint from now on.

        Raises CorruptCheckpoint or CheckpointError when it is not there or not what was written; the old
        policy stays.
        """
        ...


@runtime_checkable
class ConcurrentEngine(Engine, Protocol):
    """An engine that batches by itself, in processes of its own.

    `generate` is called from many threads, also while another one calls `load`: then answers that are under
    way end with the new weights, or are waited for.
    """

    def prove(self) -> int:
        """The version that one token was just sampled with; raises EngineWedged when none comes in time."""
        ...

    def check_alive(self) -> None:
        """Raises EngineDied when a process of it has ended. Takes microseconds."""
        ...

    def close(self) -> None:
        """End its processes."""
        ...
