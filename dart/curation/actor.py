"""The curator actor: which rollouts are played next, what is trained next, and when the run is over.

Receives   WorkRequest, RolloutStored, RolloutFailed, RolloutParked, EvaluationEnded, EvaluationFailed,
           GuidedStored, GuidedFailed (environments); BatchRequest, BatchAheadRequest, UpdateCommitted
           (trainer); PauseWork (operator)
Asks       the store for every write; reads the record itself
Tells      the store the events: which tasks enter and leave quarantine, that the trainer is late with a
           batch, that the run stalls and why, which evaluation episodes ended without a result, which alarms
           are raised or cleared
Waits for  a thread that measures updates and episodes for the alarms
Dies when  the record contradicts the curator's index of it (the next curator builds a new index)
On restart the new curator rebuilds its state from the record. Leases of rollouts stay valid. Leases of
           evaluation episodes are void: their results are refused, and the episodes are played again
"""

import math
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import asdict
from typing import Any, TypeVar

from actors.actor import Actor, Sender, receives
from actors.errors import AskError, MailboxFull
from actors.future import Lock
from dart.config.config import Config
from dart.core import messages as m
from dart.core.exploration import HeldLease
from dart.core.record_address import parse_record_address
from dart.core.records import (
    Batch,
    DecisionKind,
    Evaluation,
    EvaluationPhase,
    RunPhase,
    StoredResult,
    TaskDecision,
)
from dart.core.types import RolloutLease
from dart.curation.alarm_monitor import AlarmMonitor
from dart.curation.alarm_monitor import event_of as alarm_event_of
from dart.curation.clock_jumps import ClockJumps
from dart.curation.episode_leases import EpisodeLeases
from dart.curation.evaluation import EvaluationLease, EvaluationSchedule
from dart.curation.guided_episodes import GuidedEpisodes, GuidedLease
from dart.curation.learning_alarms import AlarmChange
from dart.curation.liveness_view import LivenessView
from dart.curation.run_phases import RunPlan, phase_now
from dart.curation.service import open_service
from dart.curation.settings import settings_of
from dart.curation.stall_diagnosis import Episodes, Playing, RunFacts
from dart.curation.stall_monitor import CHECK_S, StallMonitor, event_of
from dart.store.client import WRITE_DEADLINE_S, RecordClient
from dart.store.errors import StoreUnavailable
from dart.store.patience import AT_START
from dart.store.reader import StoreReader
from dart.store.run_blobs import run_blobs
from dart.telemetry.emit import emit, log_event
from dart.telemetry.engine_names import EngineNames
from dart.telemetry.events import (
    ALARM,
    BATCH_OVERDUE,
    EVALUATION_FAILED,
    STARVED,
    TASK_QUARANTINED,
    TASK_RELEASED,
    WORK_HELD,
)

OVERDUE_CHECK_S = 2.0
"""Time between two checks of the leases against their deadlines."""

PAUSED = "the run is paused"

ALARMS_CHECK_S = 2.0
"""Time between two checks of the record for updates and windows that the alarms have not measured yet."""

ALARMS_DEADLINE_S = 600.0
"""Deadline of one measurement for the alarms. After a restart the first one reads all episodes of the run."""

PATIENCE_S = 10.0
"""Longest time that a request for a lease waits for the service. After it, the curator replies that there is
no work, because the environment or the trainer that asked may have given up."""

RECORD_EVALUATION_S = 10.0
"""Deadline for writing the result of an evaluation episode to the record.

If the write fails, the environment still waits for the reply, and then sends the result again."""

T = TypeVar("T")

Work = RolloutLease | m.EvaluationTask | m.GuidedTask


class CuratorActor(Actor):
    """Passes the messages of other actors to the service, one at a time, and replies with its results."""

    async def on_start(self) -> None:
        self._config = Config.model_validate(self.args["config"])
        curation = self._config.curation
        self._reader = self.enter_context(StoreReader(parse_record_address(self.args["store"]), AT_START))
        self._plan = RunPlan(config=self._config, training_ends_s=self.args["training_ends_boot_s"])
        self._record = RecordClient(self, self._reader)
        self._service = await open_service(
            settings_of(self._config), self._record, self.clock.unix_s, self._report_decision
        )
        self._service_lock = Lock()
        self._is_paused = is_work_paused(self._reader)
        self._environments_wait: dict[str, str] = {}
        """For each environment that got no work when it asked last: the reason."""
        self._idle: set[str] = set()
        """Environments that have asked for work while the run is paused, so they play nothing."""
        self._trainer_waits = ""
        """Why the trainer got no batch the last time it asked; empty when it got one."""
        self._ahead: tuple[int, ...] = ()
        """Ids of the groups that the trainer trains on, or has trained on, without a lease; empty if there
        are none."""
        self._evaluations = EvaluationSchedule(
            self._plan,
            self._reader,
            lambda task_id, data: emit(self, EVALUATION_FAILED, task_id, data),
            lease_s=curation.lease_s,
            max_attempts=curation.max_attempts,
            incarnation=self.identity.incarnation,
        )
        self._guided = GuidedEpisodes(
            self._report_guided_failure,
            lease_s=curation.lease_s,
            max_attempts=curation.max_attempts,
            incarnation=self.identity.incarnation,
        )
        self._actions_known, self._actions_known_until_s = 0, 0.0
        self._lenient_until_s = -math.inf
        self._clock_jumps = ClockJumps(self.clock)
        engines = EngineNames(self.board, self.args["engines"])
        self._view = LivenessView(self.board, engines, self.identity.run_dir, curation.lease_s)
        self._refresh_liveness()
        self.every(OVERDUE_CHECK_S, lambda: self.run(self._revoke_overdue()))
        self._stall_monitor = StallMonitor(self._config, engines, self._reader, self.clock.monotonic_s())
        self.every(CHECK_S, self._check_for_stalls)
        self._alarms = AlarmMonitor(self._config, self._opened_with_steps)
        self._alarm_events: list[m.EventDraft] = []
        """Events about raised and cleared alarms that are not in the record yet."""
        self._is_measuring = False
        self.every(ALARMS_CHECK_S, self._check_alarms)

    def _opened_with_steps(self) -> StoreReader:
        """Open a reader of the record that can also read steps, for the thread that measures for alarms."""
        steps = run_blobs(self._config.run, self.identity.run_dir).steps
        return StoreReader(parse_record_address(self.args["store"]), AT_START, steps=steps)

    # ---- environments ----

    @receives(m.WorkRequest)
    async def work(self, call: m.WorkRequest, sender: Sender) -> Work | m.NoWorkYet:
        work = await self._work_for(call.environment)
        self._environments_wait.pop(call.environment, None)
        if isinstance(work, m.NoWorkYet):
            self._environments_wait[call.environment] = work.reason
        return work

    async def _work_for(self, environment: str) -> Work | m.NoWorkYet:
        if self._is_paused:
            self._idle.add(environment)
            return self._no_work(PAUSED)
        self._idle.discard(environment)
        match self._phase():
            case RunPhase.TRAINING:
                return await self._training_work_for(environment)
            case RunPhase.BASE_EVALUATION:
                return self._evaluation_for(environment, EvaluationPhase.BEFORE)
            case RunPhase.FINAL_EVALUATION:
                return self._evaluation_for(environment, EvaluationPhase.AFTER)
            case RunPhase.DONE:
                return self._no_work("the run is over")

    @receives(m.RolloutStored)
    @receives(m.RolloutParked)
    async def rollout_changed(self, call: m.RolloutStored | m.RolloutParked, sender: Sender) -> None:
        async with self._service_lock:
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
        async with self._service_lock:
            await self._service.failed(call.rollout_id, call.fence, call.kind, call.detail)

    @receives(m.EvaluationEnded)
    async def evaluation_ended(self, call: m.EvaluationEnded, sender: Sender) -> m.CallResult | m.Paused:
        """Record the result of an evaluation episode; reply FENCED if the lease of the episode has ended.

        The reply is `Paused` if the store does not answer; the environment then sends the result again.
        """
        lease = self._evaluations.holder(call.fence)
        if lease is None:
            self.log.warning("evaluation_fenced", environment=sender.name, fence=call.fence)
            return m.CallResult(value=StoredResult.FENCED)
        result = _result(lease, call)
        with self._evaluations.recording(lease):
            reply = await self._ask_store(
                m.RecordEvaluation(evaluation=result, play=call.play), deadline_s=RECORD_EVALUATION_S
            )
        if isinstance(reply, m.CallResult):
            self._evaluations.recorded(lease, result)
        return reply  # type: ignore[no-any-return]

    @receives(m.EvaluationFailed)
    @receives(m.GuidedFailed)
    def episode_failed(self, call: m.EvaluationFailed | m.GuidedFailed, sender: Sender) -> None:
        """End the lease of an evaluation or guided episode that failed or was interrupted.

        The episode is played again. After `curation.max_attempts` failures an evaluation episode is left out
        of the rates, and a demonstration is no hint any more; an interruption is not a failure.
        """
        leases: EpisodeLeases[Any] = self._guided if isinstance(call, m.GuidedFailed) else self._evaluations
        if (lease := leases.holder(call.fence)) is None:
            return
        if call.is_interrupted:
            leases.interrupted(lease, call.detail)
        else:
            leases.failed(lease, call.kind, call.detail)

    @receives(m.GuidedStored)
    async def guided_stored(self, call: m.GuidedStored, sender: Sender) -> None:
        async with self._service_lock:
            self._guided.end(call.fence)  # not earlier, or the same attempt is given out again meanwhile
            self._service.pool_changed(call.task_id)

    def _report_guided_failure(self, lease: GuidedLease, detail: str) -> None:
        self.log.warning(
            "guided_episode_failed",
            demonstration=lease.guide.pool_id,
            environment=lease.environment,
            detail=detail,
        )

    # ---- trainer ----

    @receives(m.BatchRequest)
    async def batch(self, call: m.BatchRequest, sender: Sender) -> Batch | m.NoWorkYet | m.RunOver:
        self._ahead = call.group_ids
        batch = await self._batch_now(call.group_ids)
        if not isinstance(batch, m.NoWorkYet):
            self._ahead = ()
        self._trainer_waits = batch.reason if isinstance(batch, m.NoWorkYet) else ""
        return batch

    @receives(m.BatchAheadRequest)
    async def batch_ahead(self, call: m.BatchAheadRequest, sender: Sender) -> m.BatchAhead | m.NoWorkYet:
        self._ahead = ()
        if self._is_paused or self._phase_after(updates_from_now=1) is not RunPhase.TRAINING:
            return self._no_work("no update follows the one that is being committed")
        ahead = await self._in_turn(self._service.batch_ahead)
        if isinstance(ahead, m.BatchAhead):
            self._ahead = ahead.group_ids
        return ahead

    @receives(m.UpdateCommitted)
    async def update_committed(self, call: m.UpdateCommitted, sender: Sender) -> None:
        async with self._service_lock:
            await self._service.committed(call.version)

    # ---- operator ----

    @receives(m.PauseWork)
    async def pause(self, call: m.PauseWork, sender: Sender) -> m.WorkPaused | m.Paused:
        """Pause or resume the run for an operator, and reply how much work is still running.

        While the run is paused, no new episode, exploration or update begins. The event WORK_HELD records the
        pause before the reply is sent, so a restarted curator is paused too.
        """
        if call.is_held is not None and call.is_held != self._is_paused:
            event = self._held_event(call.is_held)
            reply = await self._ask_store(m.RecordEvents(events=(event,)), deadline_s=WRITE_DEADLINE_S)
            if isinstance(reply, m.Paused):
                return reply
            self._is_paused = call.is_held
            log_event(self.log, event)
        now_s = self.clock.unix_s()
        playing = len({one.environment for one in self._leased(now_s) if self._is_at_work(one.environment)})
        playing += sum(self._is_exploring(lease, now_s) for lease in self._reader.held_leases())
        is_training = self._is_batch_open() or bool(self._ahead)
        return m.WorkPaused(is_held=self._is_paused, playing=playing, is_training=is_training)

    def _is_at_work(self, environment: str) -> bool:
        """Whether an environment plays the episode whose lease it holds.

        A lease can outlast the process that got it. The next process of that name plays nothing: it asks for
        work.
        """
        return environment not in self._idle and self._view.is_running(environment)

    def _is_exploring(self, lease: HeldLease, now_unix_s: float) -> bool:
        """Whether an environment explores under a lease. A lease can outlast the process that holds it."""
        is_due = lease.deadline_unix_s >= now_unix_s
        return is_due and self._view.incarnation_of(lease.explorer) == lease.incarnation

    def _held_event(self, is_held: bool, alarm: str = "") -> m.EventDraft:
        return m.EventDraft(
            kind=WORK_HELD, subject=self.identity.name, data={"is_held": is_held, "alarm": alarm}
        )

    async def _ask_store(self, record: Any, *, deadline_s: float) -> Any:
        """Ask the store to write `record`, and return its reply; `Paused` if it does not reply in time."""
        try:
            return await self.ask("store", record, deadline_s=deadline_s)
        except (AskError, MailboxFull) as error:
            return m.Paused(reason=str(error), retry_after_s=self._config.curation.poll_s)

    # ---- what is given out ----

    async def _batch_now(self, trained_ahead: tuple[int, ...]) -> Batch | m.NoWorkYet | m.RunOver:
        phase = self._phase()
        is_open = self._is_batch_open()
        is_left = is_open or self._service.curator.are_ready(trained_ahead)
        if phase is RunPhase.DONE and not is_left:
            return m.RunOver()
        begins = not trained_ahead and not is_open
        if begins and (phase is not RunPhase.TRAINING or self._is_paused):
            return self._no_work(PAUSED if self._is_paused else f"the run is in phase {phase}")
        return await self._in_turn(lambda: self._service.batch(trained_ahead))

    def _is_batch_open(self) -> bool:
        return self._reader.open_batch() is not None

    async def _training_work_for(self, environment: str) -> RolloutLease | m.GuidedTask | m.NoWorkYet:
        async def lease() -> RolloutLease | m.GuidedTask | m.NoWorkYet:
            if (guided := self._guided_for(environment)) is not None:
                return guided
            self._service.serving(self._view.oldest_served(self.clock.monotonic_s()))
            self._view.asks(environment)
            return await self._service.work(environment)

        return await self._in_turn(lease)

    def _guided_for(self, environment: str) -> m.GuidedTask | None:
        """Lease a guided episode to an environment; None if there is no guided episode to play now."""
        lease = self._guided.lease(
            environment,
            self._service.curator.next_guide,
            self._view.incarnation_of,
            self.clock.unix_s(),
        )
        if lease is None:
            return None
        return m.GuidedTask(
            pool_id=lease.guide.pool_id,
            task_id=lease.guide.task_id,
            seed=lease.guide.seed,
            step_cap=self._config.curation.step_cap,
            attempt=lease.guide.rolls + 1,
            fence=lease.fence,
        )

    def _evaluation_for(self, environment: str, phase: EvaluationPhase) -> m.EvaluationTask | m.NoWorkYet:
        if phase is EvaluationPhase.AFTER and (reason := self._why_not_measurable()):
            return self._no_work(reason)
        lease = self._evaluations.lease(phase, environment, self._view.incarnation_of, self.clock.unix_s())
        if lease is None:
            return self._no_work("every evaluation episode is being played")
        episode = lease.episode
        return m.EvaluationTask(
            phase=lease.phase.value,
            task_id=episode.task_id,
            seed=episode.seed,
            step_cap=self._config.curation.step_cap,
            temperature=0.0 if episode.is_greedy else self._config.evaluation.temperature,
            fence=lease.fence,
        )

    def _why_not_measurable(self) -> str:
        """Return why the evaluation after training cannot begin yet; empty if it can."""
        if self._is_batch_open():
            return "the last batch is still being trained"
        if self._ahead:
            return "an update is still being computed"
        newest = self._evaluations.newest_version()
        if newest is None or self._view.oldest_served(self.clock.monotonic_s()) != newest:
            return "the newest version is not served by every engine yet"
        return ""

    async def _in_turn(self, lease: Callable[[], Awaitable[T]]) -> T | m.NoWorkYet:
        """Call `lease` as soon as the service is free, and return its result.

        Return NoWorkYet instead while the record takes no writes, or if the service was free only after more
        than `PATIENCE_S`.
        """
        if self._record.paused:
            return self._no_work(f"the record takes no writes now: {self._record.paused}")
        asked_s = self.clock.monotonic_s()
        async with self._service_lock:
            if self.clock.monotonic_s() - asked_s > PATIENCE_S:
                return self._no_work("the curator was busy")
            return await lease()

    def _no_work(self, reason: str) -> m.NoWorkYet:
        retry_after_s = self._config.curation.poll_s
        return m.NoWorkYet(retry_after_s=retry_after_s, reason=reason, is_held=self._is_paused)

    # ---- the phase of the run ----

    def _phase(self) -> RunPhase:
        if self._phase_after() in (RunPhase.FINAL_EVALUATION, RunPhase.DONE):
            self._evaluations.measure_newest()
        return self._phase_after()

    def _phase_after(self, updates_from_now: int = 0) -> RunPhase:
        """Return the phase of the run; with `updates_from_now`, the phase after so many more updates."""
        missing = self._evaluations.missing
        return phase_now(
            self._plan,
            updates=(self._service.curator.trainer_version or 0) + updates_from_now,
            actions=self._actions(),
            now_s=self.clock.boot_s(),
            missing_before=len(missing[EvaluationPhase.BEFORE]),
            missing_after=len(missing[EvaluationPhase.AFTER]),
        )

    def _actions(self) -> int:
        """Return the number of environment steps that were played for training, read from the record at most
        once per `curation.poll_s`; 0 if `training.actions` sets no limit."""
        now_s = self.clock.monotonic_s()
        if self._config.training.actions and now_s >= self._actions_known_until_s:
            self._actions_known_until_s = now_s + self._config.curation.poll_s
            self._actions_known = self._reader.steps_played()
        return self._actions_known

    # ---- at intervals ----

    def _refresh_liveness(self) -> None:
        self._service.curator.liveness = self._view.refresh(self.clock.monotonic_s())

    async def _revoke_overdue(self) -> None:
        """Revoke leases past their deadlines.

        While the store takes no writes or the disk is full, and for `curation.lease_s` after that, no lease
        is revoked: the environments could not report their results. The same holds for `curation.lease_s`
        after the wall clock jumped ahead: the environments did not have the time of the jump. The lease of an
        environment that waits for room or for the object storage is spared in the same way.
        """
        self._refresh_liveness()
        now_s = self.clock.monotonic_s()
        if self._clock_jumps.has_jumped_ahead() or not self._view.can_store_results():
            self._lenient_until_s = now_s + self._config.curation.lease_s
        if now_s < self._lenient_until_s:
            return
        self._evaluations.give_up_overdue(self.clock.unix_s(), self._view.waited_unix_s)
        self._guided.give_up_overdue(self.clock.unix_s(), self._view.waited_unix_s)
        async with self._service_lock:
            revoked = await self._service.revoke_overdue()
            late = self._service.overdue_batch()
        if revoked:
            self.log.warning("leases_revoked", count=revoked)
        if late is not None:
            lease_s = self._config.curation.batch_lease_s
            data = {"batch": late.batch_id, "fence": late.fence, "lease_s": lease_s}
            emit(self, BATCH_OVERDUE, "trainer", data)

    def _check_for_stalls(self) -> None:
        notice = self._stall_monitor.check(self.board, self._known_facts(), self.clock.monotonic_s())
        if notice is not None:
            emit(self, STARVED, notice.diagnosis.starving, event_of(notice))

    def _check_alarms(self) -> None:
        if not self._is_measuring:
            self._is_measuring = True
            self.run(self._measure())

    async def _measure(self) -> None:
        """Measure what is new for the alarms, and record the alarms that are raised or cleared by it."""
        try:
            if self._alarms.has_news(self._reader):
                look = self.in_thread(self._alarms.look, name="alarms", deadline_s=ALARMS_DEADLINE_S)
                self._alarm_events += [event for change in await look for event in self._events_of(change)]
            if self._alarm_events:
                await self._record_alarms()
        except StoreUnavailable as error:
            self.log.info("alarms_not_measured", reason=str(error))
        finally:
            self._is_measuring = False

    def _events_of(self, change: AlarmChange) -> Iterator[m.EventDraft]:
        """Yield the event that reports a change of an alarm, and the event WORK_HELD if this alarm is in
        `alarms.pause`, was raised and the run is not paused."""
        alarm = change.rule.alarm
        yield m.EventDraft(kind=ALARM, subject=alarm.value, data=alarm_event_of(change))
        if change.is_raised and alarm in self._config.alarms.pause and not self._is_paused:
            yield self._held_event(True, alarm.value)

    async def _record_alarms(self) -> None:
        """Record `_alarm_events` in one write. If the store does not reply, they are kept for the next
        try."""
        events = tuple(self._alarm_events)
        reply = await self._ask_store(m.RecordEvents(events=events), deadline_s=WRITE_DEADLINE_S)
        if isinstance(reply, m.Paused):
            return
        del self._alarm_events[: len(events)]
        for event in events:
            log_event(self.log, event)
            self._is_paused = self._is_paused or event.kind == WORK_HELD

    def _known_facts(self) -> RunFacts:
        """Return what the curator knows about waiting actors; empty facts while the run is paused or over."""
        phase, now_s = self._phase(), self.clock.unix_s()
        if phase is RunPhase.DONE or self._is_paused:
            return RunFacts()
        return RunFacts(
            trainer_waits_because=self._trainer_waits if phase is RunPhase.TRAINING else "",
            environments_wait_because=dict(self._environments_wait),
            playing=Episodes(self._num_playing(), self._playing),
            quarantined_tasks=self._service.curator.tasks.quarantined(now_s),
            paused=self._record.paused,
        )

    def _leased(self, now_unix_s: float) -> Iterator[Playing]:
        """Yield a description of each episode that is leased, also of one that an earlier phase began."""
        yield from self._service.curator.played(now_unix_s)
        yield from self._guided.playing(now_unix_s)
        yield from self._evaluations.playing(now_unix_s)

    def _playing(self) -> tuple[Playing, ...]:
        """Describe the episodes of the present phase that are leased."""
        now_s = self.clock.unix_s()
        if self._phase() is RunPhase.TRAINING:
            return (*self._service.curator.played(now_s), *self._guided.playing(now_s))
        return tuple(self._evaluations.playing(now_s))

    def _num_playing(self) -> int:
        if self._phase() is RunPhase.TRAINING:
            return self._service.curator.num_played + self._guided.num_playing
        return self._evaluations.num_playing

    # ---- events ----

    def _report_decision(self, decision: TaskDecision) -> None:
        """Log a decision about a task, and emit an event when a task enters or leaves quarantine."""
        data = asdict(decision)
        self.log.info("task_decision", **data)
        if decision.kind is DecisionKind.QUARANTINE:
            kind = TASK_QUARANTINED if decision.after else TASK_RELEASED
            until = {"until_unix_s": float(decision.after)} if decision.after else {}
            emit(self, kind, decision.task_id, {"reason": decision.reason, **until})


def _result(lease: EvaluationLease, call: m.EvaluationEnded) -> Evaluation:
    """Return the record of an evaluation episode that ended under this lease."""
    return Evaluation(
        phase=lease.phase,
        policy_version=call.policy_version,
        task_id=lease.episode.task_id,
        seed=lease.episode.seed,
        reward=call.reward,
        is_greedy=lease.episode.is_greedy,
    )


def is_work_paused(reader: StoreReader) -> bool:
    """Whether an operator or an alarm paused the run and it was not resumed since."""
    newest = reader.newest_event(WORK_HELD)
    return newest is not None and bool(newest.data["is_held"])
