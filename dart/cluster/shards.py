"""The shards of a run: the parts of its pools that nodes carry. Pure.

Each engine is a shard of its own, because it needs whole GPUs. A shard of environments has up to sixteen of
them. A shard is not bound to a node: if its node is lost, it is placed on another one under the same name.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dart.cluster.pool_shard import compressed
from dart.config.cluster import PlaceSettings
from dart.config.config import Config
from dart.config.gpus import gpus_of_engine
from dart.run.site import longest_shutdown_s
from dart.run.tree import (
    ENVIRONMENT_POOL,
    ROLLOUT_POOL,
    engine_names,
    environment_names,
    pool_children,
    pool_modules,
)
from supervision.child_spec import ChildSpec, ChildType
from supervision.placement import PlacedSpec

SHARD_MOST = 16
"""Largest number of environments of a shard. They are lost together with a node, and placed together."""

ENGINES, ENVIRONMENTS, GPU = "engines", "environments", "gpu"
"""Names of capabilities that every node declares: the numbers of engines and environments that it may carry,
and the number of its GPUs for engines."""

START_SLACK_S = 5.0

STOP_SLACK_S = 1.0
"""Seconds that a shard may take to end after its children."""


def engine_gpus(place: PlaceSettings, run: Config, *, has_gpus: bool) -> int:
    """Return the number of GPUs of one engine: `place.rollout.gpus`, or by default what the engine needs.

    has_gpus   whether any node has a GPU; the default is 0 if none has
    """
    given = place.rollout.gpus
    return given if given >= 0 else gpus_of_engine(run) if has_gpus else 0


def engine_shards(
    run: Config, args: Mapping[str, Any], place: PlaceSettings, *, has_gpus: bool
) -> Iterator[PlacedSpec]:
    """Yield a shard for each engine of the run."""
    gpus = engine_gpus(place, run, has_gpus=has_gpus)
    needs = {ENGINES: 1, **({GPU: gpus} if gpus else {}), **place.rollout.needs}
    packed = compressed(args)
    for index, name in enumerate(engine_names(run)):
        yield PlacedSpec(child=_shard(run, packed, ROLLOUT_POOL, index, (name,)), needs=needs)


def environment_shards(
    run: Config, args: Mapping[str, Any], place: PlaceSettings, shares: Sequence[int]
) -> Iterator[PlacedSpec]:
    """Yield the shards of the environments.

    Environments are announced to the leader only. Announcing each of them to all nodes would be too much, and
    an engine learns the name of an environment from its request.

    shares   the number of environments planned for each node; no shard is larger than the share of a node
    """
    names, packed = environment_names(run), compressed(args)
    for index, (begin, end) in enumerate(_ranges(shares)):
        count = end - begin
        needs = {name: amount * count for name, amount in place.environments.needs.items()}
        child = _shard(run, packed, ENVIRONMENT_POOL, index, names[begin:end])
        yield PlacedSpec(
            child=child, needs={ENVIRONMENTS: count, **needs}, is_announced_to_all=False, weight=count
        )


def _ranges(shares: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Cut each share into as few parts of at most SHARD_MOST as possible, all of nearly equal size.

    Yields the begin and the end of each part as indices into the names of all environments.
    """
    begin = 0
    for share in shares:
        parts = -(-share // SHARD_MOST)
        for part in range(parts):
            end = begin + share // parts + (part < share % parts)
            yield begin, end
            begin = end


def _shard(run: Config, packed: bytes, pool: str, index: int, names: Sequence[str]) -> ChildSpec:
    """Return the child spec of one shard.

    packed  arguments of every actor, by `compressed`
    index   number of the shard in its pool
    names   names of its children
    """
    children = pool_children(run, {}, pool, names)
    return ChildSpec(
        id=f"{pool}-{index}",
        actor="dart.cluster.pool_shard:PoolShard",
        args={
            "pool": pool,
            "names": list(names),
            "preload": list(pool_modules(run, pool)),
            "run": packed,
        },
        type=ChildType.SUPERVISOR,
        shutdown_s=STOP_SLACK_S + max(child.shutdown_s for child in children),
        start_deadline_s=START_SLACK_S + sum(child.start_deadline_s for child in children),
    )


def longest_shard_stop_s(run: Config) -> float:
    """Return the longest `shutdown_s` of a shard of the run."""
    return STOP_SLACK_S + longest_shutdown_s(run, (*environment_names(run), *engine_names(run)))


def names_in(spec: PlacedSpec) -> tuple[str, ...]:
    """Return the names of a shard's children."""
    return tuple(spec.child.args["names"])
