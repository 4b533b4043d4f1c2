"""weight_sync: loads each new policy version into the engines, and judges their health.

Receives   VersionPublished (trainer), EngineSuspect (environments)
Asks       LoadVersion and Probe of rollout actors; tells them Serve
Tells      the store of every change of an engine's state
Publishes  the gauge required_version: the oldest version that may still be served
On restart it reads the newest version from the record, and the versions that are served from the board
"""

from dataclasses import dataclass
from typing import Any

from actors.actor import Actor, Sender, receives
from actors.board import ActorState, Vitals
from actors.errors import AskError, MailboxFull
from dart.config.config import Config
from dart.core import messages as m
from dart.core.record_address import parse_record_address
from dart.inference.engine_state import EngineState, state_of
from dart.inference.weight_sync_plan import LoadDecision, SyncPlan
from dart.store.patience import AT_START
from dart.store.reader import StoreReader
from dart.telemetry.board_gauges import Gauge
from dart.telemetry.emit import log_event, send_events
from dart.telemetry.engine_names import engine_names
from dart.telemetry.events import ENGINE_STATE, POOLS_SIZED
from dart.telemetry.liveness import ENGINE_SILENT_S

BOARD_CHECK_S = 0.1
"""Interval in seconds at which the board is read."""

RECORD_CHECK_S = 1.0
"""Interval in seconds at which the record is read, because the trainer may die after its commit and before it
sends `VersionPublished`."""

PROBE_DEADLINE_S = 20.0
PROBE_RETRY_S = 1.0


@dataclass(slots=True)
class _Engine:
    """What is known of one engine from the board, from environments and from probes."""

    name: str
    incarnation: int = 0
    version: int = -1
    """The version that the engine serves; -1 while it does not run."""
    state: EngineState | None = None
    """None until its rollout actor runs for the first time."""
    doubt: str = ""
    is_probing: bool = False
    ready_at_s: float = 0.0
    """Last time, on the monotonic clock, at which the board showed that the engine takes requests."""


class WeightSyncActor(Actor):
    """Carries out the decisions of `weight_sync_plan`, and reports the states of `engine_state`."""

    def on_start(self) -> None:
        rollout = Config.model_validate(self.args["config"]).rollout
        self._reader = self.enter_context(StoreReader(parse_record_address(self.args["store"]), AT_START))
        self._sync = SyncPlan(all_at_once=rollout.sync == "all_at_once", share=rollout.sync_share)
        self._load_deadline_s = rollout.answer_deadline_s + 2 * rollout.load_deadline_s
        """Deadline in seconds of a load. In this time the version is read, the current batch is answered (all
        requests of the engine, with `rollout.weight_update = "drain"`), and the engine swaps to it."""
        self._newest = -1
        self._engines = {name: _Engine(name) for name in self.args["engines"]}
        """The engines of the run, by name."""
        self._events: list[m.EventDraft] = []
        self._check_record()
        self._check_board()
        self.every(RECORD_CHECK_S, self._send_events)
        self.every(RECORD_CHECK_S, self._check_record)
        self.every(BOARD_CHECK_S, self._check_board)

    @receives(m.VersionPublished)
    def published(self, call: m.VersionPublished, sender: Sender) -> None:
        self._set_target(call.version)

    @receives(m.EngineSuspect)
    def suspect(self, call: m.EngineSuspect, sender: Sender) -> None:
        """Note that an engine failed a request, so it is probed. Not if it is updating, stale or dead."""
        engine = self._engines.get(call.engine)
        if engine is not None and engine.state in (EngineState.HEALTHY, EngineState.SUSPECT):
            engine.doubt = engine.doubt or f"{sender.name}: {call.detail}"
            self._check_board()

    # ---- the record and the board ----

    def _check_record(self) -> None:
        newest = self._reader.latest_version()
        assert newest is not None, (
            "the record has no policy version; version 0 should be in it before the tree starts"
        )
        self._set_target(newest.version)
        self._set_engines()

    def _set_engines(self) -> None:
        """Remove engines that the run no longer has, add new ones, and show their number on the board.

        The number is read from the record, so that this actor also knows it after its restart.
        """
        sized = self._reader.newest_event(POOLS_SIZED)
        if sized is None:
            return
        names = engine_names(int(str(sized.data["engines"])))
        for name in [known for known in self._engines if known not in names]:
            self._sync.down(name)
            del self._engines[name]
        for name in names:
            self._engines.setdefault(name, _Engine(name))
        self.set_gauges({Gauge.ENGINES: len(names)})

    def _set_target(self, version: int) -> None:
        """Begin to load a version into the engines, if it is newer than all versions before.

        It replaces the version of all loads that have not begun.
        """
        if version > self._newest:
            self._newest = version
            self._sync.published(version)
            self._carry_out()

    def _check_board(self) -> None:
        rows = [(engine, self._row_of(engine.name)) for engine in self._engines.values()]
        for engine, row in rows:
            self._note(engine, row)
        self.set_gauges({Gauge.REQUIRED_VERSION: max(0, self._sync.required)})
        for engine, row in rows:
            self._judge(engine, row)
        self._carry_out()

    def _row_of(self, name: str) -> Vitals | None:
        """Return the row of a rollout actor on the board; None if the actor does not run."""
        slot = self.board.find(name)
        if slot is None or self.board.state(slot) is not ActorState.RUNNING:
            return None
        return self.board.vitals(slot)

    def _note(self, engine: _Engine, row: Vitals | None) -> None:
        """Note what the board shows of an engine. A silent engine counts as down, so no load waits for it.

        row   row of the rollout actor; None if it does not run
        """
        if row is None or row.incarnation != engine.incarnation:
            self._sync.down(engine.name)
            engine.doubt = ""  # the doubt was about the earlier incarnation
            engine.ready_at_s = self.clock.monotonic_s()
        if row is None:
            engine.version = -1
            return
        engine.incarnation, engine.version = row.incarnation, row.gauges[Gauge.SERVED_VERSION]
        if (row.beat_age_s or 0.0) > ENGINE_SILENT_S:
            engine.doubt = engine.doubt or "it gave no sign of life for a while"
            self._sync.down(engine.name)
        else:
            self._sync.up(engine.name, engine.version)
        if row.ready:
            engine.ready_at_s = self.clock.monotonic_s()

    def _judge(self, engine: _Engine, row: Vitals | None) -> None:
        state, reason = state_of(
            is_running=row is not None,
            silent_s=(row.beat_age_s or 0.0) if row is not None else 0.0,
            unready_s=self.clock.monotonic_s() - engine.ready_at_s,
            version=engine.version,
            required=self._sync.required,
            updating=self._sync.updating(engine.name),
            doubt=engine.doubt,
        )
        if engine.state is None and state is EngineState.DEAD:
            return
        if state is not engine.state:
            self._report(engine, state, reason)
        engine.state = state
        if state is EngineState.SUSPECT and not engine.is_probing:
            self.run(self._probe(engine))

    def _report(self, engine: _Engine, state: EngineState, reason: str) -> None:
        """Log a new state of an engine, and keep an event about it until the next `_send_events`."""
        data: dict[str, Any] = {
            "state": state.value,
            "before": engine.state.value if engine.state else "",
            "reason": reason,
            "version": engine.version,
            "required": self._sync.required,
            "since_unix_s": self.clock.unix_s(),
        }
        event = m.EventDraft(kind=ENGINE_STATE, subject=engine.name, data=data)
        log_event(self.log, event)
        self._events.append(event)

    def _send_events(self) -> None:
        """Send the events since the last call to the store, all in one write."""
        if self._events:
            events, self._events = tuple(self._events), []
            send_events(self, *events)

    # ---- loads and probes ----

    def _carry_out(self) -> None:
        for action in self._sync.next_actions(self.clock.monotonic_s()):
            if isinstance(action, LoadDecision):
                self.run(self._load(action))
            else:
                self.tell(action.engine, m.Serve())

    async def _load(self, load: LoadDecision) -> None:
        engine = self._engines[load.engine]
        began_s, incarnation = self.clock.monotonic_s(), engine.incarnation
        call = m.LoadVersion(version=load.version, hold=load.hold)
        try:
            reply: Any = await self.ask(engine.name, call, deadline_s=self._load_deadline_s)
        except (AskError, MailboxFull) as error:
            reply = m.LoadFailed(reason=str(error))
        else:
            self._check_board()  # the engine may have been replaced since it replied
            if engine.incarnation != incarnation:
                return
        if isinstance(reply, m.VersionLoaded):
            engine.doubt = ""
            self._sync.loaded(engine.name, reply.version)
            took_s = round(self.clock.monotonic_s() - began_s, 3)
            self.log.info("engine_updated", engine=engine.name, version=reply.version, took_s=took_s)
        else:
            self.log.warning(
                "version_not_loaded", engine=engine.name, version=load.version, reason=reply.reason
            )
            self._sync.failed(load, self.clock.monotonic_s())
        self._check_board()

    async def _probe(self, engine: _Engine) -> None:
        """Have a suspect engine answer a probe. An answer clears the doubt; without one, it is probed again.

        The rollout actor takes no requests until its engine has answered the probe. If the actor is
        suspended, it finds the probe in its mailbox when it is resumed, before any new request.
        """
        engine.is_probing = True
        doubt, incarnation = engine.doubt, engine.incarnation
        try:
            await self.ask(engine.name, m.Probe(), deadline_s=PROBE_DEADLINE_S)
            if engine.incarnation == incarnation:
                engine.doubt = ""
            self.log.info("engine_proved", engine=engine.name, doubt=doubt)
        except (AskError, MailboxFull) as error:
            if engine.incarnation == incarnation:
                engine.doubt = f"it failed a probe: {error}"
            await self.sleep(PROBE_RETRY_S)
        engine.is_probing = False
        self._check_board()
