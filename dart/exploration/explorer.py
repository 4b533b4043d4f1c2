"""The explorer: goes to the screen of its lease with one environment, tries actions there, and reports each.

The explorer chooses actions by its own read-only copy of the graph. The owner of the graph decides which node
a screen is. The explorer follows a known way action by action and compares each screen with the expected one.
If the way leads elsewhere, the explorer reports that and gives the lease back.
"""

import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from dart.config.sections import EnvironmentsSettings, ExplorationSettings
from dart.core import messages as m
from dart.core.exploration import Candidate, Effect, LeaseEnd, LeaseMove, PageScreen
from dart.core.origins import AllowedOrigins
from dart.environments.faults import EnvironmentFault, UnknownTask
from dart.environments.protocol import Environment
from dart.environments.result_checks import checked_observation, checked_step
from dart.exploration.candidates import actions_of, candidates_of
from dart.exploration.follower import GraphFollower
from dart.exploration.graph import Graph
from dart.exploration.memory_q import Prior, constant_prior
from dart.exploration.page_look import LOOK, Look, checked_look, screen_of
from dart.exploration.prior_context import NO_CONTEXT, PriorContext, context_of
from dart.exploration.strategies import ExplorationStrategy, strategy_named
from dart.exploration.ways import depths
from dart.store.reader import StoreReader

T = TypeVar("T")


class RunAccess(Protocol):
    """What an explorer needs from its run: the owner of the graph, blobs, engines, and the actor's loop."""

    async def lease(
        self, task_id: str, seed: int, at: int | None
    ) -> m.ExplorationLease | m.NoWorkYet | m.ExplorationOver:
        """Ask the owner for a lease.

        task_id, seed   what the environment shows
        at              the screen that it shows; None if this is not known
        """
        ...

    async def report(self, report: m.ExploredReport) -> m.ExploredReply:
        """Have the owner record an action. The report is repeated until the owner confirms it."""
        ...

    def give_back(self, fence: int, why: LeaseEnd) -> None:
        """Tell the owner that the lease with this fence has ended, and why."""
        ...

    async def keep_screenshot(self, png: bytes) -> None:
        """Store a screenshot as a blob."""
        ...

    async def know_prior(self, screen_id: int, screen: PageScreen, context: PriorContext) -> None:
        """Ask the policy for its answers on a screen, so that the prior of the screen is known.

        context   text about the screen that the policy gets beside the screenshot
        """
        ...

    async def in_environment(self, call: str, work: Awaitable[T]) -> T:
        """Wait for a call of the environment, and return its result.

        call   name of the method that is called
        """
        ...

    async def pause(self, seconds: float) -> None:
        """Wait for a number of seconds."""
        ...

    def still_working(self) -> None:
        """Show that a long computation makes progress, so that it does not count as a hang."""
        ...


@dataclass(slots=True)
class _Site:
    """The copy of the graph of one task and seed, with the strategy and the allowed origins for it."""

    follower: GraphFollower
    strategy: ExplorationStrategy
    allowed: AllowedOrigins | None = None


@dataclass(slots=True)
class _Place:
    """A lease, and what the explorer has done and sees under it. `at` is the node of the current screen."""

    lease: m.ExplorationLease
    number: int = 0
    """Number of the last report under this lease; 0 before the first one."""
    at: int | None = None
    screen: PageScreen | None = None
    actions: int = 0
    ended: LeaseEnd = LeaseEnd.GIVEN_BACK


class LeaseLost(Exception):
    """The lease has ended, so the owner did not record the last report."""


class Explorer:
    """Explores with one environment, one lease after another."""

    def __init__(
        self,
        environment: Environment,
        run: RunAccess,
        reader: StoreReader,
        settings: ExplorationSettings,
        limits: EnvironmentsSettings,
        rng: random.Random,
        prior: Prior = constant_prior,
    ) -> None:
        self._environment, self._run, self._reader = environment, run, reader
        self._settings, self._limits, self._rng, self._prior = settings, limits, rng, prior
        self._sites: dict[tuple[str, int], _Site] = {}
        self._shown: tuple[str, int] = ("", 0)
        self._at: int | None = None
        self._screen: PageScreen | None = None

    def forget_screen(self) -> None:
        """Forget the current screen, because an episode was played or the environment failed."""
        self._at = self._screen = None

    async def explore(self, stops: Callable[[], bool]) -> m.NoWorkYet | m.ExplorationOver | None:
        """Ask for a lease, explore under it and give it back.

        stops   function that returns whether to give the lease back before the next action
        Returns None, or the owner's answer if it gave no lease. Raises EnvironmentFault after reporting it,
        and what `RunAccess.report` raises.
        """
        task_id, seed = self._shown
        reply = await self._run.lease(task_id, seed, self._at)
        if not isinstance(reply, m.ExplorationLease):
            return reply
        place = _Place(reply, at=self._at, screen=self._screen)
        self._shown = reply.task_id, reply.seed
        try:
            await self._work(place, stops)
        except LeaseLost:
            return None  # the owner gave the screen to another explorer
        except EnvironmentFault:
            place.at = place.screen = None
            place.ended = LeaseEnd.FAULT
            raise
        finally:
            self._at, self._screen = place.at, place.screen
            self._run.give_back(reply.fence, place.ended)
        return None

    async def _work(self, place: _Place, stops: Callable[[], bool]) -> None:
        if not await self._go(place, stops):
            return
        if place.lease.repeats:
            known = self._live(place).get(place.lease.repeats)
            if known is None:
                await self._report_lost(place, place.lease.repeats)
            else:
                await self._do(place, known, LeaseMove.KEEP)
            return
        arrived = place.actions  # what the way cost is no part of the lease's actions
        self._site(place).strategy.began()
        while not stops() and place.actions - arrived < self._settings.lease_actions:
            chosen = await self._choose(place)
            if chosen is None and place.actions == arrived:
                place.ended = LeaseEnd.UNREACHED  # otherwise the screen would be leased again and again
            if chosen is None or not await self._do(place, chosen, LeaseMove.FOLLOW):
                return

    # ---- the way to the screen of the lease ----

    async def _go(self, place: _Place, stops: Callable[[], bool]) -> bool:
        """Follow the way of the lease, checking each screen; return whether its last screen is reached."""
        lease = place.lease
        if lease.begins_with_reset:
            move = LeaseMove.FOLLOW if lease.screen_id is None else LeaseMove.KEEP
            expected = lease.hops[0].source_id if lease.hops else lease.screen_id
            holds = await self._reset(place, move)
            if lease.screen_id is None:
                return holds
            if place.at != expected:
                place.ended = LeaseEnd.UNREACHED
                return False
        for hop in lease.hops:
            if stops():
                return False
            known = self._live(place).get(hop.action)
            if known is None:
                await self._report_lost(place, hop.action)
            else:
                await self._do(place, known, LeaseMove.KEEP)
            if known is None or place.at != hop.target_id:
                place.ended = LeaseEnd.UNREACHED
                return False
        return True

    async def _reset(self, place: _Place, move: LeaseMove) -> bool:
        place.at = place.screen = None
        try:
            filtered = self._environment.filter_requests(self._settings.origins)
            await self._in_environment("filter_requests", filtered)
            reset = self._environment.reset(
                place.lease.task_id, place.lease.seed, deadline_s=self._limits.reset_deadline_s
            )
            await self._in_environment("reset", reset)
            await self._in_environment("explore", self._environment.explore())
            screen, _ = await self._look(place)
        except UnknownTask:
            raise
        except EnvironmentFault:
            await self._report_fault(place, None, cost=1)
            raise
        return await self._report(place, self._new_report(place, None, screen=screen, move=move))

    # ---- actions ----

    async def _choose(self, place: _Place) -> Candidate | None:
        """Return the next candidate that the strategy chooses on the screen; None to leave the screen.

        If the strategy finds nothing untried, the untried candidates of the node that the screen does not
        show now are reported as lost. Otherwise the node would always have untried candidates.
        """
        assert place.at is not None
        site = self._site(place)
        graph = site.follower.graph
        live = self._live(place)
        if site.strategy.seeks_untried and self._is_deep(graph, place.at):
            return None
        if self._settings.prior == "model":
            await self._run.know_prior(place.at, graph.nodes[place.at].screen, self._context(site, place.at))
        chosen = site.strategy.choose(place.at, list(live.values()))
        if chosen is None and site.strategy.seeks_untried:
            for missing in graph.untried(place.at):
                await self._report_lost(place, missing.key)
        return chosen

    def _context(self, site: _Site, screen_id: int) -> PriorContext:
        """Return the text about a screen for the policy; empty if `exploration.prior_context_bytes` is 0."""
        most_bytes, graph = self._settings.prior_context_bytes, site.follower.graph
        if not most_bytes:
            return NO_CONTEXT
        untried = site.strategy.ranked(screen_id, graph.untried(screen_id))
        return context_of(untried, graph.tried(screen_id), most_bytes)

    def _is_deep(self, graph: Graph, screen_id: int) -> bool:
        """Whether a screen is at least `exploration.max_depth` actions from the start screen."""
        return depths(graph).get(screen_id, 0) >= self._settings.max_depth

    async def _do(self, place: _Place, candidate: Candidate, move: LeaseMove) -> bool:
        """Carry out a candidate, look at the next screen and report both.

        move   which screen the lease is for afterwards
        Returns whether the lease is now for the screen that the action led to.
        """
        assert place.screen is not None
        actions = actions_of(candidate, place.screen, self._settings.texts)
        place.actions += len(actions)
        screen, effect = None, None
        try:
            has_ended = await self._perform(actions)
            if has_ended:
                effect = Effect.ENDED
            else:
                screen, url = await self._look(place)
                allowed = self._site(place).allowed
                assert allowed is not None
                if not allowed.allow(url):
                    screen, effect = None, Effect.LEFT
        except EnvironmentFault:
            await self._report_fault(place, candidate, cost=len(actions))
            raise
        return await self._report(
            place,
            self._new_report(place, candidate, cost=len(actions), screen=screen, effect=effect, move=move),
        )

    async def _perform(self, actions: Any) -> bool:
        """Apply the inputs of a candidate; return whether one of them ended the episode."""
        for action in actions:
            step = self._environment.step(action, deadline_s=self._limits.step_deadline_s)
            returned = await self._in_environment("step", step)
            if checked_step(self._limits.kind, returned).terminated:
                return True
        return False

    async def _look(self, place: _Place) -> tuple[PageScreen, str]:
        """Return the current screen and the whole address of its page, and store its screenshot.

        The screen is read twice, `exploration.settle_s` apart, to find out what changes without an action.
        """
        first_png, first = await self._one_look()
        await self._run.pause(self._settings.settle_s)
        last_png, last = await self._one_look()
        site = self._site(place)
        if site.allowed is None:
            site.allowed = AllowedOrigins(last["url"], self._settings.origins)
        screen = screen_of(first, last, (first_png, last_png), site.allowed)
        await self._run.keep_screenshot(last_png)
        return screen, last["url"]

    async def _one_look(self) -> tuple[bytes, Look]:
        observe = self._environment.observe(deadline_s=self._limits.observe_deadline_s)
        returned = await self._in_environment("observe", observe)
        seen = checked_observation(self._limits.kind, "observe", returned)
        look = await self._in_environment("inspect", self._environment.inspect(LOOK))
        return seen.screenshot, checked_look(look)

    # ---- reports ----

    def _new_report(
        self,
        place: _Place,
        candidate: Candidate | None,
        *,
        move: LeaseMove,
        cost: int = 1,
        screen: PageScreen | None = None,
        effect: Effect | None = None,
    ) -> m.ExploredReport:
        place.number += 1
        return m.ExploredReport(
            fence=place.lease.fence,
            number=place.number,
            cost=cost,
            source_id=place.at,
            candidate=candidate,
            effect=effect,
            screen=screen,
            move=move,
        )

    async def _report_lost(self, place: _Place, key: str) -> None:
        """Report that the screen lacks an action that the graph has for it.

        An action that its node lacked already when the node was found is not reported: such an action comes
        and goes, and it is no candidate that a report could name.
        """
        assert place.at is not None
        missing = self._site(place).follower.graph.candidate(place.at, key)
        if missing is not None:
            report = self._new_report(place, missing, cost=0, effect=Effect.LOST, move=LeaseMove.KEEP)
            await self._report(place, report)

    async def _report_fault(self, place: _Place, candidate: Candidate | None, cost: int) -> None:
        """Report that the environment broke, at a candidate or, without one, at a reset.

        If the lease has ended meanwhile, the report changes nothing. The caller raises the fault in any case.
        """
        with suppress(LeaseLost):
            await self._report(
                place, self._new_report(place, candidate, cost=cost, effect=Effect.FAULT, move=LeaseMove.KEEP)
            )

    async def _report(self, place: _Place, report: m.ExploredReport) -> bool:
        """Have a report recorded, and make its screen the current one.

        Returns whether the lease is for this screen now. Raises LeaseLost if the lease has ended.
        """
        reply = await self._run.report(report)
        if reply.is_fenced:
            place.at, place.screen = None, None
            raise LeaseLost
        if reply.effect not in (Effect.LOST, Effect.FAULT):
            place.at, place.screen = reply.screen_id, report.screen
        self._site(place)  # its strategy learns from the step
        return reply.holds

    # ---- the snapshot ----

    def _site(self, place: _Place) -> _Site:
        """Return the copy of the graph for the task of the lease, after reading new steps from the record."""
        key = place.lease.task_id, place.lease.seed
        if key not in self._sites:
            follower = GraphFollower(self._reader, *key)
            strategy = strategy_named(
                self._settings.strategy,
                follower.graph,
                self._rng,
                self._settings.max_depth,
                self._prior,
                self._run.still_working,
            )
            self._sites[key] = _Site(follower, strategy)
        site = self._sites[key]
        site.strategy.saw(site.follower.follow())
        return site

    def _live(self, place: _Place) -> dict[str, Candidate]:
        """Return the candidates of the current screen by key; none if no screen is known."""
        return {} if place.screen is None else {one.key: one for one in candidates_of(place.screen)}

    async def _in_environment(self, call: str, work: Awaitable[T]) -> T:
        return await self._run.in_environment(call, work)
