"""A desktop in a virtual machine that serves OSWorld's guest protocol.

A machine is used only after checks: it takes screenshots, a window manager runs, a window has the keyboard
focus, and nothing of another episode is left on it. Actions are sent once. An action that was not confirmed
and a screenshot that is missing are faults, never a reward.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

from dart.config.config import Config
from dart.config.injected_faults import InjectedFault
from dart.config.machine_address import MachineAddress
from dart.config.sections import OSWorldSettings
from dart.core.actions import Action, Wait, format_action
from dart.core.run_directory import RunPaths
from dart.environments.deadlines import LeftS, counting_down
from dart.environments.faults import (
    ActionNotConfirmed,
    CallFailed,
    CorruptFrame,
    DirtyStart,
    InfrastructureFault,
    MachineDied,
    MachineHung,
    MachineNotReady,
    TaskUnsupported,
)
from dart.environments.osworld.guest import Guest
from dart.environments.osworld.judging import judge
from dart.environments.osworld.keyboard import keyboard_calls, lines_done, program
from dart.environments.osworld.paths import inside
from dart.environments.osworld.providers import MachineLease, Provider
from dart.environments.osworld.readiness import GuestState, break_guest, read_guest_state
from dart.environments.osworld.setup_steps import Setting, take_steps
from dart.environments.osworld.tasks import OSWorldTask, SetupStep, load_task
from dart.environments.protocol import NO_ROLLOUT, EpisodeKey, Observation, StepResult, require_episode
from dart.environments.scoring import clamped_score
from dart.environments.screen_io import Breakable, ScreenIO
from dart.environments.screenshot_checks import FrameWatch, frame_size, observation_of, refuse_frozen

ANSWERS_WITHIN_S = 10.0
"""Deadline of a single answer while a guest starts; the question is then repeated."""

ASK_EVERY_S = 0.5

WINDOW_WITHIN_S = 60.0
"""How long to wait for the window of a program that a task starts, before the next setup step runs anyway."""

STABILITY_CHECKS = 5
"""How often the state of a new machine is read until it equals the state of the first one."""

DISTURB_DEADLINE_S = 30.0

MOVES_POINTER = """
import pyautogui
pyautogui.FAILSAFE = False
x, y = pyautogui.position()
pyautogui.moveTo({to})
"""
POINTER_POSITION = "import pyautogui; print(*pyautogui.position())"
CORNERS = ("x + 40 if x < 200 else x - 40, y + 40 if y < 200 else y - 40", "{x}, {y}")
"""Positions to which the pointer moves so that the screenshot has to change, and back."""

BACKGROUND_PROGRAMS = (
    *("socat", "bash", "sh", "python", "python3", "sudo", "nohup", "sleep", "systemctl", "service"),
    *("pkill", "killall", "kill", "mkdir", "touch", "cp", "mv", "rm", "tar", "gsettings", "tinyproxy"),
)
"""Programs that tasks launch and that show no window of their own."""


@dataclass(slots=True)
class _Episode:
    task: OSWorldTask
    lease: MachineLease
    guest: Guest
    setting: Setting
    actions: int = 0
    frames: FrameWatch = field(default_factory=FrameWatch)


class OSWorldEnvironment(Breakable):
    """An environment of one machine at a time.

    Parking does nothing: the guest protocol cannot stop a machine's clock.
    """

    def __init__(
        self,
        name: str,
        settings: OSWorldSettings,
        provider: Provider,
        cache: Path,
        scratch: Path,
        guest_of: Callable[[str, MachineAddress], Guest] = Guest,
    ) -> None:
        """
        cache     folder with the files that tasks download, one folder for each task; environments share it
        scratch   folder of this environment alone, emptied before each episode
        """
        self.screen_io = ScreenIO()
        self._name = name
        self._settings = settings
        self._provider = provider
        self._cache = cache
        self._scratch = scratch
        self._guest_of = guest_of
        self._lease: MachineLease | None = None
        self._guest: Guest | None = None
        self._episode: _Episode | None = None
        self._is_used = False
        """The machine may no longer be clean."""
        self._clean: GuestState | None = None
        """State of a clean machine, taken from the first one."""
        self._deviation: GuestState | None = None
        """State of the last new machine, if it differed from `_clean`."""

    async def reset(
        self, task_id: str, seed: int, *, deadline_s: float, episode: EpisodeKey = NO_ROLLOUT
    ) -> Observation:
        """Start an episode; see `Environment.reset`. The seed has no effect: OSWorld tasks are fixed."""
        task = load_task(task_id, self._settings.tasks)
        self._episode = None
        async with self._operation("reset", deadline_s) as left_s:
            lease, guest = await self._clean_machine(task, left_s)
            self._is_used = True
            shutil.rmtree(self._scratch, ignore_errors=True)
            setting = self._setting(task, guest)
            await self.screen_io.on_start()
            await self._await_ready(guest, left_s, retries=False)
            before = await read_guest_state(guest, deadline_s=left_s())
            self._refuse_dirty(guest, before)
            await take_steps(task.setup, setting, left_s, around=self._window_after)
            opens = any(map(_opens_window, task.setup))
            await self._await_ready(guest, left_s, before=before if opens else None)
            played = _Episode(task, lease, guest, setting)
            observation = await self._observation(played, left_s)
        self._episode = played
        return observation

    async def observe(self, *, deadline_s: float) -> Observation:
        episode = require_episode(self._episode, "observe")
        async with self._operation("observe", deadline_s) as left_s:
            return await self._observation(episode, left_s)

    async def step(self, action: Action, *, deadline_s: float) -> StepResult:
        episode = require_episode(self._episode, "step")
        async with self._operation("step", deadline_s) as left_s:
            if not isinstance(action, Wait):
                await self._act(episode, action, left_s)
            await asyncio.sleep(min(self._settings.pause_s, left_s()))
        episode.frames.acted()
        return StepResult(terminated=False)

    async def evaluate(self, *, deadline_s: float) -> float:
        episode = require_episode(self._episode, "evaluate")
        async with self._operation("evaluate", deadline_s) as left_s:
            await self._refuse_frozen(episode, left_s)
            (await read_guest_state(episode.guest, deadline_s=left_s())).refuse_dead()
            await take_steps(episode.task.before_checks, episode.setting, left_s)
            score = await judge(episode.task, episode.setting, left_s)
        return clamped_score(episode.task.task_id, self.screen_io.filter_score(score))

    def is_infeasible(self, task_id: str) -> bool:
        return load_task(task_id, self._settings.tasks).is_infeasible

    async def accessibility_tree(self, *, deadline_s: float) -> str:
        """Return the XML of the accessibility tree, which takes seconds."""
        episode = require_episode(self._episode, "accessibility_tree")
        async with self._operation("accessibility_tree", deadline_s) as left_s:
            return await episode.guest.accessibility_tree(deadline_s=left_s())

    async def healthy(self, *, deadline_s: float) -> bool:
        guest = self._guest
        if guest is None:
            return False
        if guest.is_busy:  # it is playing an episode, whose calls have deadlines of their own
            return True
        try:
            await guest.screenshot(deadline_s=deadline_s)
        except InfrastructureFault:
            return False
        return True

    def send_signal(self, number: signal.Signals) -> None:
        """Behave as if the machine were gone (SIGKILL) or did not respond (SIGSTOP)."""
        if self._guest is not None:
            self._guest.simulate_failure("died" if number is signal.SIGKILL else "hung")

    async def disturb(self, kind: InjectedFault) -> None:
        """Break something inside the guest, for `dart.environments.fault_injection`."""
        if self._guest is not None:
            await break_guest(self._guest, kind.value, deadline_s=DISTURB_DEADLINE_S)

    async def close(self) -> None:
        lease, guest = self._lease, self._guest
        self._lease = self._guest = self._episode = None
        if guest is not None:
            await guest.close()
        if lease is not None:
            await self._provider.release(lease)
        shutil.rmtree(self._scratch, ignore_errors=True)

    # ---- a clean and ready machine ----

    async def _clean_machine(self, task: OSWorldTask, left_s: LeftS) -> tuple[MachineLease, Guest]:
        """Return a clean machine: a new one, a reverted one or the same, as ``renew`` says."""
        renew = self._settings.renew
        if self._lease is not None and self._is_used and renew == "revert":
            await self._provider.revert(self._lease, task.snapshot, deadline_s=left_s())
        elif self._lease is not None and self._is_used and renew == "recreate":
            await self.close()
        if self._lease is None or self._guest is None:
            self._lease = await self._provider.acquire(deadline_s=left_s())
            self._guest = self._guest_of(self._lease.name, self._lease.address)
        self._is_used = False
        await self._await_ready(self._guest, left_s)
        state = await self._stable_state(self._guest, left_s)
        if self._clean is None or renew == "keep" or self._is_outvoted(state):
            self._clean = state
        self._refuse_dirty(self._guest, state)
        return self._lease, self._guest

    def _is_outvoted(self, state: GuestState) -> bool:
        """Whether two new machines in a row agree and differ from the first one, which was then read too
        early."""
        assert self._clean is not None
        before, self._deviation = self._deviation, state if state.differences(self._clean) else None
        is_new = self._settings.renew == "recreate"
        return is_new and None not in (before, self._deviation) and not state.differences(before or state)

    @contextlib.asynccontextmanager
    async def _window_after(self, step: SetupStep, setting: Setting, left_s: LeftS) -> AsyncIterator[None]:
        """Wrap a setup step: after it started a program, wait for the program's window.

        The next step may type or click, and input that comes too early goes to another window without any
        error. Whether a window opened at all is checked after the last step.
        """
        if step.type != "launch" or not _opens_window(step):
            yield
            return
        before = await read_guest_state(setting.guest, deadline_s=left_s())
        yield
        patience_s = counting_down(min(WINDOW_WITHIN_S, left_s()))
        while patience_s() > ASK_EVERY_S:
            state = await read_guest_state(setting.guest, deadline_s=left_s())
            if state.work_windows - before.work_windows:
                return
            await asyncio.sleep(ASK_EVERY_S)

    async def _await_ready(
        self, guest: Guest, left_s: LeftS, *, before: GuestState | None = None, retries: bool = True
    ) -> None:
        """Wait for a screenshot, a window manager and a focus, and for a window that is not in ``before``.

        Raises the last problem: MachineNotReady with what is missing, or the fault of a call.
        """
        deadline_s = left_s()
        while True:
            within_s = min(ANSWERS_WITHIN_S, left_s())
            try:
                await guest.screenshot(deadline_s=within_s)
                missing = (await read_guest_state(guest, deadline_s=within_s)).missing(before)
                if not missing:
                    return
                raise MachineNotReady(guest.name, missing, deadline_s)
            except (MachineDied, MachineHung, CallFailed, CorruptFrame, MachineNotReady):
                if not retries or left_s() <= 2 * ASK_EVERY_S:
                    raise
            await asyncio.sleep(ASK_EVERY_S)

    async def _stable_state(self, guest: Guest, left_s: LeftS) -> GuestState:
        """Read the state of a machine until its windows stay the same and equal those of a clean machine.

        A session opens some windows late, so this takes up to `STABILITY_CHECKS` pauses.
        """
        state = await read_guest_state(guest, deadline_s=left_s())
        for _ in range(STABILITY_CHECKS):
            await asyncio.sleep(min(self._settings.pause_s, left_s()))
            before, state = state, await read_guest_state(guest, deadline_s=left_s())
            is_clean = self._clean is None or not state.differences(self._clean)
            if is_clean and state.titles == before.titles:
                break
        return state

    def _refuse_dirty(self, guest: Guest, state: GuestState) -> None:
        assert self._clean is not None
        differences = state.differences(self._clean)
        if differences:
            raise DirtyStart(guest.name, differences)

    def _setting(self, task: OSWorldTask, guest: Guest) -> Setting:
        settings = self._settings
        return Setting(
            task_id=task.task_id,
            guest=guest,
            cache=self._cache_of(task),
            scratch=self._scratch,
            password=settings.password,
            width=settings.width,
            height=settings.height,
        )

    def _cache_of(self, task: OSWorldTask) -> Path:
        try:
            return inside(self._cache, task.task_id.rpartition("/")[2])
        except ValueError as error:
            raise TaskUnsupported(task.task_id, f"its folder {error}") from error

    # ---- an episode ----

    async def _act(self, episode: _Episode, action: Action, left_s: LeftS) -> None:
        """Send an action once. Raises ActionNotConfirmed unless the guest confirms every line of it."""
        calls = keyboard_calls(action)
        episode.actions += 1
        number = f"{os.getpid()}-{time.time_ns()}-{episode.actions}"
        ended = await episode.guest.python(
            program(self.screen_io.filter_input(calls), number), deadline_s=left_s()
        )
        done = lines_done(ended.output)
        if done is None:
            said = (ended.error or ended.output).strip()[-200:]
            raise ActionNotConfirmed(
                format_action(action), f"its program ended with code {ended.returncode}: {said!r}"
            )
        if done != len(calls):
            raise ActionNotConfirmed(format_action(action), f"{done} of {len(calls)} input calls arrived")

    async def _observation(self, episode: _Episode, left_s: LeftS) -> Observation:
        png = await self._capture(episode, left_s)
        return observation_of(png, episode.task.instruction, episode.frames)

    async def _capture(self, episode: _Episode, left_s: LeftS) -> bytes:
        """Take a screenshot. Raises CorruptFrame unless it has the size of the screen."""
        png = self.screen_io.filter_screenshot(await episode.guest.screenshot(deadline_s=left_s()))
        frame_size(png, expected=(self._settings.width, self._settings.height))
        return png

    async def _refuse_frozen(self, episode: _Episode, left_s: LeftS) -> None:
        """Raise FrozenFrame unless a movement of the pointer, which screenshots include, shows on them."""
        x = y = ""

        async def move_pointer(away: bool) -> None:
            nonlocal x, y
            if away:
                position = await episode.guest.python(POINTER_POSITION, deadline_s=left_s())
                x, _, y = position.last_line.partition(" ")
            to = CORNERS[0] if away else CORNERS[1].format(x=x, y=y)
            await episode.guest.python(MOVES_POINTER.format(to=to), deadline_s=left_s())

        await refuse_frozen(
            episode.task.task_id, episode.frames, lambda: self._capture(episode, left_s), move_pointer
        )

    @contextlib.asynccontextmanager
    async def _operation(self, name: str, deadline_s: float) -> AsyncIterator[LeftS]:
        """Count down ``deadline_s``. A fault ends the episode; the next reset renews or replaces the
        machine."""
        try:
            yield counting_down(deadline_s)
        except InfrastructureFault:
            self._episode = None
            if self._settings.renew == "recreate" or self._has_simulated_failure():
                await self.close()
            raise

    def _has_simulated_failure(self) -> bool:
        return self._guest is not None and self._guest.has_simulated_failure


def _opens_window(step: SetupStep) -> bool:
    """Whether this setup step opens a window of the task."""
    if step.type != "launch":
        return step.type == "open"
    command = step.parameters.get("command") or ""
    words = command.split() if isinstance(command, str) else [str(word) for word in command]
    return bool(words) and words[0].rpartition("/")[2] not in BACKGROUND_PROGRAMS


def make_osworld(name: str, scratch: Path, run_dir: Path, settings: OSWorldSettings) -> OSWorldEnvironment:
    """Create the environment ``name`` with the provider that the configuration names."""
    provider = _provider(name, scratch, run_dir, settings)
    return OSWorldEnvironment(name, settings, provider, settings.cache, scratch / "osworld")


def _provider(name: str, scratch: Path, run_dir: Path, settings: OSWorldSettings) -> Provider:
    """Create the configured provider; only its module is imported."""
    if settings.provider == "docker":
        from dart.environments.osworld.docker import DockerProvider

        return DockerProvider(f"{run_dir.absolute()}:{name}", settings.docker)
    if settings.provider == "pool":
        from dart.environments.osworld.pool import PoolProvider

        return PoolProvider(name, settings.pool, run_dir / "machines")
    if settings.provider == "local":
        from dart.environments.osworld.local import LocalProvider

        return LocalProvider(name, settings, scratch)
    from dart.environments.osworld.providers import AddressList

    index = int("".join(filter(str.isdigit, name)) or 0)
    return AddressList(settings.addresses, index, settings.revert_command)


def make(config: Config, name: str, paths: RunPaths) -> OSWorldEnvironment:
    """Create the environment of the actor ``name`` (`dart.config.environment_kinds`)."""
    return make_osworld(name, paths.scratch / name, paths.root, config.environments.osworld)
