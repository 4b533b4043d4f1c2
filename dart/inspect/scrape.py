"""What a scraper and a health check get: plain functions from a run to text, and a small server for them.

    /metrics   every metric of `dart.inspect.metrics`, 200; 503 when the record cannot be read now
    /livez     200 while the run's main process runs and its root supervisor beats, else 503
    /readyz    200 while the store takes writes, an engine serves a policy or takes a new version over, and an
               environment is up, else 503

A web application mounts the three functions; `dartrl metrics --listen` serves them by itself. They only read.
"""

import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import ClassVar

from dart.core.errors import DartError, UnavailableError
from dart.core.run_directory import RunPaths, holder
from dart.inspect.actor_table import read_actors
from dart.inspect.metrics import exposition
from dart.inspect.processes import state_of_main
from dart.inspect.snapshot import ActorRow, RunSnapshot

ROOT_SILENT_S = 20.0
"""The root beats four times a second; after this long without a beat the run is given up (`dart.run.app`)."""

TAKES_OVER = ("generate", "load")
"""What the board says that an engine does while it takes a version over: where `rollout.weight_update` is
`drain` it first answers what it has."""

REQUEST_DEADLINE_S = 5.0
"""A client that is slower than this loses its connection."""

PLAIN = "text/plain; charset=utf-8"
TEXT_FORMAT = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Reply:
    """What an HTTP request is answered with."""

    status: HTTPStatus
    text: bytes
    content_type: str = PLAIN


def metrics(read: Callable[[], RunSnapshot]) -> Reply:
    """The answer to `/metrics`; what cannot be read now is said."""
    try:
        return Reply(HTTPStatus.OK, exposition(read()).encode(), TEXT_FORMAT)
    except DartError as error:
        return Reply(HTTPStatus.SERVICE_UNAVAILABLE, f"{error}\n".encode())


def livez(paths: RunPaths) -> Reply:
    """The answer to `/livez`: whether a restart of the run would mend something."""
    return _verdict(_problems(paths, _not_alive))


def readyz(paths: RunPaths) -> Reply:
    """The answer to `/readyz`: whether episodes can be played and kept now."""
    return _verdict(_problems(paths, _not_ready))


def _problems(paths: RunPaths, find: Callable[[Sequence[ActorRow]], Iterator[str]]) -> list[str]:
    try:
        pid = holder(paths.root)
        if pid is None:
            return ["the run is not running"]
        if wrong := state_of_main(pid):
            return [f"the main process {pid} is {wrong}"]
        return list(find(read_actors(paths.root)))
    except DartError as error:
        return [str(error)]


def _verdict(problems: Sequence[str]) -> Reply:
    if not problems:
        return Reply(HTTPStatus.OK, b"ok\n")
    return Reply(HTTPStatus.SERVICE_UNAVAILABLE, "".join(f"{one}\n" for one in problems).encode())


def _not_alive(actors: Sequence[ActorRow]) -> Iterator[str]:
    root = next((one for one in actors if not one.parent), None)
    if root is None:
        yield "there is no root supervisor yet"
    elif root.process != "alive":
        yield f"the root supervisor is {root.process}"
    elif root.beat_age_s > ROOT_SILENT_S:
        yield f"the root supervisor gave no sign of life for {root.beat_age_s:.0f} s"


def _not_ready(actors: Sequence[ActorRow]) -> Iterator[str]:
    yield from _not_alive(actors)
    well = [one.name for one in actors if one.is_well]
    if "store" not in well:
        yield "the store takes no writes"
    if not any(one.name.startswith("rollout-") and (one.is_well or _takes_over(one)) for one in actors):
        yield "no engine serves a policy"
    if not any(name.startswith("env-") for name in well):
        yield "no environment is up"


def _takes_over(engine: ActorRow) -> bool:
    """Whether an engine that served takes another version over: what it is asked meanwhile waits, as planned.

    One that is only starting does no such work: it is made with its version. One that takes longer than
    `rollout.load_deadline_s` ends itself.
    """
    return replace(engine, ready=True).is_well and engine.work in TAKES_OVER


# ---- served ----


class Server(ThreadingHTTPServer):
    """The three pages, each read anew for every request."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], paths: RunPaths, read: Callable[[], RunSnapshot]) -> None:
        """Raises UnavailableError when the address cannot be had."""
        self.paths = paths
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._read = read
        self._one_at_a_time = Lock()
        try:
            super().__init__(address, _Handler)
        except OSError as error:
            host, port = address
            raise UnavailableError(
                f"cannot listen on {host}:{port}: {error.strerror}; choose another with --listen HOST:PORT"
            ) from None

    @property
    def url(self) -> str:
        host, port, *_ = self.socket.getsockname()
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hung up is no news."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]  # as the library calls it

    def read(self) -> RunSnapshot:
        """A connection to the record is for one thread at a time."""
        with self._one_at_a_time:
            return self._read()


class _Handler(BaseHTTPRequestHandler):
    server: Server
    timeout = REQUEST_DEADLINE_S
    server_version = "dartrl"
    sys_version = ""

    PAGES: ClassVar = ("/metrics", "/livez", "/readyz")

    def do_GET(self) -> None:
        reply = self._reply()
        self.send_response(reply.status)
        self.send_header("Content-Type", reply.content_type)
        self.send_header("Content-Length", str(len(reply.text)))
        self.end_headers()
        self.wfile.write(reply.text)

    def _reply(self) -> Reply:
        match self.path.partition("?")[0]:
            case "/metrics":
                return metrics(self.server.read)
            case "/livez":
                return livez(self.server.paths)
            case "/readyz":
                return readyz(self.server.paths)
        return Reply(HTTPStatus.NOT_FOUND, f"there are {', '.join(self.PAGES)}\n".encode())

    def log_message(self, format: str, *args: object) -> None:
        """Scrapes are no news."""
