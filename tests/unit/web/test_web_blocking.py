"""What blocks is done off the event loop, once for all who ask, and bounded."""

import asyncio
import threading

import pytest

from dart.web.blocking import WAITING_MOST, Busy, Desk


async def test_what_is_asked_at_once_is_done_once() -> None:
    now_s, calls = [0.0], list[int]()
    desk = Desk(now_s=lambda: now_s[0])

    def job() -> int:
        calls.append(1)
        return len(calls)

    first = await desk.shared("k", 1.0, job)
    again = await desk.shared("k", 1.0, job)
    now_s[0] = 1.5
    later = await desk.shared("k", 1.0, job)

    desk.close()
    assert (first, again, later) == (1, 1, 2)


async def test_what_takes_longer_than_it_is_good_for_is_begun_no_second_time() -> None:
    now_s, calls, go_on = [0.0], list[int](), threading.Event()
    desk = Desk(now_s=lambda: now_s[0])

    def job() -> bool:
        calls.append(1)
        return go_on.wait(20.0)

    first = asyncio.create_task(desk.shared("k", 1.0, job))
    await asyncio.sleep(0)
    now_s[0] = 5.0
    second = asyncio.create_task(desk.shared("k", 1.0, job))
    await asyncio.sleep(0)
    go_on.set()

    assert await asyncio.gather(first, second) == [True, True]
    assert len(calls) == 1
    desk.close()


async def test_a_failure_is_not_kept() -> None:
    desk, tries = Desk(), list[int]()

    def job() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("once")
        return "good"

    with pytest.raises(ValueError, match="once"):
        await desk.shared("k", 60.0, job)
    found = await desk.shared("k", 60.0, job)

    desk.close()
    assert found == "good"


async def test_who_waits_too_long_is_told_for_what() -> None:
    desk, go_on = Desk(deadline_s=0.001), threading.Event()

    with pytest.raises(Busy, match="tree: no answer"):
        await desk.run("tree", go_on.wait)

    go_on.set()
    desk.close()


async def test_too_many_questions_are_refused() -> None:
    desk, go_on = Desk(deadline_s=0.001), threading.Event()
    for _ in range(WAITING_MOST):
        with pytest.raises(Busy):
            await desk.run("slow", go_on.wait)

    with pytest.raises(Busy, match=f"{WAITING_MOST} questions"):
        await desk.run("one more", go_on.wait)

    go_on.set()
    desk.close()
