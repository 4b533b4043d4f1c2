"""The process inside a desktop's sandbox: starts the X server, the window manager and the applications, sends
input and takes screenshots.

Requests come on stdin, responses go to stdout, each a length (4 bytes, big endian) and a msgpack map.
Requests are served one at a time: the response to ``{"call": name, ...}`` is ``{"ok": ...}`` or ``{"error":
text}``. This process ends when stdin ends. It is the first process of the sandbox, so all other processes in
the sandbox end with it.

Input goes through the X server's XTEST extension. The RECORD extension counts, on another connection,
which events the server received. The counts show whether an action arrived, and how often.
"""

import contextlib
import os
import re
import signal
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgpack
import mss
from mss.tools import to_png
from Xlib import X, display
from Xlib.error import ConnectionClosedError, DisplayError, XError
from Xlib.ext import record, xtest
from Xlib.protocol import event, rq

from dart.environments.desktop.openbox import openbox_rc
from dart.environments.desktop.windows import (
    active_id,
    class_of,
    described_windows,
    managed_windows,
    process_state,
    title_of,
    window_manager,
)

START_DEADLINE_S = 60.0
"""Deadline of a single step of the start: the X server, the window manager, a window."""

POLL_S = 0.01
SETTLE_LEAST_S, SETTLE_MOST_S, SETTLE_EVERY_S = 0.06, 1.0, 0.03
"""After an action the screen is captured repeatedly until it no longer changes: the shortest and the longest
wait, and the time between two captures."""

RECORDED_WITHIN_S = 3.0
"""Longest wait until all sent events are counted. It is reached only if an event was lost."""

PING_WITHIN_S = 6.0
"""How long an application may take to answer a ping before it counts as dead; a busy machine takes
seconds."""

SETTLE_PING_S = 1.0
SELECTION_WITHIN_S = 5.0

QUIET_FOR_S, QUIET_WITHIN_S = 0.3, 10.0
"""The files of the home are read once they have not changed for `QUIET_FOR_S`. The longest wait for this is
`QUIET_WITHIN_S`."""

SAVING = re.compile(r"lu[0-9a-z]+\.tmp")
"""Matches the names of the files into which LibreOffice writes while it saves."""

SPARE_KEYCODES = 24
"""Number of unused keys to which characters that a US keyboard does not have can be assigned."""

KEYMAP_SETTLES_S = 0.03
"""Time that applications need to notice a newly assigned key."""

MOST_STATE_BYTES = 8 * 2**20
"""Limit of the size of all files of the home together. A longer text of the clipboard is cut."""

STILL = {
    ".config/gtk-3.0/settings.ini": "[Settings]\ngtk-cursor-blink=0\ngtk-enable-animations=0\n",
    ".gtkrc-2.0": "gtk-cursor-blink = 0\n",
}
"""Settings in the home that turn off animations and the blinking of the cursor, so that only input changes
the screen."""

EVENTS = {
    "key_down": X.KeyPress,
    "key_up": X.KeyRelease,
    "button_down": X.ButtonPress,
    "button_up": X.ButtonRelease,
}
NAMES = {kind: name for name, kind in EVENTS.items()}


class GuestError(Exception):
    """A call failed. The response to the call has this message."""


class Recorder:
    """Counts the input events that the X server received, through the RECORD extension."""

    def __init__(self) -> None:
        self.counts = Counter(dict.fromkeys(EVENTS, 0))
        self._data = display.Display()
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
            self.counts[NAMES[happened.type]] += 1


class Keyboard:
    """Finds the key that types a keysym; assigns a spare key to a keysym that has none."""

    def __init__(self, screen: Any) -> None:
        self._display = screen
        self._assigned: dict[int, int] = {}
        first, last = screen.display.info.min_keycode, screen.display.info.max_keycode
        keys = enumerate(screen.get_keyboard_mapping(first, last - first + 1), first)
        self._spare = [code for code, keysyms in keys if not any(keysyms)][-SPARE_KEYCODES:]

    def keycode(self, keysym: int) -> int:
        """Return the keycode that types a keysym without Shift. If none does, assign a spare key.

        Raises GuestError when the keyboard has no spare key."""
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
    """One X server with a window manager and applications. `serve` calls its public methods."""

    def __init__(self) -> None:
        self._applications: dict[str, subprocess.Popen[bytes]] = {}
        self._mark: Any = None
        self._is_parked = False
        self._left_out = Counter(dict.fromkeys(EVENTS, 0))
        """How many events of each kind were not sent, because they would have changed nothing."""

    # ---- start ----

    def screen(self, *, width: int, height: int) -> None:
        """Start the X server, which picks a free display, and the window manager."""
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
        # A key that is held would press itself again and again, and the counts would say: doubled.
        self._x.change_keyboard_control(auto_repeat_mode=X.AutoRepeatModeOff)
        self._root = self._x.screen().root
        self._size = width, height
        self._root.change_attributes(event_mask=X.SubstructureNotifyMask)
        self._recorder = Recorder()
        self._keyboard = Keyboard(self._x)
        self._screen_capture = mss.MSS()
        self._root.warp_pointer(width - 1, height - 1)
        self.put(files={name: text.encode() for name, text in STILL.items()})
        rc = Path("/tmp/openbox-rc.xml")
        rc.write_text(openbox_rc())
        self._manager = subprocess.Popen(["openbox", "--sm-disable", "--config-file", str(rc)])
        self._await(lambda: window_manager(self._x), "the window manager")

    def put(self, *, files: dict[str, bytes]) -> None:
        """Write files below the home, all with the same modification time.

        files   content by path relative to the home; a path that ends in / is a folder"""
        for name, content in files.items():
            path = Path.home() / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if name.endswith("/"):
                path.mkdir(exist_ok=True)
            else:
                path.write_bytes(content)
        for path in sorted(Path.home().rglob("*"), reverse=True):
            os.utime(path, (1_700_000_000, 1_700_000_000))

    def launch(self, *, command: list[str], window_class: str, still_s: float) -> None:
        """Start an application and wait for its window to have the focus and to be still for ``still_s``.

        On a busy machine the window is also still while its application loads a document. It is empty then,
        loses what is typed, and answers no ping. The command may be a script that starts the application. So
        it has a process group of its own, to which signals are sent.
        """
        if not window_manager(self._x):
            raise GuestError("no window manager is running, so no window will get the focus")
        name = command[0]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
        self._applications[name] = process

        def has_focus() -> bool:
            if process.poll() is not None:
                raise GuestError(f"{name} ended with code {process.returncode} before it had a window")
            return window_class in self._active_class()

        self._await(has_focus, f"a focused window of {name}")
        self._await(lambda: self._is_loaded(still_s), f"the loaded document of {name}")

    def _is_loaded(self, still_s: float) -> bool:
        """Whether the screen does not change for ``still_s``, and not when the applications answer a ping."""
        self._settle(still_s, START_DEADLINE_S)
        before = self._captured().raw
        is_answered = not self.ping(within_s=START_DEADLINE_S)
        time.sleep(SETTLE_LEAST_S)
        return is_answered and self._captured().raw == before

    def _await(self, appeared: Callable[[], object], what: str) -> None:
        if not _poll(appeared, START_DEADLINE_S):
            raise GuestError(f"{what} did not appear within {START_DEADLINE_S:g} s")

    # ---- input ----

    def input(self, *, calls: list[tuple[str, dict[str, Any]]]) -> dict[str, int]:
        """Send input events (`dart.environments.desktop.inputs`).

        Returns how many events of each kind have arrived since the start: those that the X server received,
        and those that were left out because they would have changed nothing (see `_send_key`)."""
        wanted = self._arrived() + Counter(name for name, _ in calls if name in EVENTS)
        for name, arguments in calls:
            self._send_input(name, arguments)
        self._x.sync()
        _poll(lambda: self._arrived() >= wanted, RECORDED_WITHIN_S, POLL_S / 4)
        self._settle()
        return dict(self._arrived())

    def _arrived(self) -> Counter[str]:
        return self._recorder.counts + self._left_out

    def _send_input(self, name: str, arguments: dict[str, Any]) -> None:
        match name:
            case "move":  # clamp: a policy may name points that no X request can hold
                x, y = (min(arguments[axis], side - 1) for axis, side in zip("xy", self._size, strict=True))
                xtest.fake_input(self._x, X.MotionNotify, x=x, y=y)
            case "button_down" | "button_up":
                xtest.fake_input(self._x, EVENTS[name], arguments["button"])
            case "key_down" | "key_up":
                self._send_key(name, self._keyboard.keycode(arguments["keysym"]))
            case "pause":
                self._x.sync()
                time.sleep(arguments["s"])

    def _send_key(self, name: str, keycode: int) -> None:
        """Send the press or release of a key, unless the key is down or up already.

        The X server drops such an event, so it would never be counted."""
        is_down = bool(self._x.query_keymap()[keycode // 8] & 1 << keycode % 8)
        if is_down == (name == "key_down"):
            self._left_out[name] += 1
        else:
            xtest.fake_input(self._x, EVENTS[name], keycode)

    # ---- screen ----

    def screenshot(self) -> bytes:
        """Return a PNG of the whole screen, without the pointer."""
        shot = self._captured()
        png = to_png(shot.rgb, shot.size, level=1)
        assert png is not None  # it is None only when it is written to a file
        return bytes(png)

    def _captured(self) -> Any:
        return self._screen_capture.grab(self._screen_capture.monitors[0])

    def mark(self, *, shown: bool) -> None:
        """Show or hide a mark: a bright window in a corner, above all others, that the window manager
        ignores."""
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

        An application replies to a ping only after it has processed the input that it received before.
        """
        self.ping(within_s=SETTLE_PING_S)
        time.sleep(SETTLE_LEAST_S)
        before, since_s = b"", time.monotonic()

        def is_still() -> bool:
            nonlocal before, since_s
            now_s, now = time.monotonic(), bytes(self._captured().raw)
            if now != before:
                before, since_s = now, now_s
                return False
            return now_s - since_s >= still_s - SETTLE_LEAST_S

        _poll(is_still, most_s - SETTLE_LEAST_S, SETTLE_EVERY_S)

    # ---- checks ----

    def status(self) -> dict[str, Any]:
        """Return what a screenshot does not show, as a map.

        It has the fault of the window manager and of each application (empty for no fault), the position of
        the pointer in pixels, and whether the applications are parked."""
        pointer = self._root.query_pointer()
        return {
            "window_manager": _fault_of(self._manager)
            or ("" if window_manager(self._x) else "manages no screen"),
            "applications": {name: _fault_of(process) for name, process in self._applications.items()},
            "pointer": (pointer.root_x, pointer.root_y),
            "parked": self._is_parked,
        }

    def _active_class(self) -> list[str]:
        """Return the two names of the focused window's class; an empty list when no window has the focus."""
        return class_of(self._x, self._x.create_resource_object("window", active_id(self._x)))

    def ping(self, *, within_s: float = PING_WITHIN_S) -> list[str]:
        """Ping all windows that support pings. Return the titles of those that are open and did not reply."""
        waiting: dict[int, str] = {}
        ping, protocols = self._x.get_atom("_NET_WM_PING"), self._x.get_atom("WM_PROTOCOLS")
        for window in managed_windows(self._x):
            with contextlib.suppress(XError):
                if ping in (window.get_wm_protocols() or ()):
                    data = (32, [ping, X.CurrentTime, window.id, 0, 0])
                    window.send_event(event.ClientMessage(window=window, client_type=protocols, data=data))
                    waiting[window.id] = title_of(self._x, window)
        self._x.sync()
        answered: set[int] = set()

        def have_answered() -> bool:
            answered.update(
                got.data[1][2]
                for got in self._events()
                if got.type == X.ClientMessage and got.data[1][0] == ping
            )
            for closed in waiting.keys() - {window.id for window in managed_windows(self._x)}:
                del waiting[closed]
            return waiting.keys() <= answered

        _poll(have_answered, within_s)
        return [title for id_, title in waiting.items() if id_ not in answered]

    def _events(self) -> Iterator[Any]:
        while self._x.pending_events():
            yield self._x.next_event()

    def state(self) -> dict[str, Any]:
        """Return `status` and what evaluators read (`dart.environments.desktop.tasks.State`).

        Waits until the files of the home no longer change. Raises GuestError when the files are larger than
        `MOST_STATE_BYTES` in total, and when LibreOffice is still saving a file after `QUIET_WITHIN_S`,
        because a partial file must not be scored.
        """
        self._await_quiet_files()
        home = Path.home()
        paths = [path.relative_to(home) for path in home.rglob("*")]
        shown = [path for path in paths if not any(part.startswith(".") for part in path.parts)]
        files = {_name_of(path): (home / path).read_bytes() for path in shown if (home / path).is_file()}
        if sum(map(len, files.values())) > MOST_STATE_BYTES:
            raise GuestError(f"the files of the home have more than {MOST_STATE_BYTES} bytes in total")
        return {
            "files": files,
            "folders": [_name_of(path) for path in shown if (home / path).is_dir()],
            "clipboard": self._clipboard(),
            "windows": described_windows(self._x),
            "active": (self._active_class() or [""])[-1],
            **self.status(),
        }

    def _await_quiet_files(self) -> None:
        before: dict[Path, int] | None = None
        is_saving = False

        def is_quiet() -> bool:
            nonlocal before, is_saving
            now = {path: path.lstat().st_mtime_ns for path in Path.home().rglob("[!.]*")}
            is_saving = any(SAVING.fullmatch(path.name) for path in now)
            was, before = before, now
            return now == was and not is_saving

        _poll(is_quiet, QUIET_WITHIN_S, QUIET_FOR_S)
        if is_saving:
            raise GuestError(
                f"a file was still being saved by LibreOffice after {QUIET_WITHIN_S:g} s; "
                "a partial file must not be scored"
            )

    def _clipboard(self) -> str:
        """Return the text of the clipboard; empty when it has no owner or holds no text.

        Raises GuestError when its owner does not reply, because its content is then unknown.
        """
        selection, kind = self._x.get_atom("CLIPBOARD"), self._x.get_atom("UTF8_STRING")
        if self._x.get_selection_owner(selection) == X.NONE:
            return ""
        asker = self._root.create_window(0, 0, 1, 1, 0, X.CopyFromParent)
        asker.convert_selection(selection, kind, self._x.get_atom("DART_CLIPBOARD"), X.CurrentTime)
        self._x.sync()
        try:
            return self._selection_of(asker)
        finally:
            asker.destroy()
            self._x.sync()

    def _selection_of(self, asker: Any) -> str:
        reply = _poll(
            lambda: next((got for got in self._events() if got.type == X.SelectionNotify), None),
            SELECTION_WITHIN_S,
        )
        if reply is None:
            raise GuestError(f"the owner of the clipboard did not answer within {SELECTION_WITHIN_S:g} s")
        if reply.property == X.NONE:
            return ""
        found = asker.get_full_property(reply.property, X.AnyPropertyType)
        if found is not None and found.property_type == self._x.get_atom("INCR"):
            return self._parts_of(asker, reply.property).decode(errors="replace")
        return bytes(found.value).decode(errors="replace") if found else ""

    def _parts_of(self, asker: Any, property_: int) -> bytes:
        """Return the content of a large selection, cut once it has more than `MOST_STATE_BYTES`.

        The owner writes it in parts, the next one when the last was deleted, and an empty one at the end."""
        content = b""
        while len(content) <= MOST_STATE_BYTES:
            asker.delete_property(property_)
            part = _poll(
                lambda: asker.get_full_property(property_, X.AnyPropertyType), SELECTION_WITHIN_S, POLL_S / 4
            )
            if part is None:
                raise GuestError(
                    f"the owner of the clipboard wrote no more of it within {SELECTION_WITHIN_S:g} s"
                )
            if not part.value:
                break
            content += bytes(part.value)
        return content

    # ---- parking and injected faults ----

    def park(self, *, parked: bool) -> None:
        """Stop all applications with SIGSTOP, or let them continue."""
        self._is_parked = parked
        for process in self._applications.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGSTOP if parked else signal.SIGCONT)

    def disturb(self, *, kind: str) -> None:
        """Cause an injected fault (`dart.config.injected_faults`)."""
        match kind:
            case "ready_too_early" | "dead_window_manager":
                self._manager.kill()
                self._manager.wait()
            case "dead_application":
                for process in self._applications.values():
                    os.killpg(process.pid, signal.SIGSTOP)
            case "dirty_reset":
                (Path.home() / "of the last episode.txt").write_text("left behind\n")
            case "popup":
                self._open_popup()

    def _open_popup(self) -> None:
        window = self._root.create_window(
            200, 150, 320, 120, 1, self._x.screen().root_depth, background_pixel=0xEEEEEE
        )
        window.set_wm_name("Software Updater")
        window.set_wm_class("updater", "Updater")

        def is_listed() -> bool:
            window.map()  # repeated, because a window manager that is starting may miss the first request
            self._x.sync()
            return window in managed_windows(self._x)

        self._await(is_listed, "the popup")


Found = TypeVar("Found")


def _poll(look: Callable[[], Found], within_s: float, every_s: float = POLL_S) -> Found:
    """Call ``look`` until it returns a true value or ``within_s`` has passed; return its last value."""
    give_up_s = time.monotonic() + within_s
    while not (found := look()) and time.monotonic() < give_up_s:
        time.sleep(every_s)
    return found


def _name_of(path: Path) -> str:
    """Return a path as text that UTF-8 can encode; bytes that are not UTF-8 are replaced by U+FFFD."""
    return os.fsencode(path).decode(errors="replace")


def _fault_of(process: subprocess.Popen[bytes]) -> str:
    """Describe how a process was killed, failed or was stopped; empty when it runs or ended with code 0.

    A script such as that of LibreOffice ends with a code above 0 after its application was killed."""
    ended = process.poll()
    if ended is not None and ended < 0:
        return f"was killed by {signal.Signals(-ended).name}"
    if ended is not None:
        return f"ended with code {ended}" if ended else ""
    return "is stopped" if process_state(process.pid) in ("T", "t") else ""


def serve(requests: BinaryIO, responses: BinaryIO) -> None:
    """Serve calls until stdin ends."""
    desktop = GuestDesktop()
    while (request := _read(requests)) is not None:
        try:
            response = {"ok": getattr(desktop, request.pop("call"))(**request)}
        except GuestError as error:
            response = {"error": str(error)}
        except (XError, DisplayError, ConnectionClosedError, OSError) as error:
            response = {"error": f"{type(error).__name__}: {error}"}
        _write(responses, response)


def _read(stream: BinaryIO) -> dict[str, Any] | None:
    header = stream.read(4)
    if len(header) < 4:
        return None
    return dict(msgpack.unpackb(stream.read(struct.unpack(">I", header)[0])))


def _write(stream: BinaryIO, response: dict[str, Any]) -> None:
    packed = msgpack.packb(response)
    stream.write(struct.pack(">I", len(packed)) + packed)
    stream.flush()


def main() -> None:
    """Serve calls on stdin and stdout; the output of children goes to stderr."""
    responses = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    _write(responses, {"ok": None})
    serve(sys.stdin.buffer, responses)


if __name__ == "__main__":
    main()
