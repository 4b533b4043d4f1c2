"""OSWorld's guest server as its environment sees it: every route that is needed, each with a deadline.

Nothing is ever sent twice by itself. What does not come back, or comes back broken, is a fault with its kind:
never None, and never an empty answer. A guest is not trusted: its answers are read up to a limit, are not
unpacked, and are no text in any encoding but one.
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
"""The guest itself ends a command after this long."""

IS_FOLDER = "Is a directory"
"""The guest breaks with these words when a file is asked for and a folder is there."""

CANNOT_SERVE = "Unable to serve the wallpaper file"
"""With these words it breaks when the picture that is set is not there."""

FILE_MOST_BYTES = 128 * 2**20
"""Of a file, or a screenshot."""

ANSWER_MOST_BYTES = 16 * 2**20
"""Of any other answer: an accessibility tree, the output of a command."""

ANSWER_MOST_PARTS = 2_000_000
"""Of brackets and commas in JSON: a byte or two on the wire are a hundred in memory."""

SAID_LETTERS = 300
"""How much of an error's text goes into a message."""


@dataclass(frozen=True, slots=True)
class Executed:
    """How a command ended in the guest."""

    output: str
    error: str
    returncode: int

    @property
    def last_line(self) -> str:
        """Of the output: python-xlib prints its warnings before what a program says."""
        return self.output.rstrip().rpartition("\n")[2]


class AnswerTooLarge(CallFailed):
    """A guest's answer has more bytes, or more parts, than are read of it."""


@dataclass(frozen=True, slots=True)
class GuestAnswer:
    """What a guest answered to one request."""

    status: int
    content: bytes

    @property
    def text(self) -> str:
        return self.content.decode(errors="replace")


class Guest:
    """A client of one guest server. One call at a time: the server keeps one screenshot file for all."""

    def __init__(
        self, name: str, address: MachineAddress, transport: httpx2.AsyncBaseTransport | None = None
    ) -> None:
        self.name = name
        self.address = address
        self._client = httpx2.AsyncClient(
            transport=transport, timeout=None, trust_env=False, headers=IDENTITY
        )
        self._one_at_a_time = asyncio.Lock()
        self._cut: str = ""

    @property
    def is_busy(self) -> bool:
        """A call is under way."""
        return self._one_at_a_time.locked()

    @property
    def is_cut(self) -> bool:
        """Whether `cut` was called."""
        return bool(self._cut)

    def cut(self, how: str) -> None:
        """From now on it is as if the machine had died (``died``) or answered nothing (``hung``)."""
        self._cut = how

    async def close(self) -> None:
        await self._client.aclose()

    # ---- what is seen ----

    async def screenshot(self, *, deadline_s: float) -> bytes:
        """A whole PNG. Raises CorruptFrame when it is none."""
        answer = await self._call("GET", "/screenshot", deadline_s, most_bytes=FILE_MOST_BYTES)
        frame_size(answer.content)
        return answer.content

    async def accessibility_tree(self, *, deadline_s: float) -> str:
        """The XML of the accessibility tree; seconds, for a large application."""
        answer = await self._call("GET", "/accessibility", deadline_s)
        with self._json(answer, "/accessibility") as found:
            return str(found["AT"])

    async def terminal(self, *, deadline_s: float) -> str:
        """The text of the active terminal, empty without one."""
        answer = await self._call("GET", "/terminal", deadline_s)
        with self._json(answer, "/terminal") as found:
            return str(found["output"] or "")

    async def screen_size(self, *, deadline_s: float) -> tuple[int, int]:
        answer = await self._call("POST", "/screen_size", deadline_s)
        with self._json(answer, "/screen_size") as found:
            return int(found["width"]), int(found["height"])

    async def window_size(self, window_class: str, *, deadline_s: float) -> Mapping[str, int] | None:
        """Of the first window of a class; None without one, for which the guest breaks with status 500."""
        body = {"app_class_name": window_class}
        answer = await self._call("POST", "/window_size", deadline_s, data=body, refuses=False)
        if answer.status == 500:
            return None
        with self._json(self._checked(answer, "/window_size"), "/window_size") as found:
            return dict(found)

    async def directory(self, path: str, *, deadline_s: float) -> Mapping[str, Any] | None:
        """A folder as a tree of ``type``, ``name`` and ``children``; None when there is no such folder."""
        answer = await self._call("POST", "/list_directory", deadline_s, json={"path": path}, refuses=False)
        if answer.status == 400:
            return None
        call = f"/list_directory {path}"
        with self._json(self._checked(answer, call), call) as found:
            return dict(found["directory_tree"])

    async def wallpaper(self, *, deadline_s: float) -> bytes | None:
        """The picture's bytes; None when none is set, or it is not there."""
        answer = await self._call("POST", "/wallpaper", deadline_s, refuses=False, most_bytes=FILE_MOST_BYTES)
        is_gone = answer.status == 500 and CANNOT_SERVE in answer.text
        if answer.status == 404 or is_gone:
            return None
        return self._checked(answer, "/wallpaper").content

    async def desktop_path(self, *, deadline_s: float) -> str | None:
        """The folder of the desktop; None when there is none."""
        answer = await self._call("POST", "/desktop_path", deadline_s, refuses=False)
        if answer.status == 404:
            return None
        with self._json(self._checked(answer, "/desktop_path"), "/desktop_path") as found:
            return str(found["desktop_path"])

    async def file(self, path: str, *, deadline_s: float) -> bytes | None:
        """A file's bytes; None when the guest says that it is not there, or is a folder."""
        body = {"file_path": path}
        answer = await self._call(
            "POST", "/file", deadline_s, data=body, refuses=False, most_bytes=FILE_MOST_BYTES
        )
        if answer.status == 404 or (answer.status == 500 and IS_FOLDER in answer.text):
            return None
        return self._checked(answer, f"/file {path}").content

    # ---- what is done ----

    async def execute(self, command: Command, *, shell: bool = False, deadline_s: float) -> Executed:
        """Run a command in the guest and wait for its end."""
        body = {"command": command if isinstance(command, str) else list(command), "shell": shell}
        with self._json(await self._call("POST", "/execute", deadline_s, json=body), "/execute") as found:
            return Executed(str(found["output"]), str(found["error"]), int(found["returncode"]))

    async def python(self, code: str, *, deadline_s: float) -> Executed:
        """Run a Python program in the guest."""
        return await self.execute(["python", "-c", code], deadline_s=deadline_s)

    async def upload(self, path: str, content: bytes, *, deadline_s: float) -> None:
        """Put a file into the guest."""
        await self._call(
            "POST",
            "/setup/upload",
            deadline_s,
            data={"file_path": path},
            files={"file_data": (PurePosixPath(path).name, content)},
        )

    async def setup(self, route: str, body: Mapping[str, Any], *, deadline_s: float) -> str:
        """One of the routes ``/setup/<route>``; its answer's text."""
        return (await self._call("POST", f"/setup/{route}", deadline_s, json=dict(body))).text

    async def chromium(self, method: str, path: str, *, deadline_s: float) -> Any:
        """The JSON or text that the debugging port of the guest's browser answers; None without a browser."""
        answer = await self._beside(self.address.chromium, method, path, deadline_s)
        if answer is None:
            return None
        try:
            return self._parsed(self._checked(answer, path), path)
        except (ValueError, RecursionError):
            return answer.text

    async def player(self, password: str, *, deadline_s: float) -> bytes | None:
        """What the guest's VLC plays, as the XML of its web interface; None when no VLC serves one."""
        path = "/requests/status.xml"
        answer = await self._beside(self.address.vlc, "GET", path, deadline_s, auth=("", password))
        return answer.content if answer is not None and answer.status == 200 else None

    async def _beside(
        self, port: int, method: str, path: str, deadline_s: float, **content: Any
    ) -> GuestAnswer | None:
        """What an application's port answers; None when nobody does there while the guest itself answers."""
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
        """Send once. Raises MachineHung, MachineDied, AnswerTooLarge, or CallFailed for a status but 200."""
        most_bytes = ANSWER_MOST_BYTES if most_bytes is None else most_bytes
        async with self._one_at_a_time:
            try:
                async with asyncio.timeout(deadline_s):
                    await self._pretend(path)
                    async with self._client.stream(
                        method, url or f"http://{self.address}{path}", **content
                    ) as response:
                        answer = GuestAnswer(response.status_code, await body_of(response, most_bytes))
            except TimeoutError:
                raise MachineHung(self.name, path, deadline_s) from None
            except httpx2.ConnectError as error:
                raise MachineDied(self.name, path, f"nobody answers at {self.address}: {error}") from error
            except httpx2.TransportError as error:
                why = f"the connection broke ({type(error).__name__}: {error})"
                raise MachineDied(self.name, path, why) from error
            except BodyTooLarge as error:
                raise AnswerTooLarge(self.name, path, str(error)) from error
            except BodyRefused as error:
                raise CallFailed(self.name, path, str(error)) from error
        return self._checked(answer, path) if refuses else answer

    async def _pretend(self, path: str) -> None:
        if self._cut == "hung":
            await asyncio.Event().wait()
        if self._cut:
            raise MachineDied(self.name, path, "the connection to it was cut on purpose")

    def _checked(self, answer: GuestAnswer, call: str) -> GuestAnswer:
        if answer.status != 200:
            text = " ".join(answer.text.split())[:SAID_LETTERS]
            raise CallFailed(self.name, call, f"status {answer.status}: {text}")
        return answer

    @contextlib.contextmanager
    def _json(self, answer: GuestAnswer, call: str) -> Iterator[Any]:
        """The value an answer says. What is not as it should be, in it or in what is taken of it, is a
        CallFailed."""
        try:
            yield self._parsed(answer, call)
        except (ValueError, KeyError, TypeError, ArithmeticError, RecursionError) as error:
            why = f"its answer is not as the protocol says ({type(error).__name__}: {error}): "
            raise CallFailed(self.name, call, f"{why}{answer.content[:80]!r}") from error

    def _parsed(self, answer: GuestAnswer, call: str) -> Any:
        """Raises AnswerTooLarge, ValueError or RecursionError."""
        if sum(map(answer.content.count, (b"[", b"{", b","))) > ANSWER_MOST_PARTS:
            raise AnswerTooLarge(self.name, call, f"its answer has more than {ANSWER_MOST_PARTS} parts")
        return json.loads(answer.content)
