"""The state of a guest that a screenshot does not show: window manager, focus, processes, files.

A small Python program in the guest reads the state. It needs only python-xlib, which pyautogui installs.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dart.environments.faults import ApplicationDied, CallFailed, WindowManagerDied
from dart.environments.osworld.guest import Guest

MOST_FILES = 2000
"""Largest number of files of the home that are read; a guest has some hundred."""

USER_FOLDERS = ("Desktop", "Documents", "Downloads", "Music", "Pictures", "Public", "Templates", "Videos")
"""Folders of the home with the user's files. The system writes to other folders: the guest server stores its
screenshots in one, packaged applications their state in another."""

STATE_PROGRAM = """
import json, os
from Xlib import X, Xatom, display
from Xlib.error import XError
d = display.Display()
root = d.screen().root
def get(window, name, kind=X.AnyPropertyType):
    try:
        found = window.get_full_property(d.get_atom(name), kind)
    except XError:
        return None
    return found.value if found is not None and len(found.value) else None
def text(value):
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value or "")
def state(pid):
    try:
        with open("/proc/%d/stat" % pid) as file:
            return file.read().rpartition(") ")[2][:1]
    except OSError:
        return "gone"
manager = None
check = get(root, "_NET_SUPPORTING_WM_CHECK")
if check is not None:
    window = d.create_resource_object("window", check[0])
    again = get(window, "_NET_SUPPORTING_WM_CHECK")
    if again is not None and again[0] == check[0]:
        manager = text(get(window, "_NET_WM_NAME")) or "nameless"
windows = []
for id in (get(root, "_NET_CLIENT_LIST") or []):
    window = d.create_resource_object("window", id)
    pid = get(window, "_NET_WM_PID")
    pid = int(pid[0]) if pid is not None else 0
    title = text(get(window, "_NET_WM_NAME") or get(window, "WM_NAME"))
    kind = get(window, "_NET_WM_WINDOW_TYPE")
    kind = d.get_atom_name(kind[0]).rpartition("_")[2].lower() if kind is not None else ""
    windows.append({"id": int(id), "title": title, "pid": pid, "kind": kind,
                    "state": state(pid) if pid else ""})
active = get(root, "_NET_ACTIVE_WINDOW")
focus = d.get_input_focus().focus
home, files = os.path.expanduser("~"), {}
for folder, folders, names in os.walk(home):
    folders[:] = sorted(name for name in folders
                        if not name.startswith(".") and (folder != home or name in USER_FOLDERS))
    for name in sorted(names):
        path = os.path.join(folder, name)
        if not name.startswith(".") and len(files) < MOST_FILES and os.path.isfile(path):
            files[os.path.relpath(path, home)] = os.path.getsize(path)
print(json.dumps({"manager": manager, "windows": windows, "files": files,
                  "active": int(active[0]) if active is not None else 0,
                  "has_focus": not isinstance(focus, int) or focus != X.NONE}))
""".replace("MOST_FILES", str(MOST_FILES)).replace("USER_FOLDERS", repr(USER_FOLDERS))

BREAK = {
    "dead_application": """
for window in json.loads(WINDOWS):
    if window["pid"]:
        os.kill(window["pid"], signal.SIGSTOP)
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
class GuestState:
    """The state of a guest at one moment."""

    manager: str
    """Name of the window manager, empty when there is none."""
    windows: tuple[Mapping[str, Any], ...]
    """id, title, pid, kind and process state (as in /proc) of each window, in the order they were opened."""
    active: int
    """Id of the active window; 0 for none."""
    has_focus: bool
    """A window has the keyboard focus."""
    files: Mapping[str, int]
    """Sizes in bytes by path relative to the home, for the home itself and `USER_FOLDERS`."""

    @property
    def titles(self) -> list[str]:
        return sorted(str(window["title"]) for window in self.windows)

    def refuse_dead(self) -> None:
        """Raise WindowManagerDied or ApplicationDied when the state shows one."""
        if not self.manager:
            raise WindowManagerDied("is gone")
        for window in self.windows:
            if window["state"] in ("T", "t"):
                raise ApplicationDied(f"of the window {window['title']!r}", "stands still")

    @property
    def work_windows(self) -> frozenset[int]:
        """Ids of the windows that take input."""
        return frozenset(window["id"] for window in self.windows if window.get("kind") not in PASSIVE_KINDS)

    def missing(self, before: "GuestState | None") -> str:
        """Describe what an episode still needs; empty when the guest is ready.

        before   the state before the task opened its windows; None when it opens none
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
        """Describe the differences of files and windows to another state; empty when there are none."""
        found = []
        for what, mine, theirs in (
            ("files", set(self.files.items()), set(other.files.items())),
            ("windows", set(self.titles), set(other.titles)),
        ):
            if mine != theirs:
                names = sorted({str(one[0] if isinstance(one, tuple) else one) for one in mine ^ theirs})
                found.append(f"other {what} than on the first machine: {', '.join(names[:5])}")
        return "; ".join(found)


async def read_guest_state(guest: Guest, *, deadline_s: float) -> GuestState:
    """Read the state of a guest. Raises CallFailed when the program in the guest fails."""
    ended = await guest.python(STATE_PROGRAM, deadline_s=deadline_s)
    try:
        found = json.loads(ended.last_line)
        return GuestState(
            manager=found["manager"] or "",
            windows=tuple(found["windows"]),
            active=found["active"],
            has_focus=found["has_focus"],
            files=found["files"],
        )
    except (ValueError, KeyError, TypeError) as error:
        said = (ended.error or ended.output).strip()[-200:]
        raise CallFailed(guest.name, "reading its windows", f"{type(error).__name__}: {said}") from error


async def break_guest(guest: Guest, kind: str, *, deadline_s: float) -> None:
    """Cause an injected fault in the guest. Raises ValueError for a kind without a program."""
    if kind not in BREAK:
        raise ValueError(f"expected one of the faults {', '.join(BREAK)}, got {kind!r}")
    state = await read_guest_state(guest, deadline_s=deadline_s)
    head = "import json, os, signal, subprocess, sys, time\n"
    windows, manager = json.dumps(list(state.windows)), state.manager.lower()
    values = f"WINDOWS = {windows!r}\nMANAGER = {manager!r}\nPOPUP = {POPUP!r}\n"
    await guest.python(head + values + BREAK[kind], deadline_s=deadline_s)
