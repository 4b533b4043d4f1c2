"""The environment actor among a real record and made-up engines: what it stores, parks and takes up."""

import asyncio
import contextlib
import errno
import hashlib
import itertools
import math
import os
import re
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from actors.actor import Actor, Sender, Stop, receives
from actors.errors import WorkOverdue
from actors.testing import InMemorySystem
from dart.config.config import Config
from dart.config.environment_kinds import KINDS
from dart.config.failing_time import MAX_FAULTS_IN_ROW, RESET_FACTOR
from dart.core import messages as m
from dart.core.types import (
    Demonstration,
    FaultKind,
    GenerateRequest,
    Generation,
    Outcome,
    RolloutLease,
    RolloutState,
    Step,
)
from dart.environments import factory
from dart.environments.actor import FILE_PAUSE_S, EnvironmentActor
from dart.environments.faults import (
    BrowserDied,
    EnvironmentFault,
    EvaluatorFailed,
    FileUnreachable,
    TaskUnsupported,
)
from dart.environments.policy_client import PolicyClient
from dart.environments.protocol import Observation, WrappedEnvironment
from dart.environments.scoring import clamped_score
from dart.environments.simulated import SimulatedEnvironment, screenshot_of
from dart.store.actor import StoreActor
from dart.store.reader import StoreReader
from dart.store.run_blobs import local_blobs
from dart.store.serialization import unpack_steps
from dart.store.store import Store
from dart.telemetry.board_gauges import Gauge
from dart.telemetry.events import PAUSED
from dart.telemetry.liveness import ENGINE_SILENT_S
from dart.telemetry.load_meter import LOAD
from tests.deadlines import note_deadlines
from tests.pictures import png_of_data

TASK, SEED = "simulated/0", 3
NUM_STEPS = 4
ENV = "env-000"
LONG_S = 30.0
PIECE_S = 0.1


def generation(number: int, version: int = 0, answer: str = "click(start_box='(1,2)')") -> Generation:
    """An answer that is told from others by its tokens."""
    figures = (-0.5, -0.25)
    return Generation(
        prompt_ids=(1, 2),
        token_ids=(number, 2),
        logprobs=figures,
        entropies=(0.5, 0.25),
        answer=answer,
        policy_version=version,
    )


def recorded(number: int) -> Step:
    """The step with this number, as it was recorded before its episode was parked."""
    told = generation(100 + number)
    return Step(
        screenshot_sha256=hashlib.sha256(screenshot_of(TASK, SEED, number)).hexdigest(),
        prompt_ids=told.prompt_ids,
        token_ids=told.token_ids,
        logprobs=told.logprobs,
        entropies=told.entropies,
        answer=told.answer,
        policy_version=0,
        observe_ms=1.0,
        generate_ms=1.0,
        act_ms=1.0,
    )


class Curator(Actor):
    """Gives out what the test put there."""

    def on_start(self) -> None:
        self.work: deque[Any] = deque()
        self.told: list[Any] = []
        self.answers: deque[Any] = deque()
        """To results of evaluations; afterwards each is accepted."""

    @receives(m.WorkRequest)
    def next_work(self, call: m.WorkRequest, sender: Sender) -> Any:
        return self.work.popleft() if self.work else m.NoWorkYet(retry_after_s=0.5, reason="nothing to do")

    @receives(m.RolloutStored)
    @receives(m.RolloutFailed)
    @receives(m.RolloutParked)
    @receives(m.GuidedStored)
    @receives(m.GuidedFailed)
    @receives(m.EvaluationFailed)
    def hear(self, call: Any, sender: Sender) -> None:
        self.told.append(call)

    @receives(m.EvaluationEnded)
    def record(self, call: m.EvaluationEnded, sender: Sender) -> Any:
        self.told.append(call)
        return self.answers.popleft() if self.answers else m.CallResult(value="accepted")


class Engine(Actor):
    """Answers its numbered answers, each after `delay_s`; never while it is mute. args: `version`."""

    def on_start(self) -> None:
        self.version = self.args.get("version", 1)
        self.swaps = 0
        """How many versions follow one another, each after one answer."""
        self.refuses = ""
        self.delay_s = 0.0
        self.is_mute = False
        self.answer = "click(start_box='(1,2)')"
        self.asked: list[m.Generate] = []

    @receives(m.Generate)
    async def generate(self, call: m.Generate, sender: Sender) -> Generation | m.CannotAnswer:
        self.asked.append(call)
        if self.refuses:
            return m.CannotAnswer(reason=self.refuses)
        number = len(self.asked)
        await self.sleep(1e6 if self.is_mute else self.delay_s)
        return generation(number, self.version + min(number - 1, self.swaps), self.answer)


class WeightSync(Actor):
    def on_start(self) -> None:
        self.suspects: list[m.EngineSuspect] = []

    @receives(m.EngineSuspect)
    def suspect(self, call: m.EngineSuspect, sender: Sender) -> None:
        self.suspects.append(call)


class Watched(WrappedEnvironment):
    """Remembers what was parked; `pays` is whether infeasibility does."""

    calls: list[str]
    deaths: set[tuple[str, int]]
    """The calls of `step` and `observe` in which the browser dies, each counted from 1."""
    shows_another = False
    """Whether screens are other ones after the first death."""
    looks = 0
    pays = False
    full: deque[OSError]
    """Errors with which the disk refuses the next judgements."""

    async def park(self, *, deadline_s: float) -> None:
        self.calls.append("park")

    async def unpark(self, *, deadline_s: float) -> None:
        self.calls.append("unpark")

    async def step(self, action: Any, *, deadline_s: float) -> Any:
        self.calls.append("step")
        self._die("step")
        result = await super().step(action, deadline_s=deadline_s)
        return replace(result, box=(0.0, 1.0, 2.0, float(self.calls.count("step"))))

    async def observe(self, *, deadline_s: float) -> Observation:
        self.looks += 1
        self._die("observe")
        seen = await super().observe(deadline_s=deadline_s)
        is_other = self.shows_another and "died" in self.calls
        return replace(seen, screenshot=seen.screenshot + b"other") if is_other else seen

    def _die(self, during: str) -> None:
        number = self.calls.count("step") if during == "step" else self.looks
        if (during, number) in self.deaths:
            self.calls.append("died")
            raise BrowserDied(during, -9)

    async def keep_judgement(self) -> None:
        if self.full:
            raise self.full.popleft()

    def is_infeasible(self, task_id: str) -> bool:
        return self.pays


@dataclass
class System:
    """A bench with everybody an environment talks to."""

    bench: InMemorySystem
    folder: Path
    store: Store
    reader: StoreReader
    config: dict[str, Any]
    calls: list[str] = field(default_factory=list)
    deaths: set[tuple[str, int]] = field(default_factory=set)
    full: deque[OSError] = field(default_factory=deque)

    @property
    def curator(self) -> Curator:
        return self.bench.actor("curator")  # type: ignore[no-any-return]

    def engine(self, name: str = "rollout-0") -> Engine:
        return self.bench.actor(name)  # type: ignore[no-any-return]

    def lease(self, step_cap: int = 10) -> RolloutLease:
        group_id = self.store.open_group(TASK, SEED, 2, step_cap, 0)
        return self.store.lease_rollout(group_id, ENV, 1e12)

    def parked(self, steps: tuple[Step, ...], step_cap: int = 10) -> RolloutLease:
        """A lease of an episode of which these steps were played."""
        lease = self.lease(step_cap)
        self.store.park_rollout(lease.rollout_id, lease.fence, steps, "a test", 8)
        reassigned = self.store.reassign_rollout(lease.rollout_id, ENV, 1e12)
        assert isinstance(reassigned, RolloutLease)
        assert reassigned.parked_steps == len(steps)
        return reassigned

    def give(self, *work: Any) -> None:
        self.curator.work.extend(work)

    def start(self, probe_every_s: float = 0.0) -> EnvironmentActor:
        args = {"config": self.config, "store": str(self.folder / "store.db")}
        args |= {"engines": ["rollout-0", "rollout-1"]}
        return self.bench.start(EnvironmentActor, ENV, args, probe_every_s=probe_every_s)

    def until_told(self, kind: type, seconds: float = 1e4) -> Any:
        """The first such word to the curator; time passes as far as it must."""
        gives_up_s = self.bench.clock.monotonic_s() + seconds
        while not (found := [told for told in self.curator.told if isinstance(told, kind)]):
            assert self.bench.clock.monotonic_s() < gives_up_s, f"nobody said {kind.__name__}"
            self.let(PIECE_S)
        return found[0]

    def let(self, seconds: float) -> None:
        """Time passes in small pieces, and what the environment's loop has to do is done after each."""
        ends_s = self.bench.clock.monotonic_s() + seconds
        while (left_s := ends_s - self.bench.clock.monotonic_s()) > 1e-9:
            self.bench.advance(min(PIECE_S, left_s))
            self._finish_loop()

    def _finish_loop(self) -> None:
        if not self.bench.is_alive(ENV):
            return
        done: list[bool] = []
        last = _nothing()
        self.bench.actor(ENV).in_loop(last).then(lambda: done.append(True))
        self.bench.finish_work(ENV, lambda: bool(done) or not self.bench.is_alive(ENV))
        last.close()  # an actor that has ended meanwhile may have left it unrun

    def stop(self) -> None:
        self.bench.tell(ENV, Stop())
        for _ in range(100):
            if not self.bench.is_alive(ENV):
                return
            self.let(0.1)
        raise AssertionError("the environment did not stop")

    def trajectory(self) -> Any:
        (trajectory,) = self.reader.groups_to_trajectories([1])[0].trajectories
        return trajectory


async def _nothing() -> None:
    """Comes after everything that was put into the loop before."""


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[System]:
    for folder in ("blobs", "scratch"):
        (tmp_path / folder).mkdir()
    config = Config.model_validate(
        {
            "tasks": {"train": [TASK]},
            "environments": {"kind": "simulated"},
            "simulation": {"steps_median": float(NUM_STEPS), "steps_sigma": 0.0, "success": 1.0},
            "telemetry": {"load_every_s": 1e6},
        }
    ).model_dump(mode="json")
    path = tmp_path / "store.db"
    with Store(path) as store, StoreReader(path) as reader, InMemorySystem(tmp_path) as bench:
        system = System(bench, tmp_path, store, reader, config)

        def make(config: Config, *_: Any) -> Watched:
            watched = Watched(SimulatedEnvironment(config.simulation, 0))
            watched.calls, watched.deaths, watched.full = system.calls, system.deaths, system.full
            return watched

        monkeypatch.setattr(factory, "make_environment", make)
        bench.start(StoreActor, "store", {"store": str(path), "config": config})
        bench.start(Curator, "curator")
        bench.start(WeightSync, "weight_sync")
        bench.start(Engine, "rollout-0")
        yield system


def test_a_leased_episode_is_played_and_stored_once_with_all_its_steps(system: System) -> None:
    lease = system.lease()
    system.give(lease)
    system.start()
    assert system.until_told(m.RolloutStored) == m.RolloutStored(rollout_id=lease.rollout_id)
    trajectory = system.trajectory()
    assert (trajectory.outcome, trajectory.reward) == (Outcome.TERMINATED, 1.0)
    assert [step.token_ids[0] for step in trajectory.steps] == [1, 2, 3, 4]
    assert [step.box for step in trajectory.steps] == [None] + [(0.0, 1.0, 2.0, float(n)) for n in (2, 3, 4)]
    assert [len(asked.request.history) for asked in system.engine().asked] == [0, 1, 2, 3]
    middles = [f"click(start_box='({x},{y})')" for x, y in ((1, 2), (1, 1), (1, 2))]
    assert list(system.engine().asked[-1].request.history) == middles, "the first click has no box"
    assert system.calls == ["step"] * NUM_STEPS


def test_a_score_counts_when_there_was_room_for_its_judgement(system: System) -> None:
    system.full.extend(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) for _ in range(3))
    system.give(system.lease())
    system.start()
    system.let(2.5)
    assert system.bench.is_alive(ENV)
    assert system.curator.told == []
    system.until_told(m.RolloutStored)
    assert (system.trajectory().reward, len(system.full)) == (1.0, 0)
    (paused,) = system.reader.find_events(kinds=[PAUSED])
    assert (paused.subject, paused.data["reason"]) == (ENV, "a judgement: [Errno 28] No space left on device")


@pytest.mark.parametrize(("operation", "what"), [("reset", "a reset"), ("evaluate", "an evaluation")])
def test_a_full_disk_costs_neither_the_environment_nor_its_episode(
    system: System, monkeypatch: pytest.MonkeyPatch, operation: str, what: str
) -> None:
    call, errors = getattr(Watched, operation), deque([errno.ENOSPC, errno.EDQUOT])

    async def refused(*arguments: Any, **more: Any) -> Any:
        if errors:
            raise OSError(errors[0], os.strerror(errors.popleft()), "/tmp/dartrl-score-x")
        return await call(*arguments, **more)

    monkeypatch.setattr(Watched, operation, refused)
    system.give(system.lease())
    system.start()
    system.until_told(m.RolloutStored)
    assert (system.trajectory().reward, len(system.trajectory().steps)) == (1.0, NUM_STEPS)
    (paused,) = system.reader.find_events(kinds=[PAUSED])
    assert paused.data["reason"].startswith(f"{what}: [Errno 28] No space left on device")


def test_the_step_cap_ends_an_episode_with_its_own_outcome(system: System) -> None:
    system.give(system.lease(step_cap=2))
    system.start()
    system.until_told(m.RolloutStored)
    assert (system.trajectory().outcome, len(system.trajectory().steps)) == (Outcome.STEP_CAP, 2)


def test_an_answer_with_several_actions_is_one_step_up_to_the_action_that_ends_the_episode(
    system: System,
) -> None:
    system.engine().answer = "click(start_box='(1,2)')\n\nhover(start_box='(3,4)')\n\nkeyup(key='a')"
    system.give(system.lease())
    system.start()
    system.until_told(m.RolloutStored)
    assert system.trajectory().outcome is Outcome.TERMINATED
    assert [step.answer for step in system.trajectory().steps] == [system.engine().answer] * 2
    assert [step.box for step in system.trajectory().steps] == [None] * 2, "no single element was clicked"
    assert system.calls == ["step"] * NUM_STEPS


@pytest.mark.parametrize(("pays", "reward"), [(True, 1.0), (False, 0.0)])
def test_calling_the_user_pays_only_where_the_task_cannot_be_done(
    system: System, monkeypatch: pytest.MonkeyPatch, pays: bool, reward: float
) -> None:
    monkeypatch.setattr(Watched, "pays", pays)
    system.engine().answer = "call_user()"
    system.give(system.lease())
    system.start()
    system.until_told(m.RolloutStored)
    assert (system.trajectory().outcome, system.trajectory().reward) == (Outcome.INFEASIBLE, reward)


EVALUATION = m.EvaluationTask(phase="before", task_id=TASK, seed=SEED, step_cap=9, temperature=1.0, fence=7)


def test_an_evaluation_is_reported_with_its_fence_the_version_that_played_it_and_its_stored_steps(
    system: System,
) -> None:
    system.give(EVALUATION)
    system.start()
    told = system.until_told(m.EvaluationEnded)
    assert (told.fence, told.policy_version, told.reward) == (7, 1, 1.0)
    assert (told.play.environment, told.play.outcome) == ("env-000", Outcome.TERMINATED)
    steps = unpack_steps(
        local_blobs(system.bench.actor(ENV).identity.run_dir).steps.read(told.play.steps_sha256)
    )
    assert len(steps) == told.play.num_steps > 0


def test_an_evaluation_that_two_versions_played_is_reported_with_the_older_one(system: System) -> None:
    """So it does not count for the newer one, and is played again."""
    system.engine().swaps = 1
    system.give(EVALUATION)
    system.start()
    assert system.until_told(m.EvaluationEnded).policy_version == 1


def test_a_result_that_the_record_does_not_take_yet_is_reported_again(system: System) -> None:
    system.curator.answers.append(m.Paused(reason="the disk is full", retry_after_s=1.0))
    system.give(EVALUATION)
    system.start()
    told = system.until_told(m.EvaluationEnded)
    system.let(3.0)
    assert [one for one in system.curator.told if isinstance(one, m.EvaluationEnded)] == [told, told]


def guided(system: System, reward: float = 1.0) -> m.GuidedTask:
    """An episode under the actions of a demonstration that has this reward."""
    demonstration = Demonstration(
        pool_id=0,
        task_id=TASK,
        seed=SEED,
        origin="oracle",
        instruction="do it",
        reward=reward,
        steps=(recorded(0), recorded(1)),
        lacks_thought=True,
    )
    system.store.add_demonstrations([demonstration])
    return m.GuidedTask(pool_id=1, task_id=TASK, seed=SEED, step_cap=10, attempt=1, fence=7)


def test_an_episode_under_a_demonstrations_actions_becomes_a_demonstration_of_its_own(system: System) -> None:
    system.give(guided(system))
    system.start()
    told = system.until_told(m.GuidedStored)
    guide, own = system.reader.demonstrations(TASK)
    assert (told.fence, guide.rolls, own.guide_id, own.seed) == (7, 1, 1, SEED)
    steps = system.reader.demonstration(own.pool_id).steps
    assert [step.token_ids for step in steps] == [(number, 2) for number in range(1, NUM_STEPS + 1)]
    assert all(step.logprobs == generation(1).logprobs for step in steps)
    assert not any(step.entropies for step in steps), "those under a hint compare with no others"
    asked = [call.request for call in system.engine().asked]
    assert {request.hint for request in asked} == {(recorded(0).answer, recorded(1).answer)}
    assert system.reader.conservation().issued == 0


def test_an_episode_under_a_demonstrations_actions_that_gets_no_answer_is_told_as_failed(
    system: System,
) -> None:
    system.engine().refuses = "the prompt is too long"
    system.give(guided(system))
    system.start()
    failed = system.until_told(m.GuidedFailed)
    assert (failed.fence, failed.is_interrupted) == (7, False)
    assert "the prompt is too long" in failed.detail
    assert [one.rolls for one in system.reader.demonstrations(TASK)] == [0]


def test_an_evaluation_that_is_interrupted_is_no_failure_of_it(system: System) -> None:
    system.engine().is_mute = True
    system.give(EVALUATION)
    system.start()
    system.let(1.0)
    system.stop()
    told = system.until_told(m.EvaluationFailed)
    assert (told.fence, told.is_interrupted) == (7, True)


class PausedStore(Actor):
    """Waits for room for long, then is gone for a moment as when it is started again, then takes writes."""

    def on_start(self) -> None:
        self.paused_until_s = self.clock.monotonic_s() + 90.0
        self.stored: list[tuple[int, int]] = []
        """Rollout and number of steps."""
        self.is_gone = True

    @receives(m.FinishRollout)
    async def finish(self, call: m.FinishRollout, sender: Sender) -> m.Paused | m.CallResult:
        if self.clock.monotonic_s() < self.paused_until_s:
            return m.Paused(reason="the disk is full", retry_after_s=1.0)
        if self.is_gone:
            self.is_gone = False
            await self.sleep(1e6)
        self.stored.append(
            (
                call.rollout_id,
                len(unpack_steps(local_blobs(self.identity.run_dir).steps.read(call.steps_sha256))),
            )
        )
        return m.CallResult(value="accepted")

    @receives(m.RecordEvents)
    def drop(self, call: m.RecordEvents, sender: Sender) -> None:
        """Nothing of this is looked at."""


def test_a_store_that_is_started_again_after_a_long_pause_is_waited_for(system: System) -> None:
    lease = system.lease()
    system.bench.kill("store")
    system.bench.start(PausedStore, "store")
    system.give(lease)
    system.start()
    system.until_told(m.RolloutStored, 200.0)
    assert system.bench.actor("store").stored == [(lease.rollout_id, NUM_STEPS)]


# ---- parking ----


def test_while_an_answer_takes_long_the_screen_is_parked(system: System) -> None:
    system.engine().delay_s = 5.0
    system.give(system.lease(step_cap=2))
    system.start()
    system.until_told(m.RolloutStored)
    assert system.calls == ["park", "unpark", "step"] * 2


def test_each_call_of_the_environment_has_the_deadline_of_the_configuration(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    deadlines = {"reset": 21.0, "observe": 22.0, "step": 23.0, "evaluate": 24.0}
    system.config["environments"] |= {f"{name}_deadline_s": seconds for name, seconds in deadlines.items()}
    expected = deadlines | dict.fromkeys(("park", "unpark", "healthy"), deadlines["observe"])
    given = {name: note_deadlines(monkeypatch, Watched, name) for name in expected}
    system.engine().delay_s = 5.0
    system.give(system.lease(), system.lease())
    system.start(probe_every_s=1.0)
    system.until_told(m.RolloutStored)
    system.let(3.0)
    system.stop()
    assert given == {name: {seconds} for name, seconds in expected.items()}


def test_told_to_stop_it_plays_to_the_end_what_ends_soon_enough(system: System) -> None:
    system.engine().delay_s = 0.5
    system.give(system.lease(), system.lease())
    system.start()
    system.let(0.7)
    system.stop()
    assert [type(told) for told in system.curator.told] == [m.RolloutStored]
    assert len(system.trajectory().steps) == NUM_STEPS


def test_told_to_stop_it_parks_what_does_not_end_and_another_takes_it_up(system: System) -> None:
    lease = system.lease()
    system.give(lease)
    system.engine().delay_s = 2.0
    system.start()
    system.let(4.5)
    system.stop()
    assert system.until_told(m.RolloutParked) == m.RolloutParked(rollout_id=lease.rollout_id)
    before = system.reader.parked_steps(lease.rollout_id)
    assert 2 <= len(before) < NUM_STEPS

    reassigned = system.store.reassign_rollout(lease.rollout_id, ENV, 1e12)
    assert isinstance(reassigned, RolloutLease)
    assert (reassigned.parked_steps, reassigned.attempt) == (len(before), 1)
    system.give(reassigned)
    system.start()
    system.until_told(m.RolloutStored)
    steps = system.trajectory().steps
    assert steps[: len(before)] == before
    assert len(steps) == NUM_STEPS


def stopped_in_the_episode(
    system: System, lease: RolloutLease | None = None, within_s: float = math.inf
) -> RolloutLease:
    """Tell the actor to stop while it plays an episode, and let its shutdown time pass.

    within_s   the shutdown time that the order names; infinity: it names none
    """
    lease = lease or system.lease()
    system.give(lease)
    system.start()
    system.let(2.0)
    system.bench.tell(ENV, Stop(within_s=within_s))
    configured_s = Config.model_validate(system.config).supervision.child(ENV).shutdown_s
    system.let(min(within_s, configured_s))
    return lease


@pytest.mark.parametrize("operation", ["reset", "step", "evaluate"])
def test_told_to_stop_while_its_screen_takes_longer_it_closes_the_screen_and_gives_the_episode_back(
    system: System, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    async def never_ends(*_: Any, **__: Any) -> Any:
        system.calls.append(f"{operation} begins")
        await asyncio.Event().wait()

    async def close(self: Watched) -> None:
        system.calls.append("close")

    monkeypatch.setattr(Watched, operation, never_ends)
    monkeypatch.setattr(Watched, "close", close)
    lease = stopped_in_the_episode(system)

    assert not system.bench.is_alive(ENV)
    assert [call for call in system.calls if call != "step"] == [f"{operation} begins", "close"]
    assert system.curator.told == [m.RolloutParked(rollout_id=lease.rollout_id)]
    record = system.reader.rollout(lease.rollout_id)
    assert (record.environment, record.attempt) == (None, 1)


def test_a_call_that_does_not_end_when_it_is_cancelled_does_not_keep_the_screen_open(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = asyncio.Event()

    async def ends_late(*_: Any, **__: Any) -> None:
        while not ends.is_set():
            with suppress(asyncio.CancelledError):
                await ends.wait()
        raise asyncio.CancelledError

    async def close(self: Watched) -> None:
        system.calls.append("close")
        ends.set()

    monkeypatch.setattr(Watched, "step", ends_late)
    monkeypatch.setattr(Watched, "close", close)
    stopped_in_the_episode(system)

    assert "close" in system.calls


def hang_at(monkeypatch: pytest.MonkeyPatch, operation: str, number: int) -> None:
    """The call of this number, counted from 1, of an operation of the environment never ends."""
    call, numbers = getattr(Watched, operation), itertools.count(1)

    async def hangs_once(self: Watched, *given: Any, **named: Any) -> Any:
        if next(numbers) == number:
            await asyncio.Event().wait()
        return await call(self, *given, **named)

    monkeypatch.setattr(Watched, operation, hangs_once)


@pytest.mark.parametrize(
    ("operation", "number", "deaths"),
    [
        ("step", 3, set()),
        ("observe", 2, set()),
        ("reset", 2, {("step", 3)}),  # the reset with which the third step is resumed
    ],
)
def test_told_to_stop_while_its_screen_takes_longer_it_parks_the_steps_played_so_far(
    system: System,
    monkeypatch: pytest.MonkeyPatch,
    operation: str,
    number: int,
    deaths: set[tuple[str, int]],
) -> None:
    system.config["environments"]["turn_resumes"] = 1
    system.deaths.update(deaths)
    hang_at(monkeypatch, operation, number)
    lease = stopped_in_the_episode(system)

    assert not system.bench.is_alive(ENV)
    assert system.curator.told == [m.RolloutParked(rollout_id=lease.rollout_id)]
    parked = system.reader.parked_steps(lease.rollout_id)
    assert [step.token_ids[0] for step in parked] == [1, 2]


def test_told_to_stop_within_less_time_than_it_was_started_with_it_parks_its_episode_in_that_time(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reload may have lowered `shutdown_s` since."""
    system.config["supervision"]["environment_pool"]["shutdown_s"] = 60.0
    hang_at(monkeypatch, "step", 3)
    lease = stopped_in_the_episode(system, within_s=20.0)

    assert not system.bench.is_alive(ENV)
    assert [step.token_ids[0] for step in system.reader.parked_steps(lease.rollout_id)] == [1, 2]


@pytest.mark.parametrize(
    ("recorded_steps", "step_cap", "kept", "outcome"),
    [
        (0, 10, [1, 2, 3], Outcome.TERMINATED),
        (0, 3, [1, 2], Outcome.STEP_CAP),
        (3, 10, [100, 101, 102], Outcome.TERMINATED),  # only its last step was played here
        (0, 1, [], Outcome.STEP_CAP),
    ],
)
def test_told_to_stop_while_an_episode_is_judged_it_parks_all_steps_but_the_last_which_is_played_again(
    system: System,
    monkeypatch: pytest.MonkeyPatch,
    recorded_steps: int,
    step_cap: int,
    kept: list[int],
    outcome: Outcome,
) -> None:
    hang_at(monkeypatch, "evaluate", 1)
    steps = tuple(map(recorded, range(recorded_steps)))
    leased = system.parked(steps, step_cap) if steps else system.lease(step_cap)
    lease = stopped_in_the_episode(system, leased)
    assert [step.token_ids[0] for step in system.reader.parked_steps(lease.rollout_id)] == kept

    answers = len(system.engine().asked)
    system.give(system.store.reassign_rollout(lease.rollout_id, ENV, 1e12))
    system.start()
    system.until_told(m.RolloutStored)
    trajectory = system.trajectory()
    assert [step.token_ids[0] for step in trajectory.steps] == [*kept, answers + 1]
    assert trajectory.outcome is outcome


@pytest.mark.parametrize(("operation", "number"), [("step", 3), ("observe", 2), ("evaluate", 1)])
def test_told_to_stop_in_an_episode_that_cannot_be_replayed_it_gives_it_back_without_steps(
    system: System, monkeypatch: pytest.MonkeyPatch, operation: str, number: int
) -> None:
    """A replay that fails would spend an attempt."""
    monkeypatch.setitem(KINDS, "simulated", replace(KINDS["simulated"], can_replay=False))
    hang_at(monkeypatch, operation, number)
    lease = stopped_in_the_episode(system)
    assert system.reader.parked_steps(lease.rollout_id) == ()
    assert system.reader.rollout(lease.rollout_id).attempt == 1


def test_told_to_stop_in_an_environment_of_your_own_that_can_replay_it_parks_the_steps_played_so_far(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    system.config["environments"] |= {"kind": "own", "make": "task:make", "own": {"can_replay": True}}
    system.config["tasks"]["train"] = ["own/square"]
    hang_at(monkeypatch, "step", 3)
    lease = stopped_in_the_episode(system)
    assert [step.token_ids[0] for step in system.reader.parked_steps(lease.rollout_id)] == [1, 2]


def test_an_episode_that_cannot_be_replayed_is_played_from_its_start_in_the_same_attempt_after_a_stop(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(KINDS, "simulated", replace(KINDS["simulated"], can_replay=False))
    lease = system.lease()
    system.give(lease)
    system.engine().delay_s = 2.0
    system.start()
    system.let(4.5)
    system.stop()  # between two steps
    answers = len(system.engine().asked)

    reassigned = system.store.reassign_rollout(lease.rollout_id, ENV, 1e12)
    assert isinstance(reassigned, RolloutLease)
    assert (reassigned.parked_steps, reassigned.attempt) == (0, 1)
    system.give(reassigned)
    system.start()
    system.until_told(m.RolloutStored)
    assert len(system.trajectory().steps) == NUM_STEPS == len(system.engine().asked) - answers
    assert system.reader.rollout(lease.rollout_id).attempt == 1


@pytest.mark.parametrize(("operation", "is_ready"), [("reset", True), ("step", False)])
def test_an_environment_without_a_screen_is_ready_while_it_is_reset_and_not_while_it_plays(
    system: System, monkeypatch: pytest.MonkeyPatch, operation: str, is_ready: bool
) -> None:
    """A reset may replace the machine."""

    async def has_no_screen(self: Watched, *, deadline_s: float) -> bool:
        return False

    monkeypatch.setattr(Watched, "healthy", has_no_screen)
    hang_at(monkeypatch, operation, {"reset": 2, "step": NUM_STEPS + 1}[operation])
    system.give(system.lease(), system.lease())
    system.start(probe_every_s=1.0)
    system.until_told(m.RolloutStored)
    system.let(3.0)
    assert system.bench.row(ENV).ready is is_ready


def test_told_to_stop_without_a_store_it_waits_for_nothing(system: System) -> None:
    """The store comes back only when everybody who depends on it has ended."""
    lease = system.lease()
    system.give(lease)
    system.engine().delay_s = 2.0
    system.start()
    system.let(4.5)
    system.bench.kill("store")
    told_s = system.bench.clock.monotonic_s()

    system.stop()

    assert system.bench.clock.monotonic_s() - told_s < 1.0
    assert system.reader.rollout(lease.rollout_id).state is RolloutState.LEASED


def test_a_store_that_dies_while_an_episode_is_parked_is_not_waited_for(system: System) -> None:
    system.give(system.lease())
    system.engine().delay_s = 2.0
    system.start()
    system.let(4.5)
    system.bench.tell(ENV, Stop())
    system.let(1.0)
    system.bench.kill("store")
    told_s = system.bench.clock.monotonic_s()

    system.stop()

    assert system.bench.clock.monotonic_s() - told_s < 4.0


def test_a_parked_episode_goes_on_with_new_answers_of_the_version_that_serves_now(system: System) -> None:
    lease = system.parked((recorded(0), recorded(1)))
    system.give(lease)
    system.start()
    system.until_told(m.RolloutStored)
    steps = system.trajectory().steps
    assert [step.token_ids[0] for step in steps] == [100, 101, 1, 2]
    assert [step.policy_version for step in steps] == [0, 0, 1, 1]
    assert [len(asked.request.history) for asked in system.engine().asked] == [2, 3]


def test_steps_before_and_after_parking_count_together_against_the_cap(system: System) -> None:
    system.give(system.parked((recorded(0), recorded(1)), step_cap=3))
    system.start()
    system.until_told(m.RolloutStored)
    assert (system.trajectory().outcome, len(system.trajectory().steps)) == (Outcome.STEP_CAP, 3)


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        ((recorded(0), recorded(2)), "step 2 starts from another screen than recorded"),
        (
            tuple(recorded(number) for number in range(NUM_STEPS)),
            "step 4 ended the episode, but the recorded episode continued",
        ),
    ],
)
def test_a_replay_that_leads_elsewhere_is_forgotten_and_the_episode_played_anew(
    system: System, steps: tuple[Step, ...], says: str, capfd: pytest.CaptureFixture[str]
) -> None:
    lease = system.parked(steps)
    system.give(lease)
    system.start()
    system.until_told(m.RolloutStored)
    assert [step.token_ids[0] for step in system.trajectory().steps] == [1, 2, 3, 4]
    record = system.reader.rollout(lease.rollout_id)
    assert (record.attempt, record.state, record.parked_steps) == (2, RolloutState.STORED, 0)
    assert says in "".join(capfd.readouterr())


def test_what_is_not_its_own_any_more_when_its_replay_fails_is_not_played(system: System) -> None:
    lease = system.parked((recorded(0), recorded(2)))
    system.store.release_rollout(lease.rollout_id, lease.fence, FaultKind.INFRASTRUCTURE, "overdue", 5)
    reassigned = system.store.reassign_rollout(lease.rollout_id, ENV, 1e12)
    assert isinstance(reassigned, RolloutLease)
    system.store.park_rollout(
        reassigned.rollout_id, reassigned.fence, (recorded(0), recorded(2)), "a test", 8, 5
    )
    system.give(lease)
    system.start()
    system.let(20.0)
    assert system.engine().asked == []
    assert system.curator.told == [m.RolloutParked(rollout_id=lease.rollout_id)]


def test_work_that_comes_when_it_was_told_to_stop_is_given_back_unplayed(system: System) -> None:
    lease = system.lease()
    system.bench.hang("curator")
    system.start()
    system.let(0.5)
    system.bench.tell(ENV, Stop())
    system.let(0.5)
    system.give(lease)
    system.bench.resume("curator")
    assert system.until_told(m.RolloutParked, 5.0) == m.RolloutParked(rollout_id=lease.rollout_id)
    assert system.engine().asked == []
    record = system.reader.rollout(lease.rollout_id)
    assert (record.environment, record.parked_steps) == (None, 0)


# ---- engines ----


def test_an_engine_that_does_not_answer_is_suspect_and_another_one_is_asked(system: System) -> None:
    system.engine().is_mute = True
    system.give(system.lease(step_cap=1))
    system.start()
    system.let(1.0)
    system.bench.start(Engine, "rollout-1")
    slot = system.bench.board.find("rollout-0")
    assert slot is not None
    system.bench.board.set_gauges(
        slot, {Gauge.IN_FLIGHT: 1}
    )  # as it holds a request, the other one is less busy
    system.until_told(m.RolloutStored, 2 * Config().rollout.answer_deadline_s)
    (suspect,) = system.bench.actor("weight_sync").suspects
    assert suspect.engine == "rollout-0"
    assert "did not answer within 24" in suspect.detail  # a fifth of the lease
    assert len(system.engine("rollout-1").asked) == 1


def test_an_engine_that_falls_silent_is_not_waited_for_if_another_one_is_ready(system: System) -> None:
    system.engine().is_mute = True
    system.give(system.lease(step_cap=1))
    system.start()
    system.let(1.0)
    assert len(system.engine().asked) == 1
    system.bench.hang("rollout-0")
    system.let(3 * ENGINE_SILENT_S)
    assert "step" not in system.calls  # there is no other engine
    system.bench.start(Engine, "rollout-1")
    system.until_told(m.RolloutStored, 2 * ENGINE_SILENT_S)
    assert len(system.engine("rollout-1").asked) == 1


def test_environments_that_ask_at_the_same_moment_ask_different_engines(system: System) -> None:
    for number in (1, 2, 3):
        system.bench.start(Engine, f"rollout-{number}")
    names = [f"rollout-{number}" for number in range(4)]
    actors = [system.bench.start(Curator, f"asking-{number}", {"engines": names}) for number in range(16)]
    config = Config.model_validate(system.config)
    request = GenerateRequest(screenshot_sha256="0" * 64, instruction="press", history=(), temperature=1.0)
    answers = [PolicyClient(actor, config).answer(request) for actor in actors]
    system.bench.advance(1.0)
    assert all(answer.is_done for answer in answers)
    assert all(system.engine(name).asked for name in names)


def test_without_an_engine_in_routing_it_waits_parked_until_there_is_one(system: System) -> None:
    system.engine().set_ready(False)
    system.give(system.lease(step_cap=1))
    system.start()
    system.let(LONG_S)
    assert system.calls == ["park"]
    assert system.engine().asked == []
    system.engine().set_ready(True)
    system.until_told(m.RolloutStored, 10.0)
    assert system.calls == ["park", "unpark", "step"]


def test_an_episode_that_gets_no_answer_at_all_spends_an_attempt_and_has_no_reward(system: System) -> None:
    system.engine().set_ready(False)
    lease = system.lease()
    system.give(lease)
    system.start()
    failed = system.until_told(m.RolloutFailed, 120.0)
    assert (failed.rollout_id, failed.fence, failed.kind) == (lease.rollout_id, 1, FaultKind.SYSTEM)
    assert "no engine answered within 48 s; the last reason: none of rollout-0, rollout-1 is ready" in (
        failed.detail
    )
    assert system.reader.totals().trajectories == 0


def test_a_request_no_engine_can_answer_is_asked_once_and_is_the_policys_fault(system: System) -> None:
    system.engine().refuses = "a prompt of 9,000 tokens leaves no room"
    lease = system.lease()
    system.give(lease)
    system.start()
    failed = system.until_told(m.RolloutFailed, 10.0)
    assert (failed.rollout_id, failed.kind) == (lease.rollout_id, FaultKind.POLICY)
    assert failed.detail == "a prompt of 9,000 tokens leaves no room"
    assert len(system.engine().asked) == 1
    assert system.reader.totals().trajectories == 0


def test_an_environment_is_used_by_an_episode_that_came_to_its_end_and_by_no_other(system: System) -> None:
    system.engine().refuses = "a prompt of 9,000 tokens leaves no room"
    system.give(system.lease())
    system.start()
    system.until_told(m.RolloutFailed, 10.0)
    system.let(1.0)
    assert system.bench.row(ENV).uses == 0
    system.engine().refuses = ""
    system.give(system.lease())
    system.until_told(m.RolloutStored)
    system.let(1.0)
    assert system.bench.row(ENV).uses == 1


# ---- turns that are resumed ----


@pytest.mark.parametrize("death", [("step", 3), ("observe", 2)])
def test_an_episode_whose_browser_died_goes_on_in_its_turn_and_no_answer_is_asked_again(
    system: System, death: tuple[str, int]
) -> None:
    system.config["environments"]["turn_resumes"] = 1
    system.deaths.add(death)
    lease = system.lease()
    system.give(lease)
    system.start()
    system.until_told(m.RolloutStored)
    assert [step.token_ids[0] for step in system.trajectory().steps] == [1, 2, 3, 4]
    assert len(system.engine().asked) == NUM_STEPS
    assert system.reader.rollout(lease.rollout_id).attempt == 1
    assert system.calls.count("died") == 1
    system.stop()
    (load,) = system.reader.find_events(kinds=[LOAD])
    assert (load.data["turn_resumes"], load.data["steps_saved"]) == (1, 2)


@pytest.mark.parametrize(
    ("resumes", "deaths", "shows_another"),
    [
        (0, {("step", 3)}, False),  # it is switched off
        (1, {("step", 1)}, False),  # there is nothing to replay
        (1, {("step", 3), ("step", 6)}, False),  # it dies again: two steps are replayed between
        (1, {("step", 3)}, True),  # the newest screen is another one
        (1, {("observe", 3)}, True),  # one of the replayed screens is another one
    ],
)
def test_an_episode_that_cannot_go_on_spends_its_attempt_and_has_no_reward(
    system: System,
    monkeypatch: pytest.MonkeyPatch,
    resumes: int,
    deaths: set[tuple[str, int]],
    shows_another: bool,
) -> None:
    system.config["environments"]["turn_resumes"] = resumes
    system.deaths.update(deaths)
    monkeypatch.setattr(Watched, "shows_another", shows_another)
    system.give(system.lease())
    system.start()
    failed = system.until_told(m.RolloutFailed)
    assert failed.kind is FaultKind.INFRASTRUCTURE
    assert "the browser died during" in failed.detail
    assert system.reader.totals().trajectories == 0


def test_a_fault_with_a_very_long_reason_is_reported_with_its_beginning(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def evaluate(self: Watched, *, deadline_s: float) -> float:
        return clamped_score("simulated/0", "x" * 70_000)

    monkeypatch.setattr(Watched, "evaluate", evaluate)
    system.give(system.lease())
    system.start()
    failed = system.until_told(m.RolloutFailed, 60.0)
    assert "expected the raw score to be a finite number, got 'xxx" in failed.detail
    assert len(failed.detail) == m.DETAIL_CHARACTERS
    assert system.bench.is_alive(ENV)


@pytest.mark.parametrize(("raw", "reward"), [(np.float64(0.7), 0.7), (True, 1.0)])
@pytest.mark.parametrize("is_rollout", [True, False])
def test_a_score_that_is_numpys_or_a_boolean_is_reported_as_a_number(
    system: System, monkeypatch: pytest.MonkeyPatch, raw: Any, reward: float, is_rollout: bool
) -> None:
    async def evaluate(self: Watched, *, deadline_s: float) -> Any:
        return raw

    monkeypatch.setattr(Watched, "evaluate", evaluate)
    lease = system.lease()
    system.give(lease if is_rollout else EVALUATION)
    system.start()
    if is_rollout:
        system.until_told(m.RolloutStored)
        assert system.reader.rollout(lease.rollout_id).reward == reward
    else:
        assert system.until_told(m.EvaluationEnded).reward == reward


@pytest.mark.parametrize("raw", [math.nan, -1.0, 3.0, None])
def test_a_score_outside_the_unit_interval_spends_the_attempt_and_is_named(
    system: System, monkeypatch: pytest.MonkeyPatch, raw: Any
) -> None:
    async def evaluate(self: Watched, *, deadline_s: float) -> Any:
        return raw

    monkeypatch.setattr(Watched, "evaluate", evaluate)
    system.give(EVALUATION, system.lease())
    system.start()
    assert system.until_told(m.EvaluationFailed).kind is FaultKind.EVALUATOR
    failed = system.until_told(m.RolloutFailed)
    assert failed.kind is FaultKind.EVALUATOR
    assert f"of kind 'simulated' to return a number in [0, 1], got {raw!r}" in failed.detail


@pytest.mark.parametrize(
    ("fault", "ends"),
    [
        (EvaluatorFailed(TASK, "its evaluator broke"), False),
        (TaskUnsupported(TASK, "its evaluation needs a Google account"), False),
        (FileUnreachable("https://x.test/a", "ConnectError", Path("a")), False),
        (BrowserDied("evaluate", -9), True),
    ],
)
def test_faults_in_a_row_end_the_environment_only_if_they_are_its_own(
    system: System, monkeypatch: pytest.MonkeyPatch, fault: EnvironmentFault, ends: bool
) -> None:
    async def evaluate(self: Watched, *, deadline_s: float) -> float:
        raise fault

    monkeypatch.setattr(Watched, "evaluate", evaluate)
    system.give(*(EVALUATION for _ in range(MAX_FAULTS_IN_ROW)))
    system.start()
    with pytest.raises(BrowserDied) if ends else contextlib.nullcontext():
        system.let(4 * FILE_PAUSE_S)
    assert system.bench.is_alive(ENV) is not ends
    assert {one.kind for one in system.curator.told} == {fault.kind}
    assert ends or len(system.curator.told) == MAX_FAULTS_IN_ROW


@pytest.mark.parametrize(
    ("fault", "resets"),
    [(BrowserDied("reset", -9), 2), (FileUnreachable("https://x.test/a", "ConnectError", Path("a")), 1)],
)
def test_a_reset_is_tried_once_more_only_after_a_fault_that_it_can_repair(
    system: System, monkeypatch: pytest.MonkeyPatch, fault: EnvironmentFault, resets: int
) -> None:
    async def reset(self: Watched, *_: Any, **__: Any) -> Observation:
        self.calls.append("reset")
        raise fault

    monkeypatch.setattr(Watched, "reset", reset)
    system.give(EVALUATION)
    system.start()
    assert system.until_told(m.EvaluationFailed).kind is fault.kind
    assert system.calls == ["reset"] * resets


def test_an_environment_waits_longer_from_file_to_file_that_cannot_be_downloaded(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_away = [True]

    async def evaluate(self: Watched, *, deadline_s: float) -> float:
        if is_away[-1]:
            raise FileUnreachable("https://x.test/a", "ConnectError", Path("a"))
        return 1.0

    def seconds_until_told(count: int) -> float:
        began_s = system.bench.clock.monotonic_s()
        while len(system.curator.told) < count:
            system.let(PIECE_S)
        return system.bench.clock.monotonic_s() - began_s

    monkeypatch.setattr(Watched, "evaluate", evaluate)
    system.give(*(EVALUATION for _ in range(5)))
    system.start()
    seconds_until_told(1)
    assert seconds_until_told(2) == pytest.approx(FILE_PAUSE_S, abs=2.0)
    assert seconds_until_told(3) == pytest.approx(2 * FILE_PAUSE_S, abs=2.0)
    is_away.append(False)
    assert seconds_until_told(4) == pytest.approx(4 * FILE_PAUSE_S, abs=2.0)
    is_away.append(True)
    assert seconds_until_told(5) < FILE_PAUSE_S, "it played an episode meanwhile"
    system.stop()


def test_an_environment_without_work_gives_back_what_it_no_longer_needs_once(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def give_back(self: Watched) -> None:
        self.calls.append("give_back")

    monkeypatch.setattr(Watched, "give_back", give_back)
    system.start()
    system.let(3.0)
    assert system.calls == ["give_back"], "an earlier process of it may have left something"
    system.calls.clear()
    system.give(system.lease())
    system.until_told(m.RolloutStored)
    system.let(3.0)
    assert system.calls == [*["step"] * NUM_STEPS, "give_back"]


# ---- environments that do not keep to the protocol ----


@pytest.mark.parametrize("operation", ["reset", "observe", "step", "evaluate", "park"])
def test_a_call_that_never_returns_ends_the_environment_after_a_lease_and_is_named(
    system: System, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    system.engine().delay_s = 2.0
    hang_at(monkeypatch, operation, 1)
    system.give(system.lease())
    system.start()
    lease_s = Config.model_validate(system.config).curation.lease_s
    system.let(lease_s)
    assert system.bench.is_alive(ENV)
    with pytest.raises(
        WorkOverdue, match=f"^{operation} of an environment of kind 'simulated' has not returned"
    ):
        system.let(RESET_FACTOR * lease_s)
    assert not system.bench.is_alive(ENV)


def test_a_call_that_the_environment_cancels_itself_is_its_fault_and_no_stop(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def cancelled(*_: Any, **__: Any) -> Any:
        raise asyncio.CancelledError

    monkeypatch.setattr(Watched, "step", cancelled)
    system.give(system.lease())
    system.start()
    failed = system.until_told(m.RolloutFailed, 60.0)
    assert (failed.kind, failed.detail) == (
        FaultKind.INFRASTRUCTURE,
        "step was cancelled inside the environment",
    )
    assert [type(told) for told in system.curator.told] == [m.RolloutFailed], "it was not parked"


@pytest.mark.parametrize("operation", ["reset", "observe", "step", "evaluate", "park"])
def test_a_call_that_times_out_inside_the_environment_spends_the_attempt_and_the_actor_goes_on(
    system: System, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    async def too_late(*_: Any, **__: Any) -> Any:
        raise TimeoutError("the licence server is silent")

    system.engine().delay_s = 2.0
    monkeypatch.setattr(Watched, operation, too_late)
    system.give(system.lease())
    system.start()
    failed = system.until_told(m.RolloutFailed, 60.0)
    assert (failed.kind, failed.detail) == (
        FaultKind.INFRASTRUCTURE,
        f"{operation} timed out inside the environment: the licence server is silent",
    )
    assert system.bench.is_alive(ENV)


LATE_OR_BROKEN = [TimeoutError("the licence server is silent"), BrowserDied("a look", -9)]


def fail_at(monkeypatch: pytest.MonkeyPatch, operation: str, error: Exception) -> None:
    """Each call of an operation of the environment raises this error."""

    async def fails(self: Watched, **_: Any) -> Any:
        self.calls.append(operation)
        raise error

    monkeypatch.setattr(Watched, operation, fails)


@pytest.mark.parametrize("error", LATE_OR_BROKEN)
def test_an_environment_whose_probe_fails_or_is_late_is_not_ready_and_lives(
    system: System, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    fail_at(monkeypatch, "healthy", error)
    system.give(system.lease())
    system.start(probe_every_s=1.0)
    system.until_told(m.RolloutStored)
    system.let(3.0)
    assert "healthy" in system.calls
    assert (system.bench.is_alive(ENV), system.bench.row(ENV).ready) == (True, False)


@pytest.mark.parametrize("error", LATE_OR_BROKEN)
def test_an_environment_that_cannot_give_back_plays_the_next_episode(
    system: System, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    fail_at(monkeypatch, "give_back", error)
    system.start()
    system.let(3.0)
    system.give(system.lease())
    system.until_told(m.RolloutStored)
    assert system.calls[0] == "give_back"


@pytest.mark.parametrize("error", LATE_OR_BROKEN)
def test_an_environment_that_cannot_be_closed_parks_its_episode_and_stops_in_order(
    system: System, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    hang_at(monkeypatch, "step", 3)
    fail_at(monkeypatch, "close", error)
    lease = stopped_in_the_episode(system)
    assert "close" in system.calls
    assert not system.bench.is_alive(ENV)
    assert system.curator.told == [m.RolloutParked(rollout_id=lease.rollout_id)]
    assert len(system.reader.parked_steps(lease.rollout_id)) == 2


@pytest.mark.parametrize(
    ("operation", "returned", "says"),
    [
        (
            "reset",
            None,
            "expected reset of environments of kind 'simulated' to return an Observation, got None",
        ),
        (
            "observe",
            Observation(screenshot=screenshot_of(TASK, SEED, 1), instruction=5),  # type: ignore[arg-type]
            "expected observe .* an Observation whose instruction is text, got 5",
        ),
        (
            "observe",
            Observation(screenshot=b"\xff\xd8", instruction="x"),
            "corrupt: expected a PNG, got 2 bytes",
        ),
        ("step", True, "expected step .* to return a StepResult, got True"),
    ],
)
def test_a_wrong_result_spends_the_attempt_and_neither_asks_nor_blames_an_engine(
    system: System, monkeypatch: pytest.MonkeyPatch, operation: str, returned: Any, says: str
) -> None:
    async def returns(*_: Any, **__: Any) -> Any:
        return returned

    monkeypatch.setattr(Watched, operation, returns)
    system.give(system.lease())
    system.start()
    failed = system.until_told(m.RolloutFailed, 60.0)
    assert failed.kind is FaultKind.INFRASTRUCTURE
    assert re.search(says, failed.detail)
    assert len(system.engine().asked) == (operation != "reset")
    assert system.bench.actor("weight_sync").suspects == []


def test_a_whole_picture_with_too_little_data_that_an_engine_refuses_is_a_fault_of_the_environment(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    reset = Watched.reset

    async def reset_with_half_a_picture(self: Watched, *given: Any, **named: Any) -> Observation:
        return replace(await reset(self, *given, **named), screenshot=png_of_data(b""))

    monkeypatch.setattr(Watched, "reset", reset_with_half_a_picture)
    system.engine().refuses = "the screenshot cannot be read"
    system.give(system.lease())
    system.start()
    failed = system.until_told(m.RolloutFailed, 60.0)
    assert failed.kind is FaultKind.INFRASTRUCTURE
    assert failed.detail.startswith("the screenshot is corrupt: image file is truncated")


def test_a_method_without_async_is_named(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Watched, "evaluate", lambda *_, **__: 1.0)
    system.give(system.lease())
    system.start()
    failed = system.until_told(m.RolloutFailed, 60.0)
    assert failed.detail == (
        "expected evaluate of environments of kind 'simulated' to return a coroutine (define it with "
        "`async def`), got 1.0"
    )


def test_an_instruction_too_long_for_a_message_is_named_and_the_environment_lives(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    reset = Watched.reset

    async def reset_with_a_book(self: Watched, *given: Any, **named: Any) -> Observation:
        return replace(await reset(self, *given, **named), instruction="word " * 20_000)

    monkeypatch.setattr(Watched, "reset", reset_with_a_book)
    system.give(system.lease())
    system.start()
    failed = system.until_told(m.RolloutFailed, 60.0)
    assert failed.kind is FaultKind.POLICY
    assert failed.detail.startswith("the instruction is too long for a message, with past answers")
    assert system.bench.is_alive(ENV)


# ---- load ----


def test_when_it_stops_the_record_says_how_busy_it_was(system: System) -> None:
    system.engine().delay_s = 2.0
    system.give(system.lease())
    system.start()
    system.until_told(m.RolloutStored)
    system.let(3.0)
    system.stop()
    (load,) = system.reader.find_events(kinds=[LOAD])
    assert load.subject == ENV
    totals: dict[str, Any] = dict(load.data)
    assert totals["engine_wait_s"] == pytest.approx(8.0, abs=0.5)
    assert totals["in_episode_s"] >= totals["engine_wait_s"]
    assert totals["idle_s"] == pytest.approx(3.0, abs=0.5)
    assert totals["in_episode_s"] + totals["idle_s"] <= totals["wall_s"]
