"""Starting, finding and calling the agents of a cluster's nodes, for the process that is connected to Ray."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dart.cluster.connection import NAMESPACE
from dart.cluster.host_agent import HostAgent, ListeningAgent
from dart.cluster.plan import ClusterNode
from dart.core.errors import TemporaryError

START_DEADLINE_S = 120.0
"""Time for an agent to start: Ray starts a Python and imports dartrl."""


KNOW_S = 10.0
"""Longest wait for agents to learn of each other; one that hangs is lost soon."""


@dataclass(frozen=True, slots=True)
class Agent:
    """The agent of one node."""

    node: ClusterNode
    name: str
    """Its name in Ray: the run, the host, the start of the node and the number of the agent there."""
    handle: Any
    place: ListeningAgent


def start_agents(
    nodes: Iterable[ClusterNode], run_id: str, folders: Mapping[str, str], number: int
) -> list[Agent]:
    """Start an agent on each node, all at the same time, and have each open its socket.

    folders  each node's part of the run directory, by the host's name
    number   tells agents of the same start of a node apart
    raises   TemporaryError that names the nodes on which none started, and why
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    made = []
    for node in nodes:
        name = f"{run_id}/{node.name}/{node.node_id[:8]}/{number}"
        where = NodeAffinitySchedulingStrategy(node.node_id, soft=False)
        handle = (
            ray.remote(HostAgent)
            .options(name=name, namespace=NAMESPACE, num_cpus=0, max_restarts=0, scheduling_strategy=where)
            .remote()
        )
        made.append((node, name, handle, handle.listen.remote(name, node.name, folders[node.name])))
    started, failures = [], []
    for node, name, handle, listening in made:
        try:
            started.append(Agent(node, name, handle, ray.get(listening, timeout=START_DEADLINE_S)))
        except (ray.exceptions.RayError, TimeoutError) as error:
            ray.kill(handle)
            failures.append(f"no agent started on {node.name}: {error}")
    if failures:
        for agent in started:
            ray.kill(agent.handle)
        raise TemporaryError("\n".join(failures))
    return started


def introduce(agents: Iterable[Agent]) -> None:
    """Have every agent know the names of all others. Waits for those that live.

    A frame to a host that its agent does not know is lost, and the bridge is told that the host is gone.
    """
    import ray

    every = list(agents)
    names = {agent.node.name: agent.name for agent in every}
    ray.wait([agent.handle.know.remote(names) for agent in every], num_returns=len(every), timeout=KNOW_S)
