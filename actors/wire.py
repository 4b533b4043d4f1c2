"""The connection of a bridge to the bridges of other hosts: a unix socket to the agent of its own host.

The agent carries packets between hosts (in a Ray cluster it is a Ray actor). It listens on a SOCK_SEQPACKET
socket before the actor system of its host starts; the bridge connects once in its life. A packet is one byte
n, n bytes with the name of a host in UTF-8, and one frame. The name is that of the receiving host in a packet
to the agent, and that of the sending host in a packet from the agent. A packet from the agent with an empty
frame says that the named host is gone.

Packets between two hosts arrive in order or not at all. None arrives twice while both hosts are connected.
After the agent has closed the socket, `receive` and `send` raise WireClosed.
"""

import select
import socket
from collections import deque
from pathlib import Path

from actors.codec import MAX_MESSAGE_BYTES
from actors.errors import WireClosed

MAX_FRAME_BYTES = MAX_MESSAGE_BYTES + 4096
"""The largest frame: a message of mail with its header."""

MAX_PACKET_BYTES = 1 + 255 + MAX_FRAME_BYTES

QUEUE_FRAMES = 8192
QUEUE_BYTES = 32 * 1024 * 1024
"""The most bytes that wait for a slow agent. Beyond these or QUEUE_FRAMES frames `send` returns False."""

SEND_BUFFER_BYTES = 1024 * 1024


def packet(host: str, frame: bytes) -> bytes:
    """Pack a frame with the name of a host. Raises ValueError for a name of more than 255 bytes."""
    name = host.encode()
    return bytes((len(name),)) + name + frame


def opened(data: bytes) -> tuple[str, bytes] | None:
    """The host and the frame of a packet; None for data that is no packet."""
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
        """The number of packets from the agent that could not be read."""
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
        """Descriptors that become readable when a frame may have come, or waiting frames can be sent."""

    def send(self, host: str, frame: bytes) -> bool:
        """Send a frame to a host, or keep it until the socket takes it; False when too many wait already.

        Raises WireClosed, and ValueError for a frame that is empty or over MAX_FRAME_BYTES.
        """
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

        An empty frame comes from the agent itself and says that the host is gone.
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
        """Close the connection, after trying for `linger_s` seconds to send each frame that still waits."""
        if self._waiting and linger_s:
            self._socket.settimeout(linger_s)
            try:
                while self._waiting:
                    self._socket.send(self._waiting.popleft())
            except OSError:  # the agent has closed the socket or does not read: the waiting frames are lost
                self._waiting.clear()
        self._epoll.close()
        self._socket.close()

    def _flush(self) -> None:
        """Send waiting frames as far as the socket takes them; the rest follows when it is writable again."""
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
