"""Three machines on one switch: `a` leads, `b` and `c` carry what needs a GPU; links are cut and slowed."""

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

import pytest

from actors.board import Board, Vitals
from actors.bridge import Links, WhichLinks
from actors.codec import to_plain
from actors.curve import make_keys
from actors.errors import ActorDied, AskError
from actors.process import is_alive
from supervision.child_spec import ChildSpec
from supervision.hosts import HostsNow, Whereabouts, WhereIs, WhichHosts, follower_spec, leader_spec
from supervision.placement import PlacedSpec
from tests.fault import network
from tests.fault.actors_under_test import PATIENCE_S, Probe, eventually
from tests.fault.machine import Here, Results, Where, WhichResults
from tests.fault.network import Network
from tests.fault.relay import Relay

LEASE_S = 2.0
PORT = 7000
JOB = "job"
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

    def __init__(self, net: Network, relay: Relay, machines: dict[str, Machine]) -> None:
        self.net = net
        self.relay = relay
        self.machines = machines

    def ask(self, to: str, content: Any, deadline_s: float = PATIENCE_S) -> Any:
        return self.machines["a"].probe.ask(to, content, deadline_s)

    def heal(self) -> None:
        """All links as they should be, all three hosts there, the job up and answering."""
        self.relay.delay_s, self.relay.is_held = 0.0, False
        for host in self.machines:
            self.net.heal(host)
        eventually(lambda: set(self.epochs()) == {"a", "b", "c"}, "all hosts are there", self.explain)
        self.await_job()

    def epochs(self) -> dict[str, int]:
        return {host.host: host.epoch for host in self.hosts().hosts}

    def hosts(self) -> HostsNow:
        now: HostsNow = self.ask("hosts", WhichHosts())
        return now

    def links(self) -> Links:
        links: Links = self.ask("bridge", WhichLinks())
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
        lines = [self.relay.explain()]
        with contextlib.suppress(AskError):
            lines += [str(self.hosts()), str(self.links())]
        for machine in self.machines.values():
            lines += [
                f"{machine.host}: {row.name} {row.state} inc={row.incarnation} {row.last_reason}"
                for row in machine.board.rows()
            ]
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
        leader = (net.address("a"), PORT)
        relay = Relay(leader, address=network.SWITCH_ADDRESS, namespace=net.switch)
        stack.callback(relay.close)
        machines = {}
        specs = _specs(folder, leader, (network.SWITCH_ADDRESS, relay.port))
        for host, children in specs.items():
            machines[host] = Machine(net, host, folder, *children)
            stack.callback(machines[host].close)
        for machine in machines.values():
            machine.await_up()
        cluster = Cluster(net, relay, machines)
        eventually(lambda: machines["a"].row("hosts") is not None, "hosts is there")
        yield cluster


def _specs(folder: Path, leader: tuple[str, int], relay: tuple[str, int]) -> dict[str, tuple[ChildSpec, ...]]:
    keys = {host: make_keys(folder / "keys" / host) for host in "abc"}
    job = PlacedSpec(child=ChildSpec(id=JOB, actor=f"{MODULE}:Traveller", shutdown_s=1.0), needs={"gpu": 1})
    collector = ChildSpec(id="collector", actor=f"{MODULE}:Collector")
    leads = leader_spec(
        host="a",
        listen=f"tcp://{leader[0]}:{leader[1]}",
        keys=folder / "keys" / "a",
        followers={host: keys[host].public.decode() for host in "bc"},
        placed=(job,),
        exports=("collector",),
        lease_s=LEASE_S,
    )
    return {"a": (collector, leads)} | {
        host: (
            follower_spec(
                host=host,
                connect=f"tcp://{address}:{port}",
                leader_key=keys["a"].public.decode(),
                keys=folder / "keys" / host,
                capabilities={"gpu": 1},
                lease_s=LEASE_S,
            ),
        )
        for host, (address, port) in {"b": leader, "c": relay}.items()
    }


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
    eventually(lambda: sum(cluster.results().values()) > before, "its results come in")


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
    cluster.relay.delay_s = 0.2
    end_s = time.monotonic() + 1.5 * LEASE_S
    while time.monotonic() < end_s:
        asked_at = time.monotonic()
        cluster.ask(JOB, Where())
        assert time.monotonic() - asked_at > 0.3, "the link is slow indeed"
    assert cluster.epochs()["c"] == epoch


def test_what_a_machine_sent_before_it_was_lost_arrives_after_and_is_refused(cluster: Cluster) -> None:
    cluster.bring_to("c")
    old = cluster.await_job()
    cluster.relay.is_held = True
    new = cluster.await_job(but_not="c")
    key = f"{JOB} {old.incarnation}"
    before, late = cluster.results().get(key), cluster.links().late
    cluster.relay.is_held = False
    eventually(lambda: cluster.links().late > late, "the held frames came late", cluster.explain)
    cluster.heal()
    assert cluster.results().get(key) == before
    assert cluster.await_job() == new, "who took over stays"
