"""What a second machine costs, and how soon the loss of one is repaired; all of them are this one.

* round trip, asks a second: an actor of the leader asks one on its own machine, and one on another, in turns.
* lost: from SIGKILL of a whole machine until an ask that waited for it ends.
* repaired: from the same moment until its successor on a third machine has answered.

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
from actors.curve import make_keys
from actors.link import LEASE_S
from actors.process import die_with_parent
from benchmarks.mail import spread
from supervision import supervised, worker
from supervision.hosts import Whereabouts, WhereIs, WhichHosts, follower_spec, leader_spec
from supervision.placement import PlacedSpec

OUT = Path(__file__).parent / "out" / "hosts.json"
DEADLINE_S = 60.0
FOLLOWERS = ("b", "c")


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
    """Measures from inside the leader's machine."""

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


def follow(host: str, address: str, keys: Path) -> None:
    """A machine with a GPU, until it is killed."""
    die_with_parent()
    leader_key = (keys / "a" / "public").read_text()
    capabilities = {"gpu": 1}
    spec = follower_spec(
        host=host, connect=address, leader_key=leader_key, keys=keys / host, capabilities=capabilities
    )
    with supervised(spec) as system:
        system.wait(10 * DEADLINE_S)


class Machines:
    """The leader's system, and the followers' processes."""

    def __init__(self, system: ActorSystem, address: str, keys: Path) -> None:
        self.system = system
        self._command = [sys.executable, "-m", "benchmarks.hosts", "--follow", address, str(keys)]
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, host: str) -> None:
        self.processes[host] = subprocess.Popen([*self._command, host])

    def await_all(self) -> Whereabouts:
        """Every machine there, the echo carried and up."""
        give_up_s = time.monotonic() + DEADLINE_S
        while time.monotonic() < give_up_s:
            hosts = {host.host for host in self.system.ask("hosts", WhichHosts()).hosts}
            place: Whereabouts = self.system.ask("hosts", WhereIs(name="far"))
            if hosts >= set(FOLLOWERS) and place.is_up:
                return place
            time.sleep(0.01)
        raise ActorDied(f"not all machines were there within {DEADLINE_S} s: {hosts}, {place}")

    def loss(self) -> tuple[float, float]:
        """Seconds until the loss of the carrying machine is noticed, and until it is repaired."""
        host = self.await_all().host
        self.processes[host].send_signal(signal.SIGKILL)
        killed_s = time.monotonic()
        give_up_s = killed_s + DEADLINE_S
        while time.monotonic() < give_up_s:  # answers may still be on their way
            try:
                self.system.ask("far", Text(text="", is_answered=False), deadline_s=DEADLINE_S)
            except Refused:  # more waits for the dead machine than is kept for one
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

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()


@contextlib.contextmanager
def machines(folder: Path) -> Iterator[Machines]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        address = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
    keys = {host: make_keys(folder / host).public.decode() for host in ("a", *FOLLOWERS)}
    spec = leader_spec(
        host="a",
        listen=address,
        keys=folder / "a",
        followers={host: keys[host] for host in FOLLOWERS},
        placed=(PlacedSpec(child=worker("far", Echo), needs={"gpu": 1}),),
    )
    with supervised(spec, worker("near", Echo), worker("asker", Asker)) as system:
        together = Machines(system, address, folder)
        try:
            for host in FOLLOWERS:
                together.start(host)
            yield together
        finally:
            together.close()


def measure(rounds: int, round_trips: int, burst: int) -> dict[str, Any]:
    figures: dict[str, list[float]] = {}
    with (
        tempfile.TemporaryDirectory(prefix="hosts-", dir="/tmp") as folder,
        machines(Path(folder)) as together,
    ):
        for _ in range(rounds):
            together.await_all()
            for to in ("near", "far"):
                call = Measure(to=to, round_trips=round_trips, burst=burst)
                measured: Measured = together.system.ask("asker", call, deadline_s=DEADLINE_S)
                figures.setdefault(f"{to}_round_trip_ms", []).append(measured.round_trip_ms)
                figures.setdefault(f"{to}_asks_per_s", []).append(measured.asks_per_s)
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
    parser.add_argument("--follow", nargs=3, metavar=("ADDRESS", "KEYS", "HOST"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.follow:
        address, keys, host = options.follow
        follow(host, address, Path(keys))
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
