"""What waits in the mailboxes of actors, as the kernel has it: an actor that hangs cannot say it itself.

Every mailbox is a unix socket `<mail>/<slot>.<incarnation>` (`actors.transport`) with a connection for each
sender; what was sent and not read lies in the kernel, which tells how much (sock_diag(7),
UDIAG_SHOW_RQLEN). What a sender still holds back because the kernel's room is used up is not in it.
"""

import socket
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

SOCK_DIAG = 4
"""NETLINK_SOCK_DIAG of linux/netlink.h."""

_HEADER = struct.Struct("=IHHII")
"""nlmsghdr: length, type, flags, sequence, port."""
_REQUEST = struct.Struct("=BBHIIIII")
"""unix_diag_req: family, protocol, padding, states, inode, what to show, cookie (two words)."""
_SOCKET_BYTES = 16
"""unix_diag_msg: family, type, state, padding, inode, cookie; attributes follow."""
_ATTRIBUTE = struct.Struct("=HH")
_QUEUE = struct.Struct("=II")

_ASK, _ERROR, _DONE = 20, 2, 3
"""SOCK_DIAG_BY_FAMILY, NLMSG_ERROR, NLMSG_DONE."""
_DUMP = 0x301
"""NLM_F_REQUEST and NLM_F_DUMP."""
_ALL_STATES = 0xFFFFFFFF
_SHOW_NAME, _SHOW_QUEUE = 1, 16
_NAME, _QUEUE_LENGTH = 0, 4
"""UNIX_DIAG_NAME, UNIX_DIAG_RQLEN."""
_STATE_AT = 2
_LISTENING = 10

READ_BYTES = 1 << 18
DEADLINE_S = 1.0


@dataclass(frozen=True, slots=True)
class Mailbox:
    """What one incarnation has not read yet."""

    waiting_bytes: int = 0
    new_senders: int = 0
    """Connections it has not taken up yet; what came by them is not counted in bytes."""


def read_mailboxes(mail: Path) -> Mapping[tuple[int, int], Mailbox]:
    """Every mailbox in a mail folder by slot and incarnation; empty where the kernel does not tell."""
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, SOCK_DIAG) as kernel:
            kernel.settimeout(DEADLINE_S)
            show = _SHOW_NAME | _SHOW_QUEUE
            request = _REQUEST.pack(socket.AF_UNIX, 0, 0, _ALL_STATES, 0, show, 0, 0)
            kernel.send(_HEADER.pack(_HEADER.size + len(request), _ASK, _DUMP, 1, 0) + request)
            return parse(_answers(kernel), mail)
    except OSError:
        return {}


def _answers(kernel: socket.socket) -> Iterator[bytes]:
    """Datagrams until the kernel says that it was all, or that it will not."""
    while True:
        datagram = kernel.recv(READ_BYTES)
        yield datagram
        if any(kind in (_DONE, _ERROR) for kind, _ in _messages(datagram)):
            return


def parse(datagrams: Iterator[bytes], mail: Path) -> Mapping[tuple[int, int], Mailbox]:
    """The mailboxes of a run among all unix sockets that the kernel told of.

    Where its folder lies depends on who runs it, and in what environment; how its name ends on the run alone.
    """
    found: dict[tuple[int, int], Mailbox] = {}
    run = mail.name.rpartition("-")[2].encode()
    for datagram in datagrams:
        for kind, body in _messages(datagram):
            if kind != _ASK or run not in body:
                continue
            attributes = dict(_attributes(body))
            key = _key(attributes.get(_NAME, b""), run)
            if key is not None and _QUEUE_LENGTH in attributes:
                length, _ = _QUEUE.unpack_from(attributes[_QUEUE_LENGTH])
                found[key] = _with(found.get(key, Mailbox()), body[_STATE_AT], length)
    return found


def _messages(datagram: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + _HEADER.size <= len(datagram):
        length, kind, *_ = _HEADER.unpack_from(datagram, at)
        if length < _HEADER.size:
            return
        yield kind, datagram[at + _HEADER.size : at + length]
        at += _aligned(length)


def _attributes(body: bytes) -> Iterator[tuple[int, bytes]]:
    at = _SOCKET_BYTES
    while at + _ATTRIBUTE.size <= len(body):
        length, kind = _ATTRIBUTE.unpack_from(body, at)
        if length < _ATTRIBUTE.size:
            return
        yield kind, body[at + _ATTRIBUTE.size : at + length]
        at += _aligned(length)


def _aligned(length: int) -> int:
    return (length + 3) & ~3


def _key(name: bytes, run: bytes) -> tuple[int, int] | None:
    """Slot and incarnation in the name of a mailbox; None for another socket."""
    folder, _, file = name.rstrip(b"\0").rpartition(b"/")
    slot, dot, incarnation = file.partition(b".")
    is_of_run = folder.startswith(b"/") and folder.endswith(run)
    if not (is_of_run and dot and slot.isdigit() and incarnation.isdigit()):
        return None
    return int(slot), int(incarnation)


def _with(mailbox: Mailbox, state: int, length: int) -> Mailbox:
    """One more socket: of one that listens the kernel counts connections, of the others bytes."""
    if state == _LISTENING:
        return Mailbox(mailbox.waiting_bytes, mailbox.new_senders + length)
    return Mailbox(mailbox.waiting_bytes + length, mailbox.new_senders)
