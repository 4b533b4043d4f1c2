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
"""Size of the object store of each node; frames between hosts need little of it."""

CPUS = 2


class LocalCluster:
    """Some nodes, each with a raylet of its own; the first one is the head."""

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
        """The address at which clients join."""
        return str(self._cluster.address)

    def join(self, name: str) -> None:
        """Start one more node."""
        self._nodes[name] = self._cluster.add_node(**self._common, labels={NAME_LABEL: name})

    def kill(self, name: str, *, reaps: bool = True) -> None:
        """SIGKILL the raylet of a node, as the loss of a machine would.

        reaps   whether the dead process is reaped, as an init does, or stays a zombie
        """
        raylet: subprocess.Popen[bytes] = self._nodes[name].all_processes["raylet"][0].process
        os.kill(raylet.pid, signal.SIGKILL)
        if reaps:
            threading.Thread(target=raylet.wait, daemon=True).start()

    def kill_machine(self, name: str) -> None:
        """SIGKILL all of Ray on a node, of the head the cluster's own services too."""
        for processes in self._nodes[name].all_processes.values():
            for one in processes:
                os.kill(one.process.pid, signal.SIGKILL)
                one.process.wait()

    def stop(self) -> None:
        """End all nodes."""
        self._cluster.shutdown()


@contextmanager
def local_cluster(*names: str, needs_token: bool = True, **resources: int) -> Iterator[LocalCluster]:
    """A cluster with a node for each name, while the block lasts; clients find its token in the environment.

    needs_token   whether clients need a token
    resources     custom resources of every node but the head
    Ray reads its mode of authentication when it is imported, so a process has clusters of one mode only.
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
    """The token of all clusters of this process: Ray keeps the first one that it has read."""
    return secrets.token_hex(32)
