"""The owner of the exploration graph: leases screens to explorers, and decides which node a screen is.

Receives   ExploreRequest, ExploredReport, GiveBackLease (explorers)
Asks       the store for every change
Dies when  the record contradicts what it knows about the record; while the record is busy, it answers
           NoWorkYet
On restart it reads the graph and the leases from the record. Leases stay valid; an explorer repeats a report
           that the dead owner did not answer, and the report is recorded once
Ends       normally when everything is explored, if its args have `ends_run` (`dartrl explore`)
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from actors.actor import Actor, Sender, receives
from actors.errors import AskError, MailboxFull
from actors.future import Lock
from dart.config.config import Config
from dart.core import messages as m
from dart.core.exploration import Effect, HeldLease, LeaseEnd
from dart.core.record_address import parse_record_address
from dart.exploration.follower import GraphFollower
from dart.exploration.planning import (
    UNREACHED_MOST,
    AllExplored,
    Assignment,
    Waiting,
    failed_resets,
    next_assignment,
)
from dart.exploration.reports import record_of_report, reply_to_report
from dart.store.client import WRITE_DEADLINE_S, result_of
from dart.store.errors import StoreBusy
from dart.store.patience import AT_START
from dart.store.reader import StoreReader

T = TypeVar("T")

OVERDUE_CHECK_S = 5.0

BUSY_REST_S = 1.0
"""Time in seconds for which a record that was busy is not read again.

A read of a busy record takes up to 7 s. The requests that came meanwhile are answered without one, because so
many reads in a row would last longer than the hang deadline."""

ENDS_AFTER_S = 1.0
"""Time in seconds from the end of the exploration to that of the actor; explorers can ask meanwhile."""


class NotWritten(Exception):
    """The store did not confirm a change. The explorer that caused the change is asked to try again."""


class ExplorationActor(Actor):
    """Leases screens to explorers, and records what they did.

    args   besides those of every actor, `ends_run`: whether the actor ends when everything is explored
    """

    def on_start(self) -> None:
        self._config = config = Config.model_validate(self.args["config"])
        self._settings = config.exploration
        self._reader = self.enter_context(StoreReader(parse_record_address(self.args["store"]), AT_START))
        tasks = self._settings.tasks or config.tasks.train
        self._followers = {
            task_id: GraphFollower(self._reader, task_id, self._settings.seed) for task_id in tasks
        }
        for follower in self._followers.values():
            follower.follow()
        self._failed_before = {
            task_id: failed_resets(follower.graph) for task_id, follower in self._followers.items()
        }
        self._finished: dict[str, str] = {}
        self._lock = Lock()
        self._rests_until_s = 0.0
        self.every(OVERDUE_CHECK_S, lambda: self._with_record(self._end_overdue))

    # ---- explorers ----

    @receives(m.ExploreRequest)
    async def assign(
        self, call: m.ExploreRequest, sender: Sender
    ) -> m.ExplorationLease | m.NoWorkYet | m.ExplorationOver:
        """Lease a screen of the first task that has a free screen to explore, and return the lease.

        Returns NoWorkYet if other explorers hold all screens that are left, or if the record is busy or takes
        no writes now. Returns ExplorationOver if all tasks are explored.
        """
        return await self._with_record(lambda: self._assign(call))

    async def _assign(self, call: m.ExploreRequest) -> m.ExplorationLease | m.NoWorkYet | m.ExplorationOver:
        held = [one for one in self._reader.held_leases() if one.explorer != call.explorer]
        waits = False
        for task_id in self._followers:
            if task_id in self._finished:
                continue
            at = call.at if (call.task_id, call.seed) == (task_id, self._settings.seed) else None
            found = self._next(task_id, at, held)
            if isinstance(found, AllExplored):
                self._finish(task_id, found.reason)
                continue
            if isinstance(found, Waiting):
                waits = True
                continue
            return await self._lease(call, task_id, found)
        return self._wait("other explorers hold every screen that is left") if waits else self._over(held)

    def _next(
        self, task_id: str, at: int | None, held: list[HeldLease]
    ) -> Assignment | Waiting | AllExplored:
        graph = self._followers[task_id].graph
        screens = {one.screen_id for one in held if one.screen_id is not None and one.task_id == task_id}
        given_up = self._reader.unreached_screens(UNREACHED_MOST)
        return next_assignment(graph, at, screens, given_up, self._settings, self._failed_before[task_id])

    async def _lease(
        self, call: m.ExploreRequest, task_id: str, found: Assignment
    ) -> m.ExplorationLease | m.NoWorkYet:
        try:
            lease = await self._write(
                m.LeaseScreen(
                    task_id=task_id,
                    seed=self._settings.seed,
                    screen_id=found.screen_id,
                    explorer=call.explorer,
                    incarnation=call.incarnation,
                    deadline_unix_s=self._deadline_unix_s(),
                )
            )
        except NotWritten as why:
            return self._wait(str(why))
        return m.ExplorationLease(
            fence=lease.fence,
            task_id=task_id,
            seed=self._settings.seed,
            screen_id=found.screen_id,
            begins_with_reset=found.way.begins_with_reset,
            hops=found.way.hops,
            repeats=found.repeats,
        )

    @receives(m.ExploredReport)
    async def record(self, call: m.ExploredReport, sender: Sender) -> m.ExploredReply | m.NoWorkYet:
        """Find the node of a reported screen, and record the action that led there.

        Returns a fenced reply if the lease has ended, and NoWorkYet if the record is busy or takes no writes
        now. The explorer then repeats the report, which is recorded once.
        """
        return await self._with_record(lambda: self._record(call))

    async def _record(self, call: m.ExploredReport) -> m.ExploredReply | m.NoWorkYet:
        lease = next((one for one in self._reader.held_leases() if one.fence == call.fence), None)
        if lease is None:
            return reply_to_report(None)
        follower = self._followers[lease.task_id]
        self._follow(follower)
        try:
            verdict = await self._write(
                record_of_report(call, follower.graph, lease, self._deadline_unix_s())
            )
        except NotWritten as why:
            return self._wait(str(why))
        self._follow(follower)
        return reply_to_report(verdict)

    def _follow(self, follower: GraphFollower) -> None:
        """Read what is new in the record, and log each screen that was found, once."""
        for step in follower.follow():
            if step.effect in (Effect.NEW_SHAPE, Effect.NEW_SCREEN):
                self.log.info(
                    "screen_found",
                    task=step.task_id,
                    screen=step.target_id,
                    screens=len(follower.graph.nodes),
                    shapes=len(follower.graph.shapes),
                    actions=step.actions,
                )

    @receives(m.GiveBackLease)
    async def give_back(self, call: m.GiveBackLease, sender: Sender) -> None:
        async with self._lock:
            await self._end(call.fence, call.why)

    # ---- the end ----

    def _finish(self, task_id: str, reason: str) -> None:
        self._finished[task_id] = reason
        graph = self._followers[task_id].graph
        self.log.info(
            "explored", task=task_id, reason=reason, screens=len(graph.nodes), actions=graph.actions
        )

    def _over(self, held: list[HeldLease]) -> m.ExplorationOver:
        if self.args.get("ends_run") and not held and not self.is_stopping:
            self.after(ENDS_AFTER_S, self.stop)
        reasons = "; ".join(f"{task_id}: {reason}" for task_id, reason in self._finished.items())
        return m.ExplorationOver(reason=reasons)

    # ---- a busy record ----

    async def _with_record(self, work: Callable[[], Awaitable[T]]) -> T | m.NoWorkYet:
        """Return the result of `work`, which reads the record, or NoWorkYet if the record is busy."""
        async with self._lock:
            if self.clock.monotonic_s() < self._rests_until_s:
                return self._wait("the record is busy")
            try:
                return await work()
            except StoreBusy as busy:
                self.log.warning("record_busy", reason=str(busy))
                self._rests_until_s = self.clock.monotonic_s() + BUSY_REST_S
                return self._wait(str(busy))

    # ---- writing ----

    async def _end_overdue(self) -> None:
        """End the leases whose deadline is over. Stop at the first that the store does not end: each further
        one would keep the explorers waiting for as long."""
        now_s = self.clock.unix_s()
        for lease in self._reader.held_leases():
            if lease.deadline_unix_s < now_s:
                self.log.warning("lease_expired", explorer=lease.explorer, screen=lease.screen_id)
                if not await self._end(lease.fence, LeaseEnd.EXPIRED):
                    return

    async def _end(self, fence: int, why: LeaseEnd) -> bool:
        """End a lease in the record; return whether the store has confirmed it.

        If the store takes no writes, the lease ends later: at its deadline, or when its explorer asks again.
        """
        try:
            await self._write(m.EndExplorationLease(fence=fence, why=why))
        except NotWritten as not_written:
            self.log.warning("lease_not_ended", fence=fence, reason=str(not_written))
            return False
        return True

    async def _write(self, call: m.Call[m.T]) -> m.T:
        """Have the store carry out a call, and return its result. Raises NotWritten without confirmation."""
        try:
            answer = await self.ask("store", call, deadline_s=WRITE_DEADLINE_S)
        except (AskError, MailboxFull) as error:
            raise NotWritten(str(error)) from error
        if isinstance(answer, m.Paused):
            raise NotWritten(answer.reason)
        return result_of(call, answer)

    def _deadline_unix_s(self) -> float:
        return self.clock.unix_s() + self._settings.lease_s

    def _wait(self, reason: str) -> m.NoWorkYet:
        return m.NoWorkYet(retry_after_s=self._config.curation.poll_s, reason=reason)
