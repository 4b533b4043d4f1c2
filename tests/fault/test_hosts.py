"""Three hosts on one switch: `a` leads, `b` and `c` carry what needs a GPU; links are cut and slowed.

Each has a stand-in for its agent (`tests.fault.agent`), which passes frames on over TCP.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from actors.board import ActorState, Board, Vitals
from actors.bridge_messages import Links, WhichLinks
from actors.codec import to_plain
from actors.errors import ActorDied, AskError
from actors.process import is_alive
from supervision.child_spec import Backoff, Breaker, ChildSpec, SupervisorFlags
from supervision.host_messages import Displace, HostsNow, Whereabouts, WhereIs, WhichHosts, place_actor
from supervision.host_specs import follower_spec, leader_spec
from supervision.placement import PlacedSpec
from supervision.supervisor import supervisor_spec
from tests.fault import network
from tests.fault.actors_under_test import PATIENCE_S, Probe, eventually
from tests.fault.agent import AgentProcess
from tests.fault.machine import Here, Results, Where, WhichResults
from tests.fault.network import Network
from tests.patience import slowness

LEASE_S = 2.0
PORT = 7000
JOB = "job"
SHARD = "shard"
FORGIVING = {
    "backoff": Backoff(initial_s=0.0, max_s=1.0),
    "breaker": Breaker(max_failures=1000, within_s=1.0),
}
"""These tests lose hosts more often than a leader would forgive."""
MODULE = "tests.fault.machine"


class Machine:
    """A process in a namespace with a run directory of its own; the test looks into it through files."""

    def __init__(self, net: Network, host: str, folder: Path, *children: ChildSpec) -> None:
        self.host = host
        self.folder = folder / host
        self.folder.mkdir()
        self._process = subprocess.Popen(
            net.command(host, sys.executable, "-m", MODULE, str(self.folder)),
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdin is not None
        json.dump([to_plain(child) for child in children], self._process.stdin)
        self._process.stdin.close()

    def await_up(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "up\n", f"machine {self.host} did not come up"
        self.board = Board(self.folder / "board")
        self.probe = Probe(self.folder, self.folder / "mail")

    def row(self, name: str) -> Vitals | None:
        slot = self.board.find(name)
        return None if slot is None else self.board.vitals(slot)

    def signal_all(self, number: signal.Signals) -> None:
        """Send a signal to every process of this machine, parents first."""
        own = psutil.Process(self._process.pid)
        for process in (own, *own.children(recursive=True)):
            process.send_signal(number)

    def close(self) -> None:
        self._process.kill()
        self._process.wait(PATIENCE_S)
        assert self._process.stdout is not None
        self._process.stdout.close()
        if hasattr(self, "probe"):
            self.probe.close()
            self.board.close()


class Cluster:
    """The three machines, and what a test asks of them."""

    def __init__(self, net: Network, agents: dict[str, AgentProcess], machines: dict[str, Machine]) -> None:
        self.net = net
        self.agents = agents
        self.machines = machines

    def ask(self, to: str, content: Any, deadline_s: float = PATIENCE_S) -> Any:
        return self.machines["a"].probe.ask(to, content, deadline_s)

    def heal(self) -> None:
        """All links as they should be, all three hosts there, the job up and answering."""
        for host in self.machines:
            self.agents[host].tell(delay_s=0.0, is_held=False)
            self.net.heal(host)
        eventually(lambda: set(self.epochs()) == {"a", "b", "c"}, "all hosts are there", self.explain)
        self.await_job()

    def epochs(self) -> dict[str, int]:
        return {host.host: host.epoch for host in self.hosts().hosts if host.state == "running"}

    def hosts(self) -> HostsNow:
        now: HostsNow = self.ask("hosts", WhichHosts())
        return now

    def links(self, host: str = "a") -> Links:
        links: Links = self.machines[host].probe.ask("bridge", WhichLinks(), PATIENCE_S)
        return links

    def where(self) -> Whereabouts:
        whereabouts: Whereabouts = self.ask("hosts", WhereIs(name=JOB))
        return whereabouts

    def await_job(self, but_not: str = "") -> Here:
        """The job answers an ask from the leader's machine."""
        answers: list[Here] = []

        def answers_now() -> bool:
            whereabouts = self.where()
            if not whereabouts.is_up or whereabouts.host == but_not:
                return False
            with contextlib.suppress(AskError):
                answers.append(self.ask(JOB, Where(), LEASE_S))  # mail may get lost with a connection
            return bool(answers)

        eventually(answers_now, f"{JOB} answers, elsewhere than on {but_not!r}", self.explain)
        return answers[0]

    def bring_to(self, host: str) -> None:
        """Have the job carried by `host`, which takes a loss of the other."""
        other = self.where().host
        if other != host:
            self.net.cut(other)
            self.await_job(but_not=other)
            self.heal()

    def results(self) -> dict[str, int]:
        results: Results = self.ask("collector", WhichResults())
        return results.counts

    def network_of(self, host: str) -> str:
        command = self.net.command(host, "readlink", "/proc/self/ns/net")
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    def explain(self) -> str:
        lines: list[str] = []
        with contextlib.suppress(AskError):
            lines += [str(self.hosts()), str(self.links())]
        for machine in self.machines.values():
            lines += [
                f"{machine.host}: {row.name} {row.state} inc={row.incarnation} {row.last_reason}"
                for row in machine.board.rows()
            ]
            log = machine.folder / "logs" / "bridge.jsonl"
            lines += [f"{machine.host} bridge: {line}" for line in log.read_text().splitlines()[-8:]]
        return "\n".join(lines)


@pytest.fixture(scope="module")
def three() -> Iterator[Cluster]:
    why_not = network.why_not()
    if why_not:
        pytest.skip(f"HOSTS ARE NOT TESTED: {why_not}")
    folder = Path(tempfile.mkdtemp(prefix="hosts-", dir="/tmp"))
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder)
        net = stack.enter_context(Network("a", "b", "c"))
        addresses = {host: (net.address(host), PORT) for host in "abc"}
        agents, machines = {}, {}
        for host, children in _specs(folder).items():
            enter = tuple(net.command(host))
            agents[host] = AgentProcess(host, folder / f"{host}.wire", addresses[host], addresses, enter)
            stack.callback(agents[host].close)
            machines[host] = Machine(net, host, folder, *children)
            stack.callback(machines[host].close)
        for machine in machines.values():
            machine.await_up()
        cluster = Cluster(net, agents, machines)
        eventually(lambda: machines["a"].row("hosts") is not None, "hosts is there")
        yield cluster


def _specs(folder: Path) -> dict[str, tuple[ChildSpec, ...]]:
    job = PlacedSpec(child=ChildSpec(id=JOB, actor=f"{MODULE}:Traveller", shutdown_s=1.0), needs={"gpu": 1})
    collector = ChildSpec(id="collector", actor=f"{MODULE}:Collector")
    leads = leader_spec(
        host="a", wire=folder / "a.wire", placed=(job,), exports=("collector",), lease_s=LEASE_S, **FORGIVING
    )
    follow = {
        host: follower_spec(
            host=host, leader="a", wire=folder / f"{host}.wire", capabilities={"gpu": 1}, lease_s=LEASE_S
        )
        for host in "bc"
    }
    return {"a": (collector, leads)} | {host: (follow[host],) for host in "bc"}


@pytest.fixture
def cluster(three: Cluster) -> Cluster:
    three.heal()
    return three


def test_an_actor_is_carried_by_a_machine_that_has_what_it_needs_and_answers_from_there(
    cluster: Cluster,
) -> None:
    here = cluster.await_job()
    host = cluster.where().host
    assert host in ("b", "c"), "a has no GPU"
    assert here.network == cluster.network_of(host) != cluster.network_of("a")
    row = cluster.machines["a"].row(JOB)
    assert row is not None
    assert (row.route > 0, row.incarnation) == (True, here.incarnation), "one incarnation, seen everywhere"
    before = sum(cluster.results().values())
    eventually(lambda: sum(cluster.results().values()) > before, "its results come in", cluster.explain)


@pytest.mark.parametrize("how", ["cut", "drop"])
def test_a_lost_machine_is_noticed_its_asks_end_and_another_machine_takes_over(
    cluster: Cluster, how: str
) -> None:
    old, lost = cluster.await_job(), cluster.where().host
    epoch = cluster.epochs()[lost]
    probe = cluster.machines["a"].probe
    asked = probe.actor.ask(JOB, Where(never_answer=True), deadline_s=600.0)
    cut_at = time.monotonic()
    getattr(cluster.net, how)(lost)
    with pytest.raises(
        ActorDied, match=f"host '{lost}' is lost: nothing was heard of it for 2 s|was restarted"
    ):
        probe.result(asked)
    assert time.monotonic() - cut_at < LEASE_S + PATIENCE_S / 2, "a few seconds, not minutes"
    new = cluster.await_job(but_not=lost)
    assert new.incarnation > old.incarnation
    eventually(
        lambda: not is_alive(old.pid), "the lost machine noticed too and stopped its own", cluster.explain
    )
    counts = cluster.results()
    cluster.heal()
    assert cluster.epochs()[lost] > epoch, "it is back under a new epoch"
    key = f"{JOB} {old.incarnation}"
    assert cluster.results().get(key) == counts.get(key), "and nothing of the old one was taken after"


def test_a_killed_bridge_is_back_and_what_was_placed_behind_it_is_placed_anew(cluster: Cluster) -> None:
    old, place = cluster.await_job(), cluster.where()
    bridge = cluster.machines[place.host].row("bridge")
    assert bridge is not None
    os.kill(bridge.pid, signal.SIGKILL)
    eventually(lambda: cluster.where().number > place.number, "it is placed anew", cluster.explain)
    assert cluster.await_job().incarnation > old.incarnation
    eventually(lambda: not is_alive(old.pid), "the old one is stopped", cluster.explain)


def test_a_slow_link_is_not_taken_for_a_lost_one(cluster: Cluster) -> None:
    cluster.bring_to("c")
    epoch = cluster.epochs()["c"]
    for agent in cluster.agents.values():
        agent.tell(delay_s=0.2)
    end_s = time.monotonic() + 1.5 * LEASE_S
    while time.monotonic() < end_s:
        asked_at = time.monotonic()
        cluster.ask(JOB, Where())
        assert time.monotonic() - asked_at > 0.3, "the link is slow indeed"
    assert cluster.epochs()["c"] == epoch


def test_what_a_machine_sent_before_it_was_lost_arrives_after_and_is_refused(cluster: Cluster) -> None:
    cluster.bring_to("c")
    old = cluster.await_job()
    cluster.agents["c"].tell(is_held=True)
    new = cluster.await_job(but_not="c")
    key = f"{JOB} {old.incarnation}"
    before, late = cluster.results().get(key), cluster.links().late
    cluster.agents["c"].tell(is_held=False)
    eventually(lambda: cluster.links().late > late, "the held frames came late", cluster.explain)
    cluster.heal()
    assert cluster.results().get(key) == before
    assert cluster.await_job() == new, "who took over stays"


def test_a_machine_that_its_agent_reports_gone_is_lost_before_its_lease_ends(cluster: Cluster) -> None:
    old, lost = cluster.await_job(), cluster.where().host
    cluster.agents["a"].tell(gone=lost)
    new = cluster.await_job(but_not=lost)
    assert new.incarnation > old.incarnation
    row = cluster.machines["a"].row(f"machine-{lost}")
    assert row is not None
    assert row.last_reason == "the host is lost: its agent is gone"
    eventually(lambda: not is_alive(old.pid), "the other side was told and stopped it", cluster.explain)


def test_a_bridge_whose_agent_hangs_up_is_started_anew_and_nothing_placed_lives_on_behind_it(
    cluster: Cluster,
) -> None:
    old, host = cluster.await_job(), cluster.where().host
    number = cluster.where().number
    cluster.agents[host].tell(hang_up=True)
    eventually(lambda: not is_alive(old.pid), "what was placed there is stopped", cluster.explain)
    eventually(lambda: cluster.where().number > number, "it is placed anew", cluster.explain)
    crash = cluster.machines[host].row("bridge")
    assert crash is not None
    assert "the agent of this host closed the wire" in crash.last_reason


def test_a_shard_of_many_actors_is_seen_everywhere_with_its_gauges_and_moves_whole(cluster: Cluster) -> None:
    children = tuple(ChildSpec(id=f"player-{n}", actor=f"{MODULE}:Player") for n in range(8))
    flags = SupervisorFlags(max_restarts=100, max_seconds=60.0)
    shard = PlacedSpec(child=supervisor_spec(SHARD, flags, children), needs={"gpu": 0})
    assert cluster.ask("hosts", place_actor(shard)).host in ("b", "c")
    names = {child.id for child in children}

    def seen_on(host: str) -> dict[str, int]:
        """The players that run, as a board has them, with the score that each publishes."""
        rows = cluster.machines[host].board.rows()
        return {
            row.name: row.gauges[0] for row in rows if row.name in names and row.state is ActorState.RUNNING
        }

    expected = {f"player-{n}": 100 + n for n in range(8)}
    for host in "abc":
        eventually(lambda host=host: seen_on(host) == expected, f"all are seen on {host}", cluster.explain)
    before = {row.name: row.incarnation for row in cluster.machines["a"].board.rows() if row.name in names}
    lost: Whereabouts = cluster.ask("hosts", WhereIs(name=SHARD))
    cluster.net.cut(lost.host)
    eventually(
        lambda: cluster.ask("hosts", WhereIs(name=SHARD)).number > lost.number, "it moves", cluster.explain
    )
    for host in "abc".replace(lost.host, ""):
        eventually(lambda host=host: seen_on(host) == expected, f"all are back on {host}", cluster.explain)
    after = {row.name: row.incarnation for row in cluster.machines["a"].board.rows() if row.name in names}
    assert all(after[name] > before[name] for name in names), "and no answer is taken for another's"
    cluster.heal()
    cluster.ask("hosts", Displace(name=SHARD))
    for host in "abc":
        eventually(lambda host=host: not seen_on(host), f"none is left on {host}", cluster.explain)


def test_a_frozen_actor_of_another_machine_ages_here_as_it_does_there(cluster: Cluster) -> None:
    job, host = cluster.await_job(), cluster.where().host
    os.kill(job.pid, signal.SIGSTOP)
    try:
        here, there = cluster.machines["a"], cluster.machines[host]
        eventually(lambda: age(here) > 2.0 and age(there) > 2.0, "both boards say so", cluster.explain)
        assert abs(age(here) - age(there)) < 1.5 * slowness()
    finally:
        os.kill(job.pid, signal.SIGCONT)
    eventually(lambda: age(cluster.machines["a"]) < 1.5, "it is well again", cluster.explain)


def test_a_machine_that_was_frozen_is_replaced_and_stops_its_own_when_it_thaws(cluster: Cluster) -> None:
    old, lost = cluster.await_job(), cluster.where().host
    frozen, agent = cluster.machines[lost], cluster.agents[lost]
    frozen.signal_all(signal.SIGSTOP)
    agent.send_signal(signal.SIGSTOP)
    try:
        new = cluster.await_job(but_not=lost)
        key = f"{JOB} {old.incarnation}"
        before = cluster.results().get(key)
    finally:
        agent.send_signal(signal.SIGCONT)
        frozen.signal_all(signal.SIGCONT)
    eventually(lambda: not is_alive(old.pid), "it noticed and stopped its own", cluster.explain)
    cluster.heal()
    assert cluster.results().get(key) == before, "nothing of the old one was taken after"
    assert cluster.await_job() == new, "who took over stays"


def age(machine: Machine) -> float:
    row = machine.row(JOB)
    return 0.0 if row is None else row.beat_age_s or 0.0
