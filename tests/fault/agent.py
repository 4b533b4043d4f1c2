"""A stand-in for the agent of a host: packets from a unix socket go out over TCP, and come in from there.

python -m tests.fault.agent HOST WIRE ADDRESS:PORT HOST=ADDRESS:PORT ...

It prints `up` when it listens. Commands come as lines of JSON on its standard input: `{"delay_s": 0.2}`
delays what it sends, `{"is_held": true}` keeps it until it is let go, `{"gone": "b"}` tells its bridge that
host b is gone, `{"hang_up": true}` closes the wire. It ends with its standard input.
"""

import contextlib
import json
import os
import select
import socket
import struct
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

from actors.process import die_with_parent
from actors.wire import MAX_PACKET_BYTES, opened, packet

CONNECT_S = 1.0
"""A connection that is not made in this time is tried anew."""

UNACKNOWLEDGED_MS = 2500
"""A connection over which nothing arrives for so long is given up; what it held is lost."""

_LENGTH = struct.Struct("!I")


class Way:
    """The connection to one other agent, made when there is something to send."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address
        self.socket: socket.socket | None = None
        self.waiting: deque[tuple[float, bytes]] = deque()
        self.rest = b""
        self.since_s = 0.0
        self.is_connected = False

    def send_what_is_due(self, now_s: float) -> None:
        if self.socket is None and (self.rest or (self.waiting and self.waiting[0][0] <= now_s)):
            self._connect(now_s)
        if self.socket is not None and not self.is_connected:
            self._finish_connecting(now_s)
        try:
            while self.is_connected and (self.rest or (self.waiting and self.waiting[0][0] <= now_s)):
                assert self.socket is not None
                self.rest = self.rest or self.waiting.popleft()[1]
                self.rest = self.rest[self.socket.send(self.rest) :]
        except BlockingIOError:
            return
        except OSError:
            self.close()

    def close(self) -> None:
        if self.socket is not None:
            self.socket.close()
        self.socket, self.rest, self.is_connected = None, b"", False

    def _connect(self, now_s: float) -> None:
        self.socket = socket.socket()
        self.socket.setblocking(False)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_MS)
        self.since_s = now_s
        with contextlib.suppress(BlockingIOError, OSError):
            self.socket.connect(self.address)

    def _finish_connecting(self, now_s: float) -> None:
        assert self.socket is not None
        _, writable, _ = select.select([], [self.socket], [], 0)
        if writable and not self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.is_connected = True
        elif writable or now_s - self.since_s > CONNECT_S:
            self.close()
            self.waiting.clear()  # as a cable without another end


class StandIn:
    """The agent of one host."""

    def __init__(
        self, host: str, wire: Path, address: tuple[str, int], peers: dict[str, tuple[str, int]]
    ) -> None:
        self.delay_s = 0.0
        self.is_held = False
        self._host = host
        self._ways = {peer: Way(at) for peer, at in peers.items()}
        self._wire = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        wire.unlink(missing_ok=True)
        self._wire.bind(str(wire))
        self._wire.listen()
        self._listener = socket.create_server(address)
        self._bridge: socket.socket | None = None
        self._incoming: dict[socket.socket, bytes] = {}
        self._for_bridge: deque[bytes] = deque()

    def run(self) -> None:
        while True:
            ready = select.select(self._sources(), [], [], 0.002 if self._is_busy() else 0.1)[0]
            for source in ready:
                if source is sys.stdin:
                    line = sys.stdin.readline()
                    if not line:
                        return
                    self._obey(json.loads(line))
                else:
                    self._take(source)
            if not self.is_held:
                for way in self._ways.values():
                    way.send_what_is_due(time.monotonic())
            self._tell_bridge()

    def _sources(self) -> list[Any]:
        own = [self._bridge] if self._bridge is not None else []
        return [sys.stdin, self._wire, self._listener, *own, *self._incoming]

    def _is_busy(self) -> bool:
        return bool(self._for_bridge) or any(way.waiting or way.rest for way in self._ways.values())

    def _obey(self, command: dict[str, Any]) -> None:
        self.delay_s = command.get("delay_s", self.delay_s)
        self.is_held = command.get("is_held", self.is_held)
        if "gone" in command:
            self._for_bridge.append(packet(command["gone"], b""))
        if command.get("hang_up"):
            self._close_bridge()

    def _take(self, source: socket.socket) -> None:
        if source is self._wire:
            self._close_bridge()
            self._bridge, _ = self._wire.accept()
            self._bridge.setblocking(False)
        elif source is self._listener:
            connection, _ = self._listener.accept()
            self._incoming[connection] = b""
        elif source is self._bridge:
            self._take_from_bridge()
        elif source in self._incoming:
            self._take_from_peer(source)

    def _take_from_bridge(self) -> None:
        assert self._bridge is not None
        while True:
            try:
                data = self._bridge.recv(MAX_PACKET_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            found = opened(data) if data else None
            if found is None:
                self._close_bridge()
                return
            to, frame = found
            body = packet(self._host, frame)
            if to in self._ways:
                due_s = time.monotonic() + self.delay_s
                self._ways[to].waiting.append((due_s, _LENGTH.pack(len(body)) + body))

    def _take_from_peer(self, source: socket.socket) -> None:
        try:
            data = source.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            del self._incoming[source]
            source.close()
            return
        held = self._incoming[source] + data
        while len(held) >= _LENGTH.size and len(held) >= (end := _LENGTH.size + _LENGTH.unpack_from(held)[0]):
            self._for_bridge.append(held[_LENGTH.size : end])
            held = held[end:]
        self._incoming[source] = held

    def _tell_bridge(self) -> None:
        """What comes while no bridge is there is lost, as with an agent that has nobody to give it to."""
        if self._bridge is None:
            self._for_bridge.clear()
        try:
            while self._bridge is not None and self._for_bridge:
                self._bridge.send(self._for_bridge[0])
                self._for_bridge.popleft()
        except BlockingIOError:
            return
        except OSError:
            self._close_bridge()

    def _close_bridge(self) -> None:
        if self._bridge is not None:
            self._bridge.close()
            self._bridge = None


class AgentProcess:
    """A stand-in in a process of its own, as a test or a benchmark holds it."""

    def __init__(
        self,
        host: str,
        wire: Path,
        address: tuple[str, int],
        peers: dict[str, tuple[str, int]],
        command: tuple[str, ...] = (),
    ) -> None:
        """command: what the process is started with, to have it in a network namespace for example."""
        others = [f"{peer}={at[0]}:{at[1]}" for peer, at in peers.items() if peer != host]
        self.wire = wire
        self._process = subprocess.Popen(
            [
                *command,
                sys.executable,
                "-m",
                __name__,
                host,
                str(wire),
                f"{address[0]}:{address[1]}",
                *others,
            ],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "up\n", f"the agent of {host} did not come up"

    def tell(self, **command: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()

    def send_signal(self, number: int) -> None:
        self._process.send_signal(number)

    def close(self) -> None:
        self._process.kill()
        self._process.wait(10.0)
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()


def _address(text: str) -> tuple[str, int]:
    address, _, port = text.rpartition(":")
    return address, int(port)


def main(host: str, wire: str, address: str, *others: str) -> None:
    die_with_parent()
    peers = {name: _address(at) for name, _, at in (other.partition("=") for other in others)}
    stand_in = StandIn(host, Path(wire), _address(address), peers)
    print("up", flush=True)
    stand_in.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
