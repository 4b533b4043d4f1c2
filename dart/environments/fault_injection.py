"""Faults injected into an environment on purpose, by a plan that is a pure function of its seed.

What is injected is real where it can be: a crash kills the process behind the screen, a hang stops it, a
doubled action is sent twice. Silent faults happen on the `ScreenIO`, below the checks that must notice them.
Each one that strikes is written to <run_dir>/faults/<environment>.jsonl before it has any effect, so that
afterwards it can be shown that no attempt with a fault became a trajectory. Faults of a reset are the
exception (`dart.config.injected_faults.OF_RESET`): a reset is tried again within its attempt.
"""

import asyncio
import json
import math
import random
import signal
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from dart.config.injected_faults import Injected
from dart.config.sections import FaultsSettings
from dart.core.actions import Action
from dart.environments.browser_inputs import Call
from dart.environments.faults import ResetFailed
from dart.environments.protocol import UNNAMED, Environment, EpisodeKey, Observation, StepResult
from dart.environments.screen_io import ScreenIO
from dart.environments.wrapper import WrappedEnvironment

FIRST_STEPS = (0, 0, 1)
"""At which step of its episode a fault strikes, drawn from these. An episode that is over before has none."""

SLOWER_BY_SHARE = 1 / 3
"""Of its deadline a slow reset takes longer."""

DISTURBS_START = (Injected.READY_TOO_EARLY, Injected.DIRTY_RESET, Injected.POPUP)
DISTURBS_STEP = (Injected.DEAD_APPLICATION, Injected.DEAD_WINDOW_MANAGER)


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """What strikes one episode, and at which of its steps (counted from 0) at the earliest."""

    kind: Injected
    step: int = 0


class FaultPlan:
    """Which reset is struck by what. The same seed and name give the same plan; at most one fault each."""

    def __init__(self, faults: FaultsSettings, name: str) -> None:
        self._name = f"{faults.seed}/{name}"
        self._rates = [(kind, float(getattr(faults, kind.value))) for kind in Injected]

    def of(self, number: int) -> PlannedFault | None:
        """Of the ``number``-th reset of this environment and the episode it begins."""
        rng = random.Random(f"{self._name}/{number}")
        drawn, step = rng.random(), rng.choice(FIRST_STEPS)
        for kind, rate in self._rates:
            if drawn < rate:
                return PlannedFault(kind, step)
            drawn -= rate
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection:
    """One fault that struck."""

    unix_s: float
    environment: str
    kind: Injected
    task_id: str
    seed: int
    number: int
    """Of the reset, counted from 0 since this environment started."""
    rollout_id: int
    """0: an evaluation."""
    attempt: int
    fence: int


class InjectionLog:
    """Writes every injection down, one JSON object a line."""

    def __init__(self, folder: Path, environment: str, unix_s: Callable[[], float]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / f"{environment}.jsonl"
        self._environment = environment
        self._unix_s = unix_s

    def add(self, kind: Injected, task_id: str, seed: int, number: int, episode: EpisodeKey) -> bool:
        """Whether it is written down. On a full disk it is not, wholly: nothing half-written stays."""
        injection = Injection(
            unix_s=self._unix_s(),
            environment=self._environment,
            kind=kind,
            task_id=task_id,
            seed=seed,
            number=number,
            **asdict(episode),
        )
        line = json.dumps(asdict(injection)).encode() + b"\n"
        try:
            with self._path.open("ab", buffering=0) as file:
                size = file.tell()
                if file.write(line) < len(line):
                    file.truncate(size)
                    return False
        except OSError:
            return False
        return True


def read_injections(folder: Path) -> list[Injection]:
    """Everything that was injected in a run, by environment and time."""
    lines = (line for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines())
    fields = (json.loads(line) for line in lines)
    return [Injection(**{**values, "kind": Injected(values["kind"])}) for values in fields]


class Breakable(Environment, Protocol):
    """An environment that can be broken from below."""

    wire: ScreenIO

    def send_signal(self, number: signal.Signals) -> None:
        """To the process behind the screen."""
        ...

    async def disturb(self, kind: Injected) -> None:
        """Do to the screen what `DISTURBS_START` and `DISTURBS_STEP` say, below every check.

        Raises ValueError for a kind this environment cannot have.
        """
        ...


class _Strike:
    """The fault planned for the episode that is played, until it struck."""

    def __init__(self, planned: PlannedFault | None, write: Callable[[Injected], bool]) -> None:
        self._planned = planned
        self._write = write
        self._has_struck = False

    def strikes(self, kind: Injected, steps_done: float) -> bool:
        """Whether this is the moment; it is written down first, and what cannot be does not strike."""
        planned = self._planned
        if planned is None or planned.kind is not kind or steps_done < planned.step or self._has_struck:
            return False
        self._has_struck = self._write(kind)
        return self._has_struck


class FaultyWire(ScreenIO):
    """Loses, doubles, freezes and falsifies what passes, as planned."""

    def __init__(self, breakable: Breakable) -> None:
        self._breakable = breakable
        self.strike = _Strike(None, lambda kind: False)
        self.steps_done = 0
        self._last: bytes | None = None
        self._is_frozen = False

    def begin(self, strike: _Strike) -> None:
        """A new episode."""
        self.strike, self.steps_done, self._last, self._is_frozen = strike, 0, None, False

    async def started(self) -> None:
        if self.strike.strikes(Injected.NEVER_READY, math.inf):
            self._breakable.send_signal(signal.SIGSTOP)
        for kind in DISTURBS_START:
            if self.strike.strikes(kind, math.inf):
                await self._breakable.disturb(kind)

    def sent(self, calls: list[Call]) -> list[Call]:
        if calls and self.strike.strikes(Injected.LOST_ACTION, self.steps_done):
            return []
        if calls and self.strike.strikes(Injected.DOUBLED_ACTION, self.steps_done):
            return calls * 2
        return calls

    def seen(self, png: bytes) -> bytes:
        """The picture stops after the step the plan names: what comes is the one before it."""
        if self._last is not None and self.steps_done > 0:
            if self.strike.strikes(Injected.TRUNCATED_FRAME, self.steps_done - 1):
                return png[: len(png) // 2]
            frozen_now = self.strike.strikes(Injected.FROZEN_FRAME, self.steps_done - 1)
            self._is_frozen = self._is_frozen or frozen_now
        if not self._is_frozen or self._last is None:
            self._last = png
        return self._last

    def scored(self, raw: Any) -> Any:
        return math.nan if self.strike.strikes(Injected.BAD_EVALUATION, math.inf) else raw


class FaultyEnvironment(WrappedEnvironment):
    """Breaks the inner environment as planned."""

    def __init__(
        self,
        inner: Breakable,
        plan: FaultPlan,
        log: InjectionLog,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        super().__init__(inner)
        self._breakable = inner
        self._wire = inner.wire = FaultyWire(inner)
        self._plan = plan
        self._log = log
        self._sleep = sleep
        self._resets = 0

    async def reset(
        self, task_id: str, seed: int, *, deadline_s: float, episode: EpisodeKey = UNNAMED
    ) -> Observation:
        number, self._resets = self._resets, self._resets + 1
        planned = self._plan.of(number)
        strike = _Strike(planned, lambda kind: self._log.add(kind, task_id, seed, number, episode))
        self._wire.begin(strike)
        if strike.strikes(Injected.FAILED_RESET, math.inf):
            raise ResetFailed(task_id, "a fault was injected (environments.faults.failed_reset)")
        if strike.strikes(Injected.SLOW_START, math.inf):
            await self._sleep(SLOWER_BY_SHARE * deadline_s)
            deadline_s -= SLOWER_BY_SHARE * deadline_s
        return await super().reset(task_id, seed, deadline_s=deadline_s, episode=episode)

    async def step(self, action: Action, *, deadline_s: float) -> StepResult:
        strike, steps_done = self._wire.strike, self._wire.steps_done
        if strike.strikes(Injected.CRASH, steps_done):
            self._breakable.send_signal(signal.SIGKILL)
        if strike.strikes(Injected.HANG, steps_done):
            self._breakable.send_signal(signal.SIGSTOP)
        for kind in DISTURBS_STEP:
            if strike.strikes(kind, steps_done):
                await self._breakable.disturb(kind)
        result = await super().step(action, deadline_s=deadline_s)
        self._wire.steps_done += 1
        return result
