"""An environment without a browser, for measurements of everything around environments.

An episode has a lognormal number of steps and succeeds with a given chance, both drawn from the task, the
seed and the rollout, so that rollouts of one group differ and an episode that is played again is the same.
Screenshots are real PNG files of the frame of every task, and differ by step; a group's rollouts start from
the same one. It takes no time: `dart.environments.latency` adds the waits.
"""

import asyncio
import hashlib
import random
import signal
import struct
import zlib
from dataclasses import dataclass, field

from dart.config.config import Config
from dart.config.injected_faults import Injected
from dart.config.sections import SimulationSettings
from dart.core.actions import Action, format_action
from dart.core.run_directory import RunPaths
from dart.environments.browser_inputs import input_calls
from dart.environments.faults import (
    ActionNotConfirmed,
    ApplicationDied,
    CorruptFrame,
    DirtyStart,
    EnvironmentTimeout,
    FrozenFrame,
    InfrastructureFault,
    MachineNotReady,
    WindowManagerDied,
)
from dart.environments.input_audit import differences, receipts_of
from dart.environments.latency_model import cut_lognormal
from dart.environments.miniwob.pages import HEIGHT, WIDTH
from dart.environments.protocol import UNNAMED, EpisodeKey, Observation, StepResult
from dart.environments.scoring import clamped_score
from dart.environments.screen_io import ScreenIO
from dart.environments.screenshot_checks import FrameWatch, frame_size

MOST_STEPS = 1000
"""No simulated episode is longer."""

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


class SimulatedEnvironment:
    """An `dart.environments.protocol.Environment` of nothing but arithmetic."""

    def __init__(self, simulated: SimulationSettings, seed: int) -> None:
        self.wire = ScreenIO()
        self._simulation = simulated
        self._seed = seed
        self._episode: _Episode | None = None
        self._signal = 0
        """What the process that is not there was sent: SIGKILL, SIGSTOP or nothing."""
        self._disturbed: Injected | None = None

    async def reset(
        self, task_id: str, seed: int, *, deadline_s: float, episode: EpisodeKey = UNNAMED
    ) -> Observation:
        self._signal, self._disturbed = 0, None
        await self.wire.started()
        if self._signal:
            await asyncio.sleep(deadline_s)
            raise EnvironmentTimeout("reset", deadline_s, "the simulated environment, which is stopped")
        self._look_for_disturbances(deadline_s)
        rng = random.Random(f"{self._seed}/{task_id}/{seed}/{episode.rollout_id}")
        steps = cut_lognormal(rng, self._simulation.steps_median, self._simulation.steps_sigma, MOST_STEPS)
        succeeds = rng.random() < self._simulation.success
        self._episode = _Episode(task_id, seed, max(1, round(steps)), succeeds)
        return self._see(self._episode)

    async def observe(self, *, deadline_s: float) -> Observation:
        return self._see(await self._playing("observe", deadline_s))

    async def step(self, action: Action, *, deadline_s: float) -> StepResult:
        episode = await self._playing("step", deadline_s)
        if episode.terminated:
            raise RuntimeError(f"step after the end of the episode of {episode.task_id}: call reset first")
        calls = input_calls(action)
        unconfirmed = differences(receipts_of(calls), receipts_of(self.wire.sent(calls)))
        if unconfirmed:
            self._episode = None
            raise ActionNotConfirmed(format_action(action), unconfirmed)
        self._look_for_disturbances(deadline_s)
        episode.frames.acted()
        episode.steps_done += 1
        return StepResult(terminated=episode.terminated)

    async def evaluate(self, *, deadline_s: float) -> float:
        episode = await self._playing("evaluate", deadline_s)
        if episode.frames.is_suspicious and self._seen(episode) == self._seen(episode, mark=1):
            raise FrozenFrame(episode.task_id)
        reached = episode.terminated and episode.succeeds
        return clamped_score(episode.task_id, self.wire.scored(float(reached)))

    def pays_infeasible(self, task_id: str) -> bool:
        return False

    async def park(self, *, deadline_s: float) -> None:
        """Its clock stands still anyway."""

    async def unpark(self, *, deadline_s: float) -> None:
        """Nothing stood still."""

    async def healthy(self, *, deadline_s: float) -> bool:
        return self._episode is not None and not self._signal

    async def close(self) -> None:
        self._episode, self._signal = None, 0

    def send_signal(self, number: signal.Signals) -> None:
        """As if it had a process: SIGKILL ends it, SIGSTOP makes every call last until its deadline."""
        self._signal = number

    async def disturb(self, kind: Injected) -> None:
        """As if it had windows and applications."""
        self._disturbed = kind

    def _look_for_disturbances(self, deadline_s: float) -> None:
        """What the probes of a real screen would find."""
        found = {
            Injected.READY_TOO_EARLY: MachineNotReady(MACHINE, "no window manager", deadline_s),
            Injected.DIRTY_RESET: DirtyStart(MACHINE, "a file of another episode"),
            Injected.POPUP: DirtyStart(MACHINE, "a window nobody asked for"),
            Injected.DEAD_APPLICATION: ApplicationDied("of the model", "stands still"),
            Injected.DEAD_WINDOW_MANAGER: WindowManagerDied("is gone"),
        }
        if self._disturbed is not None:
            self._episode = None
            raise found[self._disturbed]

    async def _playing(self, operation: str, deadline_s: float) -> _Episode:
        if self._signal == signal.SIGKILL:
            self._episode = None
            raise InfrastructureFault(f"the simulated environment was killed before {operation}")
        if self._signal:
            await asyncio.sleep(deadline_s)
            self._episode = None
            raise EnvironmentTimeout(operation, deadline_s, "the simulated environment, which is stopped")
        if self._episode is None:
            raise RuntimeError(f"{operation} without an episode: call reset first")
        return self._episode

    def _see(self, episode: _Episode) -> Observation:
        png = self._seen(episode)
        try:
            frame_size(png)
        except CorruptFrame:
            self._episode = None
            raise
        episode.frames.saw(png)
        return Observation(screenshot=png, width=WIDTH, height=HEIGHT, instruction=INSTRUCTION)

    def _seen(self, episode: _Episode, mark: int = 0) -> bytes:
        return self.wire.seen(screenshot_of(episode.task_id, episode.seed, episode.steps_done, mark))


def screenshot_of(task_id: str, seed: int, step: int, mark: int = 0) -> bytes:
    """A PNG of one colour that belongs to this screen, about 100 bytes."""
    digest = hashlib.sha256(f"{task_id}/{seed}/{step}/{mark}".encode()).digest()
    header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, 1, 3, 0, 0, 0)  # one bit for each pixel, a palette
    chunks = [(b"IHDR", header), (b"PLTE", digest[:6]), (b"IDAT", _PIXELS), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, data) for name, data in chunks)


_PIXELS = zlib.compress(bytes((1 + WIDTH // 8) * HEIGHT), 9)
"""Every pixel is the first colour of the palette."""


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def make(config: Config, name: str, paths: RunPaths) -> SimulatedEnvironment:
    """The environment of any actor (`dart.config.environment_kinds`)."""
    return SimulatedEnvironment(config.simulation, config.run.seed)
