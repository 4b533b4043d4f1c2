"""A wire between two ends of a TCP connection that a test can lengthen, stop, record, and tamper with."""

import contextlib
import ctypes
import os
import select
import socket
import threading
import time
from collections import deque
from pathlib import Path

_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


class _Way:
    """One direction of one connection: bytes with the moment they are due."""

    def __init__(self, source: socket.socket, target: socket.socket, is_upward: bool) -> None:
        self.source = source
        self.target = target
        self.is_upward = is_upward
        self.waiting: deque[tuple[float, bytes]] = deque()


class Relay:
    """Listens at `address`, passes everything on to `target`; a thread, in a network namespace if named."""

    def __init__(
        self,
        target: tuple[str, int],
        *,
        address: str = "127.0.0.1",
        namespace: str = "",
        delay_s: float = 0.0,
    ) -> None:
        self.delay_s = delay_s
        self.is_held = False
        """What comes up (towards the target) is kept until it is let go."""
        self.recorded: list[bytes] = []
        """Everything that went up, piece by piece."""
        self._target = target
        self._listening_at = (address, 0)
        self._namespace = namespace
        self._ways: list[_Way] = []
        self._repeat_next = False
        self._is_closed = False
        self._is_up = threading.Event()
        self.port = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._is_up.wait(10.0), "the relay did not come up"

    def repeat_next(self) -> None:
        """The next piece that goes up goes up twice."""
        self._repeat_next = True

    def explain(self) -> str:
        waiting = [sum(len(piece) for _, piece in way.waiting) for way in self._ways]
        return f"relay: alive={self._thread.is_alive()} held={self.is_held} bytes waiting={waiting}"

    def close(self) -> None:
        self._is_closed = True
        self._thread.join(10.0)

    def _run(self) -> None:
        if self._namespace:
            enter_namespace(self._namespace)
        with socket.create_server(self._listening_at) as listener:
            self.port = listener.getsockname()[1]
            self._is_up.set()
            while not self._is_closed:
                sources = {way.source: way for way in self._ways}
                for ready in select.select([listener, *sources], [], [], 0.002)[0]:
                    if ready is listener:
                        self._accept(listener)
                    else:
                        self._take(sources[ready])
                for way in list(self._ways):
                    self._pass_on(way)
        for way in self._ways:
            way.source.close()

    def _accept(self, listener: socket.socket) -> None:
        below, _ = listener.accept()
        try:
            above = socket.create_connection(self._target, timeout=1.0)
        except OSError:
            below.close()
            return
        self._ways += [_Way(below, above, True), _Way(above, below, False)]

    def _take(self, way: _Way) -> None:
        try:
            piece = way.source.recv(65536)
        except OSError:
            piece = b""
        if not piece:
            self._hang_up(way)
            return
        if way.is_upward:
            self.recorded.append(piece)
            if self._repeat_next:
                self._repeat_next = False
                piece += piece
        way.waiting.append((time.monotonic() + self.delay_s, piece))

    def _pass_on(self, way: _Way) -> None:
        while way.waiting and way.waiting[0][0] <= time.monotonic() and not (self.is_held and way.is_upward):
            _, piece = way.waiting.popleft()
            with contextlib.suppress(OSError):
                way.target.sendall(piece)

    def _hang_up(self, way: _Way) -> None:
        """Both directions end; what is held of the upward one is still delivered when it is let go."""
        if self.is_held and way.is_upward:
            self._ways = [w for w in self._ways if w.source is not way.target]
            way.source = _never_readable()
            return
        self._ways = [w for w in self._ways if {w.source, w.target} != {way.source, way.target}]
        way.source.close()
        way.target.close()


def _never_readable() -> socket.socket:
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)


def enter_namespace(name: str) -> None:
    """This thread's sockets belong to that network namespace from now on."""
    fd = os.open(Path("/var/run/netns") / name, os.O_RDONLY)
    try:
        if _libc.setns(fd, _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"setns to {name!r} failed")
    finally:
        os.close(fd)
