"""Starts the agents of a cluster's nodes and makes them known to each other. Needs a connection to Ray."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dart.cluster.connection import NAMESPACE
from dart.cluster.host_agent import HostAgent, ListeningAgent
from dart.cluster.plan import ClusterNode
from dart.core.errors import TemporaryError

START_DEADLINE_S = 120.0
"""Longest time in seconds for an agent to start: Ray starts a Python, which imports dartrl."""


KNOW_S = 10.0
"""Longest wait in seconds for agents to learn each other's names. An agent that hangs soon counts as gone."""


@dataclass(frozen=True, slots=True)
class Agent:
    """The agent of one node."""

    node: ClusterNode
    name: str
    """Name of the agent in Ray: run id, host, first 8 digits of Ray's node id, number of the agent."""
    handle: Any
    place: ListeningAgent

    @property
    def gpus(self) -> tuple[str, ...]:
        """The GPUs of its node that the run may use: as many as Ray counts, the first ones, as in Ray.

        The node may have more, which `ray start --num-gpus` leaves to other programs.
        """
        return self.place.gpus[: self.node.gpus]


def start_agents(
    nodes: Iterable[ClusterNode], run_id: str, folders: Mapping[str, str], number: int
) -> list[Agent]:
    """Start an agent on each node, all at the same time, and have each open its socket.

    If one agent fails to start, those that started are ended.

    folders  each node's part of the run directory, by the name of the node
    number   number that makes the names of agents on the same node different
    raises   TemporaryError with the reason for each node on which no agent started
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
    """Tell every agent the names of all agents, and wait until they know them, at most KNOW_S.

    If an agent does not know the agent of a host, it drops frames for that host and tells its bridge that the
    host is gone.
    """
    import ray

    every = list(agents)
    names = {agent.node.name: agent.name for agent in every}
    ray.wait([agent.handle.know.remote(names) for agent in every], num_returns=len(every), timeout=KNOW_S)
