"""Actors that explore, each with one browser.

`ExplorerActor` only explores (`dartrl explore`). `ExploringEnvironmentActor` plays episodes like every
environment, and explores while the curator has no work for it (`exploration.enabled`) and the run is not
paused.

Asks       the owner of the graph for leases and to record each action; engines for priors
Dies when  the environment fails several times in a row, or one of its calls lasts longer than a lease of an
           episode: its supervisor backs off and starts it again
On stop    gives its lease back after the current action
On restart its first request ends the lease of the dead incarnation; unreported actions are tried again
"""

import random
from functools import cached_property

from actors.actor import Actor
from actors.future import Future
from dart.config.config import Config
from dart.config.failing_time import MAX_FAULTS_IN_ROW
from dart.core import messages as m
from dart.core.record_address import parse_record_address
from dart.environments.actor import EnvironmentActor, logging_faults
from dart.environments.call_watch import CHECK_S, CallWatch
from dart.environments.episode import StopEvent
from dart.environments.factory import environment_of
from dart.environments.faults import EnvironmentFault
from dart.environments.protocol import Environment
from dart.exploration.explorer import Explorer
from dart.exploration.model_prior import ModelPrior
from dart.exploration.run_access import ActorRunAccess, OwnerAway
from dart.store.errors import StoreBusy
from dart.store.patience import AT_START, IN_HANDLER
from dart.store.reader import StoreReader

OVER_POLL_S = 1.0
"""Interval in seconds at which an explorer asks again after the owner answered that exploration is over."""


def explorer_of(
    actor: Actor, config: Config, environment: Environment, reader: StoreReader, watch: CallWatch
) -> Explorer:
    """Return an explorer that explores with the environment of an actor.

    watch   notices a call of the environment that does not return; the actor checks it
    """
    prior = ModelPrior()
    identity = actor.identity
    return Explorer(
        environment,
        ActorRunAccess(actor, config, prior, watch),
        reader,
        config.exploration,
        config.environments,
        random.Random(f"{config.run.seed}/{identity.name}/{identity.incarnation}"),
        prior,
    )


class ExplorerActor(Actor):
    """Explores one lease after another; when the exploration is over, waits until it is stopped."""

    prints_to_stderr = True

    def on_start(self) -> None:
        self._config = config = Config.model_validate(self.args["config"])
        self._environment = environment_of(self, config)
        reader = self.enter_context(StoreReader(parse_record_address(self.args["store"]), AT_START))
        self._watch = CallWatch(config.environments.kind, config.curation.lease_s, self.clock.monotonic_s)
        self._explorer = explorer_of(self, config, self._environment, reader, self._watch)
        self._faults_in_row = 0
        self._stopping = StopEvent()
        self._over: Future[None] = Future()
        self.every(CHECK_S, self._check_call)
        self.after(0.0, self._explore_for_ever)

    async def on_stop(self) -> None:
        self._stopping.set()
        await self._over
        await logging_faults(self, "close", self._environment.close())

    def _check_call(self) -> None:
        """End this actor if a call of its environment does not return. A stop has a time limit of its own."""
        if not self.is_stopping:
            self._watch.check()

    async def _explore_for_ever(self) -> None:
        while not self._stopping.is_set:
            await self._explore_once()
        self._over.succeed(None)

    async def _explore_once(self) -> None:
        try:
            reply = await self._explorer.explore(lambda: self._stopping.is_set)
        except EnvironmentFault as fault:
            self._explorer.forget_screen()
            self._faults_in_row += 1
            self.log.warning("exploration_fault", kind=fault.kind, detail=str(fault))
            if self._faults_in_row >= MAX_FAULTS_IN_ROW:
                raise
            return
        except StoreBusy as busy:
            self._explorer.forget_screen()  # it may show what an action led to that was not reported
            self.log.warning("record_busy", reason=str(busy))
            reply = m.NoWorkYet(retry_after_s=OVER_POLL_S, reason=str(busy))
        if reply is None:
            self._faults_in_row = 0
            self.used()
        elif isinstance(reply, m.NoWorkYet):
            await self._stopping.wait_first(self.sleep(reply.retry_after_s))
        else:
            await self._stopping.wait_first(self.sleep(OVER_POLL_S))


class ExploringEnvironmentActor(EnvironmentActor):
    """An environment that explores while the curator has no work for it."""

    def on_start(self) -> None:
        super().on_start()
        self._rests_until_s = 0.0

    @cached_property
    def _explorer(self) -> Explorer:
        """The explorer. It opens the record when it is first used, so the environment starts without it.

        Raises StoreBusy.
        """
        reader = self.enter_context(StoreReader(parse_record_address(self.args["store"]), IN_HANDLER))
        return explorer_of(self, self.config, self.environment, reader, self._player.watch)

    async def idle(self, reply: m.NoWorkYet) -> None:
        """Explore under one lease: the way to its screen, then about `exploration.lease_actions` actions.

        Without a lease, and while the run is paused, wait as every environment does.
        """
        if reply.is_held or self.clock.monotonic_s() < self._rests_until_s or self.is_stopping:
            await super().idle(reply)
            return
        had_screen, self._has_screen = self._has_screen, False  # a reset closes it, and a fault leaves none
        try:
            self._explorer.forget_screen()  # an episode may have been played since the last lease
            found = await self._explorer.explore(lambda: self.is_stopping)
            self._has_screen = found is None or had_screen
            has_explored = found is None
        except (EnvironmentFault, OwnerAway, StoreBusy) as error:  # the next episode shows what is broken
            self.log.warning("exploration_fault", detail=str(error))
            found, has_explored = reply, True
        await self.in_loop(self.environment.filter_requests(None))
        if has_explored:
            self._is_idle = False  # the environment may hold again what it has given back
        if found is not None:
            self._rests_until_s = self.clock.monotonic_s() + OVER_POLL_S
            await super().idle(reply)
