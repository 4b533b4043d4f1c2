"""A desktop in a virtual machine that serves OSWorld's guest protocol.

A machine is used only after checks: it takes screenshots, a window manager runs, a window has the keyboard
focus, and nothing of another episode is left on it. Each action is sent once. An action that was not
confirmed, a screenshot that is missing and a reset by another program are faults and never lead to a reward.
"""

import asyncio
import contextlib
import shutil
import signal
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

from dart.config.config import Config
from dart.config.injected_faults import InjectedFault
from dart.config.machine_address import MachineAddress
from dart.config.sections import OSWorldSettings
from dart.core.actions import Action, format_action
from dart.core.run_directory import RunPaths
from dart.environments.deadlines import LeftS, counting_down
from dart.environments.faults import (
    ActionNotConfirmed,
    CallFailed,
    DirtyStart,
    InfrastructureFault,
    MachineNotReady,
    MachineTaken,
    TaskUnsupported,
)
from dart.environments.osworld.guest import Guest
from dart.environments.osworld.guest_network import await_network
from dart.environments.osworld.judgements import Judged, JudgementLog
from dart.environments.osworld.judging import judge, refuse_unscorable
from dart.environments.osworld.keyboard import keyboard_lines, lines_done, parts_of, program, seconds_of
from dart.environments.osworld.machine_ledger import FOLDER
from dart.environments.osworld.machine_owner import OWNER_FILE, TAKEN
from dart.environments.osworld.paths import inside
from dart.environments.osworld.pool import PoolProvider
from dart.environments.osworld.providers import (
    AddressList,
    DockerProvider,
    LocalProvider,
    Provider,
)
from dart.environments.osworld.readiness import GuestState, break_guest, read_guest_state, refuse_unusable
from dart.environments.osworld.scoring_environment import ScoringEnvironment, find_evaluators
from dart.environments.osworld.setup_steps import (
    Setting,
    TaskSetting,
    fetch_files,
    refuse_unsupported,
    take_steps,
)
from dart.environments.osworld.tasks import OSWorldTask, SetupStep, load_task
from dart.environments.protocol import NO_ROLLOUT, EpisodeKey, Observation, StepResult, require_episode
from dart.environments.scoring import clamped_score
from dart.environments.screen_io import Breakable, ScreenIO
from dart.environments.screenshot_checks import FrameWatch, frame_size, observation_of, refuse_frozen

CALL_DEADLINE_S = 10.0
"""Deadline of a single call while a guest starts. A call that fails is repeated."""

ASK_EVERY_S = 0.5

WINDOW_WITHIN_S = 60.0
"""How long to wait for the window of a program that a task starts, before the next setup step runs anyway."""

STABILITY_CHECKS = 5
"""Largest number of times that a machine's state is read again until it is stable and clean."""

DISTURB_DEADLINE_S = 30.0

MOVES_POINTER = """
import pyautogui
pyautogui.FAILSAFE = False
x, y = pyautogui.position()
pyautogui.moveTo({to})
print(x, y, sep=", ")
"""
"""Python program that moves the pointer to ``{to}`` and prints the position where the pointer was."""

AWAY = "x + 40 if x < 200 else x - 40, y + 40 if y < 200 else y - 40"
"""Position 40 pixels from the pointer (x, y) on both axes: moving there has to change the screenshot."""

BACKGROUND_PROGRAMS = (
    *("socat", "bash", "sh", "python", "python3", "sudo", "nohup", "sleep", "systemctl", "service"),
    *("pkill", "killall", "kill", "mkdir", "touch", "cp", "mv", "rm", "tar", "gsettings", "tinyproxy"),
)
"""Programs that tasks launch and that show no window of their own."""


@dataclass(slots=True)
class _Episode:
    task: OSWorldTask
    setting: Setting
    seed: int
    key: EpisodeKey
    frames: FrameWatch = field(default_factory=FrameWatch)


class OSWorldEnvironment(Breakable):
    """Plays OSWorld tasks, on one machine at a time.

    Parking does nothing: the guest protocol cannot stop a machine's clock.
    """

    def __init__(
        self,
        settings: OSWorldSettings,
        provider: Provider,
        cache: Path,
        scratch: Path,
        guest_of: Callable[[str, MachineAddress], Guest] = Guest,
        keep: Callable[[Judged], None] = lambda judged: None,
    ) -> None:
        """Create an environment without a machine; the first reset asks the provider for one.

        cache     folder with the files that tasks download, one folder for each task; environments share it
        scratch   folder of this environment alone, emptied before each episode
        keep      called with each judgement by `keep_judgement`
        """
        self.screen_io = ScreenIO()
        self._settings = settings
        self._provider = provider
        self._cache = cache
        self._scratch = scratch
        self._guest_of = guest_of
        self._keep = keep
        self._guest: Guest | None = None
        self._episode: _Episode | None = None
        self._judged: Judged | None = None
        """The last judgement, until `keep_judgement` has written it."""
        self._clean: dict[str, GuestState] = {}
        """State of a clean machine, for comparison at each reset, by `_snapshot_of` a task.

        It is first the state of the first machine. With ``renew = "recreate"`` it is replaced when two new
        machines in a row have the same state; with ``"keep"``, at each reset."""
        self._last: GuestState | None = None
        """State of the machine at the last reset, before the setup steps; None before the first reset."""

    async def reset(
        self, task_id: str, seed: int, *, deadline_s: float, episode: EpisodeKey = NO_ROLLOUT
    ) -> Observation:
        """Start an episode; see `Environment.reset`. The seed has no effect: OSWorld tasks are fixed."""
        task = load_task(task_id, self._settings.tasks)
        self._episode = None
        refuse_unscorable(task, self._scoring())
        refuse_unsupported(task.setup, task_id)
        async with self._operation(deadline_s) as left_s:
            await self.give_back()
            files = self._setting(task)
            await fetch_files(task, files, left_s)
            guest = await self._clean_machine(task, left_s)
            shutil.rmtree(self._scratch, ignore_errors=True)
            setting = Setting.of(files, guest)
            await guest.upload(OWNER_FILE, setting.owner.encode(), deadline_s=left_s())
            await self.screen_io.on_start()
            await self._await_ready(guest, left_s, retries=False)
            before = await read_guest_state(guest, deadline_s=left_s())
            self._refuse_dirty(guest, before, task)
            await await_network(task.setup, setting, self._settings.network_hosts, left_s)
            await self._set_up(task, setting, left_s)
            opens = any(map(_opens_window, task.setup))
            await self._await_ready(guest, left_s, before=before if opens else None)
            played = _Episode(task, setting, seed, episode)
            observation = await self._observation(played, left_s)
        self._episode = played
        return observation

    async def observe(self, *, deadline_s: float) -> Observation:
        episode = require_episode(self._episode, "observe")
        async with self._operation(deadline_s) as left_s:
            return await self._observation(episode, left_s)

    async def step(self, action: Action, *, deadline_s: float) -> StepResult:
        episode = require_episode(self._episode, "step")
        lines = list(keyboard_lines(action))
        # The policy chooses the length of a text, so the time of its keys comes on top of the deadline.
        async with self._operation(deadline_s + sum(map(seconds_of, lines))) as left_s:
            await self._act(episode, action, lines, left_s)
            await asyncio.sleep(min(self._settings.pause_s, left_s()))
        episode.frames.acted()
        return StepResult(terminated=False)

    async def run_command(self, command: str, *, deadline_s: float) -> None:
        """Run a command in a shell of the episode's machine, for the scripts of
        `dart.environments.osworld.oracles`.

        Raises CallFailed when the command fails."""
        episode = require_episode(self._episode, "run_command")
        async with self._operation(deadline_s) as left_s:
            guest = episode.setting.guest
            ended = await guest.execute(command, shell=True, deadline_s=left_s())
        if ended.returncode:
            said = (ended.error or ended.output).strip()[-200:]
            raise CallFailed(guest.name, command, f"exit code {ended.returncode}: {said}")

    async def evaluate(self, *, deadline_s: float) -> float:
        episode = require_episode(self._episode, "evaluate")
        async with self._operation(deadline_s) as left_s:
            await refuse_unusable(episode.setting.guest, episode.setting.owner, deadline_s=left_s())
            await self._refuse_frozen(episode, left_s)
            judgement = await judge(episode.task, episode.setting, self._scoring(), left_s)
        raw = self.screen_io.filter_score(judgement.score)
        score = clamped_score(episode.task.task_id, raw)
        self._judged = Judged(judgement, episode.task.task_id, episode.seed, episode.key)
        return score

    async def keep_judgement(self) -> None:
        if self._judged is not None:
            self._keep(self._judged)
            self._judged = None

    def is_infeasible(self, task_id: str) -> bool:
        return load_task(task_id, self._settings.tasks).is_infeasible

    async def healthy(self, *, deadline_s: float) -> bool:
        guest = self._guest
        if guest is None:  # given back, or gone after a fault: the next reset asks for one
            return True
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
            self._guest.simulated_failure = "died" if number is signal.SIGKILL else "hung"

    async def disturb(self, kind: InjectedFault) -> None:
        """Cause an injected fault inside the guest (`dart.environments.fault_injection`)."""
        if self._guest is not None:
            await break_guest(self._guest, kind.value, deadline_s=DISTURB_DEADLINE_S)

    async def give_back(self) -> None:
        if self._settings.renew == "recreate":
            await self.close()

    async def close(self) -> None:
        guest, self._guest, self._episode = self._guest, None, None
        if guest is not None:
            await guest.close()
        await self._provider.release()  # also without a guest: an earlier process may have left a machine
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _scoring(self) -> ScoringEnvironment:
        """Return the Python environment with the evaluators. Raises EvaluatorsMissing."""
        return find_evaluators(self._settings.evaluators)

    # ---- a clean and ready machine ----

    async def _clean_machine(self, task: OSWorldTask, left_s: LeftS) -> Guest:
        """Return a clean machine. The setting ``renew`` decides how it is made.

        `recreate` asks for a new machine (`reset` has given back the last one), `revert` reverts the present
        one to the task's snapshot, and `keep` changes nothing. Raises DirtyStart when the machine differs
        from a clean one."""
        renew = self._settings.renew
        if self._guest is None:
            lease = await self._provider.acquire(deadline_s=left_s())
            self._guest = self._guest_of(lease.name, lease.address)
        guest = self._guest
        if renew == "revert":
            await self._provider.revert(task.snapshot, deadline_s=left_s())
        await self._await_ready(guest, left_s)
        snapshot = self._snapshot_of(task)
        state = await self._stable_state(guest, left_s, self._clean.get(snapshot))
        agrees = self._last is not None and not state.differences(self._last)
        if snapshot not in self._clean or renew == "keep" or (renew == "recreate" and agrees):
            self._clean[snapshot] = state
        self._last = state
        self._refuse_dirty(guest, state, task)
        return guest

    def _snapshot_of(self, task: OSWorldTask) -> str:
        """Return the snapshot that the machine of a task is reverted to; empty when nothing is reverted."""
        return task.snapshot if self._settings.renew == "revert" else ""

    async def _set_up(self, task: OSWorldTask, setting: Setting, left_s: LeftS) -> None:
        """Run the setup steps of a task. After a step that starts a program, wait for its window.

        The next step may type or click, and input that comes too early goes to another window without any
        error. Whether a window opened at all is checked after the last step.
        """
        for step in task.setup:
            starts_program = step.type == "launch" and _opens_window(step)
            before = await read_guest_state(setting.guest, deadline_s=left_s()) if starts_program else None
            await take_steps((step,), setting, left_s)
            if before is not None:
                await self._await_window(setting.guest, before, left_s)

    async def _await_window(self, guest: Guest, before: GuestState, left_s: LeftS) -> None:
        """Wait for a window that is not in ``before``; return without an error after `WINDOW_WITHIN_S`."""
        patience_s = counting_down(min(WINDOW_WITHIN_S, left_s()))
        while patience_s() > ASK_EVERY_S:
            state = await read_guest_state(guest, deadline_s=left_s())
            if state.work_windows - before.work_windows:
                return
            await asyncio.sleep(ASK_EVERY_S)

    async def _await_ready(
        self, guest: Guest, left_s: LeftS, *, before: GuestState | None = None, retries: bool = True
    ) -> None:
        """Wait until the guest takes screenshots, its window manager runs and a window has the keyboard
        focus.

        before    the state before the task opened its windows, to wait for a new window, too; else None
        retries   whether to try again until the deadline

        Raises MachineNotReady with what is still missing, or the fault of the last call.
        """
        deadline_s = left_s()
        while True:
            within_s = min(CALL_DEADLINE_S, left_s())
            try:
                await guest.screenshot(deadline_s=within_s)
                missing = (await read_guest_state(guest, deadline_s=within_s)).missing(before)
                if not missing:
                    return
                raise MachineNotReady(guest.name, missing, deadline_s)
            except InfrastructureFault:
                if not retries or left_s() <= 2 * ASK_EVERY_S:
                    raise
            await asyncio.sleep(ASK_EVERY_S)

    async def _stable_state(self, guest: Guest, left_s: LeftS, clean: GuestState | None) -> GuestState:
        """Read the state of a machine again until its windows are stable and it equals a clean machine.

        A desktop session opens some windows late. After `STABILITY_CHECKS` pauses the last state is returned
        as it is.

        clean   the state of a clean machine; None if it is not known yet
        """
        state = await read_guest_state(guest, deadline_s=left_s())
        for _ in range(STABILITY_CHECKS):
            await asyncio.sleep(min(self._settings.pause_s, left_s()))
            before, state = state, await read_guest_state(guest, deadline_s=left_s())
            is_clean = clean is None or not state.differences(clean)
            if is_clean and state.titles == before.titles:
                break
        return state

    def _refuse_dirty(self, guest: Guest, state: GuestState, task: OSWorldTask) -> None:
        if differences := state.differences(self._clean[self._snapshot_of(task)]):
            raise DirtyStart(guest.name, differences)

    def _setting(self, task: OSWorldTask) -> TaskSetting:
        settings = self._settings
        try:
            cache = inside(self._cache, task.task_id.rpartition("/")[2])
        except ValueError as error:
            raise TaskUnsupported(
                task.task_id, f"its files would lie outside of the cache: {error}"
            ) from error
        return TaskSetting(
            task_id=task.task_id,
            cache=cache,
            scratch=self._scratch,
            password=settings.password,
            width=settings.width,
            height=settings.height,
        )

    # ---- an episode ----

    async def _act(self, episode: _Episode, action: Action, lines: list[str], left_s: LeftS) -> None:
        """Send the lines of an action once. Raises ActionNotConfirmed unless the guest confirms all of them,
        or MachineTaken."""
        guest, owner, confirmed = episode.setting.guest, episode.setting.owner, 0
        for part in parts_of(self.screen_io.filter_input(lines)):
            ended = await guest.python(program(part, uuid.uuid4().hex, owner), deadline_s=left_s())
            if TAKEN in ended.error:
                raise MachineTaken(guest.name)
            done = lines_done(ended.output)
            if done is None:
                said = (ended.error or ended.output).strip()[-200:]
                how = f"its program ended with code {ended.returncode}: {said!r}"
                raise ActionNotConfirmed(format_action(action), how)
            confirmed += done
        if confirmed != len(lines):
            how = f"{confirmed} of {len(lines)} input calls arrived"
            raise ActionNotConfirmed(format_action(action), how)

    async def _observation(self, episode: _Episode, left_s: LeftS) -> Observation:
        png = await self._capture(episode, left_s)
        return observation_of(png, episode.task.instruction, episode.frames)

    async def _capture(self, episode: _Episode, left_s: LeftS) -> bytes:
        """Take a screenshot. Raises CorruptFrame unless it has the size of the screen."""
        png = self.screen_io.filter_screenshot(await episode.setting.guest.screenshot(deadline_s=left_s()))
        frame_size(png, expected=(self._settings.width, self._settings.height))
        return png

    async def _refuse_frozen(self, episode: _Episode, left_s: LeftS) -> None:
        """Raise FrozenFrame when the screenshots of a suspicious episode do not change as the pointer moves.

        The screenshots of a guest include the pointer, so the moved pointer serves as the mark."""
        back = ""

        async def move_pointer(away: bool) -> None:
            nonlocal back
            moves = MOVES_POINTER.format(to=AWAY if away else back)
            back = (await episode.setting.guest.python(moves, deadline_s=left_s())).last_line

        await refuse_frozen(
            episode.task.task_id, episode.frames, lambda: self._capture(episode, left_s), move_pointer
        )

    @contextlib.asynccontextmanager
    async def _operation(self, deadline_s: float) -> AsyncIterator[LeftS]:
        """Yield the function that counts ``deadline_s`` down. A fault in the block ends the episode.

        The next reset then renews or replaces the machine."""
        try:
            yield counting_down(deadline_s)
        except InfrastructureFault:
            self._episode = None
            has_simulated_failure = self._guest is not None and self._guest.simulated_failure
            if self._settings.renew == "recreate" or has_simulated_failure:
                await self.close()
            raise


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
    log = JudgementLog(run_dir, name)
    return OSWorldEnvironment(settings, provider, settings.cache, scratch / "osworld", keep=log.add)


def _provider(name: str, scratch: Path, run_dir: Path, settings: OSWorldSettings) -> Provider:
    """Create the provider that the configuration names, for the environment ``name``."""
    match settings.provider:
        case "docker":
            return DockerProvider(run_dir, name, settings.docker)
        case "pool":
            return PoolProvider(name, settings.pool, run_dir / FOLDER)
        case "local":
            return LocalProvider(name, settings, scratch)
        case "addresses":
            index = int("".join(filter(str.isdigit, name)) or 0)
            return AddressList(settings.addresses, index, settings.revert_command)


def make(config: Config, name: str, paths: RunPaths) -> OSWorldEnvironment:
    """Create the environment of the actor ``name`` (`dart.config.environment_kinds`)."""
    return make_osworld(name, paths.scratch / name, paths.root, config.environments.osworld)
