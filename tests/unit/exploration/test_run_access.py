"""How long an explorer repeats a report to the owner of the graph."""

from pathlib import Path

from actors.actor import Actor, Sender, receives
from actors.testing import InMemorySystem
from dart.config.config import Config
from dart.core import messages as m
from dart.core.exploration import Effect, LeaseMove
from dart.environments.call_watch import CallWatch
from dart.exploration.model_prior import ModelPrior
from dart.exploration.run_access import OWNER, REPORT_PATIENCE_S, ActorRunAccess, OwnerAway

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


class Reporter(Actor):
    """Reports once, and keeps what came of it."""

    def on_start(self) -> None:
        self.outcome: m.ExploredReply | OwnerAway | None = None
        watch = CallWatch("made-up", 60.0, self.clock.monotonic_s)
        self._access = ActorRunAccess(self, Config(), ModelPrior(), watch)
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
