"""The switch that passes frames between the bridge of this node and the agents of other nodes, without Ray.

The bridge connects to a unix SOCK_SEQPACKET socket; `actors.wire`, its end, describes the packets.

Frames for one host are sent in batches, one batch at a time, so they stay in order. Both directions have a
bounded buffer. If the bridge sends faster than a host takes frames, the switch stops reading and the socket
of the bridge fills up. If a batch fails or is not taken in time, the switch drops all frames that wait for
that host and tells the bridge that the host is gone. This ends the session, so no session misses a frame.
"""

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from actors.wire import MAX_PACKET_BYTES, opened, packet

BATCH_BYTES = 1 << 20
"""Size at which a batch is complete; its last frame can exceed this size."""

WAITING_BYTES_MOST = 64 << 20
"""Limit of the bytes that wait in one direction. At this limit the switch stops reading from the bridge, or
`deliver` waits until the bridge has read."""

PACKETS_PER_TURN = 256
"""Most packets that are read from the bridge before the asyncio loop runs other callbacks."""

SEND_DEADLINE_S = 6.0
"""Longest time in seconds that a batch may take. It is twice the lease between hosts: every session with a
host that takes no frames has ended by then."""

Frames = list[bytes]
Send = Callable[[str, Frames], Awaitable[None]]
"""Function (host, frames) that passes frames to the agent of a host. It can raise HostUnreachable."""


class HostUnreachable(RuntimeError):
    """A host has no agent, or its agent does not take frames."""


def log_dropped(host: str, frames: int, reason: str) -> None:
    """Log frames that were lost on their way to or from another host."""
    if frames:
        structlog.get_logger().warning("frames_dropped", host=host, frames=frames, reason=reason)


@dataclass(slots=True)
class WaitingFrames:
    """The frames that wait to be sent to one host."""

    frames: deque[bytes] = field(default_factory=deque)
    waiting_bytes: int = 0
    is_sending: bool = False

    def batch(self) -> Frames:
        """Remove and return the frames of the next batch; an empty list if no frame waits."""
        taken: Frames = []
        taken_bytes = 0
        while self.frames and taken_bytes < BATCH_BYTES:
            taken.append(self.frames.popleft())
            taken_bytes += len(taken[-1])
        self.waiting_bytes -= taken_bytes
        return taken


class FrameSwitch:
    """Passes frames for one bridge; a new connection replaces the earlier one. Use it in one asyncio loop."""

    def __init__(self, path: Path, send: Send, *, send_deadline_s: float = SEND_DEADLINE_S) -> None:
        """
        path              path of the unix socket; an existing file is replaced
        send              sends a batch to a host
        send_deadline_s   longest time in seconds that `send` may take
        """
        self._send, self._send_deadline_s = send, send_deadline_s
        self.path = path
        self._loop = asyncio.get_running_loop()
        self._outboxes: dict[str, WaitingFrames] = {}
        self._to_bridge: deque[bytes] = deque()
        self._to_bridge_bytes = 0
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._bridge: socket.socket | None = None
        self._is_reading = False
        self._sends: set[asyncio.Task[None]] = set()
        path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        self._listener.bind(str(path))
        path.chmod(0o600)
        self._listener.listen(1)
        self._loop.add_reader(self._listener, self._accept)

    async def deliver(self, host: str, frames: Frames) -> None:
        """Hand frames of another host to the bridge, in order. Waits while the buffer to the bridge is full.

        Without a bridge, the frames are dropped.
        """
        await self._has_room.wait()
        if self._bridge is None:
            log_dropped(host, len(frames), "no bridge is connected")
            return
        self._enqueue([packet(host, frame) for frame in frames])

    def gone(self, host: str) -> None:
        """Tell the bridge that a host is gone, and drop what waits for that host."""
        self._drop(host)
        if self._bridge is not None:
            self._enqueue([packet(host, b"")])

    def close(self) -> None:
        """Close the connection to the bridge, and accept no new one."""
        self._loop.remove_reader(self._listener)
        self._listener.close()
        self._disconnect()
        self.path.unlink(missing_ok=True)

    # ---- from the bridge ----

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError):
            connection, _ = self._listener.accept()
            connection.setblocking(False)
            self._disconnect()
            self._bridge = connection
            self._read_on()

    def _disconnect(self) -> None:
        """Close the connection and drop all waiting frames, which belong to sessions of that bridge."""
        self._to_bridge.clear()
        self._to_bridge_bytes = 0
        self._has_room.set()
        for host in list(self._outboxes):
            self._drop(host)
        if self._bridge is not None:
            self._loop.remove_reader(self._bridge)
            self._loop.remove_writer(self._bridge)
            self._bridge.close()
            self._bridge, self._is_reading = None, False

    def _read_on(self) -> None:
        """Start or stop reading from the bridge, depending on whether its frames fit into the buffer."""
        waiting = sum(outbox.waiting_bytes for outbox in self._outboxes.values())
        may_read = self._bridge is not None and waiting < WAITING_BYTES_MOST
        if may_read and not self._is_reading:
            assert self._bridge is not None
            self._loop.add_reader(self._bridge, self._readable)
        elif self._bridge is not None and not may_read and self._is_reading:
            self._loop.remove_reader(self._bridge)
        self._is_reading = may_read

    def _readable(self) -> None:
        touched: set[str] = set()
        for _ in range(PACKETS_PER_TURN):
            data = self._next_packet()
            if data is None:
                break
            found = opened(data)
            if found is None:
                continue
            host, frame = found
            outbox = self._outboxes.setdefault(host, WaitingFrames())
            outbox.frames.append(frame)
            outbox.waiting_bytes += len(frame)
            touched.add(host)
        for host in touched:
            self._start_sending(host)
        self._read_on()

    def _next_packet(self) -> bytes | None:
        """Return the next packet of the bridge; None if none has arrived or the bridge is gone."""
        if self._bridge is None:
            return None
        try:
            data = self._bridge.recv(MAX_PACKET_BYTES)
        except BlockingIOError:
            return None
        except ConnectionResetError:
            data = b""
        if not data:
            self._disconnect()
            return None
        return data

    # ---- to other hosts ----

    def _start_sending(self, host: str) -> None:
        outbox = self._outboxes.get(host)
        if outbox is not None and outbox.frames and not outbox.is_sending:
            outbox.is_sending = True
            task = self._loop.create_task(self._send_all(host, outbox))
            self._sends.add(task)
            task.add_done_callback(self._sends.discard)

    async def _send_all(self, host: str, outbox: WaitingFrames) -> None:
        """Send batches to a host until no frame waits or a batch fails; then the host counts as gone."""
        while frames := outbox.batch():
            try:
                async with asyncio.timeout(self._send_deadline_s):
                    await self._send(host, frames)
            except (HostUnreachable, TimeoutError) as error:
                log_dropped(host, len(frames), str(error) or f"not taken within {self._send_deadline_s:g} s")
                if self._outboxes.get(host) is outbox:  # else the bridge has been replaced meanwhile
                    self.gone(host)
                break
            self._read_on()
        outbox.is_sending = False
        if not outbox.frames and self._outboxes.get(host) is outbox:
            del self._outboxes[host]
        self._read_on()

    def _drop(self, host: str) -> None:
        """Drop the frames that wait for a host. A batch that is being sent is not interrupted."""
        outbox = self._outboxes.pop(host, None)
        if outbox is not None:
            log_dropped(host, len(outbox.frames), "the host or the bridge is gone")
            outbox.frames.clear()
            outbox.waiting_bytes = 0
        self._read_on()

    # ---- to the bridge ----

    def _enqueue(self, packets: list[bytes]) -> None:
        self._to_bridge.extend(packets)
        self._to_bridge_bytes += sum(map(len, packets))
        self._writable()

    def _writable(self) -> None:
        """Send as many packets as the bridge takes now; the loop calls this again when it takes more."""
        bridge = self._bridge
        if bridge is None:
            return
        try:
            while self._to_bridge:
                bridge.send(self._to_bridge[0])
                self._to_bridge_bytes -= len(self._to_bridge.popleft())
        except BlockingIOError:
            self._loop.add_writer(bridge, self._writable)
        except OSError:  # the bridge has closed its end
            self._disconnect()
            return
        else:
            self._loop.remove_writer(bridge)
        if self._to_bridge_bytes < WAITING_BYTES_MOST:
            self._has_room.set()
        else:
            self._has_room.clear()
