"""Frames from process to process over unix sockets: whole, in order, and sending never blocks.

Every inbox is a listening SOCK_SEQPACKET socket, `<mail_dir>/<slot>`, renamed into
place by each incarnation, so that a hundred thousand restarts leave one file. A
sender holds one connection per receiver. A sent frame is in the receiver's queue
at once: no thread carries it, and it stays there when its sender ends.

Memory is bounded: for each connection the kernel holds at most one send buffer,
and the sender at most QUEUE_BYTES and QUEUE_MESSAGES behind it. A receiver reads
no more frames than it handles.

All events (connections, outboxes that can be written, receivers that ended) come
through one epoll descriptor, so that an actor's loop watches only that.
"""

import contextlib
import os
import select
import socket
import struct
import time
import weakref
from collections import deque
from collections.abc import Callable
from pathlib import Path

from actors.process import can_open
from actors.timerfd import Alarm

QUEUE_MESSAGES = 1000
"""The most messages that may wait in one outbox; one more is refused as MailboxFull."""

QUEUE_BYTES = 1024 * 1024
"""The most bytes that may wait in one outbox, behind the kernel's send buffer."""

LINGER_S = 0.2
"""How long a stopping actor tries to send the frames that its outboxes still hold."""

POLL_EVERY = 64
"""The number of frames after which all senders are polled again, however much the first ones send."""

BACKLOG = 4096

RETRY_S = 0.001
RETRY_MAX_S = 0.05
"""Longest time between attempts to reach a receiver without an inbox; the time doubles up to this."""

SPARE_DESCRIPTORS = 8
"""File descriptors kept free for the rest of the process. When no more are free, frames wait to be sent and
senders wait to connect."""

_PEER = struct.Struct("3i")
_TRUSTED_UIDS = frozenset({0, os.geteuid()})


class Outbox:
    """Frames on their way to one incarnation: not yet connected, connected, or ended for good."""

    def __init__(self, path: str, incarnation: int) -> None:
        self.path = path
        self.incarnation = incarnation
        self.socket: socket.socket | None = None
        self.has_ended = False
        self.waiting: deque[bytes] = deque()
        self._waiting_bytes = 0

    def put(self, frame: bytes) -> bool:
        """Send or keep a frame; False: no room is left. Raises ConnectionError after the receiver's end."""
        if self.has_ended:
            raise ConnectionResetError
        if not self.waiting and self.socket is not None and self._sent(frame):
            return True
        if len(self.waiting) >= QUEUE_MESSAGES or self._waiting_bytes + len(frame) > QUEUE_BYTES:
            return False
        self.waiting.append(frame)
        self._waiting_bytes += len(frame)
        return True

    def connect(self) -> bool:
        """Connect to the receiver's inbox; False while there is none."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        try:
            connection.connect(self.path)
        except (FileNotFoundError, ConnectionRefusedError, BlockingIOError):
            connection.close()
            return False
        self.socket = connection
        return True

    def flush(self) -> bool:
        """Send what waits; True when all was sent. Raises ConnectionError."""
        while self.waiting and self._sent(self.waiting[0]):
            self._waiting_bytes -= len(self.waiting.popleft())
        return not self.waiting

    def _sent(self, frame: bytes) -> bool:
        assert self.socket is not None
        try:
            self.socket.send(frame)
        except BlockingIOError:
            return False
        return True


class Transport:
    """The inbox and the outboxes of one process, on one descriptor."""

    def __init__(self, mail_dir: Path, max_frame_bytes: int, is_current: Callable[[int, int], bool]) -> None:
        self._mail_dir = mail_dir
        self._read_bytes = max_frame_bytes + 1  # one more shows that a frame is too long
        self._is_current = is_current
        self._epoll = select.epoll()
        self._listener: socket.socket | None = None
        self._connections: dict[int, socket.socket] = {}
        self._ready: deque[socket.socket] = deque()
        self._until_poll = 0
        self._outboxes: dict[int, Outbox] = {}
        self._slots: dict[int, int] = {}
        self._unconnected: set[int] = set()
        self._retry: Alarm | None = None
        self._is_out_of_descriptors = False
        self._retry_s = RETRY_S
        self.lost = 0
        """The number of frames that waited for receivers which ended before they took them."""
        _transports.add(self)

    def bind(self, slot: int, incarnation: int, listener_fd: int | None) -> int:
        """Open the inbox, or take over one that listens already.

        Returns a descriptor that is readable when there is something to do.
        """
        if listener_fd is None:
            self._listener = listen(self._mail_dir, slot, incarnation)
        else:
            self._listener = socket.socket(fileno=listener_fd)
        self._epoll.register(self._listener, select.EPOLLIN)
        self._retry_alarm()  # opened now: it is needed when no descriptor is to be had
        return self._epoll.fileno()

    def put(self, slot: int, incarnation: int, frame: bytes) -> bool:
        """Hand a frame over; False when the receiver's mailbox is full.

        Raises ConnectionError when that incarnation has ended.
        """
        outbox = self._outboxes.get(slot)
        if outbox is None or outbox.incarnation != incarnation:
            outbox = self._open(slot, incarnation)
        had_waiting = bool(outbox.waiting)
        try:
            is_taken = outbox.put(frame)
        except ConnectionError:
            self._end(slot)
            raise
        if outbox.waiting and not had_waiting and outbox.socket is not None:
            self._epoll.modify(outbox.socket, select.EPOLLOUT)
        return is_taken

    def take(self) -> bytes | None:
        """The next frame, from each sender in turn; None when there is none now."""
        if not self._ready or not self._until_poll:
            self._poll()
        while self._ready:
            connection = self._ready[0]
            try:
                frame = connection.recv(self._read_bytes)
            except BlockingIOError:
                self._ready.popleft()
                continue
            except ConnectionError:
                frame = b""
            if not frame:
                self._ready.popleft()
                self._hang_up(connection)
                continue
            self._ready.rotate(-1)
            self._until_poll -= 1
            return frame
        return None

    def flush(self, timeout_s: float) -> bool:
        """Wait until every outbox is empty; False when one still is not after `timeout_s`."""
        give_up = time.monotonic() + timeout_s
        while any(outbox.waiting for outbox in self._outboxes.values()):
            left_s = give_up - time.monotonic()
            if left_s <= 0:
                return False
            self._epoll.poll(min(left_s, RETRY_MAX_S))
            self._poll()
        return True

    def close(self) -> None:
        """Send what waits, for LINGER_S at most; then close everything."""
        self.flush(LINGER_S)
        self.abandon()

    def abandon(self) -> None:
        """Close everything at once. A forked child closes only its copies: its parent stays connected."""
        for holder in (
            *self._connections.values(),
            *(outbox.socket for outbox in self._outboxes.values()),
            self._listener,
            self._epoll,
        ):
            if holder is not None:
                holder.close()
        if self._retry is not None:
            self._retry.close()
        self._connections.clear()
        self._ready.clear()
        self._outboxes.clear()
        self._retry = self._listener = None

    # ---- what the descriptor says ----

    def _poll(self) -> None:
        """Find the senders that have sent, and handle every other event."""
        self._until_poll = POLL_EVERY
        self._ready.clear()
        for fd, events in self._epoll.poll(0):
            connection = self._connections.get(fd)
            if connection is not None:
                self._ready.append(connection)
            elif fd in self._slots:
                self._outbox_ready(self._slots[fd], events)
            elif self._listener is not None and fd == self._listener.fileno():
                self._accept()
            else:
                self._connect_again()

    def _accept(self) -> None:
        assert self._listener is not None
        while True:
            if not self._has_descriptors():
                self._pause_accepting()
                return
            try:
                connection, _ = self._listener.accept()
            except BlockingIOError:
                return
            peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
            if _PEER.unpack(peer)[1] not in _TRUSTED_UIDS:
                connection.close()
                continue
            connection.setblocking(False)
            self._connections[connection.fileno()] = connection
            self._epoll.register(connection, select.EPOLLIN)
            self._ready.append(connection)

    def _has_descriptors(self) -> bool:
        return can_open(SPARE_DESCRIPTORS, self._epoll.fileno())

    def _pause_accepting(self) -> None:
        """Ignore the listener for a while when no descriptor is left. Otherwise the loop would spin on it."""
        assert self._listener is not None
        self._is_out_of_descriptors = True
        self._epoll.modify(self._listener, 0)
        self._ring(RETRY_MAX_S)

    def _hang_up(self, connection: socket.socket) -> None:
        del self._connections[connection.fileno()]
        _close(self._epoll, connection)

    def _outbox_ready(self, slot: int, events: int) -> None:
        outbox = self._outboxes[slot]
        try:
            if events & (select.EPOLLHUP | select.EPOLLERR):
                raise ConnectionResetError
            if outbox.flush() and outbox.socket is not None:
                self._epoll.modify(outbox.socket, 0)
        except ConnectionError:
            self._end(slot)

    # ---- outboxes ----

    def _open(self, slot: int, incarnation: int) -> Outbox:
        self._end(slot)
        outbox = self._outboxes[slot] = Outbox(f"{self._mail_dir}/{slot}", incarnation)
        if not self._connect(slot, outbox):
            self._unconnected.add(slot)
            self._retry_s = RETRY_S
            self._ring(self._retry_s)
        return outbox

    def _connect(self, slot: int, outbox: Outbox) -> bool:
        if not self._has_descriptors() or not outbox.connect():
            return False
        assert outbox.socket is not None
        self._slots[outbox.socket.fileno()] = slot
        self._epoll.register(
            outbox.socket, select.EPOLLOUT if outbox.waiting else 0
        )  # a hang-up always shows
        return True

    def _end(self, slot: int) -> None:
        """Close the outbox of a receiver that has ended, and drop what waits for it."""
        outbox = self._outboxes.get(slot)
        if outbox is None:
            return
        outbox.has_ended = True
        self.lost += len(outbox.waiting)
        outbox.waiting.clear()
        self._unconnected.discard(slot)
        if outbox.socket is not None:
            del self._slots[outbox.socket.fileno()]
            _close(self._epoll, outbox.socket)
            outbox.socket = None

    def _connect_again(self) -> None:
        """Try again to reach receivers that had no inbox, and to open connections that had no descriptor."""
        self._retry_alarm().acknowledge()
        if self._is_out_of_descriptors and self._listener is not None:
            self._is_out_of_descriptors = False
            self._epoll.modify(self._listener, select.EPOLLIN)
            self._accept()
        for slot in list(self._unconnected):
            outbox = self._outboxes[slot]
            if not self._is_current(slot, outbox.incarnation):
                self._end(slot)
            elif self._connect(slot, outbox):
                self._unconnected.discard(slot)
        if self._unconnected:
            self._retry_s = min(2 * self._retry_s, RETRY_MAX_S)
            self._ring(self._retry_s)

    def _ring(self, after_s: float) -> None:
        self._retry_alarm().set_no_later_than(time.monotonic() + after_s)

    def _retry_alarm(self) -> Alarm:
        if self._retry is None:
            self._retry = Alarm()
            self._epoll.register(self._retry.fd, select.EPOLLIN)
        return self._retry


def listen(mail_dir: Path, slot: int, incarnation: int) -> socket.socket:
    """Open a listening inbox in place of the one before it; a sender always finds one of the two."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
    place = mail_dir / str(slot)
    fresh = f"{place}.{incarnation}"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(fresh)  # noqa: PTH108  # on the way of every start
    listener.bind(fresh)
    listener.listen(BACKLOG)
    os.rename(fresh, place)  # noqa: PTH104
    return listener


def _close(epoll: select.epoll, connection: socket.socket) -> None:
    """Unregister a socket, then close it.

    If a forked child has it open, epoll would report a socket that was only closed for ever.
    """
    epoll.unregister(connection)
    connection.close()


_transports: "weakref.WeakSet[Transport]" = weakref.WeakSet()


def _abandon_all() -> None:
    for transport in list(_transports):
        transport.abandon()


os.register_at_fork(after_in_child=_abandon_all)
