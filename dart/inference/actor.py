"""The rollout actor: one engine, one policy version, requests batched as they come.

An engine that batches by itself (`ConcurrentEngine`) gets each request as soon as there is room; then answers
are under way while it loads, and it has to show again and again that it is alive.

Receives   Generate (environments), LoadVersion, Serve, Probe (weight_sync)
Tells      the store how busy it was
Waits for  its own worker thread, which runs the engine; the mailbox stays answerable meanwhile
Dies when  a generate or a load overruns its deadline, or the engine fails: a process of it ended, it hangs
On restart it serves the newest committed version (invariant stale-gate); requests it held are asked again
"""

import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from actors.actor import Actor, Sender, receives
from actors.future import Future, Lock
from dart.config.config import Config
from dart.config.gpus import assign_gpus, gpus_here, set_visible_devices
from dart.core import messages as m
from dart.core.errors import DartError
from dart.core.records import Version
from dart.core.run_directory import RunPaths
from dart.core.types import GenerateRequest, Generation
from dart.inference.probe import probe_request
from dart.inference.protocol import ConcurrentEngine, Engine, Unanswerable
from dart.store.reader import StoreReader
from dart.telemetry.emit import emit
from dart.telemetry.load_meter import LOAD, LoadMeter

GRACE_S = 5.0
"""An engine that knows by itself what is late says it first; after this its thread is given up."""

HOLD_LOADS = 2.0
"""A worker that was told to hold goes on by itself after so many `rollout.load_deadline_s`: whoever would say
so may be gone."""

GATE_LOOK_S = 0.2
"""How often it is looked up which version is required."""

ENGINE_LOOK_S = 0.5
"""How often it is looked whether the processes of an engine are there."""

RETRY_S = 1.0
"""Until a checkpoint that could not be read at the start is looked for again."""

TURN_AWAY_S = 0.2

SOCKETS = "engine-"
"""Folder of an engine's own sockets in the mail folder, by slot."""

REASON_CHARACTERS = 1000
"""Of why a request cannot be answered: it must fit into mail."""

UNREADABLE = (DartError, OSError)
"""How a checkpoint says that it is not there or not what was written."""

Waiting = tuple[GenerateRequest, Future[Any]]


class RolloutActor(Actor):
    """Collects requests while the engine is busy and hands it as many as fit into a batch next.

    What makes it wait: a load (the requests wait along), a hold (until `Serve`), and the stale-gate: while it
    serves a version older than weight_sync requires, it turns requests away.
    """

    async def on_start(self) -> None:
        self._config = Config.model_validate(self.args["config"])
        self._rollout = self._config.rollout
        self._answer_deadline_s = self._rollout.answer_deadline_s + GRACE_S
        self._meter = LoadMeter(self.clock.monotonic_s)
        self._queue: deque[Waiting] = deque()
        self._under_way: list[Waiting] = []
        self._engine_lock = Lock()
        self._out: list[str] = []
        """Why it is out of routing; empty when it is in."""
        self._held_version: int | None = None
        self._is_serving = False
        self._loads = 0
        """Told and not ended: requests wait for them, however old the version is that is served."""
        self._required = -1
        self._probe = probe_request(self.identity.run_dir / "blobs")
        self._see_own_gpus()
        self._engine = await self._first_engine()
        self._batching = self._engine if isinstance(self._engine, ConcurrentEngine) else None
        """The engine, when it batches by itself."""
        self._answers = 0
        self._prove()
        self.every(GATE_LOOK_S, self._mind_the_gate)
        self.every(self._config.telemetry.load_every_s, self._record_load)
        if self._batching is not None:
            self.every(ENGINE_LOOK_S, self._batching.look)
            self.run(self._stay_healthy())

    def on_stop(self) -> None:
        self._record_load()
        if self._batching is not None:
            self._batching.close()

    # ---- requests ----

    @receives(m.Generate)
    async def generate(self, call: m.Generate, sender: Sender) -> Any:
        """Answered by Generation, by Wait when this engine may not serve its version any more, or by
        CannotAnswer."""
        answer: Future[Any] = Future()
        self._queue.append((call.request, answer))
        self._mind_the_gate()
        return await answer

    @receives(m.Probe)
    async def prove(self, call: m.Probe, sender: Sender) -> m.VersionLoaded:
        """Somebody doubts this engine: out of routing until it gave a real answer."""
        with self._out_of_routing("probe"):
            async with self._engine_lock:
                await self.in_thread(self._prove, name="probe", deadline_s=self._answer_deadline_s)
        return m.VersionLoaded(version=self._engine.version)

    def _serve_if_due(self) -> None:
        self._publish()
        if self._batching is not None:
            self._hand_over()
        elif self._queue and not self._is_serving and self._may_serve():
            self._is_serving = True
            self.run(self._serve())

    def _hand_over(self) -> None:
        """To an engine that batches by itself: each request by itself, as soon as there is room."""
        while self._queue and self._may_serve() and len(self._under_way) < self._rollout.max_batch:
            waiting = self._queue.popleft()
            self._under_way.append(waiting)
            self.run(self._answer([waiting]))

    async def _serve(self) -> None:
        while self._queue and self._may_serve():
            async with self._engine_lock:
                if self._queue and self._may_serve():  # a load may have been before it in the line
                    await self._answer_batch()
        self._is_serving = False
        self._publish()

    def _may_serve(self) -> bool:
        return self._held_version is None and not self._is_stale()

    def _is_stale(self) -> bool:
        return self._engine.version < self._required

    async def _answer_batch(self) -> None:
        size = min(len(self._queue), self._rollout.max_batch)
        self._under_way = [self._queue.popleft() for _ in range(size)]
        await self._answer(list(self._under_way))

    async def _answer(self, batch: list[Waiting]) -> None:
        self._show_busy()
        try:
            answers = await self._generated([request for request, _ in batch])
        except Unanswerable as refusal:
            await self._refused(batch, str(refusal))
            return
        self._answers += len(batch)
        self._meter.add("requests", len(batch))
        self._meter.add("tokens", sum(len(answer.token_ids) for answer in answers))
        self._hand_back(batch, answers)

    async def _refused(self, batch: list[Waiting], why: str) -> None:
        """One of them cannot be answered; of several nobody knows which, so each is asked for by itself."""
        if len(batch) > 1:
            for waiting in batch:
                await self._answer([waiting])
            return
        self.log.warning("request_refused", reason=why)
        self._hand_back(batch, [m.CannotAnswer(reason=why[:REASON_CHARACTERS])])

    async def _generated(self, requests: list[GenerateRequest]) -> list[Generation]:
        """Under an engine that batches by itself weights may change, for which the answer waits."""
        load_s = self._rollout.load_deadline_s if self._batching is not None else 0.0
        return await self.in_thread(
            lambda: self._engine.generate(requests),
            name="generate",
            deadline_s=self._answer_deadline_s + load_s,
        )

    def _hand_back(self, batch: list[Waiting], answers: Sequence[Any]) -> None:
        self._under_way = [waiting for waiting in self._under_way if waiting not in batch]
        self._show_busy()
        for (_, completion), answer in zip(batch, answers, strict=True):
            completion.succeed(answer)
        self._serve_if_due()

    async def _stay_healthy(self) -> None:
        """An engine that answered nobody lately has to give one token; one that cannot ends this actor."""
        settings = self._rollout.vllm
        while not self.is_stopping:
            before = self._answers
            await self.sleep(settings.health_every_s)
            if self._answers == before:
                async with self._engine_lock:  # no token comes while weights change
                    await self.in_thread(self._prove, name="health", deadline_s=self._answer_deadline_s)

    # ---- versions ----

    @receives(m.LoadVersion)
    async def load_version(self, call: m.LoadVersion, sender: Sender) -> m.VersionLoaded | m.LoadFailed:
        """Out of routing, load, prove by a real answer, back into routing."""
        self._loads += 1
        try:
            if self._rollout.weight_update == "drain":
                with self._out_of_routing("drain"):
                    await self._drained()
                    failure = await self._take_over(call)
            else:
                failure = await self._take_over(call)
        finally:
            self._loads -= 1
        self._mind_the_gate()
        if failure:
            self.log.warning("version_not_loaded", version=call.version, reason=failure)
            return m.LoadFailed(version=self._engine.version, reason=failure)
        self.log.info("version_loaded", version=self._engine.version)
        return m.VersionLoaded(version=self._engine.version)

    @receives(m.Serve)
    def serve(self, call: m.Serve, sender: Sender) -> None:
        """Every engine has the version: go on."""
        self._end_hold()

    async def _drained(self) -> None:
        """Answer what is here now; what comes later waits for the new version."""
        if self._may_serve():
            for _, completion in [*self._under_way, *self._queue]:
                await completion

    async def _take_over(self, call: m.LoadVersion) -> str:
        """Why the version could not be loaded; empty when it is served now, or a newer one."""
        if call.hold:
            self._begin_hold(call.version)
        try:
            async with self._engine_lock:
                if call.version > self._engine.version:
                    await self._load(call)
        except UNREADABLE as unreadable:
            self._held_version = None
            return str(unreadable)
        return ""

    async def _load(self, call: m.LoadVersion) -> None:
        with self._out_of_routing("load"), self._meter.during("load_s"):
            await self.in_thread(
                lambda: self._load_and_prove(Path(call.folder), call.version),
                name="load",
                deadline_s=self._rollout.load_deadline_s + GRACE_S,
            )

    def _load_and_prove(self, folder: Path, version: int) -> None:
        self._engine.load(folder, version)
        self._prove()

    def _prove(self) -> None:
        """A real answer at the engine's version; one that cannot give it must not come into routing."""
        if self._batching is not None:
            served = self._batching.prove()
        else:
            served = self._engine.generate([self._probe])[0].policy_version
        if served != self._engine.version:
            raise RuntimeError(
                f"{self.identity.name!r} answers with version {served}, version {self._engine.version} "
                "was loaded"
            )
        self._publish()

    def _begin_hold(self, version: int) -> None:
        self._held_version = version
        self._show_ready()
        hold_s = HOLD_LOADS * self._rollout.load_deadline_s
        self.after(hold_s, lambda: self._end_hold_if_forgotten(version, hold_s))

    def _end_hold(self) -> None:
        self._held_version = None
        self._mind_the_gate()

    def _end_hold_if_forgotten(self, version: int, hold_s: float) -> None:
        if self._held_version == version:
            self.log.warning("hold_forgotten", version=version, after_s=hold_s)
            self._end_hold()

    # ---- routing ----

    def _mind_the_gate(self) -> None:
        """Serve, or turn away, as the version that is required says (it is on weight_sync's row)."""
        slot = self.board.find("weight_sync")
        if slot is not None:
            self._required = max(self._required, int(self.board.get(slot, "gauge_version")))
        if self._is_stale() and not self._loads:
            self._turn_away()
        self._show_ready()
        self._serve_if_due()

    def _turn_away(self) -> None:
        why = f"{self.identity.name} serves version {self._engine.version}, {self._required} is required"
        while self._queue:
            _, completion = self._queue.popleft()
            completion.succeed(m.NoWorkYet(retry_after_s=TURN_AWAY_S, reason=why))

    @contextmanager
    def _out_of_routing(self, reason: str) -> Iterator[None]:
        self._out.append(reason)
        self._show_ready()
        try:
            yield
        finally:
            self._out.remove(reason)
            self._show_ready()

    def _show_ready(self) -> None:
        is_out = bool(self._out) or not self._may_serve()
        self._meter.weigh("out_s", float(is_out))
        if not self.is_stopping:
            self.set_ready(not is_out)

    # ---- what is shown ----

    def _show_busy(self) -> None:
        """Of the engine: what waits while it loads or holds does not make it busy."""
        requests = len(self._under_way)
        self._meter.weigh("busy_s", float(requests > 0))
        self._meter.weigh("weighted_s", requests / self._rollout.max_batch)
        self._publish()

    def _publish(self) -> None:
        self.set_gauges(version=self._engine.version, in_flight=len(self._queue) + len(self._under_way))

    def _record_load(self) -> None:
        emit(self, LOAD, self.identity.name, self._meter.totals())

    # ---- the engine ----

    def _see_own_gpus(self) -> None:
        shares = assign_gpus(self._config, gpus_here()).engines
        if shares:
            set_visible_devices(shares[self.args["workers"].index(self.identity.name)])

    async def _first_engine(self) -> Engine:
        """Of the newest committed version; one that cannot be read is waited for, or for the next one."""
        with StoreReader(Path(self.args["store"])) as reader:
            while True:
                newest = reader.latest_version()
                assert newest is not None, "version 0 is recorded before the tree starts"
                try:
                    return self._make_engine(newest)
                except UNREADABLE as unreadable:
                    if newest.version == 0:
                        raise  # nobody will write it anew
                    self.log.warning("version_not_loaded", version=newest.version, reason=str(unreadable))
                await self.sleep(RETRY_S)

    def _make_engine(self, newest: Version) -> Engine:
        """Only the library that is chosen is imported."""
        folder, version = newest.folder(self.identity.run_dir), newest.version
        seed = zlib.crc32(
            f"{self._config.run.seed}/{self.identity.name}/{self.identity.incarnation}".encode()
        )
        if self._rollout.engine == "simulated":
            from dart.inference.simulated_engine import SimulatedEngine

            return SimulatedEngine(folder, version, simulated=self._config.simulation, seed=seed)
        if self._rollout.engine == "oracle":
            from dart.inference.oracle_engine import OracleEngine

            return OracleEngine(folder, version, simulated=self._config.simulation, seed=seed)
        from dart.policy.prompt_spec import prompt_spec_of

        reading = prompt_spec_of(self._config.context)
        if self._rollout.engine == "vllm":
            from dart.inference.vllm_engine import VllmEngine

            return VllmEngine(
                folder,
                version,
                rollout=self._rollout,
                reading=reading,
                seed=seed,
                log=RunPaths(self.identity.run_dir).logs / f"{self.identity.name}.vllm.log",
                sockets=self.identity.mail_dir / f"{SOCKETS}{self.identity.slot}",
                probe=self._probe,
            )
        from dart.inference.transformers_engine import TransformersEngine

        threads = self._rollout.threads
        return TransformersEngine(folder, version, threads=threads, seed=seed, reading=reading)
