"""What strangers and dead children can make Thespian's processes keep: little, and not for long."""

import contextlib
import socket
from collections.abc import Iterator
from datetime import timedelta

import psutil
import pytest

from actors import thespian_base
from tests.fault.actors_under_test import Echo, Running, pool, running, worker

PER_CONNECTION_BYTES = 1_000_000


@pytest.fixture(scope="module")
def system() -> Iterator[Running]:
    with running(pool("crowd", worker("a"))) as system:
        system.await_up("crowd", "a")
        yield system


def port_of(pid: int) -> int:
    """Where the process itself takes connections; the launcher's end it has only inherited."""
    own, launchers = (
        {c.laddr.port for c in process.net_connections("tcp") if c.status == psutil.CONN_LISTEN}
        for process in (psutil.Process(pid), psutil.Process())
    )
    (port,) = own - launchers
    return int(port)


def await_refusal(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(b"x>")
        assert connection.recv(1) == b"", "it hangs up"


def test_silent_connections_are_ended_when_there_are_too_many(system: Running) -> None:
    """A stranger who only connects must not use up the descriptors a supervisor needs for children."""
    crowd = psutil.Process(system.pid("crowd"))
    before = crowd.num_fds()
    port = port_of(crowd.pid)
    limit = thespian_base.UNFINISHED_CONNECTIONS
    with contextlib.ExitStack() as open_connections:
        for _ in range(2 * limit):
            connection = socket.create_connection(("127.0.0.1", port), timeout=20)
            open_connections.enter_context(connection)
        system.await_new("a", system.kill("a"))  # the supervisor still forks
        assert crowd.num_fds() <= before + limit + 10
        assert system.probe.ask("a", Echo()) == Echo()


def test_frames_begun_and_not_ended_fill_no_memory(system: Running) -> None:
    crowd = psutil.Process(system.pid("crowd"))
    before = crowd.memory_full_info().uss
    port = port_of(crowd.pid)
    with contextlib.ExitStack() as open_connections:
        for _ in range(thespian_base.UNFINISHED_CONNECTIONS):
            connection = socket.create_connection(("127.0.0.1", port), timeout=20)
            open_connections.enter_context(connection)
            with contextlib.suppress(OSError):
                connection.sendall(b"60000000>" + bytes(PER_CONNECTION_BYTES))
        for _ in range(3):
            await_refusal(port)  # it has looked at every connection by then
        assert system.probe.ask("a", Echo()) == Echo()
        assert crowd.memory_full_info().uss - before < 1.5 * thespian_base.MAX_FRAME_BYTES


def test_a_frame_that_takes_too_long_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    assert thespian_base._tcp.MAX_INCOMING_SOCKET_PERIOD == thespian_base.FRAME_DEADLINE
    monkeypatch.setattr(thespian_base._tcp, "MAX_INCOMING_SOCKET_PERIOD", timedelta(seconds=0.5))
    with running() as system:
        port = port_of(system.pid("root"))
        with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
            connection.sendall(b"100>begun")
            assert connection.recv(1) == b"", "it hangs up"


@pytest.mark.parametrize("piece", [b"7", b"x", b" ", b"-"])
def test_a_length_that_does_not_end_is_refused(piece: bytes) -> None:
    buffer = thespian_base.ReceiveBuffer()
    for _ in range(thespian_base.LENGTH_BYTES):
        buffer.addMore(piece)
    with pytest.raises(ValueError, match="begin with a length of at most"):
        buffer.addMore(piece)


def test_a_parent_forgets_its_dead_children() -> None:
    """Stock keeps an address for each child there ever was, and takes the length of the list for a number."""
    children = thespian_base._Children()
    for number in range(5):
        children.append(None)
        children[number] = f"address {number}"
    del children[1]
    assert (children[0], children[1], len(children)) == ("address 0", None, 5)
    children.append("address 5")
    assert children[5] == "address 5"
