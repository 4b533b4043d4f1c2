"""How a rollout actor brings requests to its engine: in batches, or each as soon as there is room.

A strategy holds the requests that wait and those that the engine is answering. It asks `may_serve` before it
hands any over, so a load, a hold or a closed gate keeps requests waiting.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from actors.actor import Actor
from actors.future import Future, Lock
from dart.config.sections import RolloutSettings
from dart.core import messages as m
from dart.core.types import GenerateRequest, Generation
from dart.inference.protocol import ConcurrentEngine, Engine, EngineError, Unanswerable
from dart.telemetry.load_meter import LoadMeter

ENGINE_CHECK_S = 0.5
"""How often the processes of an engine are checked."""

REASON_CHARACTERS = 1000
"""Of the reason for which a request cannot be answered: it must fit into mail."""


@dataclass(eq=False, slots=True)
class WaitingRequest:
    """A request, and the future that is its answer."""

    request: GenerateRequest
    answer: Future[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingContext:
    """What a strategy shares with its rollout actor."""

    actor: Actor
    settings: RolloutSettings
    lock: Lock
    """Held while weights change, while a batch is answered and while the engine is probed."""
    meter: LoadMeter
    may_serve: Callable[[], bool]
    changed: Callable[[], None]
    """Called whenever requests begin or end."""
    answer_deadline_s: float
    """After this the engine has failed."""


class BatchServing:
    """Answers one batch at a time: requests that come meanwhile form the next one."""

    def __init__(self, engine: Engine, probe: GenerateRequest, context: ServingContext) -> None:
        self.waiting: deque[WaitingRequest] = deque()
        self.in_flight: list[WaitingRequest] = []
        """Requests that the engine is answering."""
        self._engine = engine
        self._probe = probe
        self._context = context
        self._actor = context.actor
        self._max_batch = context.settings.max_batch
        self._deadline_s = context.answer_deadline_s
        self._is_serving = False

    def start(self) -> None:
        """Begin what goes on beside requests."""

    def close(self) -> None:
        """End what the engine started."""

    def prove(self) -> None:
        """Have the engine give a real answer. Blocks; EngineError if its version is not the loaded one."""
        served, loaded = self._sample_version(), self._engine.version
        if served != loaded:
            name = self._actor.identity.name
            raise EngineError(f"{name!r} answers with version {served}, version {loaded} was loaded")
        self._context.changed()

    def _sample_version(self) -> int:
        return self._engine.generate([self._probe])[0].policy_version

    async def serve(self) -> None:
        """Answer what waits, batch after batch, as long as the actor may serve. One call at a time works."""
        if self._is_serving:
            return
        self._is_serving = True
        while self.waiting and self._context.may_serve():
            async with self._context.lock:
                if self.waiting and self._context.may_serve():  # a load may have had the lock before
                    await self._answer(self._take(self._max_batch))
        self._is_serving = False
        self._context.changed()

    def _take(self, most: int) -> list[WaitingRequest]:
        batch = [self.waiting.popleft() for _ in range(min(len(self.waiting), most))]
        self.in_flight += batch
        return batch

    async def _answer(self, batch: list[WaitingRequest]) -> None:
        self._show_busy()
        requests = [one.request for one in batch]
        try:
            answers = await self._actor.in_thread(
                lambda: self._engine.generate(requests), name="generate", deadline_s=self._deadline_s
            )
        except Unanswerable as refusal:
            await self._refuse(batch, str(refusal))
            return
        self._count(answers)
        self._finish(batch, answers)

    def _count(self, answers: Sequence[Generation]) -> None:
        self._context.meter.add("requests", len(answers))
        self._context.meter.add("tokens", sum(len(answer.token_ids) for answer in answers))

    async def _refuse(self, batch: list[WaitingRequest], why: str) -> None:
        """One request of the batch cannot be answered. The engine does not say which, so try each alone."""
        if len(batch) > 1:
            for one in batch:
                await self._answer([one])
            return
        self._actor.log.warning("request_refused", reason=why)
        self._finish(batch, [m.CannotAnswer(reason=why[:REASON_CHARACTERS])])

    def _finish(self, batch: list[WaitingRequest], answers: Sequence[Any]) -> None:
        self.in_flight = [one for one in self.in_flight if one not in batch]
        self._show_busy()
        for one, answer in zip(batch, answers, strict=True):
            one.answer.succeed(answer)
        self._actor.run(self.serve())

    def _show_busy(self) -> None:
        """Count the engine as busy with what it answers; requests that wait do not make it busy."""
        meter, requests = self._context.meter, len(self.in_flight)
        meter.weigh("busy_s", float(requests > 0))
        meter.weigh("weighted_s", requests / self._max_batch)
        self._context.changed()


class ConcurrentServing(BatchServing):
    """Hands each request to an engine that batches by itself, as soon as there is room."""

    def __init__(self, engine: ConcurrentEngine, probe: GenerateRequest, context: ServingContext) -> None:
        super().__init__(engine, probe, context)
        self._concurrent_engine = engine
        self._deadline_s += context.settings.load_deadline_s  # an answer waits while weights change under it
        self._answered = 0

    def start(self) -> None:
        """Watch over the engine: over its processes all the time, with a token when no request proves it."""
        self._actor.every(ENGINE_CHECK_S, self._concurrent_engine.check_alive)
        self._actor.run(self._stay_healthy())

    def close(self) -> None:
        """End the engine's processes."""
        self._concurrent_engine.close()

    def _sample_version(self) -> int:
        return self._concurrent_engine.prove()

    async def serve(self) -> None:
        """Hand over as many requests as there is room for."""
        while self.waiting and self._context.may_serve() and len(self.in_flight) < self._max_batch:
            self._actor.run(self._answer(self._take(1)))

    def _count(self, answers: Sequence[Generation]) -> None:
        super()._count(answers)
        self._answered += len(answers)

    async def _stay_healthy(self) -> None:
        """Ask for one token whenever no request was answered for a while; without it the actor ends."""
        while not self._actor.is_stopping:
            before = self._answered
            await self._actor.sleep(self._context.settings.vllm.health_every_s)
            if self._answered == before:
                async with self._context.lock:  # no token comes while weights change
                    await self._actor.in_thread(
                        self.prove, name="health", deadline_s=self._context.answer_deadline_s
                    )
