"""What an explorer does and reports under the lease that a test gives it, on a site without a browser."""

import itertools
import random
from collections.abc import Awaitable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from dart.config.sections import EnvironmentsSettings, ExplorationSettings
from dart.core import messages as m
from dart.core.actions import Action, Click, Hotkey
from dart.core.exploration import (
    Effect,
    ExploreAct,
    ExploredStep,
    HeldLease,
    LeaseEnd,
    LeaseMove,
    PageScreen,
    PathHop,
)
from dart.environments.faults import (
    CorruptFrame,
    EnvironmentFault,
    InfrastructureFault,
    UnknownTask,
    WrongResult,
)
from dart.environments.protocol import NO_ROLLOUT, EpisodeKey, Observation, StepResult
from dart.exploration.explorer import Explorer
from dart.exploration.follower import GraphFollower
from dart.exploration.graph import Graph
from dart.exploration.prior_context import PriorContext
from dart.exploration.reports import record_of_report, reply_to_report
from dart.exploration.strategies import WALK_FACTOR
from dart.store.store import Store
from tests.pictures import png
from tests.unit.exploration.made_up_site import OVER, MadeUpSite
from tests.unit.exploration.screens import click

T = TypeVar("T")

TASK = "miniwob/navigate-tree"

SEEDS = itertools.count()
"""Each test has a seed of its own, and so a graph of its own, in one record."""

FIELD = "name"
"""A field of a page, which has the buttons beside it."""

NEVER, AT_ONCE = (lambda: False), (lambda: True)


class Site(MadeUpSite):
    """A made-up site that fails when it is told to, and that notes its inputs."""

    def __init__(self, pages: dict[str, tuple[str, ...]]) -> None:
        super().__init__(pages)
        self.pages = pages
        self.fault: Exception | None = None
        self.fault_at = ""
        """The call that raises `fault`."""
        self.spoiled = ""
        """The call that returns what the protocol does not allow."""
        self.is_over = False
        """Whether the next click ends the episode."""
        self.inputs: list[Action] = []
        self.levels: Iterator[int] | None = None
        """Grey levels of the next screenshots; None: the level of the page."""

    async def reset(
        self, task_id: str, seed: int, *, deadline_s: float, episode: EpisodeKey = NO_ROLLOUT
    ) -> Observation:
        self._fail_at("reset")
        return await super().reset(task_id, seed, deadline_s=deadline_s)

    async def step(self, action: Action, *, deadline_s: float) -> StepResult:
        self._fail_at("step")
        if self.spoiled == "step":
            return None  # type: ignore[return-value]
        self.inputs.append(action)
        if not isinstance(action, Click):
            return StepResult(terminated=False)
        page = self._page
        done = await super().step(action, deadline_s=deadline_s)
        if self._page == FIELD:  # a click into a field opens no page
            self._page = page
        return replace(done, terminated=done.terminated or self.is_over)

    async def observe(self, *, deadline_s: float) -> Observation:
        seen = await super().observe(deadline_s=deadline_s)
        if self.spoiled == "observe":
            return replace(seen, screenshot=seen.screenshot[:-20])
        return seen if self.levels is None else replace(seen, screenshot=png(100, 100, next(self.levels)))

    async def inspect(self, expression: str) -> Any:
        found = await super().inspect(expression)
        if self.spoiled == "inspect":
            return found | {"nodes": None}
        for element in found["elements"]:
            if element["text"] == FIELD:
                element |= {"role": "textbox", "is_field": True}
        return found

    def _fail_at(self, call: str) -> None:
        if self.fault is not None and self.fault_at == call:
            raise self.fault


class Run:
    """The run of one explorer. The test gives the leases, and the record decides what a report changes."""

    def __init__(self, store: Store, pages: dict[str, tuple[str, ...]], **settings: Any) -> None:
        self.site, self._store, self.seed = Site(pages), store, next(SEEDS)
        self.follower = GraphFollower(store, TASK, self.seed)
        wanted: dict[str, Any] = {"strategy": "least_tried", "settle_s": 0.7}
        self.explorer = Explorer(
            self.site,
            self,
            store,
            ExplorationSettings(**wanted | settings),
            EnvironmentsSettings(),
            random.Random(0),
        )
        self.next_lease: m.ExplorationLease | m.NoWorkYet | m.ExplorationOver
        self.asked: list[tuple[str, int, int | None]] = []
        self.reports: list[m.ExploredReport] = []
        self.lasts = 1000
        """Number of reports for which a lease lasts; the next one finds that it has ended."""
        self.ends: list[LeaseEnd] = []
        self.screenshots: list[bytes] = []
        self.pauses: list[float] = []
        self.calls: list[str] = []
        self.signs_of_life = 0

    async def explore(
        self,
        screen_id: int | None,
        hops: Sequence[PathHop] = (),
        *,
        resets: bool = False,
        repeats: str = "",
        stops: Any = NEVER,
    ) -> m.NoWorkYet | m.ExplorationOver | None:
        """Have the explorer work under one lease, whose reports are then the only ones in `reports`."""
        self.reports.clear()
        self.next_lease = m.ExplorationLease(
            fence=self.take(screen_id, "explorer-000").fence,
            task_id=TASK,
            seed=self.seed,
            screen_id=screen_id,
            begins_with_reset=resets,
            hops=tuple(hops),
            repeats=repeats,
        )
        return await self.explorer.explore(stops)

    async def find(self, *titles: str) -> list[int]:
        """Explore once from the start, and return the ids of the screens with these titles."""
        await self.explore(None, resets=True)
        ids = {node.screen.title: screen_id for screen_id, node in self.graph.nodes.items()}
        return [ids[title] for title in titles]

    async def show_start(self) -> int:
        """Show the start screen, try nothing there, and return its id."""
        await self.explore(None, resets=True, stops=AT_ONCE)
        (start,) = self.graph.roots
        return start

    async def shown(self) -> int | None:
        """Return the screen that the explorer believes to show when it asks for the next lease."""
        self.next_lease = m.ExplorationOver(reason="made up")
        assert await self.explorer.explore(NEVER) == self.next_lease
        return self.asked[-1][2]

    def take(self, screen_id: int | None, explorer: str) -> HeldLease:
        return self._store.lease_screen(TASK, self.seed, screen_id, explorer, 1, 1e10)

    @property
    def graph(self) -> Graph:
        self.follower.follow()
        return self.follower.graph

    @property
    def steps(self) -> list[ExploredStep]:
        """What the record has of the last lease."""
        fence = self.next_lease.fence if isinstance(self.next_lease, m.ExplorationLease) else 0
        return [step for step in self.graph.steps if step.fence == fence]

    # ---- RunAccess ----

    async def lease(
        self, task_id: str, seed: int, at: int | None
    ) -> m.ExplorationLease | m.NoWorkYet | m.ExplorationOver:
        self.asked.append((task_id, seed, at))
        return self.next_lease

    async def report(self, report: m.ExploredReport) -> m.ExploredReply:
        self.reports.append(report)
        if len(self.reports) > self.lasts:
            self._store.end_exploration_lease(report.fence, LeaseEnd.EXPIRED)
        lease = next((one for one in self._store.held_leases() if one.fence == report.fence), None)
        if lease is None:
            return reply_to_report(None)
        return reply_to_report(self._store.write(record_of_report(report, self.graph, lease, 1e10)))

    def give_back(self, fence: int, why: LeaseEnd) -> None:
        self.ends.append(why)
        self._store.end_exploration_lease(fence, why)

    async def keep_screenshot(self, png: bytes) -> None:
        self.screenshots.append(png)

    async def know_prior(self, screen_id: int, screen: PageScreen, context: PriorContext) -> None:
        raise AssertionError("these explorers have a constant prior")

    async def in_environment(self, call: str, work: Awaitable[T]) -> T:
        assert work.__qualname__.endswith(f".{call}")  # type: ignore[attr-defined]
        self.calls.append(call)
        return await work

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)

    def still_working(self) -> None:
        self.signs_of_life += 1


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with Store(tmp_path_factory.mktemp("record") / "store.db") as opened:
        yield opened


def hop(source_id: int, name: str, row: int, target_id: int) -> PathHop:
    return PathHop(source_id=source_id, action=click(name, row).key, target_id=target_id)


SHOP: dict[str, tuple[str, ...]] = {"home": ("home", "cart"), "cart": ("order", "home"), "order": ()}


async def test_an_explorer_reports_each_action_from_the_start_screen_on_until_nothing_is_left_to_try(
    store: Store,
) -> None:
    run = Run(store, SHOP)
    home, cart, order = await run.find("home", "cart", "order")
    assert [(step.number, step.source_id, step.effect, step.target_id) for step in run.steps] == [
        (1, None, Effect.NEW_SHAPE, home),
        (2, home, Effect.NO_CHANGE, home),
        (3, home, Effect.NEW_SHAPE, cart),
        (4, cart, Effect.NEW_SHAPE, order),
    ]
    assert [step.act for step in run.steps] == [ExploreAct.RESET, *[ExploreAct.CLICK] * 3]
    assert [(report.cost, report.move) for report in run.reports] == [(1, LeaseMove.FOLLOW)] * 4
    assert (run.ends, run.asked) == ([LeaseEnd.GIVEN_BACK], [("", 0, None)])


async def test_an_explorer_asks_with_the_screen_that_it_shows_if_it_knows_one(
    store: Store,
) -> None:
    run = Run(store, SHOP)
    (order,) = await run.find("order")
    assert await run.shown() == order
    run.explorer.forget_screen()
    assert await run.shown() is None
    assert run.asked[1:] == [(TASK, run.seed, order), (TASK, run.seed, None)]


async def test_the_actions_of_a_lease_are_counted_from_its_screen_on(store: Store) -> None:
    run = Run(store, {"home": ("cart",), "cart": ("cart",) * 9}, lease_actions=3)
    home, cart = await run.find("home", "cart")
    assert len(run.steps) == 1 + 3
    await run.explore(cart, [hop(home, "cart", 0, cart)], resets=True)
    assert [report.source_id for report in run.reports] == [None, home, *[cart] * 3]
    assert [report.move for report in run.reports] == [LeaseMove.KEEP] * 2 + [LeaseMove.FOLLOW] * 3
    assert run.ends == [LeaseEnd.GIVEN_BACK] * 2


async def test_a_field_costs_as_many_actions_as_it_has_inputs(store: Store) -> None:
    run = Run(store, {"home": (FIELD, "home", "home")}, lease_actions=4)
    await run.find()
    assert [(step.act, report.cost) for step, report in zip(run.steps, run.reports, strict=True)] == [
        (ExploreAct.RESET, 1),
        (ExploreAct.TYPE, 3),
        (ExploreAct.CLICK, 1),
    ]
    assert [step.actions for step in run.steps] == [1, 4, 5]
    assert [type(one) for one in run.site.inputs[:2]] == [Click, Hotkey]


@pytest.mark.parametrize(("max_depth", "shown"), [(1, ["cart"]), (2, ["cart", "order"])])
async def test_nothing_is_tried_on_a_screen_that_is_too_deep(
    store: Store, max_depth: int, shown: list[str]
) -> None:
    run = Run(store, {"home": ("cart",), "cart": ("order",), "order": ("home",)}, max_depth=max_depth)
    await run.find()
    assert run.site.shown == shown


async def test_a_screen_that_another_explorer_holds_is_left_to_it(store: Store) -> None:
    run = Run(store, {"home": ("cart", "cart"), "cart": ("home", "home")}, lease_actions=2)
    home, cart = await run.find("home", "cart")
    run.take(cart, "explorer-001")
    await run.explore(home, resets=True)
    assert run.site.shown == ["cart", "home", "cart"]
    assert [report.source_id for report in run.reports] == [None, home]


# ---- the way to the screen of a lease ----


async def test_a_start_screen_that_is_another_one_than_that_of_the_lease_ends_it_as_unreached(
    store: Store,
) -> None:
    run = Run(store, SHOP)
    (home,) = await run.find("home")
    run.site.start = "cart"
    await run.explore(home, resets=True)
    assert [report.move for report in run.reports] == [LeaseMove.KEEP]
    assert run.ends[-1] is LeaseEnd.UNREACHED


async def test_an_action_that_leads_elsewhere_than_before_ends_the_lease_as_unreached(store: Store) -> None:
    run = Run(store, SHOP, lease_actions=2)
    home, cart = await run.find("home", "cart")
    await run.explore(cart, [hop(home, "home", 0, cart), hop(cart, "cart", 1, cart)], resets=True)
    assert [report.source_id for report in run.reports] == [None, home]
    assert run.ends[-1] is LeaseEnd.UNREACHED


async def test_an_action_that_is_gone_is_reported_as_lost_and_ends_the_lease_as_unreached(
    store: Store,
) -> None:
    run = Run(store, dict(SHOP), lease_actions=2)
    home, cart = await run.find("home", "cart")
    run.site.pages["home"] = ("home", "order")
    await run.explore(cart, [hop(home, "cart", 1, cart)], resets=True)
    (_, lost) = run.steps
    assert (lost.source_id, lost.action, lost.effect) == (home, click("cart", 1).key, Effect.LOST)
    assert (run.reports[-1].cost, run.reports[-1].move) == (0, LeaseMove.KEEP)
    assert run.ends[-1] is LeaseEnd.UNREACHED
    assert await run.shown() == home, "nothing was done there"


async def test_an_action_that_its_node_never_had_is_not_reported_as_a_lost_reset(
    store: Store,
) -> None:
    """An action of a text that changes from visit to visit: the node has that of the visit that found it."""
    run = Run(store, dict(SHOP), lease_actions=2)
    home, cart = await run.find("home", "cart")
    await run.explore(cart, [hop(home, "news of today", 1, cart)], resets=True)
    assert [(report.candidate, report.effect) for report in run.reports] == [(None, None)]
    assert run.ends[-1] is LeaseEnd.UNREACHED


async def test_a_stop_on_the_way_gives_the_lease_back_before_the_next_action(store: Store) -> None:
    run = Run(store, SHOP, lease_actions=2)
    home, cart = await run.find("home", "cart")
    await run.explore(cart, [hop(home, "cart", 1, cart)], resets=True, stops=AT_ONCE)
    assert len(run.reports) == 1
    assert run.ends[-1] is LeaseEnd.GIVEN_BACK


async def test_a_stop_at_the_screen_of_the_lease_gives_it_back_before_the_next_action(store: Store) -> None:
    run = Run(store, {"home": ("home",) * 9})
    await run.explore(None, resets=True, stops=lambda: len(run.reports) == 3)
    assert (len(run.reports), run.ends) == (3, [LeaseEnd.GIVEN_BACK])


# ---- the screen of a lease ----


async def test_a_known_action_is_repeated_once_and_the_lease_stays_with_its_screen(store: Store) -> None:
    run = Run(store, {"home": ("home", "cart"), "cart": ("home",)}, lease_actions=2)
    home, cart = await run.find("home", "cart")
    await run.explore(home, resets=True, repeats=click("cart", 1).key)
    assert [report.move for report in run.reports] == [LeaseMove.KEEP] * 2
    assert (run.steps[-1].effect, run.steps[-1].target_id) == (Effect.KNOWN_SCREEN, cart)

    run.site.pages["home"] = ("home",)
    await run.explore(home, resets=True, repeats=click("cart", 1).key)
    assert [step.effect for step in run.steps] == [Effect.KNOWN_SCREEN, Effect.LOST]
    assert run.ends == [LeaseEnd.GIVEN_BACK] * 3


async def test_what_is_left_to_try_of_a_screen_but_not_shown_now_is_lost(store: Store) -> None:
    run = Run(store, {"home": ("home", "help")})
    home = await run.show_start()
    run.site.pages["home"] = ("home",)
    await run.explore(home)
    assert [step.effect for step in run.steps] == [Effect.NO_CHANGE, Effect.LOST]
    assert run.ends[-1] is LeaseEnd.GIVEN_BACK


async def test_a_screen_of_which_nothing_that_is_left_is_shown_is_not_leased_again(store: Store) -> None:
    run = Run(store, {"home": ("help",)})
    home = await run.show_start()
    run.site.pages["home"] = ()
    await run.explore(home, resets=True)
    assert [(step.action, step.effect) for step in run.steps[1:]] == [(click("help").key, Effect.LOST)]
    assert run.steps[-1].is_expansion
    assert run.graph.untried(home) == ()
    assert run.ends[-1] is LeaseEnd.UNREACHED


async def test_each_lease_of_a_random_walk_is_a_walk_of_its_own(store: Store) -> None:
    run = Run(store, {"home": ("home",)}, strategy="random", max_depth=1, lease_actions=WALK_FACTOR - 1)
    (home,) = await run.find("home")
    await run.explore(home, resets=True)
    assert len(run.site.shown) == 2 * (WALK_FACTOR - 1)


async def test_the_strategy_learns_from_each_step_and_shows_that_it_makes_progress(store: Store) -> None:
    run = Run(store, SHOP, strategy="memory_q")
    await run.find()
    assert run.signs_of_life == len([step for step in run.steps if step.source_id is not None])


# ---- ends of episodes, faults, lost leases ----


@pytest.mark.parametrize(
    ("name", "effect"), [(OVER, Effect.ENDED), ("away", Effect.LEFT)], ids=["the end of the episode", "away"]
)
async def test_after_an_action_that_ends_the_episode_or_leaves_the_site_no_screen_is_known(
    store: Store, name: str, effect: Effect
) -> None:
    run = Run(store, {"home": (name, "home")})
    await run.find()
    assert [(step.effect, step.target_id) for step in run.steps[1:]] == [(effect, None)]
    assert await run.shown() is None


async def test_no_input_follows_one_that_ended_the_episode(store: Store) -> None:
    run = Run(store, {"home": (FIELD,)})
    run.site.is_over = True
    await run.find()
    assert [type(one) for one in run.site.inputs] == [Click]
    assert run.steps[-1].effect is Effect.ENDED


@pytest.mark.parametrize("has_expired", [False, True], ids=["held", "of a lease that has ended"])
@pytest.mark.parametrize("call", ["reset", "step"])
async def test_a_fault_is_reported_with_its_action_and_raised(
    store: Store, call: str, has_expired: bool
) -> None:
    run = Run(store, {"home": (FIELD,)})
    home = await run.show_start()
    run.site.fault, run.site.fault_at = InfrastructureFault("made up"), call
    run.lasts = 0 if has_expired else 1
    with pytest.raises(InfrastructureFault, match="made up"):
        await run.explore(home, resets=call == "reset")
    (fault,) = run.reports
    assert (fault.effect, fault.screen, fault.move) == (Effect.FAULT, None, LeaseMove.KEEP)
    of_reset, of_field = (None, ExploreAct.RESET, 1), (home, ExploreAct.TYPE, 3)
    act = fault.candidate.act if fault.candidate else ExploreAct.RESET
    assert (fault.source_id, act, fault.cost) == (of_reset if call == "reset" else of_field)
    assert run.ends[-1] is LeaseEnd.FAULT
    assert await run.shown() is None


@pytest.mark.parametrize(
    ("call", "fault"), [("observe", CorruptFrame), ("step", WrongResult), ("inspect", InfrastructureFault)]
)
async def test_a_result_that_the_protocol_does_not_allow_is_a_fault_of_the_environment(
    store: Store, call: str, fault: type[EnvironmentFault]
) -> None:
    run = Run(store, {"home": ("home",)})
    home = await run.show_start()
    run.site.spoiled = call
    with pytest.raises(fault):
        await run.explore(home)
    assert [(report.effect, report.source_id) for report in run.reports] == [(Effect.FAULT, home)]


async def test_a_lease_that_has_ended_is_no_fault_and_its_explorer_begins_anew(store: Store) -> None:
    run = Run(store, dict(SHOP))
    home = await run.show_start()
    run.site.pages["home"] = ()
    run.lasts = 1
    assert await run.explore(home, resets=True) is None
    assert [report.effect for report in run.reports] == [None, Effect.LOST]
    assert [step.act for step in run.steps] == [ExploreAct.RESET]
    assert await run.shown() is None


async def test_a_task_that_the_environment_does_not_have_is_no_fault_of_a_reset(store: Store) -> None:
    run = Run(store, SHOP)
    run.site.fault, run.site.fault_at = UnknownTask(TASK, ()), "reset"
    with pytest.raises(UnknownTask):
        await run.explore(None, resets=True)
    assert run.reports == []


# ---- looks ----


async def test_a_screen_is_looked_at_twice_and_what_changed_meanwhile_is_volatile(store: Store) -> None:
    run = Run(store, {"home": ()})
    run.site.levels = iter((100, 200))
    await run.find()
    (shown,) = [node.screen for node in run.graph.nodes.values()]
    assert (run.pauses, run.screenshots) == ([0.7], [png(100, 100, 200)])
    assert set(shown.grid) == {200}
    assert set(shown.volatile) == {255}


async def test_a_site_is_reset_with_a_filter_of_its_requests_and_then_made_to_go_on(store: Store) -> None:
    run = Run(store, SHOP, origins=("https://elsewhere.example:8443",))
    await run.show_start()
    looks = ["observe", "inspect"] * 2
    assert run.calls == ["filter_requests", "reset", "explore", *looks]
    assert run.site.origins_at_resets == [("https://elsewhere.example:8443",)]
