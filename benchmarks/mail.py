"""What mail between two actors costs: against plain Thespian, in the same run.

* round trip: one ask after the other, each awaited; 100 bytes of text there and back.
* burst: so many asks at once, until the last answer is back.
* stream: tells of 100 bytes one way, handled by the receiver; every WINDOW of them ends with an ask, and one
  window is sent while the one before it is handled. Ours only: plain Thespian drops what is too much
* asker cpu: processor time the asking process spends on one round trip; hardly depends on the load.

Both sides take turns, each time in fresh processes, so that whatever else the machine does hits both.
Ours is signed and checked against a schema, Thespian's is a bare pickle.
``python -m benchmarks.mail`` prints a table and writes ``benchmarks/out/mail.json``.
"""

import argparse
import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from actors.actor import Actor, Sender, receives
from actors.codec import message
from actors.errors import ActorDied
from actors.system import ActorSystem, RootSpec
from supervision.child_spec import AutoShutdown, ChildSpec, Restart, SupervisorFlags
from supervision.supervisor import supervisor_args

OUT = Path(__file__).parent / "out" / "mail.json"
TEXT = "x" * 100
DEADLINE_S = 120.0
PLAIN_DEADLINE_S = 60.0
WINDOW = 250


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """Answered by itself."""

    text: str


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One of a stream."""

    text: str


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class HowMany:
    """Answered by Heard."""


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    lines: int


class Echo(Actor):
    """Answers with what it was asked, and counts what it is told."""

    def on_start(self) -> None:
        self._heard = 0

    @receives(Text)
    def echo(self, call: Text, sender: Sender) -> Text:
        return call

    @receives(Line)
    def hear(self, line: Line, sender: Sender) -> None:
        self._heard += 1

    @receives(HowMany)
    def how_many(self, call: HowMany, sender: Sender) -> Heard:
        return Heard(lines=self._heard)


class Pinger(Actor):
    """Measures, writes the figures to `args["out"]`, and ends; that ends the system."""

    def on_start(self) -> None:
        self.after(0.0, self._measure)

    async def _measure(self) -> None:
        times_s = []
        cpu_s = time.process_time()
        while len(times_s) < self.args["round_trips"]:
            began_s = time.perf_counter()
            await self.ask("echo", Text(text=TEXT))
            times_s.append(time.perf_counter() - began_s)
        cpu_s = time.process_time() - cpu_s
        began_s = time.perf_counter()
        for answer in [
            self.ask("echo", Text(text=TEXT), deadline_s=DEADLINE_S) for _ in range(self.args["burst"])
        ]:
            await answer
        burst_s = time.perf_counter() - began_s
        figures = {
            "round_trips_s": times_s,
            "round_trips_cpu_s": cpu_s,
            "burst_s": burst_s,
            "stream_s": await self._stream(self.args["stream"]),
        }
        self._write(figures)
        self.stop()

    async def _stream(self, lines: int) -> float:
        began_s = time.perf_counter()
        line, heard = Line(text=TEXT), self.ask("echo", HowMany(), deadline_s=DEADLINE_S)
        for _ in range(lines // WINDOW):
            for _ in range(WINDOW):
                if not self.tell("echo", line):
                    raise ActorDied("echo did not take a line")
            before, heard = heard, self.ask("echo", HowMany(), deadline_s=DEADLINE_S)
            await before
        if (await heard).lines != lines:
            raise ActorDied(f"echo heard {await heard} of {lines} lines")
        return time.perf_counter() - began_s

    def _write(self, figures: dict[str, Any]) -> None:
        Path(self.args["out"]).write_text(json.dumps(figures))


def ours(round_trips: int, burst: int, stream: int) -> dict[str, Any]:
    """One measurement of this project's mail."""
    with tempfile.TemporaryDirectory(prefix="mail-", dir="/tmp") as name:
        folder = Path(name)
        (folder / "mail").mkdir()
        out = folder / "figures.json"
        children = (
            ChildSpec(id="echo", actor="benchmarks.mail:Echo"),
            ChildSpec(
                id="pinger",
                actor="benchmarks.mail:Pinger",
                args={"round_trips": round_trips, "burst": burst, "stream": stream, "out": str(out)},
                restart=Restart.TRANSIENT,
                significant=True,
            ),
        )
        args = supervisor_args(
            SupervisorFlags(max_restarts=0, auto_shutdown=AutoShutdown.ANY_SIGNIFICANT), children
        )
        root = RootSpec(name="root", actor="supervision.supervisor:Supervisor", args=args)
        with ActorSystem(folder, folder / "mail", root) as system:
            if not system.wait(DEADLINE_S) or not out.exists():
                raise ActorDied(f"no figures within {DEADLINE_S} s: {system.verdict()}")
        figures: dict[str, Any] = json.loads(out.read_text())
        return figures


def plain(round_trips: int, burst: int) -> dict[str, Any]:
    """One measurement of Thespian as it comes. Its processes are daemons: they are found by their mark."""
    command = [sys.executable, "-m", "benchmarks.plain_thespian", str(round_trips), str(burst)]
    mark = {"MAIL_BENCHMARK": str(uuid.uuid4())}
    with tempfile.TemporaryFile("w+") as out:  # a pipe would be held open by the daemons
        try:
            subprocess.run(command, stdout=out, env=os.environ | mark, check=True, timeout=PLAIN_DEADLINE_S)
        finally:
            kill_marked(mark)
        out.seek(0)
        figures: dict[str, Any] = json.loads(out.read().splitlines()[-1])
        return figures


def kill_marked(mark: dict[str, str]) -> None:
    """End every process that was started with this in its environment."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if mark.items() <= process.environ().items():
                process.kill()


def summary(rounds: Sequence[dict[str, Any]], burst: int, stream: int) -> dict[str, Any]:
    """Median and spread over the rounds."""
    trips_ms = [statistics.median(figures["round_trips_s"]) * 1000 for figures in rounds]
    p99_ms = [statistics.quantiles(figures["round_trips_s"], n=100)[98] * 1000 for figures in rounds]
    cpu_ms = [figures["round_trips_cpu_s"] * 1000 / len(figures["round_trips_s"]) for figures in rounds]
    rates = [burst / figures["burst_s"] for figures in rounds]
    figures = {
        "round_trip_ms": spread(trips_ms),
        "round_trip_p99_ms": spread(p99_ms),
        "asker_cpu_ms": spread(cpu_ms),
        "asks_per_s": spread(rates),
    }
    if "stream_s" in rounds[0]:
        figures["stream_per_s"] = spread([stream / round_["stream_s"] for round_ in rounds])
    return figures


def spread(values: Sequence[float]) -> dict[str, float]:
    return {
        "median": round(statistics.median(values), 4),
        "min": round(min(values), 4),
        "max": round(max(values), 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--round-trips", type=int, default=300)
    parser.add_argument("--burst", type=int, default=100)
    parser.add_argument("--stream", type=int, default=50_000)
    options = parser.parse_args()
    measured: dict[str, list[dict[str, Any]]] = {"mail": [], "plain_thespian": []}
    for _ in range(options.rounds):
        measured["mail"].append(ours(options.round_trips, options.burst, options.stream))
        measured["plain_thespian"].append(plain(options.round_trips, options.burst))
    results = {name: summary(rounds, options.burst, options.stream) for name, rounds in measured.items()}
    mail, thespian = results["mail"], results["plain_thespian"]
    report = {
        "command": f"python -m benchmarks.mail --rounds {options.rounds} "
        f"--round-trips {options.round_trips} --burst {options.burst} --stream {options.stream}",
        "machine": {
            "python": platform.python_version(),
            "cores": os.cpu_count(),
            "load_average": [round(load, 1) for load in os.getloadavg()],
        },
        "results": results,
        "ratios": {
            "round_trip": round(thespian["round_trip_ms"]["median"] / mail["round_trip_ms"]["median"], 2),
            "asker_cpu": round(thespian["asker_cpu_ms"]["median"] / mail["asker_cpu_ms"]["median"], 2),
            "asks_per_s": round(mail["asks_per_s"]["median"] / thespian["asks_per_s"]["median"], 2),
        },
    }
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(report, indent=2) + "\n")
    for figure in mail:
        for name in results:
            if figure not in results[name]:
                continue
            median, low, high = results[name][figure].values()
            print(f"{figure:18} {name:15} {median:10.3f}  ({low:.3f} to {high:.3f})")
    print(f"ratios (how much better than plain Thespian): {report['ratios']}")


if __name__ == "__main__":
    main()
