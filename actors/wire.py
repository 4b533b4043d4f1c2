"""The way from a bridge to the bridges of other hosts: a unix socket to the agent of its own host.

The agent carries packets between hosts (in a Ray cluster it is a Ray actor). It listens on a SOCK_SEQPACKET
socket before the actor system of its host starts; the bridge connects once in its life. A packet is one byte
n, n bytes of a host's name in UTF-8, and one frame: to the agent the host that shall get the frame, from the
agent the host that sent it. A packet from the agent with an empty frame says that this host is gone.

Packets between two hosts arrive in order or not at all, and none arrives twice while both hosts stay. If the
agent closes the socket, no frame comes or goes any more: `receive` and `send` raise WireClosed.
"""

import select
import socket
from collections import deque
from pathlib import Path

from actors.codec import MAX_MESSAGE_BYTES
from actors.errors import WireClosed

MAX_FRAME_BYTES = MAX_MESSAGE_BYTES + 4096
"""A message of mail and its header."""

MAX_PACKET_BYTES = 1 + 255 + MAX_FRAME_BYTES

QUEUE_FRAMES = 8192
QUEUE_BYTES = 32 * 1024 * 1024
"""The most that waits for an agent that does not read; then `send` is refused."""

SEND_BUFFER_BYTES = 1024 * 1024


def packet(host: str, frame: bytes) -> bytes:
    """One packet. Raises ValueError for a host's name of more than 255 bytes."""
    name = host.encode()
    return bytes((len(name),)) + name + frame


def opened(data: bytes) -> tuple[str, bytes] | None:
    """The host and the frame of a packet; None when it is no packet."""
    end = 1 + data[0]
    if len(data) < end:
        return None
    try:
        return data[1:end].decode(), data[end:]
    except UnicodeDecodeError:
        return None


class AgentWire:
    """A bridge's connection to the agent of its host. Not thread-safe."""

    def __init__(self, path: Path) -> None:
        """Connect. Raises WireClosed when no agent listens at `path`."""
        self.malformed = 0
        """Packets of the agent that are none."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        try:
            self._socket.connect(str(path))
        except OSError as error:
            self._socket.close()
            raise WireClosed(
                f"no agent of this host listens at {path}: {error.strerror}; "
                "start the agent before the actors"
            ) from error
        self._socket.setblocking(False)
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._epoll = select.epoll()
        self._epoll.register(self._socket, select.EPOLLIN)
        self.fds: tuple[int, ...] = (self._epoll.fileno(),)
        """Readable when something may have come, or when waiting frames can be sent."""

    def send(self, host: str, frame: bytes) -> bool:
        """Send a frame to a host; False when too many wait already. Raises WireClosed."""
        if len(frame) > MAX_FRAME_BYTES or not frame:
            raise ValueError(f"a frame has 1 to {MAX_FRAME_BYTES} bytes, got {len(frame)}")
        if len(self._waiting) >= QUEUE_FRAMES or self._waiting_bytes + len(frame) > QUEUE_BYTES:
            return False
        self._waiting.append(packet(host, frame))
        self._waiting_bytes += len(self._waiting[-1])
        if len(self._waiting) == 1:
            self._flush()
        return True

    def receive(self) -> tuple[str, bytes] | None:
        """The next frame and the host that sent it; None when there is none now. Raises WireClosed.

        An empty frame is the agent's own word: that host is gone.
        """
        if self._waiting:
            self._flush()
        while True:
            try:
                data = self._socket.recv(MAX_PACKET_BYTES + 1)
            except BlockingIOError:
                return None
            except OSError as error:
                raise _closed(error) from error
            if not data:
                raise _closed(None)
            found = opened(data) if len(data) <= MAX_PACKET_BYTES else None
            if found is not None:
                return found
            self.malformed += 1

    def close(self, linger_s: float = 0.0) -> None:
        """End the connection; frames that still wait are given so long to leave."""
        if self._waiting and linger_s:
            self._socket.settimeout(linger_s)
            try:
                while self._waiting:
                    self._socket.send(self._waiting.popleft())
            except OSError:  # it is closed, or does not read: what waits is lost with the connection
                self._waiting.clear()
        self._epoll.close()
        self._socket.close()

    def _flush(self) -> None:
        """Send what waits, as far as the socket takes it; the rest when it can be written again."""
        while self._waiting:
            try:
                self._socket.send(self._waiting[0])
            except BlockingIOError:
                self._epoll.modify(self._socket, select.EPOLLIN | select.EPOLLOUT)
                return
            except OSError as error:
                raise _closed(error) from error
            self._waiting_bytes -= len(self._waiting.popleft())
        self._epoll.modify(self._socket, select.EPOLLIN)


def _closed(error: OSError | None) -> WireClosed:
    why = f": {error.strerror}" if error is not None else ""
    return WireClosed(f"the agent of this host closed the wire{why}")
