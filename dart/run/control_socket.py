"""The control socket: how it is opened and connected to.

The path of a Unix socket has at most 107 bytes, and that of a run directory may have more. The socket is
therefore reached through a descriptor of its directory, whose path is always short.
"""

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

BACKLOG = 32
_PEER = struct.Struct("3i")
_TRUSTED_UIDS = frozenset({0, os.geteuid()})


def listen(path: Path) -> socket.socket:
    """Open a non-blocking socket for this user alone; it replaces one that an earlier run left.

    The run directory is private to its user (0700). Raises OSError.
    """
    with suppress(FileNotFoundError):
        path.unlink()
    listener = _packets()
    try:
        with _short(path) as reachable:
            listener.bind(reachable)
        path.chmod(0o600)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


def connect(path: Path, timeout_s: float) -> socket.socket:
    """Connect; each operation on the connection takes at most `timeout_s`. Raises OSError."""
    connection = _packets()
    connection.settimeout(timeout_s)
    try:
        with _short(path) as reachable:
            connection.connect(reachable)
    except BaseException:
        connection.close()
        raise
    return connection


def is_own(connection: socket.socket) -> bool:
    """Whether the peer is a process of this user or of root."""
    peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    return _PEER.unpack(peer)[1] in _TRUSTED_UIDS


def _packets() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)


@contextmanager
def _short(path: Path) -> Iterator[str]:
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
