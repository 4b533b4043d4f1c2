"""Plays an episode: reset; observe, ask the policy and act until the episode ends; then compute the reward.

An episode can be interrupted between two steps, or while a call of its environment takes too long. Its steps
are then stored in the record. The environment that continues the episode first replays the recorded answers,
and compares each screenshot with the recorded one. Environments that cannot replay play it from its start.
An episode whose environment failed is continued in the same way, if `environments.turn_resumes` allows it.
While an answer takes longer than `environments.park_after_s`, the screen is parked: its clock stands still.
"""

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from tenacity import retry, retry_if_exception_type, stop_after_attempt, stop_after_delay, wait_fixed

from actors.actor import Actor
from actors.future import Future
from dart.config.config import Config
from dart.config.environment_kinds import kind_of
from dart.config.failing_time import RESET_ATTEMPTS
from dart.core.actions import ActionParseError, CallUser, Finished, parse_actions
from dart.core.types import GenerateRequest, Generation, Outcome, PastStep, Step
from dart.environments.call_watch import CallWatch
from dart.environments.faults import EnvironmentFault, InfrastructureFault, WrongResult
from dart.environments.policy_client import PolicyClient, RequestRejected
from dart.environments.protocol import NO_ROLLOUT, Box, Environment, EpisodeKey, Observation
from dart.environments.result_checks import checked_observation, checked_step, refuse_undecodable
from dart.environments.scoring import checked_score, reward_of
from dart.environments.turn_resume import may_resume
from dart.policy.context import history_answer, newest_history, newest_past
from dart.store.disk_wait import await_room, put_blob
from dart.store.run_blobs import run_blobs
from dart.telemetry.load_meter import LoadMeter

RESET_PAUSE_S = 0.2

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeTask:
    """What an environment needs to play one episode: of a rollout, an evaluation or a guided episode."""

    task_id: str
    seed: int
    step_cap: int
    temperature: float
    key: EpisodeKey = NO_ROLLOUT
    parked: tuple[Step, ...] = ()
    """Steps from before the episode was interrupted; they are replayed first."""
    hint: tuple[str, ...] = ()
    """Actions that solved this task before; the policy sees them in its prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedEpisode:
    """One finished episode with its outcome, its reward and its steps."""

    instruction: str
    outcome: Outcome
    reward: float
    steps: tuple[Step, ...]
    started_unix_s: float
    duration_s: float


class Interrupted(Exception):
    """The episode was interrupted; ``steps`` holds the steps that are replayed when it continues: all so far;
    all but the last if it was being judged; none if its environment cannot replay."""

    def __init__(self, steps: Sequence[Step]) -> None:
        super().__init__(f"interrupted after {len(steps)} steps")
        self.steps = tuple(steps)


class ReplayFailed(Exception):
    """The replay of recorded answers led to other screens than the recorded ones, or ended the episode.

    The actor then plays a parked episode from its start."""


class StopEvent:
    """An event that is set at most once. Setting the event ends all waits in `wait_first`."""

    def __init__(self) -> None:
        self.is_set = False
        self._waits: set[Future[None]] = set()

    def set(self) -> None:
        """Set the event and end all waits."""
        self.is_set = True
        for wait in list(self._waits):
            wait.succeed(None)

    async def wait_first(self, *futures: Future[Any]) -> None:
        """Wait until one of the futures has a result or an error, or until the event is set."""
        if self.is_set:
            return
        wait: Future[None] = Future()
        self._waits.add(wait)
        for future in futures:
            future.then(lambda: wait.succeed(None))
        await wait
        self._waits.discard(wait)


@dataclass(frozen=True, slots=True)
class _GivenAnswer:
    """An answer of the policy whose step is not over, with the screenshot that it was given for."""

    generation: Generation
    generate_ms: float
    screenshot_sha256: str


@dataclass(frozen=True, slots=True)
class _Acted:
    """What the actions of an answer came to."""

    outcome: Outcome | None
    """How the episode ended; None when it continues."""
    box: Box | None = None
    """The box of the element that the answer clicked; None with several actions, and if it is unknown."""


@dataclass(slots=True)
class _Progress:
    """The state of an episode that is being played."""

    task: EpisodeTask
    observation: Observation
    observe_ms: float
    steps: list[Step] = field(default_factory=list)
    outcome: Outcome | None = None
    """How the episode ended; None while it continues."""
    given: _GivenAnswer | None = None
    """The answer of the step in progress; None between two steps.

    A step that is resumed after a fault applies the same answer again. If the policy were asked again,
    actions that break the environment would be rarer in the data than the policy samples them."""


class Player:
    """Plays episodes on one environment for the actor that owns it, one at a time."""

    def __init__(self, actor: Actor, environment: Environment, config: Config, meter: LoadMeter) -> None:
        self.stop_event = StopEvent()
        """Set this event to end the episode before its next step, with `Interrupted`."""
        self._actor = actor
        self._environment = environment
        self._limits = config.environments
        self._policy = PolicyClient(actor, config)
        self._screenshots = run_blobs(config.run, actor.identity.run_dir).screenshots
        self._meter = meter
        self.is_resetting = False
        """Whether the environment is being reset, so that it may have no screen."""
        self.watch = CallWatch(self._limits.kind, config.curation.lease_s, actor.clock.monotonic_s)
        """The call of the environment in progress, however long the environment takes for it."""
        self._call: asyncio.Task[Any] | None = None
        """The call of the environment in progress; None between two calls."""
        self._is_cancelled = False

    async def cancel(self) -> None:
        """Cancel the call of the environment that is in progress, and refuse further ones.

        `play` then raises Interrupted. Runs in the environment's loop."""
        self._is_cancelled = True
        if self._call is not None:
            self._call.cancel()
            await asyncio.wait([self._call])

    async def play(self, task: EpisodeTask) -> PlayedEpisode:
        """Play an episode to its end.

        Raises EnvironmentFault, NoEngineAnswered, RequestRejected, Interrupted or ReplayFailed; the episode
        then has no reward.
        """
        clock = self._actor.clock
        started_unix_s, started_s = clock.unix_s(), clock.monotonic_s()
        with self._meter.during("in_episode_s"):
            progress = await self._begin(task)
            resumed = 0
            while progress.outcome is None:
                try:
                    await self._step(progress)
                except Interrupted as cancelled:
                    raise self._interrupted(progress.steps) from cancelled
                except EnvironmentFault as fault:
                    limit = self._limits.turn_resumes
                    if not may_resume(fault, steps=len(progress.steps), resumed=resumed, limit=limit):
                        raise
                    resumed += 1
                    progress = await self._resume(progress, fault)
            reward = await self._reward(progress, progress.outcome)
        return PlayedEpisode(
            instruction=progress.observation.instruction,
            outcome=progress.outcome,
            reward=reward,
            steps=tuple(progress.steps),
            started_unix_s=started_unix_s,
            duration_s=clock.monotonic_s() - started_s,
        )

    async def _begin(self, task: EpisodeTask) -> _Progress:
        """Reset the environment and replay the steps of a parked episode.

        Raises Interrupted with these steps, if the environment can replay."""
        try:
            observation, observe_ms = await self._reset(task)
            progress = _Progress(task, observation, observe_ms)
            for step in task.parked:
                if self.stop_event.is_set:
                    raise Interrupted(())
                await self._replay(progress, step)
        except Interrupted as interrupted:
            raise self._interrupted(task.parked) from interrupted
        return progress

    def _interrupted(self, steps: Sequence[Step]) -> Interrupted:
        """Return the exception of an interrupted episode that continues with these steps.

        Without steps the episode is played from its start. Where a replay mostly fails there are none,
        because a replay that fails spends an attempt."""
        return Interrupted(steps if kind_of(self._limits).can_replay else ())

    async def _resume(self, failed: _Progress, fault: EnvironmentFault) -> _Progress:
        """Reset the environment after a fault and replay the episode up to the step that failed.

        Raises ``fault`` if a screen differs from the recorded one, and a new fault if the replay meets one.
        """
        steps = tuple(failed.steps)
        try:
            progress = await self._begin(replace(failed.task, parked=steps))
            if failed.given is not None and _hash_of(progress.observation) != failed.given.screenshot_sha256:
                raise ReplayFailed(
                    f"replay of {failed.task.task_id}: the newest screen differs from the recorded one"
                )
        except ReplayFailed as difference:
            self._actor.log.warning("turn_not_resumed", fault=str(fault), detail=str(difference))
            raise fault from difference
        progress.task, progress.given = failed.task, failed.given
        self._meter.add("turn_resumes", 1)
        self._meter.add("steps_saved", len(steps))
        self._actor.log.warning(
            "turn_resumed", task=failed.task.task_id, step=len(steps) + 1, fault=str(fault)
        )
        return progress

    async def _replay(self, progress: _Progress, step: Step) -> None:
        number, task_id = len(progress.steps) + 1, progress.task.task_id
        if _hash_of(progress.observation) != step.screenshot_sha256:
            raise ReplayFailed(f"replay of {task_id}: step {number} starts from another screen than recorded")
        if (await self._act(step.answer)).outcome is not None:
            raise ReplayFailed(
                f"replay of {task_id}: step {number} ended the episode, but the recorded episode continued"
            )
        progress.steps.append(step)
        await self._observe(progress)

    async def _step(self, progress: _Progress) -> None:
        if self.stop_event.is_set:
            raise Interrupted(())
        given = progress.given = progress.given or await self._ask(progress)
        acted, act_ms = await _timed(self._act(given.generation.answer))
        progress.steps.append(_step(given, progress.observe_ms, act_ms, acted.box))
        progress.given = None
        ended = acted.outcome
        if ended is None and len(progress.steps) >= progress.task.step_cap:
            ended = Outcome.STEP_CAP
        progress.outcome = ended
        if ended is None:
            await self._observe(progress)

    async def _ask(self, progress: _Progress) -> _GivenAnswer:
        """Store the screenshot as a blob and ask the policy for an answer.

        Raises Interrupted, NoEngineAnswered or RequestRejected; CorruptFrame if the reason for a rejection is
        that the screenshot cannot be decoded."""
        screenshot = progress.observation.screenshot
        sha256 = await put_blob(self._actor, self._screenshots, "screenshots", screenshot)
        try:
            generation, generate_ms = await _timed(self._answer(progress, sha256))
        except RequestRejected:
            refuse_undecodable(screenshot)
            raise
        return _GivenAnswer(generation, generate_ms, sha256)

    async def _answer(self, progress: _Progress, sha256: str) -> Generation:
        """Ask the policy for an answer, and park the screen while the answer takes long.

        Raises Interrupted, NoEngineAnswered or RequestRejected."""
        asked = self._policy.answer(
            GenerateRequest(
                screenshot_sha256=sha256,
                instruction=progress.observation.instruction,
                history=newest_history([history_answer(step.answer, step.box) for step in progress.steps]),
                temperature=progress.task.temperature,
                hint=progress.task.hint,
                past=newest_past([_past(step) for step in progress.steps]),
            )
        )
        with self._meter.during("engine_wait_s"):
            await self.stop_event.wait_first(asked, self._actor.sleep(self._limits.park_after_s))
            if not asked.is_done and not self.stop_event.is_set:
                deadline_s = self._limits.observe_deadline_s
                await self._in_environment("park", self._environment.park(deadline_s=deadline_s))
                await self.stop_event.wait_first(asked)
                await self._in_environment("unpark", self._environment.unpark(deadline_s=deadline_s))
        if not asked.is_done:
            raise Interrupted(())
        return asked.result()

    async def _act(self, answer: str) -> _Acted:
        """Apply the actions of one answer, up to the first that ends the episode."""
        try:
            actions = parse_actions(answer)
        except ActionParseError:
            return _Acted(Outcome.PARSE_ERROR)
        box = None
        for action in actions:
            if isinstance(action, Finished):
                return _Acted(Outcome.FINISHED)
            if isinstance(action, CallUser):
                return _Acted(Outcome.INFEASIBLE)
            step = self._environment.step(action, deadline_s=self._limits.step_deadline_s)
            result = checked_step(self._limits.kind, await self._timed_in_environment("step", step))
            box = _with_area(result.box) if len(actions) == 1 else None
            if result.terminated:
                return _Acted(Outcome.TERMINATED, box)
        return _Acted(None, box)

    async def _observe(self, progress: _Progress) -> None:
        observe = self._environment.observe(deadline_s=self._limits.observe_deadline_s)
        seen, progress.observe_ms = await _timed(self._timed_in_environment("observe", observe))
        progress.observation = checked_observation(self._limits.kind, "observe", seen)

    async def _reward(self, progress: _Progress, outcome: Outcome) -> float:
        """Evaluate the episode and return its reward. While the disk is full, wait.

        The evaluation runs even if the outcome alone decides the reward, because it detects faults.
        Raises EnvironmentFault or Interrupted."""
        task_id, deadline_s = progress.task.task_id, self._limits.evaluate_deadline_s

        async def evaluate() -> float:
            work = self._environment.evaluate(deadline_s=deadline_s)
            return await self._timed_in_environment("evaluate", work)

        try:
            raw = await await_room(self._actor, "an evaluation", evaluate)
        except Interrupted as cancelled:
            # The last step is played again, because its replay would end the episode.
            raise self._interrupted(progress.steps[:-1]) from cancelled
        score = checked_score(task_id, self._limits.kind, raw)
        keep = self._environment.keep_judgement
        await await_room(self._actor, "a judgement", lambda: self._in_environment("keep_judgement", keep()))
        return reward_of(outcome, score, self._environment.is_infeasible(task_id))

    async def _reset(self, task: EpisodeTask) -> tuple[Observation, float]:
        """Reset the environment; after an infrastructure fault, try once more, because a reset starts anew.
        While the disk is full, wait.

        Returns the first observation and how many milliseconds the reset took."""
        deadline_s = self._limits.reset_deadline_s

        @retry(
            retry=retry_if_exception_type(InfrastructureFault),
            stop=stop_after_attempt(RESET_ATTEMPTS) | stop_after_delay(RESET_ATTEMPTS * deadline_s),
            wait=wait_fixed(RESET_PAUSE_S),
            sleep=self._actor.sleep,
            reraise=True,
        )
        async def reset() -> tuple[Observation, float]:
            work = self._environment.reset(task.task_id, task.seed, deadline_s=deadline_s, episode=task.key)
            seen, reset_ms = await _timed(self._timed_in_environment("reset", work))
            return checked_observation(self._limits.kind, "reset", seen), reset_ms

        self.is_resetting = True
        try:
            return await await_room(self._actor, "a reset", reset)
        finally:
            self.is_resetting = False

    async def _timed_in_environment(self, call: str, work: Awaitable[T]) -> T:
        """Await ``work`` in the environment's loop, and count its time in `strict_s` of the load meter: time
        that the environment takes, without waiting for an engine.

        Raises Interrupted when `cancel` ends it, and WrongResult if ``work`` is no coroutine.
        """
        if not isinstance(work, Coroutine):
            expected = "a coroutine (define it with `async def`)"
            raise WrongResult(self._limits.kind, call, expected, work)
        with self._meter.during("strict_s"):
            return await self._in_environment(call, self._cancellable(call, work))

    async def _in_environment(self, call: str, work: Coroutine[Any, Any, T]) -> T:
        """Await ``work``, a call of this method, in the environment's loop. Raises InfrastructureFault for a
        TimeoutError; `watch` notices if the call lasts."""
        with self.watch.during(call):
            return await self._actor.in_loop(work)

    async def _cancellable(self, call: str, work: Coroutine[Any, Any, T]) -> T:
        """Await a call of the environment. Raises Interrupted when `cancel` ends it, and InfrastructureFault
        when the environment cancels its own call."""
        self._call = asyncio.current_task()
        try:
            if self._is_cancelled:
                work.close()
                raise Interrupted(())
            return await work
        except asyncio.CancelledError as cancelled:
            if self._is_cancelled:
                raise Interrupted(()) from None
            raise InfrastructureFault(f"{call} was cancelled inside the environment") from cancelled
        finally:
            self._call = None


async def _timed(work: Awaitable[T]) -> tuple[T, float]:
    """Return the result of ``work`` and its duration in milliseconds."""
    started = time.perf_counter()
    return await work, (time.perf_counter() - started) * 1000


def _past(step: Step) -> PastStep:
    return PastStep(screenshot_sha256=step.screenshot_sha256, token_ids=step.token_ids)


def _with_area(box: Box | None) -> Box | None:
    """Return the box, or None for one without area, in which nothing can be clicked."""
    return box if box is not None and box[0] < box[2] and box[1] < box[3] else None


def _hash_of(observation: Observation) -> str:
    return hashlib.sha256(observation.screenshot).hexdigest()


def _step(given: _GivenAnswer, observe_ms: float, act_ms: float, box: Box | None) -> Step:
    generation = given.generation
    return Step(
        screenshot_sha256=given.screenshot_sha256,
        images=generation.images,
        spans=generation.spans,
        prompt_ids=generation.prompt_ids,
        token_ids=generation.token_ids,
        logprobs=generation.logprobs,
        entropies=generation.entropies,
        answer=generation.answer,
        centres=generation.centres,
        policy_version=generation.policy_version,
        observe_ms=observe_ms,
        generate_ms=given.generate_ms,
        act_ms=act_ms,
        box=box,
    )
