"""A shard: the part of a pool that one node carries.

A shard is a `supervision.supervisor.Supervisor` that makes the specs of its children from its args. The args
have the names of the children and, only once and compressed, the arguments of all of them, because a message
is too small for many child specs and for the ids of thousands of tasks.

args   pool      `environment_pool` or `rollout_pool`
       names     names of its children
       preload   modules that it preloads, found on the control node: other nodes may lack the policy's folder
       run       arguments of every actor, as in `dart.run.tree`, by `compressed`
"""

import zlib
from collections.abc import Mapping
from typing import Any

import msgspec

from dart.config.config import Config
from dart.run.tree import pool_children, pool_flags
from supervision.supervisor import Supervisor, supervisor_args


class PoolShard(Supervisor):
    """Supervises those children of a pool that its args name."""

    def described(self) -> Mapping[str, Any]:
        return expanded(self.args)


def expanded(args: Mapping[str, Any]) -> dict[str, Any]:
    """Return args of a supervisor, with flags and specs of children, from the args of a shard."""
    run = msgspec.msgpack.decode(zlib.decompress(args["run"]))
    config = Config.model_validate(run["config"])
    children = pool_children(config, run, args["pool"], args["names"], args["preload"])
    return supervisor_args(pool_flags(config, args["pool"]), children)


def compressed(run: Mapping[str, Any]) -> bytes:
    """Return the arguments of every actor as a shard carries them."""
    return zlib.compress(msgspec.msgpack.encode(run))
