"""The HTTP server of a run: its socket, uvicorn with limits on idle connections, and the token file.

uvicorn itself counts idle connections against its limit of connections, and has no deadline for a request to
arrive. So idle connections could keep out open pages. This module closes idle connections.
"""

import asyncio
import contextlib
import fcntl
import os
import secrets
import socket
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from dart.core.errors import DiskError, UnavailableError, UsageError
from dart.core.loopback import is_loopback
from dart.core.run_directory import write_atomically

HEAD_S = 5.0
"""Seconds after which a connection is closed if no whole request head (first line and headers) has
arrived."""

WAITING_MOST = 48
"""Largest number of idle connections. If there is one more, the one that was idle longest is closed."""


class BoundedHttp(H11Protocol):
    """uvicorn's protocol class for HTTP/1.1, with a deadline for each request to arrive."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._request_due: asyncio.TimerHandle | None = None
        """The timer that closes the idle connection; None while a request is being answered."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._request_came()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_asked():
            self._request_came()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self._is_asked() and not self.transport.is_closing():
            self._await_request()

    def shutdown(self) -> None:
        """End the connection, as the server asks at its end; at once if it is a stream, which has no end."""
        super().shutdown()
        if self.cycle is not None and self.cycle.scope["path"] == "/stream":
            self.transport.close()

    def _is_asked(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _await_request(self) -> None:
        self._request_came()
        self._request_due = self.loop.call_later(HEAD_S, self._give_up)
        waiting = [one for one in self.connections if isinstance(one, BoundedHttp) and one._request_due]
        if len(waiting) > WAITING_MOST:
            min(waiting, key=_due_s)._give_up()

    def _request_came(self) -> None:
        if self._request_due is not None:
            self._request_due.cancel()
            self._request_due = None

    def _give_up(self) -> None:
        self._request_came()
        self.transport.close()


def _due_s(waiting: BoundedHttp) -> float:
    return waiting._request_due.when() if waiting._request_due else 0.0


TOKEN_BYTES = 32
CONNECTIONS_MOST = 128
REQUEST_HEAD_BYTES = 16 << 10
END_S = 1
"""Longest wait, in seconds, for connections to close at the end. Open pages never close theirs."""


def serve(app: ASGIApp, listener: socket.socket, beat: Callable[[], None] | None = None) -> None:
    """Serve an application until SIGINT or SIGTERM.

    listener   the listening socket
    beat       called every second, to give a sign of life. With `beat`, uvicorn's warnings go to the log that
               the process has configured; without it, uvicorn configures its own log.
    """

    async def notify() -> None:
        if beat is not None:
            beat()

    config = uvicorn.Config(
        app,
        callback_notify=notify,
        timeout_notify=-sys.maxsize,  # else no beat follows while the wall clock is behind the last one
        log_config=uvicorn.config.LOGGING_CONFIG if beat is None else None,
        log_level="warning",
        access_log=False,  # addresses would name what a user looks at, and the log would grow with every look
        proxy_headers=False,  # a client can forge them
        server_header=False,
        limit_concurrency=CONNECTIONS_MOST,
        h11_max_incomplete_event_size=REQUEST_HEAD_BYTES,
        timeout_graceful_shutdown=END_S,
        http=BoundedHttp,
        ws="none",
        lifespan="on",
    )
    with contextlib.suppress(KeyboardInterrupt):  # uvicorn raises the signal again after a graceful end
        uvicorn.Server(config).run(sockets=[listener])


def listen(host: str, port: int, setting: str) -> socket.socket:
    """Open a listening socket; port 0 takes a free port. Raises UnavailableError if this fails.

    setting   the words of the command line that take a free port, such as `--port 0`
    """
    try:
        (family, *_, place), *_ = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        return socket.create_server(place[:2], family=family, backlog=CONNECTIONS_MOST)
    except OSError as error:
        # `create_server` adds the address to texts of the system, whose numbers are above 0.
        number = error.errno or 0
        why = os.strerror(number) if number > 0 else error.strerror or error
        raise UnavailableError(
            f"cannot listen at {address(host, port)}: {why}; choose another port or host ({setting} takes a "
            "free port)"
        ) from error


def address(host: str, port: int) -> str:
    """Return the URL of a server at a host and port."""
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


def own_names(host: str) -> list[str]:
    """Return the names by which other machines may reach a server at `host`; empty for loopback."""
    return [] if is_loopback(host) else [socket.gethostname(), socket.getfqdn()]


def token_of(path: Path) -> tuple[str, bool]:
    """Return the access token in a file, and whether this call made the file because there was none.

    An empty file counts as missing: an earlier start was killed before it wrote the token.

    raises   UsageError if other users can read the file, or one owns it; DiskError if the file cannot be made
             or read
    """
    while not _is_written(path):
        try:
            token = _make(path)
        except OSError as error:
            raise DiskError(
                f"token file {path} cannot be made: {error.strerror}; free space, or name a file in a folder "
                "you can write to"
            ) from error
        if token is not None:
            return token, True
    return _read(path), False


def _is_written(path: Path) -> bool:
    """Whether there is a token file that is not empty. Anything but a regular file counts as written."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return False
    except OSError:
        return True  # reading it names the error
    return found.st_size > 0 or not stat.S_ISREG(found.st_mode)


def _make(path: Path) -> str | None:
    """Make a token file, or replace an empty one; return its token. None if another start made it meanwhile.

    Only the holder of the lock on the empty file may replace it, so that two starts at the same time get the
    same token. Raises OSError, and the file is then empty or missing.
    """
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        if not _is_file_at(path, fd) or os.fstat(fd).st_size:
            return None
        token = secrets.token_urlsafe(TOKEN_BYTES)
        write_atomically(path, f"{token}\n".encode(), 0o600)
        return token
    finally:
        os.close(fd)


def _is_file_at(path: Path, fd: int) -> bool:
    """Whether an open file still has its name, and no other file has replaced it."""
    try:
        return os.path.samestat(path.stat(), os.fstat(fd))
    except FileNotFoundError:
        return False


def _read(path: Path) -> str:
    try:
        found = path.stat()
        token = path.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        raise DiskError(
            f"token file {path} cannot be read: {error}; delete it, and the next start makes a new one"
        ) from error
    if found.st_uid not in (0, os.geteuid()):
        raise UsageError(
            f"token file {path} belongs to user {found.st_uid}, who knows the token: name a file of your own"
        )
    if found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise UsageError(
            f"token file {path} can be read by other users: run `chmod 600 {path}`, or delete the file, and "
            "the next start makes a new one"
        )
    return token
