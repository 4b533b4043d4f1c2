"""A Ray cluster on this machine for tests: its nodes, and the other side of the agents' sockets."""

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dart.cluster import connection
from dart.cluster.ray_agents import Agent, introduce, start_agents

TOKEN = "0123456789abcdef" * 4
STORE_BYTES = 80_000_000
WAIT_S = 60.0


@contextmanager
def ray_cluster(*names: str, token: str = TOKEN, **of_others: Any) -> Iterator[Any]:
    """A cluster with a node for each name, the first one the head.

    token   of its authentication; empty: it answers everyone
    """
    before = dict(os.environ)
    os.environ |= {"RAY_AUTH_MODE": "token" if token else "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
    if token:
        os.environ["RAY_AUTH_TOKEN"] = token
    from ray.cluster_utils import Cluster

    common: dict[str, Any] = {"num_cpus": 2, "object_store_memory": STORE_BYTES}
    head, *others = names
    made = Cluster(
        initialize_head=True,
        head_node_args={**common, "include_dashboard": False, "labels": {"dartrl-node": head}},
    )
    try:
        made.nodes_by_name = {head: made.head_node}
        for name in others:
            made.nodes_by_name[name] = made.add_node(**common, labels={"dartrl-node": name}, **of_others)
        made.wait_for_nodes()
        yield made
    finally:
        made.shutdown()
        os.environ.clear()
        os.environ.update(before)


def kill_raylet(cluster: Any, name: str, *, reaps: bool = True) -> None:
    """SIGKILL the raylet of a node. Whether it is reaped, as an init does, or stays a zombie."""
    process: subprocess.Popen[bytes] = cluster.nodes_by_name[name].all_processes["raylet"][0].process
    os.kill(process.pid, signal.SIGKILL)
    if reaps:
        threading.Thread(target=process.wait, daemon=True).start()


@contextmanager
def agents_on(cluster: Any, folder: Path) -> Iterator[dict[str, Agent]]:
    """The agents of all nodes by host name."""
    with connection.connected(cluster.address, trusted_network=True) as nodes:
        started = start_agents(nodes, "test", {node.name: str(folder / node.name) for node in nodes}, 1)
        introduce(started)
        yield {agent.node.name: agent for agent in started}


class Bridge:
    """What a bridge does with its socket: sends frames, reads frames, both with a deadline."""

    def __init__(self, agent: Agent) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(WAIT_S)
        self._socket.connect(agent.place.wire)

    def send(self, host: str, frame: bytes) -> None:
        name = host.encode()
        self._socket.send(bytes([len(name)]) + name + frame)

    def receive(self) -> tuple[str, bytes]:
        """The next frame and its sender; an empty frame: that host is gone. Raises EOFError at the end."""
        packet = self._socket.recv(1 << 20)
        if not packet:
            raise EOFError
        end = 1 + packet[0]
        return packet[1:end].decode(), packet[end:]

    def close(self) -> None:
        self._socket.close()


def echo(agent: Agent) -> Bridge:
    """A bridge that sends every frame back to its sender, in a thread, until its socket ends."""
    bridge = Bridge(agent)

    def answer() -> None:
        try:
            while True:
                sender, frame = bridge.receive()
                if frame:
                    bridge.send(sender, frame)
        except (EOFError, OSError):
            return

    threading.Thread(target=answer, daemon=True).start()
    return bridge


def until(holds: Callable[[], bool], what: str, deadline_s: float = WAIT_S) -> float:
    """Wait until something holds, and return the seconds it took."""
    began_s = time.monotonic()
    while not holds():
        assert time.monotonic() - began_s < deadline_s, what
        time.sleep(0.01)
    return time.monotonic() - began_s
