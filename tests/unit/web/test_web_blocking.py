"""What blocks is done off the event loop, once for all who ask, and bounded."""

import asyncio
import threading

import pytest

from dart.web.blocking import WAITING_MOST, BlockingPool, Busy


async def test_what_is_asked_at_once_is_done_once() -> None:
    now_s, calls = [0.0], list[int]()
    blocking = BlockingPool(now_s=lambda: now_s[0])

    def job() -> int:
        calls.append(1)
        return len(calls)

    first = await blocking.shared("k", 1.0, job)
    again = await blocking.shared("k", 1.0, job)
    now_s[0] = 1.5
    later = await blocking.shared("k", 1.0, job)

    blocking.close()
    assert (first, again, later) == (1, 1, 2)


async def test_what_takes_longer_than_it_is_good_for_is_begun_no_second_time() -> None:
    now_s, calls, go_on = [0.0], list[int](), threading.Event()
    blocking = BlockingPool(now_s=lambda: now_s[0])

    def job() -> bool:
        calls.append(1)
        return go_on.wait(20.0)

    first = asyncio.create_task(blocking.shared("k", 1.0, job))
    await asyncio.sleep(0)
    now_s[0] = 5.0
    second = asyncio.create_task(blocking.shared("k", 1.0, job))
    await asyncio.sleep(0)
    go_on.set()

    assert await asyncio.gather(first, second) == [True, True]
    assert len(calls) == 1
    blocking.close()


async def test_a_failure_is_not_kept() -> None:
    blocking, tries = BlockingPool(), list[int]()

    def job() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("once")
        return "good"

    with pytest.raises(ValueError, match="once"):
        await blocking.shared("k", 60.0, job)
    found = await blocking.shared("k", 60.0, job)

    blocking.close()
    assert found == "good"


async def test_who_waits_too_long_is_told_for_what() -> None:
    blocking, go_on = BlockingPool(deadline_s=0.001), threading.Event()

    with pytest.raises(Busy, match="tree took over"):
        await blocking.run("tree", go_on.wait)

    go_on.set()
    blocking.close()


async def test_too_many_questions_are_refused() -> None:
    blocking, go_on = BlockingPool(deadline_s=0.001), threading.Event()
    for _ in range(WAITING_MOST):
        with pytest.raises(Busy):
            await blocking.run("slow", go_on.wait)

    with pytest.raises(Busy, match=f"{WAITING_MOST} jobs"):
        await blocking.run("one more", go_on.wait)

    go_on.set()
    blocking.close()
