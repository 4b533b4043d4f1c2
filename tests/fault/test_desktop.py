"""Local desktops for real: every task solved by its script, every fault noticed, nothing left behind.

They need what `make desktop` installs; `make test-desktop` runs them.
"""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from threading import Timer

import psutil
import pytest

from dart.config.injected_faults import InjectedFault
from dart.config.sections import DesktopSettings, FaultsSettings
from dart.core.actions import Action, CallUser, Click, Finished, Hotkey, KeyDown, KeyUp, Scroll, Type, Wait
from dart.core.png import png_size
from dart.environments.desktop import environment as environment_module
from dart.environments.desktop.environment import DesktopEnvironment
from dart.environments.desktop.requirements import missing_for_desktops
from dart.environments.desktop.tasks import EDITOR, NOTES, instance_of, is_infeasible, solution_of, task_ids
from dart.environments.fault_injection import FaultyEnvironment, InjectionLog, read_injections
from dart.environments.faults import (
    ActionNotConfirmed,
    ApplicationDied,
    CallFailed,
    CorruptFrame,
    DirtyStart,
    EnvironmentFault,
    EvaluatorFailed,
    FrozenFrame,
    MachineDied,
    MachineHung,
    MachineNotReady,
    ResetFailed,
    TaskUnsupported,
    WindowManagerDied,
)
from dart.environments.protocol import Environment
from dart.environments.screen_io import ScreenIO

_MISSING = missing_for_desktops()
pytestmark = [
    pytest.mark.desktop,
    pytest.mark.skipif(bool(_MISSING), reason=f"not installed (make desktop): {', '.join(_MISSING)}"),
]

DEADLINE_S = 60.0
HANG_S = 3.0
"""Deadline of what is expected to hang."""

APPENDS = "desktop/editor-append"


@pytest.fixture
async def desktop(tmp_path: Path) -> AsyncIterator[DesktopEnvironment]:
    environment = DesktopEnvironment("env-000", tmp_path, DesktopSettings())
    yield environment
    await environment.close()


async def play(
    environment: Environment,
    task_id: str,
    seed: int = 0,
    *,
    deadline_s: float = DEADLINE_S,
    after_each: Callable[[], Awaitable[None]] | None = None,
) -> float:
    """By the task's script."""
    seen = await environment.reset(task_id, seed, deadline_s=DEADLINE_S)
    for action in solution_of(seen.instruction):
        if not isinstance(action, Finished | CallUser):
            await environment.step(action, deadline_s=deadline_s)
            await environment.observe(deadline_s=deadline_s)
            if after_each is not None:
                await after_each()
    return await environment.evaluate(deadline_s=deadline_s)


def is_installed(task_id: str) -> bool:
    """Whether the applications of a task are; LibreOffice is not part of `make desktop`."""
    return all(shutil.which(one.command[0]) for one in instance_of(task_id, 0).applications)


async def test_a_task_without_its_application_is_refused_by_name(
    desktop: DesktopEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment_module, "missing_for_desktops", list)
    monkeypatch.setattr(environment_module.shutil, "which", lambda program: None)
    with pytest.raises(
        TaskUnsupported, match="desktop/table-sum cannot be played here: localc is not installed"
    ):
        await desktop.reset("desktop/table-sum", 0, deadline_s=DEADLINE_S)


def left_behind(scratch: Path) -> list[str]:
    """Processes that were started with something in this folder."""
    return [
        " ".join(process.info["cmdline"] or ())[:200]
        for process in psutil.process_iter(["cmdline"])
        if str(scratch) in " ".join(process.info["cmdline"] or ()) and process.pid != os.getpid()
    ]


PLAYABLE = [task_id for task_id in task_ids() if not is_infeasible(task_id) and is_installed(task_id)]


def test_most_tasks_can_be_played_here() -> None:
    assert len(PLAYABLE) >= 15


@pytest.mark.slow
@pytest.mark.parametrize("task_id", PLAYABLE)
async def test_a_task_is_solved_by_its_script(desktop: DesktopEnvironment, task_id: str) -> None:
    async def until_all_answer() -> (
        None
    ):  # on a busy machine LibreOffice takes seconds, and loses keys meanwhile
        assert desktop._machine is not None
        assert await desktop._machine.call("ping", within_s=DEADLINE_S, deadline_s=2 * DEADLINE_S) == []

    assert await play(desktop, task_id, after_each=until_all_answer) == 1.0


async def test_a_task_that_is_not_done_is_worth_nothing(desktop: DesktopEnvironment) -> None:
    await desktop.reset(APPENDS, 0, deadline_s=DEADLINE_S)
    await desktop.step(Scroll(300, 300, "down"), deadline_s=DEADLINE_S)
    assert await desktop.evaluate(deadline_s=DEADLINE_S) == 0.0


async def test_the_same_seed_gives_the_same_start_screen(desktop: DesktopEnvironment) -> None:
    first = await desktop.reset(APPENDS, 3, deadline_s=DEADLINE_S)
    again = await desktop.reset(APPENDS, 3, deadline_s=DEADLINE_S)
    other = await desktop.reset(APPENDS, 4, deadline_s=DEADLINE_S)
    assert first == again
    assert other.screenshot != first.screenshot


async def test_typed_text_arrives_as_it_is(desktop: DesktopEnvironment) -> None:
    text = "Az09 ~!@#$%^&*()_+{}|:\"<>?`-=[]\\;',./ äß€Ω日"
    await desktop.reset("desktop/editor-write", 0, deadline_s=DEADLINE_S)
    for action in (Type(text), Hotkey(("ctrl", "s"))):
        await desktop.step(action, deadline_s=DEADLINE_S)
    assert desktop._machine is not None
    state = await desktop._machine.call("state", deadline_s=DEADLINE_S)
    assert state["files"]["notes.txt"].decode().strip() == text


async def test_a_long_text_is_typed_and_no_machine_that_hangs(desktop: DesktopEnvironment) -> None:
    text = "the quick brown fox " * 20
    await desktop.reset("desktop/editor-write", 0, deadline_s=DEADLINE_S)
    await desktop.step(Type(text), deadline_s=2.5)
    await desktop.step(Hotkey(("ctrl", "s")), deadline_s=DEADLINE_S)
    assert desktop._machine is not None
    state = await desktop._machine.call("state", deadline_s=DEADLINE_S)
    assert state["files"]["notes.txt"].decode().strip() == text.strip()


async def test_a_key_that_is_held_for_seconds_is_pressed_once(desktop: DesktopEnvironment) -> None:
    await desktop.reset("desktop/editor-write", 0, deadline_s=DEADLINE_S)
    await desktop.step(KeyDown("a"), deadline_s=DEADLINE_S)
    await asyncio.sleep(2.0)  # a keyboard with auto-repeat would press it dozens of times
    for action in (KeyUp("a"), Hotkey(("ctrl", "s"))):
        await desktop.step(action, deadline_s=DEADLINE_S)
    assert desktop._machine is not None
    state = await desktop._machine.call("state", deadline_s=DEADLINE_S)
    assert state["files"]["notes.txt"].decode().strip() == "a"


@pytest.mark.parametrize(
    ("actions", "text"),
    [
        ((KeyDown("a"), KeyDown("a")), "a"),
        ((KeyDown("shift"), Type("Hello")), "Hello"),
        ((KeyDown("shift"), Type("hello"), KeyUp("shift")), "HELLO"),
        ((KeyUp("shift"), KeyUp("a")), ""),
        ((KeyDown("ctrl"), Hotkey(("ctrl", "c")), KeyUp("ctrl")), ""),
        ((KeyDown("a"), Type("aaa")), "aaa"),
        ((KeyDown("+"), KeyDown("="), KeyUp("+"), KeyUp("=")), "+"),
    ],
)
async def test_a_press_of_a_held_key_and_a_release_of_a_free_one_do_nothing(
    desktop: DesktopEnvironment, actions: tuple[Action, ...], text: str
) -> None:
    await desktop.reset("desktop/editor-write", 0, deadline_s=DEADLINE_S)
    for action in (*actions, KeyUp("a"), Hotkey(("ctrl", "s"))):
        await desktop.step(action, deadline_s=DEADLINE_S)
    assert desktop._machine is not None
    state = await desktop._machine.call("state", deadline_s=DEADLINE_S)
    assert state["files"]["notes.txt"].decode().strip() == text


@pytest.mark.parametrize(
    ("kind", "arrived"), [(InjectedFault.LOST_ACTION, 0), (InjectedFault.DOUBLED_ACTION, 2)]
)
async def test_a_press_that_is_lost_or_doubled_is_a_fault_although_the_key_stays_down(
    desktop: DesktopEnvironment, kind: InjectedFault, arrived: int, tmp_path: Path
) -> None:
    rates = dict.fromkeys((other.value for other in InjectedFault), 0.0) | {kind.value: 1.0}
    log = InjectionLog(tmp_path / "faults", "env-000", lambda: 0.0)
    faulty = FaultyEnvironment(desktop, FaultsSettings(enabled=True, **rates), "x", log)
    await faulty.reset(APPENDS, 0, deadline_s=DEADLINE_S)

    async def presses() -> None:
        for _ in range(3):
            await faulty.step(KeyDown("a"), deadline_s=DEADLINE_S)

    with pytest.raises(ActionNotConfirmed, match=f"lost or doubled: {arrived} of 1 key_down"):
        await presses()


async def test_a_point_outside_of_the_screen_is_its_edge(desktop: DesktopEnvironment) -> None:
    seen = await desktop.reset(APPENDS, 0, deadline_s=DEADLINE_S)
    width, height = png_size(seen.screenshot)
    for aimed, hit in (
        ((200, 300), [200, 300]),
        ((99_999, 99_999), [width - 1, height - 1]),
        ((99_999, 400), [width - 1, 400]),
    ):
        await desktop.step(Click(*aimed), deadline_s=DEADLINE_S)
        assert desktop._machine is not None
        assert (await desktop._machine.call("status", deadline_s=DEADLINE_S))["pointer"] == hit


async def test_a_clipboard_whose_owner_does_not_answer_is_not_an_empty_one(
    desktop: DesktopEnvironment,
) -> None:
    assert await play(desktop, "desktop/editor-to-clipboard") == 1.0
    await desktop.disturb(InjectedFault.DEAD_APPLICATION)
    assert desktop._machine is not None
    with pytest.raises(CallFailed, match="owner of the clipboard did not answer"):
        await desktop._machine.call("state", deadline_s=DEADLINE_S)


async def test_a_clipboard_that_its_owner_gives_in_parts_is_read_whole(desktop: DesktopEnvironment) -> None:
    lines = "the quick brown fox jumps over the lazy dog\n" * 25_000  # more than one request of X holds
    await desktop.reset("desktop/calculator-product", 0, deadline_s=DEADLINE_S)
    assert desktop._machine is not None
    await desktop._machine.call("put", files={NOTES: lines.encode()}, deadline_s=DEADLINE_S)
    editor = {"command": EDITOR.command, "window_class": EDITOR.window_class, "still_s": EDITOR.still_s}
    await desktop._machine.call("launch", **editor, deadline_s=DEADLINE_S)
    for key in ("a", "c"):
        await desktop.step(Hotkey(("ctrl", key)), deadline_s=DEADLINE_S)
    state = await desktop._machine.call("state", deadline_s=DEADLINE_S)
    assert len(state["clipboard"]) == len(lines)
    assert state["clipboard"] == lines


async def test_a_file_that_is_being_saved_all_the_while_is_not_judged(desktop: DesktopEnvironment) -> None:
    await desktop.reset("desktop/editor-save-as", 0, deadline_s=DEADLINE_S)
    assert desktop._machine is not None
    half = {"lu1a2b.tmp": b"half of it"}  # what LibreOffice calls a file until it has written it whole
    await desktop._machine.call("put", files=half, deadline_s=DEADLINE_S)
    with pytest.raises(CallFailed, match="still being saved"):
        await desktop.evaluate(deadline_s=DEADLINE_S)


async def test_a_file_whose_name_is_not_utf_8_is_part_of_the_state(desktop: DesktopEnvironment) -> None:
    await desktop.reset(APPENDS, 0, deadline_s=DEADLINE_S)
    assert desktop._machine is not None
    script = r"cd; f=$(printf 'a\377b'); echo text > $f.txt; mkdir $f"
    with pytest.raises(CallFailed, match="before it had a window"):
        await desktop._machine.call(
            "launch", command=["sh", "-c", script], window_class="none", still_s=0.0, deadline_s=DEADLINE_S
        )
    state = await desktop._machine.call("state", deadline_s=DEADLINE_S)
    assert state["files"]["a\ufffdb.txt"] == b"text\n"
    assert "a\ufffdb" in state["folders"]


async def test_an_application_that_the_policy_closes_is_no_fault(desktop: DesktopEnvironment) -> None:
    assert await play(desktop, "desktop/editor-close") == 1.0


TABLE = "desktop/table-number"
needs_office = pytest.mark.skipif(not is_installed(TABLE), reason="not installed: LibreOffice")


async def start_by_script(desktop: DesktopEnvironment) -> psutil.Process:
    """Start the editor by a shell script beside the calculator; return the process of the editor."""
    await desktop.reset("desktop/calculator-product", 0, deadline_s=DEADLINE_S)
    assert desktop._machine is not None
    script = "mousepad --disable-server; exit $?"
    await desktop._machine.call(
        "launch",
        command=["sh", "-c", script],
        window_class=EDITOR.window_class,
        still_s=EDITOR.still_s,
        deadline_s=DEADLINE_S,
    )
    return process_of(desktop, "mousepad")


async def start_office(desktop: DesktopEnvironment) -> psutil.Process:
    """Start an episode in LibreOffice; return the process that has its window."""
    await desktop.reset(TABLE, 0, deadline_s=DEADLINE_S)
    return process_of(desktop, "soffice.bin")


def process_of(desktop: DesktopEnvironment, name: str) -> psutil.Process:
    assert desktop._machine is not None
    (found,) = (one for one in map(psutil.Process, desktop._machine._pids()) if one.name() == name)
    return found


async def until_stopped(application: psutil.Process) -> None:
    """Wait until the process has been stopped: a signal takes a moment to a process that runs elsewhere."""
    async with asyncio.timeout(DEADLINE_S):
        while application.status() != psutil.STATUS_STOPPED:  # noqa: ASYNC110 - no event tells of it
            await asyncio.sleep(0.01)


StartsByScript = Callable[[DesktopEnvironment], Awaitable[psutil.Process]]
by_script = pytest.mark.parametrize(
    "start", [start_by_script, pytest.param(start_office, marks=needs_office)], ids=["script", "office"]
)


@by_script
async def test_an_application_below_a_script_that_is_killed_is_a_fault(
    desktop: DesktopEnvironment, start: StartsByScript
) -> None:
    application = await start(desktop)
    application.kill()
    with pytest.raises(ApplicationDied, match="ended with code 137"):
        await desktop.evaluate(deadline_s=DEADLINE_S)


@by_script
async def test_an_application_below_a_script_is_parked_and_stopped_with_it(
    desktop: DesktopEnvironment, start: StartsByScript
) -> None:
    application = await start(desktop)
    await desktop.park(deadline_s=DEADLINE_S)
    await until_stopped(application)
    await desktop.unpark(deadline_s=DEADLINE_S)
    assert application.status() != psutil.STATUS_STOPPED
    await desktop.disturb(InjectedFault.DEAD_APPLICATION)
    await until_stopped(application)
    with pytest.raises(ApplicationDied, match="is stopped"):
        await desktop.step(Wait(), deadline_s=DEADLINE_S)


async def test_a_parked_desktop_stands_still_and_goes_on(desktop: DesktopEnvironment) -> None:
    await desktop.reset(APPENDS, 0, deadline_s=DEADLINE_S)
    await desktop.park(deadline_s=DEADLINE_S)
    assert await desktop.healthy(deadline_s=DEADLINE_S)
    await desktop.unpark(deadline_s=DEADLINE_S)
    await desktop.step(Click(200, 200), deadline_s=DEADLINE_S)


@pytest.mark.parametrize(
    ("kind", "fault", "says"),
    [
        (InjectedFault.CRASH, MachineDied, "desktop of env-000 died during input"),
        (InjectedFault.HANG, MachineHung, "desktop of env-000 did not respond during input"),
        (InjectedFault.LOST_ACTION, ActionNotConfirmed, "lost or doubled: 0 of 1 key_down"),
        (InjectedFault.DOUBLED_ACTION, ActionNotConfirmed, "lost or doubled: 2 of 1 key_down"),
        (InjectedFault.FROZEN_FRAME, FrozenFrame, "screenshots of desktop/editor-append froze"),
        (InjectedFault.BAD_EVALUATION, EvaluatorFailed, "got nan"),
        (InjectedFault.FAILED_RESET, ResetFailed, "a fault was injected"),
        (InjectedFault.NEVER_READY, MachineHung, "did not respond during state"),
        (InjectedFault.READY_TOO_EARLY, MachineNotReady, "the window manager was killed by SIGKILL"),
        (InjectedFault.TRUNCATED_FRAME, CorruptFrame, "expected a whole PNG"),
        (InjectedFault.DIRTY_RESET, DirtyStart, "the files of the last episode.txt are missing"),
        (InjectedFault.POPUP, DirtyStart, "expected windows of no application, got: 'Software Updater'"),
        (InjectedFault.DEAD_APPLICATION, ApplicationDied, "mousepad is stopped"),
        (InjectedFault.DEAD_WINDOW_MANAGER, WindowManagerDied, "was killed by SIGKILL"),
    ],
)
async def test_every_injected_fault_is_noticed_before_there_is_a_reward(
    desktop: DesktopEnvironment, kind: InjectedFault, fault: type[EnvironmentFault], says: str, tmp_path: Path
) -> None:
    rates = dict.fromkeys((other.value for other in InjectedFault), 0.0) | {kind.value: 1.0}
    log = InjectionLog(tmp_path / "faults", "env-000", lambda: 0.0)
    faulty = FaultyEnvironment(desktop, FaultsSettings(enabled=True, **rates), "x", log)
    reset_s = 8.0 if kind is InjectedFault.NEVER_READY else DEADLINE_S
    step_s = HANG_S if kind is InjectedFault.HANG else DEADLINE_S

    async def playing() -> None:
        await faulty.reset(APPENDS, 0, deadline_s=reset_s)
        for action in (Hotkey(("end",)), Hotkey(("a",)), Hotkey(("b",))):
            await faulty.step(action, deadline_s=step_s)
            await faulty.observe(deadline_s=step_s)
        await faulty.evaluate(deadline_s=step_s)

    with pytest.raises(fault, match=says):
        await playing()
    assert [injection.kind for injection in read_injections(tmp_path / "faults")] == [kind]
    desktop.screen_io = ScreenIO()  # nothing is injected any more: the next reset repairs what was broken
    assert await play(desktop, APPENDS) == 1.0


async def test_a_desktop_that_is_closed_leaves_no_process(
    desktop: DesktopEnvironment, tmp_path: Path
) -> None:
    await desktop.reset(APPENDS, 0, deadline_s=DEADLINE_S)
    assert left_behind(tmp_path)
    await desktop.close()
    assert not left_behind(tmp_path)


OWNER = """
import asyncio, sys
from pathlib import Path
from dart.config.sections import DesktopSettings
from dart.environments.desktop.environment import DesktopEnvironment
async def main():
    environment = DesktopEnvironment("env-000", Path(sys.argv[1]), DesktopSettings())
    await environment.reset("desktop/editor-append", 0, deadline_s=60.0)
    print("ready", flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""


def test_a_desktop_dies_with_whoever_started_it_also_by_sigkill(tmp_path: Path) -> None:
    command = [sys.executable, "-c", OWNER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path.cwd()) as owner:
        owner_ends = Timer(90.0, owner.kill)  # a test that fails must not wait for it
        owner_ends.start()
        assert owner.stdout is not None
        assert owner.stdout.readline() == "ready\n"
        inside = psutil.Process(owner.pid).children(recursive=True)
        names = {process.name() for process in inside}
        assert {"Xvfb", "openbox", "mousepad"} <= names
        owner.send_signal(signal.SIGKILL)
        began_s = time.monotonic()
        owner.wait()
        _, alive = psutil.wait_procs(inside, timeout=10.0)
        owner_ends.cancel()
        assert not alive, f"still there after {time.monotonic() - began_s:.1f} s"


async def test_desktops_that_start_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    desktops = [DesktopEnvironment(f"env-{n:03d}", tmp_path / str(n), DesktopSettings()) for n in range(4)]
    try:
        scores = await asyncio.gather(*(play(one, APPENDS, seed) for seed, one in enumerate(desktops)))
        assert scores == [1.0] * 4
    finally:
        await asyncio.gather(*(one.close() for one in desktops))


async def test_waiting_waits_and_sends_nothing(desktop: DesktopEnvironment) -> None:
    await desktop.reset(APPENDS, 0, deadline_s=DEADLINE_S)
    before = await desktop.observe(deadline_s=DEADLINE_S)
    await desktop.step(Wait(), deadline_s=DEADLINE_S)
    assert await desktop.observe(deadline_s=DEADLINE_S) == before
