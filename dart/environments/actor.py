"""The environment actor: one browser (or VM), one episode at a time, for ever.

Asks       the curator for work (demand drives; nobody pushes) and to record the result of an evaluation,
           a rollout actor for each answer, the store to keep the finished trajectory
Tells      weight_sync which engine did not answer, the store how busy it was
Waits for  its own asyncio loop, which drives the environment; every call there has a deadline
Dies when  the environment fails several times in a row: its supervisor backs off and starts afresh
On stop    it plays to the end what ends soon enough, else it parks the episode: its steps are in the record
On restart the curator takes the lease of the dead incarnation back and the rollout is played again; one that
           was parked is taken up by whoever gets its lease
"""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from actors.actor import Actor
from actors.board import ActorState
from actors.errors import AskError, MailboxFull
from actors.future import Future
from dart.config.config import Config
from dart.core import messages as m
from dart.core.actions import is_action
from dart.core.records import StoredResult
from dart.core.run_directory import RunPaths, make_private
from dart.core.types import FaultKind, RolloutLease, Step, Trajectory
from dart.environments.cancellation import Interruption
from dart.environments.episode import EpisodeTask, Interrupted, PlayedEpisode, Player, ReplayFailed
from dart.environments.factory import make_environment
from dart.environments.faults import EnvironmentFault
from dart.environments.policy_client import NoAnswer, PolicyClient, Unanswered
from dart.environments.protocol import EpisodeKey
from dart.policy.context import first_of_hint
from dart.store.blobs import BlobStore
from dart.store.client import write
from dart.store.disk_wait import await_room
from dart.store.reader import StoreReader
from dart.store.step_files import discard, send, send_guided
from dart.telemetry.emit import emit
from dart.telemetry.load_meter import LOAD, LoadMeter

STORE_PATIENCE_S = 60.0
"""How long a write is tried while the store is being restarted."""

STORE_RETRY_S = 0.2

CURATOR_PAUSE_S = 0.5

MAX_FAULTS_IN_ROW = 3
"""The environment repairs itself at the next reset; if that did not help this often, it starts afresh."""

FINISH_SHARE = 0.6
"""Of the time to stop, for the episode to end by itself; the rest is for parking it and for cleaning up."""


class LeaseLost(Exception):
    """What this environment holds is not its own any more; nothing it does with it would count."""


Work = RolloutLease | m.EvaluationTask | m.GuidedTask


class EnvironmentActor(Actor):
    """Plays what the curator leases it."""

    def on_start(self) -> None:
        self._config = config = Config.model_validate(self.args["config"])
        paths = RunPaths(self.identity.run_dir)
        scratch = paths.scratch / self.identity.name
        shutil.rmtree(scratch, ignore_errors=True)  # a killed browser leaves its profile behind
        self._parcels = paths.step_files
        make_private(paths.scratch, scratch, self._parcels)
        self._environment = make_environment(
            config, self.identity.name, self.identity.incarnation, paths, self.clock.unix_s
        )
        self._meter = LoadMeter(self.clock.monotonic_s)
        self._player = Player(
            self,
            self._environment,
            config.environments,
            PolicyClient(
                self,
                list(self.args["workers"]),
                config.curation,
                answer_deadline_s=config.rollout.answer_deadline_s,
            ),
            BlobStore(self.identity.run_dir / "blobs"),
            self._meter,
        )
        self._faults_in_row = 0
        self._has_screen = False
        self._retiring = Interruption()
        self._over: Future[None] = Future()
        self.every(config.telemetry.load_every_s, self._record_load)
        self.after(0.0, self._play_for_ever)

    async def on_stop(self) -> None:
        self._retiring.set()
        if self._store_runs():  # else there is nobody to give an episode to, however it ends
            shutdown_s = self._config.supervision.child(self.identity.name).shutdown_s
            self.after(FINISH_SHARE * shutdown_s, self._player.interruption.set)
            await self._over
            self._record_load()
        await self.in_loop(self._environment.close())

    async def on_probe(self) -> bool:
        """A real screenshot; before the first episode there is no screen to take one of."""
        if not self._has_screen:
            return True
        deadline_s = self._config.environments.observe_deadline_s
        return await self.in_loop(self._environment.healthy(deadline_s=deadline_s))

    # ---- work ----

    async def _play_for_ever(self) -> None:
        while not self._retiring.has_come:
            with self._meter.during("idle_s"):
                work = await self._next_work()
            if work is not None:
                await self._take(work)
        self._over.succeed(None)

    async def _next_work(self) -> Work | None:
        """What the curator has for this environment; None when there is nothing now."""
        try:
            answer = await self.ask("curator", m.WorkRequest(environment=self.identity.name), deadline_s=20.0)
        except (AskError, MailboxFull) as error:
            self.log.info("no_curator", reason=str(error))
            answer = m.NoWorkYet(retry_after_s=CURATOR_PAUSE_S, reason=str(error))
        if isinstance(answer, m.NoWorkYet):
            await self._retiring.or_first_of(self.sleep(answer.retry_after_s))
            return None
        return answer  # type: ignore[no-any-return]

    async def _take(self, work: Work) -> None:
        try:
            await self._carry_out(work)
            self._faults_in_row = 0
            self.used()  # not by what failed: it shows that this environment can be played on
        except EnvironmentFault as fault:
            self._has_screen = False
            await self._report(work, fault.kind, str(fault))
            if fault.kind is not FaultKind.TASK:  # what cannot be played anywhere has broken nothing
                self._faults_in_row += 1
            if self._faults_in_row >= MAX_FAULTS_IN_ROW:
                raise
        except (AskError, MailboxFull, NoAnswer) as error:  # the store or the engines, not the task
            await self._report(work, FaultKind.SYSTEM, str(error))
        except Unanswered as refused:
            await self._report(work, FaultKind.POLICY, str(refused))

    async def _carry_out(self, work: Work) -> None:
        task = self._task_of(work)
        try:
            played = await self._played(work, task)
        except Interrupted as interrupted:
            await self._park(work, interrupted)
            return
        except LeaseLost as lost:
            self.log.warning("lease_lost", task=work.task_id, detail=str(lost))
            return
        self._has_screen = True
        match work:
            case RolloutLease():
                await self._store_rollout(work, played)
            case m.GuidedTask():
                await self._store_guided(work, played)
            case m.EvaluationTask():
                await self._store_evaluation(work, played)

    async def _played(self, work: Work, task: EpisodeTask) -> PlayedEpisode:
        if self._retiring.has_come:  # it came when this actor was told to stop: somebody else shall play it
            raise Interrupted(task.parked)
        try:
            return await self._player.play(task)
        except ReplayFailed as failure:
            assert isinstance(work, RolloutLease), "only rollouts are parked"
            self.log.warning("replay_failed", rollout=work.rollout_id, detail=str(failure))
            await self._forget_parked(work, str(failure))
            return await self._player.play(replace(task, parked=()))

    async def _forget_parked(self, lease: RolloutLease, detail: str) -> None:
        """Before an episode is played anew. Raises LeaseLost where it is not this one's to play any more."""
        call = m.ForgetParked(rollout_id=lease.rollout_id, fence=lease.fence, detail=detail)
        verdict = await self._write(call)
        if verdict.value not in (StoredResult.ACCEPTED, StoredResult.DUPLICATE):
            self.tell("curator", m.RolloutParked(rollout_id=lease.rollout_id))  # it looks what became of it
            raise LeaseLost(f"rollout {lease.rollout_id} could not be played anew: {verdict.value}")

    def _task_of(self, work: Work) -> EpisodeTask:
        if isinstance(work, m.EvaluationTask):
            return EpisodeTask(
                task_id=work.task_id,
                seed=work.seed,
                step_cap=work.step_cap,
                temperature=work.temperature,
                key=EpisodeKey(),
            )
        if isinstance(work, m.GuidedTask):
            return EpisodeTask(
                task_id=work.task_id,
                seed=work.seed,
                step_cap=work.step_cap,
                temperature=self._config.rollout.temperature,
                key=EpisodeKey(),
                hint=self._actions_of(work.pool_id),
            )
        return EpisodeTask(
            task_id=work.task_id,
            seed=work.seed,
            step_cap=work.step_cap,
            temperature=self._config.rollout.temperature,
            key=EpisodeKey(rollout_id=work.rollout_id, attempt=work.attempt, fence=work.fence),
            parked=self._parked_steps(work),
        )

    def _parked_steps(self, lease: RolloutLease) -> tuple[Step, ...]:
        if not lease.parked_steps:
            return ()
        with StoreReader(Path(self.args["store"])) as reader:
            return reader.parked_steps(lease.rollout_id)

    def _actions_of(self, pool_id: int) -> tuple[str, ...]:
        """What a demonstration did, as far as a request can carry it."""
        with StoreReader(Path(self.args["store"])) as reader:
            answers = [step.answer for step in reader.demonstration(pool_id).steps]
        return first_of_hint([answer for answer in answers if is_action(answer)])

    # ---- what became of it ----

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
        verdict = await self._send(
            lambda: send(self._parcels, lease.rollout_id, lease.fence, played.steps),
            lambda steps: m.FinishRollout(
                rollout_id=lease.rollout_id, fence=lease.fence, trajectory=trajectory, steps=steps
            ),
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
        """The curator records it: it knows whether this environment holds the episode still."""
        call = m.EvaluationEnded(
            fence=task.fence,
            policy_version=max(step.policy_version for step in played.steps),
            reward=played.reward,
        )
        verdict = await self._write(call, to="curator")
        self.log.info("evaluation_ended", task=task.task_id, reward=played.reward, verdict=verdict.value)

    async def _store_guided(self, task: m.GuidedTask, played: PlayedEpisode) -> None:
        verdict = await self._send(
            lambda: send_guided(self._parcels, task.pool_id, task.attempt, self.identity.name, played.steps),
            lambda steps: m.RecordGuided(
                guide_id=task.pool_id,
                attempt=task.attempt,
                instruction=played.instruction,
                reward=played.reward,
                steps=steps,
            ),
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
        self.tell("curator", m.GuidedStored(pool_id=task.pool_id, task_id=task.task_id))

    async def _park(self, work: Work, interrupted: Interrupted) -> None:
        """Keep what was played; no attempt is spent. What is no rollout is played again from its start."""
        if not isinstance(work, RolloutLease):
            self.tell(
                "curator", self._unscored(work, FaultKind.SYSTEM, str(interrupted), is_interrupted=True)
            )
            return
        verdict = await self._send(
            lambda: send(self._parcels, work.rollout_id, work.fence, interrupted.steps),
            lambda steps: m.ParkRollout(
                rollout_id=work.rollout_id,
                fence=work.fence,
                steps=steps,
                reason=f"{self.identity.name} stops",
                max_resumes=self._config.curation.max_resumes,
            ),
        )
        self.log.info(
            "episode_parked", rollout=work.rollout_id, steps=len(interrupted.steps), verdict=verdict.value
        )
        self.tell("curator", m.RolloutParked(rollout_id=work.rollout_id))

    async def _report(self, work: Work, kind: FaultKind, detail: str) -> None:
        """A fault spends an attempt; it never becomes a reward."""
        if isinstance(work, RolloutLease):
            report: Any = m.RolloutFailed(
                rollout_id=work.rollout_id, fence=work.fence, kind=kind, detail=detail
            )
        else:
            report = self._unscored(work, kind, detail)
        self.log.warning("episode_failed", task=work.task_id, kind=kind, detail=detail)
        self.tell("curator", report)

    def _unscored(
        self,
        task: m.EvaluationTask | m.GuidedTask,
        kind: FaultKind,
        detail: str,
        *,
        is_interrupted: bool = False,
    ) -> m.EvaluationFailed | m.GuidedFailed:
        """What the curator is told of an episode that is no rollout and has no reward."""
        if isinstance(task, m.GuidedTask):
            return m.GuidedFailed(pool_id=task.pool_id, detail=detail, is_interrupted=is_interrupted)
        return m.EvaluationFailed(fence=task.fence, kind=kind, detail=detail, is_interrupted=is_interrupted)

    async def _send(
        self, write_steps: Callable[[], m.StepFile], call_with: Callable[[m.StepFile], Any]
    ) -> m.CallResult:
        """A write that brings steps along; they are on the disk until the store has them."""
        step_file = await await_room(self, "the steps of an episode", write_steps)
        try:
            return await self._write(call_with(step_file))
        finally:
            discard(step_file)

    async def _write(self, call: Any, to: str = "store") -> m.CallResult:
        """Writes are idempotent: a store that is being restarted is asked again, a full disk waited for.

        to   `curator` for what it records after a look at the lease
        Patience counts from the last answer, which may be that it waits for room.
        """
        heard_s = self.clock.monotonic_s()

        def it_spoke(_: str) -> None:
            nonlocal heard_s
            heard_s = self.clock.monotonic_s()

        while True:
            try:
                verdict: m.CallResult = await write(self, call, it_spoke, to)
                return verdict
            except (AskError, MailboxFull):
                # Told to stop: a store that died comes back only after everybody who depends on it has ended.
                is_over = self._retiring.has_come and not self._runs(to)
                if is_over or self.clock.monotonic_s() - heard_s >= STORE_PATIENCE_S:
                    raise
                await self.sleep(STORE_RETRY_S)

    def _store_runs(self) -> bool:
        return self._runs("store")

    def _runs(self, name: str) -> bool:
        slot = self.board.find(name)
        return slot is not None and self.board.state(slot) is ActorState.RUNNING

    def _record_load(self) -> None:
        emit(self, LOAD, self.identity.name, self._meter.totals())
