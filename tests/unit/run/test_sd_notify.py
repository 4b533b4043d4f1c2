"""What the service manager hears."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from dart.run.daemon import notify, watchdog_every_s


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """The socket of a service manager, reached by a short path."""
    monkeypatch.chdir(tmp_path)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listening.bind("notify")
    listening.settimeout(5.0)
    monkeypatch.setenv("NOTIFY_SOCKET", "notify")
    yield listening
    listening.close()


def test_each_word_is_one_line_of_one_datagram(manager: socket.socket) -> None:
    notify(READY=1, STATUS="update 7")
    assert manager.recv(1000) == b"READY=1\nSTATUS=update 7"


def test_a_line_break_in_a_word_begins_no_other_word(manager: socket.socket) -> None:
    notify(STATUS="the trainer waits\nWATCHDOG=1")
    assert manager.recv(1000) == b"STATUS=the trainer waits WATCHDOG=1"


def test_a_service_manager_with_an_abstract_name_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"dartrl-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(f"\0{name}")
        listening.settimeout(5.0)
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}")
        notify(READY=1)
        assert listening.recv(1000) == b"READY=1"


def test_a_service_manager_that_reads_nothing_holds_up_no_run(manager: socket.socket) -> None:
    for _ in range(5000):
        notify(WATCHDOG=1)
    assert manager.recv(1000) == b"WATCHDOG=1"


def test_nobody_who_listens_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for address in ("", "/nowhere/at/all", "@no-such-name"):
        monkeypatch.setenv("NOTIFY_SOCKET", address)
        notify(READY=1)


@pytest.mark.parametrize(
    ("environment", "every_s"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "60000000"}, 30.0),
        ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": str(os.getpid())}, 30.0),
        ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_a_sign_of_life_is_due_twice_as_often_as_it_must_be(
    environment: dict[str, str], every_s: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert watchdog_every_s() == every_s
