"""A rollout actor with an engine that batches by itself: many requests under way while weights change."""

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from actors.actor import Stop
from actors.future import Future
from actors.testing import InMemorySystem
from dart.config.config import Config
from dart.core import messages as m
from dart.core.types import GenerateRequest, Generation, VersionSpan
from dart.inference.actor import RolloutActor
from dart.inference.engine_processes import EngineDied, EngineWedged
from dart.inference.protocol import Engine, Swap, Unanswerable
from dart.inference.serving import ENGINE_CHECK_S
from dart.store.checkpoints import CorruptCheckpoint, checkpoint_name
from dart.store.store import Store
from dart.telemetry.board_gauges import Gauge

NAME = "rollout-0"
CORRUPT = 13
"""A version whose checkpoint is damaged."""

PATIENCE_S = 20.0
HEALTH_EVERY_S = 10.0


class OpenEngine(Engine):
    """Holds every request until it is let go by name; a load changes the weights under those it holds."""

    is_concurrent = True

    def __init__(self) -> None:
        self.version = 0
        self.under_way: set[str] = set()
        self.most_at_once = 0
        self.proofs = 0
        self.is_closed = False
        self.is_wedged = False
        self.death = ""
        self._let_go: dict[str, threading.Event] = {}

    def gate(self, name: str) -> threading.Event:
        return self._let_go.setdefault(name, threading.Event())

    def generate(self, requests: Sequence[GenerateRequest]) -> list[Generation]:
        [request] = requests
        if request.instruction == "too long":
            raise Unanswerable("a prompt of 9,000 tokens leaves no room")
        began = self.version
        self.under_way.add(request.instruction)
        self.most_at_once = max(self.most_at_once, len(self.under_way))
        assert self.gate(request.instruction).wait(PATIENCE_S)
        self.under_way.discard(request.instruction)
        spans = (
            ()
            if began == self.version
            else (VersionSpan(version=began, end=1), VersionSpan(version=self.version, end=2))
        )
        return [
            Generation(
                prompt_ids=(1,),
                token_ids=(1, 2),
                logprobs=(0.0, 0.0),
                entropies=(0.0, 0.0),
                answer="wait()",
                policy_version=began,
                spans=spans,
            )
        ]

    def prepare(self, folder: Path, version: int, probe: GenerateRequest | None = None) -> Swap:
        if folder.name in ("corrupt", checkpoint_name(CORRUPT)):
            raise CorruptCheckpoint(folder, "weights", "sha256 1", "sha256 2")
        return lambda: setattr(self, "version", version)

    def prove(self, probe: GenerateRequest) -> int:
        self.proofs += 1
        if self.is_wedged:
            raise EngineWedged("no token came within 20 s: engine core 7 is stopped")
        return self.version

    def check_alive(self) -> None:
        if self.death:
            raise EngineDied(self.death)

    def close(self) -> None:
        self.is_closed = True


class RolloutWithOpenEngine(RolloutActor):
    def _make_engine(self, version: int, folder: Path, *, takes_adapters: bool = False) -> Engine:
        return OpenEngine()


class Pool:
    """One rollout actor on a bench."""

    def __init__(self, bench: InMemorySystem, folder: Path, **rollout: Any) -> None:
        self.bench = bench
        store = folder / "record.db"
        with Store(store) as opened:
            opened.add_version()
        config = Config.model_validate({"rollout": {"vllm": {"health_every_s": HEALTH_EVERY_S}} | rollout})
        bench.start(
            RolloutWithOpenEngine,
            NAME,
            {"config": config.model_dump(mode="json"), "store": str(store), "engines": [NAME]},
        )
        bench.settle()
        self.engine: OpenEngine = bench.actor(NAME)._engine

    def request(self, *names: str, waits_s: float = 1000.0) -> list[Future[Any]]:
        asked = [
            self.bench.ask(NAME, m.Generate(request=_request(name)), deadline_s=waits_s) for name in names
        ]
        self.bench.settle()
        return asked

    def load(self, version: int) -> Future[Any]:
        asked = self.bench.ask(NAME, m.LoadVersion(version=version), deadline_s=1000.0)
        self.bench.settle()
        return asked

    def idle(self, seconds: float) -> None:
        """Until what was begun in a thread meanwhile has ended."""
        before = self.engine.proofs
        self.bench.advance(seconds)
        self.bench.finish_work(NAME, lambda: self.engine.proofs > before and not self.bench.row(NAME).work)

    def finish(self, *what: Future[Any]) -> list[Any]:
        self.bench.finish_work(NAME, lambda: all(one.is_done for one in what))
        return [one.result() for one in what]


def _request(name: str) -> GenerateRequest:
    return GenerateRequest(screenshot_sha256="", instruction=name, history=(), temperature=1.0)


@pytest.fixture
def pool_of(tmp_path: Path) -> Iterator[Callable[..., Pool]]:
    with InMemorySystem(tmp_path) as bench:
        yield lambda **rollout: Pool(bench, tmp_path, **rollout)


def test_a_request_that_waited_too_long_for_room_is_not_computed(pool_of: Callable[..., Pool]) -> None:
    pool = pool_of(max_batch=1)
    [first] = pool.request("first")
    pool.request("given up", waits_s=24.0)
    pool.bench.advance(24.0)
    [new] = pool.request("new")
    for name in ("first", "new"):
        pool.engine.gate(name).set()
    pool.finish(first, new)
    assert pool.engine.under_way == set()


def test_each_request_is_answered_when_it_is_done_and_not_when_the_others_are(
    pool_of: Callable[..., Pool],
) -> None:
    pool = pool_of()
    slow, quick = pool.request("slow", "quick")
    pool.engine.gate("quick").set()
    pool.finish(quick)
    assert not slow.is_done
    pool.engine.gate("slow").set()
    pool.finish(slow)
    assert pool.engine.most_at_once == 2


def test_no_more_requests_are_under_way_than_the_engine_has_room_for(pool_of: Callable[..., Pool]) -> None:
    pool = pool_of(max_batch=2)
    names = [f"request {number}" for number in range(6)]
    asked = pool.request(*names)
    assert pool.bench.row(NAME).gauges[Gauge.IN_FLIGHT] == 6
    for name in names:
        pool.engine.gate(name).set()
    pool.finish(*asked)
    assert pool.engine.most_at_once <= 2
    assert pool.bench.row(NAME).gauges[Gauge.IN_FLIGHT] == 0


def test_weights_change_under_answers_and_none_of_them_is_lost(pool_of: Callable[..., Pool]) -> None:
    pool = pool_of()
    [kept] = pool.request("kept")
    pool.finish(pool.load(1))
    pool.engine.gate("kept").set()
    [answer] = pool.finish(kept)
    assert answer.policy_version == 0, "an answer counts as the oldest of its versions"
    assert answer.spans == (VersionSpan(version=0, end=1), VersionSpan(version=1, end=2))


def test_a_draining_engine_changes_its_weights_when_nothing_is_under_way(
    pool_of: Callable[..., Pool],
) -> None:
    pool = pool_of(weight_update="drain")
    [early] = pool.request("early")
    loaded = pool.load(1)
    assert not pool.bench.row(NAME).ready
    assert not loaded.is_done
    pool.engine.gate("early").set()
    answer, _ = pool.finish(early, loaded)
    assert (answer.policy_version, answer.spans) == (0, ())


def test_a_checkpoint_it_refuses_stops_nothing_that_is_under_way(pool_of: Callable[..., Pool]) -> None:
    pool = pool_of()
    [kept] = pool.request("kept")
    [failed] = pool.finish(pool.load(CORRUPT))
    assert "sha256 2" in failed.reason
    pool.engine.gate("kept").set()
    assert pool.finish(kept)[0].policy_version == 0


def test_a_request_that_cannot_be_answered_is_refused_and_no_other_one_is_lost(
    pool_of: Callable[..., Pool],
) -> None:
    pool = pool_of()
    kept, bad = pool.request("kept", "too long")
    [refusal] = pool.finish(bad)
    assert refusal == m.CannotAnswer(reason="a prompt of 9,000 tokens leaves no room")
    pool.engine.gate("kept").set()
    assert isinstance(pool.finish(kept)[0], Generation)
    assert pool.bench.row(NAME).gauges[Gauge.IN_FLIGHT] == 0


def test_an_engine_that_answers_nobody_has_to_show_that_it_is_alive(pool_of: Callable[..., Pool]) -> None:
    pool = pool_of()
    at_start = pool.engine.proofs
    pool.bench.advance(HEALTH_EVERY_S / 2)
    pool.engine.gate("answered").set()
    pool.finish(*pool.request("answered"))
    pool.bench.advance(HEALTH_EVERY_S * 0.75)
    assert pool.engine.proofs == at_start, "an answer is proof enough"
    pool.bench.advance(HEALTH_EVERY_S)
    pool.bench.finish_work(NAME, lambda: pool.engine.proofs == at_start + 1)


def test_an_engine_that_gives_no_token_ends_its_actor_with_the_reason(pool_of: Callable[..., Pool]) -> None:
    pool = pool_of()
    pool.engine.is_wedged = True
    with pytest.raises(EngineWedged, match="engine core 7 is stopped"):
        pool.idle(HEALTH_EVERY_S + 1.0)


def test_an_engine_one_of_whose_processes_ended_ends_its_actor_at_once(pool_of: Callable[..., Pool]) -> None:
    pool = pool_of()
    pool.engine.death = "worker 8 ended (SIGKILL)"
    with pytest.raises(EngineDied, match="worker 8 ended"):
        pool.bench.advance(2 * ENGINE_CHECK_S)


def test_an_actor_that_stops_ends_its_engine(pool_of: Callable[..., Pool]) -> None:
    pool = pool_of()
    pool.bench.tell(NAME, Stop())
    pool.bench.settle()
    assert pool.engine.is_closed
