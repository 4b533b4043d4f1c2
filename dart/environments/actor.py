"""The environment actor: one browser (or VM), one episode at a time, for ever.

Asks       the curator for work (demand drives; nobody pushes), a rollout actor for each answer,
           the store to keep the finished trajectory
Waits for  its own asyncio loop, which drives the environment; every call there has a deadline
Dies when  the environment fails several times in a row: its supervisor backs off and starts afresh
On restart the curator takes the lease of the dead incarnation back and the rollout is played again
"""

import shutil
import time
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any, TypeVar

from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, stop_after_delay, wait_fixed

from actors.actor import Actor
from actors.board import ActorState
from actors.completion import Completion
from actors.errors import AskError, MailboxFull
from dart import messages as m
from dart.config import Config
from dart.environments.actions import ActionParseError, Finished, parse_action
from dart.environments.faults import EnvironmentFault, InfrastructureFault
from dart.environments.make import make_environment
from dart.rundir import RunPaths
from dart.store.blobs import BlobStore
from dart.store.client import write
from dart.store.records import Evaluation, Phase
from dart.types import FaultKind, GenerateRequest, Generation, Outcome, RolloutLease, Step, Trajectory

GENERATE_DEADLINE_S = 30.0
GENERATE_PATIENCE_S = 120.0
"""How long an episode waits for an engine that is being restarted before it counts as failed."""

STORE_PATIENCE_S = 60.0
CURATOR_PAUSE_S = 0.5
MAX_FAULTS_IN_ROW = 3
"""The environment repairs itself at the next reset; if that did not help this often, it starts afresh."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Played:
    """One finished episode."""

    instruction: str
    outcome: Outcome
    reward: float
    steps: tuple[Step, ...]
    started_unix_s: float
    duration_s: float


class EnvironmentActor(Actor):
    """Plays what the curator leases it."""

    def on_start(self) -> None:
        self._config = Config.model_validate(self.args["config"])
        self._limits = self._config.environments
        self._workers: list[str] = list(self.args["workers"])
        self._blobs = BlobStore(self.identity.run_dir / "blobs")
        paths = RunPaths(self.identity.run_dir)
        scratch = paths.scratch / self.identity.name
        shutil.rmtree(scratch, ignore_errors=True)  # a killed browser leaves its profile behind
        scratch.mkdir(parents=True)
        self._environment = make_environment(
            self._config, self.identity.name, self.identity.incarnation, paths, self.clock.unix_s
        )
        self._faults_in_row = 0
        self._is_retiring = False
        self._episode_over: Completion[None] = Completion()
        self._episode_over.succeed(None)
        self.after(0.0, self._play_for_ever)

    async def on_stop(self) -> None:
        """What is being played is played to its end, as far as the time to stop allows."""
        self._is_retiring = True
        await self._episode_over
        await self.in_loop(self._environment.close())

    # ---- work ----

    async def _play_for_ever(self) -> None:
        while not self._is_retiring:
            work = await self._next_work()
            self._episode_over = Completion()
            try:
                await self._carry_out(work)
                self._faults_in_row = 0
            except EnvironmentFault as fault:
                await self._report(work, fault.kind, str(fault))
                self._faults_in_row += 1
                if self._faults_in_row >= MAX_FAULTS_IN_ROW:
                    raise
            except AskError as error:
                await self._report(work, FaultKind.INFRASTRUCTURE, str(error))
            finally:
                self.used()
                self._episode_over.succeed(None)

    async def _next_work(self) -> RolloutLease | m.EvaluationTask:
        while True:
            try:
                answer = await self.ask(
                    "curator", m.WorkRequest(environment=self.identity.name), deadline_s=20.0
                )
            except (AskError, MailboxFull) as error:
                self.log.info("no_curator", reason=str(error))
                await self.sleep(CURATOR_PAUSE_S)
                continue
            if not isinstance(answer, m.Wait):
                return answer  # type: ignore[no-any-return]
            await self.sleep(answer.retry_after_s)

    async def _carry_out(self, work: RolloutLease | m.EvaluationTask) -> None:
        if isinstance(work, RolloutLease):
            temperature = self._config.rollout.temperature
            played = await self._episode(work.task_id, work.seed, work.step_cap, temperature)
            await self._store_rollout(work, played)
        else:
            played = await self._episode(work.task_id, work.seed, work.step_cap, work.temperature)
            await self._store_evaluation(work, played)

    async def _store_rollout(self, lease: RolloutLease, played: Played) -> None:
        trajectory = Trajectory(
            rollout_id=lease.rollout_id,
            group_id=lease.group_id,
            task_id=lease.task_id,
            seed=lease.seed,
            environment=self.identity.name,
            instruction=played.instruction,
            outcome=played.outcome,
            reward=played.reward,
            steps=played.steps,
            started_unix_s=played.started_unix_s,
            duration_s=played.duration_s,
        )
        call = m.FinishRollout(rollout_id=lease.rollout_id, fence=lease.fence, trajectory=trajectory)
        verdict = await self._write(call)
        self.log.info(
            "trajectory_ended",
            task=lease.task_id,
            rollout=lease.rollout_id,
            attempt=lease.attempt,
            outcome=played.outcome,
            reward=played.reward,
            steps=len(played.steps),
            duration_s=round(played.duration_s, 3),
            verdict=verdict.value,
        )
        self.tell("curator", m.RolloutStored(rollout_id=lease.rollout_id))

    async def _store_evaluation(self, task: m.EvaluationTask, played: Played) -> None:
        evaluation = Evaluation(
            phase=Phase(task.phase),
            policy_version=max(step.policy_version for step in played.steps),
            task_id=task.task_id,
            seed=task.seed,
            reward=played.reward,
        )
        await self._write(m.RecordEvaluation(evaluation=evaluation))
        self.tell("curator", m.EvaluationStored(task_id=task.task_id, seed=task.seed))

    async def _report(self, work: RolloutLease | m.EvaluationTask, kind: FaultKind, detail: str) -> None:
        """A fault spends an attempt; it never becomes a reward."""
        if isinstance(work, RolloutLease):
            report: Any = m.RolloutFailed(
                rollout_id=work.rollout_id, fence=work.fence, kind=kind, detail=detail
            )
        else:
            report = m.EvaluationFailed(task_id=work.task_id, seed=work.seed, detail=detail)
        self.log.warning("episode_failed", task=work.task_id, kind=kind, detail=detail)
        self.tell("curator", report)

    # ---- one episode ----

    async def _episode(self, task_id: str, seed: int, step_cap: int, temperature: float) -> Played:
        started_unix_s, started_s = self.clock.unix_s(), self.clock.monotonic_s()
        observation, observe_ms = await self._reset(task_id, seed)
        instruction = observation.instruction
        steps: list[Step] = []
        outcome = Outcome.STEP_CAP
        while len(steps) < step_cap:
            sha256 = self._blobs.put(observation.screenshot)
            generation, generate_ms = await self._timed(
                self._generate(sha256, instruction, tuple(step.answer for step in steps), temperature)
            )
            ended, act_ms = await self._timed(self._act(generation.answer))
            steps.append(_step(sha256, generation, observe_ms, generate_ms, act_ms))
            if ended is not None:
                outcome = ended
                break
            if len(steps) < step_cap:
                observe = self._environment.observe(deadline_s=self._limits.observe_deadline_s)
                observation, observe_ms = await self._timed(self.in_loop(observe))
        return Played(
            instruction=instruction,
            outcome=outcome,
            reward=await self._reward(outcome),
            steps=tuple(steps),
            started_unix_s=started_unix_s,
            duration_s=self.clock.monotonic_s() - started_s,
        )

    async def _act(self, answer: str) -> Outcome | None:
        """Apply one answer; how the episode ended, or None when it goes on."""
        try:
            action = parse_action(answer)
        except ActionParseError:
            return Outcome.PARSE_ERROR
        if isinstance(action, Finished):
            return Outcome.FINISHED
        step = self._environment.step(action, deadline_s=self._limits.step_deadline_s)
        result = await self.in_loop(step)
        return Outcome.TERMINATED if result.terminated else None

    async def _reward(self, outcome: Outcome) -> float:
        if outcome is Outcome.PARSE_ERROR:
            return 0.0
        return await self.in_loop(self._environment.evaluate(deadline_s=self._limits.evaluate_deadline_s))

    async def _reset(self, task_id: str, seed: int) -> tuple[Any, float]:
        """A reset may be tried again: it starts from nothing. A step never is."""
        async for attempt in self._retrying(
            InfrastructureFault, attempts=2, patience_s=2 * self._limits.reset_deadline_s
        ):
            with attempt:
                reset = self._environment.reset(task_id, seed, deadline_s=self._limits.reset_deadline_s)
                return await self._timed(self.in_loop(reset))
        raise AssertionError("tenacity returns or raises")

    async def _generate(
        self, sha256: str, instruction: str, history: tuple[str, ...], temperature: float
    ) -> Generation:
        """Asking again changes nothing in the world, so an engine that died is simply asked anew."""
        request = GenerateRequest(
            screenshot_path=str(self._blobs.path(sha256)),
            screenshot_sha256=sha256,
            instruction=instruction,
            history=history,
            temperature=temperature,
        )
        async for attempt in self._retrying(
            (AskError, MailboxFull), attempts=1000, patience_s=GENERATE_PATIENCE_S
        ):
            with attempt:
                generation: Generation = await self.ask(
                    self._least_busy_worker(), m.Generate(request=request), deadline_s=GENERATE_DEADLINE_S
                )
                return generation
        raise AssertionError("tenacity returns or raises")

    async def _write(self, call: Any) -> m.Verdict:
        """Writes are idempotent; a store that is being restarted is asked again."""
        async for attempt in self._retrying(
            (AskError, MailboxFull), attempts=1000, patience_s=STORE_PATIENCE_S
        ):
            with attempt:
                verdict: m.Verdict = await write(self, call)
                return verdict
        raise AssertionError("tenacity returns or raises")

    def _retrying(self, kinds: Any, *, attempts: int, patience_s: float) -> AsyncRetrying:
        return AsyncRetrying(
            retry=retry_if_exception_type(kinds),
            stop=stop_after_attempt(attempts) | stop_after_delay(patience_s),
            wait=wait_fixed(0.2),
            sleep=self.sleep,
            reraise=True,
        )

    def _least_busy_worker(self) -> str:
        """The rollout actor in routing with the fewest requests; whoever lives when none is in routing."""

        def load(worker: str) -> tuple[bool, bool, int]:
            slot = self.board.find(worker)
            if slot is None:
                return True, True, 0
            is_down = self.board.state(slot) is not ActorState.RUNNING
            return is_down, not self.board.get(slot, "ready"), self.board.get(slot, "gauge_in_flight")

        return min(self._workers, key=load)

    async def _timed(self, work: Awaitable[T]) -> tuple[T, float]:
        """The result and how many milliseconds it took."""
        started = time.perf_counter()
        return await work, (time.perf_counter() - started) * 1000


def _step(sha256: str, generation: Generation, observe_ms: float, generate_ms: float, act_ms: float) -> Step:
    return Step(
        screenshot_sha256=sha256,
        prompt_ids=generation.prompt_ids,
        token_ids=generation.token_ids,
        logprobs=generation.logprobs,
        entropies=generation.entropies,
        answer=generation.answer,
        policy_version=generation.policy_version,
        observe_ms=observe_ms,
        generate_ms=generate_ms,
        act_ms=act_ms,
    )
