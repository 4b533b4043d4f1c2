"""What a run is made of, as its main process knows it: its configuration now, and the tree that makes."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from actors.codec import from_plain
from actors.system import RootSpec
from dart.config.config import Config
from supervision.child_spec import ChildSpec, SupervisorFlags

ENVIRONMENT_POOL = "environment_pool"


@dataclass(frozen=True, slots=True)
class Supervised:
    """One supervisor of a tree: its limits and its children."""

    flags: SupervisorFlags
    children: Mapping[str, ChildSpec]


@dataclass(slots=True, kw_only=True)
class RunDefinition:
    """A run and how it can be changed while it goes on."""

    config: Config
    """What holds now."""
    tree_of: Callable[[Config], RootSpec]
    """The tree that a configuration makes."""
    reread: Callable[[], Config] | None = None
    """The configuration as its file says now; None: it is read once. Raises ConfigError."""
    keep: Callable[[Config], None] = lambda _: None
    """Write down what holds from now on, for the next start of the run."""
    as_started: Config = field(init=False)
    """What the tree was made from."""

    def __post_init__(self) -> None:
        self.as_started = self.config

    def adopt(self, config: Config) -> None:
        """This holds from now on, also when it cannot be written down. Raises OSError then."""
        self.config = config
        self.keep(config)

    def environments(self, count: int) -> Mapping[str, ChildSpec]:
        """So many environments, by name, as the configuration that holds now makes them."""
        return supervisors(self.tree_of(self.with_environments(count)))[ENVIRONMENT_POOL].children

    def with_environments(self, count: int) -> Config:
        """The configuration that holds now, for another number of environments."""
        pool = self.config.environments.model_copy(update={"count": count})
        return self.config.model_copy(update={"environments": pool})


def supervisors(tree: RootSpec) -> dict[str, Supervised]:
    """Every supervisor of a tree by name, the root first."""
    return dict(_below(tree.name, tree.args))


def _below(name: str, args: Mapping[str, Any]) -> Iterator[tuple[str, Supervised]]:
    children = {child["id"]: from_plain(child, ChildSpec) for child in args["children"]}
    yield name, Supervised(from_plain(args["flags"], SupervisorFlags), children)
    for id_, spec in children.items():
        if "children" in spec.args:
            yield from _below(id_, spec.args)
