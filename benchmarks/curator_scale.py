"""What 400, 4,000 and 40,000 environments cost: a decision of the curator, and the writes about their load.

Every environment has a row on one board and plays a rollout (or an evaluation episode). The record is the one
of a simulation, so that the time is the curator's own. All times are processor time.

* stored, us: an episode has ended; the curator looks at it and settles.
* work, us: the environment gets its next rollout.
* evaluation, us: an environment gets an evaluation episode, while all others play one.
* batch, us: the trainer asks for a batch that is not ready.
* engines, us: one look at the versions of all engines, at most 20 times a second.
* overdue, liveness, stalls, ms: what the curator does every two seconds.
* all rows, ms: every row of the board read once, for comparison.

The writes are those of a store actor in simulated time, on a real database. Every environment sends its load
at its own moment for ten seconds; then 400 send it within a second, as they do when they stop.

* messages, writes: of ten seconds, a second.
* most: the greatest number of writes in one second.
* stop most: the same while they stop.

``python -m benchmarks.curator_scale`` prints two tables and writes ``benchmarks/out/curator_scale.json``.
"""

import argparse
import contextlib
import json
import math
import os
import platform
import statistics
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

from actors.board import ActorState, Board
from actors.testing import InMemorySystem
from benchmarks.runs import spread
from benchmarks.simulated_record import SimulatedRecord
from dart.config.config import Config, load_config
from dart.core.messages import EventDraft, RecordEvents
from dart.core.records import Evaluation, EvaluationPhase
from dart.core.types import RolloutLease
from dart.curation.evaluation import EvaluationSchedule
from dart.curation.liveness_view import LivenessView
from dart.curation.run_phases import RunPlan
from dart.curation.service import CurationService
from dart.curation.settings import settings_of
from dart.curation.stall_diagnosis import Episodes, RunFacts
from dart.curation.stall_monitor import StallMonitor
from dart.store.actor import StoreActor
from dart.store.store import Store
from dart.telemetry.load_interval import load_every_s
from dart.telemetry.load_meter import LOAD

OUT = Path(__file__).parent / "out" / "curator_scale.json"
SIZES = (400, 4_000, 40_000)
ENVIRONMENTS_PER_SHARD = 16
ENVIRONMENTS_PER_ENGINE = 40
TASKS = 200
DECISIONS = 200
"""Of each kind and round."""
CHECKS = 3
"""Of each check that is made at intervals, in each round."""

SENT_S = 10.0
STEP_S = 0.005
STOPPING = 400


class NoRecord:
    """The part of a reader that a schedule and a monitor need of an empty record."""

    def evaluations(self, phase: EvaluationPhase) -> tuple[Evaluation, ...]:
        return ()

    def latest_version(self) -> None:
        return None

    def newest_event(self, kind: str) -> None:
        return None

    def drops_by_task(self) -> dict[str, dict[str, int]]:
        return {}


def at_once(work: Any) -> Any:
    """The result of a coroutine that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("the record of a simulation answers at once")


def config_for(environments: int) -> Config:
    """A run in which all environments play at the same time."""
    small = load_config(None, ["curation.rollouts_per_group=8", "evaluation.seeds_per_task=256"])
    # Updated apart from its checks: a run file of one machine may name 1,000 environments.
    return small.model_copy(
        update={
            "environments": small.environments.model_copy(update={"count": environments}),
            "rollout": small.rollout.model_copy(update={"count": environments // ENVIRONMENTS_PER_ENGINE}),
            "training": small.training.model_copy(update={"groups_per_update": environments // 8}),
            "tasks": small.tasks.model_copy(update={"train": tuple(f"task-{n}" for n in range(TASKS))}),
        }
    )


def names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}-{index:03d}" for index in range(count)]


def filled_board(path: Path, environments: Sequence[str], engines: Sequence[str]) -> Board:
    """A board on which all actors run."""
    board = Board.create(path, slots=2 * len(environments) + 2 * len(engines) + 64)
    for name in ("store", "weight_sync", "trainer", *engines):
        run_row(board, name, "root")
    for index, name in enumerate(environments):
        shard = f"environment_pool-{index // ENVIRONMENTS_PER_SHARD}"
        if index % ENVIRONMENTS_PER_SHARD == 0:
            run_row(board, shard, "placed")
        run_row(board, name, shard)
    return board


def run_row(board: Board, name: str, parent: str) -> None:
    slot = board.claim(name, parent)
    beat_ns = time.monotonic_ns()
    board.set_state(
        slot, ActorState.RUNNING, started_unix_s=1.0, incarnation=1, pid=1, ready=1, beat_ns=beat_ns
    )


class Scene:
    """The curator of a run in which every environment plays."""

    def __init__(self, folder: Path, environments: int, seed: int) -> None:
        self.config = config_for(environments)
        self.environments = names("env", environments)
        self.engines = [f"rollout-{index}" for index in range(self.config.rollout.count)]
        self.board = filled_board(folder / f"board-{environments}-{seed}", self.environments, self.engines)
        self.view = LivenessView(self.board, self.engines, folder, self.config.curation.lease_s)
        self.chance = Random(seed)
        self.now_s = 1000.0
        self.record = SimulatedRecord(lambda: self.now_s)
        self.service = CurationService(
            settings_of(self.config), self.record, lambda: self.now_s, lambda decision: None
        )
        self.service.curator.trainer_version = 0
        self.refresh()
        self.leases: dict[str, RolloutLease] = {}
        for name in self.environments:
            self.lease(name)
        reader: Any = NoRecord()
        self.monitor = StallMonitor(self.config, self.engines, reader, 0.0)
        plan = RunPlan(config=self.config, training_ends_s=math.inf)
        self.evaluations = EvaluationSchedule(
            plan, reader, lambda task, data: None, lease_s=1e6, max_attempts=3, incarnation=1
        )
        for name in self.environments:
            self.evaluate(name)

    def lease(self, environment: str) -> None:
        self.service.serving(self.view.oldest_served(time.monotonic()))
        self.view.asks(environment)
        lease = at_once(self.service.work(environment))
        assert isinstance(lease, RolloutLease), lease
        self.leases[environment] = lease

    def stored(self, environment: str) -> None:
        at_once(self.service.look(self.leases[environment].rollout_id))

    def evaluate(self, environment: str) -> None:
        self.evaluations.lease(EvaluationPhase.BEFORE, environment, self.view.incarnation_of, self.now_s)

    def refresh(self) -> None:
        self.service.curator.liveness = self.view.refresh(self.now_s)

    def overdue(self) -> None:
        assert not self.service.curator.overdue(self.now_s)

    def check_for_stalls(self) -> None:
        curator = self.service.curator
        playing = Episodes(curator.num_played, lambda: tuple(curator.played(self.now_s)))
        assert self.monitor.check(self.board, RunFacts(playing=playing), self.now_s) is None

    def beats(self, count: int) -> Iterator[int]:
        """Numbers; before each one the engines beat, as they do four times a second."""
        for number in range(count):
            for name in self.engines:
                slot = self.board.find(name)
                assert slot is not None
                self.board.set(slot, beat_ns=time.monotonic_ns())
            yield number

    def figures(self) -> dict[str, float]:
        """Median processor time of each decision in us, of each check in ms."""
        some = self.chance.sample(self.environments, min(DECISIONS, len(self.environments) // 2))
        stored, work = [], []
        for name in some:
            reward = float(self.chance.random() < 0.5)
            self.record.finish(self.leases[name], reward, num_steps=10, oldest_version=0)
            stored.append(spent_s(lambda name=name: self.stored(name)))
            work.append(spent_s(lambda name=name: self.lease(name)))
        few = some[: DECISIONS // 10]
        return {
            "stored_us": 1e6 * statistics.median(stored),
            "work_us": 1e6 * statistics.median(work),
            "evaluation_us": 1e6 * median_s(lambda name: self.evaluate(name), few),
            "batch_us": 1e6 * median_s(lambda _: at_once(self.service.batch()), some),
            "engines_us": 1e6 * median_s(lambda _: self.view.read_oldest_served(), few),
            "overdue_ms": 1e3 * median_s(lambda _: self.overdue(), range(CHECKS)),
            "liveness_ms": 1e3 * median_s(lambda _: self.refresh(), self.beats(CHECKS)),
            "stalls_ms": 1e3 * median_s(lambda _: self.check_for_stalls(), range(CHECKS)),
            "all_rows_ms": 1e3 * median_s(lambda _: self.board.rows(), range(1)),
        }

    def close(self) -> None:
        self.board.close()
        self.board.path.unlink()


def spent_s(work: Callable[[], Any]) -> float:
    began_s = time.process_time()
    work()
    return time.process_time() - began_s


def median_s(work: Callable[[Any], Any], arguments: Iterable[Any]) -> float:
    return statistics.median(spent_s(lambda one=one: work(one)) for one in arguments)


def measure(sizes: Sequence[int], seeds: int) -> dict[str, dict[int, dict[str, float]]]:
    """Of each figure and size: median, least and greatest over the seeds."""
    found: dict[str, dict[int, list[float]]] = {}
    with tempfile.TemporaryDirectory(prefix="curator-", dir="/tmp") as folder:
        for size in sizes:
            for seed in range(seeds):
                scene = Scene(Path(folder), size, seed)
                for figure, value in scene.figures().items():
                    found.setdefault(figure, {}).setdefault(size, []).append(value)
                scene.close()
    return spreads(found)


def spreads(found: Mapping[str, Mapping[int, Sequence[float]]]) -> dict[str, dict[int, dict[str, float]]]:
    return {
        figure: {size: spread(values) for size, values in by_size.items()}
        for figure, by_size in found.items()
    }


# ---- the writes about the load ----


class CountedStore:
    """A store actor in simulated time, and the moments of its writes of events."""

    def __init__(self, folder: Path, config: Config) -> None:
        self.folder, self.config = folder, config
        self.messages, self.writes_s = 0, list[float]()

    @contextlib.contextmanager
    def started(self) -> Iterator[InMemorySystem]:
        self.folder.mkdir()
        path = self.folder / "store.db"
        with Store(path) as store:
            store.add_version()
        args = {"store": str(path), "config": self.config.model_dump(mode="json")}
        with InMemorySystem(self.folder) as system:
            system.start(StoreActor, "store", args=args)
            record = Store.record_events

            def counted(store: Store, events: Sequence[EventDraft]) -> int:
                self.writes_s.append(system.clock.monotonic_s())
                return record(store, events)

            with mock.patch.object(Store, "record_events", counted):
                yield system

    def send(self, system: InMemorySystem, due_s: Iterable[tuple[float, str]], seconds: float) -> float:
        """Send the load of these actors at these moments; the greatest number of writes in a second."""
        began_s, waiting, first = system.clock.monotonic_s(), deque(sorted(due_s)), len(self.writes_s)
        for _ in range(round(seconds / STEP_S)):
            while waiting and waiting[0][0] <= system.clock.monotonic_s() - began_s:
                event = EventDraft(kind=LOAD, subject=waiting.popleft()[1], data={"wall_s": 1.0})
                assert system.tell("store", RecordEvents(events=(event,)))
                self.messages += 1
            system.advance(STEP_S)
        seconds_of = Counter(int(at_s - began_s) for at_s in self.writes_s[first:])
        return max(seconds_of.values(), default=0)


def writes(folder: Path, size: int, seed: int) -> dict[str, float]:
    """Messages and writes a second about the load of so many environments."""
    config, chance = config_for(size), Random(seed)
    every_s, environments = load_every_s(config), names("env", size)
    counted = CountedStore(folder / f"writes-{size}-{seed}", config)
    with counted.started() as system:
        due = []
        for name in environments:
            moment_s = chance.uniform(0.0, every_s)
            while moment_s < SENT_S:
                due.append((moment_s, name))
                moment_s += every_s
        most = counted.send(system, due, SENT_S)
        sent, written = counted.messages / SENT_S, len(counted.writes_s) / SENT_S
        stops = [(chance.random(), name) for name in environments[:STOPPING]]
        stop_most = counted.send(system, stops, 2.0)
    return {
        "every_s": every_s,
        "messages_per_s": sent,
        "writes_per_s": written,
        "most_in_a_second": most,
        "stop_most_in_a_second": stop_most,
    }


def measure_writes(sizes: Sequence[int], seeds: int) -> dict[str, dict[int, dict[str, float]]]:
    found: dict[str, dict[int, list[float]]] = {}
    with tempfile.TemporaryDirectory(prefix="load-", dir="/tmp") as folder:
        for size in sizes:
            for seed in range(seeds):
                for figure, value in writes(Path(folder), size, seed).items():
                    found.setdefault(figure, {}).setdefault(size, []).append(value)
    return spreads(found)


def table(results: dict[str, dict[int, dict[str, float]]], sizes: Sequence[int]) -> Iterator[str]:
    yield f"{'':22}" + "".join(f"{size:>28,}" for size in sizes) + f"{'last / first':>14}"
    for figure, by_size in results.items():
        shown = "".join(f"{_shown(by_size[size]):>28}" for size in sizes)
        first, last = by_size[sizes[0]]["median"], by_size[sizes[-1]]["median"]
        yield f"{figure:22}{shown}{last / max(first, 1e-9):>14.1f}"


def _shown(figure: dict[str, float]) -> str:
    return f"{figure['median']:.1f} ({figure['min']:.1f} to {figure['max']:.1f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    results = measure(options.sizes, options.seeds)
    print("\n".join(table(results, options.sizes)), flush=True)
    load = measure_writes(options.sizes, options.seeds)
    print("\n".join(["", *table(load, options.sizes)]))
    report = {
        "command": f"python -m benchmarks.curator_scale --seeds {options.seeds} --sizes "
        + " ".join(map(str, options.sizes)),
        "machine": {
            "python": platform.python_version(),
            "cores": os.cpu_count(),
            "load_average": [round(load, 1) for load in os.getloadavg()],
        },
        "results": results,
        "load": load,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
