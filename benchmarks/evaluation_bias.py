"""Is the success rate that an evaluation records the true one? `python -m benchmarks.evaluation_bias`

Failures take longer than successes: they play up to the step cap. A curator that gives an episode out again
while it is still being played keeps the copy that ends first, which is too often a success. Here the true
rate is made up, so that the recorded one can be compared with it.

The curator and the store are the actors that run in production, on a board, a clock and mail in memory.
Environments are made up: a reset of 60 to 120 s, 4 to 8 s for a step, 5 to 13 steps to a success, up to 30
to a failure. Writes OUT/evaluation_bias.json; ends with 1 if a recorded rate is not within its interval of
99.9 % around the true one, or an episode was played twice.
"""

import argparse
import heapq
import json
import logging
import math
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import structlog

from actors.actor import Actor
from actors.board import ActorState
from actors.testing import InMemorySystem
from dart.config.config import Config
from dart.core import messages as m
from dart.core.records import EvaluationPhase
from dart.curation.actor import CuratorActor
from dart.store.actor import StoreActor
from dart.store.reader import StoreReader
from dart.store.store import Store

OUT = Path(__file__).parent / "out"

TRUE_RATE = 0.28
LEASE_S = 5400.0
ASKS_AGAIN_S = 30.0
"""An environment that had to wait asks again after this long."""
Z_999 = 3.2905
"""Two-sided 99.9 % quantile of the standard normal distribution."""

Duration = Callable[[random.Random, bool], float]
"""Seconds that an episode takes, given whether it succeeds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Evaluations of one size, together."""

    environments: int
    episodes: int
    """Of one evaluation."""
    evaluations: int
    successes: int
    recorded: int
    """Results in the record, of all evaluations."""
    played: int
    """Episodes that were played, of all evaluations."""
    low: float
    """Within these two the recorded rate lies in 999 of 1000 such measurements, if it is not biased."""
    high: float

    @property
    def rate(self) -> float:
        return self.successes / self.recorded

    @property
    def is_unbiased(self) -> bool:
        return self.low <= self.rate <= self.high and self.played == self.recorded


def desktop_s(draw: random.Random, is_success: bool) -> float:
    """As published of OSWorld: long resets, and failures that go on to the step cap."""
    failed = 30 if draw.random() < 0.6 else draw.randint(8, 25)
    steps = draw.randint(5, 13) if is_success else failed
    return draw.uniform(60.0, 120.0) + steps * draw.uniform(4.0, 8.0)


class Engine(Actor):
    """Is there: the curator gives nothing out without one."""


class SimulatedEvaluation:
    """One evaluation: a real curator and store, and environments that only take their time."""

    def __init__(self, bench: InMemorySystem, folder: Path, environments: int, episodes: int) -> None:
        self._bench = bench
        self._names = [f"env-{number:03d}" for number in range(environments)]
        self._store = folder / "store.db"
        config = Config.model_validate(
            {
                "tasks": {"train": [f"simulated/{number}" for number in range(episodes)]},
                "environments": {"kind": "simulated", "count": environments},
                "curation": {"lease_s": LEASE_S, "poll_s": 1.0},
                "evaluation": {"seeds_per_task": 1, "greedy_seeds_per_task": 0},
            }
        ).model_dump(mode="json")
        with Store(self._store) as store:
            store.add_version()
        args = {"store": str(self._store), "config": config}
        bench.start(StoreActor, "store", args)
        bench.start(Engine, "rollout-0")
        for name in self._names:
            slot = bench.board.claim(name, "environment_pool")
            bench.board.set_state(slot, ActorState.RUNNING, incarnation=1, ready=1)
        told = {"engines": ["rollout-0"], "training_ends_boot_s": math.inf}
        bench.start(CuratorActor, "curator", args | told)

    def evaluate(self, draw: random.Random, duration_s: Duration, episodes: int) -> int:
        """Play until every episode is in the record; returns how many were played."""
        played = 0
        results: dict[str, m.EvaluationEnded] = {}
        """What each environment is about to report."""
        turns = [(0.0, number, name) for number, name in enumerate(self._names)]
        heapq.heapify(turns)
        while len(list(self.rewards())) < episodes:
            at_s, number, name = heapq.heappop(turns)
            self._bench.advance(max(0.0, at_s - self._bench.clock.monotonic_s()))
            if name in results:
                self._ask(results.pop(name))
            work = self._ask(m.WorkRequest(environment=name))
            if isinstance(work, m.EvaluationTask):
                played += 1
                is_success = draw.random() < TRUE_RATE
                next_s = at_s + duration_s(draw, is_success)
                results[name] = m.EvaluationEnded(
                    fence=work.fence, policy_version=0, reward=float(is_success)
                )
            else:
                next_s = at_s + ASKS_AGAIN_S
            heapq.heappush(turns, (next_s, number, name))
        return played

    def rewards(self) -> Iterator[float]:
        with StoreReader(self._store) as reader:
            yield from (one.reward for one in reader.evaluations(EvaluationPhase.BEFORE))

    def _ask(self, call: m.WorkRequest | m.EvaluationEnded) -> object:
        answer = self._bench.ask("curator", call)
        self._bench.settle()
        return answer.result()


def measure(
    environments: int, episodes: int, evaluations: int, duration_s: Duration = desktop_s, seed: int = 0
) -> Measured:
    """Play several evaluations of one size and compare their results with the true rate."""
    played, rewards = 0, []
    for number in range(evaluations):
        draw = random.Random(f"{seed}-{number}")
        with (
            tempfile.TemporaryDirectory(prefix="dartrl-bias-") as folder,
            InMemorySystem(Path(folder)) as bench,
        ):
            simulated = SimulatedEvaluation(bench, Path(folder), environments, episodes)
            played += simulated.evaluate(draw, duration_s, episodes)
            rewards += list(simulated.rewards())
    half = Z_999 * math.sqrt(TRUE_RATE * (1 - TRUE_RATE) / len(rewards))
    return Measured(
        environments=environments,
        episodes=episodes,
        evaluations=evaluations,
        successes=round(sum(rewards)),
        recorded=len(rewards),
        played=played,
        low=TRUE_RATE - half,
        high=TRUE_RATE + half,
    )


def line(found: Measured) -> str:
    return (
        f"{found.environments} environments, {found.evaluations} evaluations of {found.episodes} episodes: "
        f"true {100 * TRUE_RATE:.1f} %, recorded {100 * found.rate:.1f} % "
        f"(unbiased: {100 * found.low:.1f} to {100 * found.high:.1f} %), "
        f"played {found.played} for {found.recorded} results"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--evaluations", type=int, default=20, help="evaluations of each size")
    parser.add_argument("--quick", action="store_true", help="one evaluation of each size")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    evaluations = 1 if options.quick else options.evaluations
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    results = []
    for environments, episodes in ((180, 45), (180, 361), (16, 45)):
        results.append(measure(environments, episodes, evaluations))
        print(line(results[-1]), flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    rows = [{**asdict(one), "rate": one.rate, "true_rate": TRUE_RATE} for one in results]
    (options.out / "evaluation_bias.json").write_text(json.dumps(rows, indent=1) + "\n")
    return 0 if all(one.is_unbiased for one in results) else 1


if __name__ == "__main__":
    sys.exit(main())
