"""weight_sync: loads each new policy version into the rollout actors, and judges their health.

Receives   VersionPublished (trainer), EngineSuspect (environments), WhichWorkers (any actor)
Asks       LoadVersion and Probe of rollout actors; tells them Serve
Tells      the store of every change of state
Publishes  the gauge required_version: the oldest version that may still be served
On restart it reads the newest version from the record, and the versions that are served from the board
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from actors.actor import Actor, Sender, receives
from actors.board import ActorState, Vitals
from actors.errors import AskError, MailboxFull
from dart.config.config import Config
from dart.core import messages as m
from dart.inference.weight_sync_plan import LoadDecision, SyncPlan
from dart.inference.worker_state import WorkerFacts, WorkerState, state_of
from dart.store.reader import StoreReader
from dart.telemetry.emit import log_event, send_events
from dart.telemetry.events import WORKER_STATE
from dart.telemetry.gauges import Gauge
from dart.telemetry.liveness import ENGINE_SILENT_S

BOARD_CHECK_S = 0.1
"""How often the board is read."""

RECORD_CHECK_S = 1.0
"""How often the record is read: the trainer may die between its commit and its `VersionPublished`."""

PROBE_DEADLINE_S = 20.0
PROBE_RETRY_S = 1.0


@dataclass(slots=True)
class _Worker:
    """One rollout actor as it was last seen."""

    name: str
    incarnation: int = 0
    version: int = -1
    """The version it serves; -1 while it does not run."""
    state: WorkerState = WorkerState.DEAD
    reason: str = "it was not seen yet"
    since_unix_s: float = 0.0
    doubt: str = ""
    is_probing: bool = False
    ready_at_s: float = 0.0
    """When it last said that it takes requests."""

    def report(self) -> m.WorkerReport:
        return m.WorkerReport(
            worker=self.name,
            state=self.state.value,
            version=self.version,
            reason=self.reason,
            since_unix_s=self.since_unix_s,
        )


class WeightSyncActor(Actor):
    """Carries out what `weight_sync_plan` decides and shows what `worker_state` says."""

    def on_start(self) -> None:
        rollout = Config.model_validate(self.args["config"]).rollout
        self._reader = self.enter_context(StoreReader(Path(self.args["store"])))
        self._sync = SyncPlan(all_at_once=rollout.sync == "all_at_once", share=rollout.sync_share)
        self._load_deadline_s = rollout.answer_deadline_s + rollout.load_deadline_s
        """A worker that drains answers its requests first."""
        self._newest = m.VersionPublished(version=-1, folder="")
        self._workers = {name: _Worker(name) for name in self.args["workers"]}
        self._events: list[m.EventDraft] = []
        self._check_record()
        self._check_board()
        self.every(RECORD_CHECK_S, self._send_events)
        self.every(RECORD_CHECK_S, self._check_record)
        self.every(BOARD_CHECK_S, self._check_board)

    @receives(m.VersionPublished)
    def published(self, call: m.VersionPublished, sender: Sender) -> None:
        self._set_target(call)

    @receives(m.EngineSuspect)
    def suspect(self, call: m.EngineSuspect, sender: Sender) -> None:
        """Doubt a worker that failed a request, unless it is known to be updating or down."""
        worker = self._workers.get(call.worker)
        if worker is not None and worker.state in (WorkerState.HEALTHY, WorkerState.SUSPECT):
            worker.doubt = worker.doubt or f"{sender.name}: {call.detail}"
            self._check_board()

    @receives(m.WhichWorkers)
    def which(self, call: m.WhichWorkers, sender: Sender) -> m.Workers:
        self._check_board()
        reports = tuple(worker.report() for worker in self._workers.values())
        return m.Workers(version=self._newest.version, workers=reports)

    # ---- the record and the board ----

    def _check_record(self) -> None:
        newest = self._reader.latest_version()
        assert newest is not None, "version 0 is recorded before the tree starts"
        folder = newest.folder(self.identity.run_dir)
        self._set_target(m.VersionPublished(version=newest.version, folder=str(folder)))

    def _set_target(self, published: m.VersionPublished) -> None:
        """Sync to a version if it is the newest; it supersedes one that was waiting."""
        if published.version > self._newest.version:
            self._newest = published
            self._sync.published(published.version)
            self._carry_out()

    def _check_board(self) -> None:
        rows = {name: self._row_of(name) for name in self._workers}
        for name, row in rows.items():
            self._note(self._workers[name], row)
        self.set_gauges({Gauge.REQUIRED_VERSION: max(0, self._sync.required)})
        for name, row in rows.items():
            self._judge(self._workers[name], row)
        self._carry_out()

    def _row_of(self, name: str) -> Vitals | None:
        """The row of a worker that runs; None of another."""
        slot = self.board.find(name)
        if slot is None or self.board.state(slot) is not ActorState.RUNNING:
            return None
        return self.board.vitals(slot)

    def _note(self, worker: _Worker, row: Vitals | None) -> None:
        """Note what the board shows. A silent worker counts as down: the sync does not wait for it."""
        if row is None or row.incarnation != worker.incarnation:
            self._sync.down(worker.name)
            worker.doubt = ""  # it was about the incarnation before
            worker.ready_at_s = self.clock.monotonic_s()
        if row is None:
            worker.version = -1
            return
        worker.incarnation, worker.version = row.incarnation, row.gauges[Gauge.SERVED_VERSION]
        if (row.beat_age_s or 0.0) > ENGINE_SILENT_S:
            worker.doubt = worker.doubt or "it gave no sign of life for a while"
            self._sync.down(worker.name)
        else:
            self._sync.up(worker.name, worker.version)
        if row.ready:
            worker.ready_at_s = self.clock.monotonic_s()

    def _judge(self, worker: _Worker, row: Vitals | None) -> None:
        state, reason = state_of(
            WorkerFacts(
                is_running=row is not None,
                silent_s=(row.beat_age_s or 0.0) if row is not None else 0.0,
                unready_s=self.clock.monotonic_s() - worker.ready_at_s,
                version=worker.version,
                required=self._sync.required,
                updating=self._sync.updating(worker.name),
                doubt=worker.doubt,
            )
        )
        if (state, reason) != (worker.state, worker.reason):
            self._show(worker, state, reason)
        if state is WorkerState.SUSPECT and not worker.is_probing:
            self.run(self._probe(worker))

    def _show(self, worker: _Worker, state: WorkerState, reason: str) -> None:
        """Show a new state: as an event, and in the answer to WhichWorkers."""
        data: dict[str, Any] = {
            "state": state.value,
            "before": worker.state.value,
            "reason": reason,
            "version": worker.version,
            "required": self._sync.required,
        }
        if state is not worker.state:
            worker.since_unix_s = data["since_unix_s"] = self.clock.unix_s()
            event = m.EventDraft(kind=WORKER_STATE, subject=worker.name, data=data)
            log_event(self.log, event)
            self._events.append(event)
        worker.state, worker.reason = state, reason

    def _send_events(self) -> None:
        """Send the events since the last call, in one write."""
        if self._events:
            events, self._events = tuple(self._events), []
            send_events(self, *events)

    # ---- loads and probes ----

    def _carry_out(self) -> None:
        for action in self._sync.next_actions(self.clock.monotonic_s()):
            if isinstance(action, LoadDecision):
                self.run(self._load(action))
            else:
                self.tell(action.worker, m.Serve(version=action.version))

    async def _load(self, load: LoadDecision) -> None:
        worker = self._workers[load.worker]
        began_s, incarnation = self.clock.monotonic_s(), worker.incarnation
        call = m.LoadVersion(version=load.version, folder=self._newest.folder, hold=load.hold)
        try:
            answer: Any = await self.ask(worker.name, call, deadline_s=self._load_deadline_s)
        except (AskError, MailboxFull) as error:
            self._not_loaded(load, str(error))
        else:
            self._check_board()  # the worker may have been replaced since it answered
            if worker.incarnation != incarnation:
                return
            if isinstance(answer, m.VersionLoaded):
                worker.doubt = ""
                self._sync.loaded(worker.name, answer.version)
                took_s = round(self.clock.monotonic_s() - began_s, 3)
                self.log.info("worker_updated", worker=worker.name, version=answer.version, took_s=took_s)
            else:
                self._not_loaded(load, answer.reason)
        self._check_board()

    def _not_loaded(self, load: LoadDecision, reason: str) -> None:
        self.log.warning("version_not_loaded", worker=load.worker, version=load.version, reason=reason)
        self._sync.failed(load, self.clock.monotonic_s())

    async def _probe(self, worker: _Worker) -> None:
        """Probe a doubted worker: a real answer clears the doubt, without one it is probed again later.

        The worker is out of routing from when it takes the probe until it has answered. A suspended worker
        finds the probe in its mail when it is resumed, before any new request.
        """
        worker.is_probing = True
        doubt, incarnation = worker.doubt, worker.incarnation
        try:
            await self.ask(worker.name, m.Probe(), deadline_s=PROBE_DEADLINE_S)
            if worker.incarnation == incarnation:
                worker.doubt = ""
            self.log.info("worker_proved", worker=worker.name, doubt=doubt)
        except (AskError, MailboxFull) as error:
            if worker.incarnation == incarnation:
                worker.doubt = f"probed and failed: {error}"
            await self.sleep(PROBE_RETRY_S)
        worker.is_probing = False
        self._check_board()
