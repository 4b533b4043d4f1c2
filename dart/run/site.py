"""Where the actors of a run are: on this machine, or on a cluster (`dart.cluster.site`)."""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from actors.board import SLOTS
from actors.system import ActorSystem, RootSpec
from dart.config.config import Config
from dart.core.run_directory import RunPaths
from dart.run.tree import ENVIRONMENT_POOL, environment_names, root_spec
from supervision.messages import TerminateChild

SHORTEST_STOP_S = 45.0
"""Seconds that a drain may take at least, however short the `shutdown_s` of the actors are."""

OTHERS_STOP_S = 25.0
"""Seconds for engines, weight_sync, curator and store, which have no more work when they are stopped."""


class RunSite(Protocol):
    """What the main process of a run needs from the machine or the machines that carry the run."""

    rows: int
    """Number of rows of this machine's board: the most actors and clients that it can have at a time."""

    def stop_deadline_s(self, config: Config) -> float:
        """Return how many seconds all actors have to end by themselves after a first signal.

        config   the configuration of the run at that signal, because a reload may change `shutdown_s`
        """

    def prepare(self, paths: RunPaths) -> None:
        """Write into the run directory what must be there before actors start."""

    def tree_of(self, config: Config, args: Mapping[str, Any]) -> RootSpec:
        """Return the part of the supervision tree that is on this machine.

        args   arguments that every actor gets: configuration, record, epoch, end of training
        """

    def poll(self) -> None:
        """Check whether the site can go on, about every second. Raises an error, as `watch`, if it cannot."""

    def stop(self, system: ActorSystem) -> bool:
        """Begin to end the tree. Called about every second after the first signal, until it returns True."""


class OneMachine:
    """The site of a run whose actors are all on this machine."""

    rows = SLOTS

    def stop_deadline_s(self, config: Config) -> float:
        """Return the seconds for the trainer and the environments, and those for the others after them."""
        return drain_s(config, ("trainer", *environment_names(config)))

    def prepare(self, paths: RunPaths) -> None:
        """Forget the cluster that carried the run until now."""
        paths.cluster.unlink(missing_ok=True)

    def tree_of(self, config: Config, args: Mapping[str, Any]) -> RootSpec:
        """Return the whole supervision tree of the run."""
        return root_spec(config, args)

    def poll(self) -> None:
        """Do nothing."""

    def stop(self, system: ActorSystem) -> bool:
        """Ask the tree to end by itself, children first; return True.

        The root would stop the trainer first and then the environments. But an update may take the trainer's
        whole shutdown time, in which environments would begin new episodes. So they are stopped beside it.
        """
        system.tell(system.root.name, TerminateChild(id=ENVIRONMENT_POOL))
        system.stop()
        return True


def drain_s(config: Config, working: Iterable[str]) -> float:
    """Return the seconds for the actors with work in progress, and those for the others after them."""
    return max(SHORTEST_STOP_S, longest_shutdown_s(config, working) + OTHERS_STOP_S)


def longest_shutdown_s(config: Config, names: Iterable[str]) -> float:
    """Return the seconds in which some actors end that are stopped at the same time."""
    return max(config.supervision.child(name).shutdown_s for name in names)
