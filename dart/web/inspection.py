"""The inspection endpoint: the sidecar of a control node that other machines ask for its run.

It runs as `python -m dart.web.inspection RUN_DIR PID`, only if the record is on a server. It announces its
address and an access token in the record. So every user who may read the record may inspect the run and stop
it (docs/cluster.md).
"""

import os
import re
import secrets
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from socket import socket

import structlog
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from dart import __version__
from dart.config.config import Config, kept_config
from dart.core.errors import DartError, UnavailableError, UsageError
from dart.core.record_address import RecordAddress
from dart.core.run_directory import RunPaths
from dart.inspect.sidecar_status import INSPECTION, Sidecar, beat, write_sidecar
from dart.run.control_protocol import MAX_FRAME_BYTES, Malformed, decode_request, encode
from dart.run.control_socket import request as control
from dart.run.ending import ask_to_end
from dart.run.inspection_protocol import FRAME_TYPE, FileState, encode_state
from dart.run.inspection_state import machine_state, read_part
from dart.run.sidecars import begin_sidecar
from dart.store.control_node import ControlNode, announce, keep_announced
from dart.store.database import database_at
from dart.store.errors import StoreUnavailable
from dart.web.auth import bearer, is_token
from dart.web.server import TOKEN_BYTES, listen, serve

KEEP_EVERY_S = 5.0
"""Seconds between two updates of the announcement in the record."""

UNREACHABLE = ("", "0.0.0.0", "::")
"""Values of `inspection.host` that are no address for other machines: no host, or all addresses of this
machine. The address by which the record's server sees this machine is announced instead."""

RETRY_S = KEEP_EVERY_S
"""Seconds before another try to open the listening socket. Each try updates the announcement, too."""


class Endpoint:
    """Answers requests that have the access token.

    main_pid   pid of the main process of the run
    """

    def __init__(self, paths: RunPaths, token: str, main_pid: int) -> None:
        self._paths = paths
        self._token = token
        self._main_pid = main_pid

    def guarded(self, answer: Callable[[Request], bytes]) -> Callable[[Request], object]:
        """Return a request handler that refuses requests without the token, and answers in a thread."""

        async def respond(request: Request) -> Response:
            if not is_token(self._token, bearer(request.headers.get("authorization"))):
                return PlainTextResponse("this endpoint needs the token that is in the record\n", 401)
            if request.method == "POST":
                request.state.body = await _body(request)
            return Response(await run_in_threadpool(answer, request), media_type=FRAME_TYPE)

        return respond

    def state(self, request: Request) -> bytes:
        return encode_state(machine_state(self._paths, request.query_params.getlist("about")))

    def file(self, request: Request) -> bytes:
        asked = request.query_params
        file = FileState(asked.get("folder", ""), asked.get("name", ""), _number(asked.get("inode")), 0)
        return read_part(self._paths, file, _number(asked.get("offset")))

    def control(self, request: Request) -> bytes:
        try:
            call = decode_request(request.state.body)
        except Malformed as error:
            raise UsageError(str(error)) from error
        return encode(control(self._paths.root, call))

    def end(self, request: Request) -> bytes:
        """Ask the main process to end, after a drain or, with `now=1`, at once. This process ends, too."""
        pidfd = os.pidfd_open(self._main_pid)
        try:
            ask_to_end(self._paths, pidfd, now=request.query_params.get("now") == "1")
        finally:
            os.close(pidfd)
        return b""


async def _body(request: Request) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_FRAME_BYTES:
            raise UsageError(f"expected a request of at most {MAX_FRAME_BYTES} bytes")
    return bytes(body)


def _number(text: str | None) -> int:
    """Return a number of 64 bits, which has at most 20 digits. Raises UsageError for another text."""
    if text is None or not re.fullmatch("[0-9]{1,20}", text):
        raise UsageError(f"expected whole numbers for inode and offset, got {text!r}")
    return int(text)


def inspection_app(paths: RunPaths, token: str, main_pid: int) -> Starlette:
    """Return the inspection endpoint of a run as an ASGI application."""
    endpoint = Endpoint(paths, token, main_pid)
    routes = [
        Route("/state", endpoint.guarded(endpoint.state)),
        Route("/file", endpoint.guarded(endpoint.file)),
        Route("/control", endpoint.guarded(endpoint.control), methods=["POST"]),
        Route("/end", endpoint.guarded(endpoint.end), methods=["POST"]),
    ]
    return Starlette(routes=routes, exception_handlers={DartError: _on_error})


async def _on_error(_: Request, error: Exception) -> Response:
    return PlainTextResponse(f"{error}\n", 400 if isinstance(error, UsageError) else 503)


@dataclass(slots=True)
class Announcement:
    """Keeps the announcement of this control node in the record up to date."""

    paths: RunPaths
    record: RecordAddress
    node: ControlNode
    _is_announced: bool = False
    _trouble: str = ""

    def keep(self) -> None:
        """Renew the announcement until the process ends. Call this in a thread."""
        while True:
            self.renew()
            time.sleep(KEEP_EVERY_S)

    def renew(self) -> None:
        """Announce the node, or renew its announcement.

        After an error, such as a record that takes no writes, the announcement gets older, but the endpoint
        continues to answer.
        """
        log = structlog.get_logger(actor=INSPECTION)
        try:
            (keep_announced if self._is_announced else announce)(self.record, self._now())
            self._is_announced, trouble = True, ""
        except Exception as error:  # nothing else announces the node, and the next try may succeed
            trouble = str(error) or repr(error)
        if trouble != self._trouble:
            self._trouble = trouble
            log.warning("control_node_not_announced", reason=trouble) if trouble else log.info("announced")

    def change_address(self, address: str) -> None:
        """Have the next `renew` announce the node with another address."""
        self.node, self._is_announced = replace(self.node, address=address), False

    def _now(self) -> ControlNode:
        session, config = self.paths.session, self.paths.config
        return self.node.seen_at(
            time.time(), session=session.read_text() if session.exists() else "", config=config.read_text()
        )


def main(arguments: list[str]) -> None:
    """Serve the inspection endpoint of a run until SIGTERM. Raises DartError.

    arguments   the run directory, and the pid of the main process
    """
    paths = begin_sidecar(INSPECTION, arguments)
    config, pid = kept_config(paths.config), int(arguments[1])
    record = paths.record_at(config.run.record)
    token = secrets.token_urlsafe(TOKEN_BYTES)
    node = ControlNode(
        address="",
        token=token,
        version=__version__,
        pid=pid,
        config="",
        session="",
        began_unix_s=paths.lock.stat().st_mtime,
        seen_unix_s=time.time(),
    )
    announcement = Announcement(paths, record, node)
    listener = _listening(paths, config, announcement)
    threading.Thread(target=announcement.keep, name="announcement", daemon=True).start()
    serve(inspection_app(paths, token, pid), listener, beat=partial(beat, paths, INSPECTION))


def _listening(paths: RunPaths, config: Config, announcement: Announcement) -> socket:
    """Open the listening socket, return it, and write its address for other machines into the announcement.

    If this fails, write the reason into the status of the sidecar and try again every `RETRY_S`. Meanwhile
    the node is announced without an address, so that no other machine takes its run for one that is lost.
    """
    host = config.inspection.host
    while True:
        try:
            # If `own_host` failed after `listen`, the open socket would keep the port of the next try.
            announced = database_at(announcement.record).own_host() if host in UNREACHABLE else host
            listener = listen(host or announced, config.inspection.port, "--set inspection.port=0")
        except (UnavailableError, StoreUnavailable) as error:
            text = f"{error}; other machines cannot inspect the run; the next try is in {RETRY_S:g} s"
            write_sidecar(paths, Sidecar(name=INSPECTION, is_well=False, text=text))
            announcement.renew()
            time.sleep(RETRY_S)
            continue
        port = listener.getsockname()[1]
        place = f"[{announced}]:{port}" if ":" in announced else f"{announced}:{port}"
        write_sidecar(paths, Sidecar(name=INSPECTION, is_well=True, text=f"answers at {place}"))
        announcement.change_address(place)
        return listener


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except DartError as error:
        sys.exit(str(error))
