"""What a rollout actor does with requests while its weights change, with an engine that is a table."""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from actors.actor import Actor, Stop
from actors.future import Future
from actors.testing import InMemorySystem
from dart.config.config import Config
from dart.config.gpus import VISIBLE
from dart.core import messages as m
from dart.core.records import Version
from dart.core.types import GenerateRequest, Generation
from dart.inference.actor import HOLD_LOADS, PROBE_RENEWED_EVERY_S, RETRY_S, RolloutActor
from dart.inference.protocol import Engine, Swap, Unanswerable
from dart.store.checkpoints import CorruptCheckpoint, checkpoint_name
from dart.store.reader import StoreReader
from dart.store.run_checkpoints import LocalCheckpoints
from dart.store.store import Store
from dart.telemetry.board_gauges import Gauge

NAME = "rollout-0"
CORRUPT = 13
"""A version whose checkpoint is damaged."""

PATIENCE_S = 20.0
WAITS_S = 24.0
"""How long an environment waits for an answer."""
HOLD_S = HOLD_LOADS * Config().rollout.load_deadline_s


class TableEngine(Engine):
    """Answers at once, or when it is let; loads anything but what is corrupt."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.batches: list[tuple[str, ...]] = []
        """Instructions of each batch, the engine's own probes left out."""
        self.loads: list[int] = []
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.may_read = threading.Event()
        self.may_read.set()

    def generate(self, requests: Sequence[GenerateRequest]) -> list[Generation]:
        if any(request.history for request in requests):  # only the test's own have one
            self.batches.append(tuple(request.instruction for request in requests))
            if any(request.instruction == "bad" for request in requests):
                raise Unanswerable("its screenshot is missing")
            assert self.may_answer.wait(PATIENCE_S)
        return [answer(self.version) for _ in requests]

    def prepare(self, folder: Path, version: int, probe: GenerateRequest | None = None) -> Swap:
        self.loads.append(version)
        if folder.name in ("corrupt", checkpoint_name(CORRUPT)):
            raise CorruptCheckpoint(folder, "weights", "sha256 1", "sha256 2")
        assert self.may_read.wait(PATIENCE_S)
        return lambda: setattr(self, "version", version)


def answer(version: int) -> Generation:
    return Generation(
        prompt_ids=(1,),
        token_ids=(1, 2),
        logprobs=(0.0, 0.0),
        entropies=(0.0, 0.0),
        answer="wait()",
        policy_version=version,
    )


class RolloutWithTable(RolloutActor):
    def _make_engine(self, version: int, folder: Path, *, takes_adapters: bool = False) -> Engine:
        engine = TableEngine(-1)
        engine.load(folder, version)
        return engine


class Gatekeeper(Actor):
    """Stands for weight_sync on the board."""


class Pool:
    """One rollout actor on a bench, and what the tests do with it."""

    def __init__(self, bench: InMemorySystem, folder: Path, **rollout: Any) -> None:
        self.bench = bench
        self.store = folder / "record.db"
        self.settings = rollout
        self.asked: dict[str, Future[Any]] = {}

    def start(self, policy: str = "v0", run: dict[str, Any] | None = None, **args: Any) -> None:
        with Store(self.store) as store:
            store.add_version()
        sections = {"run": run or {}, "rollout": self.settings, "training": {"policy": policy}}
        config = Config.model_validate(sections)
        args |= {"config": config.model_dump(mode="json"), "store": str(self.store), "engines": [NAME]}
        self.bench.start(RolloutWithTable, NAME, args)
        self.bench.settle()

    @property
    def engine(self) -> TableEngine:
        engine: TableEngine = self.bench.actor(NAME)._engine
        return engine

    @property
    def is_in_routing(self) -> bool:
        return self.bench.row(NAME).ready

    def request(self, *names: str, waits_s: float = 1000.0) -> None:
        for name in names:
            request = GenerateRequest(
                screenshot_sha256="",
                instruction=name,
                history=("test",),
                temperature=1.0,
            )
            self.asked[name] = self.bench.ask(NAME, m.Generate(request=request), deadline_s=waits_s)
        self.bench.settle()

    def load(self, version: int, *, hold: bool = False) -> Future[Any]:
        call = m.LoadVersion(version=version, hold=hold)
        answer = self.bench.ask(NAME, call, deadline_s=1000.0)
        self.bench.settle()
        return answer

    def finish(self, *what: Future[Any]) -> None:
        self.bench.finish_work(NAME, lambda: all(one.is_done for one in what))

    def versions(self, *names: str) -> list[int]:
        self.finish(*(self.asked[name] for name in names))
        return [self.asked[name].result().policy_version for name in names]

    def block(self, name: str) -> None:
        """One request is in the engine and stays there."""
        self.engine.may_answer.clear()
        self.request(name)

    def unblock(self) -> None:
        self.engine.may_answer.set()


@pytest.fixture
def pool_of(tmp_path: Path) -> Iterator[Callable[..., Pool]]:
    with InMemorySystem(tmp_path) as bench:
        yield lambda **rollout: Pool(bench, tmp_path, **rollout)


def test_the_picture_of_a_probe_never_becomes_an_old_screenshot(
    pool_of: Callable[..., Pool], tmp_path: Path
) -> None:
    pool = pool_of()
    pool.start(run={"screenshots_kept_days": 14})
    (picture,) = tmp_path.rglob("*.png")
    os.utime(picture, (1.0, 1.0))
    pool.bench.advance(PROBE_RENEWED_EVERY_S)
    pool.bench.finish_work(NAME, lambda: picture.stat().st_mtime > 1.0)


def test_an_engine_that_gets_no_gpu_of_its_node_sees_none(
    pool_of: Callable[..., Pool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VISIBLE, "0,1")
    pool = pool_of()
    pool.start(engine_gpus=0)
    pool.request("first")
    assert pool.versions("first") == [0]
    assert os.environ[VISIBLE] == ""


def test_a_swap_takes_place_between_two_batches_and_waiting_requests_get_the_new_weights(
    pool_of: Callable[..., Pool],
) -> None:
    pool = pool_of(weight_update="swap")
    pool.start()
    pool.block("first")
    pool.request("second", "third")
    loaded = pool.load(1)
    assert pool.is_in_routing  # until the load itself
    pool.request("while it waits for the batch")
    pool.unblock()
    pool.finish(loaded)
    assert loaded.result() == m.VersionLoaded(version=1)
    assert pool.versions("first", "second", "third", "while it waits for the batch") == [0, 1, 1, 1]
    assert pool.engine.batches == [("first",), ("second", "third", "while it waits for the batch")]
    assert pool.is_in_routing


def test_an_engine_answers_with_the_old_weights_while_it_reads_the_new_ones(
    pool_of: Callable[..., Pool],
) -> None:
    pool = pool_of()
    pool.start()
    pool.engine.may_read.clear()
    loaded = pool.load(1)
    pool.request("first", "second")
    assert pool.versions("first", "second") == [0, 0]
    assert pool.is_in_routing
    pool.engine.may_read.set()
    pool.finish(loaded)
    pool.request("after")
    assert pool.versions("after") == [1]


def test_an_engine_does_not_compute_a_request_whose_environment_has_given_up(
    pool_of: Callable[..., Pool],
) -> None:
    pool = pool_of()
    pool.start()
    pool.block("first")
    pool.request("given up", waits_s=WAITS_S)
    pool.bench.advance(WAITS_S)
    pool.request("new", waits_s=WAITS_S)
    pool.unblock()
    assert pool.versions("new") == [0]
    assert pool.engine.batches == [("first",), ("new",)]


def test_a_request_whose_answer_would_come_too_late_is_sent_back_at_once(
    pool_of: Callable[..., Pool],
) -> None:
    pool = pool_of()
    pool.start()
    pool.block("takes a third of the time")
    pool.request("early", waits_s=WAITS_S)
    pool.bench.advance(WAITS_S / 3)
    pool.unblock()
    pool.finish(*pool.asked.values())
    pool.block("takes two thirds")
    pool.request("comes first", waits_s=WAITS_S)
    pool.bench.advance(2 * WAITS_S / 3)
    pool.request("comes last", waits_s=WAITS_S)
    pool.unblock()
    assert pool.versions("early", "comes last") == [0, 0]
    assert pool.engine.batches[-1] == ("comes last",)
    assert isinstance(pool.asked["comes first"].result(), m.NoWorkYet)


def test_a_drain_answers_what_is_there_with_the_old_weights_and_takes_nothing_new(
    pool_of: Callable[..., Pool],
) -> None:
    pool = pool_of(weight_update="drain", max_batch=2)
    pool.start()
    pool.block("first")
    pool.request("second", "third", "fourth")
    loaded = pool.load(1)
    assert not pool.is_in_routing
    pool.unblock()
    pool.finish(loaded)
    pool.request("after")
    assert pool.versions("first", "second", "third", "fourth", "after") == [0, 0, 0, 0, 1]
    assert pool.is_in_routing


def test_a_drain_ends_when_the_version_it_answers_with_is_no_longer_enough(
    pool_of: Callable[..., Pool],
) -> None:
    pool = pool_of(weight_update="drain", max_batch=2)
    pool.start()
    gatekeeper = pool.bench.start(Gatekeeper, "weight_sync")
    pool.block("first")
    pool.request("second", "third")
    loaded = pool.load(1)
    pool.bench.finish_work(NAME, lambda: pool.engine.loads == [0, 1])
    gatekeeper.set_gauges({Gauge.REQUIRED_VERSION: 1})  # all other engines have it
    pool.bench.advance(1.0)
    pool.unblock()
    pool.finish(loaded, *pool.asked.values())
    assert isinstance(pool.asked["second"].result(), m.NoWorkYet)
    assert loaded.result() == m.VersionLoaded(version=1)
    pool.request("after")
    assert pool.versions("after") == [1]


def test_an_answer_that_is_too_large_for_a_message_is_refused_with_its_size(
    pool_of: Callable[..., Pool], monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = pool_of()
    pool.start()
    long = replace(answer(0), prompt_ids=(70_000,) * 14_000)
    monkeypatch.setattr(f"{__name__}.answer", lambda version: long)
    pool.request("long")
    pool.finish(pool.asked["long"])
    refused = pool.asked["long"].result()
    assert isinstance(refused, m.CannotAnswer)
    assert "its prompt of 14000 and its 2 tokens" in refused.reason
    assert "lower context.answer_tokens or context.turns" in refused.reason


def test_an_engine_that_cannot_begin_with_the_newest_adapter_is_closed_before_another_is_made(
    pool_of: Callable[..., Pool], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, closed = [], []

    class Closing(TableEngine):
        def close(self) -> None:
            closed.append(self)

    def make(self: RolloutActor, version: int, folder: Path, *, takes_adapters: bool = False) -> Engine:
        made.append(Closing(0))
        return made[-1]

    corrupt = Version(version=CORRUPT, metrics={}, created_unix_s=0.0)
    monkeypatch.setattr(RolloutWithTable, "_make_engine", make)
    monkeypatch.setattr("dart.inference.actor.publishes_adapter", lambda config: True)
    monkeypatch.setattr(StoreReader, "latest_version", lambda reader: corrupt)
    pool = pool_of()
    pool.start()
    pool.bench.advance(3 * RETRY_S)
    assert len(made) > 2
    assert closed == made


def test_an_engine_that_begins_with_the_base_policy_of_adapters_fetches_it_once(
    pool_of: Callable[..., Pool], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    folder = Path("base")
    monkeypatch.setattr("dart.inference.actor.publishes_adapter", lambda config: True)
    monkeypatch.setattr(LocalCheckpoints, "policy", lambda self, version: asked.append("policy") or folder)
    monkeypatch.setattr(LocalCheckpoints, "base", lambda self: asked.append("base") or folder)
    pool_of().start()
    assert asked == ["base"]


def test_of_a_batch_only_the_request_that_cannot_be_answered_is_refused(
    pool_of: Callable[..., Pool],
) -> None:
    pool = pool_of()
    pool.start()
    pool.block("first")
    pool.request("good", "bad", "better")
    pool.unblock()
    assert pool.versions("first", "good", "better") == [0, 0, 0]
    pool.finish(pool.asked["bad"])
    assert pool.asked["bad"].result() == m.CannotAnswer(reason="its screenshot is missing")
    assert pool.engine.batches[1:] == [("good", "bad", "better"), ("good",), ("bad",), ("better",)]
    pool.request("after")
    assert pool.versions("after") == [0]


def test_whoever_holds_answers_nothing_until_all_engines_have_the_version(
    pool_of: Callable[..., Pool],
) -> None:
    pool = pool_of(sync="all_at_once")
    pool.start()
    pool.block("under way")
    pool.request("waiting")
    loaded = pool.load(1, hold=True)
    pool.unblock()
    pool.finish(loaded)
    pool.request("during the hold")
    pool.bench.advance(HOLD_S / 2)
    assert not pool.is_in_routing
    assert not pool.asked["waiting"].is_done
    pool.bench.tell(NAME, m.Serve())
    assert pool.versions("under way", "waiting", "during the hold") == [0, 1, 1]
    assert pool.is_in_routing


def test_a_hold_that_nobody_ends_ends_by_itself(pool_of: Callable[..., Pool]) -> None:
    pool = pool_of(sync="all_at_once")
    pool.start()
    pool.finish(pool.load(1, hold=True))
    pool.request("waiting")
    pool.bench.advance(HOLD_S + 1.0)
    assert pool.versions("waiting") == [1]
    assert pool.is_in_routing


@pytest.mark.parametrize("hold", [False, True])
def test_a_checkpoint_that_cannot_be_loaded_leaves_the_old_policy_in_routing_and_says_why(
    pool_of: Callable[..., Pool], hold: bool
) -> None:
    pool = pool_of()
    pool.start()
    failed = pool.load(CORRUPT, hold=hold)
    pool.finish(failed)
    assert "sha256 2" in failed.result().reason
    pool.request("later")
    assert pool.versions("later") == [0]
    assert pool.is_in_routing


def test_a_damaged_checkpoint_is_given_up_so_that_it_can_be_fetched_again(
    pool_of: Callable[..., Pool], monkeypatch: pytest.MonkeyPatch
) -> None:
    given_up: list[str] = []
    monkeypatch.setattr(LocalCheckpoints, "discard", lambda _, folder: given_up.append(folder.name))
    pool = pool_of()
    pool.start()
    pool.finish(pool.load(CORRUPT))
    assert given_up == [checkpoint_name(CORRUPT)]
    with pytest.raises(CorruptCheckpoint):
        pool_of().start("corrupt")
    assert given_up == [checkpoint_name(CORRUPT), "corrupt"]


def test_a_version_is_shown_as_loading_from_the_call_until_it_is_served(pool_of: Callable[..., Pool]) -> None:
    pool = pool_of()
    pool.start()
    pool.block("one")
    first, second = pool.load(3), pool.load(4)
    gauges = pool.bench.row(NAME).gauges
    assert (gauges[Gauge.SERVED_VERSION], gauges[Gauge.LOADING_VERSION]) == (0, 3)
    pool.unblock()
    pool.finish(first, second)
    gauges = pool.bench.row(NAME).gauges
    assert (gauges[Gauge.SERVED_VERSION], gauges[Gauge.LOADING_VERSION]) == (4, 0)


def test_a_version_it_has_already_is_not_loaded_again(pool_of: Callable[..., Pool]) -> None:
    pool = pool_of()
    pool.start()
    newer, older = pool.load(3), pool.load(2)
    pool.finish(newer, older)
    assert older.result() == m.VersionLoaded(version=3)
    assert pool.engine.loads == [0, 3]


def test_an_engine_older_than_required_turns_requests_away_until_it_has_loaded(
    pool_of: Callable[..., Pool],
) -> None:
    pool = pool_of()
    pool.start()
    gatekeeper = pool.bench.start(Gatekeeper, "weight_sync")
    pool.block("under way")
    pool.request("waiting")
    gatekeeper.set_gauges({Gauge.REQUIRED_VERSION: 1})
    pool.request("too late")
    assert isinstance(pool.asked["too late"].result(), m.NoWorkYet)
    assert "serves version 0, 1 is required" in pool.asked["waiting"].result().reason
    assert not pool.is_in_routing
    gatekeeper.set_gauges({Gauge.REQUIRED_VERSION: 0})  # a restarted weight_sync; what was required stays so
    pool.bench.advance(1.0)
    pool.unblock()
    loaded = pool.load(1)
    pool.request("during the load")
    pool.finish(loaded)
    pool.request("after")
    assert pool.versions("under way", "during the load", "after") == [0, 1, 1]
    assert pool.is_in_routing


def test_an_engine_somebody_doubts_is_out_of_routing_until_it_gave_a_real_answer(
    pool_of: Callable[..., Pool],
) -> None:
    pool = pool_of()
    pool.start()
    pool.block("under way")
    proved = pool.bench.ask(NAME, m.Probe(), deadline_s=1000.0)
    pool.bench.settle()
    assert not pool.is_in_routing
    pool.unblock()
    pool.finish(proved)
    assert proved.result() == m.VersionLoaded(version=0)
    assert pool.is_in_routing


def test_how_busy_it_was_is_counted_by_time_and_by_slots(pool_of: Callable[..., Pool]) -> None:
    pool = pool_of(max_batch=4)
    pool.start()
    pool.block("one")
    pool.request("two", "three")
    pool.bench.advance(10.0)  # one of four slots
    pool.engine.may_answer.set()
    pool.versions("one", "two", "three")
    pool.bench.advance(5.0)  # idle
    totals = pool.bench.actor(NAME)._meter.totals()
    assert totals["busy_s"] == pytest.approx(10.0)
    assert totals["weighted_s"] == pytest.approx(2.5)
    assert (totals["requests"], totals["tokens"]) == (3, 6)
    assert totals["wall_s"] == pytest.approx(15.0)


def test_a_first_policy_that_cannot_be_read_ends_the_actor(pool_of: Callable[..., Pool]) -> None:
    pool = pool_of()
    with pytest.raises(CorruptCheckpoint):
        pool.start("corrupt")


def test_a_later_version_that_cannot_be_read_at_the_start_is_waited_for(
    pool_of: Callable[..., Pool], monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = [Version(version=CORRUPT, metrics={}, created_unix_s=0.0)]
    monkeypatch.setattr(StoreReader, "latest_version", lambda reader: newest[-1])
    pool = pool_of()
    pool.start()
    pool.bench.advance(3 * RETRY_S)
    assert not pool.is_in_routing
    newest.append(replace(newest[0], version=CORRUPT + 1))
    pool.bench.advance(2 * RETRY_S)
    pool.request("first")
    assert pool.versions("first") == [CORRUPT + 1]
    assert pool.is_in_routing


def test_one_that_stops_answers_what_it_was_asked_and_sends_what_comes_later_elsewhere(
    pool_of: Callable[..., Pool],
) -> None:
    pool = pool_of()
    pool.start()
    pool.block("first")
    pool.request("second")
    pool.bench.tell(NAME, Stop())
    pool.bench.settle()
    assert not pool.is_in_routing
    pool.request("late")
    assert "is stopping" in pool.asked["late"].result().reason
    pool.unblock()
    assert pool.versions("first", "second") == [0, 0]
    pool.bench.settle()
    assert not pool.bench.is_alive(NAME)
