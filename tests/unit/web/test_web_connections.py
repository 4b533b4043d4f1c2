"""Connections that ask for nothing are bounded in time and number, and take no place from those that do."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send
from uvicorn import Config
from uvicorn.server import ServerState

from dart.core.run_directory import RunPaths
from dart.web.app import STREAMS_MOST, web_app
from dart.web.auth import access_for
from dart.web.server import CONNECTIONS_MOST, HEAD_S, WAITING_MOST, BoundedHttp

WHOLE = b"GET /stream HTTP/1.1\r\nhost: localhost\r\n\r\n"
HALF = b"GET /stream HTTP/1.1\r\nhost: loc"


class Timer:
    def __init__(self, at_s: float, call: Callable[[], None]) -> None:
        self.at_s, self.call, self.is_cancelled = at_s, call, False

    def cancel(self) -> None:
        self.is_cancelled = True

    def when(self) -> float:
        return self.at_s


class Loop:
    """Timers that a test fires, and tasks of the running loop."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.timers: list[Timer] = []

    def call_later(self, delay_s: float, call: Callable[[], None]) -> Timer:
        self.timers.append(Timer(self.now_s + delay_s, call))
        return self.timers[-1]

    def create_task(self, work: Any, **_: Any) -> asyncio.Task[Any]:
        return asyncio.get_running_loop().create_task(work)

    def pass_to(self, now_s: float) -> None:
        self.now_s = now_s
        for timer in [one for one in self.timers if one.at_s <= now_s]:
            self.timers.remove(timer)
            if not timer.is_cancelled:
                timer.call()


class Transport:
    """The other side of a connection."""

    def __init__(self) -> None:
        self.written, self.is_closed = b"", False

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed

    def get_extra_info(self, _: str) -> None:
        return None

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class Port:
    """What listens, without a socket. Every request is answered when the test says so."""

    def __init__(self) -> None:
        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await self.may_answer.wait()
            headers = [(b"content-length", b"2")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": b"ok"})

        self.may_answer = asyncio.Event()
        self.loop, self.state = Loop(), ServerState()
        self.config = Config(app, http=BoundedHttp, limit_concurrency=CONNECTIONS_MOST, log_config=None)

    def connect(self, first: bytes = b"") -> tuple[BoundedHttp, Transport]:
        transport = Transport()
        self.loop.now_s += 0.001
        protocol = BoundedHttp(self.config, self.state, {}, self.loop)  # type: ignore[arg-type]
        protocol.connection_made(transport)  # type: ignore[arg-type]
        if first:
            protocol.data_received(first)
        return protocol, transport


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.mark.parametrize("first", [b"", HALF])
async def test_a_connection_whose_request_does_not_come_is_closed_in_time(first: bytes) -> None:
    port = Port()
    _, transport = port.connect(first)
    port.loop.pass_to(HEAD_S - 0.1)
    assert not transport.is_closed
    port.loop.pass_to(HEAD_S + 0.01)
    assert transport.is_closed


async def test_a_request_that_trickles_in_has_no_more_time_than_one_that_stands_still() -> None:
    port = Port()
    protocol, transport = port.connect()
    for second in range(round(HEAD_S)):
        port.loop.pass_to(float(second))
        protocol.data_received(HALF[second : second + 1])
    port.loop.pass_to(HEAD_S + 0.01)
    assert transport.is_closed


async def test_a_request_that_is_there_may_be_answered_for_as_long_as_that_takes() -> None:
    port = Port()
    _, transport = port.connect(WHOLE)
    port.loop.pass_to(100 * HEAD_S)
    port.may_answer.set()
    await settled()
    assert transport.written.startswith(b"HTTP/1.1 200")
    assert not transport.is_closed


async def test_a_connection_that_was_answered_has_to_ask_again_in_time() -> None:
    port = Port()
    port.may_answer.set()
    protocol, transport = port.connect(WHOLE)
    await settled()
    port.loop.pass_to(HEAD_S - 1)
    protocol.data_received(HALF)
    port.loop.pass_to(HEAD_S + 0.01)
    assert transport.is_closed


async def test_of_too_many_that_ask_for_nothing_the_oldest_go_and_those_that_follow_the_run_stay() -> None:
    port = Port()
    following = [port.connect(WHOLE)[1] for _ in range(STREAMS_MOST)]
    waiting = [port.connect(HALF)[1].is_closing for _ in range(3 * WAITING_MOST)]
    closed = [is_closing() for is_closing in waiting]
    assert closed == [True] * 2 * WAITING_MOST + [False] * WAITING_MOST
    assert not any(transport.is_closed for transport in following)
    port.may_answer.set()
    await settled()
    assert all(transport.written.startswith(b"HTTP/1.1 200") for transport in following)


async def test_as_many_as_may_wait_leave_room_for_every_stream_and_for_more() -> None:
    assert WAITING_MOST + STREAMS_MOST < CONNECTIONS_MOST


def asking_for_a_stream(
    app: Any, statuses: list[int], gone: asyncio.Event, method: str = "GET"
) -> asyncio.Task[None]:
    scope = {"type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1"}
    scope |= {"method": method, "path": "/stream", "raw_path": b"/stream", "query_string": b"page=head"}
    scope |= {"headers": [(b"host", b"localhost")], "scheme": "http", "server": ("127.0.0.1", 8700)}

    async def receive() -> dict[str, Any]:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    return asyncio.create_task(app(scope, receive, send))


async def test_streams_that_are_asked_for_at_once_are_counted_before_they_are_accepted(tmp_path: Any) -> None:
    app = web_app(RunPaths(tmp_path), access_for("127.0.0.1", None))
    statuses: list[int] = []
    gone = asyncio.Event()
    asked = [asking_for_a_stream(app, statuses, gone) for _ in range(100)]
    await settled()
    assert statuses.count(200) == STREAMS_MOST
    assert statuses.count(503) == 100 - STREAMS_MOST
    gone.set()
    await asyncio.gather(*asked)
    statuses.clear()
    (await asyncio.gather(*(asking_for_a_stream(app, statuses, gone) for _ in range(STREAMS_MOST))))
    assert statuses == [200] * STREAMS_MOST, "each gave its place back"


async def test_the_headers_of_a_stream_take_no_place_of_a_stream(tmp_path: Any) -> None:
    app = web_app(RunPaths(tmp_path), access_for("127.0.0.1", None))
    statuses: list[int] = []
    gone = asyncio.Event()

    asked = [asking_for_a_stream(app, statuses, gone, "HEAD") for _ in range(STREAMS_MOST + 1)]
    await settled()
    are_done = [one.done() for one in asked]
    gone.set()
    await asyncio.gather(*asked)

    assert statuses == [200] * len(asked)
    assert all(are_done), "they wait for no disconnect"
