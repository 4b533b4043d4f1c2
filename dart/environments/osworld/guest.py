"""A client of OSWorld's guest server: one method per route, each with a deadline.

The client never repeats a request by itself. A missing or broken response is a fault, never None and never an
empty value. Guests are not trusted: the client reads responses up to a limit, decompresses none, and
decodes text as UTF-8.
"""

import asyncio
import json
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, TypedDict, TypeVar

import httpx2
import msgspec

from dart.config.machine_address import MachineAddress
from dart.environments.faults import CallFailed, MachineDied, MachineHung
from dart.environments.osworld.bodies import IDENTITY, BodyRefused, BodyTooLarge, body_of
from dart.environments.screenshot_checks import frame_size

T = TypeVar("T")
Command = str | Sequence[str]

IS_FOLDER = "Is a directory"
"""Part of the guest's error when a file is requested but a folder has its name."""

NOT_PERMITTED = "Permission denied"
"""Part of the guest's error when it may not read a file or execute a program."""

CANNOT_SERVE = "Unable to serve the wallpaper file"
"""Part of the guest's error when the configured wallpaper does not exist."""

FILE_MOST_BYTES = 128 * 2**20
"""Limit of a file or a screenshot."""

RESPONSE_MOST_BYTES = 16 * 2**20
"""Limit of a response that is no file or screenshot, such as an accessibility tree or a command's output."""

RESPONSE_MOST_PARTS = 2_000_000
"""Limit of brackets and commas in a response's JSON: each is one byte on the wire, and about 100
bytes in memory once it is parsed."""

QUOTED_CHARACTERS = 300
"""Number of characters of an error's text that a message quotes."""


@dataclass(frozen=True, slots=True)
class Executed:
    """How a command ended in the guest."""

    output: str
    error: str
    returncode: int

    @property
    def last_line(self) -> str:
        """Return the last line of the output; python-xlib may print warnings before it."""
        return self.output.rstrip().rpartition("\n")[2]


class _Size(TypedDict):
    width: int
    height: int


class AnswerTooLarge(CallFailed):
    """The response of a guest has more bytes, or more parts of JSON, than are accepted."""


@dataclass(frozen=True, slots=True)
class GuestResponse:
    """The response of a guest to one request."""

    status: int
    content: bytes

    @property
    def text(self) -> str:
        return self.content.decode(errors="replace")


class StatusNotOk(CallFailed):
    """The response of a guest has another status than 200. Its message quotes the beginning of the text."""

    def __init__(self, machine: str, call: str, response: GuestResponse) -> None:
        quoted = " ".join(response.text.split())[:QUOTED_CHARACTERS]
        super().__init__(machine, call, f"status {response.status}: {quoted}")
        self.response = response


class Guest:
    """A client of one guest server.

    It makes one call at a time, because the server writes every screenshot to the same file."""

    def __init__(
        self, name: str, address: MachineAddress, transport: httpx2.AsyncBaseTransport | None = None
    ) -> None:
        self.name = name
        self.address = address
        self._client = httpx2.AsyncClient(
            transport=transport, timeout=None, trust_env=False, headers=IDENTITY
        )
        self._one_at_a_time = asyncio.Lock()
        self.simulated_failure = ""
        """``died`` or ``hung`` makes all further calls fail as if the machine had; empty for no failure."""

    @property
    def is_busy(self) -> bool:
        """Whether a call is in progress."""
        return self._one_at_a_time.locked()

    async def close(self) -> None:
        await self._client.aclose()

    # ---- reading ----

    async def screenshot(self, *, deadline_s: float) -> bytes:
        """Return a screenshot as PNG. Raises CorruptFrame when the picture is cut off or no PNG."""
        response = await self._call("GET", "/screenshot", deadline_s, most_bytes=FILE_MOST_BYTES)
        frame_size(response.content)
        return response.content

    async def accessibility_tree(self, *, deadline_s: float) -> str:
        """Return the XML of the accessibility tree, which takes seconds for a large application."""
        return await self._json("GET", "/accessibility", deadline_s, str, key="AT")

    async def terminal(self, *, deadline_s: float) -> str | None:
        """Return the text of the active terminal; None when no terminal is active."""
        output = await self._json("GET", "/terminal", deadline_s, object, key="output")
        return None if output is None else str(output)

    async def screen_size(self, *, deadline_s: float) -> tuple[int, int]:
        size = await self._json("POST", "/screen_size", deadline_s, _Size)
        return size["width"], size["height"]

    async def window_size(self, window_class: str, *, deadline_s: float) -> Mapping[str, int] | None:
        """Return the size of the first window of a class; None when there is none (status 500)."""
        body = {"app_class_name": window_class}
        return await self._json_unless(500, "/window_size", deadline_s, dict[str, int], data=body)

    async def directory(self, path: str, *, deadline_s: float) -> Mapping[str, Any] | None:
        """Return a folder as a tree of ``type``, ``name`` and ``children``; None when it does not exist."""
        return await self._json_unless(
            400,
            "/list_directory",
            deadline_s,
            dict[str, Any],
            key="directory_tree",
            call=f"/list_directory {path}",
            json={"path": path},
        )

    async def desktop_path(self, *, deadline_s: float) -> str | None:
        """Return the path of the desktop folder; None when it does not exist."""
        return await self._json_unless(404, "/desktop_path", deadline_s, str, key="desktop_path")

    async def wallpaper(self, *, deadline_s: float) -> bytes | None:
        """Return the bytes of the wallpaper; None when none is set or its file does not exist."""
        return await self._file("/wallpaper", (CANNOT_SERVE,), deadline_s)

    async def file(self, path: str, *, deadline_s: float) -> bytes | None:
        """Return the bytes of a file; None when it does not exist, is a folder or may not be read."""
        body = {"file_path": path}
        missing = (IS_FOLDER, NOT_PERMITTED)
        return await self._file("/file", missing, deadline_s, call=f"/file {path}", data=body)

    async def _file(
        self, route: str, missing: Sequence[str], deadline_s: float, *, call: str = "", **content: Any
    ) -> bytes | None:
        """Return a file's bytes; None for status 404, and for status 500 with a text of ``missing``."""
        response = await self._call(
            "POST", route, deadline_s, accepts=(404, 500), most_bytes=FILE_MOST_BYTES, call=call, **content
        )
        if response.status == 404:
            return None
        if response.status == 500 and any(part in response.text for part in missing):
            return None
        return self._checked(response, call or route).content

    # ---- acting ----

    async def execute(self, command: Command, *, shell: bool = False, deadline_s: float) -> Executed:
        """Run a command in the guest, with ``shell`` through a shell, and wait until it ends."""
        body = {"command": command if isinstance(command, str) else list(command), "shell": shell}
        return await self._json("POST", "/execute", deadline_s, Executed, json=body)

    async def python(self, code: str, *, deadline_s: float) -> Executed:
        """Run a Python program in the guest."""
        return await self.execute(["python", "-c", code], deadline_s=deadline_s)

    async def upload(self, path: str, content: bytes, *, deadline_s: float) -> None:
        """Write a file in the guest."""
        await self._call(
            "POST",
            "/setup/upload",
            deadline_s,
            data={"file_path": path},
            files={"file_data": (PurePosixPath(path).name, content)},
        )

    async def setup(self, route: str, body: Mapping[str, Any], *, deadline_s: float) -> str:
        """Call the route ``/setup/<route>`` and return the text of its response."""
        return (await self._call("POST", f"/setup/{route}", deadline_s, json=dict(body))).text

    async def chromium(self, method: str, path: str, *, deadline_s: float) -> Any:
        """Call the debugging port of the guest's browser. Returns JSON or text; None when no browser
        listens."""
        response = await self._call_application(self.address.chromium, method, path, deadline_s)
        if response is None:
            return None
        try:
            return self._parsed(self._checked(response, path), path)
        except (ValueError, RecursionError):
            return response.text

    async def player(self, password: str, *, deadline_s: float) -> bytes | None:
        """Return the status of the guest's VLC as the XML of its web interface; None when no VLC answers."""
        path = "/requests/status.xml"
        auth = ("", password)
        response = await self._call_application(self.address.vlc, "GET", path, deadline_s, auth=auth)
        return response.content if response is not None and response.status == 200 else None

    async def _call_application(
        self, port: int, method: str, path: str, deadline_s: float, **content: Any
    ) -> GuestResponse | None:
        """Call the port of an application; None when nothing listens there although the guest server runs."""
        url = f"http://{self.address.host}:{port}{path}"
        try:
            return await self._call(method, path, deadline_s, url=url, accepts=range(1000), **content)
        except MachineDied:
            await self._call("GET", "/platform", deadline_s)
            return None

    # ---- one exchange ----

    async def _call(
        self,
        method: str,
        path: str,
        deadline_s: float,
        *,
        url: str = "",
        accepts: Container[int] = (),
        most_bytes: int | None = None,
        call: str = "",
        **content: Any,
    ) -> GuestResponse:
        """Send a request once. Raises MachineHung, MachineDied, AnswerTooLarge, or CallFailed.

        url          full URL, for another port than the guest server's
        accepts      statuses besides 200 with which the response is returned instead of CallFailed
        most_bytes   limit of the response; by default `RESPONSE_MOST_BYTES`
        call         name of the call in an error about the status; by default the path
        content      keyword arguments for the HTTP client, such as ``json``
        """
        async with self._one_at_a_time:
            try:
                async with asyncio.timeout(deadline_s):
                    await self._fail_if_simulated(path)
                    async with self._client.stream(
                        method, url or f"http://{self.address}{path}", **content
                    ) as stream:
                        response = GuestResponse(
                            stream.status_code, await body_of(stream, most_bytes or RESPONSE_MOST_BYTES)
                        )
            except TimeoutError:
                raise MachineHung(self.name, path, deadline_s) from None
            except httpx2.ConnectError as error:
                raise MachineDied(self.name, path, f"nothing answers at {self.address}: {error}") from error
            except httpx2.TransportError as error:
                why = f"the connection broke ({type(error).__name__}: {error})"
                raise MachineDied(self.name, path, why) from error
            except httpx2.InvalidURL as error:
                raise CallFailed(
                    self.name, path[:QUOTED_CHARACTERS], f"its URL is not valid: {error}"
                ) from error
            except BodyTooLarge as error:
                raise AnswerTooLarge(self.name, path, str(error)) from error
            except BodyRefused as error:
                raise CallFailed(self.name, path, str(error)) from error
        return response if response.status in accepts else self._checked(response, call or path)

    async def _fail_if_simulated(self, path: str) -> None:
        if self.simulated_failure == "hung":
            await asyncio.Event().wait()
        if self.simulated_failure:
            raise MachineDied(self.name, path, "a fault was injected (environments.faults)")

    def _checked(self, response: GuestResponse, call: str) -> GuestResponse:
        if response.status != 200:
            raise StatusNotOk(self.name, call, response)
        return response

    async def _json(
        self, method: str, path: str, deadline_s: float, type_: type[T], key: str = "", **content: Any
    ) -> T:
        """Send a request; return the JSON of the response, or the value of ``key`` in it, as a ``type_``."""
        return self._value(await self._call(method, path, deadline_s, **content), path, type_, key)

    async def _json_unless(
        self, missing: int, path: str, deadline_s: float, type_: type[T], key: str = "", **content: Any
    ) -> T | None:
        """Like `_json` with POST, but return None when the response has the status ``missing``."""
        response = await self._call("POST", path, deadline_s, accepts=(missing,), **content)
        return None if response.status == missing else self._value(response, path, type_, key)

    def _value(self, response: GuestResponse, call: str, type_: type[T], key: str) -> T:
        try:
            found = self._parsed(response, call)
            return msgspec.convert(found[key] if key else found, type_)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            why = f"its response does not follow the protocol ({type(error).__name__}: {error}): "
            raise CallFailed(self.name, call, f"{why}{response.content[:80]!r}") from error

    def _parsed(self, response: GuestResponse, call: str) -> Any:
        """Parse the JSON of a response. Raises AnswerTooLarge, ValueError or RecursionError."""
        if sum(map(response.content.count, (b"[", b"{", b","))) > RESPONSE_MOST_PARTS:
            raise AnswerTooLarge(self.name, call, f"its JSON has more than {RESPONSE_MOST_PARTS} parts")
        return json.loads(response.content)
