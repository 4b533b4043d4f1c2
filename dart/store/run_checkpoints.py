"""Finds the checkpoints of a run, which are where its blobs are (`run.blobs`, see `dart.store.run_blobs`)."""

from pathlib import Path
from typing import Protocol

from dart.config.config import Config
from dart.core.run_directory import RunPaths
from dart.store.checkpoints import UNCOMMITTED, checkpoint_name, list_checkpoints, version_of
from dart.store.run_blobs import CACHE, object_storage


class Checkpoints(Protocol):
    """The checkpoints of a run, by version. For each version, a process gets a folder of its own machine."""

    is_remote: bool
    """Whether calls wait for another machine. If so, actors make them in a thread."""

    def policy(self, version: int) -> Path:
        """The folder from which an engine loads a version.

        Raises CorruptCheckpoint, CheckpointNotWritten or StoreUnavailable.
        """

    def base(self) -> Path:
        """The folder of the base policy, which stays as long as this process lives.

        Raises CorruptCheckpoint, CheckpointNotWritten or StoreUnavailable.
        """

    def discard(self, folder: Path) -> None:
        """Give up a damaged folder that `policy` or `base` returned, so that it is fetched again.

        The folder stays while another process of this machine uses it.
        """

    def fetch(self, version: int) -> None:
        """Fetch the complete checkpoint of a version to this machine, so that training can resume from it.

        Raises CorruptCheckpoint, CheckpointNotWritten or StoreUnavailable.
        """

    def publish(self, version: int, folder: Path) -> None:
        """Make a checkpoint that this machine wrote into `folder` available to all machines.

        Raises CheckpointExists if another trainer has published this version, or StoreUnavailable.
        """

    def versions(self) -> list[int]:
        """The versions that are available to all machines, oldest first. Raises StoreUnavailable."""

    def set_aside_uncommitted(self, committed: int) -> list[int]:
        """Set aside the published versions that are newer than `committed`; returns these versions.

        committed   the newest version in the record
        """

    def place_of_uncommitted(self, version: int) -> str:
        """The path or address of a version that was set aside."""

    def prune(self, keep: int, protect: frozenset[int] = frozenset()) -> list[int]:
        """Remove all published versions except the `keep` newest and those in `protect`.

        Returns the removed versions.
        """


class LocalCheckpoints:
    """The checkpoints of a run on one machine: the folders that its trainer writes.

    Nothing needs to be fetched or published.
    """

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

    def discard(self, folder: Path) -> None:
        """Do nothing: there is no other copy."""

    def fetch(self, version: int) -> None:
        """Do nothing: every checkpoint is on this machine."""

    def publish(self, version: int, folder: Path) -> None:
        """Do nothing: the trainer published the checkpoint when it renamed its folder to the final name."""

    def versions(self) -> list[int]:
        return [0, *map(version_of, list_checkpoints(self._parent))]

    def set_aside_uncommitted(self, committed: int) -> list[int]:
        """Do nothing: the trainer renames these folders itself. Returns an empty list."""
        return []

    def place_of_uncommitted(self, version: int) -> str:
        return str(self._parent / f"{checkpoint_name(version)}.{UNCOMMITTED}")

    def prune(self, keep: int, protect: frozenset[int] = frozenset()) -> list[int]:
        """Do nothing: the trainer removes old folders itself. Returns an empty list."""
        return []


def run_checkpoints(config: Config, run_dir: Path) -> Checkpoints:
    """The checkpoints of a run, from its configuration.

    run_dir   the run directory of this machine

    Raises UnavailableError if obstore is needed and not installed.
    """
    paths = RunPaths(run_dir)
    if not config.run.blobs:
        return LocalCheckpoints(paths.checkpoints, config.training.policy)
    object_storage()
    from dart.store.published_checkpoints import PublishedCheckpoints

    return PublishedCheckpoints(config.run.blobs, paths.checkpoints, run_dir / CACHE / "policies")
