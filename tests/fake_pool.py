"""A server that lends virtual machines by DART's environment protocol, in memory or behind a real port."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx2

from dart.config.config import Config, load_config

TOKEN = "secret"
"""The token that the server knows; set DARTRL_POOL_TOKEN to it."""


class FakePool:
    """A server of the pool's protocol."""

    def __init__(self, limit: int = 1) -> None:
        self.limit = limit
        self.running: dict[str, float] = {}
        """Age in minutes by id."""
        self.hangs = False
        self.refused_stops: float = 0
        """How many of the next stops are refused."""
        self.away = 0
        """How many of the next starts find no server."""
        self.port_of_guests = 5001
        self.calls: list[str] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.calls.append(f"{request.method} {request.url.path}")
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if request.url.path == "/emulators":
            return httpx2.Response(
                200, json=[{"emulator_id": id_, "duration_minutes": age} for id_, age in self.running.items()]
            )
        if request.url.path == "/stop_emulator":
            if self.refused_stops:
                self.refused_stops -= 1
                return httpx2.Response(503, json={"message": "busy"})
            gone = self.running.pop(json.loads(request.content)["emulator_id"], None)
            return httpx2.Response(200 if gone is not None else 404, json={"message": ""})
        if self.away:
            self.away -= 1
            raise httpx2.ConnectError("connection refused")
        if token != TOKEN:
            return httpx2.Response(403, json={"message": "Unknown or unauthorized token", "code": 403})
        if len(self.running) >= self.limit:
            return httpx2.Response(429, json={"message": "Token quota exceeded", "code": 429})
        id_ = f"emulator-{len(self.calls)}"
        self.running[id_] = 0
        if self.hangs:
            raise httpx2.ReadTimeout("the client gave up")
        data = {
            "emulator_id": id_,
            "server_port": self.port_of_guests,
            "vnc_port": 1,
            "chromium_port": 9223,
            "vlc_port": 2,
        }
        return httpx2.Response(200, json={"code": 0, "data": data})


@contextmanager
def served(pool: FakePool) -> Iterator[str]:
    """Serve a pool at a port of this computer while the block lasts. Yields its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            self._answer()

        def _answer(self) -> None:
            content = self.rfile.read(int(self.headers.get("content-length", 0)))
            url = f"http://{self.headers['host']}{self.path}"
            response = pool(httpx2.Request(self.command, url, headers=dict(self.headers), content=content))
            self.send_response(response.status_code)
            self.send_header("content-length", str(len(response.content)))
            self.end_headers()
            self.wfile.write(response.content)

        def log_message(self, format: str, *_: object) -> None:  # the base class names it so
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def remember(root: Path, name: str = "env-000", **ledger: Any) -> Path:
    """Write the file in which an environment, by default one that was killed, has left its machines."""
    path = root / "machines" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"emulator_ids": [], **ledger}))
    return path


def of_osworld(*overrides: str, config: Config | None = None) -> Config:
    """Return a configuration with OSWorld's machines as environments.

    overrides   values of keys in ``environments.osworld``
    config      the configuration of everything else; None: the built-in values
    """
    settings = load_config(None, [f"environments.osworld.{one}" for one in overrides]).environments
    return (config or load_config()).model_copy(
        update={"environments": settings.model_copy(update={"kind": "osworld"})}
    )
