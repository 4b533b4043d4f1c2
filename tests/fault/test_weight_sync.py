"""New policy versions go through real rollout actors while they are asked all the time and killed."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from actors.actor import Actor, Sender, receives
from actors.board import ActorState
from actors.codec import message
from actors.errors import AskError, AskTimeout, MailboxFull, Refused
from dart.config.config import Config
from dart.core import messages as m
from dart.core.run_directory import RunPaths
from dart.core.types import GenerateRequest, Generation
from dart.inference.engine_state import EngineState
from dart.inspect.logs import read_log
from dart.inspect.snapshot import EngineRow
from dart.inspect.snapshot_reader import _engine_row
from dart.store.store import Store
from dart.telemetry.board_gauges import Gauge
from dart.telemetry.events import ENGINE_STATE
from dart.training.simulated_learner import SimulatedLearner
from supervision.child_spec import Backoff, ChildSpec
from tests.fault.actors_under_test import Running, eventually, pool, running

WORKERS = ["rollout-0", "rollout-1", "rollout-2"]
ASKERS = 8
LOAD_S = 0.4

REQUEST = GenerateRequest(screenshot_sha256="", instruction="", history=(), temperature=1.0)

PATIENCE_S = 40.0

ASK_DEADLINE_S = 15.0
"""Nothing takes a second here; on a machine that is busy with other things it may."""


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Tell:
    """Answered by Tale; `end` stops asking first and waits for what is under way."""

    end: bool = False


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Tale:
    """What became of the requests up to now."""

    asked: int
    answered: int
    newest: int
    """Highest version among the answers."""
    too_old: int
    """Answers older than what was required when they were asked for."""
    died: int
    """Asks that ended because the engine did; they were made again."""
    timed_out: int


class Askers(Actor):
    """As environments do: each asks whoever is in routing, and asks another when it gets no answer."""

    def on_start(self) -> None:
        self.counts = dict.fromkeys(("asked", "answered", "newest", "too_old", "died", "timed_out"), 0)
        self.is_ending = False
        self.under_way = 0
        for _ in range(ASKERS):
            self.run(self.ask_for_ever())

    @receives(Tell)
    async def tell_tale(self, call: Tell, sender: Sender) -> Tale:
        self.is_ending = call.end
        while self.is_ending and self.under_way:
            await self.sleep(0.01)
        return Tale(**self.counts)

    async def ask_for_ever(self) -> None:
        while not self.is_ending:
            worker = self.in_routing()
            if worker is None:
                await self.sleep(0.02)
                continue
            self.under_way += 1
            await self.ask_once(worker)
            self.under_way -= 1

    async def ask_once(self, worker: str) -> None:
        required = self.gauge("weight_sync", Gauge.REQUIRED_VERSION)
        self.counts["asked"] += 1
        try:
            answer = await self.ask(worker, m.Generate(request=REQUEST), deadline_s=ASK_DEADLINE_S)
        except AskTimeout as late:
            self.counts["timed_out"] += 1
            self.tell("weight_sync", m.EngineSuspect(engine=worker, detail=str(late)))
        except (AskError, MailboxFull):
            self.counts["died"] += 1
            await self.sleep(0.02)
        else:
            if isinstance(answer, Generation):
                self.counts["answered"] += 1
                self.counts["newest"] = max(self.counts["newest"], answer.policy_version)
                self.counts["too_old"] += answer.policy_version < required
            else:
                await self.sleep(answer.retry_after_s)

    def in_routing(self) -> str | None:
        ready = [name for name in self.args["engines"] if self.shown(name, "ready")]
        return min(ready, key=lambda name: self.gauge(name, Gauge.IN_FLIGHT), default=None)

    def gauge(self, name: str, gauge: Gauge) -> int:
        return self.shown(name, f"gauge_{gauge:d}")

    def shown(self, name: str, field: str) -> int:
        slot = self.board.find(name)
        if slot is None or self.board.state(slot) is not ActorState.RUNNING:
            return 0
        return int(self.board.get(slot, field))


class Scene:
    """A pool of simulated engines, weight_sync and those who ask; versions are made by hand."""

    def __init__(self, processes: Running, folder: Path) -> None:
        self.processes = processes
        self.folder = folder

    def checkpoint(self, version: int) -> Path:
        learner = SimulatedLearner(Config().simulation)
        learner.version = version
        return learner.copy()(RunPaths(self.processes.system.run_dir).checkpoints)

    def publish(self, version: int, *, is_written: bool = True) -> None:
        if is_written:
            self.checkpoint(version)
        self.processes.system.tell("weight_sync", m.VersionPublished(version=version))

    def engines(self) -> dict[str, EngineRow]:
        """The engines as `dartrl status` shows them."""
        required = self.required()
        return {name: _engine_row(self.processes.row(name), required, required) for name in WORKERS}

    def required(self) -> int:
        return self.processes.row("weight_sync").gauges[Gauge.REQUIRED_VERSION]

    def await_state(self, what: str, holds: Callable[[dict[str, EngineRow]], bool]) -> None:
        eventually(lambda: holds(self.engines()), what, lambda: f"{self.engines()}", PATIENCE_S)

    def await_probe_of(self, name: str) -> None:
        """Wait until weight_sync has sent a probe: in the turn in which it logs that it doubts the engine."""

        def is_doubted() -> bool:
            lines = read_log(RunPaths(self.processes.system.run_dir), "weight_sync")
            return any(
                line.event == ENGINE_STATE
                and (line.fields["subject"], line.fields["state"]) == (name, EngineState.SUSPECT)
                for line in lines
            )

        eventually(is_doubted, f"weight_sync doubts {name}", self.processes.explain, PATIENCE_S)
        with pytest.raises(Refused, match="no handler for Probe"):  # its next turn: the one before is over
            self.processes.system.ask("weight_sync", m.Probe(), deadline_s=ASK_DEADLINE_S)

    def await_all_at(self, version: int, *workers: str) -> None:
        wanted = workers or tuple(WORKERS)
        eventually(lambda: self.required() == version, f"version {version} required", within_s=PATIENCE_S)
        self.await_state(
            f"{wanted} healthy at version {version}",
            lambda found: all(found[w].state == "healthy" and found[w].version == version for w in wanted),
        )

    def await_updating(self) -> str:
        """The worker that is being updated."""
        found: list[str] = []

        def is_updating(engines: dict[str, EngineRow]) -> bool:
            found[:] = [name for name, engine in engines.items() if engine.state == "updating"]
            return bool(found)

        self.await_state("somebody updating", is_updating)
        return found[0]

    def await_answers(self, count: int) -> None:
        before = self.tale().answered
        eventually(lambda: self.tale().answered >= before + count, f"{count} answers", within_s=PATIENCE_S)

    def tale(self, *, end: bool = False) -> Tale:
        tale: Tale = self.processes.system.ask("askers", Tell(end=end), deadline_s=2 * ASK_DEADLINE_S)
        return tale

    def assert_nothing_lost(self) -> Tale:
        """Every request ended, with an answer or with the engine that had it; nothing was too old."""
        tale = self.tale(end=True)
        assert tale.asked >= tale.answered + tale.died > 0
        assert tale.timed_out == 0
        assert tale.too_old == 0
        return tale

    def await_running(self, name: str, incarnation: int) -> None:
        def is_running() -> bool:
            row = self.processes.row(name)
            return row.incarnation >= incarnation and row.state is ActorState.RUNNING

        eventually(is_running, f"{name} runs", self.processes.explain, PATIENCE_S)

    def is_in_routing(self, name: str) -> bool:
        return self.processes.row(name).ready

    def restarts(self) -> int:
        return sum(self.processes.row(name).restarts for name in WORKERS)


@contextmanager
def playing(tmp_path: Path, *, generate_base_s: float = 0.02, **rollout: Any) -> Iterator[Scene]:
    config = Config.model_validate(
        {
            "rollout": {"engine": "simulated", "count": len(WORKERS), "max_batch": 4} | rollout,
            "simulation": {"generate_base_s": generate_base_s, "generate_each_s": 0.002, "load_s": LOAD_S},
        }
    )
    with Store(tmp_path / "record.db") as store:
        store.add_version()
    told = {
        "config": config.model_dump(mode="json"),
        "store": str(tmp_path / "record.db"),
        "engines": WORKERS,
    }

    def child(id_: str, actor: str) -> ChildSpec:
        return ChildSpec(
            id=id_,
            actor=actor,
            args=told,
            hang_deadline_s=60.0,
            start_deadline_s=60.0,
            backoff=Backoff(initial_s=0.05),
        )

    engines = [child(name, "dart.inference.actor:RolloutActor") for name in WORKERS]
    sync = child("weight_sync", "dart.inference.weight_sync_actor:WeightSyncActor")
    with running(pool("rollout_pool", *engines), sync, child("askers", f"{__name__}:Askers")) as processes:
        scene = Scene(processes, tmp_path)
        scene.await_answers(ASKERS)
        yield scene


@pytest.mark.parametrize("way", ["swap", "drain"])
def test_requests_are_answered_all_through_a_sync_of_one_at_a_time(tmp_path: Path, way: str) -> None:
    with playing(tmp_path, weight_update=way) as scene:
        before = scene.tale().answered
        scene.publish(1)
        scene.await_all_at(1)
        during = scene.tale().answered - before
        assert during > len(WORKERS) * ASKERS
        eventually(lambda: scene.tale().newest == 1, "an answer of version 1")
        assert scene.assert_nothing_lost().died == 0


def test_two_versions_published_during_a_sync_end_with_everybody_at_the_newer(tmp_path: Path) -> None:
    with playing(tmp_path) as scene:
        scene.publish(1)
        first = scene.await_updating()
        scene.publish(2)
        scene.publish(3)
        scene.await_state("the first one at version 1", lambda found: found[first].version == 1)
        scene.await_all_at(3)
        assert scene.assert_nothing_lost().died == 0


def test_a_worker_killed_in_the_middle_of_its_update_comes_back_to_the_newest_version(tmp_path: Path) -> None:
    with playing(tmp_path) as scene:
        scene.publish(1)
        victim = scene.await_updating()
        scene.processes.kill(victim)
        scene.await_all_at(1)
        assert scene.restarts() == 1
        scene.assert_nothing_lost()


def test_a_worker_that_comes_back_with_an_old_version_answers_nobody_until_it_is_updated(
    tmp_path: Path,
) -> None:
    """The record was not told of the version, and weight_sync is stopped: nobody updates the worker."""
    with playing(tmp_path) as scene:
        scene.publish(1)
        scene.await_all_at(1)
        scene.processes.kill("weight_sync", signal.SIGSTOP)
        old = scene.processes.kill("rollout-1")
        scene.await_running("rollout-1", old.incarnation + 1)
        answer = scene.processes.system.ask(
            "rollout-1", m.Generate(request=REQUEST), deadline_s=ASK_DEADLINE_S
        )
        assert isinstance(answer, m.NoWorkYet)
        scene.processes.kill("weight_sync", signal.SIGCONT)
        scene.await_all_at(1)
        scene.assert_nothing_lost()


def test_nobody_waits_for_a_worker_that_is_stopped_in_the_middle_of_its_update(tmp_path: Path) -> None:
    with playing(tmp_path) as scene:
        scene.publish(1)
        victim = scene.await_updating()
        scene.processes.kill(victim, signal.SIGSTOP)
        others = [name for name in WORKERS if name != victim]
        scene.await_all_at(1, *others)
        scene.await_state("the stopped one suspect", lambda found: found[victim].state == "suspect")
        scene.processes.kill(victim, signal.SIGCONT)
        scene.await_all_at(1)
        assert scene.restarts() == 0
        scene.assert_nothing_lost()


def test_a_worker_that_was_stopped_takes_nothing_new_until_it_gave_a_real_answer(tmp_path: Path) -> None:
    with playing(tmp_path, generate_base_s=1.0) as scene:  # so long it proves itself
        scene.processes.kill("rollout-1", signal.SIGSTOP)
        scene.await_state("the stopped one suspect", lambda found: found["rollout-1"].state == "suspect")
        scene.await_probe_of("rollout-1")
        scene.processes.kill("weight_sync", signal.SIGSTOP)
        assert scene.is_in_routing("rollout-1")  # it still says so
        scene.processes.kill("rollout-1", signal.SIGCONT)
        eventually(lambda: not scene.is_in_routing("rollout-1"), "out of routing by itself")
        eventually(lambda: scene.is_in_routing("rollout-1"), "back in routing", within_s=PATIENCE_S)
        scene.processes.kill("weight_sync", signal.SIGCONT)
        scene.await_all_at(0)
        assert scene.restarts() == 0
        assert scene.assert_nothing_lost().died == 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_all_at_once_goes_on_without_the_one_that_is_gone(tmp_path: Path, number: int) -> None:
    with playing(tmp_path, sync="all_at_once") as scene:
        scene.publish(1)
        victim = scene.await_updating()
        scene.processes.kill(victim, number)
        others = [name for name in WORKERS if name != victim]
        scene.await_all_at(1, *others)
        scene.await_answers(ASKERS)
        if number == signal.SIGSTOP:
            scene.processes.kill(victim, signal.SIGCONT)
        scene.await_all_at(1)
        scene.assert_nothing_lost()


def test_a_version_that_cannot_be_loaded_leaves_the_old_one_serving_and_the_next_one_is_taken(
    tmp_path: Path,
) -> None:
    with playing(tmp_path) as scene:
        torn = scene.checkpoint(1)
        (torn / "weights.json").write_text("torn")
        scene.publish(1, is_written=False)
        scene.await_answers(20 * ASKERS)
        scene.publish(2)
        scene.await_all_at(2)
        assert scene.restarts() == 0
        assert scene.assert_nothing_lost().died == 0


def test_a_weight_sync_that_is_killed_in_a_sync_finishes_it_when_it_is_back(tmp_path: Path) -> None:
    with playing(tmp_path, sync="all_at_once") as scene:
        scene.publish(1)
        scene.await_updating()
        old = scene.processes.kill("weight_sync")
        scene.processes.await_new("weight_sync", old)
        scene.publish(2)
        scene.await_all_at(2)
        scene.assert_nothing_lost()
