"""The definition of a run: its configuration, the supervision tree for it, and how both can change."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from actors.codec import from_plain
from actors.system import RootSpec
from dart.config.config import Config
from dart.config.sections import ChildSettings, pool_name
from dart.run.tree import ENVIRONMENT_POOL, ROLLOUT_POOL
from supervision.child_spec import ChildSpec, SupervisorFlags

SECTIONS = {ENVIRONMENT_POOL: "environments", ROLLOUT_POOL: "rollout"}
"""The pools whose size can change, each with the section of the configuration whose key `count` is its
size."""


@dataclass(frozen=True, slots=True)
class Supervised:
    """One supervisor of a tree: its limits and its children."""

    flags: SupervisorFlags
    children: Mapping[str, ChildSpec]


@dataclass(slots=True, kw_only=True)
class RunDefinition:
    """The configuration of a run, and what is needed to change it while the run runs."""

    config: Config
    """The current configuration."""
    tree_of: Callable[[Config], RootSpec]
    """Makes the supervision tree for a configuration."""
    reread: Callable[[], Config] | None = None
    """Reads the configuration again from its sources. Raises ConfigError. None if the configuration cannot be
    reloaded."""
    keep: Callable[[Config], None] = lambda _: None
    """Writes a configuration into the run directory, for the next start of the run. Raises OSError."""
    as_started: Config = field(init=False)
    """The configuration that the tree was started with."""

    def __post_init__(self) -> None:
        self.as_started = self.config

    def adopt(self, config: Config) -> None:
        """Make a configuration the current one, and write it into the run directory.

        Raises OSError if it cannot be written; it is the current one nevertheless.
        """
        self.config = config
        self.keep(config)

    def children(self, pool: str) -> Mapping[str, ChildSpec]:
        """Return the child specs of a pool, by name, in the number that the configuration says."""
        return supervisors(self.tree_of(self.config))[pool].children

    def has_pool(self, pool: str) -> bool:
        """Whether this machine has the supervisor of a pool; false on a cluster, where nodes share a pool."""
        return pool in supervisors(self.tree_of(self.config))

    def deadlines_of(self, name: str) -> ChildSpec | ChildSettings | None:
        """Return what has the deadlines of an actor; None if neither the configuration nor the tree has it.

        A child of a pool may not be in the tree: it is to be removed, or it is on another node of a cluster.
        """
        if pool_name(name) != name:
            return self.config.supervision.child(name)
        trees = supervisors(self.tree_of(self.config)).values()
        return next((one.children[name] for one in trees if name in one.children), None)

    def sized(self, sizes: Mapping[str, int]) -> Config:
        """Return the current configuration with other sizes for some pools, by the name of the pool."""
        sections = {
            SECTIONS[pool]: getattr(self.config, SECTIONS[pool]).model_copy(update={"count": count})
            for pool, count in sizes.items()
        }
        return self.config.model_copy(update=sections)


def size_of(config: Config, pool: str) -> int:
    """Return the size that a configuration gives to a pool."""
    count: int = getattr(config, SECTIONS[pool]).count
    return count


def supervisors(tree: RootSpec) -> dict[str, Supervised]:
    """Return all supervisors of a tree by name, the root first."""
    return dict(_below(tree.name, tree.args))


def _below(name: str, args: Mapping[str, Any]) -> Iterator[tuple[str, Supervised]]:
    children = {child["id"]: from_plain(child, ChildSpec) for child in args["children"]}
    yield name, Supervised(from_plain(args["flags"], SupervisorFlags), children)
    for id_, spec in children.items():
        if "children" in spec.args:
            yield from _below(id_, spec.args)
