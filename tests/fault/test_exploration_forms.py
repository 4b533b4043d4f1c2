"""What an explorer's clicks send away, on pages of a real browser: nothing to a host that is not local."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from dart.environments.browser.cdp import Browser
from dart.environments.browser.environment import CHROMIUM
from dart.exploration.page_look import LOOK

FAR_HOST = "elsewhere.example"

LOADED = "document.readyState === 'complete' || new Promise((done) => addEventListener('load', done))"
"""JavaScript: wait until the page is loaded."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path(CHROMIUM).exists(), reason="not installed: chromium-headless-shell"),
]

FORMS = {
    "its action": '<form method=post action="{to}"><input name=q><button id=send>Send</button></form>',
    "a field named action": (
        '<form method=post action="{to}"><input type=hidden name=action value=add>'
        "<button id=send>Send</button></form>"
    ),
    "a script that clicks a hidden button": (
        '<form method=post action="{to}"><button id=b style="display:none">Send</button></form>'
        '<div id=send onclick="b.click()">Go</div>'
    ),
    "the button's own address": (
        '<form method=post action="/here"><button id=send formaction="{to}">Send</button></form>'
    ),
    "a script that submits": (
        '<form id=f method=post action="{to}"></form><div id=send onclick="f.submit()">Go</div>'
    ),
    "the base of the page": (
        '<base href="{to}/"><form method=post action="send"><button id=send>Send</button></form>'
    ),
}


@pytest.fixture
def received() -> Iterator[list[str]]:
    """The hosts to which forms were sent, by a server at the port ``received[0]``."""
    found: list[str] = []

    class Pages(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.strip("/").replace("%20", " ").replace("%27", "'")
            to = f"http://{FAR_HOST}:{self.server.server_address[1]}/send"
            self._reply(FORMS.get(name, "").format(to=to))

        def do_POST(self) -> None:
            found.append(self.headers["Host"].partition(":")[0])
            self._reply("sent")

        def _reply(self, text: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    found.append(str(server.server_address[1]))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield found
    server.shutdown()
    server.server_close()


async def test_no_click_sends_a_form_to_a_host_that_is_not_local(tmp_path: Path, received: list[str]) -> None:
    port = received.pop()
    browser = await Browser.launch(CHROMIUM, tmp_path, [f"--host-resolver-rules=MAP {FAR_HOST} 127.0.0.1"])
    try:
        page = await browser.open_page()
        for name in FORMS:
            await page.post("Page.navigate", {"url": f"http://127.0.0.1:{port}/{name}"})
            await page.evaluate(LOADED)
            await page.evaluate(LOOK)
            await page.evaluate("document.getElementById('send').click()")
            await page.evaluate("new Promise((done) => setTimeout(done, 300))")
            assert received == [], name
    finally:
        await browser.close()
