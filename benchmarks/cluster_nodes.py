"""Ray nodes that are network namespaces of this machine: killed, frozen, cut off, and back.

A *place* is a namespace, as a machine is. The Ray node that runs there has a name of its own, by which a run
knows it. All of Ray's settings that decide when a node is dead are Ray's defaults.
"""

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from dart.cluster.local_cluster import STORE_BYTES
from dart.cluster.node_names import NAME_LABEL
from tests.fault.network import Network

CONTROL = "control"
"""The place of the head of Ray, the servers and `dartrl up`."""

PORT = 6379
RESOURCE = "player"
"""What the nodes beside the control node have."""

START_S = "240"
"""Longest time for a raylet to start; it decides nothing about a node that runs."""

TIED = ("setpriv", "--pdeathsig", "TERM", "--")
"""Before a command: it is told to end when the benchmark dies."""

END_DEADLINE_S = 20.0
POLL_S = 0.05

VARIABLES = {
    "RAY_AUTH_MODE": "token",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_raylet_start_wait_time_s": START_S,
}


@dataclass(slots=True)
class Node:
    """The Ray node of a place."""

    place: str
    name: str
    process: "subprocess.Popen[bytes]"
    """`ray start --block`, which ends with its raylet."""
    starts: int = 1
    """Number of names that Ray nodes of this place have had."""

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None


class Nodes:
    """The Ray nodes of all places, the head first. Use `running_nodes`."""

    def __init__(self, net: Network, places: Sequence[str], folder: Path) -> None:
        self.net = net
        self._folder = folder
        self._environment = os.environ | VARIABLES | {"RAY_AUTH_TOKEN": secrets.token_hex(32)}
        self.workers: dict[str, Node] = {}
        """By place; the control node is not among them."""
        head = ("--head", "--port", str(PORT), "--include-dashboard", "False")
        self._head = self._start(CONTROL, CONTROL, *head)
        for place in places:
            self.workers[place] = Node(place, place, self._start_worker(place, place))

    @property
    def address(self) -> str:
        """The address at which nodes and clients join."""
        return f"{self.net.address(CONTROL)}:{PORT}"

    @property
    def environment(self) -> dict[str, str]:
        """What a client of this cluster has in its environment."""
        return self._environment

    def start_again(self, node: Node) -> None:
        """Start Ray at a place where it has ended, under a name that no node had, as a new machine has."""
        node.starts += 1
        node.name = f"{node.place}{node.starts}"
        self.end(node)
        node.process = self._start_worker(node.place, node.name)

    def end(self, node: Node) -> None:
        """End every process of a place."""
        self.signal_all(node.place, signal.SIGKILL)
        node.process.wait(END_DEADLINE_S)

    def signal_all(self, place: str, number: signal.Signals) -> None:
        """Send a signal to every process of a place, also to those that are forked meanwhile."""
        done: set[int] = set()
        while new := set(self.net.pids(place)) - done:
            for pid in new:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
            done |= new

    def close(self) -> None:
        """End every process of every place but this one."""
        for place in (*self.workers, CONTROL):
            give_up_s = time.monotonic() + END_DEADLINE_S
            while (left := set(self.net.pids(place)) - {os.getpid()}) and time.monotonic() < give_up_s:
                for pid in left:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                time.sleep(POLL_S)
        for process in (self._head, *(node.process for node in self.workers.values())):
            process.wait(END_DEADLINE_S)

    # ---- inside ----

    def _start_worker(self, place: str, name: str) -> "subprocess.Popen[bytes]":
        return self._start(place, name, "--address", self.address, "--resources", f'{{"{RESOURCE}": 1}}')

    def _start(self, place: str, name: str, *options: str) -> "subprocess.Popen[bytes]":
        common = ("--block", "--disable-usage-stats", "--include-log-monitor", "False", "--num-cpus", "0")
        size = ("--object-store-memory", str(STORE_BYTES))
        ray = (sys.executable, "-m", "ray.scripts.scripts", "start", *common, *size, *options)
        # Nodes of one folder that start at the same time choose the same names for their sockets.
        own = ("--node-ip-address", self.net.address(place), "--temp-dir", str(self._folder / place))
        known_as = ("--labels", f"{NAME_LABEL}={name}")
        with (self._folder / f"ray-{place}.output").open("ab") as output:
            return subprocess.Popen(
                self.net.command(place, *TIED, *ray, *own, *known_as),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self._environment,
                start_new_session=True,
            )


@contextmanager
def running_nodes(net: Network, places: Sequence[str], folder: Path) -> Iterator[Nodes]:
    """A head and a node for each place, while the block lasts. They may still be on their way."""
    nodes = Nodes(net, places, folder)
    try:
        yield nodes
    finally:
        nodes.close()
