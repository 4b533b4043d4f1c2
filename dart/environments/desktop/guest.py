"""The process inside a desktop's sandbox: starts the X server, the window manager and the applications, sends
input and takes screenshots.

Requests come on stdin, answers go to stdout, each a length (4 bytes, big endian) and a msgpack map. One
request at a time: ``{"call": name, ...}`` is answered by ``{"ok": ...}`` or ``{"error": text}``. This process
ends when stdin ends. It is the first one of the sandbox, so everything else in there ends with it.

Input goes through the X server's XTEST extension. The RECORD extension counts, on a connection of its own,
which events the server received: the counts say whether an action arrived, and how often.
"""

import contextlib
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, BinaryIO

import msgpack
from Xlib import X, Xatom, display
from Xlib.error import ConnectionClosedError, DisplayError, XError
from Xlib.ext import record, xtest
from Xlib.protocol import event, rq

from dart.environments.desktop.openbox import openbox_rc

START_DEADLINE_S = 60.0
"""Deadline of a single step of the start: the X server, the window manager, a window."""

POLL_S = 0.01
SETTLE_LEAST_S, SETTLE_MOST_S, SETTLE_EVERY_S = 0.06, 1.0, 0.03
"""After an action the screen is captured repeatedly until it no longer changes: the shortest and the longest
wait, and the time between two captures."""

RECORDED_WITHIN_S = 3.0
"""How long to wait until all sent events are counted. Only lost events take this long."""

PING_WITHIN_S = 6.0
"""How long an application may take to answer a ping before it counts as dead; a busy machine takes
seconds."""

SETTLE_PING_S = 1.0
SELECTION_WITHIN_S = 5.0

QUIET_FOR_S, QUIET_WITHIN_S = 0.3, 10.0
"""The files of the home are read once they did not change for the first time; it waits at most the second."""

SAVING = re.compile(r"lu[0-9a-z]+\.tmp")
"""Name of a file while LibreOffice writes it."""

SPARE_KEYCODES = 24
"""Number of unused keys that are assigned to characters that a US keyboard does not have."""

KEYMAP_SETTLES_S = 0.03
"""Time that applications need to notice a newly assigned key."""

MOST_STATE_BYTES = 8 * 2**20

STILL = {
    ".config/gtk-3.0/settings.ini": "[Settings]\ngtk-cursor-blink=0\ngtk-enable-animations=0\n",
    ".gtkrc-2.0": "gtk-cursor-blink = 0\n",
}
"""Settings in the home that stop the cursor's blinking and animations, so that the screen only changes by
input."""

EVENT_NAMES = {
    X.KeyPress: "key_down",
    X.KeyRelease: "key_up",
    X.ButtonPress: "button_down",
    X.ButtonRelease: "button_up",
}


class GuestError(Exception):
    """A call failed; the message goes to the caller."""


class Recorder:
    """Counts the input events that the X server received, through the RECORD extension."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._control, self._data = display.Display(), display.Display()
        ranges = {
            "core_requests": (0, 0),
            "core_replies": (0, 0),
            "ext_requests": (0, 0, 0, 0),
            "ext_replies": (0, 0, 0, 0),
            "delivered_events": (0, 0),
            "device_events": (X.KeyPress, X.ButtonRelease),
            "errors": (0, 0),
            "client_started": False,
            "client_died": False,
        }
        self._context = self._data.record_create_context(0, [record.AllClients], [ranges])
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        with contextlib.suppress(ConnectionClosedError):
            self._data.record_enable_context(self._context, self._take)

    def _take(self, reply: Any) -> None:
        if reply.category != record.FromServer or reply.client_swapped:
            return
        data = reply.data
        while data:
            happened, data = rq.EventField(None).parse_binary_value(data, self._data.display, None, None)
            name = EVENT_NAMES.get(happened.type)
            if name is not None:
                self.counts[name] += 1

    def await_counts(self, wanted: Counter[str]) -> None:
        """Wait until these events have been counted, or `RECORDED_WITHIN_S` has passed."""
        give_up_s = time.monotonic() + RECORDED_WITHIN_S
        while time.monotonic() < give_up_s:
            if all(self.counts[name] >= count for name, count in wanted.items()):
                return
            time.sleep(POLL_S / 4)


class Keyboard:
    """Finds the key for a keysym; assigns a spare key to characters that have none."""

    def __init__(self, screen: Any) -> None:
        self._display = screen
        self._spare: list[int] = []
        self._assigned: dict[int, int] = {}
        first, last = screen.display.info.min_keycode, screen.display.info.max_keycode
        for code, row in enumerate(screen.get_keyboard_mapping(first, last - first + 1), first):
            if not any(row):
                self._spare.append(code)
        self._spare = self._spare[-SPARE_KEYCODES:]

    def keycode(self, keysym: int) -> int:
        """Return the key that types the keysym without Shift. Raises GuestError."""
        if keysym in self._assigned:
            return self._assigned[keysym]
        for code, index in self._display.keysym_to_keycodes(keysym):
            if index == 0:
                return int(code)
        return self._assign_key(keysym)

    def _assign_key(self, keysym: int) -> int:
        if not self._spare:
            raise GuestError(f"the keyboard has no spare key for keysym {keysym:#x}")
        code = self._spare.pop(0)
        self._spare.append(code)
        self._assigned = {other: key for other, key in self._assigned.items() if key != code}
        self._assigned[keysym] = code
        self._display.change_keyboard_mapping(code, [[keysym, keysym]])
        self._display.sync()
        time.sleep(KEYMAP_SETTLES_S)
        return code


class GuestDesktop:
    """One X server with a window manager and applications."""

    def __init__(self) -> None:
        self._xvfb: subprocess.Popen[bytes] | None = None
        self._manager: subprocess.Popen[bytes] | None = None
        self._applications: dict[str, subprocess.Popen[bytes]] = {}
        self._mark: Any = None
        self._popups: list[Any] = []
        self._is_parked = False

    # ---- start ----

    def screen(self, *, width: int, height: int) -> str:
        """Start the X server, which picks a free display, and the window manager. Returns the display."""
        read_fd, write_fd = os.pipe()
        self._xvfb = subprocess.Popen(
            [
                *("Xvfb", "-displayfd", str(write_fd), "-screen", "0", f"{width}x{height}x24"),
                *("-nolisten", "tcp", "-noreset", "-ac", "-dpi", "96"),
            ],
            pass_fds=(write_fd,),
        )
        os.close(write_fd)
        with os.fdopen(read_fd) as display_number:
            number = display_number.readline().strip()
        if not number:
            raise GuestError("the X server did not start: it named no display")
        os.environ["DISPLAY"] = f":{number}"
        self._x = display.Display()
        self._root = self._x.screen().root
        self._size = width, height
        self._root.change_attributes(event_mask=X.SubstructureNotifyMask)
        self._recorder = Recorder()
        self._keyboard = Keyboard(self._x)
        self._screen_capture = _screen_capture()
        self._root.warp_pointer(width - 1, height - 1)
        self.put(files={name: text.encode() for name, text in STILL.items()})
        rc = Path("/tmp/openbox-rc.xml")
        rc.write_text(openbox_rc())
        self._manager = subprocess.Popen(["openbox", "--sm-disable", "--config-file", str(rc)])
        self._await(lambda: self._window_manager() is not None, "the window manager")
        return str(os.environ["DISPLAY"])

    def put(self, *, files: dict[str, bytes]) -> None:
        """Write files below the home, all with the same modification time."""
        for name, content in files.items():
            path = Path.home() / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if name.endswith("/"):
                path.mkdir(exist_ok=True)
            else:
                path.write_bytes(content)
        for path in sorted(Path.home().rglob("*"), reverse=True):
            os.utime(path, (1_700_000_000, 1_700_000_000))

    def launch(self, *, name: str, command: list[str], window_class: str, still_s: float) -> None:
        """Start an application and wait for its window to have the focus and to be still for ``still_s``."""
        if self._window_manager() is None:
            raise GuestError("no window manager is running, so no window will get the focus")
        self._applications[name] = process = subprocess.Popen(command, stdin=subprocess.DEVNULL)

        def is_there() -> bool:
            if process.poll() is not None:
                raise GuestError(f"{name} ended with code {process.returncode} before it had a window")
            active = self._active()
            return active is not None and window_class in active["class"]

        self._await(is_there, f"a focused window of {name}")
        self._settle(still_s, START_DEADLINE_S)

    def _await(self, is_true: Any, missing: str) -> None:
        give_up_s = time.monotonic() + START_DEADLINE_S
        while not is_true():
            if time.monotonic() >= give_up_s:
                raise GuestError(f"{missing} did not appear within {START_DEADLINE_S:g} s")
            time.sleep(POLL_S)

    # ---- input ----

    def input(self, *, calls: list[tuple[str, dict[str, Any]]]) -> dict[str, int]:
        """Send input events. Returns the number of events of each kind that the server has received so
        far."""
        wanted = Counter(self._recorder.counts)
        for name, arguments in calls:
            if name in EVENT_NAMES.values():
                wanted[name] += 1
            self._send_input(name, arguments)
        self._x.sync()
        self._recorder.await_counts(wanted)
        self._settle()
        return dict(self._recorder.counts)

    def _send_input(self, name: str, arguments: dict[str, Any]) -> None:
        match name:
            case "move":  # clamp: a policy may name points that no X request can hold
                x, y = (min(arguments[axis], side - 1) for axis, side in zip("xy", self._size, strict=True))
                xtest.fake_input(self._x, X.MotionNotify, x=x, y=y)
            case "button_down" | "button_up":
                kind = X.ButtonPress if name == "button_down" else X.ButtonRelease
                xtest.fake_input(self._x, kind, arguments["button"])
            case "key_down" | "key_up":
                kind = X.KeyPress if name == "key_down" else X.KeyRelease
                xtest.fake_input(self._x, kind, self._keyboard.keycode(arguments["keysym"]))
            case "pause":
                self._x.sync()
                time.sleep(arguments["s"])
            case _:
                raise GuestError(
                    "expected an input event (move, button_down, button_up, key_down, key_up or pause), "
                    f"got {name!r}"
                )

    # ---- screen ----

    def screenshot(self) -> bytes:
        """Return a PNG of the whole screen, without the pointer."""
        from mss.tools import to_png

        shot = self._screen_capture.grab(self._screen_capture.monitors[0])
        png = to_png(shot.rgb, shot.size, level=1)
        if png is None:
            raise GuestError("the screenshot cannot be encoded as PNG")
        return bytes(png)

    def mark(self, *, shown: bool) -> None:
        """Show or hide a bright window in a corner, above all others and unknown to the window manager."""
        if shown:
            self._mark = self._root.create_window(
                *(0, 0, 24, 24, 0),
                self._x.screen().root_depth,
                override_redirect=True,
                background_pixel=0xFF00FF,
            )
            self._mark.map()
        elif self._mark is not None:
            self._mark.destroy()
            self._mark = None
        self._x.sync()
        time.sleep(SETTLE_LEAST_S)

    def _settle(self, still_s: float = SETTLE_LEAST_S, most_s: float = SETTLE_MOST_S) -> None:
        """Wait until the applications have processed the input and the screen no longer changes.

        An application answers a ping only after the input that it received before.
        """
        self.ping(within_s=SETTLE_PING_S)
        give_up_s = time.monotonic() + most_s
        time.sleep(SETTLE_LEAST_S)
        before, since_s = None, time.monotonic()
        while (now_s := time.monotonic()) < give_up_s:
            now = bytes(self._screen_capture.grab(self._screen_capture.monitors[0]).raw)
            if now != before:
                before, since_s = now, now_s
            elif now_s - since_s >= still_s - SETTLE_LEAST_S:
                return
            time.sleep(SETTLE_EVERY_S)

    # ---- checks ----

    def status(self) -> dict[str, Any]:
        """Return which processes run, the windows and the focus: state that a screenshot does not show."""
        pointer = self._root.query_pointer()
        return {
            "window_manager": self._manager_fault(),
            "applications": {name: _fault_of(process) for name, process in self._applications.items()},
            "windows": self._windows(),
            "active": self._active(),
            "pointer": (pointer.root_x, pointer.root_y),
            "parked": self._is_parked,
        }

    def ping(self, *, within_s: float = PING_WITHIN_S) -> dict[str, bool]:
        """Ping the windows. Returns whether each one answered, by title; windows without pings are left
        out."""
        waiting = {}
        ping, protocols = self._atom("_NET_WM_PING"), self._atom("WM_PROTOCOLS")
        for window in self._clients():
            with contextlib.suppress(XError):
                if ping in (window.get_wm_protocols() or ()):
                    data = (32, [ping, X.CurrentTime, window.id, 0, 0])
                    window.send_event(event.ClientMessage(window=window, client_type=protocols, data=data))
                    waiting[window.id] = self._title(window)
        self._x.sync()
        return self._pongs(waiting, ping, time.monotonic() + within_s)

    def _pongs(self, waiting: dict[int, str], ping: int, give_up_s: float) -> dict[str, bool]:
        """Wait for the answers to pings; a window that was closed meanwhile is left out."""
        answered: set[int] = set()
        while not waiting.keys() <= answered and time.monotonic() < give_up_s:
            while self._x.pending_events():
                got = self._x.next_event()
                if got.type == X.ClientMessage and got.data[1][0] == ping:
                    answered.add(got.data[1][2])
            time.sleep(POLL_S)
            waiting = {id_: waiting[id_] for id_ in waiting if id_ in {one.id for one in self._clients()}}
        silent = {title for id_, title in waiting.items() if id_ not in answered}
        return {title: title not in silent for title in waiting.values()}

    def state(self) -> dict[str, Any]:
        """Return what evaluators read: the files of the home without hidden ones, the clipboard, the windows.

        Waits until the files no longer change. Raises GuestError when an application still saves one after
        `QUIET_WITHIN_S`, because a partial file must not be scored.
        """
        self._await_quiet_files()
        files: dict[str, bytes] = {}
        folders = []
        for path in sorted(Path.home().rglob("*")):
            name = str(path.relative_to(Path.home()))
            if any(part.startswith(".") for part in Path(name).parts):
                continue
            if path.is_dir():
                folders.append(name)
            elif path.is_file():
                files[name] = path.read_bytes()
        if sum(map(len, files.values())) > MOST_STATE_BYTES:
            raise GuestError(f"the files of the home have more than {MOST_STATE_BYTES} bytes in total")
        return {"files": files, "folders": folders, "clipboard": self._clipboard(), **self.status()}

    def _await_quiet_files(self) -> None:
        give_up_s = time.monotonic() + QUIET_WITHIN_S
        before, is_saving = None, False
        while time.monotonic() < give_up_s:
            now = {str(path): path.lstat().st_mtime_ns for path in Path.home().rglob("[!.]*")}
            is_saving = any(SAVING.fullmatch(Path(name).name) for name in now)
            if now == before and not is_saving:
                return
            before = now
            time.sleep(QUIET_FOR_S)
        if is_saving:
            raise GuestError(f"a file was still being saved after {QUIET_WITHIN_S:g} s")

    def _windows(self) -> list[dict[str, Any]]:
        found = []
        for window in self._clients():
            with contextlib.suppress(XError):
                found.append(self._described(window))
        return found

    def _described(self, window: Any) -> dict[str, Any]:
        size, place = window.get_geometry(), window.translate_coords(self._root, 0, 0)
        return {
            "title": self._title(window),
            "class": list(window.get_wm_class() or ()),
            "x": -place.x,
            "y": -place.y,
            "width": size.width,
            "height": size.height,
        }

    def _clients(self) -> list[Any]:
        listed = self._root.get_full_property(self._atom("_NET_CLIENT_LIST"), Xatom.WINDOW)
        return [self._x.create_resource_object("window", id_) for id_ in (listed.value if listed else ())]

    def _active(self) -> dict[str, Any] | None:
        found = self._root.get_full_property(self._atom("_NET_ACTIVE_WINDOW"), Xatom.WINDOW)
        if found is None or not found.value or not found.value[0]:
            return None
        try:
            return self._described(self._x.create_resource_object("window", found.value[0]))
        except XError:
            return None

    def _title(self, window: Any) -> str:
        found = window.get_full_property(self._atom("_NET_WM_NAME"), self._atom("UTF8_STRING"))
        return found.value.decode(errors="replace") if found else str(window.get_wm_name() or "")

    def _manager_fault(self) -> str:
        if self._manager is None:
            return "was never started"
        return _fault_of(self._manager)["fault"] or ("" if self._window_manager() else "manages no screen")

    def _window_manager(self) -> int | None:
        """Return the id of the window that a running window manager owns; None without a window manager."""
        atom = self._atom("_NET_SUPPORTING_WM_CHECK")
        said = self._root.get_full_property(atom, Xatom.WINDOW)
        if said is None or not said.value:
            return None
        try:
            again = self._x.create_resource_object("window", said.value[0]).get_full_property(
                atom, Xatom.WINDOW
            )
        except XError:
            return None
        return int(said.value[0]) if again is not None and again.value[0] == said.value[0] else None

    def _clipboard(self) -> str:
        """Return the text of the clipboard; empty when it has no owner or holds no text.

        Raises GuestError when its owner does not answer, because its content is then unknown.
        """
        selection, kind = self._atom("CLIPBOARD"), self._atom("UTF8_STRING")
        if self._x.get_selection_owner(selection) == X.NONE:
            return ""
        asker = self._root.create_window(0, 0, 1, 1, 0, X.CopyFromParent)
        asker.convert_selection(selection, kind, self._atom("DART_CLIPBOARD"), X.CurrentTime)
        self._x.sync()
        try:
            return self._selection_of(asker)
        finally:
            asker.destroy()
            self._x.sync()

    def _selection_of(self, asker: Any) -> str:
        give_up_s = time.monotonic() + SELECTION_WITHIN_S
        while time.monotonic() < give_up_s:
            while self._x.pending_events():
                got = self._x.next_event()
                if got.type == X.SelectionNotify and got.property == X.NONE:
                    return ""
                if got.type == X.SelectionNotify:
                    found = asker.get_full_property(got.property, X.AnyPropertyType)
                    return found.value.decode(errors="replace") if found else ""
            time.sleep(POLL_S)
        raise GuestError(f"the owner of the clipboard did not answer within {SELECTION_WITHIN_S:g} s")

    def _atom(self, name: str) -> int:
        return int(self._x.get_atom(name))

    # ---- parking and injected faults ----

    def park(self, *, parked: bool) -> None:
        """Stop all applications, or let them continue."""
        self._is_parked = parked
        for process in self._applications.values():
            if process.poll() is None:
                os.kill(process.pid, signal.SIGSTOP if parked else signal.SIGCONT)

    def disturb(self, *, kind: str) -> None:
        """Cause an injected fault (`dart.config.injected_faults`)."""
        match kind:
            case "ready_too_early" | "dead_window_manager":
                assert self._manager is not None
                self._manager.kill()
                self._manager.wait()
            case "dead_application":
                for process in self._applications.values():
                    os.kill(process.pid, signal.SIGSTOP)
            case "dirty_reset":
                (Path.home() / "of the last episode.txt").write_text("left behind\n")
            case "popup":
                self._popups.append(self._popup())
            case _:
                raise GuestError(f"expected a fault that can be caused in a desktop, got {kind!r}")

    def _popup(self) -> Any:
        window = self._root.create_window(
            200, 150, 320, 120, 1, self._x.screen().root_depth, background_pixel=0xEEEEEE
        )
        window.set_wm_name("Software Updater")
        window.set_wm_class("updater", "Updater")

        def is_there() -> bool:
            window.map()  # repeated, because a window manager that is starting may miss the first request
            self._x.sync()
            return any(found["title"] == "Software Updater" for found in self._windows())

        self._await(is_there, "the popup")
        return window


def _fault_of(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """Describe a process: `ended`, and `fault`, which is empty when it runs or ended by itself."""
    ended = process.poll()
    if ended is not None:
        fault = f"was killed by {signal.Signals(-ended).name}" if ended < 0 else ""
        return {"ended": True, "fault": fault}
    stands_still = _state_of(process.pid) in "Tt"
    return {"ended": False, "fault": "stands still" if stands_still else ""}


def _state_of(pid: int) -> str:
    """Return the process state of /proc/PID/stat, one letter; X when there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1]
    except OSError:
        return "X"


def _screen_capture() -> Any:
    import mss

    return mss.MSS()


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer calls until stdin ends."""
    desktop = GuestDesktop()
    calls = {
        name: getattr(desktop, name)
        for name in (
            *("screen", "put", "launch", "input", "screenshot", "mark"),
            *("status", "ping", "state", "park", "disturb"),
        )
    }
    while (request := _read(requests)) is not None:
        name = request.pop("call")
        try:
            answer = {"ok": calls[name](**request)}
        except GuestError as error:
            answer = {"error": str(error)}
        except (XError, DisplayError, ConnectionClosedError, OSError) as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        _write(answers, answer)


def _read(stream: BinaryIO) -> dict[str, Any] | None:
    header = stream.read(4)
    if len(header) < 4:
        return None
    return dict(msgpack.unpackb(stream.read(struct.unpack(">I", header)[0])))


def _write(stream: BinaryIO, answer: dict[str, Any]) -> None:
    packed = msgpack.packb(answer)
    stream.write(struct.pack(">I", len(packed)) + packed)
    stream.flush()


def main() -> None:
    """Serve calls on stdin and stdout; the output of children goes to stderr."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    _write(answers, {"ok": sorted(name for name in ("Xvfb", "openbox") if shutil.which(name))})
    serve(sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
