"""Awaiting inside an actor: order, errors, and who runs inside whom."""

import asyncio
import os

import pytest

from actors.errors import ActorError
from actors.future import Future, Lock, drive


def drop(_: object) -> None:
    """A result nobody looks at."""


def test_a_coroutine_goes_on_when_what_it_awaits_is_done() -> None:
    answer: Future[int] = Future()
    results: list[int] = []

    async def asks() -> int:
        return await answer + 1

    drive(asks(), results.append)
    assert results == []
    answer.succeed(41)
    assert results == [42]


def test_a_coroutine_that_never_waits_is_done_at_once() -> None:
    results: list[str] = []

    async def knows() -> str:
        return "known"

    drive(knows(), results.append)
    assert results == ["known"]


def test_the_error_of_what_was_awaited_can_be_caught_where_it_was_awaited() -> None:
    answer: Future[int] = Future()
    results: list[str] = []

    async def asks() -> str:
        try:
            await answer
        except KeyError as error:
            return f"caught {error}"
        return "nothing to catch"

    drive(asks(), results.append)
    answer.fail(KeyError("gone"))
    assert results == ["caught 'gone'"]


def test_an_error_nobody_catches_reaches_whoever_resumed_the_coroutine() -> None:
    answer: Future[int] = Future()

    async def asks() -> int:
        return await answer

    drive(asks(), drop)
    with pytest.raises(KeyError):
        answer.fail(KeyError("gone"))


def test_only_the_first_result_counts() -> None:
    completion: Future[int] = Future()
    completion.succeed(1)
    completion.succeed(2)
    completion.fail(KeyError("late"))
    assert completion.result() == 1


def test_everyone_who_awaits_one_completion_goes_on() -> None:
    answer: Future[int] = Future()
    results: list[int] = []

    async def asks(more: int) -> int:
        return await answer + more

    for more in (1, 2, 3):
        drive(asks(more), results.append)
    answer.succeed(10)
    assert results == [11, 12, 13]


def test_a_coroutine_is_never_run_inside_the_one_that_completed_what_it_awaited() -> None:
    """Its uncaught error would surface in the other, whose `except` might swallow it."""
    answer: Future[int] = Future()
    caught_by_the_wrong_one: list[BaseException] = []

    async def fails_later() -> None:
        await answer
        raise KeyError("mine")

    async def completes() -> None:
        try:
            answer.succeed(1)
        except KeyError as error:
            caught_by_the_wrong_one.append(error)

    drive(fails_later(), drop)
    with pytest.raises(KeyError, match="mine"):
        drive(completes(), drop)
    assert caught_by_the_wrong_one == []


def test_after_an_error_the_next_coroutine_runs_as_ever() -> None:
    async def fails() -> None:
        raise KeyError("mine")

    async def knows() -> str:
        return "known"

    with pytest.raises(KeyError):
        drive(fails(), drop)
    results: list[str] = []
    drive(knows(), results.append)
    assert results == ["known"]


# ---- Lock ----


class Workshop:
    """Coroutines that hold one lock for as long as the test wants."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.inside: list[str] = []
        self.order: list[str] = []
        self.gates: dict[str, Future[None]] = {}

    def enter(self, name: str) -> None:
        self.gates[name] = Future()
        drive(self._work(name), drop)

    def leave(self, name: str) -> None:
        self.gates[name].succeed(None)

    async def _work(self, name: str) -> None:
        async with self.lock:
            self.inside.append(name)
            self.order.append(name)
            await self.gates[name]
            self.inside.remove(name)


def test_a_lock_lets_one_in_at_a_time_first_come_first_served() -> None:
    shop = Workshop()
    for name in "abc":
        shop.enter(name)
    for name in "abc":
        assert shop.inside == [name]
        shop.leave(name)
    assert shop.inside == []
    assert shop.order == ["a", "b", "c"]


def test_who_comes_while_the_lock_is_handed_over_still_waits_its_turn() -> None:
    shop = Workshop()
    shop.enter("a")
    shop.enter("b")
    shop.leave("a")
    shop.enter("c")
    assert shop.inside == ["b"]
    shop.leave("b")
    assert shop.inside == ["c"]


def test_a_lock_is_given_on_when_its_holder_fails() -> None:
    lock = Lock()
    gate: Future[None] = Future()
    done: list[str] = []

    async def fails_inside() -> None:
        try:
            async with lock:
                await gate
        except KeyError:
            done.append("failed")

    async def next_one() -> None:
        async with lock:
            done.append("next")

    drive(fails_inside(), drop)
    drive(next_one(), drop)
    gate.fail(KeyError("gone"))
    assert done == ["failed", "next"]


def test_a_thousand_waiters_that_do_not_wait_inside_are_no_stack_of_a_thousand() -> None:
    lock = Lock()
    gate: Future[None] = Future()
    done: list[int] = []

    async def first() -> None:
        async with lock:
            await gate

    async def quick(number: int) -> None:
        async with lock:
            done.append(number)

    drive(first(), drop)
    for number in range(1000):
        drive(quick(number), drop)
    gate.succeed(None)
    assert done == list(range(1000))


def test_a_process_forked_in_the_middle_of_a_coroutine_has_turns_of_its_own() -> None:
    """A supervisor forks its children in there; they must not wait for a turn that is the supervisor's."""
    forked: list[int] = []

    async def supervise() -> None:
        pid = os.fork()
        if pid:
            forked.append(pid)
            return
        ran: list[str] = []

        async def child() -> None:
            ran.append("ran")

        drive(child(), lambda _: ran.append("done"))
        os._exit(0 if ran == ["ran", "done"] else 1)

    drive(supervise(), lambda _: None)
    assert os.waitstatus_to_exitcode(os.waitpid(forked[0], 0)[1]) == 0


# ---- asyncio where there is no loop ----


@pytest.mark.parametrize("seconds", [0, 0.01])
def test_a_handler_that_awaits_asyncio_itself_is_told_of_in_loop(seconds: float) -> None:
    async def handler() -> None:
        await asyncio.sleep(seconds)

    with pytest.raises(ActorError) as mistake:
        drive(handler(), lambda _: None)
    assert str(mistake.value) == (
        "'test_a_handler_that_awaits_asyncio_itself_is_told_of_in_loop.<locals>.handler' awaits what "
        "needs an asyncio loop, and handlers run without one; write await self.in_loop(coroutine), or "
        "self.sleep(seconds) for asyncio.sleep"
    )
