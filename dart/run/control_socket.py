"""The control socket of a run: open it, connect to it, and send it requests. Only the same user and root may.

The path of a Unix socket has at most 107 bytes, and the path of a run directory may be longer. The socket is
therefore reached by a short path through a descriptor of its directory, `/proc/self/fd/N/NAME`.
"""

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from actors.board import rows_of
from dart.core.errors import NotRunningError, SilentError
from dart.core.run_directory import RunPaths, holder
from dart.run.control_protocol import (
    MAX_FRAME_BYTES,
    ControlAnswer,
    Malformed,
    Request,
    decode_answer,
    encode,
)

BACKLOG = 32
_PEER = struct.Struct("3i")
_TRUSTED_UIDS = frozenset({0, os.geteuid()})


def listen(path: Path) -> socket.socket:
    """Open a non-blocking listening socket for this user alone, in place of one that an earlier run left.

    The run directory must be private to its user (0700). Raises OSError.
    """
    path.unlink(missing_ok=True)
    with _socket_for(path) as (listener, place):
        listener.bind(place)
        path.chmod(0o600)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    return listener


def connect(path: Path, timeout_s: float) -> socket.socket:
    """Connect to a control socket. Each operation takes at most `timeout_s`. Raises OSError."""
    with _socket_for(path) as (connection, place):
        connection.settimeout(timeout_s)
        connection.connect(place)
    return connection


def is_own(connection: socket.socket) -> bool:
    """Whether the other end of a connection is a process of this user or of root."""
    peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    return _PEER.unpack(peer)[1] in _TRUSTED_UIDS


@contextmanager
def _socket_for(path: Path) -> Iterator[tuple[socket.socket, str]]:
    """Yield a new socket and a short address of `path`, which is valid only within the block.

    The socket is closed if the block raises.
    """
    packets = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield packets, f"/proc/self/fd/{folder}/{path.name}"
        finally:
            os.close(folder)
    except BaseException:
        packets.close()
        raise


GRACE_S = 1.0
"""Seconds that a client waits for an answer after the request's `wait_ms`, because machines may be busy."""


def request(run_dir: Path, call: Request) -> ControlAnswer:
    """Send a request to the control endpoint of a run on this machine and return the answer.

    Raises NotRunningError if the run does not run, and SilentError if no answer came within `call.wait_ms`
    and GRACE_S.
    """
    pid = holder(run_dir)
    if pid is None:
        raise NotRunningError(
            f"the run in {run_dir} is not running; start it with `{RunPaths(run_dir).up_command}`"
        )
    timeout_s = call.wait_ms / 1000 + GRACE_S
    try:
        with connect(RunPaths(run_dir).control, timeout_s) as connection:
            connection.send(encode(call))
            return decode_answer(connection.recv(MAX_FRAME_BYTES + 1))
    except FileNotFoundError:
        raise SilentError(f"process {pid} of the run in {run_dir} {_why_not_listening(run_dir)}") from None
    except (OSError, Malformed) as error:
        raise SilentError(
            f"process {pid} of the run in {run_dir} does not answer ({_why(error, timeout_s)}); "
            f"`dartrl status` shows the state of the run, `dartrl down --now` ends it"
        ) from error


def _why_not_listening(run_dir: Path) -> str:
    from dart.run.tree import EXPLORER_POOL  # costs a second, and most requests are answered

    if any(row.name == EXPLORER_POOL for row in rows_of(RunPaths(run_dir).board)):
        return (
            "explores a site, and an exploration takes no requests: `dartrl down` ends it, and `--resume` "
            "continues it"
        )
    return "takes no requests now, because the run is starting or ending; try again in a moment"


def _why(error: Exception, timeout_s: float) -> str:
    return f"nothing within {timeout_s:g} s" if isinstance(error, TimeoutError) else str(error)
