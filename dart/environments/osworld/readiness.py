"""The state of a guest that a screenshot does not show: window manager, focus, processes, files.

A Python program in the guest reads the state. It needs only python-xlib, which pyautogui installs.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

import msgspec

from dart.environments.faults import ApplicationDied, CallFailed, MachineTaken, WindowManagerDied
from dart.environments.osworld.guest import Guest
from dart.environments.osworld.machine_owner import READS_OWNER

MOST_FILES = 2000
"""Largest number of files of the home that are read; a guest has a few hundred."""

USER_FOLDERS = ("Desktop", "Documents", "Downloads", "Music", "Pictures", "Public", "Templates", "Videos")
"""Folders of the home with the user's files. The system writes to other folders, for instance the screenshots
of the guest server and the state of packaged applications."""

WINDOWS_MODULE = files("dart.environments.desktop").joinpath("windows.py").read_text()
"""Source of `dart.environments.desktop.windows`, whose functions read windows and focus in the guest."""

STATE_PROGRAM = f"""{WINDOWS_MODULE}
import json, os
from Xlib import display
screen = display.Display()
focus = screen.get_input_focus().focus
home, files = os.path.expanduser("~"), {{}}
for folder, folders, names in os.walk(home):
    folders[:] = sorted(name for name in folders
                        if not name.startswith(".") and (folder != home or name in {USER_FOLDERS}))
    for name in sorted(names):
        path = os.path.join(folder, name)
        if not name.startswith(".") and len(files) < {MOST_FILES} and os.path.isfile(path):
            files[os.path.relpath(path, home)] = os.path.getsize(path)
{READS_OWNER}
print(json.dumps({{"manager": window_manager(screen), "windows": described_windows(screen), "files": files,
                  "active": active_id(screen), "has_focus": not isinstance(focus, int) or focus != X.NONE,
                  "owner": owner}}))
"""

BREAK = {
    "dead_application": """
for pid in PIDS:
    os.kill(pid, signal.SIGSTOP)
""",
    "dead_window_manager": """
subprocess.run(["pkill", "-9", "-f", MANAGER])
""",
    "dirty_reset": """
with open(os.path.expanduser("~/of the last episode.txt"), "w") as file:
    file.write("left behind")
""",
    "popup": """
nowhere = subprocess.DEVNULL
subprocess.Popen([sys.executable, "-c", POPUP], stdout=nowhere, stderr=nowhere, start_new_session=True)
time.sleep(1.0)
""",
}
BREAK["ready_too_early"] = BREAK["dead_window_manager"]
"""Programs that cause an injected fault inside a guest, by kind of fault."""

PASSIVE_KINDS = ("desktop", "dock", "splash", "notification", "tooltip")
"""Kinds of windows that take no input: the background with its icons, splash screens and the like."""

POPUP = """
import time
from Xlib import X, display
d = display.Display()
screen = d.screen()
window = screen.root.create_window(200, 150, 320, 120, 1, screen.root_depth, background_pixel=0xEEEEEE)
window.set_wm_name("Software Updater")
window.map()
d.sync()
while True:
    time.sleep(60)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestWindow:
    """A window of a guest."""

    id: int
    title: str
    pid: int
    """Id of the process of the window; 0 when the window does not name one."""
    kind: str
    """Type of the window in lower case, such as ``normal`` or ``dock``; empty when it has none."""
    state: str
    """State letter of the window's process in /proc; ``gone`` if it has ended, empty if `pid` is 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestState:
    """The state of a guest at one moment, as the program `STATE_PROGRAM` prints it in the guest."""

    manager: str | None
    """Name of the window manager; empty or None when there is none."""
    windows: tuple[GuestWindow, ...]
    """The windows, in the order in which they were opened."""
    active: int
    """Id of the active window; 0 for none."""
    has_focus: bool
    """Whether any window has the keyboard focus."""
    files: Mapping[str, int]
    """Sizes in bytes by path relative to the home, for the home itself and `USER_FOLDERS`."""
    owner: str
    """The number of the reset that used the machine last (`dart.environments.osworld.machine_owner`)."""

    @property
    def titles(self) -> list[str]:
        return sorted(window.title for window in self.windows)

    def refuse_dead(self) -> None:
        """Raise WindowManagerDied when no window manager runs.

        Raise ApplicationDied when the process of an open window is suspended, as by SIGSTOP.
        """
        if not self.manager:
            raise WindowManagerDied("is gone")
        for window in self.windows:
            if window.state in ("T", "t"):
                raise ApplicationDied(f"of the window {window.title!r}", "is stopped")

    @property
    def work_windows(self) -> frozenset[int]:
        """Return the ids of the windows that take input: all except panels, the desktop and the like."""
        return frozenset(window.id for window in self.windows if window.kind not in PASSIVE_KINDS)

    def missing(self, before: "GuestState | None") -> str:
        """Describe what an episode still needs; empty when the guest is ready.

        before   the state before the task opened its windows; None for a task that opens no window
        """
        if not self.manager:
            return "no window manager"
        if not self.has_focus:
            return "no window has the keyboard focus"
        if before is not None and not self.work_windows - before.work_windows:
            return "no window of the task"
        if before is not None and self.active not in self.work_windows:
            return "no window of the task is active"
        return ""

    def differences(self, other: "GuestState") -> str:
        """Describe how the files and windows differ from those of a clean machine; empty when they do not."""
        changed = {
            "files": {name for name, _ in self.files.items() ^ other.files.items()},
            "windows": set(self.titles) ^ set(other.titles),
        }
        return "; ".join(
            f"other {what} than on a clean machine: {', '.join(sorted(names)[:5])}"
            for what, names in changed.items()
            if names
        )


async def read_guest_state(guest: Guest, *, deadline_s: float) -> GuestState:
    """Read the state of a guest. Raises CallFailed when the program in the guest fails."""
    ended = await guest.python(STATE_PROGRAM, deadline_s=deadline_s)
    try:
        return msgspec.convert(json.loads(ended.last_line), GuestState)
    except (ValueError, RecursionError) as error:
        said = (ended.error or ended.output).strip()[-200:]
        raise CallFailed(guest.name, "reading its windows", f"{type(error).__name__}: {said}") from error


async def refuse_unusable(guest: Guest, owner: str, *, deadline_s: float) -> None:
    """Raise MachineTaken when the machine has another owner, and the faults of `GuestState.refuse_dead`."""
    state = await read_guest_state(guest, deadline_s=deadline_s)
    if state.owner != owner:
        raise MachineTaken(guest.name)
    state.refuse_dead()


async def break_guest(guest: Guest, kind: str, *, deadline_s: float) -> None:
    """Cause an injected fault in the guest; ``kind`` is one of `BREAK`."""
    state = await read_guest_state(guest, deadline_s=deadline_s)
    pids = [window.pid for window in state.windows if window.pid]
    head = "import os, signal, subprocess, sys, time\n"
    values = f"PIDS = {pids}\nMANAGER = {(state.manager or '').lower()!r}\nPOPUP = {POPUP!r}\n"
    await guest.python(head + values + BREAK[kind], deadline_s=deadline_s)
