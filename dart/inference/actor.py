"""The rollout actor: owns one engine, and passes requests to it only while its version may be served.

Receives   Generate (environments), LoadVersion, Serve, Probe (weight_sync)
Tells      the store how busy it was
Waits for  its own worker threads, which run the engine; it answers other messages meanwhile
Dies when  an answer or a load overruns its deadline, or a process of the engine ends or hangs
On restart it serves the newest committed version, never an older one than is required (invariant stale-gate);
           environments repeat the requests that the dead incarnation had not answered

`dart.inference.serving` groups requests into batches.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from actors.actor import Actor, Sender, receives
from actors.codec import MAX_MESSAGE_BYTES, packed_bytes
from actors.future import Future, Lock
from dart.config.config import Config
from dart.config.gpus import assign_gpus, gpus_here, hide_gpus, set_visible_devices
from dart.config.published import publishes_adapter
from dart.core import messages as m
from dart.core.errors import DartError
from dart.core.malloc_trim import trim_heap
from dart.core.record_address import parse_record_address
from dart.core.types import Generation
from dart.inference.engine_factory import make_engine
from dart.inference.gpu_leases import WAIT_S, take_gpus
from dart.inference.protocol import Engine, Swap
from dart.inference.serving import GRACE_S, Serving, WaitingRequest, probe_request
from dart.policy.adapter_files import base_of
from dart.store.checkpoints import CorruptCheckpoint
from dart.store.disk_wait import STORAGE_DEADLINE_S, in_storage
from dart.store.errors import StoreBusy, StoreUnavailable
from dart.store.patience import AT_START
from dart.store.reader import StoreReader
from dart.store.run_blobs import run_blobs
from dart.store.run_checkpoints import run_checkpoints
from dart.telemetry.board_gauges import Gauge
from dart.telemetry.emit import emit
from dart.telemetry.load_interval import load_every_s
from dart.telemetry.load_meter import LOAD, LoadMeter

T = TypeVar("T")

HOLD_LOADS = 2.0
"""A hold ends without `Serve` after this many times `rollout.load_deadline_s`, because weight_sync may have
died. During a hold the engine answers no request."""

GATE_CHECK_S = 0.2
"""Interval in seconds at which the required version is read from the board."""

PROBE_RENEWED_EVERY_S = 3600.0
"""Seconds after which the screenshot of the probe is stored again, if the run deletes old screenshots."""

RETRY_S = 1.0
"""Wait in seconds before the actor tries again to read its first checkpoint."""

TURN_AWAY_S = 0.2

DRAIN = "drain"
"""The reason why environments send no requests while all that were received are answered."""

MOST_ANSWER_BYTES = MAX_MESSAGE_BYTES - 1024
"""Size of the largest answer that fits a message, whose other parts take the rest."""

UNREADABLE = (DartError, OSError)
"""Errors that mean that a checkpoint is missing or damaged."""


class RolloutActor(Actor):
    """Passes requests to its engine, loads versions, and shows on the board whether it takes requests.

    The engine continues to answer while the next version is read and checked. Requests wait while the engine
    changes over to it (the swap), and during a hold: from a `LoadVersion` with `hold` until `Serve`. While
    the engine's version is older than weight_sync requires, the actor answers requests with NoWorkYet
    (invariant stale-gate).
    """

    async def on_start(self) -> None:
        self._config = Config.model_validate(self.args["config"])
        self._rollout = self._config.rollout
        self._meter = LoadMeter(self.clock.monotonic_s)
        self._out: list[str] = []
        """Reasons why environments may not send requests to this actor; empty if they may."""
        self._held_version: int | None = None
        self._loading: list[int] = []
        """Versions whose load was ordered and has not ended. Meanwhile requests wait, even if the engine's
        version is too old."""
        self._load_turn = Lock()
        """Lock that lets one load run at a time."""
        self._required = -1
        if self.args.get("engine_gpus") == 0:  # the GPUs of this node belong to others
            hide_gpus()
        else:
            set_visible_devices(await self._own_gpus())
        self._screenshots = run_blobs(self._config.run, self.identity.run_dir).screenshots
        self._checkpoints = run_checkpoints(self._config, self.identity.run_dir)
        probe = await in_storage(self, self._screenshots, "a probe", lambda: probe_request(self._screenshots))
        self._engine = await self._first_engine()
        self._loading.clear()
        self._serving = Serving(
            self,
            self._engine,
            probe,
            self._rollout,
            self._meter,
            may_serve=self._may_serve,
            changed=self._publish,
        )
        self._serving.start()
        if self._config.run.screenshots_kept_days:
            self.every(PROBE_RENEWED_EVERY_S, self._renew_probe)
        self.every(GATE_CHECK_S, self._resume)
        self.every(load_every_s(self._config), self._record_load)

    async def _renew_probe(self) -> None:
        """Store the screenshot of the probe again, so that it is no old one. If that fails, try later."""
        work = partial(probe_request, self._screenshots)
        try:
            await self.in_thread(work, name="a probe", deadline_s=STORAGE_DEADLINE_S)
        except StoreUnavailable as unavailable:
            self.log.warning("probe_not_renewed", reason=str(unavailable))

    async def _own_gpus(self) -> tuple[str, ...]:
        """Return the GPUs of this engine; empty if it uses none.

        On one machine they follow from the number of the engine; on a node of a cluster, free ones are taken.
        """
        count = self.args.get("engine_gpus")
        if count is not None:
            run_dir = self.identity.run_dir
            taken: tuple[str, ...] = await self.in_thread(
                lambda: take_gpus(run_dir, count), name="gpus", deadline_s=2 * WAIT_S
            )
            return taken
        of_engines = assign_gpus(self._config, gpus_here()).engines
        return of_engines[self.args["engines"].index(self.identity.name)] if of_engines else ()

    async def on_stop(self) -> None:
        """Answer the requests received so far, then close the engine; new requests go to other engines."""
        await self._drained()
        await self.sleep(0.0)  # lets the handler of the request that was just answered send its reply
        self._record_load()
        self._engine.close()

    # ---- requests ----

    @receives(m.Generate)
    async def generate(self, call: m.Generate, sender: Sender) -> Any:
        """Queue a request for the engine and return the reply.

        The reply is Generation; CannotAnswer if the request itself is wrong or its answer does not fit a
        message; or NoWorkYet if the engine serves an older version than is required or is too busy, its
        screenshots cannot be read now, or this actor stops.
        """
        if self.is_stopping:
            return m.NoWorkYet(retry_after_s=TURN_AWAY_S, reason=f"{self.identity.name} is stopping")
        waiting = WaitingRequest(
            call.request, Future(), came_s=self.clock.monotonic_s(), until_s=sender.waits_until_s
        )
        self._serving.waiting.append(waiting)
        self._resume()
        return _fitting(await waiting.answer)

    @receives(m.Probe)
    async def probe(self, call: m.Probe, sender: Sender) -> m.VersionLoaded:
        """Prove that the engine answers, by a real answer. Until then, environments send no requests here."""
        with self._out_of_routing("probe"):
            async with self._serving.lock:
                await self.in_thread(
                    self._serving.prove, name="probe", deadline_s=self._serving.proof_deadline_s
                )
        return m.VersionLoaded(version=self._engine.version)

    # ---- the gate ----

    def _resume(self) -> None:
        """Read the required version, and pass waiting requests to the engine if its version may be served."""
        self._check_gate()
        self.run(self._serving.serve())

    def _check_gate(self) -> None:
        """Read the required version; if the engine's is older, answer the waiting requests with NoWorkYet.

        While a load is ordered they wait for it, unless the load itself waits for them (drain).
        """
        slot = self.board.find("weight_sync")
        if slot is not None:
            self._required = max(self._required, self.board.gauge(slot, Gauge.REQUIRED_VERSION))
        if self._is_stale() and (not self._loading or DRAIN in self._out):
            self._turn_away()
        self._show_ready()
        self._publish()

    def _may_serve(self) -> bool:
        return self._held_version is None and not self._is_stale()

    def _is_stale(self) -> bool:
        return self._engine.version < self._required

    def _turn_away(self) -> None:
        why = f"{self.identity.name} serves version {self._engine.version}, {self._required} is required"
        waiting = self._serving.waiting
        while waiting:
            waiting.popleft().answer.succeed(m.NoWorkYet(retry_after_s=TURN_AWAY_S, reason=why))

    # ---- versions ----

    @receives(m.LoadVersion)
    async def load_version(self, call: m.LoadVersion, sender: Sender) -> m.VersionLoaded | m.LoadFailed:
        """Load a version and prove it: read and check it while the engine answers, then swap.

        Returns LoadFailed, and keeps the old version, if the checkpoint is missing or damaged.
        """
        self._loading.append(call.version)
        self._publish()
        try:
            async with self._load_turn:
                failure = await self._load(call)
        finally:
            self._loading.remove(call.version)
        self._resume()
        if failure:
            self.log.warning("version_not_loaded", version=call.version, reason=failure)
            return m.LoadFailed(reason=failure)
        self.log.info("version_loaded", version=self._engine.version)
        return m.VersionLoaded(version=self._engine.version)

    @receives(m.Serve)
    def serve(self, call: m.Serve, sender: Sender) -> None:
        """End a hold. weight_sync sends this when every engine has loaded the version."""
        self._end_hold()

    async def _drained(self) -> None:
        """Wait until the requests received so far are answered. Do not wait if the engine may not answer."""
        if self._may_serve():
            for one in [*self._serving.in_flight, *self._serving.waiting]:
                await one.answer

    async def _load(self, call: m.LoadVersion) -> str:
        """Load a version, unless the engine serves it or a newer one. Return why the load failed, or ""."""
        if call.hold:
            self._begin_hold(call.version)
        try:
            if call.version > self._engine.version:
                with self._meter.during("load_s"):
                    swap = await self._work_on_version("load", lambda: self._prepare(call.version))
                await self._take_over(swap)
                await self._work_on_version("trim", trim_heap)  # the old version is gone
        except UNREADABLE as unreadable:
            self._held_version = None
            self._discard_damaged(unreadable)
            return str(unreadable)
        return ""

    def _discard_damaged(self, unreadable: Exception) -> None:
        """Let the next try fetch a checkpoint again whose copy on this machine is damaged."""
        if isinstance(unreadable, CorruptCheckpoint):
            self._checkpoints.discard(unreadable.folder)

    def _prepare(self, version: int) -> Swap:
        folder = self._checkpoints.policy(version)
        return self._engine.prepare(folder, version, self._serving.probe)

    async def _take_over(self, swap: Swap) -> None:
        """Swap to a prepared version between two batches. Environments send no requests here meanwhile.

        With `rollout.weight_update = "drain"`, all requests received so far are answered first.
        """
        if self._rollout.weight_update == "drain":
            with self._out_of_routing(DRAIN):
                await self._drained()
                await self._swap(swap)
        else:
            await self._swap(swap)

    async def _swap(self, swap: Swap) -> None:
        async with self._serving.lock:
            with self._out_of_routing("swap"), self._meter.during("swap_s"):
                await self._work_on_version("swap", lambda: self._swap_and_prove(swap))
        self._meter.add("loads", 1)

    def _swap_and_prove(self, swap: Swap) -> None:
        swap()
        if not self._engine.proves_ahead:
            self._serving.prove()

    def _work_on_version(self, name: str, work: Callable[[], T]) -> Future[T]:
        return self.in_thread(work, name=name, deadline_s=self._rollout.load_deadline_s + GRACE_S)

    def _begin_hold(self, version: int) -> None:
        self._held_version = version
        self._show_ready()
        hold_s = HOLD_LOADS * self._rollout.load_deadline_s
        self.after(hold_s, lambda: self._end_hold_if_forgotten(version, hold_s))

    def _end_hold(self) -> None:
        self._held_version = None
        self._resume()

    def _end_hold_if_forgotten(self, version: int, hold_s: float) -> None:
        if self._held_version == version:
            self.log.warning("hold_forgotten", version=version, after_s=hold_s)
            self._end_hold()

    # ---- what the board and the record show ----

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

    def _publish(self) -> None:
        in_flight = len(self._serving.waiting) + len(self._serving.in_flight)
        self.set_gauges({Gauge.SERVED_VERSION: self._engine.version, Gauge.IN_FLIGHT: in_flight})
        self._publish_loading()

    def _publish_loading(self) -> None:
        """Show on the board the oldest version being loaded, before its files are read.

        The trainer does not delete the checkpoint of this version. 0 means that no version is being loaded.
        """
        self.set_gauges({Gauge.LOADING_VERSION: min(self._loading, default=0)})

    def _record_load(self) -> None:
        emit(self, LOAD, self.identity.name, self._meter.totals())

    # ---- the engine ----

    async def _first_engine(self) -> Engine:
        """Make an engine of the newest committed version. While its checkpoint cannot be read, try again.

        Raises the error if version 0 cannot be read, because no trainer writes version 0 again.
        """
        with StoreReader(parse_record_address(self.args["store"]), AT_START) as reader:
            while True:
                newest = reader.latest_version()
                assert newest is not None, (
                    "the record has no policy version; version 0 should be in it before the tree starts"
                )
                self._loading = [newest.version]
                self._publish_loading()
                try:
                    return await self._engine_of(newest.version)
                except UNREADABLE as unreadable:
                    self._discard_damaged(unreadable)
                    if newest.version == 0 and not isinstance(unreadable, StoreBusy):
                        raise  # no trainer writes version 0 again
                    self.log.warning("version_not_loaded", version=newest.version, reason=str(unreadable))
                await self.sleep(RETRY_S)

    async def _engine_of(self, version: int) -> Engine:
        """Make an engine of a version. If versions are adapters, it first loads the base policy."""
        has_adapters = publishes_adapter(self._config)
        if version == 0 and has_adapters:  # `policy(0)` would fetch the base policy a second time
            return await self._base_engine()
        folder = await self._folder(lambda: self._checkpoints.policy(version))
        if not has_adapters and base_of(folder) is None:
            return self._make_engine(version, folder)
        engine = await self._base_engine()
        self._load_first(engine, folder, version)
        return engine

    async def _base_engine(self) -> Engine:
        base = await self._folder(self._checkpoints.base)
        return self._make_engine(0, base, takes_adapters=True)

    def _load_first(self, engine: Engine, folder: Path, version: int) -> None:
        """Load the version that a new engine begins with. If that fails, close the engine."""
        with ExitStack() as on_failure:
            on_failure.callback(engine.close)
            engine.load(folder, version)
            on_failure.pop_all()

    async def _folder(self, find: Callable[[], Path]) -> Path:
        """Return what `find` returns. If checkpoints are fetched from object storage, use a thread."""
        if not self._checkpoints.is_remote:
            return find()
        return await self.in_thread(find, name="fetch", deadline_s=self._rollout.load_deadline_s + GRACE_S)

    def _make_engine(self, version: int, folder: Path, *, takes_adapters: bool = False) -> Engine:
        return make_engine(
            self._config,
            version,
            folder,
            self._screenshots,
            self.identity,
            takes_adapters=takes_adapters,
        )


def _fitting(answer: Any) -> Any:
    """Return an answer, or CannotAnswer in place of one that is too large for a message."""
    size_bytes = packed_bytes(answer) if isinstance(answer, Generation) else 0
    if size_bytes <= MOST_ANSWER_BYTES:
        return answer
    return m.CannotAnswer(
        reason=f"the answer has {size_bytes} bytes with its prompt of {len(answer.prompt_ids)} and its "
        f"{len(answer.token_ids)} tokens, a message carries at most {MOST_ANSWER_BYTES}; lower "
        "context.answer_tokens or context.turns"
    )
