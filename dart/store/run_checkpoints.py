"""Where the checkpoints of a run are: chosen by the address of its blobs (`dart.store.run_blobs`)."""

from pathlib import Path
from typing import Protocol

from dart.config.config import Config
from dart.core.run_directory import RunPaths
from dart.store.checkpoints import UNCOMMITTED, checkpoint_name, list_checkpoints, version_of
from dart.store.run_blobs import CACHE, object_storage


class Checkpoints(Protocol):
    """The versions of a run, by their numbers. Every process resolves them to folders of its machine."""

    is_remote: bool
    """Whether calls wait for another machine, so that an actor makes them in a thread."""

    def policy(self, version: int) -> Path:
        """The folder from which an engine loads a version. Raises CorruptCheckpoint or StoreUnavailable."""

    def base(self) -> Path:
        """The folder of the base policy, which stays as long as this process lives.

        Raises CorruptCheckpoint or StoreUnavailable.
        """

    def fetch(self, version: int) -> None:
        """Make the whole checkpoint of a version, from which training resumes, one of this machine.

        Raises CorruptCheckpoint, CheckpointNotWritten or StoreUnavailable.
        """

    def publish(self, version: int, folder: Path) -> None:
        """Make a checkpoint that was written here one of all machines. Raises CheckpointExists."""

    def versions(self) -> list[int]:
        """The versions that all machines find, oldest first. Raises StoreUnavailable."""

    def set_aside_uncommitted(self, committed: int) -> list[int]:
        """Set published versions aside that are newer than the newest committed one; returns them."""

    def place_of_uncommitted(self, version: int) -> str:
        """Where a version is that was set aside."""

    def prune(self, keep: int, protect: frozenset[int] = frozenset()) -> list[int]:
        """Remove all published versions but the `keep` newest and those in `protect`; returns the removed."""


class LocalCheckpoints:
    """The checkpoints of one machine: the folders that its trainer writes are all there are."""

    is_remote = False

    def __init__(self, parent: Path, base: Path) -> None:
        """
        parent   folder of the checkpoints that the trainer writes
        base     the base policy, which is version 0
        """
        self._parent, self._base = parent, base

    def policy(self, version: int) -> Path:
        return self._parent / checkpoint_name(version) if version > 0 else self._base

    def base(self) -> Path:
        return self._base

    def fetch(self, version: int) -> None:
        """Every checkpoint is one of this machine."""

    def publish(self, version: int, folder: Path) -> None:
        """A checkpoint was published when its folder was renamed."""

    def versions(self) -> list[int]:
        return [0, *map(version_of, list_checkpoints(self._parent))]

    def set_aside_uncommitted(self, committed: int) -> list[int]:
        """They were renamed when the trainer started."""
        return []

    def place_of_uncommitted(self, version: int) -> str:
        return str(self._parent / f"{checkpoint_name(version)}.{UNCOMMITTED}")

    def prune(self, keep: int, protect: frozenset[int] = frozenset()) -> list[int]:
        """The trainer removes the folders that it wrote."""
        return []


def run_checkpoints(config: Config, run_dir: Path) -> Checkpoints:
    """The checkpoints of a run by its configuration.

    run_dir   the run directory of this machine
    Raises UnavailableError if obstore is needed and not installed.
    """
    paths = RunPaths(run_dir)
    if not config.run.blobs:
        return LocalCheckpoints(paths.checkpoints, config.training.policy)
    object_storage()
    from dart.store.published_checkpoints import PublishedCheckpoints

    return PublishedCheckpoints(config.run.blobs, paths.checkpoints, run_dir / CACHE / "policies")
