"""How long an explorer waits for the owner of the graph, and repeats its report."""

from pathlib import Path

from actors.actor import Actor, Sender, receives
from actors.testing import InMemorySystem
from dart.config.config import Config
from dart.core import messages as m
from dart.core.exploration import Effect, LeaseMove
from dart.environments.call_watch import CallWatch
from dart.exploration.model_prior import ModelPrior
from dart.exploration.run_access import OWNER, REPORT_PATIENCE_S, RETRY_S, ActorRunAccess, OwnerAway

PAUSE_S = 300.0

REPORT = m.ExploredReport(
    fence=1,
    number=1,
    cost=1,
    source_id=None,
    candidate=None,
    effect=Effect.FAULT,
    screen=None,
    move=LeaseMove.KEEP,
)

RECORDED = m.ExploredReply(screen_id=None, effect=Effect.FAULT, holds=True)


class PausedOwner(Actor):
    """Records nothing for `PAUSE_S`, but answers."""

    def on_start(self) -> None:
        self._goes_on_s = self.clock.monotonic_s() + PAUSE_S

    @receives(m.ExploredReport)
    def record(self, call: m.ExploredReport, sender: Sender) -> m.ExploredReply | m.NoWorkYet:
        if self.clock.monotonic_s() < self._goes_on_s:
            return m.NoWorkYet(retry_after_s=5.0, reason="the disk is full")
        return RECORDED


def access_of(actor: Actor) -> ActorRunAccess:
    watch = CallWatch("made-up", 60.0, actor.clock.monotonic_s)
    return ActorRunAccess(actor, Config(), ModelPrior(), watch)


class Asker(Actor):
    """Asks for a lease once, and keeps the reply."""

    def on_start(self) -> None:
        self.reply: m.ExplorationLease | m.NoWorkYet | m.ExplorationOver | None = None
        self._access = access_of(self)
        self.after(0.0, self._ask)

    async def _ask(self) -> None:
        self.reply = await self._access.lease("", 0, None)


class Reporter(Actor):
    """Reports once, and keeps what came of it."""

    def on_start(self) -> None:
        self.outcome: m.ExploredReply | OwnerAway | None = None
        self._access = access_of(self)
        self.after(0.0, self._report)

    async def _report(self) -> None:
        try:
            self.outcome = await self._access.report(REPORT)
        except OwnerAway as away:
            self.outcome = away


def test_a_report_waits_for_as_long_as_the_owner_answers(tmp_path: Path) -> None:
    with InMemorySystem(tmp_path) as bench:
        bench.start(PausedOwner, OWNER)
        bench.start(Reporter, "explorer-000", {"engines": []})
        bench.advance(PAUSE_S - 10.0)
        assert bench.actor("explorer-000").outcome is None
        bench.advance(20.0)
        assert bench.actor("explorer-000").outcome == RECORDED


def test_a_report_is_given_up_when_the_owner_has_not_answered_for_long(tmp_path: Path) -> None:
    with InMemorySystem(tmp_path) as bench:
        bench.start(Reporter, "explorer-000", {"engines": []})
        bench.advance(REPORT_PATIENCE_S - 10.0)
        assert bench.actor("explorer-000").outcome is None
        bench.advance(40.0)
        assert isinstance(bench.actor("explorer-000").outcome, OwnerAway)


def test_an_explorer_without_an_owner_is_told_to_ask_again_soon(tmp_path: Path) -> None:
    with InMemorySystem(tmp_path) as bench:
        bench.start(Asker, "explorer-000", {"engines": []})
        bench.advance(1.0)
        reply = bench.actor("explorer-000").reply
        assert isinstance(reply, m.NoWorkYet)
        assert (reply.retry_after_s, OWNER in reply.reason) == (RETRY_S, True)
