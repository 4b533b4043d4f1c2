"""Asks the engines for answers of the policy, on behalf of an environment.

Generating an answer has no effect on the environment. A request to an engine that died, is late or refuses
requests is therefore sent again, to the same engine or to another one.
"""

from random import Random

from actors.actor import Actor
from actors.board import ActorState, Vitals
from actors.errors import AskError, MailboxFull, MessageTooLarge
from actors.future import Future
from dart.config.config import Config
from dart.core import messages as m
from dart.core.types import GenerateRequest, Generation
from dart.telemetry.board_gauges import Gauge
from dart.telemetry.engine_names import EngineNames
from dart.telemetry.liveness import ENGINE_SILENT_S

PATIENCE_SHARE = 0.4
"""Share of a lease for which an episode waits for an answer. The rest suffices to report a failure."""


Answer = Generation | m.NoWorkYet | m.CannotAnswer
"""What an engine answers to a request."""


class NoEngineAnswered(Exception):
    """No engine answered within `PATIENCE_SHARE` of a lease. Neither the policy nor the task is to blame."""


class RequestRejected(Exception):
    """The request is rejected as every engine would, for instance because the prompt is too long."""


class PolicyClient:
    """Asks the engines for answers on behalf of one environment."""

    def __init__(self, actor: Actor, config: Config) -> None:
        self._actor = actor
        self._engines = EngineNames(actor.board, actor.args["engines"])
        self._chance = Random(actor.identity.name)
        self._poll_s = config.curation.poll_s
        self._patience_s = PATIENCE_SHARE * config.curation.lease_s
        # Half of the patience at most, so that there is time to ask another engine.
        self._deadline_s = min(config.rollout.answer_deadline_s, self._patience_s / 2)

    def answer(self, request: GenerateRequest) -> Future[Generation]:
        """Ask engines until one answers; return a future, which may fail with NoEngineAnswered or
        RequestRejected."""
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
                return answered.fail(RequestRejected(answer.reason))
            if self._actor.clock.monotonic_s() >= gives_up_s:
                detail = f"no engine answered within {self._patience_s:g} s; the last reason: {answer.reason}"
                return answered.fail(NoEngineAnswered(detail))
            await self._actor.sleep(answer.retry_after_s)

    async def _ask_once(self, request: GenerateRequest) -> Answer:
        engine = self._least_busy()
        if engine is None:
            reason = f"none of {', '.join(self._engines)} is ready"
            return m.NoWorkYet(retry_after_s=self._poll_s, reason=reason)
        try:
            asked = self._actor.ask(engine, m.Generate(request=request), deadline_s=self._deadline_s)
            return await self._answer_or_silence(engine, asked)
        except MessageTooLarge as error:
            return m.CannotAnswer(
                reason=f"the instruction is too long for a message, with past answers and a hint: {error}"
            )
        except (AskError, MailboxFull) as error:
            if isinstance(error, AskError):
                self._actor.tell("weight_sync", m.EngineSuspect(engine=engine, detail=str(error)))
            return m.NoWorkYet(retry_after_s=self._poll_s, reason=str(error))

    async def _answer_or_silence(self, engine: str, asked: Future[Answer]) -> Answer:
        """Wait for an engine's answer, or until the engine is silent while another one is ready.

        A stopped process would keep the request until its supervisor ends it. Raises AskError or MailboxFull.
        """
        is_over: Future[None] = Future()
        asked.then(lambda: is_over.succeed(None))

        def look() -> None:
            if is_over.is_done:
                return
            if self._is_silent(engine) and self._least_busy() is not None:
                is_over.succeed(None)
            else:
                self._actor.after(ENGINE_SILENT_S, look)

        self._actor.after(ENGINE_SILENT_S, look)
        await is_over
        if asked.is_done:
            return asked.result()
        return m.NoWorkYet(retry_after_s=0.0, reason=f"{engine} has shown no sign of life for some seconds")

    def _is_silent(self, engine: str) -> bool:
        slot = self._actor.board.find(engine)
        return slot is not None and is_silent(self._actor.board.vitals(slot))

    def _least_busy(self) -> str | None:
        """Return the name of the ready engine with the fewest requests; None when no engine is ready.

        Of several such engines each is as likely: environments that ask at the same moment see the same
        numbers."""
        board = self._actor.board
        rows = [board.vitals(slot) for engine in self._engines if (slot := board.find(engine)) is not None]
        ready = [row for row in rows if takes_requests(row)]
        self._chance.shuffle(ready)
        return min(ready, key=lambda row: row.gauges[Gauge.IN_FLIGHT]).name if ready else None


def takes_requests(engine: Vitals) -> bool:
    """Return whether an engine may get requests, by its row on the board of the environment's machine.

    An engine without a recent heartbeat gets none, because the board still shows a stopped process as ready.
    """
    return engine.state is ActorState.RUNNING and engine.ready and not is_silent(engine)


def is_silent(engine: Vitals) -> bool:
    """Return whether an engine has had no heartbeat for some seconds."""
    return (engine.beat_age_s or 0.0) > ENGINE_SILENT_S
