"""The encrypted link between machines: CURVE keys, and the two ends of a ZeroMQ connection over TCP.

CURVE (rfc.zeromq.org/spec/26) encrypts and authenticates both ends: a follower knows the leader's public
key, the leader lists the public keys of its followers. Each connection has its own short-lived keys and
every box a number that only grows, so recorded bytes are of no use to anyone, in this connection or in
another. Who a message is from is what its key says (`User-Id`), never what the message says.

No key, no start. A key file others can read is refused. One address is listened on, never all.

    python -m actors.curve keys/a      # writes keys/a/secret (0600) and keys/a/public
"""

import os
import stat
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import zmq
from zmq.utils import z85

from actors.codec import MAX_MESSAGE_BYTES
from actors.errors import LinkNotAllowed

MAX_FRAME_BYTES = MAX_MESSAGE_BYTES + 4096
"""A message of mail and its header; who sends more is hung up on."""

QUEUE_FRAMES = 1000
"""Frames that wait for one host before the sender is told its link is full."""

HANDSHAKE_MS = 10_000
"""A stranger who connects and says nothing holds a connection no longer."""

HEARTBEAT_MS = 5_000
"""A connection whose other end vanished without a word is closed after three of these."""

RECONNECT_MS = 100

_ZAP_ENDPOINT = "inproc://zeromq.zap.01"
_HANDSHAKES_REFUSED = (
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)


@dataclass(frozen=True, slots=True)
class LinkKeys:
    """One machine's own pair, as Z85 text."""

    public: bytes
    secret: bytes


def make_keys(folder: Path) -> LinkKeys:
    """Write a fresh pair for one machine, unless the folder has one; then that one is returned."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "secret").exists():
        public, secret = zmq.curve_keypair()
        fd = os.open(folder / "secret", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(secret)
        (folder / "public").write_bytes(public)
    return read_keys(folder)


def read_keys(folder: Path) -> LinkKeys:
    """The pair of this machine. Raises LinkNotAllowed when there is none, or others can read it."""
    path = folder / "secret"
    try:
        mode = path.stat().st_mode
        secret = path.read_bytes().strip()
    except FileNotFoundError:
        raise LinkNotAllowed(
            f"no key at {path}, and without one no link opens; make it with: python -m actors.curve {folder}"
        ) from None
    if stat.S_IMODE(mode) & 0o077:
        raise LinkNotAllowed(
            f"{path} has mode {stat.S_IMODE(mode):o}: others can read it, so its key is no secret any more; "
            f"delete it, run python -m actors.curve {folder}, and give the other machines the new public key"
        )
    return LinkKeys(zmq.curve_public(_checked_key(secret, str(path))), secret)


def _checked_key(text: bytes, where: str) -> bytes:
    if len(text) != 40:
        raise LinkNotAllowed(f"{where} holds {len(text)} characters; a CURVE key has 40 (Z85)")
    return text


class Wire(Protocol):
    """What a bridge needs of its connection."""

    fds: tuple[int, ...]
    """Readable when something may have come."""
    strangers: int
    """Connections that were refused because of their key, or because they spoke no CURVE."""

    def send(self, host: str, frame: bytes) -> bool:
        """False when nothing connects to that host or its queue is full; then nothing was sent."""

    def receive(self) -> tuple[str, bytes] | None:
        """The next frame and the host whose key it came under; None when there is none."""

    def settle(self, host: str) -> None:
        """Answer that host where the frame received last came from: it belongs to what is going on now."""

    def close(self, linger_ms: int = 0) -> None:
        """End every connection; what was not sent is dropped, unless it is given a moment."""


class ListeningWire:
    """The leader's end: one address, many followers, each known by its key."""

    def __init__(self, address: str, keys: LinkKeys, followers: Mapping[str, str]) -> None:
        """address: `tcp://10.0.0.1:7000`; followers: host name to public key. Raises LinkNotAllowed."""
        if "*" in address or "0.0.0.0" in address or "[::]" in address:
            raise LinkNotAllowed(f"listen is {address!r}: a link listens on one address, name it")
        self._names = {
            z85.decode(_checked_key(key.encode(), f"the public key of {host!r}")): host
            for host, key in followers.items()
        }
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._zap = self._context.socket(zmq.REP)
        self._zap.bind(_ZAP_ENDPOINT)
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._socket.setsockopt(zmq.CURVE_SERVER, 1)
        self._socket.setsockopt(zmq.CURVE_SECRETKEY, keys.secret)
        self._socket.setsockopt(zmq.ZAP_DOMAIN, b"link")
        self._monitor = _set_up(self._socket)
        try:
            self._socket.bind(address)
        except zmq.ZMQError as error:
            self._context.destroy(linger=0)
            raise LinkNotAllowed(f"cannot listen on {address!r}: {error.strerror}") from error
        self._routes: dict[str, bytes] = {}
        self._came_from = b""
        self.strangers = 0
        self.fds = tuple(int(s.getsockopt(zmq.FD)) for s in (self._socket, self._zap, self._monitor))

    def send(self, host: str, frame: bytes) -> bool:
        route = self._routes.get(host)
        if route is None:
            return False
        try:
            self._socket.send_multipart([route, frame], zmq.NOBLOCK)
        except zmq.ZMQError as error:
            if error.errno not in (zmq.EAGAIN, zmq.EHOSTUNREACH):
                raise
            return False
        return True

    def receive(self) -> tuple[str, bytes] | None:
        self._answer_handshakes()
        self.strangers += _count_events(self._monitor)
        while True:
            try:
                parts = self._socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return None
            if len(parts) == 2:
                host = str(parts[1].get("User-Id"))
                self._came_from = parts[0].bytes
                return host, parts[1].bytes

    def settle(self, host: str) -> None:
        """What a closed connection still brings must not turn the answers away from the open one."""
        self._routes[host] = self._came_from

    def close(self, linger_ms: int = 0) -> None:
        self._socket.disable_monitor()
        self._context.destroy(linger=linger_ms)

    def _answer_handshakes(self) -> None:
        """ZAP (rfc.zeromq.org/spec/27): a key that is listed is let in, under its host's name."""
        while True:
            try:
                version, request, _domain, _address, _route, mechanism, *proof = self._zap.recv_multipart(
                    zmq.NOBLOCK
                )
            except zmq.Again:
                return
            host = self._names.get(proof[0]) if mechanism == b"CURVE" and proof else None
            verdict = (b"200", b"OK", host.encode()) if host else (b"400", b"key is not listed", b"")
            self._zap.send_multipart([version, request, *verdict, b""])


class ConnectingWire:
    """A follower's end: one connection, to the leader whose public key it knows."""

    def __init__(self, address: str, keys: LinkKeys, leader_key: str, *, give_up_ms: int) -> None:
        """give_up_ms: an attempt to connect that takes longer is made anew. Raises LinkNotAllowed."""
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(
            zmq.CURVE_SERVERKEY, _checked_key(leader_key.encode(), "the leader's public key")
        )
        self._socket.setsockopt(zmq.CURVE_PUBLICKEY, keys.public)
        self._socket.setsockopt(zmq.CURVE_SECRETKEY, keys.secret)
        self._socket.setsockopt(zmq.CONNECT_TIMEOUT, give_up_ms)
        self._socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
        self._monitor = _set_up(self._socket)
        self._socket.connect(address)
        self.strangers = 0
        self.fds = tuple(int(s.getsockopt(zmq.FD)) for s in (self._socket, self._monitor))

    def send(self, host: str, frame: bytes) -> bool:
        try:
            self._socket.send(frame, zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True

    def receive(self) -> tuple[str, bytes] | None:
        """Only the leader can be on the other side: its key was asked for."""
        self.strangers += _count_events(self._monitor)
        try:
            return "", self._socket.recv(zmq.NOBLOCK)
        except zmq.Again:
            return None

    def settle(self, host: str) -> None:
        """There is one connection."""

    def close(self, linger_ms: int = 0) -> None:
        self._socket.disable_monitor()
        self._context.destroy(linger=linger_ms)


def _set_up(socket: "zmq.Socket[bytes]") -> "zmq.Socket[bytes]":
    """Limits, and the monitor that tells of refused handshakes."""
    for option, value in (
        (zmq.SNDHWM, QUEUE_FRAMES),
        (zmq.RCVHWM, QUEUE_FRAMES),
        (zmq.MAXMSGSIZE, MAX_FRAME_BYTES),
        (zmq.HANDSHAKE_IVL, HANDSHAKE_MS),
        (zmq.HEARTBEAT_IVL, HEARTBEAT_MS),
        (zmq.HEARTBEAT_TIMEOUT, 3 * HEARTBEAT_MS),
        (zmq.LINGER, 0),
    ):
        socket.setsockopt(option, value)
    return socket.get_monitor_socket(_HANDSHAKES_REFUSED)


def _count_events(monitor: "zmq.Socket[bytes]") -> int:
    count = 0
    while True:
        try:
            monitor.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return count
        count += 1


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m actors.curve FOLDER")
    print(make_keys(Path(sys.argv[1])).public.decode())
