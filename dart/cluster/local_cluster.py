"""A Ray cluster of several nodes on this machine, for demonstrations and tests."""

import os
import secrets
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from dart.cluster.node_names import NAME_LABEL

STORE_BYTES = 80_000_000
"""Size of the object store of each node in bytes; frames between hosts need little of it."""

CPUS = 2


class LocalCluster:
    """The nodes of a Ray cluster on this machine. Each has its own raylet; the first node is the head."""

    def __init__(self, names: tuple[str, ...], resources: dict[str, int]) -> None:
        from ray.cluster_utils import Cluster

        common: dict[str, Any] = {"num_cpus": CPUS, "object_store_memory": STORE_BYTES}
        head, *others = names
        first = {**common, "include_dashboard": False, "labels": {NAME_LABEL: head}}
        self._cluster = Cluster(initialize_head=True, head_node_args=first)
        self._common = {**common, "resources": resources}
        self._nodes = {head: self._cluster.head_node}
        for name in others:
            self.join(name)
        self._cluster.wait_for_nodes()

    @property
    def address(self) -> str:
        """The address at which clients join the cluster."""
        return str(self._cluster.address)

    def join(self, name: str) -> None:
        """Start another node with this name."""
        self._nodes[name] = self._cluster.add_node(**self._common, labels={NAME_LABEL: name})

    def kill(self, name: str, *, reaps: bool = True) -> None:
        """Kill the raylet of a node with SIGKILL, to simulate the loss of a machine.

        reaps   whether the dead process is reaped, as init would do; otherwise it stays a zombie
        """
        raylet: subprocess.Popen[bytes] = self._nodes[name].all_processes["raylet"][0].process
        os.kill(raylet.pid, signal.SIGKILL)
        if reaps:
            threading.Thread(target=raylet.wait, daemon=True).start()

    def kill_machine(self, name: str) -> None:
        """Kill all processes of Ray on a node with SIGKILL; on the head, also the cluster's services."""
        for processes in self._nodes[name].all_processes.values():
            for one in processes:
                os.kill(one.process.pid, signal.SIGKILL)
                one.process.wait()

    def stop(self) -> None:
        """Stop all nodes."""
        self._cluster.shutdown()


@contextmanager
def local_cluster(*names: str, needs_token: bool = True, **resources: int) -> Iterator[LocalCluster]:
    """Run a Ray cluster with a node for each name while the block lasts.

    The token of the cluster is in the environment variables, where clients find it. Ray reads the mode of
    authentication when it is imported, so one process can use this with one value of `needs_token` only.

    needs_token   whether clients need a token
    resources     custom resources of every node except the head
    """
    before = dict(os.environ)
    os.environ |= {"RAY_AUTH_MODE": "token" if needs_token else "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
    if needs_token:
        os.environ["RAY_AUTH_TOKEN"] = _token()
    try:
        cluster = LocalCluster(names, resources)
        try:
            yield cluster
        finally:
            cluster.stop()
    finally:
        os.environ.clear()
        os.environ.update(before)


@cache
def _token() -> str:
    """Return the token of all clusters of this process. It never changes, because Ray reads it only once."""
    return secrets.token_hex(32)
