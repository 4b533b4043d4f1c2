"""The definition of a run: its configuration, the tree that this makes, and how both can change."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from actors.codec import from_plain
from actors.system import RootSpec
from dart.config.config import Config
from supervision.child_spec import ChildSpec, SupervisorFlags

ENVIRONMENT_POOL = "environment_pool"
ROLLOUT_POOL = "rollout_pool"
SECTIONS = {ENVIRONMENT_POOL: "environments", ROLLOUT_POOL: "rollout"}
"""The pools whose size can change, each with the section whose `count` is its size."""


@dataclass(frozen=True, slots=True)
class Supervised:
    """One supervisor of a tree: its limits and its children."""

    flags: SupervisorFlags
    children: Mapping[str, ChildSpec]


@dataclass(slots=True, kw_only=True)
class RunDefinition:
    """A run, and how it can be changed while it runs."""

    config: Config
    """The configuration that holds now."""
    tree_of: Callable[[Config], RootSpec]
    """Makes the tree of a configuration."""
    reread: Callable[[], Config] | None = None
    """Reads the configuration again; None: the configuration never changes. Raises ConfigError."""
    keep: Callable[[Config], None] = lambda _: None
    """Writes the configuration for the next start of the run."""
    as_started: Config = field(init=False)
    """The configuration that the tree was started with."""

    def __post_init__(self) -> None:
        self.as_started = self.config

    def adopt(self, config: Config) -> None:
        """Replace the configuration and write it. Raises OSError if writing fails; the new one still
        holds.
        """
        self.config = config
        self.keep(config)

    def children(self, pool: str) -> Mapping[str, ChildSpec]:
        """The child specs of a pool by name, as many as the configuration says."""
        return supervisors(self.tree_of(self.config))[pool].children

    def has_pool(self, pool: str) -> bool:
        """Whether all children of a pool are below one supervisor of this machine."""
        return pool in supervisors(self.tree_of(self.config))

    def sized(self, pool: str, count: int) -> Config:
        """The configuration with another number of children in a pool."""
        section = SECTIONS[pool]
        resized = getattr(self.config, section).model_copy(update={"count": count})
        return self.config.model_copy(update={section: resized})


def size_of(config: Config, pool: str) -> int:
    """How many children a pool has by a configuration."""
    count: int = getattr(config, SECTIONS[pool]).count
    return count


def supervisors(tree: RootSpec) -> dict[str, Supervised]:
    """The supervisors of a tree by name, the root first."""
    return dict(_below(tree.name, tree.args))


def _below(name: str, args: Mapping[str, Any]) -> Iterator[tuple[str, Supervised]]:
    children = {child["id"]: from_plain(child, ChildSpec) for child in args["children"]}
    yield name, Supervised(from_plain(args["flags"], SupervisorFlags), children)
    for id_, spec in children.items():
        if "children" in spec.args:
            yield from _below(id_, spec.args)
