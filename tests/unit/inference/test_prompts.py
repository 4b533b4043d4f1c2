"""Screenshots of requests: read many at once, and without holding other requests up."""

import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

from dart.core.types import GenerateRequest
from dart.inference.prompts import Prompts
from dart.policy.protocols import Codec
from dart.store.blobs import BlobStore

WAIT_S = 30.0


class PlainCodec:
    """Shows what the history of a request names, as it is."""

    def shown(self, request: GenerateRequest) -> Sequence[str]:
        return request.history

    def screen(self, sha256: str, data: bytes) -> Any:
        return data

    def prompt(self, request: GenerateRequest, screens: Sequence[Any]) -> Any:
        return SimpleNamespace(token_ids=(), images=())


class FarBlobs:
    """Blobs of another machine. Reads of `a` and `b` wait for each other, one of `slow` for `may_end`."""

    is_remote = True

    def __init__(self) -> None:
        self.reads: list[str] = []
        self.may_end = threading.Event()
        self._both = threading.Barrier(2)

    def read(self, sha256: str) -> bytes:
        self.reads.append(sha256)
        if sha256 == "slow":
            assert self.may_end.wait(WAIT_S)
        elif sha256 in "ab":
            self._both.wait(WAIT_S)
        return sha256.encode()


def prompts_of(blobs: FarBlobs, capacity: int = 8) -> Prompts:
    return Prompts(cast(Codec, PlainCodec()), cast(BlobStore, blobs), capacity)


def showing(*shown: str) -> GenerateRequest:
    return GenerateRequest(screenshot_sha256=shown[-1], instruction="", history=shown, temperature=1.0)


def test_the_screenshots_of_a_request_are_read_at_the_same_time_and_each_once() -> None:
    blobs = FarBlobs()
    prompts = prompts_of(blobs)
    assert prompts.pending(showing("a", "b", "a")).screens == (b"a", b"b", b"a")
    assert prompts.pending(showing("b", "a")).screens == (b"b", b"a")
    assert sorted(blobs.reads) == ["a", "b"]


def test_a_request_waits_for_no_screenshot_of_another_one() -> None:
    blobs = FarBlobs()
    prompts = prompts_of(blobs)
    slow = threading.Thread(target=prompts.pending, args=(showing("slow"),))
    slow.start()
    try:
        assert prompts.pending(showing("quick")).screens == (b"quick",)
        assert slow.is_alive()
    finally:
        blobs.may_end.set()
        slow.join(WAIT_S)


def test_a_request_with_more_screenshots_than_the_cache_holds_gets_them_all() -> None:
    prompts = prompts_of(FarBlobs(), capacity=1)
    assert prompts.pending(showing("x", "y", "z")).screens == (b"x", b"y", b"z")
