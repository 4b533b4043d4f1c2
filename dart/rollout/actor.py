"""The rollout actor: one engine, one policy version, requests batched as they come.

Receives   Generate (environments), LoadVersion (weight_sync)
Waits for  its own worker thread, which runs the engine; the mailbox stays answerable meanwhile
Dies when  a generate or a load overruns its deadline, or the engine fails
On restart it serves the newest committed version (invariant stale-gate); requests it held are asked again
"""

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from actors.actor import Actor, Sender, receives
from actors.completion import Completion, Lock
from dart import messages as m
from dart.config import Config
from dart.rollout.probe import probe_request
from dart.rollout.protocol import Engine
from dart.store.reader import StoreReader
from dart.types import GenerateRequest, Generation

GENERATE_DEADLINE_S = 60.0
LOAD_DEADLINE_S = 60.0


class RolloutActor(Actor):
    """Collects requests while the engine is busy and hands it all of them next."""

    def on_start(self) -> None:
        self._config = Config.model_validate(self.args["config"])
        newest = StoreReader(Path(self.args["store"])).latest_version()
        assert newest is not None, "version 0 is recorded before the tree starts"
        self._probe = probe_request(self.identity.run_dir / "blobs")
        self._engine = self._make_engine(Path(newest.checkpoint), newest.version)
        self._queue: list[tuple[GenerateRequest, Completion[Generation]]] = []
        self._engine_lock = Lock()
        self._is_serving = False
        self._prove(newest.version)

    @receives(m.Generate)
    async def generate(self, call: m.Generate, sender: Sender) -> Generation:
        answer: Completion[Generation] = Completion()
        self._queue.append((call.request, answer))
        self._publish()
        if not self._is_serving:
            self.run(self._serve())
        return await answer

    @receives(m.LoadVersion)
    async def load_version(self, call: m.LoadVersion, sender: Sender) -> m.VersionLoaded:
        """Out of routing, load, prove by a real answer, back into routing."""
        self.set_ready(False)
        async with self._engine_lock:
            await self._on_engine(
                lambda: self._load_and_prove(Path(call.folder), call.version), "load", LOAD_DEADLINE_S
            )
        self._publish()
        self.set_ready(True)
        self.log.info("version_loaded", version=call.version)
        return m.VersionLoaded(version=self._engine.version)

    async def _serve(self) -> None:
        self._is_serving = True
        while self._queue:
            async with self._engine_lock:
                batch = self._queue[: self._config.rollout.max_batch]
                del self._queue[: len(batch)]
                answers = await self._on_engine(
                    lambda batch=batch: self._engine.generate([request for request, _ in batch]),  # type: ignore[misc]
                    "generate",
                    GENERATE_DEADLINE_S,
                )
            for (_, completion), answer in zip(batch, answers, strict=True):
                completion.succeed(answer)
        self._is_serving = False
        self._publish()

    def _on_engine(self, work: Callable[[], Any], name: str, deadline_s: float) -> Completion[Any]:
        return self.in_thread(work, name=name, deadline_s=deadline_s)

    def _load_and_prove(self, folder: Path, version: int) -> None:
        self._engine.load(folder, version)
        self._prove(version)

    def _prove(self, version: int) -> None:
        """A real answer at the new version; an engine that cannot give one must not come into routing."""
        served = self._engine.generate([self._probe])[0].policy_version
        if served != version:
            raise RuntimeError(
                f"{self.identity.name!r} serves version {served}, version {version} was loaded"
            )
        self._publish()

    def _publish(self) -> None:
        self.set_gauges(version=self._engine.version, in_flight=len(self._queue) + int(self._is_serving))

    def _make_engine(self, folder: Path, version: int) -> Engine:
        """Only the library that is chosen is imported."""
        seed = zlib.crc32(
            f"{self._config.run.seed}/{self.identity.name}/{self.identity.incarnation}".encode()
        )
        if self._config.rollout.engine == "modelled":
            from dart.modelled.engine import ModelledEngine

            return ModelledEngine(folder, version, modelled=self._config.modelled, seed=seed)
        from dart.rollout.engine import TransformersEngine

        return TransformersEngine(folder, version, threads=self._config.rollout.threads, seed=seed)
