"""Passes requests of a rollout actor to its engine: in batches, or one by one as soon as there is room."""

import io
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from PIL import Image

from actors.actor import Actor
from actors.future import Future, Lock
from dart.config.sections import RolloutSettings
from dart.core import messages as m
from dart.core.types import GenerateRequest, Generation
from dart.inference.protocol import Engine, EngineError, Unanswerable
from dart.store.blobs import BlobStore
from dart.store.errors import StoreBusy
from dart.telemetry.load_meter import LoadMeter

GRACE_S = 5.0
"""Time in seconds that is added to a deadline of an engine. The engine itself should raise an error at its
deadline; after this additional time, the rollout actor ends."""

ENGINE_CHECK_S = 0.5
"""Interval in seconds at which the processes of a concurrent engine are checked."""

REASON_CHARACTERS = 1000
"""Largest length of the reason why a request cannot be answered, so that it fits into a message."""

BUSY_RETRY_S = 1.0
"""Time in seconds after which an environment asks again if the screenshots could not be read, or if the
engine is too busy to answer in time."""

PROBE_SIZE_PX = (160, 210)
"""Width and height in pixels of a probe's screenshot: the size of a MiniWoB++ page."""


@dataclass(eq=False, slots=True)
class WaitingRequest:
    """A request, and the future that gets its answer."""

    request: GenerateRequest
    answer: Future[Any]
    came_s: float
    """When the request came, on the monotonic clock."""
    until_s: float
    """The moment on the same clock at which the environment stops waiting for the answer."""


class Serving:
    """Holds the requests that wait for an engine, and passes them to the engine.

    A concurrent engine gets each request as soon as fewer than `rollout.max_batch` are being answered. Any
    other engine answers one batch at a time; requests that come meanwhile form the next batch. Requests wait
    while `may_serve` returns False, which means a hold or too old a version, and while a load has the lock.
    A request that has waited too long to be answered in time is turned away instead: an engine with more
    requests than it can answer would otherwise compute only answers that come too late.

    probe       request by which the engine is proved
    meter       measures how busy the engine is
    may_serve   function that returns whether the engine may answer requests now
    changed     function that is called whenever requests begin or end
    """

    def __init__(
        self,
        actor: Actor,
        engine: Engine,
        probe: GenerateRequest,
        settings: RolloutSettings,
        meter: LoadMeter,
        *,
        may_serve: Callable[[], bool],
        changed: Callable[[], None],
    ) -> None:
        self.waiting: deque[WaitingRequest] = deque()
        self.in_flight: list[WaitingRequest] = []
        """Requests that the engine is answering."""
        self.lock = Lock()
        """Lock that is held while weights change, a batch is answered, or the engine is probed."""
        self.proof_deadline_s = settings.answer_deadline_s + GRACE_S
        self._actor = actor
        self._engine = engine
        self.probe = probe
        """The request by which the engine is proved."""
        self._settings = settings
        self._meter = meter
        self._may_serve = may_serve
        self._changed = changed
        self._is_serving = False
        self._answered = 0
        self._last_took_s = 0.0
        """Seconds that the engine needed for its last answer."""

    def start(self) -> None:
        """Prove the engine. If it is concurrent, check its processes from now on, and prove it when idle."""
        self.prove()
        if self._engine.is_concurrent:
            self._actor.every(ENGINE_CHECK_S, self._engine.check_alive)
            self._actor.run(self._stay_healthy())

    def prove(self) -> None:
        """Prove the engine: have it answer the probe, and block until it has.

        Raises EngineError if a version other than the loaded one answers.
        """
        served, loaded = self._engine.prove(self.probe), self._engine.version
        if served != loaded:
            name = self._actor.identity.name
            raise EngineError(
                f"engine {name} answers with version {served}, expected {loaded}, the version that it loaded"
            )
        self._changed()

    async def serve(self) -> None:
        """Pass the waiting requests to the engine, as long as it may serve and has room."""
        if self._engine.is_concurrent:
            while self._may_hand_over() and len(self.in_flight) < self._settings.max_batch:
                if batch := self._take(1):
                    self._actor.run(self._answer(batch))
        elif not self._is_serving:
            self._is_serving = True
            while self._may_hand_over():
                async with self.lock:
                    # A load may have had the lock before.
                    if self._may_hand_over() and (batch := self._take(self._settings.max_batch)):
                        await self._answer(batch)
            self._is_serving = False
            self._changed()

    def _may_hand_over(self) -> bool:
        return bool(self.waiting) and self._may_serve()

    def _take(self, most: int) -> list[WaitingRequest]:
        """Take up to `most` of the waiting requests for the engine, and turn away those that are too late."""
        batch: list[WaitingRequest] = []
        while self.waiting and len(batch) < most:
            one = self.waiting.popleft()
            if self._is_too_late(one):
                reason = f"{self._actor.identity.name} is too busy to answer in time"
                one.answer.succeed(m.NoWorkYet(retry_after_s=BUSY_RETRY_S, reason=reason))
            else:
                batch.append(one)
        self.in_flight += batch
        return batch

    def _is_too_late(self, one: WaitingRequest) -> bool:
        """Whether an answer that takes as long as the last one would come when the environment is gone."""
        # At most half of the whole time, so that new requests reach the engine after one slow answer.
        takes_s = min(self._last_took_s, (one.until_s - one.came_s) / 2)
        return self._actor.clock.monotonic_s() + takes_s >= one.until_s

    async def _answer(self, batch: list[WaitingRequest]) -> None:
        self._show_busy()
        requests = [one.request for one in batch]
        # Weights may change under the requests of a concurrent engine.
        load_s = self._settings.load_deadline_s if self._engine.is_concurrent else 0.0
        began_s = self._actor.clock.monotonic_s()
        try:
            answers = await self._actor.in_thread(
                lambda: self._engine.generate(requests),
                name="generate",
                deadline_s=self.proof_deadline_s + load_s,
            )
        except Unanswerable as refusal:
            await self._refuse(batch, str(refusal))
            return
        except StoreBusy as busy:  # the screenshots cannot be read now
            self._actor.log.warning("screenshots_busy", reason=str(busy))
            reason = str(busy)[:REASON_CHARACTERS]
            self._finish(batch, [m.NoWorkYet(retry_after_s=BUSY_RETRY_S, reason=reason)] * len(batch))
            return
        self._last_took_s = self._actor.clock.monotonic_s() - began_s
        self._answered += len(answers)
        self._meter.add("requests", len(answers))
        self._meter.add("tokens", sum(len(answer.token_ids) for answer in answers))
        self._finish(batch, answers)

    async def _refuse(self, batch: list[WaitingRequest], why: str) -> None:
        """Reply CannotAnswer to a request that the engine refused. Try requests of a larger batch alone."""
        if len(batch) > 1:
            for one in batch:
                await self._answer([one])
            return
        self._actor.log.warning("request_refused", reason=why)
        self._finish(batch, [m.CannotAnswer(reason=why[:REASON_CHARACTERS])])

    def _finish(
        self, batch: list[WaitingRequest], answers: Sequence[Generation | m.CannotAnswer | m.NoWorkYet]
    ) -> None:
        self.in_flight = [one for one in self.in_flight if one not in batch]
        self._show_busy()
        for one, answer in zip(batch, answers, strict=True):
            one.answer.succeed(answer)
        self._actor.run(self.serve())

    def _show_busy(self) -> None:
        """Tell the meter how many requests the engine is answering; waiting requests do not count."""
        requests = len(self.in_flight)
        self._meter.weigh("busy_s", float(requests > 0))
        self._meter.weigh("weighted_s", requests / self._settings.max_batch)
        self._changed()

    async def _stay_healthy(self) -> None:
        """Prove the engine whenever no request was answered for `rollout.vllm.health_every_s`.

        The actor ends if this fails.
        """
        while not self._actor.is_stopping:
            before = self._answered
            await self._actor.sleep(self._settings.vllm.health_every_s)
            if self._answered == before:
                async with self.lock:  # no token comes while weights change
                    await self._actor.in_thread(self.prove, name="health", deadline_s=self.proof_deadline_s)


def probe_request(screenshots: BlobStore) -> GenerateRequest:
    """Return a request that any engine can answer, after storing its blank screenshot as a blob."""
    picture = io.BytesIO()
    Image.new("RGB", PROBE_SIZE_PX, "white").save(picture, "PNG")
    return GenerateRequest(
        screenshot_sha256=screenshots.put(picture.getvalue()),
        instruction="Click the button.",
        history=(),
        temperature=1.0,
    )
