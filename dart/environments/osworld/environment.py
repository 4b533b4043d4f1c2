"""A desktop in a virtual machine that serves OSWorld's guest protocol, played as the tasks say.

A machine is used when it has been seen to work: it answers with a picture, a window manager runs, the
keyboard goes somewhere, and nothing of another episode is on it. Actions are sent once. What is not known to
have arrived, a screenshot that cannot be had: each is a fault, never a reward.
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
from dart.config.injected_faults import Injected
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
    FrozenFrame,
    InfrastructureFault,
    MachineDied,
    MachineHung,
    MachineNotReady,
    TaskUnsupported,
)
from dart.environments.osworld.guest import Guest
from dart.environments.osworld.judging import judge
from dart.environments.osworld.keyboard import carried_out, keyboard_calls, program
from dart.environments.osworld.paths import inside
from dart.environments.osworld.providers import Lent, Provider
from dart.environments.osworld.readiness import Look, break_guest, look
from dart.environments.osworld.setup_steps import Setting, take_steps
from dart.environments.osworld.tasks import OSWorldTask, SetupStep, load_task
from dart.environments.protocol import UNNAMED, EpisodeKey, Observation, StepResult
from dart.environments.scoring import clamped_score
from dart.environments.screen_io import ScreenIO
from dart.environments.screenshot_checks import FrameWatch, frame_size

ANSWERS_WITHIN_S = 10.0
"""A guest that comes up has this long for a single answer; it is asked again."""

ASK_EVERY_S = 0.5

WINDOW_WITHIN_S = 60.0
"""A program that a task starts has this long for its window before the next step is taken all the same."""

LOOKS_UNTIL_REST = 5
"""So often a new machine is looked at again until it shows what the first one did."""

DISTURB_DEADLINE_S = 30.0

MOVES_POINTER = """
import pyautogui
pyautogui.FAILSAFE = False
x, y = pyautogui.position()
pyautogui.moveTo({to})
"""
CORNERS = ("x + 40 if x < 200 else x - 40, y + 40 if y < 200 else y - 40", "{x}, {y}")
"""Where the pointer goes so that a picture has to change, and back."""

WORKS_BEHIND = (
    *("socat", "bash", "sh", "python", "python3", "sudo", "nohup", "sleep", "systemctl", "service"),
    *("pkill", "killall", "kill", "mkdir", "touch", "cp", "mv", "rm", "tar", "gsettings", "tinyproxy"),
)
"""Programs tasks launch that show no window of their own."""


@dataclass(slots=True)
class _Episode:
    task: OSWorldTask
    lent: Lent
    guest: Guest
    setting: Setting
    actions: int = 0
    frames: FrameWatch = field(default_factory=FrameWatch)


class OSWorldEnvironment:
    """An `dart.environments.protocol.Environment` of one machine at a time."""

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
        cache     files that tasks would fetch, a folder for each task; shared with other environments
        scratch   a folder of its own, emptied before each episode
        """
        self.wire = ScreenIO()
        self._name = name
        self._settings = settings
        self._provider = provider
        self._cache = cache
        self._scratch = scratch
        self._guest_of = guest_of
        self._lent: Lent | None = None
        self._guest: Guest | None = None
        self._episode: _Episode | None = None
        self._is_used = False
        """Something may have been done to the machine since it was clean."""
        self._clean: Look | None = None
        """How a machine looks before anything is done to it, from the first one on."""
        self._strange: Look | None = None
        """How the last machine looked, if it did not look like that."""

    async def reset(
        self, task_id: str, seed: int, *, deadline_s: float, episode: EpisodeKey = UNNAMED
    ) -> Observation:
        """The seed changes nothing: a task is a task."""
        task = load_task(task_id, self._settings.tasks)
        self._episode = None
        async with self._operation("reset", deadline_s) as left_s:
            lent, guest = await self._renewed(task, left_s)
            self._is_used = True
            shutil.rmtree(self._scratch, ignore_errors=True)
            setting = self._setting(task, guest)
            await self.wire.started()
            await self._ready(guest, left_s, tries=False)
            before = await look(guest, deadline_s=left_s())
            self._refuse_dirty(guest, before)
            await take_steps(task.setup, setting, left_s, around=self._window_after)
            opens = any(map(_opens_window, task.setup))
            await self._ready(guest, left_s, before=before if opens else None)
            played = _Episode(task, lent, guest, setting)
            seen = await self._see(played, left_s)
        self._episode = played
        return seen

    async def observe(self, *, deadline_s: float) -> Observation:
        episode = self._playing("observe")
        async with self._operation("observe", deadline_s) as left_s:
            return await self._see(episode, left_s)

    async def step(self, action: Action, *, deadline_s: float) -> StepResult:
        episode = self._playing("step")
        async with self._operation("step", deadline_s) as left_s:
            if not isinstance(action, Wait):
                await self._act(episode, action, left_s)
            await asyncio.sleep(min(self._settings.pause_s, left_s()))
        episode.frames.acted()
        return StepResult(terminated=False)

    async def evaluate(self, *, deadline_s: float) -> float:
        episode = self._playing("evaluate")
        async with self._operation("evaluate", deadline_s) as left_s:
            if episode.frames.is_suspicious:
                await self._refuse_frozen(episode, left_s)
            (await look(episode.guest, deadline_s=left_s())).refuse_dead()
            await take_steps(episode.task.before_checks, episode.setting, left_s)
            score = await judge(episode.task, episode.setting, left_s)
        return clamped_score(episode.task.task_id, self.wire.scored(score))

    def pays_infeasible(self, task_id: str) -> bool:
        return load_task(task_id, self._settings.tasks).is_infeasible

    async def accessibility_tree(self, *, deadline_s: float) -> str:
        """On demand only: it takes seconds."""
        episode = self._playing("accessibility_tree")
        async with self._operation("accessibility_tree", deadline_s) as left_s:
            return await episode.guest.accessibility_tree(deadline_s=left_s())

    async def park(self, *, deadline_s: float) -> None:
        """The protocol has no word for it: a machine's clock goes on."""

    async def unpark(self, *, deadline_s: float) -> None:
        """Nothing stood still."""

    async def healthy(self, *, deadline_s: float) -> bool:
        guest = self._guest
        if guest is None:
            return False
        if guest.is_busy:  # its episode goes on, and every call of it has a deadline of its own
            return True
        try:
            await guest.screenshot(deadline_s=deadline_s)
        except InfrastructureFault:
            return False
        return True

    def send_signal(self, number: signal.Signals) -> None:
        """As seen from here: the machine is gone (SIGKILL), or answers nothing (SIGSTOP)."""
        if self._guest is not None:
            self._guest.cut("died" if number is signal.SIGKILL else "hung")

    async def disturb(self, kind: Injected) -> None:
        """Break the guest from inside, below every check; for `dart.environments.fault_injection`."""
        if self._guest is not None:
            await break_guest(self._guest, kind.value, deadline_s=DISTURB_DEADLINE_S)

    async def close(self) -> None:
        lent, guest = self._lent, self._guest
        self._lent = self._guest = self._episode = None
        if guest is not None:
            await guest.close()
        if lent is not None:
            await self._provider.take_back(lent)
        shutil.rmtree(self._scratch, ignore_errors=True)

    # ---- a machine that can be used ----

    async def _renewed(self, task: OSWorldTask, left_s: LeftS) -> tuple[Lent, Guest]:
        """A machine on which nothing was done yet, by the policy of the configuration."""
        renew = self._settings.renew
        if self._lent is not None and self._is_used and renew == "revert":
            await self._provider.revert(self._lent, task.snapshot, deadline_s=left_s())
        elif self._lent is not None and self._is_used and renew == "recreate":
            await self.close()
        if self._lent is None or self._guest is None:
            self._lent = await self._provider.lend(deadline_s=left_s())
            self._guest = self._guest_of(self._lent.name, self._lent.address)
        self._is_used = False
        await self._ready(self._guest, left_s)
        seen = await self._at_rest(self._guest, left_s)
        if self._clean is None or renew == "keep" or self._is_outvoted(seen):
            self._clean = seen
        self._refuse_dirty(self._guest, seen)
        return self._lent, self._guest

    def _is_outvoted(self, seen: Look) -> bool:
        """Two new machines in a row look alike, and the first one did not: it was looked at too early."""
        assert self._clean is not None
        before, self._strange = self._strange, seen if seen.differences(self._clean) else None
        is_new = self._settings.renew == "recreate"
        return is_new and None not in (before, self._strange) and not seen.differences(before or seen)

    @contextlib.asynccontextmanager
    async def _window_after(self, step: SetupStep, setting: Setting, left_s: LeftS) -> AsyncIterator[None]:
        """Around a step: a program that it starts has opened a window before the next step is taken.

        Steps that type and click come right after the start; what comes too early goes to another window, and
        the task begins wrong without anybody noticing. Whether a window came at all is looked at in the end.
        """
        if step.type != "launch" or not _opens_window(step):
            yield
            return
        before = await look(setting.guest, deadline_s=left_s())
        yield
        patience_s = counting_down(min(WINDOW_WITHIN_S, left_s()))
        while patience_s() > ASK_EVERY_S:
            seen = await look(setting.guest, deadline_s=left_s())
            if seen.places - before.places:
                return
            await asyncio.sleep(ASK_EVERY_S)

    async def _ready(
        self, guest: Guest, left_s: LeftS, *, before: Look | None = None, tries: bool = True
    ) -> None:
        """Until there is a picture, a window manager and a focus, and a window that was not there before.

        Raises what was wrong the last time: NotReady with what is missing, or how the guest answered.
        """
        deadline_s = left_s()
        while True:
            within_s = min(ANSWERS_WITHIN_S, left_s())
            try:
                await guest.screenshot(deadline_s=within_s)
                missing = (await look(guest, deadline_s=within_s)).missing(before)
                if not missing:
                    return
                raise MachineNotReady(guest.name, missing, deadline_s)
            except (MachineDied, MachineHung, CallFailed, CorruptFrame, MachineNotReady):
                if not tries or left_s() <= 2 * ASK_EVERY_S:
                    raise
            await asyncio.sleep(ASK_EVERY_S)

    async def _at_rest(self, guest: Guest, left_s: LeftS) -> Look:
        """What a machine shows once its windows have stayed the same for a while.

        Those that a session opens by itself come late: there is some time until they are what they were on
        the first machine.
        """
        seen = await look(guest, deadline_s=left_s())
        for _ in range(LOOKS_UNTIL_REST):
            await asyncio.sleep(min(self._settings.pause_s, left_s()))
            before, seen = seen, await look(guest, deadline_s=left_s())
            is_clean = self._clean is None or not seen.differences(self._clean)
            if is_clean and seen.titles == before.titles:
                break
        return seen

    def _refuse_dirty(self, guest: Guest, seen: Look) -> None:
        assert self._clean is not None
        strange = seen.differences(self._clean)
        if strange:
            raise DirtyStart(guest.name, strange)

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
        """Sent once; raises ActionNotConfirmed unless the guest says that all of it was carried out."""
        calls = keyboard_calls(action)
        episode.actions += 1
        number = f"{os.getpid()}-{time.time_ns()}-{episode.actions}"
        ended = await episode.guest.python(program(self.wire.sent(calls), number), deadline_s=left_s())
        done = carried_out(ended.output)
        if done is None:
            said = (ended.error or ended.output).strip()[-200:]
            raise ActionNotConfirmed(format_action(action), f"exit code {ended.returncode}, {said!r}")
        if done != len(calls):
            raise ActionNotConfirmed(format_action(action), f"{done} of {len(calls)} input calls")

    async def _see(self, episode: _Episode, left_s: LeftS) -> Observation:
        """Raises CorruptFrame."""
        png = await self._picture(episode, left_s)
        episode.frames.saw(png)
        width, height = self._settings.width, self._settings.height
        return Observation(screenshot=png, width=width, height=height, instruction=episode.task.instruction)

    async def _picture(self, episode: _Episode, left_s: LeftS) -> bytes:
        png = self.wire.seen(await episode.guest.screenshot(deadline_s=left_s()))
        frame_size(png, expected=(self._settings.width, self._settings.height))
        return png

    async def _refuse_frozen(self, episode: _Episode, left_s: LeftS) -> None:
        """Move the pointer, which is in the picture, and look whether it moved there."""
        plain = await self._picture(episode, left_s)
        told = await episode.guest.python(
            "import pyautogui; print(*pyautogui.position())", deadline_s=left_s()
        )
        x, _, y = told.last_line.partition(" ")
        await episode.guest.python(MOVES_POINTER.format(to=CORNERS[0]), deadline_s=left_s())
        moved = await self._picture(episode, left_s)
        await episode.guest.python(MOVES_POINTER.format(to=CORNERS[1].format(x=x, y=y)), deadline_s=left_s())
        if moved == plain:
            raise FrozenFrame(episode.task.task_id)

    def _playing(self, operation: str) -> _Episode:
        if self._episode is None:
            raise RuntimeError(f"{operation} without an episode: call reset first")
        return self._episode

    @contextlib.asynccontextmanager
    async def _operation(self, name: str, deadline_s: float) -> AsyncIterator[LeftS]:
        """Gives what is left of ``deadline_s``. After a fault the machine is not trusted: the next reset
        renews it, or gets another one."""
        try:
            yield counting_down(deadline_s)
        except InfrastructureFault:
            self._episode = None
            if self._settings.renew == "recreate" or self._guest_is_gone():
                await self.close()
            raise

    def _guest_is_gone(self) -> bool:
        return self._guest is not None and self._guest.is_cut


def _opens_window(step: SetupStep) -> bool:
    """Whether a window of the task has to be there after this step."""
    if step.type != "launch":
        return step.type == "open"
    command = step.parameters.get("command") or ""
    words = command.split() if isinstance(command, str) else [str(word) for word in command]
    return bool(words) and words[0].rpartition("/")[2] not in WORKS_BEHIND


def make_osworld(name: str, scratch: Path, run_dir: Path, settings: OSWorldSettings) -> OSWorldEnvironment:
    """The environment ``name`` with the provider the configuration asks for."""
    provider = _provider(name, scratch, run_dir, settings)
    return OSWorldEnvironment(name, settings, provider, settings.cache, scratch / "osworld")


def _provider(name: str, scratch: Path, run_dir: Path, settings: OSWorldSettings) -> Provider:
    """Only what is asked for is imported."""
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
    """The environment of the actor ``name`` (`dart.config.environment_kinds`)."""
    return make_osworld(name, paths.scratch / name, paths.root, config.environments.osworld)
