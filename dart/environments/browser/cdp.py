"""A client of Chromium's debugging pipe.

The Chrome DevTools Protocol is JSON, each message ended by a NUL byte, read by the
browser from descriptor 3 and written to descriptor 4 (``--remote-debugging-pipe``).
The pipe needs no port and no token, nothing else can connect to it, and the browser ends
when it closes. Why this is not a library: docs/decisions/0004-cdp-client.md.

Callers rely on three promises:

* Every call ends: with its result, with `CallRefused`, `PageCrashed` or `BrowserDied`, or at the caller's own
  deadline. The browser never returns from calls that are in flight when a renderer crashes; they fail here,
  when the crash event arrives.
* A call may be posted without waiting; the browser keeps the order within a session.
* The browser ends together with this process, even when this process is killed: see `browser_command`.
"""

import asyncio
import base64
import contextlib
import itertools
import json
import os
import re
import shutil
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from actors.scratch import base_folder
from dart.core.run_directory import SOCKET_PATH_BYTES
from dart.environments.browser.request_filter import RequestFilter
from dart.environments.faults import (
    BrowserDied,
    BrowserMissing,
    CallRefused,
    InfrastructureFault,
    InstallationIncomplete,
    PageCrashed,
)

Params = dict[str, Any]
Result = asyncio.Future[dict[str, Any]]

LAUNCHER = "setpriv"
"""Program of util-linux that starts another program with a parent-death signal."""

STDERR_TAIL_BYTES = 2048
"""How much of the end of the browser's stderr is kept for `BrowserDied`."""

MESSAGE_BYTES_MOST = 128 << 20
"""Largest message of a browser. A page decides how much a call returns, and could fill the memory. A
screenshot of an 8K screen fits in."""

EXIT_GRACE_S = 0.2
"""Seconds between the moment a browser closes its pipe and its SIGKILL. A browser that exits by itself within
this time reports its own exit code."""

KILL_DEADLINE_S = 5.0
"""How long to wait for a killed browser to end."""

FLAGS = (
    "--remote-debugging-pipe",
    "--no-first-run",
    "--allow-file-access-from-files",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-breakpad",
    "--disable-smooth-scrolling",
    "--disable-partial-raster",  # what is drawn anew over an earlier screen is the same to the last bit
    "--disable-background-timer-throttling",
    "--disable-backgrounding-occluded-windows",
    "--disable-renderer-backgrounding",
    # RenderDocument, a new frame host for each document, costs an eighth of the processor time (decision 30).
    "--disable-features=Translate,OptimizationHints,MediaRouter,RenderDocument",
    "--force-device-scale-factor=1",
    "--hide-scrollbars",
    "--mute-audio",
    "--password-store=basic",
)

ENVIRONMENT = {"TZ": "UTC", "LANGUAGE": "en_US"}
"""Environment variables of every browser. Pages draw times in the time zone and the language of the browser,
so without these a seed would be another task on another machine."""

SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|_KEY$|^AWS_|^PGPASS", re.IGNORECASE)
"""Names of environment variables that no browser gets, because a page that breaks out of its process, or one
from disk that reads /proc, would have them."""

SOCKET = "org.chromium.Chromium.123456/SingletonSocket"
"""A socket that a Chromium makes in the folder for temporary files; the headless shell makes none."""


@dataclass(frozen=True, slots=True)
class _Pending:
    result: Result
    method: str
    session: "CdpSession | None"


class CdpSession:
    """The connection to one page. Once ``fault`` is set, the page is gone for good."""

    def __init__(self, browser: "Browser", session_id: str, context_id: str, target_id: str) -> None:
        self.browser = browser
        self.session_id = session_id
        self.context_id = context_id
        self.target_id = target_id
        self.fault: InfrastructureFault | None = None
        self.dialogs = 0
        """Number of dialogs that the page has opened."""
        self.documents: dict[str, str] = {}
        """HTML by URL, for a page whose requests are intercepted (`Fetch.enable`): the page gets these
        documents, and its other requests are blocked."""
        self._bound: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def post(self, method: str, params: Params | None = None) -> Result:
        """Send a call without waiting for it; the returned future receives its result."""
        return self.browser.post(method, params, session=self)

    async def evaluate(self, expression: str) -> Any:
        """Return the JSON value of a JavaScript expression in the page; a promise is awaited.

        Raises CallRefused when the expression throws an error."""
        params = {"expression": expression, "returnByValue": True, "awaitPromise": True}
        result = await self.post("Runtime.evaluate", params)
        if "exceptionDetails" in result:
            raise CallRefused("Runtime.evaluate", str(result["exceptionDetails"]))
        return result["result"].get("value")

    def next_binding_call(self) -> asyncio.Future[str]:
        """Return a future that receives the argument of the page's next call of a binding.

        A binding is a function that `Runtime.addBinding` has added to the page. Only the newest future
        receives an argument; one that an earlier call of this method returned stays pending.
        """
        self._bound = asyncio.get_running_loop().create_future()
        return self._bound

    def on_event(self, method: str, params: Params) -> None:
        match method:
            case "Runtime.bindingCalled":
                if not self._bound.done():
                    self._bound.set_result(params["payload"])
            case "Page.javascriptDialogOpening":
                # A dialog blocks everything in its page, screenshots too, and no click can reach
                # its buttons. It is dismissed; leaving a page is always allowed.
                self.dialogs += 1
                self.post("Page.handleJavaScriptDialog", {"accept": params.get("type") == "beforeunload"})
            case "Fetch.requestPaused":
                self._answer(params["requestId"], params["request"]["url"])
            case "Inspector.targetCrashed" | "Inspector.detached":
                self.browser.on_page_gone(self, method)

    def _answer(self, request_id: str, url: str) -> None:
        """Answer an intercepted request with the document of its URL; block the request if there is none."""
        document = self.documents.get(url)
        if document is None:
            self.post("Fetch.failRequest", {"requestId": request_id, "errorReason": "BlockedByClient"})
            return
        response = {
            "requestId": request_id,
            "responseCode": 200,
            "responseHeaders": [{"name": "Content-Type", "value": "text/html; charset=utf-8"}],
            "body": base64.b64encode(document.encode()).decode(),
        }
        self.post("Fetch.fulfillRequest", response)

    def end(self, fault: InfrastructureFault) -> None:
        """Mark the page as gone, and fail the newest future of `next_binding_call`."""
        self.fault = fault
        _fail(self._bound, fault)


class Browser(asyncio.SubprocessProtocol):
    """A running Chromium, with all calls that wait for their results."""

    def __init__(self, profile_dir: Path, request_filter: RequestFilter | None = None) -> None:
        self.fault: BrowserDied | None = None
        self.request_filter = request_filter
        """What the pages may reach; None for everything."""
        self.pid = 0
        self._profile_dir = profile_dir
        self._transport: asyncio.SubprocessTransport
        self._stdin: asyncio.WriteTransport
        self._received = bytearray()
        self._stderr = b""
        self._is_stderr_open = True
        self._exited = asyncio.Event()
        self._killed = False
        self._why_killed = ""
        """Why this object killed the browser by itself; empty if it did not."""
        self._ids = itertools.count(1)
        self._pending: dict[int, _Pending] = {}
        self._sessions: dict[str, CdpSession] = {}
        self._intercepts: Result | None = None
        """The result of the call that has requests intercepted for the filter; None if none are."""

    @classmethod
    async def launch(
        cls,
        executable: str,
        profile_dir: Path,
        flags: Sequence[str] = (),
        request_filter: RequestFilter | None = None,
    ) -> "Browser":
        """Start a browser. Its user data are in ``profile_dir``, which is emptied now and removed by `close`.

        flags            command-line flags in addition to `FLAGS`
        request_filter   what the pages may reach, as long as the browser runs; None for everything

        Raises BrowserMissing, or InstallationIncomplete when the program `LAUNCHER` is not installed.
        """
        if not os.access(executable, os.X_OK):
            raise BrowserMissing(executable)
        if shutil.which(LAUNCHER) is None:
            raise InstallationIncomplete(
                f"no {LAUNCHER} on the PATH: install it with `apt-get install util-linux`"
            )
        shutil.rmtree(profile_dir, ignore_errors=True)
        profile_dir.mkdir(parents=True)  # noqa: ASYNC240 - one local folder, microseconds
        all_flags = (*flags, *request_filter.flags) if request_filter else flags
        _, browser = await asyncio.get_running_loop().subprocess_exec(
            lambda: cls(profile_dir, request_filter),
            *browser_command(executable, profile_dir, all_flags),
            env=_environment(),
            start_new_session=True,
        )
        if request_filter is not None and request_filter.patterns:
            browser._intercepts = browser.post("Fetch.enable", {"patterns": request_filter.patterns})
        return browser

    # ---- calls ----

    def post(self, method: str, params: Params | None = None, *, session: CdpSession | None = None) -> Result:
        """Send a call without waiting for it; the returned future receives its result.

        session   the page that the call is for; None for a call to the browser itself"""
        result: Result = asyncio.get_running_loop().create_future()
        fault = self.fault or (session.fault if session else None)
        if fault is not None:
            _fail(result, fault)
            return result
        call_id = next(self._ids)
        message: dict[str, Any] = {"id": call_id, "method": method, "params": params or {}}
        if session is not None:
            message["sessionId"] = session.session_id
        self._stdin.write(json.dumps(message).encode() + b"\0")
        self._pending[call_id] = _Pending(result, method, session)
        return result

    async def open_page(self) -> CdpSession:
        """Open an empty page in a browser context of its own, with separate cookies and storage.

        Raises CallRefused, too, when the browser cannot intercept the requests for its filter."""
        if self._intercepts is not None:
            await asyncio.shield(self._intercepts)
        context_id = (await self.post("Target.createBrowserContext"))["browserContextId"]
        target = await self.post(
            "Target.createTarget", {"url": "about:blank", "browserContextId": context_id}
        )
        target_id = target["targetId"]
        attached = await self.post("Target.attachToTarget", {"targetId": target_id, "flatten": True})
        session = CdpSession(self, attached["sessionId"], context_id, target_id)
        self._sessions[session.session_id] = session
        await asyncio.gather(session.post("Page.enable"), session.post("Runtime.enable"))
        return session

    async def close_opened_by_pages(self) -> None:
        """Close the tabs and windows that pages have opened, for example after a click with Ctrl held.

        They are in the browser context of the page that opened them. Does not wait until they are closed."""
        sessions = self._sessions.values()
        contexts = {session.context_id for session in sessions}
        ours = {session.target_id for session in sessions}
        for target in (await self.post("Target.getTargets"))["targetInfos"]:
            is_page_of_ours = target["type"] == "page" and target.get("browserContextId") in contexts
            if is_page_of_ours and target["targetId"] not in ours:
                self.post("Target.closeTarget", {"targetId": target["targetId"]})

    def drop_page(self, session: CdpSession) -> None:
        """Close the browser context of a page without waiting. This works on a page that hangs too."""
        self.post("Target.disposeBrowserContext", {"browserContextId": session.context_id})
        self.on_page_gone(session, "closed by its environment")

    def on_page_gone(self, session: CdpSession, event: str) -> None:
        """Fail all calls that wait for this page, because the browser never answers them.

        event   what ended the page, for the message of the fault"""
        if self._sessions.pop(session.session_id, None) is None:
            return
        session.end(PageCrashed("the last call", event))
        for call_id, pending in list(self._pending.items()):
            if pending.session is session:
                _fail(self._pending.pop(call_id).result, PageCrashed(pending.method, event))

    # ---- life ----

    @property
    def alive(self) -> bool:
        """Whether the browser runs and was not killed."""
        return self.fault is None and not self._killed and not self._exited.is_set()

    def kill(self) -> None:
        """Send SIGKILL to the whole process group, without waiting."""
        self._killed = True
        if not self._exited.is_set():
            self._kill_group()

    async def close(self) -> None:
        """Kill the whole process group, wait for its end and remove the profile. May be repeated."""
        self.kill()
        with contextlib.suppress(TimeoutError):  # a process in uninterruptible sleep cannot be ended
            async with asyncio.timeout(KILL_DEADLINE_S):
                await self._exited.wait()
        self._transport.close()
        shutil.rmtree(self._profile_dir, ignore_errors=True)

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    # ---- called by asyncio ----

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.SubprocessTransport)
        stdin, pid = transport.get_pipe_transport(0), transport.get_pid()
        assert isinstance(stdin, asyncio.WriteTransport)
        assert pid is not None
        self._transport, self._stdin, self.pid = transport, stdin, pid

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            self._stderr = (self._stderr + data)[-STDERR_TAIL_BYTES:]
            return
        if self._killed:  # the rest of a message may follow whose beginning is gone
            return
        self._received += data
        if len(self._received) > MESSAGE_BYTES_MOST:
            self._received.clear()
            self._why_killed = f"a message had more than {MESSAGE_BYTES_MOST} bytes, as a page can make it"
            self.kill()
        elif b"\0" in data:
            *messages, self._received = self._received.split(b"\0")
            for message in messages:
                self._on_message(json.loads(message))

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == 1:  # a browser without its pipe is useless; it may or may not exit by itself
            asyncio.get_running_loop().call_later(EXIT_GRACE_S, self.kill)
        if fd == 2:
            self._is_stderr_open = False
            if self._exited.is_set():
                self._fail_all()

    def process_exited(self) -> None:
        """Kill the helper processes that are left, and fail all calls once the browser's stderr is closed, at
        the latest after `EXIT_GRACE_S`.

        A helper process ends by itself when its browser has ended, but not one that is stopped. It may keep
        stderr open."""
        self._exited.set()
        self._kill_group()
        if self._is_stderr_open:
            asyncio.get_running_loop().call_later(EXIT_GRACE_S, self._fail_all)
        else:
            self._fail_all()

    def _on_message(self, message: dict[str, Any]) -> None:
        if "id" in message:
            self._on_result(message)
        elif session := self._sessions.get(message.get("sessionId", "")):
            session.on_event(message["method"], message["params"])
        elif message["method"] == "Fetch.requestPaused":
            self._answer(message["params"]["requestId"], message["params"]["request"])
        elif message["method"] == "Target.detachedFromTarget" and (
            detached := self._sessions.get(message["params"]["sessionId"])
        ):
            self.on_page_gone(detached, "Target.detachedFromTarget")

    def _answer(self, request_id: str, request: Params) -> None:
        """Let a request that was intercepted for the filter pass, or end it.

        A navigation that is ended as aborted leaves its page as it is."""
        wanted = self.request_filter
        if wanted is not None and wanted.lets_pass(request["method"], request["url"]):
            self.post("Fetch.continueRequest", {"requestId": request_id})
        else:
            self.post("Fetch.failRequest", {"requestId": request_id, "errorReason": "Aborted"})

    def _on_result(self, message: dict[str, Any]) -> None:
        pending = self._pending.pop(message["id"], None)
        if pending is None or pending.result.done():  # its page is gone, or its waiter's deadline has passed
            return
        if "error" in message:
            _fail(pending.result, CallRefused(pending.method, message["error"]["message"]))
        else:
            pending.result.set_result(message["result"])

    def _fail_all(self) -> None:
        """Fail all calls that still wait, with the exit code and the end of stderr. May be repeated."""
        said = self._stderr.decode(errors="replace").strip()
        ended = self._transport.get_returncode(), said, self._why_killed
        self.fault = BrowserDied("the last call", *ended)
        pending, self._pending = self._pending, {}
        for call in pending.values():
            _fail(call.result, BrowserDied(call.method, *ended))
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            session.end(self.fault)


def _fail(waiting: asyncio.Future[Any], fault: InfrastructureFault) -> None:
    if not waiting.done():
        waiting.set_exception(fault)
        waiting.exception()  # marks the exception as seen: a posted call may have no waiter any more


def _environment() -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not SECRET.search(name)}
    return inherited | ENVIRONMENT | {"TMPDIR": str(base_folder(SOCKET, SOCKET_PATH_BYTES - 1))}


def browser_command(executable: str, profile_dir: Path, more_flags: Sequence[str] = ()) -> Sequence[str]:
    """Return the command line that starts the browser so that it does not outlive this process.

    ``setpriv --pdeathsig`` (util-linux) sets PR_SET_PDEATHSIG, which exec keeps: the kernel
    kills the browser when the thread that forked it ends. The signal belongs to that
    *thread*, not to the process, so the loop that launches browsers must run in a thread
    that lives as long as its environment; an environment actor's loop does. The browser's helper
    processes end when their channel to the browser breaks. A browser whose parent died before
    the signal was set ends when its pipe closes.

    The shell moves the pipes to the descriptors that the browser expects and execs, so the pid stays.
    """
    flags = [*FLAGS, *more_flags, f"--user-data-dir={profile_dir}"]
    if os.geteuid() == 0:
        flags.append("--no-sandbox")  # the sandbox refuses to run as root
    if not executable.endswith("headless-shell"):
        flags.append("--headless=new")
    move_pipes = 'exec "$0" "$@" 3<&0 4>&1 </dev/null >/dev/null'
    return (LAUNCHER, "--pdeathsig", "KILL", "--", "sh", "-c", move_pipes, executable, *flags)
