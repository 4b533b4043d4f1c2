"""A guest server that speaks OSWorld's protocol, for tests: routes, payloads, statuses and oddities of it.

Written from the protocol's description, and held against the genuine server. Behind it is a desktop of
nothing but values: commands run for real, in a folder that is its home; Python programs run in this process
with stand-ins for pyautogui and pyperclip, and the program that looks at windows gets what the values say. A
browser and a player answer beside it. Faults are switched on by name.
"""

import asyncio
import contextlib
import io
import json
import os
import shlex
import stat
import struct
import subprocess
import sys
import traceback
import types
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from email import message_from_bytes
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote

import httpx2
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from dart.config.machine_address import MachineAddress
from dart.environments.osworld.guest import Guest
from dart.environments.osworld.keyboard import DONE_PREFIX
from dart.environments.osworld.readiness import STATE_PROGRAM
from dart.environments.osworld.setup_steps import Setting

COMMAND_SECONDS = 120

READS_FILES = STATE_PROGRAM[STATE_PROGRAM.index("home, files =") : STATE_PROGRAM.index("print(")]
"""The part of the genuine program that needs no X server."""


@dataclass
class FakeDesktop:
    """What the guest is; `faults` says how it misbehaves."""

    home: Path
    width: int = 1920
    height: int = 1080
    manager: str | None = "openbox"
    windows: list[dict[str, Any]] = field(default_factory=list)
    has_focus: bool = True
    pointer: tuple[int, int] = (960, 540)
    done: list[str] = field(default_factory=list)
    """Every input call that was carried out, as text."""
    launched: list[Any] = field(default_factory=list)
    opened: list[str] = field(default_factory=list)
    activated: list[dict[str, Any]] = field(default_factory=list)
    clipboard: str = ""
    wallpaper: Path | None = None
    terminal: str | None = None
    """What the active terminal shows; None without one."""
    tabs: list[dict[str, str]] | None = None
    """What the browser's debugging port serves; None while there is no browser."""
    playing: str | None = None
    """What the player's web interface serves."""
    tree: str = ""
    """The accessibility tree, if it is not to be that of the windows."""
    connected: list[str] = field(default_factory=list)
    """Hosts to which programs connected, or tried to."""
    sites_down: set[str] = field(default_factory=set)
    not_installed: set[str] = field(default_factory=set)
    """Programs that cannot be started."""
    requests: list[str] = field(default_factory=list)
    """Every request, as method and path."""
    faults: set[str] = field(default_factory=set)
    """no_answer, no_network, http_500, truncated, wrong_size, frozen, applied_twice, reply_lost,
    python_fails, opens_no_window, copies_late"""

    def add_window(self, title: str, *, active: bool = True, state: str = "S", kind: str = "normal") -> None:
        """Its class is its title in lower case."""
        id_ = len(self.windows) + 100
        self.windows.append(
            {"id": id_, "title": title, "pid": 4000 + id_, "state": state, "kind": kind, "active": active}
        )

    def screenshot(self) -> bytes:
        """A PNG of one colour, which changes with everything that happens, the pointer included."""
        shown = "frozen" if "frozen" in self.faults else f"{self.done}{self.windows}{self.pointer}"
        width = 640 if "wrong_size" in self.faults else self.width
        png = one_colour(width, self.height, zlib.crc32(shown.encode()))
        return png[: len(png) // 2] if "truncated" in self.faults else png

    def state(self) -> dict[str, Any]:
        """What the genuine program prints; its own part looks through the files, values stand for X."""
        active = next((window["id"] for window in reversed(self.windows) if window["active"]), 0)
        files, owner = self._files_and_owner()
        return {
            "manager": self.manager,
            "windows": [
                {key: window[key] for key in ("id", "title", "pid", "state", "kind")}
                for window in self.windows
            ],
            "files": files,
            "active": active,
            "has_focus": self.has_focus,
            "owner": owner,
        }

    def _files_and_owner(self) -> tuple[dict[str, int], str]:
        with self._as_guest():
            names: dict[str, Any] = {"os": os}
            exec(READS_FILES, names)
        return names["files"], names["owner"]

    # ---- running things ----

    def python(self, code: str) -> tuple[str, str, int]:
        """Output, error and exit code of a program."""
        if "python_fails" in self.faults:
            return "", "ModuleNotFoundError: No module named 'pyautogui'", 1
        if code == STATE_PROGRAM:
            return (
                f"Xlib.xauth: warning, no xauthority details available\n{json.dumps(self.state())}\n",
                "",
                0,
            )
        printed = io.StringIO()
        with self._as_guest(), contextlib.redirect_stdout(printed):
            try:
                exec(code, {"__name__": "__main__"})
            except Exception:
                return printed.getvalue(), traceback.format_exc(), 1
        return printed.getvalue(), "", 0

    @contextlib.contextmanager
    def _as_guest(self) -> Iterator[None]:
        before, modules = os.environ.get("HOME"), {name: sys.modules.get(name) for name in STAND_INS}
        os.environ["HOME"] = str(self.home)
        sys.modules["pyautogui"], sys.modules["pyperclip"] = self._pyautogui(), self._pyperclip()
        sys.modules["socket"] = self._socket()
        try:
            yield
        finally:
            os.environ["HOME"] = before or "/"
            for name, module in modules.items():
                if module is None:
                    del sys.modules[name]
                else:
                    sys.modules[name] = module

    def _pyautogui(self) -> types.ModuleType:
        module = types.ModuleType("pyautogui")

        def record(name: str) -> Any:
            def call(*args: Any, **kwargs: Any) -> None:
                words = [repr(one) for one in args] + [f"{key}={value!r}" for key, value in kwargs.items()]
                self.done.append(f"{name}({', '.join(words)})")
                if name == "hotkey" and args == ("ctrl", "v"):
                    self.done.append(f"pasted {self.clipboard!r}")
                if len(args) == 2 and all(isinstance(one, int) for one in args):
                    self.pointer = args

            return call

        for name in ("click", "doubleClick", "rightClick", "dragTo", "scroll", "hscroll"):
            setattr(module, name, record(name))
        for name in ("hotkey", "write", "press", "keyDown", "keyUp"):
            setattr(module, name, record(name))
        module.moveTo = record("moveTo")  # type: ignore[attr-defined]
        module.position = lambda: self.pointer  # type: ignore[attr-defined]
        return module

    def _socket(self) -> types.ModuleType:
        module = types.ModuleType("socket")

        def create_connection(address: tuple[str, int], timeout: float) -> Any:
            self.connected.append(address[0])
            if "no_network" in self.faults or address[0] in self.sites_down:
                raise OSError("Network is unreachable")
            return io.BytesIO()

        module.create_connection = create_connection  # type: ignore[attr-defined]
        return module

    def _pyperclip(self) -> types.ModuleType:
        module = types.ModuleType("pyperclip")

        late: list[str] = []

        def copy(text: str) -> None:
            if "copies_late" in self.faults:
                late.append(text)
            else:
                self.clipboard = text

        def paste() -> str:
            """What is there now; what was copied late comes after it."""
            before, self.clipboard = self.clipboard, late.pop() if late else self.clipboard
            return before

        module.copy = copy  # type: ignore[attr-defined]
        module.paste = paste  # type: ignore[attr-defined]
        return module

    def command(self, command: Any, shell: bool) -> tuple[str, str, int]:
        self.refuse_missing(command, shell)
        if isinstance(command, list) and command[:2] == ["python", "-c"]:
            return self.python(command[2])
        ended = subprocess.run(
            command,
            shell=shell,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            cwd=self.home,
            env={"HOME": str(self.home), "PATH": os.environ["PATH"]},
        )
        return ended.stdout, ended.stderr, ended.returncode

    def refuse_missing(self, command: Any, shell: bool) -> None:
        """Raises FileNotFoundError, as starting a program that is not there does."""
        if not shell and command and command[0] in self.not_installed:
            raise FileNotFoundError(2, "No such file or directory", command[0])


BROKEN = PlainTextResponse("<html>Internal Server Error</html>", 500)
STAND_INS = ("pyautogui", "pyperclip", "socket")


def one_colour(width: int, height: int, number: int) -> bytes:
    """A real PNG of some hundred bytes."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, 1, 3, 0, 0, 0)
    pixels = zlib.compress(bytes((1 + (width + 7) // 8) * height), 1)
    palette = struct.pack(">I", number)[:3] + b"\0\0\0"
    chunks = ((b"IHDR", header), (b"PLTE", palette), (b"IDAT", pixels), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*one) for one in chunks)


async def form_of(request: Request) -> dict[str, bytes]:
    """The fields of a form, urlencoded or multipart."""
    kind, body = request.headers["content-type"], await request.body()
    if kind.startswith("application/x-www-form-urlencoded"):
        return {name: value.encode() for name, value in parse_qsl(body.decode())}
    parts = message_from_bytes(f"Content-Type: {kind}\r\n\r\n".encode() + body).get_payload()
    return {
        str(part.get_param("name", header="content-disposition")): part.get_payload(decode=True)
        for part in parts  # type: ignore[union-attr]
    }


VM = MachineAddress(host="vm.test")


def setting_of(desktop: FakeDesktop, tmp_path: Path, address: MachineAddress = VM) -> Setting:
    """An episode of the task `osworld/x/y` in this desktop."""
    return Setting(
        task_id="osworld/x/y",
        guest=Guest("vm", address, httpx2.ASGITransport(app=guest_server(desktop))),
        owner="",
        cache=tmp_path / "cache",
        scratch=tmp_path / "scratch",
        password="p",
        width=800,
        height=600,
    )


def guest_server(desktop: FakeDesktop) -> Starlette:
    """The server as an ASGI application."""

    def path_of(text: str) -> Path:
        """Paths of the guest's home are in the folder that is its home."""
        for home in ("/home/user", "~"):
            if text == home or text.startswith(home + "/"):
                return desktop.home / text[len(home) :].lstrip("/")
        return Path(text)

    async def screenshot(_: Request) -> Response:
        return Response(desktop.screenshot(), media_type="image/png")

    async def accessibility(_: Request) -> Response:
        if desktop.tree:
            return JSONResponse({"AT": desktop.tree})
        frames = "".join(f'<frame name="{window["title"]}"/>' for window in desktop.windows)
        return JSONResponse({"AT": f'<desktop-frame name="main">{frames}</desktop-frame>'})

    async def terminal(_: Request) -> Response:
        return JSONResponse({"output": desktop.terminal, "status": "success"})

    async def platform(_: Request) -> Response:
        return PlainTextResponse("Linux")

    async def cursor_position(_: Request) -> Response:
        return JSONResponse(list(desktop.pointer))

    async def screen_size(_: Request) -> Response:
        return JSONResponse({"width": desktop.width, "height": desktop.height})

    async def window_size(request: Request) -> Response:
        """By class, upper case or not; it knows no answer for a window that is not there, and breaks."""
        class_ = (await form_of(request))["app_class_name"].decode().lower()
        if not any(class_ == window["title"].lower() for window in desktop.windows):
            return BROKEN
        return JSONResponse({"width": 800, "height": 600})

    def split(given: dict[str, Any]) -> tuple[Any, bool]:
        """A command as its words are expanded: unless a shell gets it, a text is split as a shell would."""
        shell = given.get("shell", False)
        command = given.get("command", "" if shell else [])
        if isinstance(command, str):
            return (command, True) if shell else (split({"command": shlex.split(command)})[0], False)
        return [str(desktop.home / arg[2:]) if arg.startswith("~/") else arg for arg in command], shell

    async def execute(request: Request) -> Response:
        command, shell = split(await request.json())
        is_action = DONE_PREFIX in str(command)
        times = 2 if "applied_twice" in desktop.faults and is_action else 1
        try:
            for _ in range(times):
                output, error, code = desktop.command(command, shell)
        except Exception as failure:  # whatever it is, the protocol says 500
            return JSONResponse({"status": "error", "message": str(failure)}, 500)
        if "reply_lost" in desktop.faults and is_action:
            raise httpx2.ReadError("the connection was reset")
        return JSONResponse({"status": "success", "output": output, "error": error, "returncode": code})

    async def launch(request: Request) -> Response:
        command, shell = split(await request.json())
        name = command if isinstance(command, str) else command[0]
        try:
            desktop.refuse_missing(command, shell)
            desktop.launched.append(command)
            desktop.add_window(str(name).split("/")[-1])
        except FileNotFoundError as failure:
            return JSONResponse({"status": "error", "message": str(failure)}, 500)
        return PlainTextResponse(f"{command if shell else ' '.join(command)} launched successfully")

    async def upload(request: Request) -> Response:
        form = await form_of(request)
        content = form["file_data"]
        path = path_of(form["file_path"].decode())
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return PlainTextResponse(f"File Uploaded: {len(content)} bytes")

    async def open_file(request: Request) -> Response:
        """Waits until a window bears the file's name, for ``timeout_seconds`` or half an hour."""
        given = await request.json()
        path, patience = given["path"], float(given.get("timeout_seconds", 1800))
        if not path_of(path).exists():
            return PlainTextResponse(f"Application/file not found: {path}", 404)
        desktop.opened.append(path)
        if "opens_no_window" in desktop.faults:
            await asyncio.sleep(patience)
            said = f"Failed to find window for {[Path(path).name]} within {patience:g} seconds."
            return PlainTextResponse(said, 500)
        desktop.add_window(Path(path).name)
        return PlainTextResponse("File opened and window activated successfully")

    async def activate_window(request: Request) -> Response:
        """200 whether or not there is such a window."""
        desktop.activated.append(await request.json())
        return PlainTextResponse("Window activated successfully")

    async def close_window(request: Request) -> Response:
        """As wmctrl does: every part of a title will do, upper case or not, or the whole of it strictly."""
        given = await request.json()
        name, is_strict = given["window_name"], given.get("strict", False)

        def is_it(title: str) -> bool:
            return title == name if is_strict else name.lower() in title.lower()

        desktop.windows = [window for window in desktop.windows if not is_it(window["title"])]
        return PlainTextResponse("Window closed successfully.")

    async def verified(request: Request) -> Response:
        given = await request.json()
        command, shell = split(given)
        output, error, code = desktop.command(command, shell)
        said = {"output": output, "error": error, "returncode": code}
        wanted = given.get("verification") or {}
        window = wanted.get("window_exists", "").lower()
        holds = any(window in one["title"].lower() for one in desktop.windows) or not window
        if "command_success" in wanted:
            holds = holds and desktop.command(wanted["command_success"], True)[2] == 0
        if not wanted:
            return JSONResponse({"status": "success", **said})
        if not holds:
            return JSONResponse({"status": "verification_failed", "verification": "failed", **said}, 500)
        return JSONResponse({"status": "success", "verification": "passed", "wait_time": 0.0, **said})

    async def change_wallpaper(request: Request) -> Response:
        path = path_of((await request.json())["path"])
        if not path.exists():
            return PlainTextResponse(f"File not found: {path}", 404)
        desktop.wallpaper = path
        return PlainTextResponse("Wallpaper changed successfully")

    async def file(request: Request) -> Response:
        """A folder, or a file without permission, is there, but cannot be served."""
        form = await form_of(request)
        path = path_of(form["file_path"].decode())
        if not path.exists():
            return JSONResponse({"error": "File not found"}, 404)
        if path.is_dir():
            said = f"Failed to serve file: [Errno 21] Is a directory: {str(path)!r}"
            return JSONResponse({"error": said}, 500)
        if not path.stat().st_mode & stat.S_IRUSR:  # root, as whom tests may run, could read it
            said = f"Failed to serve file: [Errno 13] Permission denied: {str(path)!r}"
            return JSONResponse({"error": said}, 500)
        return Response(path.read_bytes())

    async def list_directory(request: Request) -> Response:
        """The only route on files that takes no ``~``."""

        def tree(path: Path) -> dict[str, Any]:
            if path.is_dir():
                return {
                    "type": "directory",
                    "name": path.name,
                    "children": [tree(one) for one in sorted(path.iterdir())],
                }
            return {"type": "file", "name": path.name}

        given = (await request.json())["path"]
        path = path_of(given)
        if given.startswith("~") or not path.is_dir():
            return JSONResponse({"error": "The provided path is not a directory"}, 400)
        return JSONResponse({"directory_tree": tree(path)})

    async def desktop_path(_: Request) -> Response:
        if not (desktop.home / "Desktop").exists():
            said = "Unsupported operating system or desktop path not found"
            return JSONResponse({"error": said}, 404)
        return JSONResponse({"desktop_path": "/home/user/Desktop"})

    async def wallpaper(_: Request) -> Response:
        if desktop.wallpaper is None:
            return PlainTextResponse("<p>Wallpaper file not found</p>", 404)
        if not desktop.wallpaper.exists():
            return PlainTextResponse("<p>Unable to serve the wallpaper file</p>", 500)
        return Response(desktop.wallpaper.read_bytes(), media_type="image/png")

    async def version(_: Request) -> Response:
        return JSONResponse({"Browser": "Chrome/1.0"})

    async def tabs(_: Request) -> Response:
        if desktop.tabs is None:
            raise httpx2.ConnectError("nobody listens")
        return JSONResponse(desktop.tabs)

    async def new_tab(request: Request) -> Response:
        assert desktop.tabs is not None
        url = unquote(request.url.query)
        desktop.tabs.append({"id": str(len(desktop.requests)), "type": "page", "title": url, "url": url})
        return JSONResponse(desktop.tabs[-1])

    async def close_tab(request: Request) -> Response:
        assert desktop.tabs is not None
        desktop.tabs = [tab for tab in desktop.tabs if tab["id"] != request.path_params["tab"]]
        return PlainTextResponse("Target is closing")

    async def player(_: Request) -> Response:
        if desktop.playing is None:
            raise httpx2.ConnectError("nobody listens")
        return Response(desktop.playing)

    def route(path: str, endpoint: Any, method: str) -> Route:
        async def guarded(request: Request) -> Response:
            desktop.requests.append(f"{method} {path}")
            if "no_answer" in desktop.faults:
                await asyncio.Event().wait()
            if "http_500" in desktop.faults:
                return BROKEN
            answer: Response = await endpoint(request)
            return answer

        return Route(path, guarded, methods=[method])

    return Starlette(
        routes=[
            route("/screenshot", screenshot, "GET"),
            route("/accessibility", accessibility, "GET"),
            route("/terminal", terminal, "GET"),
            route("/platform", platform, "GET"),
            route("/cursor_position", cursor_position, "GET"),
            route("/screen_size", screen_size, "POST"),
            route("/window_size", window_size, "POST"),
            route("/execute", execute, "POST"),
            route("/setup/execute", execute, "POST"),
            route("/setup/execute_with_verification", verified, "POST"),
            route("/setup/launch", launch, "POST"),
            route("/setup/upload", upload, "POST"),
            route("/setup/open_file", open_file, "POST"),
            route("/setup/activate_window", activate_window, "POST"),
            route("/setup/close_window", close_window, "POST"),
            route("/setup/change_wallpaper", change_wallpaper, "POST"),
            route("/file", file, "POST"),
            route("/list_directory", list_directory, "POST"),
            route("/desktop_path", desktop_path, "POST"),
            route("/wallpaper", wallpaper, "POST"),
            route("/json/version", version, "GET"),
            route("/json/list", tabs, "GET"),
            route("/json/new", new_tab, "PUT"),
            route("/json/close/{tab}", close_tab, "GET"),
            route("/requests/status.xml", player, "GET"),
        ]
    )
