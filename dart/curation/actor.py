"""The curator actor: who plays what next, what is trained next, and when the run is over.

Receives   WorkRequest, RolloutStored, RolloutFailed, RolloutParked, EvaluationEnded, EvaluationFailed,
           GuidedStored, GuidedFailed (environments); BatchRequest, UpdateCommitted (trainer);
           HoldWork (operator)
Asks       the store for every write; reads the record itself
Tells      the store which tasks rest and which are back, of a batch the trainer is late with, who starves,
           which evaluation episodes ended without a result
Dies when  the record contradicts its book (it was wrong; the next one reads the record anew)
On restart it rebuilds everything from the record; leases of rollouts it had given out stay valid, those of
           evaluation episodes are void: their environments are started again with it
"""

import math
import shutil
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from actors.actor import Actor, Sender, receives
from actors.board import ActorState, Vitals
from actors.errors import AskError, MailboxFull
from actors.future import Lock
from dart.config.config import Config
from dart.core import messages as m
from dart.core.records import DecisionKind, Evaluation, EvaluationPhase, TaskDecision
from dart.core.types import FaultKind, RolloutLease
from dart.curation.curator import Liveness
from dart.curation.decisions import NoBatch, NoWork
from dart.curation.evaluation import EvaluationLease, EvaluationLeases, Lost
from dart.curation.run_phases import EvaluationEpisode, RunPhase, missing, phase_now, that_count
from dart.curation.service import open_service
from dart.curation.settings import plan_of, settings_of
from dart.curation.stall_diagnosis import Playing
from dart.curation.stall_monitor import LOOK_S, CuratorView, StallMonitor, event_of
from dart.store.client import WRITE_DEADLINE_S, RecordClient
from dart.store.reader import StoreReader
from dart.telemetry.emit import emit, log_event
from dart.telemetry.events import (
    BATCH_OVERDUE,
    EVALUATION_FAILED,
    STARVED,
    TASK_QUARANTINED,
    TASK_RELEASED,
    WORK_HELD,
)
from dart.telemetry.liveness import ACTOR_SILENT_S, ENGINE_SILENT_S

OVERDUE_CHECK_S = 2.0
"""How often leases are checked against their deadlines."""

SCREENSHOT_MAX_BYTES = 2**18
"""With less room on the disk an environment may be waiting for it, though the database has some left."""

HELD = "the run is paused by an operator"

PATIENCE_S = 10.0
"""Whoever had to wait longer than this for its turn has given up: what it got would be lost."""

RECORD_EVALUATION_S = 10.0
"""How long the store is asked; shorter than the environment waits, which asks again."""

INTERRUPTED = "interrupted"
"""Why an evaluation episode has no result when its environment was told to stop."""

GONE = frozenset(
    {
        ActorState.FREE,
        ActorState.BACKOFF,
        ActorState.STOPPED,
        ActorState.FAILED,
        ActorState.QUARANTINED,
    }
)
"""An actor in one of these states has no process."""

T = TypeVar("T")


Work = RolloutLease | m.EvaluationTask | m.GuidedTask


@dataclass(frozen=True, slots=True)
class GuidedLease:
    """Who plays under a demonstration's actions, and until when."""

    environment: str
    task_id: str
    deadline_unix_s: float


@dataclass(frozen=True, slots=True)
class Waiting:
    """Somebody was told to wait."""

    since_s: float
    """Monotonic time of the first of these answers in a row."""
    reason: str
    """Of the latest."""


class CuratorActor(Actor):
    """Moves messages between the service (decisions) and the world; one service operation at a time."""

    async def on_start(self) -> None:
        self._config = Config.model_validate(self.args["config"])
        self._workers: list[str] = list(self.args["workers"])
        self._reader = self.enter_context(StoreReader(Path(self.args["store"])))
        self._plan = plan_of(self._config, self.args["training_ends_unix_s"])
        self._record = RecordClient(self, self._reader)
        self._service = await open_service(
            settings_of(self._config), self._record, self.clock.unix_s, self._tell_of_decision
        )
        self._desk_lock = Lock()
        self._is_held = is_work_held(self._reader)
        self.waiting: dict[str, Waiting] = {}
        """Environments that were told to wait the last time they asked."""
        self.trainer_waiting: Waiting | None = None
        self._evaluations = EvaluationLeases(
            lease_s=self._config.curation.lease_s,
            max_attempts=self._config.curation.max_attempts,
            incarnation=self.identity.incarnation,
        )
        self._guided: dict[int, GuidedLease] = {}
        """Demonstrations under whose actions somebody plays."""
        self._guided_failures: dict[int, int] = {}
        self._missing = {phase: self._read_missing(phase) for phase in EvaluationPhase}
        """Evaluation episodes still to be played, in order."""
        self._measured_version = self._newest_version()
        """What is missing after training is missing of this version."""
        self._actions_known, self._actions_known_until_s = 0, 0.0
        self._lenient_until_s = self._engineless_until_s = -math.inf
        self._look_outside()
        self.every(OVERDUE_CHECK_S, lambda: self.run(self._take_back_overdue()))
        self._watchdog = StallMonitor(self._config, self._workers, self._reader, self.clock.monotonic_s())
        self.every(LOOK_S, self._look_who_starves)

    # ---- environments ----

    @receives(m.WorkRequest)
    async def work(self, call: m.WorkRequest, sender: Sender) -> Work | m.NoWorkYet:
        answer = await self._work_for(call.environment)
        if isinstance(answer, m.NoWorkYet):
            self.waiting[call.environment] = self._waiting(self.waiting.get(call.environment), answer.reason)
        else:
            self.waiting.pop(call.environment, None)
        return answer

    async def _work_for(self, environment: str) -> Work | m.NoWorkYet:
        if self._is_held:
            return self._wait(HELD)
        match self._phase():
            case RunPhase.TRAINING:
                return self._guided_for(environment) or await self._rollout_for(environment)
            case RunPhase.BEFORE:
                return self._evaluation(EvaluationPhase.BEFORE, environment)
            case RunPhase.AFTER:
                return self._evaluation(EvaluationPhase.AFTER, environment)
            case RunPhase.OVER:
                return self._wait("the run is over")

    @receives(m.RolloutStored)
    async def rollout_stored(self, call: m.RolloutStored, sender: Sender) -> None:
        async with self._desk_lock:
            await self._service.look(call.rollout_id)

    @receives(m.RolloutFailed)
    async def rollout_failed(self, call: m.RolloutFailed, sender: Sender) -> None:
        self.log.warning(
            "rollout_failed",
            rollout=call.rollout_id,
            environment=sender.name,
            kind=call.kind,
            detail=call.detail,
        )
        async with self._desk_lock:
            await self._service.failed(call.rollout_id, call.fence, call.kind, call.detail)

    @receives(m.RolloutParked)
    async def rollout_parked(self, call: m.RolloutParked, sender: Sender) -> None:
        async with self._desk_lock:
            await self._service.look(call.rollout_id)

    @receives(m.EvaluationEnded)
    async def evaluation_ended(self, call: m.EvaluationEnded, sender: Sender) -> m.CallResult | m.Paused:
        """Record a result of the environment that holds the episode; that of any other does not count."""
        lease = self._evaluations.holder(call.fence)
        if lease is None:
            self.log.warning("evaluation_fenced", environment=sender.name, fence=call.fence)
            return m.CallResult(value="fenced")
        record = m.RecordEvaluation(evaluation=_result(lease, call))
        with self._evaluations.recording(lease):
            try:
                answer = await self.ask("store", record, deadline_s=RECORD_EVALUATION_S)
            except (AskError, MailboxFull) as error:
                answer = m.Paused(reason=str(error), retry_after_s=self._config.curation.poll_s)
        if isinstance(answer, m.CallResult):
            self._evaluations.end(lease)
            self._missing[lease.phase] = self._read_missing(lease.phase)
        return answer  # type: ignore[no-any-return]

    @receives(m.EvaluationFailed)
    def evaluation_failed(self, call: m.EvaluationFailed, sender: Sender) -> None:
        """Tried again by the next environment that asks; one that always fails is left out and reported."""
        lease = self._evaluations.holder(call.fence)
        if lease is None:
            return
        if call.is_interrupted:
            self._evaluations.end(lease)
            self._report_failure(lease, INTERRUPTED, call.detail)
        else:
            self._spend_attempt(lease, call.kind, call.detail)

    @receives(m.GuidedStored)
    async def guided_stored(self, call: m.GuidedStored, sender: Sender) -> None:
        self._guided.pop(call.pool_id, None)
        async with self._desk_lock:
            await self._service.pool_changed(call.task_id)

    @receives(m.GuidedFailed)
    def guided_failed(self, call: m.GuidedFailed, sender: Sender) -> None:
        """Tried again by whoever asks next; a demonstration under which it always fails is left alone."""
        self._guided.pop(call.pool_id, None)
        if call.is_interrupted:
            return
        self._guided_failures[call.pool_id] = self._guided_failures.get(call.pool_id, 0) + 1
        self.log.warning("guided_episode_failed", demonstration=call.pool_id, detail=call.detail)

    # ---- trainer ----

    @receives(m.BatchRequest)
    async def batch(self, call: m.BatchRequest, sender: Sender) -> m.BatchLease | m.NoWorkYet | m.RunOver:
        answer = await self._batch_now()
        if isinstance(answer, m.NoWorkYet):
            self.trainer_waiting = self._waiting(self.trainer_waiting, answer.reason)
        else:
            self.trainer_waiting = None
        return answer

    @receives(m.UpdateCommitted)
    async def update_committed(self, call: m.UpdateCommitted, sender: Sender) -> None:
        async with self._desk_lock:
            await self._service.committed(call.version)

    # ---- operator ----

    @receives(m.PauseWork)
    async def hold(self, call: m.PauseWork, sender: Sender) -> m.WorkPaused | m.Paused:
        """Durable when it is answered: a curator that is started again, and the next run, hold it too."""
        if call.is_held is not None and call.is_held != self._is_held:
            data = {"is_held": call.is_held}
            event = m.EventDraft(kind=WORK_HELD, subject=self.identity.name, data=data)
            recording = self.ask("store", m.RecordEvents(events=(event,)), deadline_s=WRITE_DEADLINE_S)
            try:
                answer = await recording
            except (AskError, MailboxFull) as error:
                answer = m.Paused(reason=str(error), retry_after_s=self._config.curation.poll_s)
            if isinstance(answer, m.Paused):
                return answer
            self._is_held = call.is_held
            log_event(self.log, event)
        now_s = self.clock.unix_s()
        playing = sum(self._is_there_still(one, now_s) for one in self._playing())
        return m.WorkPaused(is_held=self._is_held, playing=playing, is_training=self._is_batch_open())

    # ---- inside ----

    async def _batch_now(self) -> m.BatchLease | m.NoWorkYet | m.RunOver:
        phase = self._phase()
        if phase is RunPhase.OVER:
            return m.RunOver()
        if phase is not RunPhase.TRAINING and not self._is_batch_open():
            return self._wait(f"the run is in phase {phase}")
        if self._is_held and not self._is_batch_open():
            return self._wait(HELD)
        return await self._at_desk(self._batch_lease)

    def _is_batch_open(self) -> bool:
        return self._reader.open_batch() is not None

    async def _batch_lease(self) -> m.BatchLease | m.NoWorkYet:
        decision = await self._service.batch()
        if isinstance(decision, NoBatch):
            return m.NoWorkYet(retry_after_s=decision.retry_after_s, reason=decision.reason)
        return m.BatchLease(batch_id=decision.batch_id, group_ids=decision.group_ids, fence=decision.fence)

    async def _rollout_for(self, environment: str) -> RolloutLease | m.NoWorkYet:
        async def lease() -> RolloutLease | m.NoWorkYet:
            self._service.serving(self._oldest_served())
            self._look_at(environment)
            answer = await self._service.work(environment)
            if isinstance(answer, NoWork):
                return m.NoWorkYet(retry_after_s=answer.retry_after_s, reason=answer.reason)
            return answer

        return await self._at_desk(lease)

    def _guided_for(self, environment: str) -> m.GuidedTask | None:
        """An episode under a demonstration's actions, where a group failed and the policy has not done it."""
        if self._record.paused:
            return None
        now_s, most = self.clock.unix_s(), self._config.curation.max_attempts
        self._guided = {
            pool_id: lease
            for pool_id, lease in self._guided.items()
            if lease.environment != environment and lease.deadline_unix_s >= now_s
        }
        hopeless = {pool_id for pool_id, failures in self._guided_failures.items() if failures >= most}
        guide = self._service.curator.next_guide({*self._guided, *hopeless})
        if guide is None:
            return None
        deadline_unix_s = now_s + self._config.curation.lease_s
        self._guided[guide.pool_id] = GuidedLease(environment, guide.task_id, deadline_unix_s)
        return m.GuidedTask(
            pool_id=guide.pool_id,
            task_id=guide.task_id,
            seed=guide.seed,
            step_cap=self._config.curation.step_cap,
            attempt=guide.rolls + 1,
        )

    async def _at_desk(self, lease: Callable[[], Awaitable[T]]) -> T | m.NoWorkYet:
        """Something to give out, when it is this one's turn at the service.

        Nothing is given out while the disk refuses writes, nor to whoever waited too long to be there still.
        """
        if self._record.paused:
            return self._wait(f"the record takes no writes now: {self._record.paused}")
        asked_s = self.clock.monotonic_s()
        async with self._desk_lock:
            if self.clock.monotonic_s() - asked_s > PATIENCE_S:
                return self._wait("the curator was busy")
            return await lease()

    def _wait(self, reason: str) -> m.NoWorkYet:
        return m.NoWorkYet(retry_after_s=self._config.curation.poll_s, reason=reason)

    def _waiting(self, before: Waiting | None, reason: str) -> Waiting:
        return Waiting(self.clock.monotonic_s() if before is None else before.since_s, reason)

    def _tell_of_decision(self, decision: TaskDecision) -> None:
        """Tasks that rest, and that are back, are events; every decision is in the record anyway."""
        data = asdict(decision)
        self.log.info("task_decision", **data)
        if decision.kind is DecisionKind.QUARANTINE:
            kind = TASK_QUARANTINED if decision.after else TASK_RELEASED
            until = {"until_unix_s": float(decision.after)} if decision.after else {}
            emit(self, kind, decision.task_id, {"reason": decision.reason, **until})

    def _evaluation(self, phase: EvaluationPhase, environment: str) -> m.EvaluationTask | m.NoWorkYet:
        if phase is EvaluationPhase.AFTER and (behind := self._not_settled()):
            return self._wait(behind)
        self._give_up_lost(self._evaluations.gone(self._incarnation_of))
        for held in self._evaluations.held_by(environment):
            self._evaluations.end(held)  # it asks, so it plays nothing: an answer to it got lost
        lease = self._evaluations.lease(
            phase,
            self._missing[phase],
            environment,
            self._incarnation_of(environment),
            self.clock.unix_s(),
        )
        return self._wait("every evaluation episode is being played") if lease is None else self._task(lease)

    def _task(self, lease: EvaluationLease) -> m.EvaluationTask:
        episode = lease.episode
        return m.EvaluationTask(
            phase=lease.phase.value,
            task_id=episode.task_id,
            seed=episode.seed,
            step_cap=self._config.curation.step_cap,
            temperature=0.0 if episode.is_greedy else self._config.evaluation.temperature,
            fence=lease.fence,
        )

    def _incarnation_of(self, environment: str) -> int | None:
        """Of the environment's process; None where there is none."""
        slot = self.board.find(environment)
        if slot is None:
            return None
        row = self.board.vitals(slot)
        return None if row.state in GONE else row.incarnation

    def _give_up_lost(self, lost: Iterable[Lost]) -> None:
        for one in lost:
            self._spend_attempt(one.lease, FaultKind.INFRASTRUCTURE, one.why)

    def _spend_attempt(self, lease: EvaluationLease, kind: str, detail: str) -> None:
        attempts = self._evaluations.fail(lease)
        self._report_failure(lease, kind, detail, attempts)
        if self._evaluations.is_left_out(lease.phase, lease.episode):
            self._missing[lease.phase].pop(lease.episode, None)

    def _report_failure(self, lease: EvaluationLease, kind: str, detail: str, attempts: int = 0) -> None:
        data = {
            "phase": lease.phase.value,
            "version": self._newest_version(),
            "seed": lease.episode.seed,
            "is_greedy": lease.episode.is_greedy,
            "kind": str(kind),
            "detail": detail,
            "attempts": attempts,
            "is_left_out": self._evaluations.is_left_out(lease.phase, lease.episode),
        }
        emit(self, EVALUATION_FAILED, lease.episode.task_id, data)

    def _not_settled(self) -> str:
        """Why the final policy cannot be measured yet; empty when it can."""
        if self._is_batch_open():
            return "the last batch is still being trained"
        newest = self._newest_version()
        if newest is None or self._oldest_served() != newest:
            return "the newest version is not served by every rollout actor yet"
        return ""

    def _read_missing(self, phase: EvaluationPhase) -> dict[EvaluationEpisode, None]:
        """What is not in the record and has not failed too often."""
        done = that_count(self._reader.evaluations(phase), phase, self._newest_version())
        return {
            episode: None
            for episode in missing(self._plan, done)
            if not self._evaluations.is_left_out(phase, episode)
        }

    def _measure_the_newest(self) -> None:
        """After training it is the newest version that is measured, whatever was before."""
        newest = self._newest_version()
        if newest != self._measured_version:
            self._measured_version = newest
            self._evaluations.forget_attempts(EvaluationPhase.AFTER)
            self._missing[EvaluationPhase.AFTER] = self._read_missing(EvaluationPhase.AFTER)

    def _newest_version(self) -> int | None:
        newest = self._reader.latest_version()
        return None if newest is None else newest.version

    def _phase(self) -> RunPhase:
        if self._phase_so_far() in (RunPhase.AFTER, RunPhase.OVER):
            self._measure_the_newest()
        return self._phase_so_far()

    def _phase_so_far(self) -> RunPhase:
        return phase_now(
            self._plan,
            updates=self._service.curator.trainer_version or 0,
            actions=self._actions(),
            now_unix_s=self.clock.unix_s(),
            missing_before=len(self._missing[EvaluationPhase.BEFORE]),
            missing_after=len(self._missing[EvaluationPhase.AFTER]),
        )

    def _actions(self) -> int:
        """Environment steps played for training; looked up only where they are limited."""
        now_s = self.clock.monotonic_s()
        if self._plan.max_actions and now_s >= self._actions_known_until_s:
            self._actions_known_until_s = now_s + self._config.curation.poll_s
            self._actions_known = self._reader.steps_played()
        return self._actions_known

    def _oldest_served(self) -> int | None:
        """The oldest version any rollout actor answers with; None while none does.

        One whose version is older than weight_sync requires answers nobody: it does not count.
        """
        served = [version for name in self._workers if (version := self._version_of(name)) is not None]
        required = self._version_of("weight_sync") or 0
        return min((version for version in served if version >= required), default=None)

    def _version_of(self, name: str) -> int | None:
        """What an actor shows as its version; None while it does not run."""
        slot = self.board.find(name)
        if slot is None or self.board.state(slot) is not ActorState.RUNNING:
            return None
        return int(self.board.get(slot, "gauge_version"))

    def _look_outside(self) -> None:
        """Show the service who of those it deals with is there."""
        everybody = {row.name: row for row in self.board.rows()}
        rows = {name: row for name, row in everybody.items() if _lives(row, ACTOR_SILENT_S)}
        now_s = self.clock.monotonic_s()
        engines = [rows[name] for name in self._workers if name in rows]
        if not any(row.ready and _lives(row, ENGINE_SILENT_S) for row in engines):
            self._engineless_until_s = now_s + self._config.curation.lease_s
        self._living = {name: row.started_unix_s for name, row in rows.items()}
        self._supervised_since = {
            name: everybody[row.parent].started_unix_s
            for name, row in everybody.items()
            if row.parent in everybody
        }
        self._service.outside(
            Liveness(
                living=self._living,
                supervised_since=self._supervised_since,
                engines_answer=now_s >= self._engineless_until_s,
            )
        )

    def _look_at(self, environment: str) -> None:
        """One that asks may be a new one by that name."""
        slot = self.board.find(environment)
        if slot is None:
            return
        row = self.board.vitals(slot)
        self._living[environment] = row.started_unix_s
        if (boss := self.board.find(row.parent)) is not None:
            self._supervised_since[environment] = self.board.vitals(boss).started_unix_s

    async def _take_back_overdue(self) -> None:
        """Nobody is late for as long as a lease lasts after something kept all of them from being told."""
        self._look_outside()
        now_s = self.clock.monotonic_s()
        if not (self._store_takes_writes() and self._has_room()):
            self._lenient_until_s = now_s + self._config.curation.lease_s
        if now_s < self._lenient_until_s:
            return
        self._give_up_lost(self._evaluations.overdue(self.clock.unix_s()))
        async with self._desk_lock:
            taken = await self._service.take_back_overdue()
            late = self._service.overdue_batch()
        if taken:
            self.log.warning("leases_taken_back", count=taken)
        if late is not None:
            lease_s = self._config.curation.batch_lease_s
            data = {"batch": late.batch_id, "fence": late.fence, "lease_s": lease_s}
            emit(self, BATCH_OVERDUE, "trainer", data)

    def _look_who_starves(self) -> None:
        notice = self._watchdog.look(self.board.rows(), self._in_hand(), self.clock.monotonic_s())
        if notice is not None:
            emit(self, STARVED, notice.diagnosis.starving, event_of(notice))

    def _in_hand(self) -> CuratorView:
        """Who waits for what, as far as somebody should be getting it."""
        phase, now_s = self._phase(), self.clock.unix_s()
        if phase is RunPhase.OVER or self._is_held:
            return CuratorView()
        trainer = self.trainer_waiting if phase is RunPhase.TRAINING else None
        return CuratorView(
            trainer_told=trainer.reason if trainer else "",
            environments_told={name: waiting.reason for name, waiting in self.waiting.items()},
            playing=self._playing(),
            quarantined=self._service.curator.tasks.quarantined(now_s),
            paused=self._record.paused,
        )

    def _playing(self) -> tuple[Playing, ...]:
        now_s = self.clock.unix_s()
        if self._phase() is RunPhase.TRAINING:
            return (*self._service.curator.played(now_s), *self._guided_now(now_s))
        return tuple(self._evaluated_now(now_s))

    def _evaluated_now(self, now_s: float) -> Iterator[Playing]:
        for lease in self._evaluations.current:
            what = f"seed {lease.episode.seed} of {lease.episode.task_id}"
            yield Playing(environment=lease.environment, what=what, for_s=now_s - lease.began_unix_s)

    def _guided_now(self, now_s: float) -> Iterator[Playing]:
        for pool_id, lease in self._guided.items():
            yield Playing(
                environment=lease.environment,
                what=f"{lease.task_id} under the actions of demonstration {pool_id}",
                for_s=self._config.curation.lease_s - (lease.deadline_unix_s - now_s),
            )

    def _is_there_still(self, playing: Playing, now_unix_s: float) -> bool:
        """Whether the process that got the episode is still there; a lease alone lasts beyond its death."""
        slot = self.board.find(playing.environment)
        if slot is None or self.board.state(slot) is not ActorState.RUNNING:
            return False
        return bool(self.board.get(slot, "started_unix_s") <= now_unix_s - playing.for_s)

    def _store_takes_writes(self) -> bool:
        """A store that waits for the disk, or is being started, shows on the board."""
        slot = self.board.find("store")
        return slot is not None and bool(self.board.get(slot, "ready"))

    def _has_room(self) -> bool:
        return shutil.disk_usage(self.identity.run_dir).free >= SCREENSHOT_MAX_BYTES


def _result(lease: EvaluationLease, call: m.EvaluationEnded) -> Evaluation:
    """What is recorded of an evaluation episode."""
    return Evaluation(
        phase=lease.phase,
        policy_version=call.policy_version,
        task_id=lease.episode.task_id,
        seed=lease.episode.seed,
        reward=call.reward,
        is_greedy=lease.episode.is_greedy,
    )


def is_work_held(reader: StoreReader) -> bool:
    """Whether an operator paused the run and did not let it go on."""
    newest = reader.newest_event(WORK_HELD)
    return newest is not None and bool(newest.data["is_held"])


def _lives(row: Vitals, silent_after_s: float) -> bool:
    """Whether an actor runs and gives signs of life."""
    return row.state is ActorState.RUNNING and (row.beat_age_s or 0.0) <= silent_after_s
