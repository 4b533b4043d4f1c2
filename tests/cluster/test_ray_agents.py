"""Agents on three real Ray nodes: frames, a killed raylet, one that nobody reaps, a frozen agent."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dart.cluster.host_agent import wire_path
from dart.cluster.ray_agents import Agent
from tests.cluster.ray_nodes import Bridge, agents_on, echo, kill_raylet, ray_cluster, until

FRAMES = 3000


@pytest.fixture
def cluster() -> Iterator[Any]:
    with ray_cluster("a", "b", "c") as made:
        yield made


@pytest.fixture
def agents(cluster: Any, tmp_path: Path) -> Iterator[dict[str, Agent]]:
    with agents_on(cluster, tmp_path) as started:
        yield started


def frames_from(bridge: Bridge, count: int) -> dict[str, list[int]]:
    """The numbers in the next frames, by sender."""
    found: dict[str, list[int]] = {}
    for _ in range(count):
        host, frame = bridge.receive()
        found.setdefault(host, []).append(int(frame))
    return found


def test_frames_between_three_nodes_keep_their_order_and_none_is_lost(agents: dict[str, Agent]) -> None:
    bridge = Bridge(agents["a"])
    others = echo(agents["b"]), echo(agents["c"])
    for number in range(FRAMES):
        bridge.send("bc"[number % 2], b"%d" % number)
    found = frames_from(bridge, FRAMES)
    assert found == {"b": list(range(0, FRAMES, 2)), "c": list(range(1, FRAMES, 2))}
    for one in (bridge, *others):
        one.close()


def test_a_killed_raylet_ends_its_agent_and_the_other_side_is_told(
    cluster: Any, agents: dict[str, Agent]
) -> None:
    bridge, other, third = Bridge(agents["a"]), echo(agents["b"]), echo(agents["c"])
    bridge.send("b", b"1")
    assert bridge.receive() == ("b", b"1")
    kill_raylet(cluster, "b")
    until(lambda: not Path(f"/proc/{agents['b'].place.pid}").exists(), "the agent has not ended")
    bridge.send("b", b"2")
    assert bridge.receive() == ("b", b"")
    bridge.send("c", b"3")
    assert bridge.receive() == ("c", b"3")
    for one in (bridge, other, third):
        one.close()


def test_a_raylet_that_nobody_reaps_ends_its_agent_too(cluster: Any, agents: dict[str, Agent]) -> None:
    kill_raylet(cluster, "c", reaps=False)
    until(lambda: _has_ended(agents["c"].place.pid), "the agent has not ended")
    assert not _has_ended(agents["b"].place.pid)


def _has_ended(pid: int) -> bool:
    """Whether a process is gone, or only waits to be reaped."""
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(") ")[2][0] == "Z"


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
    for one in (bridge, frozen, other):
        one.close()


def test_a_host_that_ray_reports_gone_is_told_to_the_bridge(agents: dict[str, Agent]) -> None:
    import ray

    bridge = Bridge(agents["a"])
    ray.get(agents["a"].handle.gone.remote("b"))
    assert bridge.receive() == ("b", b"")
    bridge.close()


def test_a_follower_that_cannot_start_says_why(agents: dict[str, Agent], tmp_path: Path) -> None:
    import ray

    from dart.cluster.host_agent import FollowerSpec

    wrong = FollowerSpec(
        host="b@",  # no name of a host
        leader="a",
        folder=str(tmp_path / "b"),
        wire=str(wire_path(tmp_path / "b")),
        capabilities={},
        engine_gpus=(),
        config_toml="",
        rows=1024,
    )
    end = ray.get(agents["b"].handle.run.remote(wrong, {"PGPASSWORD": "secret"}), timeout=120)
    assert end.code != 0
    assert "host" in end.words
    assert "secret" not in end.words
