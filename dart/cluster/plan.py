"""The plan of a run on a cluster: which node carries which actors, and who has which GPU. Pure.

The plan follows from what the nodes have and what the run needs. The trainer is on the control node.
`supervision.placement.place` chooses the nodes of all shards, both for this plan and while the run is
running. If the run does not fit on the cluster, the plan is refused before anything starts, with the numbers.
"""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from actors.codec import MAX_MESSAGE_BYTES, packed_bytes, to_plain
from dart.cluster.shards import (
    ENGINES,
    ENVIRONMENTS,
    GPU,
    engine_gpus,
    engine_shards,
    environment_shards,
    names_in,
)
from dart.config.cluster import PlaceSettings
from dart.config.config import Config
from dart.config.gpus import gpus_of_engine, gpus_of_trainer
from dart.core.errors import ConfigurationError
from dart.core.loopback import is_loopback
from dart.core.suggestions import did_you_mean, near
from dart.run.tree import ROLLOUT_POOL
from supervision.placement import PlacedSpec, place

MOST_SPEC_BYTES = MAX_MESSAGE_BYTES - 1024
"""The largest child spec of a shard; the order to start it, which is a message, takes some bytes more."""

NODES_SHOWN = 8
"""Number of nodes for which the message of a refusal lists what they have."""


class DoesNotFit(ConfigurationError):
    """The run does not fit the cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterNode:
    """One machine of the cluster, as Ray describes it."""

    name: str
    """Name of the node in this run, unique in the cluster."""
    node_id: str = ""
    """Ray's id of the node; it changes when Ray is restarted on the machine."""
    address: str = ""
    gpus: int = 0
    """Number of GPUs; a plan names them "0", "1" and so on."""
    resources: Mapping[str, int] = field(default_factory=dict)
    """Amounts of the node's custom resources in Ray by name, such as `vm_host`."""
    is_control: bool = False
    """Whether `dartrl up` runs on this node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlan:
    """The part of a run that one node carries, with the GPUs of each actor."""

    node: str
    is_control: bool
    trainer_gpus: tuple[str, ...] = ()
    engines: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The names of each engine's GPUs, by the name of the engine."""
    environments: tuple[str, ...] = ()
    """Names of the environments."""
    free_gpus: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlan:
    """The whole plan: what `--dry-run` shows and what the run starts with."""

    nodes: tuple[NodePlan, ...]
    """The control node first, then the others by name."""
    shards: tuple[PlacedSpec, ...]
    capabilities: Mapping[str, Mapping[str, int]]
    """By node, the capabilities that it declares (`capabilities`)."""


def plan_cluster(
    nodes: Sequence[ClusterNode], where: PlaceSettings, run: Config, args: Mapping[str, Any] | None = None
) -> ClusterPlan:
    """Plan which nodes carry which parts of a run. The order of `nodes` does not matter.

    where    the section [place] of the cluster file
    args     arguments of every actor, as in `dart.run.tree`; None: the configuration alone, for a plan that
             is only shown
    raises   DoesNotFit with a line for each part that does not fit
    """
    ordered = sorted(nodes, key=lambda node: (not node.is_control, node.name))
    has_gpus = any(node.gpus for node in ordered)
    trainer = trainer_gpus(where, run, has_gpus=has_gpus)
    capable = {
        node.name: capabilities(node, where, reserved_gpus=trainer if node.is_control else 0)
        for node in ordered
    }
    problems = [
        *_unknown_resources(ordered, where),
        *_trainer_problems(ordered[0], where, run, trainer),
        *_engine_problems(ordered, capable, where, run),
        *_environment_problems(capable, where, run),
        *_pool_problems(capable, where, run),
    ]
    if problems:
        raise DoesNotFit("\n".join(problems))
    shares = _environment_shares(capable, where, run)
    args = args or {"config": run.model_dump(mode="json")}
    shards = (
        *engine_shards(run, args, where, has_gpus=has_gpus),
        *environment_shards(run, args, where, tuple(shares.values())),
    )
    _refuse_large(shards, run)
    placement = place(shards, capable, {})
    if placement.unplaced:
        raise DoesNotFit("\n".join(f"{name}: {why}" for name, why in placement.unplaced.items()))
    return ClusterPlan(
        nodes=tuple(_node_plan(node, trainer, shards, placement.hosts) for node in ordered),
        shards=shards,
        capabilities=capable,
    )


def _refuse_large(shards: Sequence[PlacedSpec], run: Config) -> None:
    """Raise DoesNotFit if the order to start a shard does not fit into a message."""
    size_bytes = max(packed_bytes(to_plain(spec.child)) for spec in shards)
    if size_bytes > MOST_SPEC_BYTES:
        raise DoesNotFit(
            f"configuration: a node gets it in a message, compressed, and has room for {MOST_SPEC_BYTES:,} "
            f"bytes; this one takes {size_bytes:,}. Name fewer tasks in tasks.train, which has "
            f"{len(run.tasks.train):,}"
        )


def _environment_shares(
    capable: Mapping[str, Mapping[str, int]], where: PlaceSettings, run: Config
) -> dict[str, int]:
    return spread(run.environments.count, _room(capable, ENVIRONMENTS, where.environments.needs))


def trainer_gpus(where: PlaceSettings, run: Config, *, has_gpus: bool) -> int:
    """Return the number of GPUs of the trainer: `place.trainer.gpus`, or by default what the ranks need.

    has_gpus   whether any node has a GPU; the default is 0 if none has
    """
    if where.trainer.gpus >= 0:
        return where.trainer.gpus
    return gpus_of_trainer(run) if has_gpus else 0


def capabilities(node: ClusterNode, where: PlaceSettings, *, reserved_gpus: int) -> dict[str, int]:
    """Return the capabilities of a node, as amounts by name.

    These are its custom resources, the numbers of engines and of environments that it may carry, and its GPUs
    for engines.

    reserved_gpus   number of GPUs of this node that the trainer uses
    """
    return {
        **node.resources,
        ENGINES: where.rollout.per_node,
        ENVIRONMENTS: where.environments.per_node,
        GPU: max(0, node.gpus - reserved_gpus),
    }


def _node_plan(
    node: ClusterNode, trainer: int, shards: Sequence[PlacedSpec], hosts: Mapping[str, str]
) -> NodePlan:
    own = [spec for spec in shards if hosts[spec.name] == node.name]
    free = [str(gpu) for gpu in range(node.gpus)]
    of_trainer = _last_gpus(node, trainer) if node.is_control else ()
    free = free[: len(free) - len(of_trainer)]
    engines: dict[str, tuple[str, ...]] = {}
    for spec in own:
        if spec.child.args["pool"] == ROLLOUT_POOL:
            count = spec.needs.get(GPU, 0)
            engines |= dict.fromkeys(names_in(spec), tuple(free[:count]))
            free = free[count:]
    return NodePlan(
        node=node.name,
        is_control=node.is_control,
        trainer_gpus=of_trainer,
        engines=engines,
        environments=tuple(
            name for spec in own if spec.child.args["pool"] != ROLLOUT_POOL for name in names_in(spec)
        ),
        free_gpus=tuple(free),
    )


def could_carry(node: ClusterNode, where: PlaceSettings, plan: ClusterPlan) -> NodePlan:
    """Return the largest part of a run that a node could carry that is not in the plan.

    The part has every shard for which the node has what the shard needs, although not all may fit together.
    """
    declared = capabilities(node, where, reserved_gpus=0)
    fit = [spec for spec in plan.shards if _fitting(declared, spec.needs)]
    return _node_plan(node, 0, fit, {spec.name: node.name for spec in fit})


def _last_gpus(control: ClusterNode, count: int) -> tuple[str, ...]:
    """Return the names of the trainer's GPUs: the last `count` ones of the control node."""
    return tuple(str(gpu) for gpu in range(control.gpus - count, control.gpus))


def spread(count: int, capacities: Mapping[str, int]) -> dict[str, int]:
    """Distribute `count` equal things evenly over nodes, and return the number for each node.

    No node gets more than its capacity. If the things do not all fit, the sum is below `count`. Between nodes
    with equal numbers, the first one in `capacities` gets the next thing. Takes O(count log nodes) time.
    """
    shares = dict.fromkeys(capacities, 0)
    open_to = [(0, order, name) for order, (name, capacity) in enumerate(capacities.items()) if capacity]
    for _ in range(count):
        if not open_to:
            break
        share, order, name = open_to[0]
        shares[name] = share + 1
        if share + 1 < capacities[name]:
            heapq.heapreplace(open_to, (share + 1, order, name))
        else:
            heapq.heappop(open_to)
    return shares


# ---- what does not fit ----


def _unknown_resources(nodes: Sequence[ClusterNode], where: PlaceSettings) -> Iterator[str]:
    known = sorted({name for node in nodes for name in node.resources})
    for part in ("rollout", "environments"):
        for name in getattr(where, part).needs:
            if name not in known:
                there = f"; there are {', '.join(known)}" if known else ""
                yield (
                    f"place.{part}.needs names {name!r}, which no node has{did_you_mean(near(name, known))}"
                    f"{there}; start Ray with --resources='{{\"{name}\": 1}}' on the nodes with this resource"
                )


def _trainer_problems(control: ClusterNode, where: PlaceSettings, run: Config, gpus: int) -> Iterator[str]:
    ranks = run.training.ranks
    if 0 < gpus < ranks:
        yield (
            f"trainer: training.ranks is {ranks}, and place.trainer.gpus is {gpus}; each rank needs a GPU of "
            "its own"
        )
    elif gpus == 0 and run.training.device.startswith("cuda"):
        yield (
            f"trainer: training.device is {run.training.device!r}, and place.trainer.gpus is 0; set "
            'training.device = "auto", or give the trainer a GPU'
        )
    elif gpus > control.gpus:
        yield (
            f"trainer: {ranks} ranks need {gpus} GPUs on the control node {control.name}, which has "
            f"{control.gpus}; run `dartrl up` on a node with {gpus} GPUs, or change training.ranks"
        )


def _engine_problems(
    nodes: Sequence[ClusterNode], capable: Mapping[str, Mapping[str, int]], where: PlaceSettings, run: Config
) -> Iterator[str]:
    gpus = engine_gpus(where, run, has_gpus=any(node.gpus for node in nodes))
    if 0 < gpus < gpus_of_engine(run):
        width = gpus_of_engine(run)
        yield f"engines: rollout.vllm.tensor_parallel is {width}, and place.rollout.gpus is {gpus}"
    needs = {**({GPU: gpus} if gpus else {}), **where.rollout.needs}
    fits = sum(_room(capable, ENGINES, needs).values())
    if fits < run.rollout.count:
        limit = f"place.rollout.per_node is {where.rollout.per_node}"
        yield f"{_refusal('engines', run.rollout.count, fits, capable, needs)}; {limit}"


def _environment_problems(
    capable: Mapping[str, Mapping[str, int]], where: PlaceSettings, run: Config
) -> Iterator[str]:
    needs = where.environments.needs
    fits = sum(_room(capable, ENVIRONMENTS, needs).values())
    if fits < run.environments.count:
        limit = f"place.environments.per_node is {where.environments.per_node}"
        yield f"{_refusal('environments', run.environments.count, fits, capable, needs)}; {limit}"


def _pool_problems(
    capable: Mapping[str, Mapping[str, int]], where: PlaceSettings, run: Config
) -> Iterator[str]:
    """Yield lines if environments on several nodes cannot share the server that lends them machines.

    With a token of its own the run stops machines that no environment holds, and each node knows only which
    machines its own environments hold."""
    osworld = run.environments.osworld
    nodes = [name for name, share in _environment_shares(capable, where, run).items() if share]
    if run.environments.kind != "osworld" or osworld.provider != "pool" or len(nodes) < 2:
        return
    more = ", …" if len(nodes) > NODES_SHOWN else ""
    some = f"environments: {len(nodes)} nodes have some ({', '.join(nodes[:NODES_SHOWN])}{more})"
    if osworld.pool.own_token:
        yield (
            f"{some}, and environments.osworld.pool.own_token is true: each node would stop the machines of "
            "the others when the server lends no more; set own_token = false below "
            "[set.environments.osworld.pool], or name in place.environments.needs a resource that only one "
            "node has"
        )
    if is_loopback(urlsplit(osworld.pool.server).hostname or ""):
        yield (
            f"{some}, and environments.osworld.pool.server is {osworld.pool.server}, where each node would "
            "find only itself; name the server by an address that all of them reach, below "
            "[set.environments.osworld.pool]"
        )


def _room(capable: Mapping[str, Mapping[str, int]], what: str, needs: Mapping[str, int]) -> dict[str, int]:
    """Return, by node, how many engines or environments with these needs fit on it.

    capable   the capabilities of each node
    what      the capability that counts them, `ENGINES` or `ENVIRONMENTS`
    """
    return {name: _fitting(declared, {what: 1, **needs}) for name, declared in capable.items()}


def _fitting(declared: Mapping[str, int], needs: Mapping[str, int]) -> int:
    """Return how many things with these needs fit on a node with the declared capabilities."""
    if not needs.keys() <= declared.keys():
        return 0
    return min(declared[need] // amount for need, amount in needs.items() if amount)


def _refusal(
    what: str, wanted: int, fits: int, capable: Mapping[str, Mapping[str, int]], needs: Mapping[str, int]
) -> str:
    """Return the message that `wanted` engines or environments do not fit, with what each node has.

    what    "engines" or "environments"
    fits    how many of them fit
    needs   the needs of each
    """
    each = [f"{amount} {name}" if amount else f"a node with {name}" for name, amount in needs.items()]
    needed = f" need {' and '.join(each)} each" if each else ""
    gpus = needs.get(GPU, 0)
    total = f", {wanted * gpus} {GPU} in all" if gpus else ""
    shown = [
        f"{node} has {', '.join(f'{declared.get(name, 0)} {name}' for name in needs)}"
        for node, declared in list(capable.items())[:NODES_SHOWN]
        if needs
    ]
    more = [f"and {len(capable) - NODES_SHOWN} more nodes"] if needs and len(capable) > NODES_SHOWN else []
    return "; ".join(
        [f"{what}: {wanted}{needed}{total}, and {fits} fit on {len(capable)} nodes", *shown, *more]
    )
