"""What an update left free inside the allocator goes back to the system."""

import ctypes
import threading

import psutil
import pytest

from dart.core.malloc_trim import trim_heap

MIB = 2**20


@pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="this C library is not glibc: it has no malloc_trim"
)
def test_what_is_free_between_what_is_held_goes_back() -> None:
    kept: list[bytes] = []

    def update() -> None:
        made = [bytes([number % 255 + 1]) * 50_000 for number in range(2000)]
        kept.extend(made[::500])  # what is held between keeps the allocator from giving the rest back

    thread = threading.Thread(target=update)
    thread.start()
    thread.join()
    before = psutil.Process().memory_info().rss

    trim_heap()

    assert before - psutil.Process().memory_info().rss > 50 * MIB
    assert len(kept) == 4
