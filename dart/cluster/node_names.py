"""The nodes of a Ray cluster under names that last, from what `ray.nodes()` returns. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from dart.cluster.plan import ClusterNode

NAME_LABEL = "dartrl-node"
"""Label of Ray that names a node: `ray start --labels dartrl-node=a`."""

NAME_BYTES_MOST = 24
"""Longest name of a host (`actors.link`)."""

ID_LETTERS = 6
"""Letters of Ray's node id that tell apart nodes of the same name."""

NOT_CUSTOM = ("CPU", "GPU", "memory", "object_store_memory")
"""Resources of Ray's own; so are those with a colon, such as `node:10.0.0.1`."""

Described = Mapping[str, Any]
"""One entry of `ray.nodes()`."""


def cluster_nodes(
    described: Sequence[Described], control_id: str, known: Mapping[str, str] | None = None
) -> list[ClusterNode]:
    """The living nodes of a cluster.

    control_id   Ray's id of the node on which `dartrl up` runs
    known        the names that nodes have had so far, by Ray's ids; they keep them

    A node has the name of its label `dartrl-node`, or else that of its machine. Both stay the same when Ray
    is started anew there, so a node that comes and goes is known again. Nodes of the same name, such as
    several on one machine, get letters of their ids behind the name. So does a node that was started anew
    before Ray noticed the end of the one before it.
    """
    living = [one for one in described if one["Alive"]]
    names, known = Counter(_given_name(one) for one in living), known or {}
    return [
        ClusterNode(
            name=known.get(one["NodeID"]) or _own_name(one, is_shared=names[_given_name(one)] > 1),
            node_id=one["NodeID"],
            address=one["NodeManagerAddress"],
            gpus=int(one["Resources"].get("GPU", 0)),
            resources={name: int(amount) for name, amount in one["Resources"].items() if _is_custom(name)},
            is_control=one["NodeID"] == control_id,
        )
        for one in living
    ]


def _given_name(one: Described) -> str:
    label = one.get("Labels", {}).get(NAME_LABEL, "")
    name = label or str(one["NodeManagerHostname"]).partition(".")[0] or one["NodeManagerAddress"]
    allowed = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in name)
    return allowed[:NAME_BYTES_MOST]


def _own_name(one: Described, *, is_shared: bool) -> str:
    name = _given_name(one)
    if not is_shared:
        return name
    return f"{name[: NAME_BYTES_MOST - ID_LETTERS - 1]}-{one['NodeID'][:ID_LETTERS]}"


def _is_custom(resource: str) -> bool:
    return resource not in NOT_CUSTOM and ":" not in resource
