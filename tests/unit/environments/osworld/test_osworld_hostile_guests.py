"""What a guest answers and what its files hold takes a bounded part of this computer, and always ends."""

import gzip
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2
import pytest

from dart.config.machine_address import MachineAddress
from dart.environments.faults import CallFailed
from dart.environments.osworld import guest as guest_module
from dart.environments.osworld.guest import AnswerTooLarge, Guest

MIB = 2**20


class Endless(httpx2.AsyncByteStream):
    """A body without an end; counts what was taken of it."""

    def __init__(self) -> None:
        self.taken_bytes = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            self.taken_bytes += MIB
            yield b"x" * MIB


def guest_that_answers(response: Callable[[], httpx2.Response]) -> Guest:
    def answer(request: httpx2.Request) -> httpx2.Response:
        assert request.headers["accept-encoding"] == "identity"
        return response()

    return Guest("vm", MachineAddress(host="vm.test"), httpx2.MockTransport(answer))


def streamed(content: bytes, status: int = 200, **headers: str) -> httpx2.Response:
    return httpx2.Response(status, headers=headers, stream=httpx2.ByteStream(content))


# ---- answers ----


@pytest.mark.parametrize(
    ("call", "most_bytes"),
    [
        (lambda guest: guest.screenshot(deadline_s=60.0), "FILE_MOST_BYTES"),
        (lambda guest: guest.file("/x", deadline_s=60.0), "FILE_MOST_BYTES"),
        (lambda guest: guest.terminal(deadline_s=60.0), "RESPONSE_MOST_BYTES"),
        (lambda guest: guest.execute("x", deadline_s=60.0), "RESPONSE_MOST_BYTES"),
        (lambda guest: guest.player("x", deadline_s=60.0), "RESPONSE_MOST_BYTES"),
        (lambda guest: guest.chromium("GET", "/x", deadline_s=60.0), "RESPONSE_MOST_BYTES"),
    ],
)
async def test_a_body_without_an_end_is_read_up_to_a_limit(
    call: Callable[[Guest], Any], most_bytes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guest_module, most_bytes, 3 * MIB)
    body = Endless()
    guest = guest_that_answers(lambda: httpx2.Response(200, stream=body))
    with pytest.raises(AnswerTooLarge, match="more than 3145728 bytes"):
        await call(guest)
    assert body.taken_bytes == 4 * MIB


async def test_a_body_that_is_compressed_is_not_unpacked() -> None:
    bomb = gzip.compress(b"\0" * (64 * MIB))
    guest = guest_that_answers(lambda: streamed(bomb, **{"content-encoding": "gzip"}))
    for call in (guest.screenshot(deadline_s=5.0), guest.file("/x", deadline_s=5.0)):
        with pytest.raises(CallFailed, match="is compressed"):
            await call


async def test_a_refused_file_or_folder_is_named_by_its_path() -> None:
    guest = guest_that_answers(lambda: streamed(b"denied", 403))
    with pytest.raises(CallFailed, match=r"/file /home/user/a\.txt: status 403: denied"):
        await guest.file("/home/user/a.txt", deadline_s=5.0)
    with pytest.raises(CallFailed, match="/list_directory /home/user/x: status 403: denied"):
        await guest.directory("/home/user/x", deadline_s=5.0)


async def test_the_text_of_an_answer_is_in_one_encoding_whatever_it_says() -> None:
    guest = guest_that_answers(
        lambda: streamed("é".encode(), 500, **{"content-type": "text/x; charset=idna"})
    )
    with pytest.raises(CallFailed, match="status 500: é"):
        await guest.terminal(deadline_s=5.0)


@pytest.mark.parametrize("path", ["/json/close/a\nb", "/" + "x" * 100_000])
async def test_a_path_that_no_url_can_have_is_a_failed_call(path: str) -> None:
    guest = guest_that_answers(lambda: streamed(b"{}"))
    with pytest.raises(CallFailed, match=r"(?s)vm failed at /.{1,400}: its URL is not valid"):
        await guest.chromium("GET", path, deadline_s=5.0)


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 100_000,
        b"[" + b"[]," * 1_000_000 + b"[]]",
        b"9" * 100_000,
        b"[]",
        b'{"output": [], "error": null}',
        b'{"width": 1e999, "height": {}}',
        b'{"directory_tree": 3}',
        b"{",
    ],
)
async def test_an_answer_that_is_not_as_the_protocol_says_is_a_fault_of_the_machine(content: bytes) -> None:
    guest = guest_that_answers(lambda: streamed(content))
    for call in (
        guest.execute("x", deadline_s=5.0),
        guest.screen_size(deadline_s=5.0),
        guest.directory("/x", deadline_s=5.0),
        guest.desktop_path(deadline_s=5.0),
        guest.accessibility_tree(deadline_s=5.0),
    ):
        with pytest.raises(CallFailed, match=r"its (response|JSON)"):
            await call
