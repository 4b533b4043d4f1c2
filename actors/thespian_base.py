"""The five Thespian calls that actors rely on, made safe.

Thespian 4.0.1 is pinned: every repair below names what it repairs, and the
import fails when a patched attribute is missing. Its source is not copied;
child processes inherit the repairs because they are forked.

What is *not* repaired is not used: exit notices come from pidfds, hangs from
the vitals board, mail goes through `actors.mail`.
"""

import contextlib
import hmac
import importlib.metadata
import io
import logging
import multiprocessing
import os
import pickle
import secrets
import signal
import socket
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

PINNED_VERSION = "4.0.1"

SIGNATURE_BYTES = 32

MAX_FRAME_BYTES = 64 * 1024 * 1024
"""The largest frame. A frame carries the specs of a whole tree at most."""

LENGTH_BYTES = 20
"""The most digits of the length that begins each frame, in decimal."""

UNFINISHED_CONNECTIONS = 128
"""The most connections with an unfinished frame. One more closes the one that was silent longest."""

ADMIN_DEADLINE = timedelta(seconds=30)
"""The longest time from the start of Thespian's admin until it answers."""

FRAME_DEADLINE = timedelta(seconds=10)
"""The longest time for one frame; then its connection is closed (Thespian itself: seven minutes)."""

# Thespian reads its limits when it is imported.
os.environ.setdefault("THESPIAN_BASE_IPADDR", "127.0.0.1")
os.environ.setdefault("THESPIAN_MAX_PENDING_TRANSMITS", "500")  # 20 hung peers must not stop all sends
os.environ.setdefault("THESPIAN_TRANSMIT_TIMEOUT_PERIOD", "0:15")  # mm:ss; five minutes of deafness otherwise
os.environ.setdefault("THESPLOG_FILE", os.devnull)

import thespian.system.addressManager as _addresses  # noqa: E402
import thespian.system.logdirector as _logdirector  # noqa: E402
import thespian.system.multiprocCommon as _common  # noqa: E402
import thespian.system.systemBase as _system  # noqa: E402
import thespian.system.transport.IPBase as _ip  # noqa: E402
import thespian.system.transport.TCPTransport as _tcp  # noqa: E402
from thespian.system.transport import ReceiveEnvelope  # noqa: E402
from thespian.system.transport.streamBuffer import ReceiveBuffer, ackDataErrPacket, ackPacket  # noqa: E402

from actors.process import EXIT_LOOP_ENDED, allow_many_files, die_with_parent  # noqa: E402

_key = b""
_admin_pid_file = Path(os.devnull)
_launcher: Any = None
"""The transport of the launcher, while it starts a system."""
_launchers_port: socket.socket | None = None
"""A socket of the launcher that the admin closes (`install`)."""


class Boot:
    """The only class that Thespian carries for us: what a new process needs to become an actor."""

    def __init__(self, plain: bytes) -> None:
        self.plain = plain

    def __str__(self) -> str:  # Thespian builds str(message) on every send
        return "Boot"


def install(key: bytes, admin_pid_file: Path, held_port: socket.socket | None = None) -> None:
    """Set the key that signs Thespian's frames, and the file in which the admin notes its pid.

    `held_port` is a socket of the launcher that the admin closes, because the processes below it would keep
    its port. Call this before Thespian starts. Raises ValueError for a key of fewer than 16 bytes.
    """
    if len(key) < 16:
        raise ValueError(f"the run key needs at least 16 bytes, got {len(key)}")
    global _key, _admin_pid_file, _launchers_port
    _key, _admin_pid_file, _launchers_port = key, admin_pid_file, held_port


def new_key(path: Path) -> bytes:
    """Write a fresh 32-byte key, readable by its owner alone, and return it."""
    key = secrets.token_bytes(32)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "wb") as file:
        os.fchmod(fd, 0o600)  # it may have been there before
        file.write(key)
    return key


def close_transport(transport: Any) -> None:
    """Close Thespian's sockets in a process that does not need them any more.

    Thespian's own shutdown waits for others, and `close` of a transport (see `_close`) also reports what was
    not sent.
    """
    for holder in (transport, *transport._openSockets.values(), *transport._incomingSockets.values()):
        holder.socket.close()


def send_log_records_to(handler: logging.Handler) -> None:
    """Give what libraries log in this process and its children to `handler` instead of Thespian's logger.

    A logger keeps Thespian's handler when a child is forked. In the child, that handler would use the
    parent's sockets by number, and these numbers belong to the child's own files.
    """
    _logdirector.ThespianLogForwardHandler.handle = lambda _, record: handler.handle(record)


def _assert_pinned() -> None:
    version = importlib.metadata.version("thespian")
    if version != PINNED_VERSION:
        raise ImportError(
            f"thespian {version} is installed, {PINNED_VERSION} is what was repaired and tested; "
            f"run: pip install thespian=={PINNED_VERSION}"
        )
    for module, attribute in (
        (_common, "startChild"),
        (_common, "startAdmin"),
        (_common.multiprocessCommon, "_startAdmin"),
        (_common, "startupASLogger"),
        (
            _common.MultiProcReplicator,
            "_startChildActor",
        ),  # appends to _child_procs, read by actors.thespian_host
        (_common, "uncatchable_signals"),
        (_common, "MultiProcAdmin"),
        (_common, "MAX_ADMIN_STARTUP_DELAY"),
        (_system, "MAX_ADMIN_STATUS_REQ_DELAY"),
        (_common.MultiProcManager, "run"),
        (_addresses.ActorAddressManager, "createLocalAddress"),
        (_logdirector, "ThespianLogForwardHandler"),
        (_tcp, "serializer"),
        (_tcp, "MAX_INCOMING_SOCKET_PERIOD"),
        (_tcp.TCPTransport, "close"),
        (_tcp.TCPTransport, "_acceptNewIncoming"),
        (_tcp.TCPTransport, "_handleReadableIncoming"),
        (ReceiveBuffer, "addMore"),
        (_ip.TCPv4ActorAddress, "bindArgs"),
    ):
        if not hasattr(module, attribute):
            raise ImportError(f"thespian {version}: {module!r} has no {attribute!r} to repair")


# ---- frames: authenticated before anything is unpickled, and then only Thespian's own classes ----

_CONTROL = {pickle.dumps(packet): packet for packet in (ackPacket, ackDataErrPacket)}

_PLAIN_CLASSES = {
    ("builtins", "set"),
    ("builtins", "frozenset"),
    ("builtins", "object"),
    ("copyreg", "_reconstructor"),
    ("collections", "deque"),
    ("logging", "LogRecord"),
    ("socket", "AddressFamily"),
    ("socket", "SocketKind"),
    ("datetime", "timedelta"),
    ("datetime", "datetime"),
}


class _RestrictedUnpickler(pickle.Unpickler):
    def find_class(self, module_name: str, name: str) -> Any:
        if (module_name, name) in _PLAIN_CLASSES:
            return super().find_class(module_name, name)
        # A dotted name reaches through a module to anything it imported: refused, like all but classes.
        if "." not in name and module_name.startswith(("thespian.", "actors.thespian_base")):
            found = super().find_class(module_name, name)
            if isinstance(found, type) and found.__module__ == module_name:
                return found
        raise pickle.UnpicklingError(f"a frame of Thespian may not contain {module_name}.{name}")


class SignedFrames:
    """Thespian's serializer, with a signature in front of each frame."""

    @staticmethod
    def dumps(value: object) -> bytes:
        raw = pickle.dumps(value, 5)
        return hmac.digest(_key, raw, "sha256") + raw

    @staticmethod
    def loads(frame: bytes) -> Any:
        if frame in _CONTROL:
            return _CONTROL[frame]
        raw = frame[SIGNATURE_BYTES:]
        if not _key or not hmac.compare_digest(hmac.digest(_key, raw, "sha256"), frame[:SIGNATURE_BYTES]):
            raise pickle.UnpicklingError("frame is not signed with this run's key")
        return _RestrictedUnpickler(io.BytesIO(raw)).load()


_stock_add_more = ReceiveBuffer.addMore


def _add_more(self: Any, data: bytes) -> None:
    """Refuse frames of impossible length.

    In stock Thespian a negative length ends the actor, and a huge or endless one fills its memory.
    """
    _stock_add_more(self, data)
    if self._size is None and len(self._buf) > LENGTH_BYTES:
        raise ValueError(
            f"expected a frame to begin with a length of at most {LENGTH_BYTES} digits, got "
            f"{self._buf[:LENGTH_BYTES]!r}"
        )
    if self._size is not None and not 0 <= self._size <= MAX_FRAME_BYTES:
        raise ValueError(f"expected a frame of 0 to {MAX_FRAME_BYTES} bytes, got {self._size}")


_stock_close = _tcp.TCPTransport.close


def _close(self: Any) -> None:
    """Close the sockets as well, which stock Thespian leaves to the garbage collector."""
    idle = getattr(self, "_openSockets", {}).values()
    sockets = [holder.socket for holder in (self, *idle) if hasattr(holder, "socket")]
    _stock_close(self)
    for each in sockets:
        each.close()


_stock_accept = _tcp.TCPTransport._acceptNewIncoming
_stock_read = _tcp.TCPTransport._handleReadableIncoming


def _accept(self: Any) -> None:
    """Limit the number of silent connections.

    Stock Thespian keeps each for minutes, until the process is out of descriptors.
    """
    _stock_accept(self)
    if len(self._incomingSockets) > UNFINISHED_CONNECTIONS:
        silent_longest = next(iter(self._incomingSockets))  # one that sends is put back at the end
        self._incomingSockets.pop(silent_longest).close()


def _read(self: Any, connection: Any, has_exclusive_flag: bool = False) -> Any:
    """Limit the sum of all unfinished frames to the size of one frame.

    Otherwise a sender could fill the memory by beginning many.
    """
    if connection._expires.view().expired():  # stock tries twenty times more
        connection.close()
        return None
    unfinished = _stock_read(self, connection, has_exclusive_flag=has_exclusive_flag)
    if unfinished is None:
        return None
    waiting = (unfinished, *self._incomingSockets.values())
    if sum(len(each._rData._buf) for each in waiting) > MAX_FRAME_BYTES:
        unfinished.close()
        return None
    return unfinished


# ---- memory: what a dead child leaves in its parent ----

_stock_address_manager = _addresses.ActorAddressManager.__init__
_stock_start_child_actor = _common.MultiProcReplicator._startChildActor


class _Children(dict[int, Any]):
    """Thespian's list of the addresses of an actor's children, as a table from which entries can be deleted.

    The keys are the instance numbers that Thespian gives to the children. Thespian itself never removes an
    address, so its list grows with every restart.
    """

    def __init__(self) -> None:
        super().__init__()
        self._next = 0

    def append(self, address: Any) -> None:
        self[self._next] = address
        self._next += 1

    def __len__(self) -> int:
        """The number of children there ever were. Thespian uses it as the number of the next child."""
        return self._next

    def __missing__(self, number: int) -> None:
        return None


def _init_address_manager(self: Any, *args: Any) -> None:
    _stock_address_manager(self, *args)
    self._managed = _Children()


def _start_child_actor(self: Any, address: Any, *args: Any, **kwargs: Any) -> None:
    """Delete what Thespian keeps of dead children, then start the child.

    Thespian keeps the address of each dead child, and more when several die together.
    """
    started = address.addressDetails.addressInstanceNum
    _forget_all_but({started} | {info.childNum for info in getattr(self, "_child_procs", ())}, self)
    _stock_start_child_actor(self, address, *args, **kwargs)


def _forget_all_but(living: set[int], parent: Any) -> None:
    addresses = parent._addrManager._managed
    for number in addresses.keys() - living:
        del addresses[number]
    known = {id(address) for address in addresses.values()}
    parent._children = [child for child in parent._children if id(child) in known]
    waiting = parent._awaitingAddressUpdate
    waiting._awt = [each for each in waiting._awt if each[0].addressDetails.addressInstanceNum in living]


# ---- processes: die with the parent, never trap a fault ----

_stock_start_child = _common.startChild
_stock_start_admin = _common.startAdmin
_stock_start_logger = _common.startupASLogger


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "expected a process that Thespian started, got one without a parent"
    die_with_parent(parent.pid)


class _Newborn:
    """What the next forked child finds in its memory, so that it can begin without waiting for a message."""

    boot: bytes | None = None
    live: Callable[[bytes], None] | None = None


@contextlib.contextmanager
def newborn(boot: bytes, live: Callable[[bytes], None]) -> Iterator[None]:
    """Have a child actor that is created in this block begin with `live(boot)`, before any code of Thespian.

    If `live` returns, the child enters Thespian's loop and finds `Boot(boot)` as its first message.
    """
    _Newborn.boot, _Newborn.live = boot, live
    try:
        yield
    finally:
        _Newborn.boot = _Newborn.live = None


def _start_child(*args: Any, **kwargs: Any) -> None:
    """Run a child's process, and end it with EXIT_LOOP_ENDED when Thespian's loop returns.

    Stock Thespian ends the process with code 0 after a fault of its own, as if the actor were done.
    """
    _die_with_parent()
    try:
        if _Newborn.live is not None and _Newborn.boot is not None:
            _Newborn.live(_Newborn.boot)
        _stock_start_child(*args, **kwargs)
    finally:
        os._exit(EXIT_LOOP_ENDED)


_stock_run = _common.MultiProcManager.run


def _run(self: Any) -> None:
    """Run an actor's loop with `Boot` as its first message if this process is a newborn child."""
    if _Newborn.boot is not None:
        own_address = self.transport.myAddress
        self.transport._incomingEnvelopes.append(ReceiveEnvelope(own_address, Boot(_Newborn.boot)))
        _Newborn.boot = _Newborn.live = None
    _stock_run(self)


def _start_logger(*args: Any, **kwargs: Any) -> Any:
    _die_with_parent()
    return _stock_start_logger(*args, **kwargs)


_stock_launch = _common.multiprocessCommon._startAdmin


def _launch(self: Any, *args: Any) -> None:
    global _launcher
    _launcher = self.transport
    _stock_launch(self, *args)


def _start_admin(*args: Any, **kwargs: Any) -> Any:
    """Start Thespian's admin as a child of the launcher that dies with the launcher.

    Stock Thespian forks once more to turn the admin into a daemon, which outlives its launcher. Here that one
    fork does not happen: `os.fork` returns 0, and this process goes on as if it were the daemon.

    This process first closes the sockets that it inherited from the launcher. Otherwise every process below
    it would keep the launcher's port open.
    """
    _die_with_parent()
    close_transport(_launcher)
    if _launchers_port is not None:
        _launchers_port.close()
    allow_many_files()
    _admin_pid_file.write_text(str(os.getpid()))
    real_fork = os.fork

    def pretend_to_be_the_daemon() -> int:
        os.fork = real_fork
        return 0

    os.fork = pretend_to_be_the_daemon
    return _stock_start_admin(*args, **kwargs)


def _repair() -> None:
    _assert_pinned()
    _tcp.serializer = SignedFrames
    ReceiveBuffer.addMore = _add_more
    _tcp.MAX_INCOMING_SOCKET_PERIOD = FRAME_DEADLINE
    # Two and five seconds: on a machine with too much to do a healthy admin was taken for none.
    _common.MAX_ADMIN_STARTUP_DELAY = _system.MAX_ADMIN_STATUS_REQ_DELAY = ADMIN_DEADLINE
    _tcp.TCPTransport.close = _close
    _tcp.TCPTransport._acceptNewIncoming = _accept
    _tcp.TCPTransport._handleReadableIncoming = _read
    _addresses.ActorAddressManager.__init__ = _init_address_manager
    _common.MultiProcReplicator._startChildActor = _start_child_actor
    # Listen on the advertised address alone, not on every interface.
    _ip.TCPv4ActorAddress.bindArgs = property(lambda self: (self.sockname,))
    _common.startChild = _start_child
    _common.MultiProcManager.run = _run
    _common.startupASLogger = _start_logger
    _common.startAdmin = _start_admin
    _common.multiprocessCommon._startAdmin = _launch
    # The admin dies when its logger does: it looks for its logging set-up under a name it does not have.
    _common.MultiProcAdmin.logDefs = property(lambda self: self.logdefs)
    # A Python handler for a synchronous fault returns to the faulting instruction for ever.
    for name in ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT", "SIGTRAP", "SIGSYS"):
        number = getattr(signal, name)
        if number not in _common.uncatchable_signals:
            _common.uncatchable_signals.append(number)


_repair()
