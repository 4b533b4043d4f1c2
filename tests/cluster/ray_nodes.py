"""Agents of a Ray cluster on this machine, and the other side of their sockets."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from actors.wire import MAX_PACKET_BYTES, opened, packet
from dart.cluster import connection
from dart.cluster.local_cluster import LocalCluster
from dart.cluster.ray_agents import Agent, introduce, start_agents

WAIT_S = 60.0


@contextmanager
def agents_on(cluster: LocalCluster, folder: Path) -> Iterator[dict[str, Agent]]:
    """The agents of all nodes by host name."""
    with connection.connected(cluster.address, trusted_network=False) as nodes:
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
        self._socket.send(packet(host, frame))

    def receive(self) -> tuple[str, bytes]:
        """The next frame and its sender; an empty frame: that host is gone. Raises EOFError at the end."""
        data = self._socket.recv(MAX_PACKET_BYTES)
        if not data:
            raise EOFError
        found = opened(data)
        assert found is not None
        return found

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
