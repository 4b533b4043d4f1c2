"""The process of a run that is connected to Ray: `python -m dart.cluster.launcher`.

The launcher starts an agent on every node, watches which nodes Ray reports as alive, and starts agents on
nodes that join later. `dartrl up` starts the launcher, and the kernel kills it when `dartrl up` ends. When
the launcher ends, for whatever reason, Ray ends all agents, and with each agent the actor system of its node
ends, a *follower* of the control node.

standard input    a `LaunchJob` as one line of JSON; when the input is closed, the followers are stopped
standard output   one line of JSON: a `Joined`, or an error that a user can fix
"""

import json
import os
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import structlog

from actors.log import log_to
from actors.process import die_with_parent
from dart.cluster.connection import connected, living_nodes
from dart.cluster.forwarding import forwarded
from dart.cluster.host_agent import STOP_ROOM_S, FollowerEnd, FollowerSpec
from dart.cluster.manifests import head_address
from dart.cluster.membership import Membership, ReportGone, StartAgent
from dart.cluster.node_facts import NodeFacts, Roles
from dart.cluster.node_folder import node_folder
from dart.cluster.plan import (
    ClusterNode,
    ClusterPlan,
    DoesNotFit,
    capabilities,
    could_carry,
    plan_cluster,
)
from dart.cluster.probes import gather, last_line, node_results, refuse_failed, refuse_unfit, roles_of
from dart.cluster.ray_agents import Agent, introduce, start_agents
from dart.cluster.shards import longest_shard_stop_s
from dart.config.cluster import ClusterConfig
from dart.config.config import Config
from dart.config.layers import to_toml
from dart.core import errors
from dart.core.errors import DartError, TemporaryError, UnavailableError
from dart.core.run_directory import RunPaths
from dart.inspect.sidecar_status import CLUSTER, Sidecar, remove_sidecar, write_sidecar
from dart.inspect.terminal_safe import one_line

LOOK_S = 0.5
"""Interval in seconds at which Ray is asked which nodes are alive."""

RENEW_S = 1.0
"""Interval in seconds at which the launcher renews its lease at the agents."""

AGENTS_STOP_S = 15.0
"""How many seconds longer than an agent for its follower the launcher waits for all agents."""

ROWS_LEAST = 1024
ROWS_PER_ACTOR = 3
"""Rows of a board for each actor of the cluster: its own, and room for clients and names of lost hosts."""

NODES_S = 240.0
"""Longest wait in seconds until Ray runs on all machines of `engine.ssh`."""

LOG_BYTES = 16 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchJob:
    """The input of the launcher: which run to start on which cluster."""

    cluster: Mapping[str, Any]
    """The cluster file as plain data."""
    run: Mapping[str, Any]
    """The run's configuration as plain data."""
    run_dir: str
    """The run directory on the control node."""
    run_id: str
    """Name of the run that is unique among all runs of the cluster."""
    parent_pid: int
    is_continued: bool = False
    """Whether the run directory has a run, which is continued."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """The launcher's answer when all agents have started: the nodes, and the agent of the control node."""

    nodes: tuple[ClusterNode, ...]
    wire: str
    """Path of the socket of the control node's agent."""
    gpus: tuple[str, ...]
    """GPUs of the control node that the run may use, as CUDA_VISIBLE_DEVICES names them."""


def rows_of(run: Config, nodes: int) -> int:
    """Return the number of rows of a board that can show all actors of a run on this many nodes."""
    actors = run.rollout.count + run.environments.count + nodes
    return max(ROWS_LEAST, ROWS_PER_ACTOR * actors)


def followers_stop_s(run: Config) -> float:
    """Return the longest wait in seconds for all followers to stop."""
    return longest_shard_stop_s(run) + STOP_ROOM_S + AGENTS_STOP_S


@dataclass(slots=True)
class Launcher:
    """Keeps an agent running on every node. Use it in the thread that is connected to Ray."""

    job: LaunchJob
    log: Any
    cluster: ClusterConfig = field(init=False)
    run: Config = field(init=False)
    control: Agent = field(init=False)
    plan: ClusterPlan = field(init=False)
    agents: dict[str, Agent] = field(default_factory=dict)
    """The running agents by host, including that of the control node."""
    _names: dict[str, str] = field(default_factory=dict)
    """Names of the living nodes by Ray's node ids. A node keeps its name as long as it lives."""
    _membership: Membership = field(default_factory=Membership)
    _ends: dict[str, tuple[int, Any]] = field(default_factory=dict)
    """By host, the number of its agent, and Ray's reference to the future `FollowerEnd` of its follower; for
    the control node, which has no follower, a reference that fails when its agent ends."""
    _starting: dict[str, tuple[StartAgent, "Future[list[Agent]]"]] = field(default_factory=dict)
    _facts_of_control: NodeFacts = field(init=False)
    _shown: str = ""
    """What `dartrl status` shows of nodes without an agent."""
    _threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(16))

    def __post_init__(self) -> None:
        self.cluster = ClusterConfig.model_validate(self.job.cluster)
        self.run = Config.model_validate(self.job.run)

    def join(self, nodes: list[ClusterNode]) -> Joined:
        """Probe the nodes, start all agents and followers, and return a description of the cluster.

        raises   DoesNotFit, UnavailableError or TemporaryError
        """
        self.plan = plan_cluster(nodes, self.cluster.place, self.run)
        folders = {node.name: self._folder(node) for node in nodes}
        facts = gather(nodes, roles_of(self.plan, self.run), folders)
        self._facts_of_control, *_ = facts
        refuse_failed(node_results(facts))
        started = start_agents(nodes, self.job.run_id, folders, 1)
        self.agents = {agent.node.name: agent for agent in started}
        self.control = next(agent for agent in started if agent.node.is_control)
        introduce(started)
        for agent in started:
            self._begin(agent, 1)
        self._names = {node.node_id: node.name for node in nodes}
        self._membership.started(nodes, time.monotonic())
        self._require_gpus()
        return Joined(nodes=tuple(nodes), wire=self.control.place.wire, gpus=self.control.gpus)

    def look(self) -> None:
        """Find nodes that joined or are gone and agents that ended; start agents, and report lost ones."""
        now_s = time.monotonic()
        living = living_nodes(self._names)
        self._names = {node.node_id: node.name for node in living}
        actions = list(self._membership.seen(living, now_s))
        for host, number, reason in [*self._collect_starts(), *self._collect_ends()]:
            self.log.warning("node_ended", host=host, reason=reason)
            actions += self._membership.ended(host, number, reason, now_s)
        for action in actions:
            match action:
                case ReportGone():
                    self._report(action)
                case StartAgent():
                    self._start(action)
        self._show_reasons_down()

    def renew_leases(self) -> None:
        """Renew the lease at every agent, until the process ends.

        Call this in a thread of its own: `look` may wait for Ray's head, but the leases must be renewed.
        """
        while True:
            for agent in list(self.agents.values()):
                agent.handle.renew.remote()
            time.sleep(RENEW_S)

    def stop(self) -> None:
        """Stop all followers, their children first, and wait for them, at most `followers_stop_s`."""
        import ray

        stops = [self.agents[host].handle.stop.remote() for host in self._ends if host in self.agents]
        if stops:
            ray.wait(stops, num_returns=len(stops), timeout=followers_stop_s(self.run))

    # ---- inside ----

    def _require_gpus(self) -> None:
        """Raise UnavailableError if Ray counts more GPUs on a node than its CUDA_VISIBLE_DEVICES names."""
        wrong = [
            f"{agent.node.name}: Ray counts {agent.node.gpus} GPUs, and {len(agent.place.gpus)} are visible"
            for agent in self.agents.values()
            if agent.node.gpus > len(agent.place.gpus)
        ]
        if wrong:
            raise UnavailableError(
                "; ".join(wrong) + "; start Ray there with --num-gpus set to the number of visible GPUs"
            )

    def _folder(self, node: ClusterNode) -> str:
        return str(node_folder(node, Path(self.job.run_dir), self.cluster.engine.node_dir))

    def _begin(self, agent: Agent, number: int) -> None:
        """Have an agent run its node's actor system. That of the control node runs already, without it."""
        if agent.node.is_control:
            self.control = agent
            self._ends[agent.node.name] = number, agent.handle.outlive.remote()
            return
        self._follow(agent, number)
        self._say_joined(agent)

    def _follow(self, agent: Agent, number: int) -> None:
        """Have an agent run its node's actor system."""
        spec = FollowerSpec(
            host=agent.node.name,
            leader=self.control.node.name,
            folder=self._folder(agent.node),
            wire=agent.place.wire,
            capabilities=capabilities(agent.node, self.cluster.place, reserved_gpus=0),
            engine_gpus=agent.gpus,
            config_toml=to_toml(self.run.model_dump(mode="json"), {}),
            rows=rows_of(self.run, len(self.agents)),
            longest_shutdown_s=longest_shard_stop_s(self.run),
        )
        self._ends[agent.node.name] = number, agent.handle.run.remote(spec, forwarded(self.run, os.environ))

    def _say_joined(self, agent: Agent) -> None:
        """Log that a node has joined, with the folder that has the logs and reports of its actors."""
        node = agent.node
        self.log.info("node_joined", host=node.name, address=node.address, folder=self._folder(node))

    def _report(self, news: ReportGone) -> None:
        self.log.warning("node_gone", host=news.host, reason=news.reason)
        self._ends.pop(news.host, None)
        if agent := self.agents.pop(news.host, None):
            _kill(agent)
        self.control.handle.gone.remote(news.host)

    def _show_reasons_down(self) -> None:
        """Have `dartrl status` name the nodes without an agent, with the reasons."""
        reasons = self._membership.reasons_down()
        text = "; ".join(
            f"node {host} has no agent, and is tried again: {one_line(why)}" for host, why in reasons.items()
        )
        paths = RunPaths(Path(self.job.run_dir))
        if text == self._shown or not paths.config.exists():  # before it, the directory has no run
            return
        with suppress(OSError):  # on a full disk: at the next look
            if text:
                write_sidecar(paths, Sidecar(name=CLUSTER, is_well=False, text=text))
            else:
                remove_sidecar(paths, CLUSTER)
            self._shown = text

    def _start(self, order: StartAgent) -> None:
        self.log.info("node_starting", host=order.node.name, number=order.number)
        self._starting[order.node.name] = order, self._threads.submit(self._started, order)

    def _started(self, order: StartAgent) -> list[Agent]:
        """Start the agent of an order in a thread, after the probes that every node passes before a run.

        The node may have come back with another version of dartrl, or with a wrong clock. The control node is
        not probed again: the run, and so its version, has been there all the time.
        """
        node, folder = order.node, self._folder(order.node)
        if not node.is_control:
            refuse_unfit(self._facts_of_control, node, self._roles_of(node), folder)
        return start_agents([node], self.job.run_id, {node.name: folder}, order.number)

    def _roles_of(self, node: ClusterNode) -> Roles:
        """Return what a node is probed for: its part in the plan, or all that a new node could carry."""
        planned = next((one for one in self.plan.nodes if one.node == node.name), None)
        part = planned or could_carry(node, self.cluster.place, self.plan)
        return roles_of(replace(self.plan, nodes=(part,)), self.run)[node.name]

    def _collect_starts(self) -> list[tuple[str, int, str]]:
        """Have agents that have started run their actor systems.

        Return the host, the number and the reason of each agent that failed to start.
        """
        failed = []
        for host, (order, starting) in list(self._starting.items()):
            if not starting.done():
                continue
            del self._starting[host]
            if error := starting.exception():
                failed.append((host, order.number, str(error)))
                continue
            (agent,) = starting.result()
            if not self._membership.expects(order):
                _kill(agent)
                continue
            self.agents[host] = agent
            introduce(self.agents.values())
            self._begin(agent, order.number)
            self._membership.began(host)
        return failed

    def _collect_ends(self) -> list[tuple[str, int, str]]:
        """Return the host, the number of the agent and the reason of each actor system that has ended."""
        import ray

        running = {reference: host for host, (_, reference) in self._ends.items()}
        if not running:
            return []
        done, _ = ray.wait(list(running), num_returns=len(running), timeout=0)
        ends = [(host := running[one], *self._ends.pop(host)) for one in done]
        return [(host, number, why_ended(reference)) for host, number, reference in ends]


def why_ended(reference: Any) -> str:
    """Return why an actor system ended.

    reference   Ray's reference to its `FollowerEnd`
    """
    import ray

    try:
        end: FollowerEnd = ray.get(reference)
    except ray.exceptions.RayTaskError as error:  # the agent lives; the last line of its traceback says why
        return f"its agent could not run its actor system: {last_line(error)}"
    except ray.exceptions.RayError as error:
        return f"its agent ended: {str(error).splitlines()[0]}"
    return f"its actor system ended with exit code {end.code}: {end.words or 'it said nothing'}"


def _kill(agent: Agent) -> None:
    """Kill an agent if it still runs; its actor system ends with it.

    Even the agent of a node that Ray reports as dead can still run for a while.
    """
    import ray

    ray.kill(agent.handle)


def main() -> int:
    """Join the cluster, run until standard input is closed, stop the followers, and return the exit code."""
    job = LaunchJob(**json.loads(sys.stdin.readline()))
    die_with_parent(job.parent_pid)
    log_to(Path(job.run_dir) / "logs" / "cluster.jsonl", LOG_BYTES)
    launcher = Launcher(job, structlog.get_logger())
    asked = threading.Event()
    threading.Thread(target=_await_end_of_input, args=(asked,), daemon=True).start()
    cluster = launcher.cluster
    try:
        with connected(head_address(cluster.engine), trusted_network=cluster.trusted_network):
            threading.Thread(target=launcher.renew_leases, name="leases", daemon=True).start()
            _say(asdict(launcher.join(_nodes_when_there(len(cluster.engine.ssh)))))
            while not asked.wait(LOOK_S):
                launcher.look()
            launcher.stop()
    except DartError as error:
        _say(failure_of(error, is_continued=job.is_continued))
        return os.EX_UNAVAILABLE
    return os.EX_OK


def failure_of(error: DartError, *, is_continued: bool) -> dict[str, str]:
    """Return what the launcher says of an error: the nearest class in `dart.core.errors`, and the text.

    is_continued   whether the run was there before. If it does not fit then, nodes may not be back yet
    """
    if is_continued and isinstance(error, DoesNotFit):
        error = TemporaryError(f"{error}\nif nodes of the run are not back yet, start Ray on them")
    kind = next(one.__name__ for one in type(error).__mro__ if one.__module__ == errors.__name__)
    return {"error": kind, "text": str(error)}


def _nodes_when_there(count: int) -> list[ClusterNode]:
    """Wait until `count` nodes are alive, and return the living nodes.

    Raises TemporaryError if this takes longer than NODES_S.
    """
    give_up_s = time.monotonic() + NODES_S
    while len(nodes := living_nodes()) < count:
        if time.monotonic() > give_up_s:
            there = ", ".join(sorted(node.address for node in nodes))
            raise TemporaryError(
                f"engine.ssh names {count} machines, and after {NODES_S:g} s Ray runs on {len(nodes)} "
                f"({there}); `ray monitor logs/ray-cluster.yaml` in the run directory says why"
            )
        time.sleep(LOOK_S)
    return nodes


def _await_end_of_input(ended: threading.Event) -> None:
    sys.stdin.read()
    ended.set()


def _say(content: Mapping[str, Any]) -> None:
    print(json.dumps(content), flush=True)


if __name__ == "__main__":
    sys.exit(main())
