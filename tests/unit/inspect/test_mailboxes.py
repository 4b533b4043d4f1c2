"""What waits in a mailbox is read from the kernel, whatever the actor does."""

import socket
import struct
from pathlib import Path

import pytest

from actors.transport import listen
from dart.inspect.mailboxes import Mailbox, parse, read_mailboxes


def sender(mail: Path, slot: int) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(f"{mail}/{slot}")
    return connection


def test_what_was_sent_and_not_read_is_counted_by_incarnation(tmp_path: Path) -> None:
    with listen(tmp_path, 3, 7) as inbox, listen(tmp_path, 4, 1), sender(tmp_path, 3) as first:
        if not read_mailboxes(tmp_path):
            pytest.skip("this kernel does not tell of unix sockets (sock_diag)")
        taken, _ = inbox.accept()
        first.send(b"x" * 100)
        first.send(b"y" * 20)
        with sender(tmp_path, 3) as second:
            second.send(b"not heard yet")

            assert read_mailboxes(tmp_path) == {
                (3, 7): Mailbox(waiting_bytes=120, new_senders=1),
                (4, 1): Mailbox(),
            }

        taken.recv(1000)
        assert read_mailboxes(tmp_path)[3, 7].waiting_bytes == 20
        taken.close()


def message(name: bytes, state: int, length: int) -> bytes:
    def attribute(kind: int, value: bytes) -> bytes:
        padded = value.ljust((len(value) + 3) // 4 * 4, b"\0")
        return struct.pack("=HH", 4 + len(value), kind) + padded

    body = struct.pack("=BBBB3I", 1, 5, state, 0, 9, 0, 0) + attribute(0, name)
    body += attribute(4, struct.pack("=II", length, 0))
    return struct.pack("=IHHII", 16 + len(body), 20, 2, 1, 0) + body


def test_only_mailboxes_of_the_folder_count_and_their_connections_add_up() -> None:
    told = [
        message(b"/run/mail/3.7", 10, 2) + message(b"/run/mail/3.7", 1, 50),
        message(b"/run/mail/3.7", 1, 8) + message(b"/run/mail/note", 1, 1) + message(b"/other/3.7", 1, 1),
        message(b"@/run/mail/3.7", 1, 1) + struct.pack("=IHHII", 16, 3, 2, 1, 0),
    ]

    assert parse(iter(told), Path("/run/mail")) == {(3, 7): Mailbox(waiting_bytes=58, new_senders=2)}


def test_a_run_of_another_user_and_environment_is_known_by_the_end_of_its_folders_name() -> None:
    """A service has another XDG_RUNTIME_DIR than whoever looks at it, and often another user."""
    told = [message(b"/run/dartrl-laptop/dartrl-1001-0123456789ab/3.7", 1, 8)]

    assert parse(iter(told), Path("/tmp/dartrl-0-0123456789ab")) == {(3, 7): Mailbox(waiting_bytes=8)}


def test_what_the_kernel_never_says_is_left_out() -> None:
    assert parse(iter([b"", b"\0" * 40, message(b"/run/mail/3.7", 1, 1)[:20]]), Path("/run/mail")) == {}
