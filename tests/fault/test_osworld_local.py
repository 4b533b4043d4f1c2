"""The OSWorld adapter on a real desktop: a guest server in a sandbox, started by the local provider.

They need what `make desktop` installs; `make test-desktop` runs them. The server is the tests' own, or, where
an environment variable says how to start it (``{port}`` becomes the port), OSWorld's::

    DARTRL_TEST_GUEST='["sh", "/folder/start.sh", "{port}"]' DARTRL_TEST_GUEST_READS=/folder make test-desktop
"""

import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from dart.config.injected_faults import InjectedFault
from dart.config.sections import OSWorldLocalSettings, OSWorldSettings
from dart.core.actions import Hotkey, Type
from dart.core.png import png_size
from dart.environments.desktop.requirements import missing_for_desktops
from dart.environments.faults import (
    ApplicationDied,
    CallFailed,
    DirtyStart,
    EnvironmentFault,
    MachineNotReady,
    WindowManagerDied,
)
from dart.environments.osworld.environment import OSWorldEnvironment, make_osworld
from dart.environments.osworld.keyboard import keyboard_lines, lines_done, program
from dart.environments.screen_io import ScreenIO

REPOSITORY = Path(__file__).parents[2]
EVALUATORS = REPOSITORY / ".venv-osworld-score"
_MISSING = missing_for_desktops() + (
    [] if EVALUATORS.exists() else ["OSWorld's evaluators (make osworld-score)"]
)
pytestmark = [
    pytest.mark.desktop,
    pytest.mark.skipif(bool(_MISSING), reason=f"not installed (make desktop): {', '.join(_MISSING)}"),
]
GUEST = REPOSITORY / "tests" / "fault" / "osworld_guest"
DEADLINE_S = 90.0
TASK = "osworld/os/notes"
NOTES = {
    "id": "notes",
    "snapshot": "init_state",
    "instruction": "Write the line into notes.txt and save it.",
    "config": [
        {"type": "execute", "parameters": {"command": "printf '' > ~/notes.txt", "shell": True}},
        {
            "type": "launch",
            "parameters": {"command": ["mousepad", "--disable-server", "/home/user/notes.txt"]},
        },
    ],
    "evaluator": {
        "func": "check_include_exclude",
        "result": {"type": "vm_command_line", "command": "cat ~/notes.txt", "shell": True},
        "expected": {"type": "rule", "rules": {"include": ["hello <b>"], "exclude": []}},
    },
}


def _server() -> OSWorldLocalSettings:
    command, folders = os.environ.get("DARTRL_TEST_GUEST"), os.environ.get("DARTRL_TEST_GUEST_READS", "")
    if command is not None:
        readable = tuple(map(Path, filter(None, folders.split(":"))))
        return OSWorldLocalSettings(server=tuple(json.loads(command)), readable=readable)
    packages = [Path(path) for path in sys.path if path.endswith("-packages")]
    python_path = ":".join(map(str, [GUEST, REPOSITORY, *packages]))
    serve = f'PATH={sys.prefix}/bin:$PATH PYTHONPATH={python_path} exec python {GUEST}/serve.py "$0"'
    return OSWorldLocalSettings(
        server=("sh", "-c", serve, "{port}"),
        readable=(REPOSITORY / "actors", REPOSITORY / "dart", REPOSITORY / "tests", *packages),
    )


@pytest.fixture
async def environment(tmp_path: Path) -> AsyncIterator[OSWorldEnvironment]:
    tasks = tmp_path / "examples" / "os"
    tasks.mkdir(parents=True)
    (tasks / "notes.json").write_text(json.dumps(NOTES))
    settings = OSWorldSettings(
        tasks=tasks.parent,
        cache=tmp_path / "cache",
        evaluators=EVALUATORS,
        provider="local",
        width=1024,
        height=768,
        pause_s=0.3,
        local=_server(),
    )
    made = make_osworld("env-000", tmp_path / "scratch", tmp_path, settings)
    yield made
    await made.close()


async def test_a_task_is_set_up_played_and_scored_on_a_real_desktop(environment: OSWorldEnvironment) -> None:
    seen = await environment.reset(TASK, 0, deadline_s=DEADLINE_S)
    assert png_size(seen.screenshot) == (1024, 768)
    for action in (Type("hello <b>\n"), Hotkey(("ctrl", "s"))):
        await environment.step(action, deadline_s=DEADLINE_S)
        await environment.observe(deadline_s=DEADLINE_S)
    assert await environment.evaluate(deadline_s=DEADLINE_S) == 1.0
    again = await environment.reset(TASK, 0, deadline_s=DEADLINE_S)
    assert await environment.evaluate(deadline_s=DEADLINE_S) == 0.0
    assert again.instruction == seen.instruction


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        (InjectedFault.DEAD_APPLICATION, ApplicationDied),
        (InjectedFault.DEAD_WINDOW_MANAGER, WindowManagerDied),
    ],
)
async def test_what_no_picture_shows_is_found(
    environment: OSWorldEnvironment, kind: InjectedFault, fault: type[EnvironmentFault]
) -> None:
    await environment.reset(TASK, 0, deadline_s=DEADLINE_S)
    await environment.disturb(kind)
    with pytest.raises(fault):
        await environment.evaluate(deadline_s=DEADLINE_S)


@pytest.mark.parametrize(
    ("kind", "fault", "says"),
    [
        (InjectedFault.READY_TOO_EARLY, MachineNotReady, "no window manager"),
        (InjectedFault.DIRTY_RESET, DirtyStart, r"of the last episode\.txt"),
        (InjectedFault.POPUP, DirtyStart, "Software Updater"),
    ],
)
async def test_a_machine_that_is_not_ready_or_not_clean_is_not_used(
    environment: OSWorldEnvironment, kind: InjectedFault, fault: type[EnvironmentFault], says: str
) -> None:
    class DisturbedScreenIO(ScreenIO):
        async def on_start(self) -> None:
            await environment.disturb(kind)

    environment.screen_io = DisturbedScreenIO()
    with pytest.raises(fault, match=says):
        await environment.reset(TASK, 0, deadline_s=DEADLINE_S)


async def test_what_the_protocol_has_odd_answers_for_is_told_by_the_adapter(
    environment: OSWorldEnvironment,
) -> None:
    """The statuses of the genuine server: a window, a folder and a file that are not there, a folder in place
    of a file, a program that is not installed, output that is no text."""
    await environment.reset(TASK, 0, deadline_s=DEADLINE_S)
    guest = environment._guest
    assert guest is not None
    await guest.upload("~/deep/file.bin", bytes(range(256)), deadline_s=DEADLINE_S)
    assert await guest.file("/home/user/deep/file.bin", deadline_s=DEADLINE_S) == bytes(range(256))
    assert await guest.file("/home/user/deep", deadline_s=DEADLINE_S) is None
    assert await guest.file("/home/user/none", deadline_s=DEADLINE_S) is None
    assert await guest.directory("/home/user/none", deadline_s=DEADLINE_S) is None
    found = await guest.directory("/home/user/deep", deadline_s=DEADLINE_S)
    assert found is not None
    assert [node["name"] for node in found["children"]] == ["file.bin"]
    assert await guest.window_size("no such class", deadline_s=DEADLINE_S) is None
    assert await guest.chromium("GET", "/json/list", deadline_s=DEADLINE_S) is None
    assert await guest.terminal(deadline_s=DEADLINE_S) is None
    with pytest.raises(CallFailed, match="No such file or directory"):
        await guest.setup("launch", {"command": ["no-such-program"]}, deadline_s=DEADLINE_S)
    with pytest.raises(CallFailed, match="codec can't decode"):
        await guest.execute(["printf", "\\377"], deadline_s=DEADLINE_S)
    quoted = await guest.execute("printf %s| 'a b' ~/x", deadline_s=DEADLINE_S)
    assert quoted.output == "a b|/home/user/x|"


async def test_a_program_that_arrives_twice_is_carried_out_once(environment: OSWorldEnvironment) -> None:
    await environment.reset(TASK, 0, deadline_s=DEADLINE_S)
    guest = environment._guest
    assert guest is not None
    code = program(keyboard_lines(Type("once")), "number")
    first, second = [await guest.python(code, deadline_s=DEADLINE_S) for _ in range(2)]
    assert (lines_done(first.output), lines_done(second.output)) == (1, None)
    assert "FileExistsError" in second.error
    await environment.step(Hotkey(("ctrl", "s")), deadline_s=DEADLINE_S)
    assert await guest.file("/home/user/notes.txt", deadline_s=DEADLINE_S) == b"once"


async def test_an_owner_of_the_clipboard_that_lives_on_holds_up_no_action(
    environment: OSWorldEnvironment,
) -> None:
    await environment.reset(TASK, 0, deadline_s=DEADLINE_S)
    await environment.step(Type("aä"), deadline_s=DEADLINE_S / 2)
    await environment.step(Hotkey(("ctrl", "s")), deadline_s=DEADLINE_S / 2)
    assert environment._guest is not None
    assert (await environment._guest.file("~/notes.txt", deadline_s=DEADLINE_S) or b"").startswith(b"a")


async def test_a_sandbox_that_is_given_back_is_gone(environment: OSWorldEnvironment) -> None:
    await environment.reset(TASK, 0, deadline_s=DEADLINE_S)
    below = psutil.Process().children(recursive=True)
    assert any(process.name() == "Xvfb" for process in below)
    await environment.close()
    _, alive = psutil.wait_procs(below, timeout=10.0)
    assert not alive
