"""Asking the rollout actors: whom, and until when.

Asking again changes nothing in the world, so an engine that died, is late or turns requests away is simply
asked anew, or another one is.
"""

from actors.actor import Actor
from actors.board import ActorState
from actors.errors import AskError, MailboxFull
from actors.future import Future
from dart.config.sections import CurationSettings
from dart.core import messages as m
from dart.core.types import GenerateRequest, Generation
from dart.telemetry.liveness import ENGINE_SILENT_S

PATIENCE_SHARE = 0.4
"""Of a lease an episode waits for any engine, so that it says so before the lease ends; see `patience_s`."""


class NoAnswer(Exception):
    """No engine answered within `patience_s`; not the policy's doing, nor the task's."""


class Unanswered(Exception):
    """An engine refused the request for what it is: no other one would answer it."""


def patience_s(config: CurationSettings) -> float:
    """How long an episode waits for any engine before its attempt counts as failed."""
    return PATIENCE_SHARE * config.lease_s


class PolicyClient:
    """The rollout actors as one environment sees them."""

    def __init__(
        self, actor: Actor, workers: list[str], config: CurationSettings, *, answer_deadline_s: float
    ) -> None:
        """answer_deadline_s: an engine that has not answered after this is suspect; sooner where a lease is
        short, so that there is time to ask another one."""
        self._actor = actor
        self._workers = workers
        self._poll_s = config.poll_s
        self._patience_s = patience_s(config)
        self._deadline_s = min(answer_deadline_s, self._patience_s / 2)

    def answer(self, request: GenerateRequest) -> Future[Generation]:
        """Of whichever engine can; fails with NoAnswer or Unanswered."""
        answered: Future[Generation] = Future()
        self._actor.run(self._ask_until_answered(request, answered))
        return answered

    async def _ask_until_answered(self, request: GenerateRequest, answered: Future[Generation]) -> None:
        gives_up_s = self._actor.clock.monotonic_s() + self._patience_s
        while True:
            answer = await self._ask_once(request)
            if isinstance(answer, Generation):
                return answered.succeed(answer)
            if isinstance(answer, m.CannotAnswer):
                return answered.fail(Unanswered(answer.reason))
            if self._actor.clock.monotonic_s() >= gives_up_s:
                detail = f"no engine answered within {self._patience_s:g} s; the last said: {answer.reason}"
                return answered.fail(NoAnswer(detail))
            await self._actor.sleep(answer.retry_after_s)

    async def _ask_once(self, request: GenerateRequest) -> Generation | m.NoWorkYet | m.CannotAnswer:
        worker = self._least_busy()
        if worker is None:
            return m.NoWorkYet(
                retry_after_s=self._poll_s, reason=f"none of {', '.join(self._workers)} is in routing"
            )
        try:
            answer: Generation | m.NoWorkYet | m.CannotAnswer = await self._actor.ask(
                worker, m.Generate(request=request), deadline_s=self._deadline_s
            )
        except AskError as error:
            self._actor.tell("weight_sync", m.EngineSuspect(worker=worker, detail=str(error)))
            return m.NoWorkYet(retry_after_s=self._poll_s, reason=str(error))
        except MailboxFull as error:
            return m.NoWorkYet(retry_after_s=self._poll_s, reason=str(error))
        return answer

    def _least_busy(self) -> str | None:
        """The rollout actor in routing that gives signs of life and has the fewest requests; None without."""
        board = self._actor.board
        loads = {}
        for worker in self._workers:
            slot = board.find(worker)
            if slot is None or board.state(slot) is not ActorState.RUNNING:
                continue
            row = board.vitals(slot)
            if (
                row.ready and (row.beat_age_s or 0.0) <= ENGINE_SILENT_S
            ):  # a stopped process is ready for ever
                loads[worker] = row.gauge_in_flight
        return min(loads, key=lambda worker: loads[worker], default=None)
