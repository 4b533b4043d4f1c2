"""What leaves a real browser while its pages are explored: nothing to an origin that is not allowed.

Three servers on loopback: one whose origin is allowed, a foreign one, and one that is allowed and counts as
not on this machine (127.0.0.2). Each way out is also tried without a filter, where it must arrive.
"""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from benchmarks.exploration import LocalRunAccess, explore_and_close
from dart.config.sections import ExplorationSettings
from dart.core.errors import UsageError
from dart.core.exploration import Effect
from dart.environments.browser.cdp import CdpSession
from dart.environments.browser.environment import CHROMIUM, BrowserEnvironment, PageState
from dart.environments.faults import ResetFailed
from dart.store.blobs import FolderBlobs
from dart.store.store import Store
from tests.patience import slowness

pytestmark = [pytest.mark.browser, pytest.mark.slow]

DEADLINE_S = 60.0
ARRIVE_S = 30.0
"""How long a request may take to arrive where nothing keeps it from arriving."""
AFTERWARDS_S = 1.0
"""How long a request that is refused has to arrive nevertheless."""

LOADED = "document.readyState === 'complete' || new Promise((done) => addEventListener('load', done))"

BACKGROUND = {
    "fetch": "fetch(`${to}/fetch`, {mode: 'no-cors'})",
    "fetch-redirect": "fetch(`/redirect/fetch-redirect`, {mode: 'no-cors'})",
    "post": "fetch(`${to}/post`, posted)",
    "keepalive": "fetch(`${to}/keepalive`, {...posted, keepalive: true})",
    "xhr": "const x = new XMLHttpRequest(); x.open('GET', `${to}/xhr`); x.send()",
    "beacon": "navigator.sendBeacon(`${to}/beacon`, 'secret')",
    "image": "new Image().src = `${to}/image`",
    "style": "add('link', {rel: 'stylesheet', href: `${to}/style`})",
    "script": "add('script', {src: `${to}/script`})",
    "font": "new FontFace('f', `url(${to}/font)`).load()",
    "video": "add('video', {src: `${to}/video`})",
    "prefetch": "add('link', {rel: 'prefetch', href: `${to}/prefetch`})",
    "speculation": "add('script', {type: 'speculationrules', text: JSON.stringify("
    "{prefetch: [{urls: [`${to}/speculation`], eagerness: 'immediate'}]})})",
    "frame": "add('iframe', {src: `${to}/frame`})",
    "frame-redirect": "add('iframe', {src: '/redirect/frame-redirect'})",
    "frame-form": "add('iframe', {name: 'f'}); form('frame-form', {target: 'f'}).submit()",
    "events": "new EventSource(`${to}/events`)",
    "socket": "new WebSocket(`${to.replace('http', 'ws')}/socket`)",
    "window": "open(`${to}/window`)",
    "window-form": "form('window-form', {target: 'w'}).submit()",
    "empty-window": "open('about:blank').fetch(`${to}/empty-window`, {mode: 'no-cors'})",
    "ping": "add('a', {href: '#', ping: `${to}/ping`}).click()",
    "worker": "new Worker(posting('worker'))",
    "shared-worker": "new SharedWorker(posting('shared-worker'))",
    "service-worker": "navigator.serviceWorker.register(posting('service-worker'))",
}
"""By name: JavaScript that sends something to ``to`` and leaves the page as it is."""

WITHOUT_A_PATH = {
    "stun": "connect({urls: `stun:127.0.0.1:${port}`})",
    "turn": "connect({urls: `turn:127.0.0.1:${port}?transport=tcp`, username: 'a', credential: 'b'})",
    "transport": "new WebTransport(`https://127.0.0.1:${port}/`)",
}

LEAVING = {
    "address": "location.href = `${to}/address`",
    "redirect": "location.href = '/redirect/redirect'",
    "form": "form('form', {}).submit()",
    "get-form": "add('form', {action: `${to}/get-form`}).submit()",
    "refresh": "add('meta', {httpEquiv: 'refresh', content: `0;url=${to}/refresh`})",
    "link": "add('a', {href: `${to}/link`}).click()",
    "download": "add('a', {href: `${to}/download`, download: 'x'}).click()",
}
"""By name: JavaScript after which the browser opens another page."""

POSTS = {
    *("post", "keepalive", "beacon", "frame-form", "window-form", "ping"),
    *("worker", "shared-worker", "service-worker"),
}

HELPERS = """
const to = %s, port = new URL(to).port;
const posted = {mode: 'no-cors', method: 'POST', body: 'secret'};
const add = (tag, given) => document.body.appendChild(Object.assign(document.createElement(tag), given));
const form = (name, given) => add('form', {method: 'post', action: `${to}/${name}`, ...given});
const posting = (name) => '/worker.js?' + encodeURIComponent(`${to}/${name}`);
const connect = async (server) => {
  const peer = new RTCPeerConnection({iceServers: [server]});
  peer.createDataChannel('d');
  await peer.setLocalDescription(await peer.createOffer());
};
"""

WORKER = """
fetch(decodeURIComponent(location.search.slice(1)), {mode: 'no-cors', method: 'POST', body: 'secret'});
"""

SITE = """
<h1 id=h>Home</h1>
<button onclick="location.href = '%s/address'">Address</button>
<button onclick="location.href = '/redirect/redirect'">Redirect</button>
<button onclick="document.getElementById('f').submit()">Form</button>
<button onclick="fetch('%s/fetch', {mode: 'no-cors'})">Fetch</button>
<button onclick="document.getElementById('h').textContent = 'Help'">Help</button>
<form id=f method=post action="%s/form"></form>
"""


class Server(ThreadingHTTPServer):
    """Serves an empty page at every address. It notes connections and requests, and redirects to `away`."""

    def __init__(self, host: str, page: str = "") -> None:
        self.connections = 0
        self.requests: list[tuple[str, str]] = []
        self.away = ""
        self.page = page
        super().__init__((host, 0), Pages)
        self.url = f"http://{host}:{self.server_address[1]}"
        self.datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.datagrams.bind((host, self.server_address[1]))
        self.datagrams.setblocking(False)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def get_request(self) -> Any:
        accepted = super().get_request()
        self.connections += 1
        return accepted

    def names(self, *methods: str) -> set[str]:
        """The paths of the requests, or of those with one of the methods."""
        return {path.strip("/?") for method, path in self.requests if not methods or method in methods}

    def has_datagram(self) -> bool:
        try:
            return bool(self.datagrams.recv(1))
        except BlockingIOError:
            return False

    def handle_error(self, *_: object) -> None:
        """Print nothing: a connection without a request is an error here."""

    def close(self) -> None:
        self.shutdown()
        self.server_close()
        self.datagrams.close()


class Pages(BaseHTTPRequestHandler):
    server: Server
    timeout = 20.0

    def do_GET(self) -> None:
        self.server.requests.append((self.command, self.path))
        kind, text = "text/html", self.server.page
        if self.path.startswith("/worker.js"):
            kind = "text/javascript"
            text = WORKER
        self.send_response(302 if self.path.startswith("/redirect/") else 200)
        self.send_header("Location", f"{self.server.away}{self.path.removeprefix('/redirect')}")
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    do_POST = do_GET

    def log_message(self, *_: object) -> None:
        """Print nothing."""


class WebEnvironment(BrowserEnvironment[str]):
    """Shows a page of a web server."""

    def __init__(self, scratch_dir: Path, url: str) -> None:
        super().__init__(scratch_dir, CHROMIUM, size=(400, 300), script="")
        self.url = url

    def _start_of(self, task_id: str, seed: int) -> str:
        return self.url

    def _start_url(self, start: str) -> str:
        return start

    async def _begin(self, page: CdpSession, task_id: str, start: str) -> str:
        navigated = await page.post("Page.navigate", {"url": start})
        if "errorText" in navigated:
            raise ResetFailed(task_id, navigated["errorText"])
        await page.evaluate(LOADED)
        return "Explore."

    async def _read_state(self, page: CdpSession) -> PageState:
        return PageState(terminated=False, raw_score=0, arrived=None)

    async def start(self) -> None:
        await self.reset("web/site", 0, deadline_s=DEADLINE_S * slowness())

    async def run(self, script: str, to: str) -> None:
        """Run a script in the page. What it raises is of no interest."""
        helpers = HELPERS % json.dumps(to)
        await self.inspect(f"void (async () => {{ {helpers}; {script} }})().catch(() => 0)")


@pytest.fixture
def servers() -> Iterator[tuple[Server, Server, Server]]:
    """The allowed server, the foreign one, and one that is not on this machine by its address."""
    allowed, foreign, far = Server("127.0.0.1"), Server("127.0.0.1"), Server("127.0.0.2")
    allowed.away = foreign.url
    yield allowed, foreign, far
    for server in (allowed, foreign, far):
        server.close()


async def until(is_so: Callable[[], bool], what: Callable[[], object]) -> None:
    give_up_s = time.monotonic() + ARRIVE_S * slowness()
    while not is_so():
        assert time.monotonic() < give_up_s, what()
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("is_filtered", [True, False])
async def test_nothing_of_a_page_reaches_a_foreign_origin(
    tmp_path: Path, servers: tuple[Server, Server, Server], is_filtered: bool
) -> None:
    allowed, foreign, _ = servers
    environment = WebEnvironment(tmp_path, allowed.url)
    try:
        await environment.filter_requests(() if is_filtered else None)
        await environment.start()
        for script in (*BACKGROUND.values(), *WITHOUT_A_PATH.values()):
            await environment.run(script, foreign.url)
        if is_filtered:
            await until(lambda: "redirect/frame-redirect" in allowed.names(), allowed.names)
            await asyncio.sleep(AFTERWARDS_S * slowness())
            assert (foreign.connections, foreign.requests, foreign.has_datagram()) == (0, [], False)
        else:
            await until(lambda: foreign.names() >= set(BACKGROUND), lambda: set(BACKGROUND) - foreign.names())
            await until(foreign.has_datagram, lambda: "no datagram")
    finally:
        await environment.close()


@pytest.mark.parametrize("is_filtered", [True, False])
async def test_a_page_that_leaves_stays_where_it_is(
    tmp_path: Path, servers: tuple[Server, Server, Server], is_filtered: bool
) -> None:
    allowed, foreign, _ = servers
    environment = WebEnvironment(tmp_path, allowed.url)
    try:
        await environment.filter_requests(() if is_filtered else None)
        await environment.start()
        for name, script in LEAVING.items():
            await environment.run(script, foreign.url)
            if is_filtered:
                await asyncio.sleep(AFTERWARDS_S / 4 * slowness())
                assert await environment.inspect("location.origin") == allowed.url, name
            else:
                await until(lambda name=name: name in foreign.names(), lambda name=name: name)
                await environment.start()
        assert is_filtered == (foreign.connections == 0)
    finally:
        await environment.close()


@pytest.mark.parametrize("is_filtered", [True, False])
async def test_to_an_allowed_origin_that_is_not_on_this_machine_nothing_is_sent_but_get(
    tmp_path: Path, servers: tuple[Server, Server, Server], is_filtered: bool
) -> None:
    allowed, _, far = servers
    allowed.away = far.url
    environment = WebEnvironment(tmp_path, allowed.url)
    try:
        await environment.filter_requests((far.url,) if is_filtered else None)
        await environment.start()
        for script in BACKGROUND.values():
            await environment.run(script, far.url)
        arrive = {"fetch", "frame", "window", "image"} | (set() if is_filtered else POSTS)
        await until(lambda: far.names() >= arrive, lambda: arrive - far.names())
        await environment.run(LEAVING["form"], far.url)
        if is_filtered:
            await asyncio.sleep(AFTERWARDS_S * slowness())
            assert {method for method, _ in far.requests} == {"GET"}
            assert "socket" not in far.names()
            assert await environment.inspect("location.origin") == allowed.url
        else:
            await until(lambda: far.names("POST") == POSTS | {"form"}, lambda: far.names("POST"))
    finally:
        await environment.close()


async def test_an_episode_after_the_exploration_has_no_filter(
    tmp_path: Path, servers: tuple[Server, Server, Server]
) -> None:
    allowed, foreign, _ = servers
    environment = WebEnvironment(tmp_path, allowed.url)
    try:
        await environment.filter_requests(())
        await environment.start()
        await environment.run(BACKGROUND["fetch"], foreign.url)
        await environment.filter_requests(None)
        await environment.start()
        await environment.run(BACKGROUND["xhr"], foreign.url)
        await until(lambda: foreign.names() == {"xhr"}, foreign.names)
    finally:
        await environment.close()


async def test_a_start_page_elsewhere_that_is_not_named_is_not_requested(
    tmp_path: Path, servers: tuple[Server, Server, Server]
) -> None:
    far = servers[2]
    environment = WebEnvironment(tmp_path, far.url)
    await environment.filter_requests(())
    with pytest.raises(UsageError, match=r"name its origin \(http://127.0.0.2:\d+\) in exploration.origins"):
        await environment.start()
    assert far.connections == 0


async def test_an_exploration_goes_on_after_actions_that_would_leave(
    tmp_path: Path, servers: tuple[Server, Server, Server]
) -> None:
    allowed, foreign, _ = servers
    allowed.page = SITE.replace("%s", foreign.url)
    settings = ExplorationSettings(
        actions=8, strategy="least_tried", confirm_share=0.0, stops_when_flat=False, settle_s=0.05
    )
    with ExitStack() as around:
        store = around.enter_context(Store(tmp_path / "store.db"))
        access = LocalRunAccess(store, "web/site", settings, lambda screen: screen.title)
        access.blobs = FolderBlobs(tmp_path / "blobs")
        await explore_and_close(WebEnvironment(tmp_path, allowed.url), access, store, settings)
        steps = access.follower.graph.steps
    effects = {step.action.rpartition("|")[2]: step.effect for step in steps if step.is_expansion}
    assert foreign.connections == 0
    assert sum(step.source_id is None for step in steps) == 1, "no reset but the first"
    assert {effects[name] for name in ("Address", "Redirect", "Form", "Fetch")} == {Effect.NO_CHANGE}
    assert effects["Help"] is Effect.NEW_SCREEN
