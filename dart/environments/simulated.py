"""A simulated environment, for measurements of the system around environments.

An episode has a lognormal number of steps and succeeds with a given probability. Both are drawn from the
task, the seed and the rollout. The rollouts of a group therefore differ, and a repeated episode is the same.
Screenshots are real PNG files that differ at each step; the rollouts of a group start with the same
screenshot. A step takes no time: `dart.environments.latency` adds the waits.
"""

import asyncio
import hashlib
import random
import signal
import struct
import zlib
from dataclasses import dataclass, field

from dart.config.config import Config
from dart.config.injected_faults import InjectedFault
from dart.config.sections import SimulationSettings
from dart.core.actions import Action, format_action
from dart.core.run_directory import RunPaths
from dart.environments.browser_inputs import differences, expected_counts, input_calls
from dart.environments.faults import ActionNotConfirmed, EnvironmentTimeout, FrozenFrame, InfrastructureFault
from dart.environments.latency import clipped_lognormal
from dart.environments.miniwob.pages import HEIGHT, WIDTH
from dart.environments.protocol import NO_ROLLOUT, EpisodeKey, Observation, StepResult, require_episode
from dart.environments.scoring import clamped_score
from dart.environments.screen_io import Breakable, ScreenIO
from dart.environments.screenshot_checks import FrameWatch, frame_size, observation_of

MOST_STEPS = 1000
"""Longest simulated episode, in steps."""

INSTRUCTION = "Wait until it is done."

MACHINE = "the simulated environment"


@dataclass(slots=True)
class _Episode:
    task_id: str
    seed: int
    num_steps: int
    succeeds: bool
    steps_done: int = 0
    frames: FrameWatch = field(default_factory=FrameWatch)

    @property
    def terminated(self) -> bool:
        return self.steps_done >= self.num_steps


class SimulatedEnvironment(Breakable):
    """An environment that computes its episodes. Parking does nothing, because its screen has no clock."""

    def __init__(self, simulated: SimulationSettings, seed: int) -> None:
        self.screen_io = ScreenIO()
        self._simulation = simulated
        self._seed = seed
        self._episode: _Episode | None = None
        self._signal = 0
        """The last signal that the imagined process received: SIGKILL, SIGSTOP or 0 for none."""
        self._disturbed: InjectedFault | None = None

    async def reset(
        self, task_id: str, seed: int, *, deadline_s: float, episode: EpisodeKey = NO_ROLLOUT
    ) -> Observation:
        self._signal, self._disturbed = 0, None
        await self.screen_io.on_start()
        await self._raise_fault("reset", deadline_s)
        rng = random.Random(f"{self._seed}/{task_id}/{seed}/{episode.rollout_id}")
        steps = clipped_lognormal(
            rng, self._simulation.steps_median, self._simulation.steps_sigma, MOST_STEPS
        )
        succeeds = rng.random() < self._simulation.success
        self._episode = _Episode(task_id, seed, max(1, round(steps)), succeeds)
        return self._observation(self._episode)

    async def observe(self, *, deadline_s: float) -> Observation:
        return self._observation(await self._playing("observe", deadline_s))

    async def step(self, action: Action, *, deadline_s: float) -> StepResult:
        episode = await self._playing("step", deadline_s)
        if episode.terminated:
            raise RuntimeError(f"step after the end of the episode of {episode.task_id}: call reset first")
        calls = input_calls(action)
        unconfirmed = differences(expected_counts(calls), expected_counts(self.screen_io.filter_input(calls)))
        if unconfirmed:
            raise ActionNotConfirmed(format_action(action), f"{unconfirmed} arrived")
        episode.frames.acted()
        episode.steps_done += 1
        return StepResult(terminated=episode.terminated)

    async def evaluate(self, *, deadline_s: float) -> float:
        episode = await self._playing("evaluate", deadline_s)
        if episode.frames.is_suspicious and self._screenshot(episode) == self._screenshot(episode, mark=1):
            raise FrozenFrame(episode.task_id)
        reached = episode.terminated and episode.succeeds
        return clamped_score(episode.task_id, self.screen_io.filter_score(float(reached)))

    async def healthy(self, *, deadline_s: float) -> bool:
        return self._episode is not None and not self._signal

    def send_signal(self, number: signal.Signals) -> None:
        """Behave like a process that gets the signal: dead after SIGKILL, silent after SIGSTOP."""
        self._signal = number

    async def disturb(self, kind: InjectedFault) -> None:
        """Behave as if windows and applications had this fault."""
        self._disturbed = kind

    async def _playing(self, operation: str, deadline_s: float) -> _Episode:
        await self._raise_fault(operation, deadline_s)
        return require_episode(self._episode, operation)

    async def _raise_fault(self, operation: str, deadline_s: float) -> None:
        """Raise the fault of a dead, stopped or disturbed screen; return when the screen has no fault."""
        if self._disturbed is None and not self._signal:
            return
        self._episode = None
        if self._signal == signal.SIGKILL:
            raise InfrastructureFault(f"{MACHINE} was killed before {operation}")
        if self._signal:
            await asyncio.sleep(deadline_s)
            raise EnvironmentTimeout(operation, deadline_s, f"{MACHINE}, which is stopped")
        raise InfrastructureFault(f"{MACHINE} has the injected fault {self._disturbed}")

    def _observation(self, episode: _Episode) -> Observation:
        png = self._screenshot(episode)
        frame_size(png)
        return observation_of(png, INSTRUCTION, episode.frames)

    def _screenshot(self, episode: _Episode, mark: int = 0) -> bytes:
        return self.screen_io.filter_screenshot(
            screenshot_of(episode.task_id, episode.seed, episode.steps_done, mark)
        )


def screenshot_of(task_id: str, seed: int, step: int, mark: int = 0) -> bytes:
    """Return a PNG of one colour, about 100 bytes. Different arguments give different files.

    mark   1 for the screen with a mark, as `refuse_frozen` draws one; else 0
    """
    digest = hashlib.sha256(f"{task_id}/{seed}/{step}/{mark}".encode()).digest()
    header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, 1, 3, 0, 0, 0)  # one bit for each pixel, a palette
    chunks = [(b"IHDR", header), (b"PLTE", digest[:6]), (b"IDAT", _PIXELS), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, data) for name, data in chunks)


_PIXELS = zlib.compress(bytes((1 + WIDTH // 8) * HEIGHT), 9)
"""Compressed pixels of every screenshot: each pixel has the first colour of the palette."""


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def make(config: Config, name: str, paths: RunPaths) -> SimulatedEnvironment:
    """Create the environment of an actor (`dart.config.environment_kinds`)."""
    return SimulatedEnvironment(config.simulation, config.run.seed)
