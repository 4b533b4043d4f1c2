"""The nodes of a Ray cluster under names that last."""

from typing import Any

from dart.cluster.node_names import NAME_BYTES_MOST, cluster_nodes


def described(
    node_id: str, hostname: str = "host", *, alive: bool = True, label: str = "", **more: Any
) -> Any:
    return {
        "NodeID": node_id,
        "Alive": alive,
        "NodeManagerAddress": "10.0.0.1",
        "NodeManagerHostname": hostname,
        "Resources": more,
        "Labels": {"dartrl-node": label} if label else {},
    }


def names(*nodes: Any) -> list[str]:
    return [node.name for node in cluster_nodes(nodes, "")]


def test_a_node_has_the_name_of_its_machine_whatever_ray_calls_it_this_time() -> None:
    assert names(described("aaaa", "gpu-1.cluster.example")) == ["gpu-1"]
    assert names(described("bbbb", "gpu-1.cluster.example")) == ["gpu-1"]


def test_a_label_names_a_node() -> None:
    assert names(described("aaaa", label="left"), described("bbbb", label="right")) == ["left", "right"]


def test_nodes_of_one_machine_are_told_apart() -> None:
    assert names(described("aaaaaaaa"), described("bbbbbbbb")) == ["host-aaaaaa", "host-bbbbbb"]


def test_a_node_that_came_before_ray_noticed_a_loss_keeps_its_name_when_ray_does() -> None:
    before, anew = described("aaaaaaaa"), described("bbbbbbbb")
    known = {"aaaaaaaa": "host"}
    first = cluster_nodes([before, anew], "", known)
    assert [node.name for node in first] == ["host", "host-bbbbbb"]
    known = {node.node_id: node.name for node in first}
    (left,) = cluster_nodes([described("aaaaaaaa", alive=False), anew], "", known)
    assert left.name == "host-bbbbbb"


def test_a_name_is_never_longer_than_a_host_may_be_and_has_no_at() -> None:
    (one,) = names(described("aaaa", "a@b" + "x" * 100))
    assert len(one) == NAME_BYTES_MOST
    assert "@" not in one
    two = names(described("aaaaaaaa", "x" * 100), described("bbbbbbbb", "x" * 100))
    assert [len(name) for name in two] == [NAME_BYTES_MOST] * 2
    assert len(set(two)) == 2


def test_dead_nodes_are_left_out_and_do_not_share_a_name() -> None:
    assert names(described("aaaa", alive=False), described("bbbb")) == ["host"]


def test_gpus_and_custom_resources_are_read_and_ray_s_own_are_not() -> None:
    resources = {"CPU": 8.0, "GPU": 2.0, "memory": 1e9, "node:10.0.0.1": 1.0, "vm_host": 1.0}
    (node,) = cluster_nodes([described("aaaa", **resources)], "aaaa")
    assert (node.gpus, node.resources, node.is_control, node.address) == (2, {"vm_host": 1}, True, "10.0.0.1")
