"""The encrypted wire against strangers: keys, plain connections, recorded bytes."""

import contextlib
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zmq

from actors.curve import ConnectingWire, LinkKeys, ListeningWire, Wire, make_keys, read_keys
from actors.errors import LinkNotAllowed
from tests.fault.actors_under_test import PATIENCE_S, eventually
from tests.fault.relay import Relay

STRANGE = LinkKeys(*zmq.curve_keypair())


@pytest.fixture
def leader_keys(tmp_path: Path) -> LinkKeys:
    return make_keys(tmp_path / "a")


@pytest.fixture
def follower_keys(tmp_path: Path) -> LinkKeys:
    return make_keys(tmp_path / "b")


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def listening(leader_keys: LinkKeys, follower_keys: LinkKeys, port: int) -> Iterator[ListeningWire]:
    wire = ListeningWire(f"tcp://127.0.0.1:{port}", leader_keys, {"b": follower_keys.public.decode()})
    yield wire
    wire.close()


@pytest.fixture
def connect(leader_keys: LinkKeys) -> Iterator[Callable[..., ConnectingWire]]:
    with contextlib.ExitStack() as stack:

        def connect(port: int, keys: LinkKeys, leader: bytes = leader_keys.public) -> ConnectingWire:
            wire = ConnectingWire(f"tcp://127.0.0.1:{port}", keys, leader.decode(), give_up_ms=3000)
            stack.callback(wire.close)
            return wire

        yield connect


def received(wire: Wire, *others: Wire) -> tuple[str, bytes]:
    """The next frame; the other ends get their turns meanwhile."""
    got: list[tuple[str, bytes]] = []

    def look() -> bool:
        for other in others:
            assert other.receive() is None
        frame = wire.receive()
        if frame is not None:
            got.append(frame)
        return bool(got)

    eventually(look, "a frame came")
    return got[0]


def test_both_ends_talk_and_the_follower_is_known_by_its_key(
    listening: ListeningWire, connect: Callable[..., ConnectingWire], port: int, follower_keys: LinkKeys
) -> None:
    follower = connect(port, follower_keys)
    assert follower.send("", b"up")
    assert received(listening) == ("b", b"up")
    listening.settle("b")
    assert listening.send("b", b"down")
    assert received(follower, listening) == ("", b"down")
    assert not listening.send("c", b"nobody")
    assert (listening.strangers, follower.strangers) == (0, 0)


def test_a_host_that_connects_anew_is_answered_where_it_is_now(
    listening: ListeningWire, connect: Callable[..., ConnectingWire], port: int, follower_keys: LinkKeys
) -> None:
    before = connect(port, follower_keys)
    before.send("", b"one")
    assert received(listening) == ("b", b"one")
    again = connect(port, follower_keys)
    again.send("", b"two")
    assert received(listening) == ("b", b"two")
    listening.settle("b")
    before.send("", b"late")
    assert received(listening) == ("b", b"late"), "and it moves nothing"
    listening.send("b", b"here")
    assert received(again, listening) == ("", b"here")


def test_a_stranger_gets_nothing_and_is_counted(
    listening: ListeningWire, connect: Callable[..., ConnectingWire], port: int, follower_keys: LinkKeys
) -> None:
    stranger = connect(port, STRANGE)
    stranger.send("", b"let me in")
    eventually(lambda: listening.receive() is None and listening.strangers > 0, "the key was refused")
    plain = zmq.Context()
    socket_ = plain.socket(zmq.DEALER)
    socket_.connect(f"tcp://127.0.0.1:{port}")
    socket_.send(b"no keys at all", zmq.NOBLOCK)
    before = listening.strangers
    eventually(lambda: listening.receive() is None and listening.strangers > before, "no CURVE, no entry")
    plain.destroy(linger=0)
    with socket.create_connection(("127.0.0.1", port)) as raw:
        raw.sendall(b"GET / HTTP/1.1\r\n\r\n" * 100)
        raw.settimeout(PATIENCE_S)
        with contextlib.suppress(ConnectionResetError):
            while raw.recv(4096):  # a greeting, then it is hung up on
                assert listening.receive() is None
    follower = connect(port, follower_keys)
    follower.send("", b"still open to friends")
    assert received(listening) == ("b", b"still open to friends")


def test_a_follower_says_nothing_to_a_machine_that_only_claims_to_be_its_leader(
    listening: ListeningWire, connect: Callable[..., ConnectingWire], port: int, follower_keys: LinkKeys
) -> None:
    follower = connect(port, follower_keys, STRANGE.public)
    follower.send("", b"secret")
    eventually(lambda: listening.receive() is None and listening.strangers > 0, "the handshake failed")


def test_recorded_bytes_are_of_no_use_in_this_connection_or_another(
    listening: ListeningWire, connect: Callable[..., ConnectingWire], port: int, follower_keys: LinkKeys
) -> None:
    relay = Relay(("127.0.0.1", port))
    try:
        follower = connect(relay.port, follower_keys)
        follower.send("", b"pay 100")
        assert received(listening) == ("b", b"pay 100")
        assert b"pay 100" not in b"".join(relay.recorded), "it is encrypted"
        with socket.create_connection(("127.0.0.1", port)) as replay:
            replay.sendall(b"".join(relay.recorded))
            eventually(
                lambda: listening.receive() is None and listening.strangers > 0, "the replay was refused"
            )
        before = listening.strangers
        relay.repeat_next()
        follower.send("", b"pay 200")
        assert received(listening) == ("b", b"pay 200")
        eventually(
            lambda: listening.receive() is None and listening.strangers > before, "taken once, counted"
        )
        again = connect(relay.port, follower_keys)
        again.send("", b"more")
        assert received(listening) == ("b", b"more")
    finally:
        relay.close()


# ---- no key, no start ----


def test_keys_are_made_by_a_command_once_and_only_their_owner_can_read_the_secret(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    command = [sys.executable, "-m", "actors.curve", str(folder)]
    first, second = (subprocess.run(command, capture_output=True, check=True).stdout for _ in range(2))
    assert first == second
    assert first.strip() == (folder / "public").read_bytes() == read_keys(folder).public
    assert (folder / "secret").stat().st_mode & 0o777 == 0o600


def test_without_a_key_of_its_own_a_machine_opens_no_link(tmp_path: Path) -> None:
    with pytest.raises(LinkNotAllowed, match=r"no key at .*python -m actors\.curve"):
        read_keys(tmp_path / "nothing")
    make_keys(tmp_path / "a")
    (tmp_path / "a" / "secret").chmod(0o640)
    with pytest.raises(LinkNotAllowed, match="has mode 640: others can read it"):
        read_keys(tmp_path / "a")
    (tmp_path / "a" / "secret").write_bytes(b"short")
    (tmp_path / "a" / "secret").chmod(0o600)
    with pytest.raises(LinkNotAllowed, match="holds 5 characters; a CURVE key has 40"):
        read_keys(tmp_path / "a")


@pytest.mark.parametrize("address", ["tcp://*:7000", "tcp://0.0.0.0:7000", "tcp://[::]:7000"])
def test_a_leader_listens_on_one_address_never_on_all(address: str, leader_keys: LinkKeys) -> None:
    with pytest.raises(LinkNotAllowed, match="listens on one address, name it"):
        ListeningWire(address, leader_keys, {})


def test_an_address_that_is_taken_is_named(
    listening: ListeningWire, port: int, leader_keys: LinkKeys
) -> None:
    with pytest.raises(LinkNotAllowed, match=f"cannot listen on 'tcp://127.0.0.1:{port}'"):
        ListeningWire(f"tcp://127.0.0.1:{port}", leader_keys, {})


def test_a_frame_over_the_limit_ends_the_connection_of_its_sender(
    listening: ListeningWire, connect: Callable[..., ConnectingWire], port: int, follower_keys: LinkKeys
) -> None:
    follower = connect(port, follower_keys)
    follower.send("", b"x" * 1_000_000)
    follower.send("", b"small")
    another = connect(port, follower_keys)
    another.send("", b"small too")
    assert received(listening)[1] in (b"small", b"small too"), f"never the large one, within {PATIENCE_S} s"
