"""Where the tree of a run is: on this machine, or on a cluster (`dart.cluster.site`)."""

from collections.abc import Mapping
from typing import Any, Protocol

from actors.board import SLOTS
from actors.system import ActorSystem, RootSpec
from dart.config.config import Config
from dart.core.run_directory import RunPaths
from dart.run.tree import root_spec


class RunSite(Protocol):
    """What the main process of a run has to know of the machines that carry it."""

    rows: int
    """Rows of the board of this machine."""
    stop_deadline_s: float
    """After a first Ctrl-C: the time for all actors to end by themselves, children first."""

    def prepare(self, paths: RunPaths) -> None:
        """Do what must be done in the run directory before actors start."""

    def tree_of(self, config: Config, args: Mapping[str, Any]) -> RootSpec:
        """The tree of this machine.

        args   arguments of every actor
        """

    def poll(self) -> None:
        """Look after what the main process started. Called about every second. Raises TemporaryError."""

    def stop(self, system: ActorSystem) -> bool:
        """Have the tree end. Called about every second after the first signal, until it returns True."""


class OneMachine:
    """All actors are on this machine."""

    rows = SLOTS
    stop_deadline_s = 45.0

    def prepare(self, paths: RunPaths) -> None:
        """Do nothing."""

    def tree_of(self, config: Config, args: Mapping[str, Any]) -> RootSpec:
        """The whole tree."""
        return root_spec(config, args)

    def poll(self) -> None:
        """Do nothing."""

    def stop(self, system: ActorSystem) -> bool:
        """Have the tree end by itself, children first."""
        system.stop()
        return True
