"""weight_sync on a bench: who is told what when workers load, fail, die, fall silent and are doubted."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from actors.actor import Actor, Sender, receives
from actors.future import Future
from actors.testing import InMemorySystem
from dart.config.config import Config
from dart.core import messages as m
from dart.inference.weight_sync_actor import BOARD_CHECK_S, RECORD_CHECK_S, WeightSyncActor
from dart.store.store import Store
from dart.telemetry.board_gauges import Gauge
from dart.telemetry.engine_names import EngineNames
from dart.telemetry.events import POOLS_SIZED
from dart.telemetry.liveness import ENGINE_SILENT_S

WORKERS = ["rollout-0", "rollout-1", "rollout-2"]
MOMENT_S = 2 * BOARD_CHECK_S


class Worker(Actor):
    """A rollout actor that does with a load what the test says."""

    def on_start(self) -> None:
        self.loading: list[tuple[m.LoadVersion, Future[Any]]] = []
        self.told: list[Any] = []
        self.probes: list[Future[Any]] = []
        self.set_gauges({Gauge.SERVED_VERSION: self.args.get("version", 0)})

    @receives(m.LoadVersion)
    async def load(self, call: m.LoadVersion, sender: Sender) -> Any:
        self.told.append(call)
        self.loading.append((call, Future()))
        return await self.loading[-1][1]

    @receives(m.Serve)
    def serve(self, call: m.Serve, sender: Sender) -> None:
        self.told.append(call)

    @receives(m.Probe)
    async def probe(self, call: m.Probe, sender: Sender) -> Any:
        self.probes.append(Future())
        return await self.probes[-1]

    def finish(self) -> None:
        call, done = self.loading.pop(0)
        self.set_gauges({Gauge.SERVED_VERSION: call.version})
        done.succeed(m.VersionLoaded(version=call.version))

    def fail(self) -> None:
        _, done = self.loading.pop(0)
        done.succeed(m.LoadFailed(reason="weights: sha256 differs"))


class Recorder(Actor):
    """Keeps what is told to the store."""

    def on_start(self) -> None:
        self.events: list[m.EventDraft] = []

    @receives(m.RecordEvents)
    def record(self, call: m.RecordEvents, sender: Sender) -> None:
        self.events += call.events


class World:
    """Three workers at version 0, the store and weight_sync."""

    def __init__(self, bench: InMemorySystem, folder: Path) -> None:
        self.bench = bench
        self.record = folder / "record.db"
        with Store(self.record) as store:
            store.add_version()
        self.store = bench.start(Recorder, "store")
        self.workers = {name: bench.start(Worker, name) for name in WORKERS}

    def start_sync(self, way: str = "one_at_a_time", **rollout: float) -> None:
        config = Config.model_validate({"rollout": {"sync": way} | rollout}).model_dump(mode="json")
        self.bench.start(
            WeightSyncActor, "weight_sync", {"config": config, "store": str(self.record), "engines": WORKERS}
        )
        self.bench.advance(MOMENT_S)

    def publish(self, version: int) -> None:
        self.bench.tell("weight_sync", m.VersionPublished(version=version))
        self.bench.advance(MOMENT_S)

    def finish(self, *names: str) -> None:
        for name in names:
            self.workers[name].finish()
            self.bench.advance(MOMENT_S)

    def sized(self, engines: int) -> None:
        """The run has so many engines from now on."""
        with Store(self.record, create=False) as store:
            store.record_event(POOLS_SIZED, "root", {"environments": 1, "engines": engines})
        self.bench.advance(RECORD_CHECK_S + MOMENT_S)

    def loading(self) -> dict[str, int]:
        return {name: worker.loading[0][0].version for name, worker in self.workers.items() if worker.loading}

    def states(self) -> dict[str, str]:
        sync = self.bench.actor("weight_sync")
        sync._check_board()
        return {name: engine.state.value for name, engine in sync._engines.items()}

    def required(self) -> int:
        return self.bench.row("weight_sync").gauges[Gauge.REQUIRED_VERSION]

    def pass_(self, seconds: float) -> None:
        self.bench.advance(seconds)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with InMemorySystem(tmp_path) as bench:
        yield World(bench, tmp_path)


def test_one_worker_after_the_other_takes_over_and_a_newer_version_supersedes_what_waits(
    world: World,
) -> None:
    world.start_sync()
    world.publish(1)
    assert world.loading() == {"rollout-0": 1}
    assert world.states() == {"rollout-0": "updating", "rollout-1": "healthy", "rollout-2": "healthy"}
    world.publish(2)
    assert world.loading() == {"rollout-0": 1}
    world.finish("rollout-0")
    assert world.loading() == {"rollout-1": 2}
    world.finish("rollout-1")
    assert world.loading() == {"rollout-2": 2}
    assert world.required() == 0
    world.finish("rollout-2")
    assert world.required() == 1
    world.finish("rollout-0")
    assert world.required() == 2
    assert world.loading() == {}
    assert set(world.states().values()) == {"healthy"}


def test_the_configured_share_of_the_workers_takes_over_at_the_same_time(world: World) -> None:
    world.start_sync(sync_share=0.7)
    world.publish(1)
    assert world.loading() == {"rollout-0": 1, "rollout-1": 1}
    world.finish("rollout-0")
    assert world.loading() == {"rollout-1": 1, "rollout-2": 1}


def test_a_worker_that_cannot_load_is_passed_over_is_stale_in_the_end_and_tried_again(world: World) -> None:
    world.start_sync()
    world.publish(1)
    world.workers["rollout-0"].fail()
    world.bench.settle()
    assert world.loading() == {"rollout-1": 1}
    world.finish("rollout-1")
    assert world.states()["rollout-0"] == "healthy"  # the others are not there yet
    world.finish("rollout-2")
    assert world.required() == 1
    assert world.states()["rollout-0"] in ("stale", "updating")
    world.pass_(2.0)
    assert world.loading() == {"rollout-0": 1}
    world.finish("rollout-0")
    assert set(world.states().values()) == {"healthy"}


def test_a_version_nobody_can_load_is_never_required_and_the_next_one_is_tried_at_once(world: World) -> None:
    world.start_sync()
    world.publish(1)
    for name in WORKERS:
        world.workers[name].fail()
        world.bench.settle()
    assert world.required() == 0
    assert set(world.states().values()) == {"healthy"}
    assert world.loading() == {}
    world.publish(2)
    assert list(world.loading().values()) == [2]


def test_all_at_once_every_worker_holds_until_the_last_one_is_done(world: World) -> None:
    world.start_sync("all_at_once")
    for worker in world.workers.values():
        worker.told.clear()
    world.publish(1)
    assert world.loading() == dict.fromkeys(WORKERS, 1)
    world.finish("rollout-0", "rollout-2")
    world.publish(2)
    assert [type(told) for told in world.workers["rollout-0"].told] == [m.LoadVersion]
    assert set(world.states().values()) == {"updating"}
    world.bench.kill("rollout-1")
    world.pass_(MOMENT_S)
    told = world.workers["rollout-0"].told
    assert told == [
        m.LoadVersion(version=1, hold=True),
        m.Serve(),
        m.LoadVersion(version=2, hold=True),
    ]
    assert world.states()["rollout-1"] == "dead"


def test_nobody_waits_for_a_worker_that_is_stopped_in_the_middle_of_a_load(world: World) -> None:
    world.start_sync()
    world.publish(1)
    world.bench.hang("rollout-0")
    world.pass_(ENGINE_SILENT_S + 1.0)
    assert world.states()["rollout-0"] == "suspect"
    world.finish("rollout-1", "rollout-2")
    assert world.required() == 1
    world.bench.resume("rollout-0")
    world.pass_(MOMENT_S)
    assert world.states()["rollout-0"] == "updating"
    world.finish("rollout-0")
    assert world.states()["rollout-0"] == "healthy"


def test_an_engine_that_is_first_up_was_not_dead_before(world: World) -> None:
    world.start_sync()
    world.pass_(2.0)
    seen = {(e.subject, e.data["before"], e.data["state"]) for e in world.store.events}
    assert seen == {(name, "", "healthy") for name in world.workers}


def test_a_worker_that_was_doubted_is_healthy_again_only_after_a_real_answer(world: World) -> None:
    world.start_sync()
    world.bench.tell("weight_sync", m.EngineSuspect(engine="rollout-1", detail="no answer within 30 s"))
    world.pass_(MOMENT_S)
    assert world.states()["rollout-1"] == "suspect"
    (probe,) = world.workers["rollout-1"].probes
    probe.succeed(m.VersionLoaded(version=0))
    world.pass_(MOMENT_S)
    assert world.states()["rollout-1"] == "healthy"
    world.pass_(2.0)
    told = [(e.subject, e.data["before"], e.data["state"]) for e in world.store.events]
    assert told[-2:] == [("rollout-1", "healthy", "suspect"), ("rollout-1", "suspect", "healthy")]
    assert "no answer within 30 s" in str(world.store.events[-2].data["reason"])


def test_a_worker_that_was_stopped_finds_the_probe_in_its_mail_when_it_goes_on(world: World) -> None:
    world.start_sync()
    world.bench.hang("rollout-1")
    world.pass_(ENGINE_SILENT_S + 1.0)
    assert world.states()["rollout-1"] == "suspect"
    assert world.workers["rollout-1"].probes == []
    world.bench.hang("weight_sync")  # nobody could send one now
    world.bench.resume("rollout-1")
    world.bench.settle()
    (probe,) = world.workers["rollout-1"].probes
    world.bench.resume("weight_sync")
    world.pass_(MOMENT_S)
    assert world.states()["rollout-1"] == "suspect"
    probe.succeed(m.VersionLoaded(version=0))
    world.pass_(MOMENT_S)
    assert world.states()["rollout-1"] == "healthy"


def test_the_doubt_of_a_stopped_worker_is_not_laid_on_the_one_that_replaces_it(world: World) -> None:
    world.start_sync()
    world.bench.hang("rollout-1")
    world.pass_(ENGINE_SILENT_S + 1.0)
    world.bench.kill("rollout-1")
    world.workers["rollout-1"] = world.bench.start(Worker, "rollout-1")
    world.pass_(30.0)  # the probe of the old one has failed by now
    assert world.states()["rollout-1"] == "healthy"
    assert world.workers["rollout-1"].probes == []


def test_a_probe_without_an_answer_is_made_again(world: World) -> None:
    world.start_sync()
    world.bench.tell("weight_sync", m.EngineSuspect(engine="rollout-1", detail="late"))
    world.pass_(25.0)
    assert world.states()["rollout-1"] == "suspect"
    assert len(world.workers["rollout-1"].probes) == 2


def test_a_restarted_weight_sync_requires_what_the_newest_worker_serves_and_lets_holding_ones_go_on(
    world: World,
) -> None:
    world.workers["rollout-2"].set_gauges({Gauge.SERVED_VERSION: 1})
    world.start_sync("all_at_once")
    assert m.Serve() in world.workers["rollout-2"].told


def test_a_worker_that_comes_back_with_the_newest_version_is_left_alone(world: World) -> None:
    world.start_sync()
    world.publish(1)
    world.bench.kill("rollout-0")
    world.pass_(MOMENT_S)
    assert world.states()["rollout-0"] == "dead"
    world.workers["rollout-0"] = world.bench.start(Worker, "rollout-0", {"version": 1})
    world.finish("rollout-1", "rollout-2")
    world.pass_(5.0)
    assert world.loading() == {}
    assert set(world.states().values()) == {"healthy"}


def test_it_knows_how_many_engines_there_are_from_the_record_also_after_its_restart(world: World) -> None:
    world.start_sync()
    world.sized(2)
    assert sorted(world.states()) == ["rollout-0", "rollout-1"]
    world.workers["rollout-3"] = world.bench.start(Worker, "rollout-3")
    world.sized(4)
    assert world.states()["rollout-3"] == "healthy"
    names = EngineNames(world.bench.board, WORKERS)
    assert list(names) == ["rollout-0", "rollout-1", "rollout-2", "rollout-3"]
    assert (len(names), names[1]) == (4, "rollout-1")
    world.bench.kill("weight_sync")
    world.start_sync()
    assert sorted(world.states()) == list(names)


def test_an_engine_that_was_taken_away_while_it_loaded_holds_up_no_other(world: World) -> None:
    world.start_sync()
    world.publish(1)
    world.finish("rollout-0", "rollout-1")
    assert world.loading() == {"rollout-2": 1}
    world.sized(2)
    world.publish(2)
    assert world.loading() == {"rollout-2": 1, "rollout-0": 2}
    world.finish("rollout-2", "rollout-0", "rollout-1")
    assert world.required() == 2
