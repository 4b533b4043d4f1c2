"""Frames between a bridge and other hosts: order, bounds, hosts that are gone, bridges that come and go."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from actors.wire import packet
from dart.cluster import frame_switch
from dart.cluster.frame_switch import Frames, FrameSwitch, HostUnreachable

Connect = Callable[[], Awaitable[socket.socket]]
"""Connects a bridge to the switch."""


class Hosts:
    """Other hosts: what each has taken, and which of them take nothing now."""

    def __init__(self) -> None:
        self.taken: dict[str, Frames] = {}
        self.batches: list[int] = []
        self.unreachable: set[str] = set()
        self.may_take = asyncio.Event()
        self.may_take.set()

    @property
    def count(self) -> int:
        """Number of frames that they have taken."""
        return sum(map(len, self.taken.values()))

    async def send(self, host: str, frames: Frames) -> None:
        if host in self.unreachable:
            raise HostUnreachable(f"no agent on {host}")
        await self.may_take.wait()
        self.batches.append(len(frames))
        self.taken.setdefault(host, []).extend(frames)


async def write_until_full(bridge: socket.socket) -> int:
    """Write until the kernel takes no more although the switch had time to read; the number of packets."""
    written = 0
    for _ in range(1000):
        with contextlib.suppress(BlockingIOError):
            for _ in range(1000):
                bridge.send(packet("b", bytes(1000)))
                written += 1
        await asyncio.sleep(0)
    return written


@pytest.fixture
def hosts() -> Hosts:
    return Hosts()


@pytest.fixture
async def switch(hosts: Hosts, tmp_path: Path) -> AsyncIterator[FrameSwitch]:
    made = FrameSwitch(tmp_path / "wire", hosts.send, send_deadline_s=0.2)
    yield made
    made.close()


@pytest.fixture
def connect(switch: FrameSwitch, tmp_path: Path) -> Iterator[Connect]:
    made: list[socket.socket] = []

    async def connect() -> socket.socket:
        bridge = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        made.append(bridge)
        bridge.connect(str(tmp_path / "wire"))
        bridge.setblocking(False)
        await until(lambda: switch._bridge is not None)
        return bridge

    yield connect
    for bridge in made:
        bridge.close()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20.0):
        while not holds():  # noqa: ASYNC110  # what is waited for sets no event
            await asyncio.sleep(0.001)


async def read(bridge: socket.socket) -> bytes:
    async with asyncio.timeout(20.0):
        return await asyncio.get_running_loop().sock_recv(bridge, 1 << 20)


async def write(bridge: socket.socket, data: bytes) -> None:
    async with asyncio.timeout(20.0):
        await asyncio.get_running_loop().sock_sendall(bridge, data)


async def test_frames_reach_the_host_that_each_names_in_their_order(
    switch: FrameSwitch, hosts: Hosts, connect: Connect
) -> None:
    bridge = await connect()
    for number in range(2000):
        await write(bridge, packet("bé"[number % 2 :], str(number).encode()))
    await until(lambda: hosts.count == 2000)
    assert hosts.taken["bé"] == [str(number).encode() for number in range(0, 2000, 2)]
    assert hosts.taken["é"] == [str(number).encode() for number in range(1, 2000, 2)]


async def test_what_is_no_packet_is_passed_over(switch: FrameSwitch, hosts: Hosts, connect: Connect) -> None:
    bridge = await connect()
    for data in (b"\x09short", b"\x01\xff", packet("b", b"good")):
        await write(bridge, data)
    await until(lambda: bool(hosts.taken))
    assert hosts.taken == {"b": [b"good"]}


async def test_what_waits_leaves_in_one_batch_and_a_host_has_one_batch_under_way(
    switch: FrameSwitch, hosts: Hosts, connect: Connect
) -> None:
    bridge = await connect()
    hosts.may_take.clear()
    await write(bridge, packet("b", b"0"))
    await until(lambda: any(outbox.is_sending for outbox in switch._outboxes.values()))
    for number in range(1, 10):
        await write(bridge, packet("b", str(number).encode()))
    await until(lambda: sum(len(outbox.frames) for outbox in switch._outboxes.values()) == 9)
    hosts.may_take.set()
    await until(lambda: hosts.count == 10)
    assert hosts.taken["b"] == [str(number).encode() for number in range(10)]
    assert hosts.batches[-1] == 9


async def test_frames_of_another_host_reach_the_bridge_in_their_order(
    switch: FrameSwitch, connect: Connect
) -> None:
    bridge = await connect()
    await switch.deliver("c", [b"0", b"1"])
    await switch.deliver("c", [b"2"])
    assert [await read(bridge) for _ in range(3)] == [
        packet("c", str(number).encode()) for number in range(3)
    ]


async def test_a_host_that_cannot_be_reached_is_told_as_gone_and_what_waits_for_it_is_dropped(
    switch: FrameSwitch, hosts: Hosts, connect: Connect
) -> None:
    bridge = await connect()
    hosts.unreachable.add("b")
    with capture_logs() as lines:
        await write(bridge, packet("b", b"lost"))
        assert await read(bridge) == packet("b", b"")
    [line] = lines
    assert (line["event"], line["host"], line["frames"]) == ("frames_dropped", "b", 1)
    assert line["reason"] == "no agent on b"


async def test_a_host_that_takes_nothing_in_time_is_told_as_gone_and_others_go_on(
    switch: FrameSwitch, hosts: Hosts, connect: Connect
) -> None:
    bridge = await connect()
    hosts.may_take.clear()
    await write(bridge, packet("b", b"lost"))
    assert await read(bridge) == packet("b", b"")
    hosts.may_take.set()
    await write(bridge, packet("b", b"of the next session"))
    await until(lambda: hosts.taken.get("b") == [b"of the next session"])


async def test_a_lost_host_that_ray_reports_is_told_after_the_frames_that_came_before(
    switch: FrameSwitch, connect: Connect
) -> None:
    bridge = await connect()
    await switch.deliver("b", [b"last words"])
    switch.gone("b")
    assert [await read(bridge), await read(bridge)] == [packet("b", b"last words"), packet("b", b"")]


async def test_the_switch_reads_no_more_than_it_may_hold_and_goes_on_when_there_is_room(
    switch: FrameSwitch, hosts: Hosts, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame_switch, "WAITING_BYTES_MOST", 10_000)
    monkeypatch.setattr(frame_switch, "PACKETS_PER_TURN", 4)
    monkeypatch.setattr(switch, "_send_deadline_s", 20.0)
    bridge = await connect()
    hosts.may_take.clear()
    written = await write_until_full(bridge)
    waiting = sum(outbox.waiting_bytes for outbox in switch._outboxes.values())
    assert 10_000 <= waiting < 20_000
    hosts.may_take.set()
    await until(lambda: hosts.count == written)


async def test_a_bridge_that_reads_nothing_makes_the_other_side_wait(
    switch: FrameSwitch, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame_switch, "WAITING_BYTES_MOST", 10_000)
    bridge = await connect()
    for _ in range(10_000):
        if not switch._has_room.is_set():
            break
        await switch.deliver("b", [bytes(1000)])
    waiting = asyncio.ensure_future(switch.deliver("b", [b"after"]))
    await asyncio.sleep(0)
    assert not waiting.done()
    while await read(bridge) != packet("b", b"after"):
        pass
    assert waiting.done()


async def test_without_a_bridge_frames_are_dropped_and_a_new_bridge_gets_nothing_old(
    switch: FrameSwitch, connect: Connect
) -> None:
    with capture_logs() as lines:
        await switch.deliver("b", [b"without a bridge"])
        first = await connect()
        first.close()
        await until(lambda: switch._bridge is None)
        await switch.deliver("b", [b"without a bridge"])
    second = await connect()
    await switch.deliver("b", [b"for the second"])
    assert await read(second) == packet("b", b"for the second")
    assert [line["reason"] for line in lines] == ["no bridge is connected"] * 2


async def test_a_second_connection_replaces_the_first(switch: FrameSwitch, connect: Connect) -> None:
    first = await connect()
    second = await connect()
    assert await read(first) == b""
    await switch.deliver("b", [b"for the second"])
    assert await read(second) == packet("b", b"for the second")


async def test_the_socket_is_its_users_alone(switch: FrameSwitch, tmp_path: Path) -> None:
    assert (tmp_path / "wire").stat().st_mode & 0o777 == 0o600
