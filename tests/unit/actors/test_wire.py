"""The way from a bridge to the agent of its host: packets, and what happens when the agent does not read."""

import select
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.errors import WireClosed
from actors.wire import (
    MAX_FRAME_BYTES,
    MAX_PACKET_BYTES,
    QUEUE_BYTES,
    QUEUE_FRAMES,
    AgentWire,
    opened,
    packet,
)


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(tmp_path / "wire"))
        listener.listen()
        yield listener


@pytest.fixture
def ends(agent: socket.socket, tmp_path: Path) -> Iterator[tuple[AgentWire, socket.socket]]:
    wire = AgentWire(tmp_path / "wire")
    other, _ = agent.accept()
    yield wire, other
    wire.close()
    other.close()


def is_readable(wire: AgentWire) -> bool:
    return bool(select.select(wire.fds, [], [], 0)[0])


@pytest.mark.parametrize("host", ["b", "ü" * 12, "x" * 255])
def test_a_packet_is_a_host_and_a_frame(host: str) -> None:
    assert opened(packet(host, b"frame")) == (host, b"frame")
    assert opened(packet(host, b"")) == (host, b"")


@pytest.mark.parametrize("data", [b"\x05abc", b"\x02\xff\xfeframe"])
def test_bytes_that_are_no_packet_are_none(data: bytes) -> None:
    assert opened(data) is None


def test_frames_go_and_come_whole_and_in_order(ends: tuple[AgentWire, socket.socket]) -> None:
    wire, agent = ends
    large = b"x" * MAX_FRAME_BYTES
    assert not is_readable(wire)
    for frame in (b"one", large, b"two"):
        assert wire.send("b", frame)
    assert [opened(agent.recv(MAX_PACKET_BYTES)) for _ in range(3)] == [
        ("b", b"one"),
        ("b", large),
        ("b", b"two"),
    ]
    for frame in (large, b"", b"three"):
        agent.send(packet("c", frame))
    assert is_readable(wire)
    assert [wire.receive() for _ in range(4)] == [("c", large), ("c", b""), ("c", b"three"), None]
    assert not is_readable(wire)


def test_what_is_no_packet_is_counted_and_what_follows_is_taken(
    ends: tuple[AgentWire, socket.socket],
) -> None:
    wire, agent = ends
    agent.send(b"\x05abc")
    agent.send(packet("c", b"x" * (MAX_FRAME_BYTES + 300)))
    agent.send(packet("c", b"good"))
    assert wire.receive() == ("c", b"good")
    assert wire.malformed == 2


@pytest.mark.parametrize("size", [100, 60_000])
def test_frames_for_an_agent_that_does_not_read_wait_and_are_bounded(
    ends: tuple[AgentWire, socket.socket], size: int
) -> None:
    wire, agent = ends
    sent = 0
    while wire.send("b", sent.to_bytes(4, "big") + b"x" * size):
        sent += 1
    assert min(QUEUE_FRAMES, QUEUE_BYTES // (size + 100)) < sent < 2 * QUEUE_FRAMES
    got = []
    while len(got) < sent:
        found = opened(agent.recv(MAX_PACKET_BYTES))
        assert found is not None
        got.append(int.from_bytes(found[1][:4], "big"))
        if is_readable(wire):  # there is room again
            assert wire.receive() is None
    assert got == list(range(sent))
    assert not is_readable(wire), "nothing waits, so nobody is woken"


@pytest.mark.parametrize("size", [0, MAX_FRAME_BYTES + 1])
def test_a_frame_of_a_size_that_no_agent_takes_is_the_callers_mistake(
    ends: tuple[AgentWire, socket.socket], size: int
) -> None:
    with pytest.raises(ValueError, match=f"a frame has 1 to {MAX_FRAME_BYTES} bytes, got {size}"):
        ends[0].send("b", b"x" * size)


def test_an_agent_that_hangs_up_is_an_error_and_not_silence(ends: tuple[AgentWire, socket.socket]) -> None:
    wire, agent = ends
    agent.send(packet("c", b"last"))
    agent.close()
    assert wire.receive() == ("c", b"last")
    with pytest.raises(WireClosed, match="the agent of this host closed the wire"):
        wire.receive()
    with pytest.raises(WireClosed, match="the agent of this host closed the wire"):
        wire.send("b", b"anybody there?")


def test_without_an_agent_there_is_no_wire(tmp_path: Path) -> None:
    with pytest.raises(WireClosed, match=r"no agent of this host listens at .*; start the agent before"):
        AgentWire(tmp_path / "nobody")


def test_the_last_word_of_a_bridge_that_closes_is_still_sent(
    ends: tuple[AgentWire, socket.socket],
) -> None:
    wire, agent = ends
    sent = 0
    while not wire._waiting:
        wire.send("b", b"x" * 4000)
        sent += 1
    for _ in range(sent - 1):
        agent.recv(MAX_PACKET_BYTES)
    wire.close(linger_s=1.0)
    assert opened(agent.recv(MAX_PACKET_BYTES)) == ("b", b"x" * 4000)
    assert agent.recv(MAX_PACKET_BYTES) == b""
