"""Gives the nodes of a Ray cluster lasting names, computed from the result of `ray.nodes()`. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from dart.cluster.plan import ClusterNode

NAME_LABEL = "dartrl-node"
"""Label of Ray that names a node: `ray start --labels dartrl-node=a`."""

NAME_BYTES_MOST = 24
"""Longest name of a host in bytes, a limit of `actors.link`."""

ID_LETTERS = 6
"""Number of digits of Ray's node id that are appended to the names of nodes with equal names."""

NOT_CUSTOM = ("CPU", "GPU", "memory", "object_store_memory")
"""Resources that Ray defines itself. Those with a colon, such as `node:10.0.0.1`, are Ray's own, too."""

Described = Mapping[str, Any]
"""One entry of `ray.nodes()`."""


def cluster_nodes(
    described: Sequence[Described], control_id: str, known: Mapping[str, str] | None = None
) -> list[ClusterNode]:
    """Return the living nodes of a cluster with their names.

    A node is named by its label `dartrl-node`, or else by the host name of its machine. Both stay the same if
    Ray is restarted on the machine, so a node that comes back has its earlier name. If several living nodes
    have the same name, part of Ray's node id is appended to each. This happens to several nodes on one
    machine, and to a node that was restarted before Ray noticed its end.

    described    the result of `ray.nodes()`
    control_id   Ray's id of the node on which `dartrl up` runs
    known        names that nodes have already, by Ray's ids; these nodes keep their names
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
