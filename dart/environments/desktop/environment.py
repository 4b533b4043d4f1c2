"""A desktop without a virtual machine: an X server, a window manager and real applications in a sandbox.

Every reset creates a new sandbox and deletes the old one, so nothing outlives an episode. The environment
nevertheless checks that a new sandbox is clean before the first action. The policy sees the whole screen and
the instruction. Episodes end when the policy says so or at the step cap, never by themselves.
"""

import asyncio
import contextlib
import shutil
import signal
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from dart.config.config import Config
from dart.config.injected_faults import InjectedFault
from dart.config.sections import DesktopSettings
from dart.core.actions import Action, Wait, format_action
from dart.core.run_directory import RunPaths
from dart.environments.browser_inputs import InputCounts, differences
from dart.environments.deadlines import LeftS, counting_down
from dart.environments.desktop.inputs import desktop_calls, expected_desktop_counts, own_time_s
from dart.environments.desktop.requirements import missing_for_desktops
from dart.environments.desktop.sandbox_client import DesktopMachine
from dart.environments.desktop.tasks import Instance, State, instance_of, is_infeasible
from dart.environments.faults import (
    ActionNotConfirmed,
    ApplicationDied,
    DesktopMissing,
    DirtyStart,
    InfrastructureFault,
    MachineNotReady,
    TaskUnsupported,
    WindowManagerDied,
)
from dart.environments.protocol import NO_ROLLOUT, EpisodeKey, Observation, StepResult, require_episode
from dart.environments.scoring import clamped_score
from dart.environments.screen_io import Breakable, ScreenIO
from dart.environments.screenshot_checks import FrameWatch, frame_size, observation_of, refuse_frozen

WAIT_S = 1.0
"""Duration of the action `Wait`."""


@dataclass(slots=True)
class _Episode:
    task_id: str
    instance: Instance
    machine: DesktopMachine
    arrived: InputCounts = field(default_factory=Counter)
    frames: FrameWatch = field(default_factory=FrameWatch)


class DesktopEnvironment(Breakable):
    """Plays episodes on local desktops, with a new sandbox for each episode."""

    def __init__(self, name: str, scratch: Path, settings: DesktopSettings) -> None:
        self.screen_io = ScreenIO()
        self._name = name
        self._scratch = scratch / "desktop"
        self._settings = settings
        self._machine: DesktopMachine | None = None
        self._episode: _Episode | None = None

    async def reset(
        self, task_id: str, seed: int, *, deadline_s: float, episode: EpisodeKey = NO_ROLLOUT
    ) -> Observation:
        instance = instance_of(task_id, seed)
        if missing := missing_for_desktops():
            raise DesktopMissing(missing)
        for application in instance.applications:
            if shutil.which(application.command[0]) is None:
                raise TaskUnsupported(
                    task_id, f"{application.command[0]} is not installed; install it, or leave out the task"
                )
        await self.close()
        async with self._operation(deadline_s) as left_s:
            machine = await self._started(left_s)
            files = dict(instance.files)
            for application in instance.applications:
                files.update(application.settings)
            await machine.call("put", files=files, deadline_s=left_s())
            await self.screen_io.on_start()
            await self._refuse_dirty(machine, instance, (), left_s)
            for application in instance.applications:
                await machine.call(
                    "launch",
                    command=list(application.command),
                    window_class=application.window_class,
                    still_s=application.still_s,
                    deadline_s=left_s(),
                )
            classes = tuple(application.window_class for application in instance.applications)
            await self._refuse_dirty(machine, instance, classes, left_s)
            self._episode = _Episode(task_id, instance, machine)
            return await self._observation(self._episode, left_s())

    async def observe(self, *, deadline_s: float) -> Observation:
        episode = require_episode(self._episode, "observe")
        async with self._operation(deadline_s) as left_s:
            return await self._observation(episode, left_s())

    async def step(self, action: Action, *, deadline_s: float) -> StepResult:
        episode = require_episode(self._episode, "step")
        calls = desktop_calls(action)
        async with self._operation(deadline_s + own_time_s(calls)) as left_s:
            if isinstance(action, Wait):
                await asyncio.sleep(WAIT_S)
            sent = self.screen_io.filter_input(calls)
            arrived = Counter(await episode.machine.call("input", calls=sent, deadline_s=left_s()))
            unconfirmed = differences(expected_desktop_counts(calls), arrived - episode.arrived)
            episode.arrived = arrived
            if unconfirmed:
                raise ActionNotConfirmed(format_action(action), f"{unconfirmed} arrived")
            _refuse_dead(await episode.machine.call("status", deadline_s=left_s()))
        episode.frames.acted()
        return StepResult(terminated=False)

    async def evaluate(self, *, deadline_s: float) -> float:
        episode = require_episode(self._episode, "evaluate")
        async with self._operation(deadline_s) as left_s:
            await refuse_frozen(
                episode.task_id,
                episode.frames,
                lambda: self._capture(episode, left_s()),
                lambda shown: episode.machine.call("mark", shown=shown, deadline_s=left_s()),
            )
            if silent := await episode.machine.call("ping", deadline_s=left_s()):
                raise ApplicationDied(
                    f"of the window {silent[0]!r}", "does not answer the ping of its window"
                )
            found = await episode.machine.call("state", deadline_s=left_s())
            _refuse_dead(found)
            reached = float(episode.instance.succeeds(msgspec.convert(found, State)))
        return clamped_score(episode.task_id, self.screen_io.filter_score(reached))

    def is_infeasible(self, task_id: str) -> bool:
        return is_infeasible(task_id)

    async def park(self, *, deadline_s: float) -> None:
        """Stop the applications. The X server and the window manager go on, because what they
        show does not depend on a clock."""
        await self._set_parked(True, deadline_s)

    async def unpark(self, *, deadline_s: float) -> None:
        await self._set_parked(False, deadline_s)

    async def _set_parked(self, parked: bool, deadline_s: float) -> None:
        episode = require_episode(self._episode, "park or unpark")
        async with self._operation(deadline_s) as left_s:
            await episode.machine.call("park", parked=parked, deadline_s=left_s())

    async def healthy(self, *, deadline_s: float) -> bool:
        machine = self._machine
        if machine is None or machine.is_over:
            return False
        if machine.is_busy:  # it is playing an episode, whose calls have deadlines of their own
            return True
        try:
            _refuse_dead(await machine.call("status", deadline_s=deadline_s))
        except InfrastructureFault:
            return False
        return True

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to everything in the sandbox, if one runs."""
        if self._machine is not None:
            self._machine.send_signal(number)

    async def disturb(self, kind: InjectedFault) -> None:
        """Cause an injected fault inside the sandbox (`dart.environments.fault_injection`), if one runs."""
        if self._machine is not None:
            await self._machine.call("disturb", kind=kind.value, deadline_s=self._settings.start_deadline_s)

    async def close(self) -> None:
        machine, self._machine, self._episode = self._machine, None, None
        if machine is not None:
            await machine.close()
            shutil.rmtree(self._scratch, ignore_errors=True)

    async def _started(self, left_s: LeftS) -> DesktopMachine:
        """Start a sandbox, and in it an X server and a window manager."""
        settings = self._settings
        self._machine = await DesktopMachine.start(
            f"the desktop of {self._name}",
            self._scratch,
            memory_bytes=settings.memory_mb * 2**20,
            deadline_s=min(left_s(), settings.start_deadline_s),
        )
        await self._machine.call("screen", width=settings.width, height=settings.height, deadline_s=left_s())
        return self._machine

    async def _observation(self, episode: _Episode, deadline_s: float) -> Observation:
        png = await self._capture(episode, deadline_s)
        return observation_of(png, episode.instance.instruction, episode.frames)

    async def _capture(self, episode: _Episode, deadline_s: float) -> bytes:
        """Take a screenshot. Raises CorruptFrame unless it has the size of the screen."""
        png = await episode.machine.call("screenshot", deadline_s=deadline_s)
        png = self.screen_io.filter_screenshot(png)
        frame_size(png, expected=(self._settings.width, self._settings.height))
        return png

    async def _refuse_dirty(
        self, machine: DesktopMachine, instance: Instance, classes: tuple[str, ...], left_s: LeftS
    ) -> None:
        """Check that the desktop is ready, with exactly the files of the task and one window of each class.

        Raises MachineNotReady, WindowManagerDied, ApplicationDied or DirtyStart.
        """
        found = await machine.call("state", deadline_s=left_s())
        if found["window_manager"]:
            raise MachineNotReady(machine.name, f"the window manager {found['window_manager']}", left_s())
        _refuse_dead(found)
        if unexpected := _unexpected(msgspec.convert(found, State), instance, classes):
            raise DirtyStart(machine.name, unexpected)

    @contextlib.asynccontextmanager
    async def _operation(self, deadline_s: float) -> AsyncIterator[LeftS]:
        """Yield the function that counts ``deadline_s`` down; kill the sandbox after a fault in the block."""
        try:
            yield counting_down(deadline_s)
        except InfrastructureFault:
            if self._machine is not None:
                self._machine.kill()
            self._episode = None
            raise


def _refuse_dead(found: Mapping[str, Any]) -> None:
    """Raise a fault when the window manager or an application was killed, failed or is stopped. An
    application that ended with code 0 is no fault: the policy may have closed it."""
    if found["window_manager"]:
        raise WindowManagerDied(found["window_manager"])
    for name, fault in found["applications"].items():
        if fault and not found["parked"]:
            raise ApplicationDied(name, fault)


def _unexpected(state: State, instance: Instance, classes: tuple[str, ...]) -> str:
    """Describe how the files, clipboard and windows differ from those of the task; empty when they do not."""
    wanted = {name: content for name, content in instance.files.items() if not name.endswith("/")}
    if state.files != wanted:
        names = sorted(set(state.files) ^ set(wanted)) or sorted(wanted)
        return f"the files {', '.join(names)} are missing, changed or not from the task"
    if state.clipboard:
        return "the clipboard is not empty"
    # a window that belongs to no application of the task counts by its title
    found = [
        next((name for name in classes if name in window.window_class), window.title)
        for window in state.windows
    ]
    if sorted(found) != sorted(classes):
        titles = ", ".join(repr(window.title) for window in state.windows) or "none"
        return f"expected windows of {', '.join(classes) or 'no application'}, got: {titles}"
    return ""


def make(config: Config, name: str, paths: RunPaths) -> DesktopEnvironment:
    """Create the environment of the actor ``name`` (`dart.config.environment_kinds`)."""
    return DesktopEnvironment(name, paths.scratch / name, config.environments.desktop)
