"""Agents on real Ray nodes: frames, a killed raylet, one that nobody reaps, a frozen agent."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dart.cluster.connection import living_nodes
from dart.cluster.host_agent import FollowerSpec, wire_path
from dart.cluster.launcher import why_ended
from dart.cluster.local_cluster import LocalCluster, local_cluster
from dart.cluster.ray_agents import Agent, introduce
from tests.cluster.ray_nodes import Bridge, agents_on, echo, until

FRAMES = 3000


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with local_cluster("a", "b", "c") as made:
        yield made


@pytest.fixture
def agents(cluster: LocalCluster, tmp_path: Path) -> Iterator[dict[str, Agent]]:
    with agents_on(cluster, tmp_path) as started:
        yield started


@contextmanager
def with_a_node_to_lose(cluster: LocalCluster, name: str, folder: Path) -> Iterator[dict[str, Agent]]:
    """The agents of all nodes and of one more, which Ray calls dead at the end."""
    cluster.join(name)
    with agents_on(cluster, folder) as started:
        yield started
        until(lambda: name not in {node.name for node in living_nodes()}, f"Ray still calls {name} alive")


def frames_from(bridge: Bridge, count: int) -> dict[str, list[int]]:
    """The numbers in the next frames, by sender."""
    found: dict[str, list[int]] = {}
    for _ in range(count):
        host, frame = bridge.receive()
        found.setdefault(host, []).append(int(frame))
    return found


def has_ended(pid: int) -> bool:
    """Whether a process is gone, or only waits to be reaped."""
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(") ")[2][0] == "Z"


def close(*bridges: Bridge) -> None:
    for bridge in bridges:
        bridge.close()


def test_frames_between_three_nodes_keep_their_order_and_none_is_lost(agents: dict[str, Agent]) -> None:
    bridge = Bridge(agents["a"])
    others = echo(agents["b"]), echo(agents["c"])
    for number in range(FRAMES):
        bridge.send("bc"[number % 2], b"%d" % number)
    assert frames_from(bridge, FRAMES) == {"b": list(range(0, FRAMES, 2)), "c": list(range(1, FRAMES, 2))}
    close(bridge, *others)


def test_a_killed_raylet_ends_its_agent_and_the_other_side_is_told(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    with with_a_node_to_lose(cluster, "d", tmp_path) as agents:
        bridge, lost, other = Bridge(agents["a"]), echo(agents["d"]), echo(agents["c"])
        bridge.send("d", b"1")
        assert bridge.receive() == ("d", b"1")
        cluster.kill("d")
        until(lambda: has_ended(agents["d"].place.pid), "the agent has not ended")
        bridge.send("d", b"2")
        assert bridge.receive() == ("d", b"")
        bridge.send("c", b"3")
        assert bridge.receive() == ("c", b"3")
        close(bridge, lost, other)


def test_a_raylet_that_nobody_reaps_ends_its_agent_too(cluster: LocalCluster, tmp_path: Path) -> None:
    with with_a_node_to_lose(cluster, "e", tmp_path) as agents:
        cluster.kill("e", reaps=False)
        until(lambda: has_ended(agents["e"].place.pid), "the agent has not ended")
        assert not has_ended(agents["b"].place.pid)


def test_a_frozen_agent_holds_nobody_up_and_its_host_is_told_as_gone(agents: dict[str, Agent]) -> None:
    bridge, frozen, other = Bridge(agents["a"]), echo(agents["b"]), echo(agents["c"])
    bridge.send("b", b"1")
    assert bridge.receive() == ("b", b"1")
    os.kill(agents["b"].place.pid, signal.SIGSTOP)
    try:
        bridge.send("b", b"2")
        bridge.send("c", b"3")
        assert bridge.receive() == ("c", b"3")
        assert bridge.receive() == ("b", b"")
    finally:
        os.kill(agents["b"].place.pid, signal.SIGCONT)
    close(bridge, frozen, other)


def test_a_host_that_ray_reports_gone_is_told_to_the_bridge(agents: dict[str, Agent]) -> None:
    import ray

    bridge = Bridge(agents["a"])
    ray.get(agents["a"].handle.gone.remote("b"))
    assert bridge.receive() == ("b", b"")
    close(bridge)
    introduce(agents.values())


def test_nothing_is_heard_of_a_host_that_ray_reports_gone_though_it_still_sends(
    agents: dict[str, Agent], tmp_path: Path
) -> None:
    import ray

    log = tmp_path / "a" / "logs" / "agent.jsonl"
    bridge, given_up, other = Bridge(agents["a"]), Bridge(agents["b"]), Bridge(agents["c"])
    ray.get(agents["a"].handle.gone.remote("b"))
    assert bridge.receive() == ("b", b"")
    given_up.send("a", b"1")
    until(lambda: log.exists() and "is not the agent of its host" in log.read_text(), "it was not dropped")
    other.send("a", b"2")
    assert bridge.receive() == ("c", b"2")
    introduce(agents.values())
    given_up.send("a", b"3")
    assert bridge.receive() == ("b", b"3")
    close(bridge, given_up, other)


def wrong_follower(folder: Path) -> FollowerSpec:
    return FollowerSpec(
        host="b@",  # no name of a host
        leader="a",
        folder=str(folder),
        wire=str(wire_path(folder)),
        capabilities={},
        engine_gpus=(),
        config_toml="",
        rows=1024,
        longest_shutdown_s=5.0,
    )


def test_a_follower_that_cannot_start_says_why_and_no_secret(
    agents: dict[str, Agent], tmp_path: Path
) -> None:
    import ray

    wrong = wrong_follower(tmp_path / "b")
    end = ray.get(agents["b"].handle.run.remote(wrong, {"PGPASSWORD": "hunter2"}), timeout=120)
    assert end.code != 0
    assert "host" in end.words
    assert "hunter2" not in end.words


def test_the_reason_of_a_failed_agent_call_is_its_last_line(agents: dict[str, Agent], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    running = agents["b"].handle.run.remote(wrong_follower(tmp_path / "file" / "b"), {})
    assert why_ended(running) == (
        "its agent could not run its actor system: "
        f"NotADirectoryError: [Errno 20] Not a directory: '{tmp_path / 'file' / 'b'}'"
    )
