"""One machine of a test: a process with an actor system of its own, and the actors that travel between them.

python -m tests.fault.machine FOLDER < (the children of its root, as JSON)
"""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from actors.actor import Actor, Sender, receives
from actors.codec import message
from actors.process import die_with_parent
from actors.system import ActorSystem, RootSpec
from supervision.child_spec import SupervisorFlags
from supervision.supervisor import supervisor_args

REPORT_EVERY_S = 0.05


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """Answered by Here."""

    never_answer: bool = False


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Here:
    pid: int
    network: str
    incarnation: int


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """From a traveller to the leader's collector."""

    number: int


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class WhichResults:
    """Answered by Results."""


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """Per incarnation of a traveller: how many came."""

    counts: dict[str, int]


class Traveller(Actor):
    """Says where it is, and reports results to the leader's collector, on and on."""

    def on_start(self) -> None:
        self._number = 0
        self.every(REPORT_EVERY_S, self.report)

    def report(self) -> None:
        self._number += 1
        self.tell("collector@a", Result(number=self._number))

    @receives(Where)
    async def where(self, call: Where, sender: Sender) -> Here:
        if call.never_answer:
            await self.sleep(1e6)
        network = os.readlink("/proc/self/ns/net")  # noqa: PTH115  # no path, a name of the kernel's
        return Here(pid=os.getpid(), network=network, incarnation=self.identity.incarnation)


class Player(Actor):
    """Publishes a score that says who it is."""

    def on_start(self) -> None:
        self.set_gauges({0: 100 + int(self.identity.name.rpartition("-")[2])})


class Collector(Actor):
    """Takes results of whoever bears the name of a traveller."""

    def on_start(self) -> None:
        self._counts: dict[str, int] = {}

    @receives(Result)
    def result(self, result: Result, sender: Sender) -> None:
        key = f"{sender.name} {sender.incarnation}"
        self._counts[key] = self._counts.get(key, 0) + 1

    @receives(WhichResults)
    def which(self, call: WhichResults, sender: Sender) -> Results:
        return Results(counts=dict(self._counts))


def main(folder: Path) -> None:
    die_with_parent()
    (folder / "mail").mkdir()
    children = json.load(sys.stdin)
    flags = SupervisorFlags(max_restarts=100, max_seconds=60.0)
    args = supervisor_args(flags, ()) | {"children": children}
    root = RootSpec(name="root", actor="supervision.supervisor:Supervisor", args=args)
    with ActorSystem(folder, folder / "mail", root) as system:
        print("up", flush=True)
        system.wait(600.0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
