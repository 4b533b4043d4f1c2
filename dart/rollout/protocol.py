"""What the rollout actor needs of an engine. Light: importing it loads no library that runs models."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from dart.types import GenerateRequest, Generation


class Engine(Protocol):
    """One copy of the policy that answers batches of requests."""

    @property
    def version(self) -> int:
        """The policy version it answers with."""
        ...

    def generate(self, requests: Sequence[GenerateRequest]) -> list[Generation]:
        """One answer per request, in order, all of the same policy version."""
        ...

    def load(self, folder: Path, version: int) -> None:
        """Answer with this checkpoint from now on.

        Raises CorruptCheckpoint or CheckpointError when it is not there or not what was written; the old
        policy stays.
        """
        ...
