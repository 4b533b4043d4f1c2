"""A client of OSWorld's guest server: one method per route, each with a deadline.

The client never repeats a request by itself. A missing or broken answer is a fault, never None and never an
empty answer. Guests are not trusted: answers are read up to a limit, are never decompressed, and text is
always UTF-8.
"""

import asyncio
import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import httpx2

from dart.config.machine_address import MachineAddress
from dart.environments.faults import CallFailed, MachineDied, MachineHung
from dart.environments.osworld.bodies import IDENTITY, BodyRefused, BodyTooLarge, body_of
from dart.environments.screenshot_checks import frame_size

Command = str | Sequence[str]

COMMAND_MOST_S = 120.0
"""The guest ends a command after this long."""

IS_FOLDER = "Is a directory"
"""Part of the guest's error when a file is requested but a folder has its name."""

CANNOT_SERVE = "Unable to serve the wallpaper file"
"""Part of the guest's error when the configured wallpaper does not exist."""

FILE_MOST_BYTES = 128 * 2**20
"""Limit of a file or a screenshot."""

ANSWER_MOST_BYTES = 16 * 2**20
"""Limit of any other answer: an accessibility tree, the output of a command."""

ANSWER_MOST_PARTS = 2_000_000
"""Limit of brackets and commas in JSON: each takes one byte to send and about a hundred in memory."""

QUOTED_CHARACTERS = 300
"""How much of an error's text a message quotes."""


@dataclass(frozen=True, slots=True)
class Executed:
    """How a command ended in the guest."""

    output: str
    error: str
    returncode: int

    @property
    def last_line(self) -> str:
        """The last line of the output; python-xlib prints warnings before it."""
        return self.output.rstrip().rpartition("\n")[2]


class AnswerTooLarge(CallFailed):
    """A guest's answer exceeds the limit of its bytes or parts."""


@dataclass(frozen=True, slots=True)
class GuestAnswer:
    """The answer of a guest to one request."""

    status: int
    content: bytes

    @property
    def text(self) -> str:
        return self.content.decode(errors="replace")


class Guest:
    """A client of one guest server. It makes one call at a time: the server has one screenshot file for
    all."""

    def __init__(
        self, name: str, address: MachineAddress, transport: httpx2.AsyncBaseTransport | None = None
    ) -> None:
        self.name = name
        self.address = address
        self._client = httpx2.AsyncClient(
            transport=transport, timeout=None, trust_env=False, headers=IDENTITY
        )
        self._one_at_a_time = asyncio.Lock()
        self._simulated_failure: str = ""

    @property
    def is_busy(self) -> bool:
        """Whether a call is in progress."""
        return self._one_at_a_time.locked()

    @property
    def has_simulated_failure(self) -> bool:
        """Whether `simulate_failure` was called."""
        return bool(self._simulated_failure)

    def simulate_failure(self, how: str) -> None:
        """Make all further calls fail as if the machine had died (``died``) or answered nothing
        (``hung``)."""
        self._simulated_failure = how

    async def close(self) -> None:
        await self._client.aclose()

    # ---- reading ----

    async def screenshot(self, *, deadline_s: float) -> bytes:
        """Return a whole PNG. Raises CorruptFrame."""
        answer = await self._call("GET", "/screenshot", deadline_s, most_bytes=FILE_MOST_BYTES)
        frame_size(answer.content)
        return answer.content

    async def accessibility_tree(self, *, deadline_s: float) -> str:
        """Return the XML of the accessibility tree, which takes seconds for a large application."""
        answer = await self._call("GET", "/accessibility", deadline_s)
        with self._json(answer, "/accessibility") as found:
            return str(found["AT"])

    async def terminal(self, *, deadline_s: float) -> str:
        """Return the text of the active terminal; empty without one."""
        answer = await self._call("GET", "/terminal", deadline_s)
        with self._json(answer, "/terminal") as found:
            return str(found["output"] or "")

    async def screen_size(self, *, deadline_s: float) -> tuple[int, int]:
        answer = await self._call("POST", "/screen_size", deadline_s)
        with self._json(answer, "/screen_size") as found:
            return int(found["width"]), int(found["height"])

    async def window_size(self, window_class: str, *, deadline_s: float) -> Mapping[str, int] | None:
        """Return the size of the first window of a class; None without one (the guest answers status 500)."""
        body = {"app_class_name": window_class}
        answer = await self._call("POST", "/window_size", deadline_s, data=body, refuses=False)
        if answer.status == 500:
            return None
        with self._json(self._checked(answer, "/window_size"), "/window_size") as found:
            return dict(found)

    async def directory(self, path: str, *, deadline_s: float) -> Mapping[str, Any] | None:
        """Return a folder as a tree of ``type``, ``name`` and ``children``; None when it does not exist."""
        answer = await self._call("POST", "/list_directory", deadline_s, json={"path": path}, refuses=False)
        if answer.status == 400:
            return None
        call = f"/list_directory {path}"
        with self._json(self._checked(answer, call), call) as found:
            return dict(found["directory_tree"])

    async def wallpaper(self, *, deadline_s: float) -> bytes | None:
        """Return the bytes of the wallpaper; None when none is set or its file does not exist."""
        answer = await self._call("POST", "/wallpaper", deadline_s, refuses=False, most_bytes=FILE_MOST_BYTES)
        is_gone = answer.status == 500 and CANNOT_SERVE in answer.text
        if answer.status == 404 or is_gone:
            return None
        return self._checked(answer, "/wallpaper").content

    async def desktop_path(self, *, deadline_s: float) -> str | None:
        """Return the path of the desktop folder; None when it does not exist."""
        answer = await self._call("POST", "/desktop_path", deadline_s, refuses=False)
        if answer.status == 404:
            return None
        with self._json(self._checked(answer, "/desktop_path"), "/desktop_path") as found:
            return str(found["desktop_path"])

    async def file(self, path: str, *, deadline_s: float) -> bytes | None:
        """Return the bytes of a file; None when it does not exist or is a folder."""
        body = {"file_path": path}
        answer = await self._call(
            "POST", "/file", deadline_s, data=body, refuses=False, most_bytes=FILE_MOST_BYTES
        )
        if answer.status == 404 or (answer.status == 500 and IS_FOLDER in answer.text):
            return None
        return self._checked(answer, f"/file {path}").content

    # ---- acting ----

    async def execute(self, command: Command, *, shell: bool = False, deadline_s: float) -> Executed:
        """Run a command in the guest and wait until it ends."""
        body = {"command": command if isinstance(command, str) else list(command), "shell": shell}
        with self._json(await self._call("POST", "/execute", deadline_s, json=body), "/execute") as found:
            return Executed(str(found["output"]), str(found["error"]), int(found["returncode"]))

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
        """Call the route ``/setup/<route>`` and return the text of its answer."""
        return (await self._call("POST", f"/setup/{route}", deadline_s, json=dict(body))).text

    async def chromium(self, method: str, path: str, *, deadline_s: float) -> Any:
        """Call the debugging port of the guest's browser. Returns JSON or text; None without a browser."""
        answer = await self._call_application(self.address.chromium, method, path, deadline_s)
        if answer is None:
            return None
        try:
            return self._parsed(self._checked(answer, path), path)
        except (ValueError, RecursionError):
            return answer.text

    async def player(self, password: str, *, deadline_s: float) -> bytes | None:
        """Return the status of the guest's VLC as the XML of its web interface; None when no VLC answers."""
        path = "/requests/status.xml"
        answer = await self._call_application(self.address.vlc, "GET", path, deadline_s, auth=("", password))
        return answer.content if answer is not None and answer.status == 200 else None

    async def _call_application(
        self, port: int, method: str, path: str, deadline_s: float, **content: Any
    ) -> GuestAnswer | None:
        """Call the port of an application; None when it does not answer although the guest server does."""
        url = f"http://{self.address.host}:{port}{path}"
        try:
            return await self._call(method, path, deadline_s, url=url, refuses=False, **content)
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
        refuses: bool = True,
        most_bytes: int | None = None,
        **content: Any,
    ) -> GuestAnswer:
        """Send a request once. Raises MachineHung, MachineDied, AnswerTooLarge, or CallFailed.

        refuses   whether a status other than 200 is a CallFailed
        """
        most_bytes = ANSWER_MOST_BYTES if most_bytes is None else most_bytes
        async with self._one_at_a_time:
            try:
                async with asyncio.timeout(deadline_s):
                    await self._fail_if_simulated(path)
                    async with self._client.stream(
                        method, url or f"http://{self.address}{path}", **content
                    ) as response:
                        answer = GuestAnswer(response.status_code, await body_of(response, most_bytes))
            except TimeoutError:
                raise MachineHung(self.name, path, deadline_s) from None
            except httpx2.ConnectError as error:
                raise MachineDied(self.name, path, f"nothing answers at {self.address}: {error}") from error
            except httpx2.TransportError as error:
                why = f"the connection broke ({type(error).__name__}: {error})"
                raise MachineDied(self.name, path, why) from error
            except BodyTooLarge as error:
                raise AnswerTooLarge(self.name, path, str(error)) from error
            except BodyRefused as error:
                raise CallFailed(self.name, path, str(error)) from error
        return self._checked(answer, path) if refuses else answer

    async def _fail_if_simulated(self, path: str) -> None:
        if self._simulated_failure == "hung":
            await asyncio.Event().wait()
        if self._simulated_failure:
            raise MachineDied(self.name, path, "a fault was injected (environments.faults)")

    def _checked(self, answer: GuestAnswer, call: str) -> GuestAnswer:
        if answer.status != 200:
            text = " ".join(answer.text.split())[:QUOTED_CHARACTERS]
            raise CallFailed(self.name, call, f"status {answer.status}: {text}")
        return answer

    @contextlib.contextmanager
    def _json(self, answer: GuestAnswer, call: str) -> Iterator[Any]:
        """Yield the JSON value of an answer. Errors in the JSON, and in the block that reads values from it,
        become CallFailed."""
        try:
            yield self._parsed(answer, call)
        except (ValueError, KeyError, TypeError, ArithmeticError, RecursionError) as error:
            why = f"its answer does not follow the protocol ({type(error).__name__}: {error}): "
            raise CallFailed(self.name, call, f"{why}{answer.content[:80]!r}") from error

    def _parsed(self, answer: GuestAnswer, call: str) -> Any:
        """Parse the JSON of an answer. Raises AnswerTooLarge, ValueError or RecursionError."""
        if sum(map(answer.content.count, (b"[", b"{", b","))) > ANSWER_MOST_PARTS:
            raise AnswerTooLarge(self.name, call, f"its answer has more than {ANSWER_MOST_PARTS} parts")
        return json.loads(answer.content)
