"""How many interleavings a second the test kit goes through: actors without processes, every message encoded.

* turns: one actor takes what mail it finds, under a seed that draws who and how much.
* races: a bench is made, three actors tell a fourth three things each, it settles, and it is closed.
* trees: a supervisor starts three children, two of them die, all are up again, under the manual clock.

``python -m benchmarks.interleavings`` prints the median of the rounds and their lowest and highest.
"""

import argparse
import itertools
import logging
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import structlog

from actors.actor import Actor, Sender, receives
from actors.codec import message
from actors.testing import InMemorySystem
from supervision.child_spec import ChildSpec, SupervisorFlags
from supervision.supervisor import Supervisor, supervisor_args

NAMES = ("a", "b", "c")
TELLS = 3
TURN_ROUNDS = 100


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class PassOn:
    to: str


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    pass


class Scribe(Actor):
    """Passes on what it is told to."""

    @receives(PassOn)
    def pass_on(self, call: PassOn, sender: Sender) -> None:
        self.tell(call.to, Note())

    @receives(Note)
    def note(self, call: Note, sender: Sender) -> None:
        pass


def race(bench: InMemorySystem) -> None:
    for name in NAMES:
        for _ in range(TELLS):
            bench.tell(name, PassOn(to="listener"))
    bench.settle()


def turns(folder: Path, seed: int) -> float:
    count = itertools.count()

    def counted(scribe: Scribe) -> None:
        next(count)
        Actor.turn(scribe)

    with InMemorySystem(folder, seed=seed) as bench, mock.patch.object(Scribe, "turn", counted):
        for name in ("listener", *NAMES):
            bench.start(Scribe, name)
        for _ in range(TURN_ROUNDS):
            race(bench)
    return next(count)


def races(folder: Path, seed: int) -> float:
    with InMemorySystem(folder, seed=seed) as bench:
        for name in ("listener", *NAMES):
            bench.start(Scribe, name)
        race(bench)
    return 1


def trees(folder: Path, seed: int) -> float:
    children = tuple(ChildSpec(id=name, actor=f"{__name__}:Scribe") for name in NAMES)
    with InMemorySystem(folder, seed=seed, live_children=True) as bench:
        flags = SupervisorFlags(ordered=False, max_restarts=10)
        bench.start(Supervisor, "sup", supervisor_args(flags, children))
        bench.advance(0.5)
        bench.kill("a")
        bench.exit("b", 5)
        bench.advance(1.0)
        assert [bench.row(name).incarnation for name in NAMES] == [2, 2, 1]
    return 1


def per_second(what: Callable[[Path, int], float], times: int) -> float:
    with tempfile.TemporaryDirectory() as name:
        folders = [Path(name) / str(seed) for seed in range(times)]
        for folder in folders:
            folder.mkdir()
        started = time.perf_counter()
        done = sum(what(folder, seed) for seed, folder in enumerate(folders))
        return done / (time.perf_counter() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    for what, times in ((turns, 3), (races, 200), (trees, 100)):
        figures = sorted(per_second(what, times) for _ in range(rounds))
        print(
            f"{what.__name__:6} {statistics.median(figures):8.0f} a second "
            f"({figures[0]:.0f} to {figures[-1]:.0f}, {rounds} rounds)"
        )


if __name__ == "__main__":
    main()
