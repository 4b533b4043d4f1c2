"""Frames between the bridge of this node and the agents of other nodes. It knows no Ray.

The bridge connects to a unix SOCK_SEQPACKET socket. One packet is one byte n, n bytes with the name of a
host, and one frame. To the switch it names the receiver, from the switch the sender; an empty frame from the
switch says that this host is gone.

Frames for one host leave in batches, one batch at a time, so their order holds. Both ways are bounded: when
the bridge sends faster than a host takes, the switch stops reading, and the bridge notices by its own socket.
When a batch fails or is not taken in time, everything that waits for that host is dropped and the bridge is
told that the host is gone, so its session ends and no frame is missing in the middle of one.
"""

import asyncio
import contextlib
import os
import socket
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

HOST_BYTES_MOST = 255
"""One byte holds the length of a name."""

PACKET_BYTES_MOST = 128 * 1024
"""Longer than any packet: a name, and a frame of at most 64 KiB of mail with its head."""

BATCH_BYTES = 1 << 20
"""A batch ends with the frame that reaches this size."""

WAITING_BYTES_MOST = 64 << 20
"""Bytes that wait for all hosts together; above it the switch reads no more from the bridge."""

PACKETS_PER_TURN = 256
"""Packets read in one turn of the loop, before others get theirs."""

SEND_DEADLINE_S = 6.0
"""Two leases of the actors' bridges: by then every session with a host that takes nothing has ended."""

Frames = list[bytes]
Send = Callable[[str, Frames], Awaitable[None]]
"""Passes frames to the agent of a host. Raises HostUnreachable."""


class HostUnreachable(RuntimeError):
    """There is no agent of that host, or it does not take frames."""


@dataclass(slots=True)
class WaitingFrames:
    """What waits for one host."""

    frames: deque[bytes] = field(default_factory=deque)
    waiting_bytes: int = 0
    is_sending: bool = False

    def batch(self) -> Frames:
        """Take the next batch."""
        taken: Frames = []
        taken_bytes = 0
        while self.frames and taken_bytes < BATCH_BYTES:
            taken.append(self.frames.popleft())
            taken_bytes += len(taken[-1])
        self.waiting_bytes -= taken_bytes
        return taken


@dataclass(slots=True)
class SwitchCounts:
    """What passed through the switch since its start."""

    sent: int = 0
    """Frames that other hosts have taken."""
    received: int = 0
    """Frames handed to the bridge."""
    batches: int = 0
    dropped: int = 0
    """Frames for or of hosts that were gone or unknown, and those that came while no bridge was connected."""


class FrameSwitch:
    """Serves one bridge at a time. A second connection replaces the first. For one asyncio loop."""

    def __init__(self, path: Path, send: Send, *, send_deadline_s: float = SEND_DEADLINE_S) -> None:
        """path   where the socket is made; a file that is there is replaced"""
        self._send, self._send_deadline_s = send, send_deadline_s
        self._path = path
        self._loop = asyncio.get_running_loop()
        self._outboxes: dict[str, WaitingFrames] = {}
        self._to_bridge: deque[bytes] = deque()
        self._to_bridge_bytes = 0
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._bridge: socket.socket | None = None
        self._is_reading = False
        self._sends: set[asyncio.Task[None]] = set()
        self.counts = SwitchCounts()
        path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        self._listener.bind(str(path))
        path.chmod(0o600)
        self._listener.listen(1)
        self._loop.add_reader(self._listener, self._accept)

    @property
    def is_connected(self) -> bool:
        """Whether a bridge is connected."""
        return self._bridge is not None

    async def deliver(self, host: str, frames: Frames) -> None:
        """Hand frames of another host to the bridge, in order. Waits while the bridge takes no more."""
        await self._has_room.wait()
        if self._bridge is None:
            self.counts.dropped += len(frames)
            return
        self.counts.received += len(frames)
        head = _head(host)
        self._enqueue([head + frame for frame in frames])

    def gone(self, host: str) -> None:
        """Tell the bridge that a host is gone, and drop what waits for that host."""
        self._drop(host)
        if self._bridge is not None:
            self._enqueue([_head(host)])

    def close(self) -> None:
        """End the connection, and take no other one."""
        self._loop.remove_reader(self._listener)
        self._listener.close()
        self._disconnect()
        self._path.unlink(missing_ok=True)

    # ---- from the bridge ----

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError):
            connection, _ = self._listener.accept()
            connection.setblocking(False)
            self._disconnect()
            self._bridge = connection
            self._read_on()

    def _disconnect(self) -> None:
        """Forget the bridge and all that waits: it belongs to sessions of that bridge."""
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
        """Read from the bridge if, and only if, there is room for what it sends."""
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
            packet = self._next_packet()
            if packet is None:
                break
            host, frame = _parsed(packet)
            outbox = self._outboxes.setdefault(host, WaitingFrames())
            outbox.frames.append(frame)
            outbox.waiting_bytes += len(frame)
            touched.add(host)
        for host in touched:
            self._start_sending(host)
        self._read_on()

    def _next_packet(self) -> bytes | None:
        """The next packet of the bridge; None when there is none, or when the bridge has ended."""
        if self._bridge is None:
            return None
        try:
            packet = self._bridge.recv(PACKET_BYTES_MOST)
        except BlockingIOError:
            return None
        except ConnectionResetError:
            packet = b""
        if not packet:
            self._disconnect()
            return None
        return packet

    # ---- to other hosts ----

    def _start_sending(self, host: str) -> None:
        outbox = self._outboxes.get(host)
        if outbox is not None and outbox.frames and not outbox.is_sending:
            outbox.is_sending = True
            task = self._loop.create_task(self._send_all(host, outbox))
            self._sends.add(task)
            task.add_done_callback(self._sends.discard)

    async def _send_all(self, host: str, outbox: WaitingFrames) -> None:
        """Send batch after batch until nothing waits, or the host turns out to be gone."""
        while frames := outbox.batch():
            try:
                async with asyncio.timeout(self._send_deadline_s):
                    await self._send(host, frames)
            except (HostUnreachable, TimeoutError):
                self.counts.dropped += len(frames)
                if self._outboxes.get(host) is outbox:  # else the bridge has been replaced meanwhile
                    self.gone(host)
                break
            self.counts.sent += len(frames)
            self.counts.batches += 1
            self._read_on()
        outbox.is_sending = False
        if not outbox.frames and self._outboxes.get(host) is outbox:
            del self._outboxes[host]
        self._read_on()

    def _drop(self, host: str) -> None:
        """Drop what waits for a host; a batch that is under way ends by itself."""
        outbox = self._outboxes.pop(host, None)
        if outbox is not None:
            self.counts.dropped += len(outbox.frames)
            outbox.frames.clear()
            outbox.waiting_bytes = 0
        self._read_on()

    # ---- to the bridge ----

    def _enqueue(self, packets: list[bytes]) -> None:
        self._to_bridge.extend(packets)
        self._to_bridge_bytes += sum(map(len, packets))
        self._writable()

    def _writable(self) -> None:
        """Send what the bridge takes now, and come back when it takes more."""
        bridge = self._bridge
        if bridge is None:
            return
        try:
            while self._to_bridge:
                bridge.send(self._to_bridge[0])
                self._to_bridge_bytes -= len(self._to_bridge.popleft())
        except BlockingIOError:
            self._loop.add_writer(bridge, self._writable)
        except OSError:  # it has ended; the end is also read
            self._disconnect()
            return
        else:
            self._loop.remove_writer(bridge)
        if self._to_bridge_bytes < WAITING_BYTES_MOST:
            self._has_room.set()
        else:
            self._has_room.clear()


def _head(host: str) -> bytes:
    """The head of a packet: the length of a host's name, and the name."""
    name = os.fsencode(host)
    return bytes([len(name)]) + name


def _parsed(packet: bytes) -> tuple[str, bytes]:
    """The host and the frame of a packet."""
    end = 1 + packet[0]
    return os.fsdecode(packet[1:end]), packet[end:]
