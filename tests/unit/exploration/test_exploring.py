"""Explorers and the owner of the graph among a real record, on a site without a browser."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from structlog.testing import capture_logs

from actors.actor import Actor, Sender, Stop, receives
from actors.errors import AskTimeout, WorkOverdue
from actors.future import Future
from actors.testing import InMemorySystem
from dart.config.config import Config
from dart.config.failing_time import MAX_FAULTS_IN_ROW, RESET_FACTOR
from dart.core import messages as m
from dart.core.actions import Action, ActionParseError, Click, parse_action
from dart.core.exploration import Box, Effect, LeaseEnd, LeaseMove, PageScreen
from dart.core.records import Event
from dart.core.types import GenerateRequest, Generation
from dart.environments import factory
from dart.environments.faults import EnvironmentFault, ResetFailed
from dart.environments.protocol import Observation
from dart.exploration import actor as exploration_module
from dart.exploration.actor import OVER_POLL_S, ExplorerActor, ExploringEnvironmentActor
from dart.exploration.candidates import candidates_of
from dart.exploration.explorer import Explorer
from dart.exploration.follower import GraphFollower
from dart.exploration.graph import Graph
from dart.exploration.memory_q import PRIOR
from dart.exploration.model_prior import INSTRUCTION
from dart.exploration.owner import ENDS_AFTER_S, OVERDUE_CHECK_S, ExplorationActor
from dart.exploration.planning import UNREACHED_MOST
from dart.exploration.prior_context import TRIED_HEAD, UNTRIED_HEAD
from dart.inference.transformers_engine import TransformersEngine
from dart.policy.load import load
from dart.policy.placement import ModelPlacement
from dart.store.actor import StoreActor
from dart.store.client import WRITE_DEADLINE_S
from dart.store.errors import StoreBusy
from dart.store.reader import StoreReader
from dart.store.run_blobs import run_blobs
from dart.store.store import Store
from dart.telemetry.events import PRIOR_CONTEXT_REFUSED
from tests.deadlines import note_deadlines
from tests.pointing import READING, make_pointing
from tests.sampled import recorded
from tests.unit.exploration.made_up_site import PAGES, MadeUpSite
from tests.unit.exploration.screens import screen

TASK, OTHER_TASK = "miniwob/navigate-tree", "miniwob/click-button"
PIECE_S = 0.2
ENGINE = "rollout-000"


class Curator(Actor):
    """Has no work for anybody, because the run is paused if `is_held`. It counts who asks."""

    def on_start(self) -> None:
        self.asked: Counter[str] = Counter()
        self.is_held = False

    @receives(m.WorkRequest)
    def next_work(self, call: m.WorkRequest, sender: Sender) -> m.NoWorkYet:
        self.asked[call.environment] += 1
        return m.NoWorkYet(retry_after_s=0.5, reason="nothing to do", is_held=self.is_held)


class Engine(Actor):
    """Always clicks the second button. It refuses instructions with more characters than `most`."""

    def on_start(self) -> None:
        self.most = 100_000
        self.asked: list[str] = []
        self.temperatures: set[float] = set()

    @receives(m.Generate)
    def generate(self, call: m.Generate, sender: Sender) -> Generation | m.CannotAnswer:
        self.asked.append(call.request.instruction)
        self.temperatures.add(call.request.temperature)
        if len(call.request.instruction) > self.most:
            return m.CannotAnswer(reason="the prompt is too long")
        return Generation(
            prompt_ids=(1,),
            token_ids=(2,),
            logprobs=(-1.0,),
            entropies=(1.0,),
            answer="click(start_box='(20,26)')",
            policy_version=1,
        )


class ModelEngine(Actor):
    """Answers with the checkpoint of its args, and keeps what it answered."""

    def on_start(self) -> None:
        config = Config.model_validate(self.args["config"])
        screenshots = run_blobs(config.run, self.identity.run_dir).screenshots
        self._engine = TransformersEngine(
            Path(self.args["policy"]), 0, screenshots=screenshots, seed=5, prompt_spec=READING
        )
        self.answered: list[tuple[GenerateRequest, Generation]] = []

    @receives(m.Generate)
    def generate(self, call: m.Generate, sender: Sender) -> Generation:
        (answer,) = self._engine.generate([call.request])
        self.answered.append((call.request, answer))
        return answer


@dataclass
class System:
    """A bench with a store and the owner of the graph."""

    bench: InMemorySystem
    folder: Path
    sites: dict[str, MadeUpSite]
    config: dict[str, Any]

    @property
    def args(self) -> dict[str, Any]:
        return {"config": self.config, "store": str(self.folder / "store.db"), "engines": [ENGINE]}

    def start_engine(self) -> Engine:
        self.bench.start(Engine, ENGINE)
        engine: Engine = self.bench.actor(ENGINE)
        return engine

    def start_model_engine(self, policy: Path) -> ModelEngine:
        self.bench.start(ModelEngine, ENGINE, self.args | {"policy": str(policy)})
        engine: ModelEngine = self.bench.actor(ENGINE)
        return engine

    def refusals(self) -> list[Event]:
        with StoreReader(self.folder / "store.db") as reader:
            return list(reader.find_events(kinds=[PRIOR_CONTEXT_REFUSED]))

    def start_explorers(self, *names: str, actor: type[Actor] = ExplorerActor) -> None:
        for name in names:
            self.bench.start(actor, name, self.args)

    def until(self, is_so: Callable[[], bool], seconds: float = 200.0) -> None:
        """Let time pass in small pieces until something is so."""
        ends_s = self.bench.clock.monotonic_s() + seconds
        while not is_so():
            assert self.bench.clock.monotonic_s() < ends_s, "not so in time"
            self.bench.advance(PIECE_S)
            for name in self.sites:
                self._finish_loop(name)

    def let(self, seconds: float) -> None:
        """Let time pass in small pieces."""
        ends_s = self.bench.clock.monotonic_s() + seconds
        self.until(lambda: self.bench.clock.monotonic_s() >= ends_s)

    def stop(self) -> None:
        """End the explorers, so that none is left in the middle of an action."""
        for name in self.sites:
            if self.bench.is_alive(name):
                self.bench.tell(name, Stop())
        self.until(lambda: not any(self.bench.is_alive(name) for name in self.sites))

    def _finish_loop(self, name: str) -> None:
        if not self.bench.is_alive(name):
            return
        done: list[bool] = []
        last = _nothing()
        self.bench.actor(name).in_loop(last).then(lambda: done.append(True))
        self.bench.finish_work(name, lambda: bool(done) or not self.bench.is_alive(name))
        last.close()  # an actor that ended meanwhile has not begun it

    def graph(self) -> Graph:
        with StoreReader(self.folder / "store.db") as reader:
            follower = GraphFollower(reader, TASK, 0)
            follower.follow()
        return follower.graph

    def held(self) -> list[str]:
        with StoreReader(self.folder / "store.db") as reader:
            return [lease.explorer for lease in reader.held_leases()]


async def _nothing() -> None:
    return


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., System]]:
    """Makes a system whose explorers have made-up sites."""
    systems: list[System] = []
    with InMemorySystem(tmp_path) as bench:

        def made(pages: Mapping[str, tuple[str, ...]] = PAGES, **settings: Any) -> System:
            sites: dict[str, MadeUpSite] = {}

            def make_environment(config: Config, name: str, *_: Any) -> MadeUpSite:
                sites[name] = MadeUpSite(pages)
                return sites[name]

            monkeypatch.setattr(factory, "make_environment", make_environment)
            wanted = {"tasks": [TASK], "actions": 200, "confirm_share": 0.0, "stops_when_flat": False}
            config = Config.model_validate({"exploration": wanted | settings}).model_dump(mode="json")
            with Store(tmp_path / "store.db") as store:
                store.add_version()
            system = System(bench, tmp_path, sites, config)
            systems.append(system)
            bench.start(StoreActor, "store", system.args)
            bench.start(ExplorationActor, "exploration", system.args | {"ends_run": True})
            return system

        yield made
        for system in systems:
            system.stop()


def test_a_site_is_explored_to_its_last_action_and_then_the_owner_ends(make: Callable[..., System]) -> None:
    system = make()
    system.start_explorers("explorer-000")
    system.until(lambda: not system.bench.is_alive("exploration"))
    graph = system.graph()
    assert {node.screen.title for node in graph.nodes.values()} == set(PAGES)
    assert all(not graph.untried(screen_id) for screen_id in graph.nodes)
    effects = Counter(step.effect for step in graph.steps)
    assert (effects[Effect.LEFT], effects[Effect.NEW_SHAPE]) == (1, len(PAGES))
    assert system.held() == []


@pytest.mark.parametrize("name", ["half \ud83d", "long " * 20_000], ids=["half a character", "long"])
def test_a_page_whose_text_and_address_no_message_carries_is_explored(
    make: Callable[..., System], name: str
) -> None:
    system = make({"home": (name,), name: ("home", "away")})
    system.start_explorers("explorer-000")
    system.until(lambda: not system.bench.is_alive("exploration"))
    assert system.bench.is_alive("explorer-000")
    effects = Counter(step.effect for step in system.graph().steps)
    assert (len(system.graph().nodes), effects[Effect.LEFT]) == (2, 1)


def test_two_explorers_share_the_screens_and_expand_none_twice(make: Callable[..., System]) -> None:
    system = make()
    system.start_explorers("explorer-000", "explorer-001")
    system.until(lambda: not system.bench.is_alive("exploration"))
    graph = system.graph()
    expanded = Counter((step.source_id, step.action) for step in graph.steps if step.is_expansion)
    assert set(expanded.values()) == {1}
    assert len(expanded) == sum(map(len, PAGES.values()))
    assert len({step.fence for step in graph.steps}) > 1


def test_known_effects_are_repeated_when_nothing_is_left_to_expand(make: Callable[..., System]) -> None:
    system = make(confirm_share=0.5)
    system.start_explorers("explorer-000")
    system.until(lambda: not system.bench.is_alive("exploration"), seconds=400.0)
    assert {targets.total() >= 2 for _, targets in system.graph().edges()} == {True}


def test_an_action_that_is_gone_costs_no_other_action_of_its_screen_its_repetition(
    make: Callable[..., System],
) -> None:
    pages: dict[str, tuple[str, ...]] = {
        "home": ("news 1", "cart", "help"),
        "news 1": (),
        "cart": (),
        "help": (),
    }
    system = make(pages, strategy="least_tried")
    system.start_explorers("explorer-000")
    system.until(lambda: not system.bench.is_alive("exploration"))
    system.stop()

    pages |= {"home": ("news 2", "cart", "help"), "news 2": ()}
    system.config["exploration"]["confirm_share"] = 0.5
    system.bench.start(ExplorationActor, "exploration", system.args | {"ends_run": True})
    system.start_explorers("explorer-001")
    system.until(lambda: not system.bench.is_alive("exploration"))
    graph = system.graph()
    (home,) = graph.roots
    tries = {hop.action: targets.total() for hop, targets in graph.edges() if hop.source_id == home}
    assert {one.text: tries[one.key] for one in graph.candidates(home)} == {"news 1": 1, "cart": 2, "help": 2}


def test_no_more_actions_than_allowed_are_begun(make: Callable[..., System]) -> None:
    system = make(actions=4)
    system.start_explorers("explorer-000")
    system.until(lambda: not system.bench.is_alive("exploration"))
    assert 4 <= system.graph().actions <= 4 + 25


def leased(system: System, incarnation: int = 1, explorer: str = "explorer-009") -> m.ExplorationLease:
    """A lease of an explorer that reports nothing under it."""
    request = m.ExploreRequest(explorer=explorer, incarnation=incarnation, task_id="", seed=0, at=None)
    lease: m.ExplorationLease = answered(system, request)
    return lease


def answered(system: System, request: Any) -> Any:
    """The answer of the owner of the graph to a request."""
    answer = system.bench.ask("exploration", request)
    system.bench.settle()
    return answer.result()


def start_shown(lease: m.ExplorationLease, shown: PageScreen) -> m.ExploredReport:
    """A report that the first reset of a lease showed a screen."""
    return m.ExploredReport(
        fence=lease.fence,
        number=1,
        cost=1,
        source_id=None,
        candidate=None,
        effect=None,
        screen=shown,
        move=LeaseMove.FOLLOW,
    )


def test_while_the_screens_of_one_task_are_held_the_next_task_is_explored(
    make: Callable[..., System],
) -> None:
    system = make(tasks=[TASK, OTHER_TASK])
    first = leased(system)
    assert answered(system, start_shown(first, screen("home"))).holds
    second = leased(system, explorer="explorer-010")
    assert (first.task_id, second.task_id) == (TASK, OTHER_TASK)

    assert answered(system, start_shown(second, screen("other home"))).holds
    waits = leased(system, explorer="explorer-011")
    assert isinstance(waits, m.NoWorkYet)
    assert waits.reason == "other explorers hold every screen that is left"


def test_a_task_does_not_wait_for_the_screens_of_another_one(make: Callable[..., System]) -> None:
    system = make(tasks=[TASK, OTHER_TASK])
    first = leased(system)
    answered(system, start_shown(first, screen("home", buttons=())))
    second = leased(system, explorer="explorer-010")
    answered(system, start_shown(second, screen("other home")))
    with capture_logs() as logged:
        leased(system)
    assert [event["task"] for event in logged if "every action was tried" in str(event)] == [TASK]


def test_the_lease_of_an_explorer_that_died_ends_with_its_next_one(make: Callable[..., System]) -> None:
    system = make()
    earlier, later = leased(system), leased(system, incarnation=2)
    assert later.fence > earlier.fence
    assert system.held() == ["explorer-009"]
    system.bench.tell("exploration", m.GiveBackLease(fence=earlier.fence, why=LeaseEnd.GIVEN_BACK))
    system.bench.settle()
    assert system.held() == ["explorer-009"]


def with_home(system: System) -> tuple[m.ExplorationLease, int]:
    """The first lease, under which a reset has shown the start screen, and the id of this screen."""
    lease = leased(system)
    reply = answered(system, start_shown(lease, screen("home")))
    return lease, reply.screen_id


def request(at: int | None, task_id: str = TASK, seed: int = 0) -> m.ExploreRequest:
    """A request of an explorer that shows a screen."""
    return m.ExploreRequest(explorer="explorer-009", incarnation=1, task_id=task_id, seed=seed, at=at)


def give_back(system: System, lease: m.ExplorationLease, why: LeaseEnd = LeaseEnd.GIVEN_BACK) -> None:
    system.bench.tell("exploration", m.GiveBackLease(fence=lease.fence, why=why))
    system.bench.settle()


def test_an_explorer_is_sent_on_from_the_screen_that_it_shows(make: Callable[..., System]) -> None:
    system = make(tasks=[TASK, OTHER_TASK])
    _, home = with_home(system)
    from_there = [
        not answered(system, one).begins_with_reset
        for one in (request(home), request(None), request(home, OTHER_TASK), request(home, seed=1))
    ]
    assert from_there == [True, False, False, False]


def test_a_screen_that_the_known_way_has_missed_three_times_is_leased_no_more(
    make: Callable[..., System],
) -> None:
    system = make()
    _, home = with_home(system)
    for _ in range(UNREACHED_MOST):
        lease = leased(system)
        assert lease.screen_id == home
        give_back(system, lease, LeaseEnd.UNREACHED)
    assert isinstance(leased(system), m.ExplorationOver)


def test_the_owner_ends_a_while_after_the_last_lease(make: Callable[..., System]) -> None:
    system = make(actions=1)
    lease, _ = with_home(system)
    over = leased(system, explorer="explorer-010")
    assert over == m.ExplorationOver(reason=f"{TASK}: all 1 actions are used up")
    system.bench.advance(2 * ENDS_AFTER_S)
    assert system.bench.is_alive("exploration")

    give_back(system, lease)
    leased(system, explorer="explorer-010")
    system.bench.advance(ENDS_AFTER_S / 2)
    assert system.bench.is_alive("exploration")
    system.bench.advance(ENDS_AFTER_S)
    assert not system.bench.is_alive("exploration")


def test_the_owner_of_a_training_run_outlives_the_exploration(make: Callable[..., System]) -> None:
    system = make(actions=1)
    with_home(system)
    system.bench.start(ExplorationActor, "owner", system.args)
    answer = system.bench.ask("owner", request(None))
    system.bench.settle()
    assert isinstance(answer.result(), m.ExplorationOver)
    system.bench.advance(2 * ENDS_AFTER_S)
    assert system.bench.is_alive("owner")


def test_while_the_store_takes_no_writes_the_owner_asks_for_patience(
    make: Callable[..., System], monkeypatch: pytest.MonkeyPatch
) -> None:
    system = make()
    lease = leased(system)
    report = start_shown(lease, screen("home"))
    with monkeypatch.context() as patch:
        patch.setattr(
            ExplorationActor,
            "ask",
            lambda *_, **__: done(m.Paused(reason="the disk is full", retry_after_s=1.0)),
        )
        waits = (leased(system, explorer="explorer-010"), answered(system, report))
        assert {(type(one), one.reason) for one in waits} == {(m.NoWorkYet, "the disk is full")}
        give_back(system, lease)
    assert system.held() == ["explorer-009"], "it is held until its deadline"
    assert answered(system, report).holds


def done(answer: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.succeed(answer)
    return future


def test_a_lease_without_reports_expires(make: Callable[..., System]) -> None:
    system = make(lease_s=10.0)
    leased(system)
    system.bench.advance(9.0)
    assert system.held() == ["explorer-009"]
    system.bench.advance(8.0)
    assert system.held() == []


def test_while_the_store_does_not_answer_no_explorer_waits_for_more_than_one_overdue_lease(
    make: Callable[..., System], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each write to a store that does not answer keeps the owner for 15 s."""
    system = make(lease_s=10.0, tasks=[TASK, OTHER_TASK])
    for number in range(4):
        leased(system, explorer=f"explorer-{number:03d}")
    asked: list[Any] = []

    def silent(owner: ExplorationActor, _: str, call: Any, **__: Any) -> Future[Any]:
        asked.append(call)
        late: Future[Any] = Future()
        owner.after(WRITE_DEADLINE_S, lambda: late.fail(AskTimeout("the store does not answer")))
        return late

    with monkeypatch.context() as patch:
        patch.setattr(ExplorationActor, "ask", silent)
        system.bench.advance(10.0 + OVERDUE_CHECK_S)
        answer = system.bench.ask("exploration", request(None), deadline_s=60.0)
        system.bench.advance(2 * WRITE_DEADLINE_S + 1.0)
        assert isinstance(answer.result(), m.NoWorkYet)
        assert [type(call) for call in asked[:2]] == [m.EndExplorationLease, m.LeaseScreen]
    system.bench.advance(WRITE_DEADLINE_S + 2 * OVERDUE_CHECK_S)
    assert system.held() == []


def is_busy(*_: Any, **__: Any) -> Any:
    """A read of a record whose server does not answer."""
    raise StoreBusy("the server does not answer")


def test_the_owner_of_a_busy_record_lives_and_asks_for_patience(
    make: Callable[..., System], monkeypatch: pytest.MonkeyPatch
) -> None:
    system = make()
    report = start_shown(leased(system), screen("home"))
    with monkeypatch.context() as patch:
        patch.setattr(StoreReader, "held_leases", is_busy)
        assert isinstance(answered(system, report), m.NoWorkYet)
        system.bench.advance(OVERDUE_CHECK_S + 1.0)
        assert isinstance(leased(system, explorer="explorer-010"), m.NoWorkYet)
    system.bench.advance(OVERDUE_CHECK_S + 1.0)
    assert answered(system, report).holds


def test_a_report_that_was_recorded_before_the_record_was_busy_is_recorded_once(
    make: Callable[..., System], monkeypatch: pytest.MonkeyPatch
) -> None:
    system = make()
    report = start_shown(leased(system), screen("home"))
    reads: list[int] = []
    follow = GraphFollower.follow

    def busy_after_the_first(follower: GraphFollower) -> Any:
        reads.append(1)
        return follow(follower) if len(reads) == 1 else is_busy()

    with capture_logs() as logged:
        with monkeypatch.context() as patch:
            patch.setattr(GraphFollower, "follow", busy_after_the_first)
            assert isinstance(answered(system, report), m.NoWorkYet)
        assert len(system.graph().steps) == 1
        system.bench.advance(2.0)
        assert answered(system, report).holds
        assert answered(system, report).holds, "its reply was lost"
    assert len(system.graph().steps) == 1
    assert [event["screen"] for event in logged if event["event"] == "screen_found"] == [1]


def test_requests_that_came_during_the_read_of_a_busy_record_are_answered_without_another_read(
    make: Callable[..., System], monkeypatch: pytest.MonkeyPatch
) -> None:
    system = make()
    reads: list[int] = []

    def busy(_: StoreReader) -> Any:
        reads.append(1)
        is_busy()

    with monkeypatch.context() as patch:
        patch.setattr(StoreReader, "held_leases", busy)
        replies = [leased(system, explorer=f"explorer-{number:03d}") for number in range(16)]
    assert {type(one) for one in replies} == {m.NoWorkYet}
    assert len(reads) == 1


def test_an_explorer_outlives_a_busy_record_and_completes_its_site(
    make: Callable[..., System], monkeypatch: pytest.MonkeyPatch
) -> None:
    system = make()
    reads: list[int] = []
    read = StoreReader.explored_steps

    def busy_for_a_while(*arguments: Any) -> Any:
        reads.append(1)
        return is_busy() if 10 <= len(reads) < 20 else read(*arguments)

    monkeypatch.setattr(StoreReader, "explored_steps", busy_for_a_while)
    system.start_explorers("explorer-000")
    explorer: Any = system.bench.actor("explorer-000")
    system.until(lambda: not system.bench.is_alive("exploration"))
    assert len(reads) > 20
    assert system.bench.actor("explorer-000") is explorer
    assert {node.screen.title for node in system.graph().nodes.values()} == set(PAGES)


def test_an_idle_environment_outlives_a_busy_record_and_then_explores(
    make: Callable[..., System], monkeypatch: pytest.MonkeyPatch
) -> None:
    system = make(enabled=True, lease_actions=3)
    system.bench.start(Curator, "curator")
    curator: Any = system.bench.actor("curator")
    with monkeypatch.context() as patch:
        patch.setattr(exploration_module, "StoreReader", is_busy)
        system.start_explorers("env-000", actor=ExploringEnvironmentActor)
        system.until(lambda: curator.asked["env-000"] > 3)
    system.until(lambda: len(system.graph().nodes) > 1)
    with monkeypatch.context() as patch:
        patch.setattr(StoreReader, "explored_steps", is_busy)
        asked = curator.asked["env-000"]
        system.until(lambda: curator.asked["env-000"] > asked + 3)
    system.until(lambda: len(system.graph().nodes) == len(PAGES))


def test_a_site_that_does_not_answer_ends_the_exploration_with_an_empty_graph(
    make: Callable[..., System], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exploration_module, "MAX_FAULTS_IN_ROW", 100)  # no supervisor restarts them here
    system = make(pages={})
    system.start_explorers("explorer-000", "explorer-001", "explorer-002")
    system.until(lambda: not system.bench.is_alive("exploration"))
    graph = system.graph()
    assert graph.nodes == {}
    assert {step.effect for step in graph.steps} == {Effect.FAULT}


def test_a_resumed_run_explores_a_site_that_did_not_answer_before(
    make: Callable[..., System], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exploration_module, "MAX_FAULTS_IN_ROW", 100)  # no supervisor restarts them here
    pages: dict[str, Any] = {}
    system = make(pages=pages)
    system.start_explorers("explorer-000")
    system.until(lambda: not system.bench.is_alive("exploration"))
    assert system.graph().nodes == {}
    system.stop()

    pages.update(PAGES)
    system.bench.start(ExplorationActor, "exploration", system.args | {"ends_run": True})
    system.start_explorers("explorer-001")
    system.until(lambda: not system.bench.is_alive("exploration"))
    assert len(system.graph().nodes) == len(PAGES)


def test_an_explorer_that_learns_from_the_record_is_not_taken_for_one_that_hangs(
    make: Callable[..., System], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []
    monkeypatch.setattr(ExplorerActor, "still_working", lambda actor: shown.append(actor.identity.name))
    system = make()
    system.start_explorers("explorer-000")
    system.until(lambda: not system.bench.is_alive("exploration"))
    assert set(shown) == {"explorer-000"}


def test_idle_environments_explore_and_ask_the_curator_before_each_lease(make: Callable[..., System]) -> None:
    system = make(enabled=True, lease_actions=3)
    system.bench.start(Curator, "curator")
    system.start_explorers("env-000", actor=ExploringEnvironmentActor)
    system.until(lambda: len(system.graph().nodes) == len(PAGES))
    leases = {step.fence for step in system.graph().steps}
    curator: Any = system.bench.actor("curator")
    assert curator.asked["env-000"] >= len(leases)
    assert max(Counter(step.fence for step in system.graph().steps).values()) <= 3 + 8


def test_while_the_run_is_paused_idle_environments_complete_their_lease_and_explore_no_more(
    make: Callable[..., System],
) -> None:
    system = make(enabled=True, lease_actions=3)
    system.bench.start(Curator, "curator")
    curator: Any = system.bench.actor("curator")
    system.start_explorers("env-000", actor=ExploringEnvironmentActor)
    system.until(lambda: len(system.graph().steps) > 0)
    curator.is_held = True
    system.until(lambda: system.held() == [])
    steps, asked = len(system.graph().steps), curator.asked["env-000"]
    system.let(10.0)
    assert (len(system.graph().steps), system.held()) == (steps, [])
    assert curator.asked["env-000"] > asked

    curator.is_held = False
    system.until(lambda: len(system.graph().steps) > steps)


def test_while_the_curator_is_away_idle_environments_do_not_explore(make: Callable[..., System]) -> None:
    """The run may be paused: only the curator can tell."""
    system = make(enabled=True)
    system.start_explorers("env-000", actor=ExploringEnvironmentActor)
    system.let(10.0)
    assert len(system.graph().steps) == 0
    system.bench.start(Curator, "curator")
    system.until(lambda: len(system.graph().steps) > 0)


def test_screens_behind_a_way_that_is_longer_than_a_lease_are_explored(make: Callable[..., System]) -> None:
    pages = {"home": ("page 1",), **{f"page {n}": (f"page {n + 1}", "home") for n in range(1, 5)}}
    pages["page 5"] = ("home",)
    system = make(pages, max_depth=20, enabled=True, lease_actions=2)
    system.bench.start(Curator, "curator")
    system.start_explorers("env-000", actor=ExploringEnvironmentActor)
    system.until(lambda: not system.bench.is_alive("exploration"))
    graph = system.graph()
    assert {node.screen.title for node in graph.nodes.values()} == set(pages)
    assert all(not graph.untried(screen_id) for screen_id in graph.nodes)


def test_each_lease_of_a_random_walk_has_all_its_actions(make: Callable[..., System]) -> None:
    """A walk of 4 * 2 actions begins with each lease, which has 6; each begins with a reset."""
    system = make({"home": ("home",)}, strategy="random", max_depth=2, lease_actions=6, actions=35)
    system.start_explorers("explorer-000")
    system.until(lambda: not system.bench.is_alive("exploration"))
    assert (system.sites["explorer-000"].resets, len(system.sites["explorer-000"].shown)) == (5, 30)


def test_a_random_walk_on_a_site_whose_start_varies_spends_one_action_of_a_lease_on_its_reset(
    make: Callable[..., System], monkeypatch: pytest.MonkeyPatch
) -> None:
    reset = MadeUpSite.reset

    async def reset_to_another(self: MadeUpSite, *given: Any, **named: Any) -> Observation:
        self.start = "home" if self.resets % 2 else "sale"
        return await reset(self, *given, **named)

    monkeypatch.setattr(MadeUpSite, "reset", reset_to_another)
    system = make({"home": ("home",), "sale": ("sale",)}, strategy="random", lease_actions=6, actions=42)
    system.start_explorers("explorer-000")
    system.until(lambda: not system.bench.is_alive("exploration"))
    graph, site = system.graph(), system.sites["explorer-000"]
    assert len(graph.roots) == 2
    # The second reset shows another start screen than the lease is for.
    assert (site.resets, len(site.shown), graph.actions) == (7, 36, 43)


def test_each_call_of_an_explorer_has_the_deadline_of_the_configuration(
    make: Callable[..., System], monkeypatch: pytest.MonkeyPatch
) -> None:
    system = make()
    deadlines = {"reset": 21.0, "observe": 22.0, "step": 23.0}
    system.config["environments"] |= {f"{name}_deadline_s": seconds for name, seconds in deadlines.items()}
    given = {name: note_deadlines(monkeypatch, MadeUpSite, name) for name in deadlines}
    system.start_explorers("explorer-000")
    system.until(lambda: not system.bench.is_alive("exploration"))
    assert given == {name: {seconds} for name, seconds in deadlines.items()}


@pytest.mark.parametrize("actor", [ExplorerActor, ExploringEnvironmentActor])
def test_a_call_of_the_environment_that_never_returns_ends_its_explorer_after_a_lease_and_is_named(
    make: Callable[..., System], monkeypatch: pytest.MonkeyPatch, actor: type[Actor]
) -> None:
    async def hangs(explorer: Explorer, _: Any) -> None:
        await explorer._run.in_environment("inspect", asyncio.Event().wait())

    system = make(enabled=True)
    monkeypatch.setattr(Explorer, "explore", hangs)
    system.bench.start(Curator, "curator")
    system.start_explorers("env-000", actor=actor)
    lease_s = Config.model_validate(system.config).curation.lease_s
    system.bench.advance(lease_s)
    assert system.bench.is_alive("env-000")
    with pytest.raises(WorkOverdue, match=r"^inspect of an environment of kind 'miniwob' has not returned"):
        system.bench.advance(RESET_FACTOR * lease_s)


def test_an_explorer_whose_environment_cannot_be_closed_in_time_stops_in_order(
    make: Callable[..., System], monkeypatch: pytest.MonkeyPatch
) -> None:
    closes: list[MadeUpSite] = []

    async def close(self: MadeUpSite) -> None:
        closes.append(self)
        raise TimeoutError

    system = make()
    monkeypatch.setattr(MadeUpSite, "close", close)
    system.start_explorers("explorer-000")
    system.stop()
    assert closes == [system.sites["explorer-000"]]


class Outcomes:
    """What the next leases of all explorers come to, without a lease or an environment."""

    def __init__(self, *outcomes: Any) -> None:
        self.left, self.calls = list(outcomes), list[str]()

    async def explore(self, *_: Any) -> Any:
        self.calls.append("explore")
        outcome = self.left.pop(0) if self.left else m.NoWorkYet(retry_after_s=1000.0, reason="made up")
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def forget(self, *_: Any) -> None:
        self.calls.append("forget")


@pytest.fixture
def coming(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcomes]:
    def given(*outcomes: Any) -> Outcomes:
        made = Outcomes(*outcomes)
        monkeypatch.setattr(Explorer, "explore", made.explore)
        monkeypatch.setattr(Explorer, "forget_screen", made.forget)
        return made

    return given


BROKEN = EnvironmentFault("it broke")
OVER = m.ExplorationOver(reason="made up")


def test_an_explorer_ends_after_faults_in_a_row_and_not_after_as_many_with_a_lease_between(
    make: Callable[..., System], coming: Callable[..., Outcomes]
) -> None:
    system = make()
    few = [BROKEN] * (MAX_FAULTS_IN_ROW - 1)
    coming(*few, None, *few)
    system.start_explorers("explorer-000")
    system.bench.settle()
    assert system.bench.is_alive("explorer-000")
    coming(*few, BROKEN)
    system.start_explorers("explorer-001")
    with pytest.raises(EnvironmentFault, match="it broke"):
        system.bench.settle()


def test_after_a_fault_and_after_a_busy_record_an_explorer_forgets_its_screen(
    make: Callable[..., System], coming: Callable[..., Outcomes]
) -> None:
    system = make()
    outcomes = coming(BROKEN, None, StoreBusy("made up"), OVER, None)
    system.start_explorers("explorer-000")
    system.bench.settle()
    assert outcomes.calls == ["explore", "forget", "explore", "explore", "forget"]
    system.bench.advance(OVER_POLL_S)
    assert outcomes.calls[5:] == ["explore"]
    system.bench.advance(OVER_POLL_S)
    assert outcomes.calls[6:] == ["explore"] * 2


def test_an_explorer_without_a_lease_asks_again_after_the_pause_that_it_is_told(
    make: Callable[..., System], coming: Callable[..., Outcomes]
) -> None:
    system = make()
    outcomes = coming(m.NoWorkYet(retry_after_s=5.0, reason="made up"))
    system.start_explorers("explorer-000")
    system.bench.advance(4.9)
    assert outcomes.calls == ["explore"]
    system.bench.advance(0.2)
    assert outcomes.calls == ["explore"] * 2


def test_an_idle_environment_without_a_lease_rests_before_it_asks_for_another(
    make: Callable[..., System], coming: Callable[..., Outcomes]
) -> None:
    """It asks the curator every 0.5 s, and the owner of the graph no more often than every second."""
    system = make(enabled=True)
    system.bench.start(Curator, "curator")
    curator: Any = system.bench.actor("curator")
    outcomes = coming(*[OVER] * 100)
    system.start_explorers("env-000", actor=ExploringEnvironmentActor)
    system.let(10 * OVER_POLL_S)
    assert curator.asked["env-000"] == pytest.approx(20, abs=4)
    assert outcomes.calls[:4] == ["forget", "explore"] * 2, "an episode may have been played before"
    assert outcomes.calls.count("explore") == pytest.approx(10, abs=3)


def test_an_idle_environment_gives_back_after_each_exploration_what_it_no_longer_needs(
    make: Callable[..., System], coming: Callable[..., Outcomes], monkeypatch: pytest.MonkeyPatch
) -> None:
    system = make(enabled=True)
    system.bench.start(Curator, "curator")
    outcomes = coming(OVER, OVER, None, BROKEN, OVER, *[OVER] * 100)

    async def given_back(_: MadeUpSite) -> None:
        outcomes.calls.append("give back")

    monkeypatch.setattr(MadeUpSite, "give_back", given_back)
    system.start_explorers("env-000", actor=ExploringEnvironmentActor)
    system.let(8 * OVER_POLL_S)
    calls = [one for one in outcomes.calls if one != "forget"]
    assert calls[:7] == ["explore", "give back", *["explore"] * 3, "give back", "explore"]
    assert calls.count("give back") == 2


def test_requests_are_filtered_at_each_reset_of_an_explorer(make: Callable[..., System]) -> None:
    origins = ("https://elsewhere.example:8443",)
    system = make(origins=origins)
    system.start_explorers("explorer-000")
    system.until(lambda: not system.bench.is_alive("exploration"))
    assert set(system.sites["explorer-000"].origins_at_resets) == {origins}


def test_requests_of_an_idle_environment_are_filtered_only_while_it_explores(
    make: Callable[..., System],
) -> None:
    system = make(enabled=True, lease_actions=3)
    system.bench.start(Curator, "curator")
    system.start_explorers("env-000", actor=ExploringEnvironmentActor)
    site = system.sites["env-000"]
    system.until(lambda: site.resets > 0 and site.origins is None)
    assert site.origins_at_resets[0] == ()


def test_an_environment_whose_exploration_failed_counts_as_ready(
    make: Callable[..., System], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its reset closes the page of the episode before, and the next episode opens another one."""
    resets: list[int] = []
    may_fail = threading.Event()

    async def fails(site: MadeUpSite, *_: Any, **__: Any) -> None:
        resets.append(1)
        await asyncio.to_thread(may_fail.wait, 30)
        raise ResetFailed(TASK, "the page is closed")

    async def has_no_screen(site: MadeUpSite, *, deadline_s: float) -> bool:
        return False

    system = make(enabled=True)
    monkeypatch.setattr(MadeUpSite, "reset", fails)
    monkeypatch.setattr(MadeUpSite, "healthy", has_no_screen)
    system.bench.start(Curator, "curator")
    system.bench.start(ExploringEnvironmentActor, "env-000", system.args, probe_every_s=1.0)
    environment: Any = system.bench.actor("env-000")
    environment._has_screen = True  # as after an episode
    system.let(3.0)
    is_ready = system.bench.row("env-000").ready
    may_fail.set()
    system.until(lambda: len(resets) > 1)
    assert (is_ready, system.bench.row("env-000").ready) == (True, True)


def test_an_idle_environment_is_probed_while_there_is_nothing_to_explore(
    make: Callable[..., System], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def is_broken(site: MadeUpSite, *, deadline_s: float) -> bool:
        return False

    system = make(enabled=True)
    system.bench.start(Curator, "curator")
    system.bench.start(ExploringEnvironmentActor, "env-000", system.args, probe_every_s=1.0)
    system.until(lambda: not system.bench.is_alive("exploration"))
    assert system.bench.row("env-000").ready
    monkeypatch.setattr(MadeUpSite, "healthy", is_broken)
    system.let(3.0)
    assert not system.bench.row("env-000").ready


def test_the_engine_is_told_what_is_left_on_a_screen_and_what_was_tried(make: Callable[..., System]) -> None:
    system = make(prior="model", prior_samples=2, prior_context_bytes=2000)
    engine = system.start_engine()
    system.start_explorers("explorer-000")
    system.until(lambda: not system.bench.is_alive("exploration"))
    left = "\n".join(("", UNTRIED_HEAD, *(f"- click button '{name}'" for name in PAGES["home"])))
    assert engine.asked[:2] == [INSTRUCTION + left] * 2
    later = (
        *("", UNTRIED_HEAD, "- click button 'cart'", "- click button 'home'"),
        *(TRIED_HEAD, "- click button 'help': a new kind of screen"),
    )
    assert engine.asked.count(INSTRUCTION + "\n".join(later)) == 2
    assert {node.screen.title for node in system.graph().nodes.values()} == set(PAGES)
    assert system.refusals() == []


def test_without_context_the_engine_is_asked_once_for_each_screen_with_the_instruction_alone(
    make: Callable[..., System],
) -> None:
    system = make(prior="model", prior_samples=2)
    system.config["rollout"]["temperature"] = 0.7
    engine = system.start_engine()
    system.start_explorers("explorer-000")
    system.until(lambda: not system.bench.is_alive("exploration"))
    assert engine.asked == [INSTRUCTION] * 2 * len(PAGES)
    assert engine.temperatures == {0.7}


def test_a_refused_context_is_counted_and_the_prior_is_taken_without_it(make: Callable[..., System]) -> None:
    system = make(prior="model", prior_samples=2, prior_context_bytes=2000)
    engine = system.start_engine()
    engine.most = len(INSTRUCTION)
    system.start_explorers("explorer-000")
    system.until(lambda: not system.bench.is_alive("exploration"))
    graph = system.graph()
    assert {node.screen.title for node in graph.nodes.values()} == set(PAGES)
    assert graph.steps[1].action.endswith("|help")  # the second button of the start screen: the prior counts
    assert engine.asked[2:4] == [INSTRUCTION] * 2
    refusals = system.refusals()
    assert len(refusals) == engine.asked.count(INSTRUCTION) / 2
    assert {(one.subject, one.data["reason"]) for one in refusals} == {
        ("explorer-000", "the prompt is too long")
    }
    assert refusals[0].data["bytes"] == len(engine.asked[0]) - len(INSTRUCTION)


def test_exploration_goes_on_when_the_engine_refuses_every_request(make: Callable[..., System]) -> None:
    system = make(prior="model", prior_samples=2, prior_context_bytes=2000)
    system.start_engine().most = 0
    system.start_explorers("explorer-000")
    system.until(lambda: not system.bench.is_alive("exploration"))
    assert {node.screen.title for node in system.graph().nodes.values()} == set(PAGES)
    assert len(system.refusals()) >= len(PAGES)


@pytest.mark.long
@pytest.mark.slow
def test_the_prior_of_a_checkpoint_with_the_layout_of_qwen_is_what_it_samples_from_the_picture(
    make: Callable[..., System], tiny_qwen: Path, tmp_path: Path
) -> None:
    make_pointing(tiny_qwen, tmp_path / "pointing")
    system = make(prior="model", prior_samples=4, actions=8)
    engine = system.start_model_engine(tmp_path / "pointing")
    system.start_explorers("explorer-000")
    system.until(lambda: not system.bench.is_alive("exploration"))

    explorer: Any = system.bench.actor("explorer-000")
    raised = 0
    asked = {request.screenshot_sha256 for request, _ in engine.answered}
    nodes = [one for one in system.graph().nodes.values() if one.screen.screenshot_sha256 in asked]
    assert len(nodes) > 1
    for node in nodes:
        sha256 = node.screen.screenshot_sha256
        texts = [answer.answer for request, answer in engine.answered if request.screenshot_sha256 == sha256]
        assert len(texts) == 4
        actions = list(filter(None, map(action_of, texts)))
        for candidate in candidates_of(node.screen):
            share = sum(is_in(action, candidate.box) for action in actions) / max(1, len(actions))
            prior = explorer._explorer._prior(node.screen_id, candidate)
            assert prior == pytest.approx(PRIOR + (1 - PRIOR) * share)
            raised += share > 0
    assert raised > 0, "the policy chose no candidate, so nothing was tested"

    policy = load(tmp_path / "pointing", READING, ModelPlacement(device="cpu"))
    steps = [recorded(*one) for one in engine.answered[:: len(texts)]]
    blobs = run_blobs(Config().run, tmp_path).screenshots
    shown = [step.images[0].sha256 for step in steps]
    screens = {sha256: policy.codec.screen(sha256, blobs.read(sha256)) for sha256 in shown}
    swapped = dict(zip(shown, [screens[sha256] for sha256 in (*shown[1:], shown[0])], strict=True))
    with torch.no_grad():
        own, others = (policy.score(steps, one, 1.0).logprobs for one in (screens, swapped))
    for row, step in enumerate(steps):
        assert step.logprobs == pytest.approx(own[row, : len(step.logprobs)].tolist(), abs=1e-5)
    assert (own - others).abs().max() > 1e-3, "the picture makes no difference"


def action_of(answer: str) -> Action | None:
    try:
        return parse_action(answer)
    except ActionParseError:
        return None


def is_in(action: Action, box: Box) -> bool:
    left, top, right, bottom = box
    return isinstance(action, Click) and left <= action.x < right and top <= action.y < bottom
