"""Faults injected into an environment on purpose, by a plan that is a pure function of its seed.

The faults are real where possible: a crash kills the process behind the screen, a hang stops it, a doubled
action is sent twice. Silent faults, which raise no error, change what the environment reads from the screen
or sends to it (`ScreenIO`): the environment's own checks have to notice them. Each fault is written to
<run_dir>/faults/<environment>.jsonl before it takes effect, so that a check can show afterwards that no
attempt with a fault became a trajectory. A fault during the reset is the exception: the reset is repeated
within the attempt, which then goes on.
"""

import asyncio
import math
import random
import signal
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from dart.config.injected_faults import InjectedFault
from dart.config.sections import FaultsSettings
from dart.core.actions import Action
from dart.core.run_directory import append_line
from dart.environments.faults import ResetFailed
from dart.environments.protocol import NO_ROLLOUT, EpisodeKey, Observation, StepResult, WrappedEnvironment
from dart.environments.screen_io import Breakable, ScreenIO

T = TypeVar("T")

FIRST_STEPS = (0, 0, 1)
"""The earliest step of a fault, counted from 0, is drawn from these numbers. An episode that ends before that
step has no fault."""

SLOWER_BY_SHARE = 1 / 3
"""Share of a reset's deadline that an injected slow start waits before the reset begins."""

START_DISTURBANCES = (InjectedFault.READY_TOO_EARLY, InjectedFault.DIRTY_RESET, InjectedFault.POPUP)
STEP_DISTURBANCES = (InjectedFault.DEAD_APPLICATION, InjectedFault.DEAD_WINDOW_MANAGER)


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """The fault of one episode, and the earliest step (counted from 0) at which it happens."""

    kind: InjectedFault
    step: int = 0


def planned_fault(faults: FaultsSettings, name: str, number: int) -> PlannedFault | None:
    """Return the fault of an environment's ``number``-th reset or of the episode after it, None for no fault.

    The plan is a function of the seed of ``faults``, of ``name`` and of ``number``.
    """
    rng = random.Random(f"{faults.seed}/{name}/{number}")
    drawn, step = rng.random(), rng.choice(FIRST_STEPS)
    for kind in InjectedFault:
        rate = getattr(faults, kind.value)
        if drawn < rate:
            return PlannedFault(kind, step)
        drawn -= rate
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection:
    """One fault that was injected."""

    unix_s: float
    environment: str
    kind: InjectedFault
    task_id: str
    seed: int
    number: int
    """Number of the reset, counted from 0 since this environment started."""
    rollout_id: int
    """Id of the rollout that was played; 0 for an evaluation."""
    attempt: int
    fence: int


class InjectionLog:
    """Writes every injection to the file of an environment, as one line of JSON."""

    def __init__(self, folder: Path, environment: str, unix_s: Callable[[], float]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / f"{environment}.jsonl"
        self._environment = environment
        self._unix_s = unix_s

    def add(self, kind: InjectedFault, task_id: str, seed: int, number: int, episode: EpisodeKey) -> bool:
        """Write one injection. Return False when the disk refuses the write; no half-written line remains."""
        injection = Injection(
            unix_s=self._unix_s(),
            environment=self._environment,
            kind=kind,
            task_id=task_id,
            seed=seed,
            number=number,
            **asdict(episode),
        )
        try:
            append_line(self._path, msgspec.json.encode(injection))
        except OSError:
            return False
        return True


def read_injections(folder: Path) -> list[Injection]:
    """Return all injections of a run, ordered by environment and then by time."""
    lines = (line for path in sorted(folder.glob("*.jsonl")) for line in path.read_bytes().splitlines())
    return [msgspec.json.decode(line, type=Injection) for line in lines]


class FaultyScreenIO(ScreenIO):
    """Causes the planned fault of an episode once, when it is due.

    A fault loses, doubles or falsifies the input, screenshots and scores that pass. The fault is written to
    the log first; if the disk refuses the write, the fault does not happen.
    """

    def __init__(self, breakable: Breakable) -> None:
        self._breakable = breakable
        self.begin(None, lambda kind: False)

    def begin(self, planned: PlannedFault | None, write: Callable[[InjectedFault], bool]) -> None:
        """Start a new episode.

        planned   the fault of the episode; None for no fault
        write     writes the fault to the log and returns whether that succeeded
        """
        self.steps_done = 0
        self._planned, self._write = planned, write
        self._last: bytes | None = None
        self._is_frozen = False

    def fires(self, kind: InjectedFault, step: float = math.inf) -> bool:
        """Return whether the fault ``kind`` is planned, due at ``step`` and written to the log.

        Without a ``step``, a planned fault is always due. After True, the episode has no planned fault any
        more, and the caller causes this one."""
        planned = self._planned
        if planned is None or planned.kind is not kind or step < planned.step or not self._write(kind):
            return False
        self._planned = None
        return True

    async def on_start(self) -> None:
        if self.fires(InjectedFault.NEVER_READY):
            self._breakable.send_signal(signal.SIGSTOP)
        await self.disturb(START_DISTURBANCES)

    async def disturb(self, kinds: Sequence[InjectedFault], step: float = math.inf) -> None:
        """Cause the planned fault on the screen, if it is one of ``kinds`` and due (see `fires`)."""
        for kind in kinds:
            if self.fires(kind, step):
                await self._breakable.disturb(kind)

    def filter_input(self, calls: list[T]) -> list[T]:
        if calls and self.fires(InjectedFault.LOST_ACTION, self.steps_done):
            return []
        if calls and self.fires(InjectedFault.DOUBLED_ACTION, self.steps_done):
            return calls * 2
        return calls

    def filter_screenshot(self, png: bytes) -> bytes:
        """Return the screenshot, its first half (TRUNCATED_FRAME), or the previous one (FROZEN_FRAME)."""
        if self._last is not None and self.steps_done > 0:
            if self.fires(InjectedFault.TRUNCATED_FRAME, self.steps_done - 1):
                return png[: len(png) // 2]
            frozen_now = self.fires(InjectedFault.FROZEN_FRAME, self.steps_done - 1)
            self._is_frozen = self._is_frozen or frozen_now
        if not self._is_frozen or self._last is None:
            self._last = png
        return self._last

    def filter_score(self, raw: Any) -> Any:
        return math.nan if self.fires(InjectedFault.BAD_EVALUATION) else raw


class FaultyEnvironment(WrappedEnvironment):
    """Injects faults into the inner environment, by a plan that follows from ``faults`` and ``name``."""

    def __init__(
        self,
        inner: Breakable,
        faults: FaultsSettings,
        name: str,
        log: InjectionLog,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        super().__init__(inner)
        self._breakable = inner
        self._screen_io = inner.screen_io = FaultyScreenIO(inner)
        self._faults, self._name = faults, name
        self._log = log
        self._sleep = sleep
        self._resets = 0

    async def reset(
        self, task_id: str, seed: int, *, deadline_s: float, episode: EpisodeKey = NO_ROLLOUT
    ) -> Observation:
        number, self._resets = self._resets, self._resets + 1
        self._screen_io.begin(
            planned_fault(self._faults, self._name, number),
            lambda kind: self._log.add(kind, task_id, seed, number, episode),
        )
        if self._screen_io.fires(InjectedFault.FAILED_RESET):
            raise ResetFailed(task_id, "a fault was injected (environments.faults.failed_reset)")
        if self._screen_io.fires(InjectedFault.SLOW_START):
            await self._sleep(SLOWER_BY_SHARE * deadline_s)
            deadline_s -= SLOWER_BY_SHARE * deadline_s
        return await super().reset(task_id, seed, deadline_s=deadline_s, episode=episode)

    async def step(self, action: Action, *, deadline_s: float) -> StepResult:
        steps_done = self._screen_io.steps_done
        if self._screen_io.fires(InjectedFault.CRASH, steps_done):
            self._breakable.send_signal(signal.SIGKILL)
        if self._screen_io.fires(InjectedFault.HANG, steps_done):
            self._breakable.send_signal(signal.SIGSTOP)
        await self._screen_io.disturb(STEP_DISTURBANCES, steps_done)
        result = await super().step(action, deadline_s=deadline_s)
        self._screen_io.steps_done += 1
        return result
