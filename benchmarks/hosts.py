"""What a second host costs, and how soon the loss of one is repaired; all of them are this machine.

* round trip, asks a second: an actor of the leader asks one on its own host, and one on another, in turns.
* lost: from SIGKILL of a whole host until an ask that waited for it ends.
* repaired: from the same moment until its successor on a third host has answered.
* rows: bytes a second that a host says of so many actors below a placed supervisor, when nothing happens.

The agents of the hosts are stand-ins that pass frames on over TCP (`tests.fault.agent`).

``python -m benchmarks.hosts`` prints a table and writes ``benchmarks/out/hosts.json``.
"""

import argparse
import contextlib
import json
import os
import platform
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from actors import Actor, ActorDied, ActorSystem, AskError, Refused, Sender, message, receives
from actors.bridge_messages import Links, WhichLinks
from actors.link import LEASE_S
from actors.process import die_with_parent
from benchmarks.runs import spread
from supervision import supervised, worker
from supervision.child_spec import Backoff, Breaker, SupervisorFlags
from supervision.host_messages import Displace, Whereabouts, WhereIs, WhichHosts, place_actor
from supervision.host_specs import follower_spec, leader_spec
from supervision.placement import PlacedSpec
from supervision.supervisor import supervisor_spec
from tests.fault.agent import AgentProcess

OUT = Path(__file__).parent / "out" / "hosts.json"
DEADLINE_S = 60.0
FOLLOWERS = ("b", "c")
ROWS = (16, 64)
TELLING_S = 5.0


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """Answered by itself, or never."""

    text: str
    is_answered: bool = True


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """Ask `to` so many times in turn, then so many times at once. Answered by Measured."""

    to: str
    round_trips: int
    burst: int


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    round_trip_ms: float
    asks_per_s: float


class Echo(Actor):
    """Answers with what it was asked."""

    @receives(Text)
    async def echo(self, call: Text, sender: Sender) -> Text:
        if not call.is_answered:
            await self.sleep(DEADLINE_S)
        return call


class Asker(Actor):
    """Measures from inside the leader's host."""

    @receives(Measure)
    async def measure(self, call: Measure, sender: Sender) -> Measured:
        text = Text(text="x" * 100)
        trips_ms = []
        for _ in range(call.round_trips):
            began_s = time.perf_counter()
            await self.ask(call.to, text)
            trips_ms.append((time.perf_counter() - began_s) * 1000)
        began_s = time.perf_counter()
        for answer in [self.ask(call.to, text, deadline_s=DEADLINE_S) for _ in range(call.burst)]:
            await answer
        burst_s = time.perf_counter() - began_s
        return Measured(round_trip_ms=statistics.median(trips_ms), asks_per_s=call.burst / burst_s)


class Idle(Actor):
    """One of many below a placed supervisor."""


def follow(host: str, wire: Path) -> None:
    """A host with a GPU, until it is killed."""
    die_with_parent()
    with supervised(follower_spec(host=host, leader="a", wire=wire, capabilities={"gpu": 1})) as system:
        system.wait(10 * DEADLINE_S)


class Hosts:
    """The leader's system, and the processes of the other hosts and of all agents."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._addresses = {host: ("127.0.0.1", free_port()) for host in ("a", *FOLLOWERS)}
        self.agents: dict[str, AgentProcess] = {}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.system: ActorSystem

    def start_agent(self, host: str) -> Path:
        wire = self._folder / f"{host}.wire"
        self.agents[host] = AgentProcess(host, wire, self._addresses[host], self._addresses)
        return wire

    def start(self, host: str) -> None:
        wire = self.start_agent(host)
        command = [sys.executable, "-m", "benchmarks.hosts", "--follow", str(wire), host]
        self.processes[host] = subprocess.Popen(command)

    def kill(self, host: str) -> None:
        """A machine without power: its agent is gone with it, and tells nobody."""
        self.processes[host].send_signal(signal.SIGKILL)
        self.agents[host].close()

    def await_all(self) -> Whereabouts:
        """Every host there, the echo carried and up."""
        give_up_s = time.monotonic() + DEADLINE_S
        while time.monotonic() < give_up_s:
            now = self.system.ask("hosts", WhichHosts()).hosts
            hosts = {host.host for host in now if host.state == "running"}
            place: Whereabouts = self.system.ask("hosts", WhereIs(name="far"))
            if hosts >= set(FOLLOWERS) and place.is_up:
                return place
            time.sleep(0.01)
        raise ActorDied(f"not all hosts were there within {DEADLINE_S} s: {hosts}, {place}")

    def loss(self) -> tuple[float, float]:
        """Seconds until the loss of the carrying host is noticed, and until it is repaired."""
        host = self.await_all().host
        killed_s = time.monotonic()
        self.kill(host)
        give_up_s = killed_s + DEADLINE_S
        while time.monotonic() < give_up_s:  # answers may still be on their way
            try:
                self.system.ask("far", Text(text="", is_answered=False), deadline_s=DEADLINE_S)
            except Refused:  # more waits for the dead host than is kept for one
                time.sleep(0.001)
            except ActorDied:
                break
        else:
            raise TimeoutError(f"the loss of {host} was not noticed within {DEADLINE_S} s")
        lost_s = time.monotonic() - killed_s
        while time.monotonic() < give_up_s:
            with contextlib.suppress(AskError):
                self.system.ask("far", Text(text=""), deadline_s=DEADLINE_S)
                break
            time.sleep(0.001)
        else:
            raise TimeoutError(f"'far' did not answer again within {DEADLINE_S} s after the loss of {host}")
        repaired_s = time.monotonic() - killed_s
        self.processes[host].wait()
        self.start(host)
        return lost_s, repaired_s

    def telling_bytes_per_s(self, rows: int) -> float:
        """What the leader is told of this many idle actors below one supervisor on another host."""
        children = tuple(worker(f"idle-{number}", Idle) for number in range(rows))
        child = supervisor_spec("shard", SupervisorFlags(ordered=False), children)
        shard = PlacedSpec(child=child, needs={"gpu": 0})
        self.system.ask("hosts", place_actor(shard))
        give_up_s = time.monotonic() + DEADLINE_S
        while not self.system.ask("hosts", WhereIs(name="shard")).is_up:
            assert time.monotonic() < give_up_s, f"a shard of {rows} was not up within {DEADLINE_S:g} s"
            time.sleep(0.1)
        time.sleep(2.0)
        before = self._heard_bytes()
        time.sleep(TELLING_S)
        told_bytes = self._heard_bytes() - before
        self.system.ask("hosts", Displace(name="shard"))
        return told_bytes / TELLING_S

    def _heard_bytes(self) -> int:
        links: Links = self.system.ask("bridge", WhichLinks())
        return sum(link.heard_bytes for link in links.links)

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()
        for agent in self.agents.values():
            agent.close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def hosts(folder: Path) -> Iterator[Hosts]:
    together = Hosts(folder)
    far = PlacedSpec(child=worker("far", Echo), needs={"gpu": 1})
    forgiving = Breaker(max_failures=1000, within_s=1.0)
    spec = leader_spec(
        host="a",
        wire=together.start_agent("a"),
        placed=(far,),
        backoff=Backoff(initial_s=0.0, max_s=1.0),
        breaker=forgiving,
    )
    try:
        with supervised(spec, worker("near", Echo), worker("asker", Asker)) as together.system:
            for host in FOLLOWERS:
                together.start(host)
            yield together
    finally:
        together.close()


def measure(rounds: int, round_trips: int, burst: int) -> dict[str, Any]:
    figures: dict[str, list[float]] = {}
    with (
        tempfile.TemporaryDirectory(prefix="hosts-", dir="/tmp") as folder,
        hosts(Path(folder)) as together,
    ):
        for _ in range(rounds):
            together.await_all()
            for to in ("near", "far"):
                call = Measure(to=to, round_trips=round_trips, burst=burst)
                measured: Measured = together.system.ask("asker", call, deadline_s=DEADLINE_S)
                figures.setdefault(f"{to}_round_trip_ms", []).append(measured.round_trip_ms)
                figures.setdefault(f"{to}_asks_per_s", []).append(measured.asks_per_s)
        for rows in ROWS:
            figures[f"rows_{rows}_bytes_per_s"] = [together.telling_bytes_per_s(rows)]
        for _ in range(rounds):
            lost_s, repaired_s = together.loss()
            figures.setdefault("lost_s", []).append(lost_s)
            figures.setdefault("repaired_s", []).append(repaired_s)
    return {name: spread(values) for name, values in figures.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--round-trips", type=int, default=300)
    parser.add_argument("--burst", type=int, default=100)
    parser.add_argument("--follow", nargs=2, metavar=("WIRE", "HOST"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.follow:
        wire, host = options.follow
        follow(host, Path(wire))
        return
    report = {
        "command": f"python -m benchmarks.hosts --rounds {options.rounds} "
        f"--round-trips {options.round_trips} --burst {options.burst}",
        "machine": {
            "python": platform.python_version(),
            "cores": os.cpu_count(),
            "load_average": [round(load, 1) for load in os.getloadavg()],
        },
        "lease_s": LEASE_S,
        "results": measure(options.rounds, options.round_trips, options.burst),
    }
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(report, indent=2) + "\n")
    for name, figure in report["results"].items():
        print(f"{name:20} {figure['median']:10.3f}  ({figure['min']:.3f} to {figure['max']:.3f})")


if __name__ == "__main__":
    main()
