"""A shard: the part of a pool that one node carries.

Receives, watches, dies and restarts as `supervision.supervisor.Supervisor`, which it is. Its args name its
children and hold the arguments of all of them once, because a message has room for few child specs.

args   pool    `environment_pool` or `rollout_pool`
       names   names of its children
       run     arguments of every actor, as in `dart.run.tree`
"""

from collections.abc import Mapping
from typing import Any

from dart.config.config import Config
from dart.run.tree import pool_children, pool_flags
from supervision.supervisor import Supervisor, supervisor_args


class PoolShard(Supervisor):
    """Supervises some children of a pool."""

    def described(self) -> Mapping[str, Any]:
        return expanded(self.args)


def expanded(args: Mapping[str, Any]) -> dict[str, Any]:
    """The args of the supervisor that a shard is: its flags and the specs of its children."""
    config = Config.model_validate(args["run"]["config"])
    children = pool_children(config, args["run"], args["pool"], args["names"])
    return supervisor_args(pool_flags(config, args["pool"]), children)
