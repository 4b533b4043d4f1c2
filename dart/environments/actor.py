"""The environment actor: plays one episode after another on one browser, desktop or virtual machine.

Asks       the curator for work and to record the result of an evaluation, an engine for each answer,
           the store to keep the finished trajectory
Tells      weight_sync which engine did not reply, the store how busy it was
Waits for  its own asyncio loop, which drives the environment; every call there has a deadline
Dies when  the environment fails several times in a row, or one of its calls lasts longer than a lease: the
           supervisor backs off and starts the actor again
On stop    finishes the episode if it ends soon enough; else parks it, that is, stores its steps in the
           record; cancels a reset or an evaluation that takes too long, and closes the environment
On restart the curator revokes the lease of the dead incarnation and the rollout is played again from its
           start; a parked rollout is continued by the environment that receives its lease next
"""

import math
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from actors.actor import Actor
from actors.board import ActorState
from actors.errors import AskError, MailboxFull
from actors.future import Future
from dart.config.config import Config
from dart.config.failing_time import MAX_FAULTS_IN_ROW
from dart.core import messages as m
from dart.core.actions import is_action
from dart.core.record_address import parse_record_address
from dart.core.records import EvaluationPlay, StoredResult
from dart.core.types import FaultKind, RolloutLease, Step, Trajectory
from dart.environments.call_watch import CHECK_S
from dart.environments.episode import EpisodeTask, Interrupted, PlayedEpisode, Player, ReplayFailed, StopEvent
from dart.environments.factory import environment_of
from dart.environments.faults import EnvironmentFault, FileUnreachable, InfrastructureFault
from dart.environments.policy_client import NoEngineAnswered, RequestRejected
from dart.environments.protocol import EpisodeKey
from dart.policy.context import first_actions
from dart.store.client import write_through_restarts
from dart.store.disk_wait import in_storage, put_blob
from dart.store.errors import BlobDamage
from dart.store.patience import IN_HANDLER
from dart.store.reader import StoreReader
from dart.store.run_blobs import run_blobs
from dart.store.serialization import pack_steps
from dart.telemetry.emit import emit
from dart.telemetry.load_interval import load_every_s
from dart.telemetry.load_meter import LOAD, LoadMeter

T = TypeVar("T")

CURATOR_PAUSE_S = 0.5

FILE_PAUSE_S = 15.0
FILE_PAUSE_MOST_S = 300.0
"""Pause after an episode for which a file could not be downloaded; it doubles from `FILE_PAUSE_S` with each
further one in a row. Without it, a network that is away would spend all attempts of all rollouts."""

FINISH_SHARE = 0.6
"""Share of the actor's ``shutdown_s`` for which a stopping actor lets its episode play on.

The rest of the time is for parking the episode and closing the environment."""

CANCEL_SHARE = 0.8
"""Share of ``shutdown_s`` after which a stopping actor cancels a call of its environment, such as a reset.

A machine that is not closed before the process is killed would run on after the run."""

CLEAN_UP_SHARE = 0.05
"""Share of ``shutdown_s`` for which the actor waits until the cancelled call has ended."""

PARK_SHARE = 0.1
"""Share of ``shutdown_s`` for which the actor waits until an episode that it has cancelled is parked."""


Work = RolloutLease | m.EvaluationTask | m.GuidedTask


async def logging_faults(actor: Actor, call: str, work: Coroutine[Any, Any, T]) -> T | None:
    """Await a call of an environment on which no episode depends, in the environment's loop.

    A fault or a TimeoutError of it is logged, and the result is then None.

    call   name of the method that is called
    """
    try:
        return await actor.in_loop(work)
    except (EnvironmentFault, TimeoutError) as fault:
        actor.log.warning("environment_fault", call=call, detail=str(fault) or type(fault).__name__)
        return None


class EnvironmentActor(Actor):
    """Plays the rollouts, evaluations and guided episodes that the curator leases to it."""

    prints_to_stderr = True

    def on_start(self) -> None:
        self.config = config = Config.model_validate(self.args["config"])
        self._steps = run_blobs(config.run, self.identity.run_dir).steps
        self.environment = environment_of(self, config)
        self._meter = LoadMeter(self.clock.monotonic_s)
        self._player = Player(self, self.environment, config, self._meter)
        self._faults_in_row = 0
        self._file_pause_s = FILE_PAUSE_S
        self._has_screen = False
        self._is_idle = False
        """Whether the environment has given back what it can since its last work."""
        self._stopping = StopEvent()
        self._over: Future[None] = Future()
        self.every(load_every_s(config), self._record_load)
        self.every(CHECK_S, self._check_call)
        self.after(0.0, self._play_for_ever)

    async def on_stop(self) -> None:
        self._stopping.set()
        shutdown_s = self._shutdown_s()
        can_keep = self._runs("store")  # without the store no episode can be kept, however it ends
        if can_keep:
            self.after(FINISH_SHARE * shutdown_s, self._player.stop_event.set)
            await self._within(CANCEL_SHARE * shutdown_s, self._over)
            self._record_load()
        await self._within(CLEAN_UP_SHARE * shutdown_s, self.in_loop(self._player.cancel()))
        await logging_faults(self, "close", self.environment.close())
        if can_keep:
            await self._within(PARK_SHARE * shutdown_s, self._over)

    def _shutdown_s(self) -> float:
        """Return how many seconds this actor has to stop.

        The supervisor names them in its order, because a reload may have changed them. Without such an order
        they are those of the configuration.
        """
        if math.isinf(self.stop_by_s):
            return self.config.supervision.child(self.identity.name).shutdown_s
        return max(0.0, self.stop_by_s - self.clock.monotonic_s())

    async def _within(self, seconds: float, future: Future[None]) -> None:
        """Wait for a future, at most this long."""
        await StopEvent().wait_first(future, self.sleep(seconds))

    async def on_probe(self) -> bool:
        """Return whether the environment can take a screenshot.

        True also when there may be nothing to capture: before the end of the first episode, after a fault and
        during a reset, which may replace the machine and has a deadline of its own.
        """
        if not self._has_screen or self._player.is_resetting:
            return True
        deadline_s = self.config.environments.observe_deadline_s
        healthy = self.environment.healthy(deadline_s=deadline_s)
        return bool(await logging_faults(self, "healthy", healthy))

    def _check_call(self) -> None:
        """End this actor if a call of its environment does not return. A stop has a time limit of its own."""
        if not self.is_stopping:
            self._player.watch.check()

    # ---- work ----

    async def _play_for_ever(self) -> None:
        while not self._stopping.is_set:
            with self._meter.during("idle_s"):
                work = await self._next_work()
            if work is not None:
                await self._take(work)
        self._over.succeed(None)

    async def _next_work(self) -> Work | None:
        """Ask the curator for work. If it has none or does not answer, call `idle` and return None."""
        try:
            reply = await self.ask("curator", m.WorkRequest(environment=self.identity.name), deadline_s=20.0)
        except (AskError, MailboxFull) as error:
            self.log.info("no_curator", reason=str(error))
            reply = m.NoWorkYet(retry_after_s=CURATOR_PAUSE_S, reason=str(error), is_held=True)
        if isinstance(reply, m.NoWorkYet):
            await self.idle(reply)
            return None
        return reply  # type: ignore[no-any-return]

    async def idle(self, reply: m.NoWorkYet) -> None:
        """Wait after the curator had no work: for ``reply.retry_after_s`` seconds, or until the actor stops.

        At the first call since the last work, the environment gives back what it no longer needs. A subclass
        may do other work in this time, unless ``reply.is_held``. When the method returns, the actor asks the
        curator again.
        """
        if not self._is_idle:
            self._is_idle = True
            await logging_faults(self, "give_back", self.environment.give_back())
        await self._stopping.wait_first(self.sleep(reply.retry_after_s))

    async def _take(self, work: Work) -> None:
        self._is_idle = False
        try:
            await self._carry_out(work)
            self._faults_in_row, self._file_pause_s = 0, FILE_PAUSE_S
            self.used()  # only a finished episode shows that this environment works
        except EnvironmentFault as fault:
            self._has_screen = False
            self._report(work, fault.kind, str(fault))
            if isinstance(fault, FileUnreachable):
                await self._await_file_server()
            if not isinstance(fault, InfrastructureFault):  # it would occur in any environment
                return
            self._faults_in_row += 1
            if self._faults_in_row >= MAX_FAULTS_IN_ROW:
                raise
        except (AskError, MailboxFull, NoEngineAnswered, BlobDamage) as error:  # not the task
            self._report(work, FaultKind.SYSTEM, str(error))
        except RequestRejected as refused:
            self._report(work, FaultKind.POLICY, str(refused))

    async def _await_file_server(self) -> None:
        """Wait until a network or a server of files that was away may be back, or until the actor stops."""
        self.log.warning("waits_for_files", pause_s=self._file_pause_s)
        await self._stopping.wait_first(self.sleep(self._file_pause_s))
        self._file_pause_s = min(2 * self._file_pause_s, FILE_PAUSE_MOST_S)

    async def _carry_out(self, work: Work) -> None:
        try:
            played = await self._played(work)
        except Interrupted as interrupted:
            await self._park(work, interrupted)
            return
        if played is None:
            return
        self._has_screen = True
        match work:
            case RolloutLease():
                await self._store_rollout(work, played)
            case m.GuidedTask():
                await self._store_guided(work, played)
            case m.EvaluationTask():
                await self._store_evaluation(work, played)

    async def _played(self, work: Work) -> PlayedEpisode | None:
        """Play the episode of ``work``; return None if its lease has ended. Raises Interrupted on a stop."""
        if self._stopping.is_set:  # the work came while this actor stops: another environment plays it
            raise Interrupted(())  # steps that are parked already stay so
        task = await self._task_of(work)
        try:
            return await self._player.play(replace(task, parked=await self._parked_steps(work)))
        except (ReplayFailed, BlobDamage) as failure:
            assert isinstance(work, RolloutLease), "only rollouts are parked"
            self.log.warning("replay_failed", rollout=work.rollout_id, detail=str(failure))
            if not await self._forget_parked(work, str(failure)):
                return None
            return await self._player.play(task)

    async def _forget_parked(self, lease: RolloutLease, detail: str) -> bool:
        """Delete the stored steps of a parked rollout, so that it is played from its start.

        Returns False if the lease has ended."""
        call = m.ForgetParked(
            rollout_id=lease.rollout_id,
            fence=lease.fence,
            detail=detail[: m.DETAIL_CHARACTERS],
            max_attempts=self.config.curation.max_attempts,
        )
        verdict = await self._write(call)
        if verdict in (StoredResult.ACCEPTED, StoredResult.DUPLICATE):
            return True
        self.tell("curator", m.RolloutParked(rollout_id=lease.rollout_id))  # it reads the rollout's state
        self.log.warning("lease_lost", rollout=lease.rollout_id, fence=lease.fence, verdict=verdict.value)
        return False

    async def _task_of(self, work: Work) -> EpisodeTask:
        task = EpisodeTask(
            task_id=work.task_id,
            seed=work.seed,
            step_cap=work.step_cap,
            temperature=self.config.rollout.temperature,
        )
        match work:
            case RolloutLease():
                key = EpisodeKey(rollout_id=work.rollout_id, attempt=work.attempt, fence=work.fence)
                return replace(task, key=key)
            case m.GuidedTask():
                return replace(task, hint=await self._actions_of(work.pool_id))
            case m.EvaluationTask():
                return replace(task, temperature=work.temperature)

    async def _parked_steps(self, work: Work) -> tuple[Step, ...]:
        """Return the stored steps of a parked rollout; none for other work. Raises BlobDamage."""
        if not isinstance(work, RolloutLease) or not work.parked_steps:
            return ()
        rollout_id = work.rollout_id
        return await self._read(lambda record: record.parked_steps(rollout_id))

    async def _actions_of(self, pool_id: int) -> tuple[str, ...]:
        """Return the first actions of a demonstration, as many as fit into a request to an engine."""
        demonstration = await self._read(lambda record: record.demonstration(pool_id))
        answers = [step.answer for step in demonstration.steps]
        return first_actions([answer for answer in answers if is_action(answer)])

    async def _read(self, read: Callable[[StoreReader], T]) -> T:
        """Return what ``read`` reads from the record; repeat it while the storage of the steps is away."""

        address = parse_record_address(self.args["store"])

        def work() -> T:
            with StoreReader(address, IN_HANDLER, steps=self._steps) as record:
                return read(record)

        return await in_storage(self, self._steps, "steps of the record", work)

    # ---- results ----

    async def _store_rollout(self, lease: RolloutLease, played: PlayedEpisode) -> None:
        trajectory = Trajectory(
            rollout_id=lease.rollout_id,
            group_id=lease.group_id,
            task_id=lease.task_id,
            seed=lease.seed,
            environment=self.identity.name,
            instruction=played.instruction,
            outcome=played.outcome,
            reward=played.reward,
            steps=(),
            started_unix_s=played.started_unix_s,
            duration_s=played.duration_s,
        )
        verdict = await self._write(
            m.FinishRollout(
                rollout_id=lease.rollout_id,
                fence=lease.fence,
                trajectory=trajectory,
                steps_sha256=await self._put(played.steps),
            )
        )
        self.log.info(
            "trajectory_ended",
            task=lease.task_id,
            rollout=lease.rollout_id,
            attempt=lease.attempt,
            outcome=played.outcome,
            reward=played.reward,
            steps=len(played.steps),
            replayed=lease.parked_steps,
            duration_s=round(played.duration_s, 3),
            verdict=verdict.value,
        )
        self.tell("curator", m.RolloutStored(rollout_id=lease.rollout_id))

    async def _store_evaluation(self, task: m.EvaluationTask, played: PlayedEpisode) -> None:
        """Report the result to the curator, which knows whether this environment still has the lease."""
        call = m.EvaluationEnded(
            fence=task.fence,
            policy_version=min(step.policy_version for step in played.steps),
            reward=played.reward,
            play=EvaluationPlay(
                environment=self.identity.name,
                instruction=played.instruction,
                outcome=played.outcome,
                num_steps=len(played.steps),
                steps_sha256=await self._put(played.steps),
                started_unix_s=played.started_unix_s,
                duration_s=played.duration_s,
            ),
        )
        verdict = await self._write(call, to="curator")
        self.log.info("evaluation_ended", task=task.task_id, reward=played.reward, verdict=verdict.value)

    async def _store_guided(self, task: m.GuidedTask, played: PlayedEpisode) -> None:
        # Without the entropies, because those under a hint compare with no others.
        steps = tuple(replace(step, entropies=()) for step in played.steps)
        verdict = await self._write(
            m.RecordGuided(
                guide_id=task.pool_id,
                attempt=task.attempt,
                instruction=played.instruction,
                reward=played.reward,
                steps_sha256=await self._put(steps),
            )
        )
        self.log.info(
            "guided_episode_ended",
            task=task.task_id,
            demonstration=task.pool_id,
            attempt=task.attempt,
            reward=played.reward,
            steps=len(played.steps),
            verdict=verdict.value,
        )
        self.tell("curator", m.GuidedStored(fence=task.fence, task_id=task.task_id))

    async def _park(self, work: Work, interrupted: Interrupted) -> None:
        """Store the steps of an interrupted rollout, without spending an attempt.

        Evaluation and guided episodes are not stored, but played again from their start."""
        if not isinstance(work, RolloutLease):
            self._report(work, FaultKind.SYSTEM, str(interrupted), is_interrupted=True)
            return
        verdict = await self._write(
            m.ParkRollout(
                rollout_id=work.rollout_id,
                fence=work.fence,
                steps_sha256=await self._put(interrupted.steps),
                reason=f"{self.identity.name} stops",
                max_resumes=self.config.curation.max_resumes,
                max_attempts=self.config.curation.max_attempts,
            )
        )
        self.log.info(
            "episode_parked", rollout=work.rollout_id, steps=len(interrupted.steps), verdict=verdict.value
        )
        self.tell("curator", m.RolloutParked(rollout_id=work.rollout_id))

    def _report(self, work: Work, kind: FaultKind, detail: str, *, is_interrupted: bool = False) -> None:
        """Report an episode without a reward to the curator.

        is_interrupted   whether the episode was interrupted and met no fault, so that it spends no attempt;
                         only for evaluation and guided episodes, because an interrupted rollout is parked
        """
        report: m.RolloutFailed | m.GuidedFailed | m.EvaluationFailed
        if not is_interrupted:
            self.log.warning("episode_failed", task=work.task_id, kind=kind, detail=detail)
        detail = detail[: m.DETAIL_CHARACTERS]
        match work:
            case RolloutLease():
                report = m.RolloutFailed(
                    rollout_id=work.rollout_id, fence=work.fence, kind=kind, detail=detail
                )
            case m.GuidedTask() | m.EvaluationTask():
                failed = m.GuidedFailed if isinstance(work, m.GuidedTask) else m.EvaluationFailed
                report = failed(fence=work.fence, kind=kind, detail=detail, is_interrupted=is_interrupted)
        self.tell("curator", report)

    async def _put(self, steps: Sequence[Step]) -> str:
        """Store steps as a blob and return its sha256, by which the report of the episode names them."""
        return await put_blob(self, self._steps, "the steps of an episode", pack_steps(steps))

    async def _write(self, call: m.Call[T], to: str = "store") -> T:
        """Send a call and return its result, even if the receiver restarts meanwhile.

        to   `store`, or `curator` for a result that the curator records after it has checked the lease
        """
        # While the run ends, a store that died is not started again.
        return await write_through_restarts(
            self, call, to, is_over=lambda: self._stopping.is_set and not self._runs(to)
        )

    def _runs(self, name: str) -> bool:
        slot = self.board.find(name)
        return slot is not None and self.board.state(slot) is ActorState.RUNNING

    def _record_load(self) -> None:
        emit(self, LOAD, self.identity.name, self._meter.totals())
