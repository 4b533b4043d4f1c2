"""The shards of a run: the parts of its pools that nodes carry. Pure.

An engine is a shard of its own, because it needs whole GPUs. Environments come in shards of up to sixteen. A
shard belongs to no node: after the loss of its node it is placed on another one, under the same name.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dart.config.cluster import PlaceSettings
from dart.config.config import Config
from dart.config.gpus import gpus_of_engine
from dart.run.tree import ENVIRONMENT_POOL, ROLLOUT_POOL, engine_names, environment_names, pool_children
from supervision.child_spec import ChildSpec, ChildType
from supervision.placement import PlacedSpec

SHARD_MOST = 16
"""Largest number of environments of a shard: what is lost together, and placed anew together."""

ENGINES, ENVIRONMENTS, GPU = "engines", "environments", "gpu"
"""Capabilities that every node has: how many of each it may carry, and its GPUs for engines."""

START_SLACK_S = 5.0


def engine_gpus(place: PlaceSettings, run: Config, *, has_gpus: bool) -> int:
    """The number of GPUs of one engine.

    has_gpus   whether any node has a GPU
    """
    given = place.rollout.gpus
    return given if given >= 0 else gpus_of_engine(run) if has_gpus else 0


def engine_shards(
    run: Config, args: Mapping[str, Any], place: PlaceSettings, *, has_gpus: bool
) -> Iterator[PlacedSpec]:
    """A shard for each engine."""
    gpus = engine_gpus(place, run, has_gpus=has_gpus)
    needs = {ENGINES: 1, **({GPU: gpus} if gpus else {}), **place.rollout.needs}
    for index, name in enumerate(engine_names(run)):
        yield PlacedSpec(child=_shard(run, args, ROLLOUT_POOL, index, (name,)), needs=needs)


def environment_shards(
    run: Config, args: Mapping[str, Any], place: PlaceSettings, shares: Sequence[int]
) -> Iterator[PlacedSpec]:
    """The shards of the environments.

    shares   the number of environments of each node; no shard is larger than a node's share

    Only the leader hears of environments: nodes times environments is more than it could announce to all. An
    engine that an environment asks learns its name with the question.
    """
    names = environment_names(run)
    for index, (begin, end) in enumerate(_ranges(shares)):
        count = end - begin
        needs = {name: amount * count for name, amount in place.environments.needs.items()}
        child = _shard(run, args, ENVIRONMENT_POOL, index, names[begin:end])
        yield PlacedSpec(child=child, needs={ENVIRONMENTS: count, **needs}, is_announced_to_all=False)


def _ranges(shares: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Cut each share into as few nearly equal parts of at most SHARD_MOST as there can be."""
    begin = 0
    for share in shares:
        parts = -(-share // SHARD_MOST)
        for part in range(parts):
            end = begin + share // parts + (part < share % parts)
            yield begin, end
            begin = end


def _shard(run: Config, args: Mapping[str, Any], pool: str, index: int, names: Sequence[str]) -> ChildSpec:
    """The child spec of one shard: a supervisor that makes the specs of its children itself."""
    children = pool_children(run, args, pool, names)
    return ChildSpec(
        id=f"{pool}-{index}",
        actor="dart.cluster.pool_shard:PoolShard",
        args={"pool": pool, "names": list(names), "run": dict(args)},
        type=ChildType.SUPERVISOR,
        shutdown_s=1.0 + max(child.shutdown_s for child in children),
        start_deadline_s=START_SLACK_S + sum(child.start_deadline_s for child in children),
    )


def names_in(spec: PlacedSpec) -> tuple[str, ...]:
    """The names of a shard's children."""
    return tuple(spec.child.args["names"])
