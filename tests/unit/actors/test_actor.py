"""What an actor promises, tried on a bench: no processes, a clock moved by hand."""

import asyncio
import contextlib
import math
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from actors.actor import Actor, Sender, Stop, receives
from actors.asks import LIVENESS_CHECK_S
from actors.board import ActorState
from actors.codec import Envelope, MessageKind, message
from actors.errors import ActorDied, ActorError, AskTimeout, MailboxFull, Refused, WorkOverdue
from actors.future import Future
from actors.mailbox import HELD_MESSAGES, MAIL_PER_TURN
from actors.testing import InMemorySystem


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Add:
    number: int


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Sum:
    number: int


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class AddLater:
    number: int
    after_s: float


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class AskFor:
    """Ask somebody else on the way to the answer."""

    whom: str
    number: int
    deadline_s: float = 5.0


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    name: str
    deadline_s: float
    setting: str = ""


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Fail:
    is_async: bool


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    pass


class Counter(Actor):
    """Adds up."""

    def on_start(self) -> None:
        self.sum = 0
        self.gate = threading.Event()

    @receives(Add)
    def add(self, call: Add, sender: Sender) -> Sum:
        self.sum += call.number
        return Sum(number=self.sum)

    @receives(AddLater)
    async def add_later(self, call: AddLater, sender: Sender) -> Sum:
        await self.sleep(call.after_s)
        return self.add(Add(number=call.number), sender)

    @receives(AskFor)
    async def ask_for(self, call: AskFor, sender: Sender) -> Sum:
        answer: Sum = await self.ask(call.whom, Add(number=call.number), deadline_s=call.deadline_s)
        return answer

    @receives(Work)
    async def work(self, call: Work, sender: Sender) -> Sum:
        await self.in_thread(self.gate.wait, name=call.name, deadline_s=call.deadline_s, setting=call.setting)
        return Sum(number=self.sum)

    @receives(Fail)
    def fail(self, call: Fail, sender: Sender) -> object:
        if not call.is_async:
            raise KeyError("broken")

        async def later() -> None:
            await self.sleep(1.0)
            raise KeyError("broken later")

        return later()


class Deaf(Actor):
    """Takes the ask and never answers."""

    @receives(Add)
    async def add(self, call: Add, sender: Sender) -> None:
        await self.sleep(1e9)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[InMemorySystem]:
    with InMemorySystem(tmp_path) as bench:
        yield bench


# ---- asks end (invariant ask-ends) ----


def test_an_ask_brings_the_handlers_answer(bench: InMemorySystem) -> None:
    bench.start(Counter, "counter")
    answer = bench.ask("counter", Add(number=2))
    bench.settle()
    assert answer.result() == Sum(number=2)


def test_a_tell_is_handled_and_answered_by_nothing(bench: InMemorySystem) -> None:
    counter = bench.start(Counter, "counter")
    assert bench.tell("counter", Add(number=2))
    bench.settle()
    assert counter.sum == 2


def test_an_ask_for_a_name_nobody_bears_ends_at_once(bench: InMemorySystem) -> None:
    answer = bench.ask("ghost", Add(number=2))
    with pytest.raises(ActorDied, match="'ghost'"):
        answer.result()


def test_an_ask_ends_promptly_when_the_asked_actor_dies(bench: InMemorySystem) -> None:
    bench.start(Deaf, "deaf")
    answer = bench.ask("deaf", Add(number=2), deadline_s=3600.0)
    bench.settle()
    bench.end("deaf")
    bench.advance(2 * LIVENESS_CHECK_S)
    with pytest.raises(ActorDied, match="'deaf'"):
        answer.result()


def test_an_ask_ends_promptly_when_the_asked_actor_was_restarted_meanwhile(bench: InMemorySystem) -> None:
    bench.start(Deaf, "deaf")
    answer = bench.ask("deaf", Add(number=2), deadline_s=3600.0)
    bench.settle()
    bench.end("deaf")
    bench.start(Deaf, "deaf")
    bench.advance(2 * LIVENESS_CHECK_S)
    with pytest.raises(ActorDied, match="'deaf' ended before it answered: SIGKILL"):
        answer.result()


def test_an_ask_that_is_not_answered_in_time_says_what_the_actor_was_doing(bench: InMemorySystem) -> None:
    deaf = bench.start(Deaf, "deaf")
    answer = bench.ask("deaf", Add(number=2), deadline_s=3.0)
    bench.settle()
    bench.board.set(
        deaf.identity.slot, handler="Generate", busy_since_ns=bench.board.now_ns() - 2_000_000_000
    )
    bench.advance(2.9)
    assert not answer.is_done
    bench.advance(0.2)
    with pytest.raises(AskTimeout, match=r"'deaf' did not answer within 3.0 s; .*in Generate for 5\.\d s"):
        answer.result()


def test_an_ask_of_an_idle_actor_says_that_it_is_idle(bench: InMemorySystem) -> None:
    bench.start(Deaf, "deaf")
    answer = bench.ask("deaf", Add(number=2), deadline_s=1.0)
    bench.advance(1.1)
    with pytest.raises(AskTimeout, match="running, idle"):
        answer.result()


def test_an_answer_that_comes_too_late_is_dropped(bench: InMemorySystem) -> None:
    counter = bench.start(Counter, "counter")
    answer = bench.ask("counter", AddLater(number=1, after_s=2.0), deadline_s=1.0)
    later = bench.ask("counter", AddLater(number=1, after_s=3.0), deadline_s=9.0)
    bench.advance(4.0)
    with pytest.raises(AskTimeout):
        answer.result()
    assert later.result() == Sum(number=2), "no answer is taken for another's"
    assert counter.sum == 2


def test_a_message_nobody_handles_is_refused_with_the_reason(bench: InMemorySystem) -> None:
    counter = bench.start(Counter, "counter")
    answer = bench.ask("counter", Unknown())
    bench.settle()
    with pytest.raises(Refused, match="'counter' has no handler for Unknown"):
        answer.result()
    assert bench.board.get(counter.identity.slot, "refused") == 1


def test_a_message_for_an_incarnation_that_is_gone_is_refused(bench: InMemorySystem) -> None:
    counter = bench.start(Counter, "counter")
    asker = bench.start(Counter, "other")
    forged = Envelope(
        kind=MessageKind.TELL,
        id=1,
        to="counter",
        to_incarnation=counter.identity.incarnation,
        sender="other",
        sender_incarnation=1,
        deadline_unix_ms=0,
        message=Add(number=1),
    )
    object.__setattr__(counter.identity, "incarnation", 7)
    asker._Actor__mail.send(forged)
    counter.turn()
    assert counter.sum == 0
    assert bench.board.get(counter.identity.slot, "refused") == 1


def test_an_ask_past_its_deadline_is_not_worked_on(bench: InMemorySystem) -> None:
    counter = bench.start(Counter, "counter")
    answer = bench.ask("counter", Add(number=5), deadline_s=1.0)
    bench.clock.advance(1.5)
    bench.settle()
    assert counter.sum == 0
    with pytest.raises(AskTimeout):
        answer.result()


def test_an_ask_ends_when_the_mailbox_is_full(bench: InMemorySystem) -> None:
    bench.start(Counter, "counter")
    answers = [bench.ask("counter", Add(number=1)) for _ in range(1500)]
    with pytest.raises(MailboxFull, match="'counter'"):
        answers[-1].result()
    bench.settle()
    assert answers[0].result() == Sum(number=1)


def test_a_tell_that_cannot_be_sent_says_so_and_crashes_nobody(bench: InMemorySystem) -> None:
    assert not bench.tell("ghost", Add(number=1))


def test_no_ask_is_ever_left_open(bench: InMemorySystem) -> None:
    """Whatever becomes of the asked actors: after the longest deadline every ask has ended."""
    bench.start(Counter, "counter")
    bench.start(Deaf, "deaf")
    asks = [
        bench.ask(to, content, deadline_s=deadline_s)
        for to in ("counter", "deaf", "ghost")
        for content in (Add(number=1), Unknown(), AddLater(number=1, after_s=2.0))
        for deadline_s in (0.1, 1.0, 5.0)
    ]
    bench.advance(0.5)
    bench.end("deaf")
    bench.advance(4.6 + LIVENESS_CHECK_S)
    assert [ask for ask in asks if not ask.is_done] == []


def test_what_waits_for_a_start_is_bounded_and_the_rest_is_told_so(bench: InMemorySystem) -> None:
    bench.start(Counter, "counter")
    slow = bench.start(SlowStarter, "slow")
    asks: list[Future[Sum]] = []
    for _ in range(HELD_MESSAGES // 100 + 1):
        asks += [bench.ask("slow", Add(number=1)) for _ in range(100)]
        bench.settle()
    with pytest.raises(Refused, match="'slow' is still starting and keeps at most 1000 messages"):
        asks[-1].result()
    assert not asks[0].is_done
    bench.advance(2.0)
    assert asks[0].result() == Sum(number=1)
    assert slow.sum == HELD_MESSAGES


# ---- async handlers ----


def test_an_actor_takes_other_mail_while_a_handler_waits(bench: InMemorySystem) -> None:
    bench.start(Counter, "counter")
    slow = bench.ask("counter", AddLater(number=10, after_s=2.0))
    quick = bench.ask("counter", Add(number=1))
    bench.settle()
    assert quick.result() == Sum(number=1)
    assert not slow.is_done
    bench.advance(2.0)
    assert slow.result() == Sum(number=11)


def test_a_handler_can_ask_on_the_way_to_its_answer(bench: InMemorySystem) -> None:
    for name in ("a", "b"):
        bench.start(Counter, name)
    answer = bench.ask("a", AskFor(whom="b", number=4))
    bench.settle()
    assert answer.result() == Sum(number=4)


def test_two_actors_that_ask_each_other_do_not_lock_up(bench: InMemorySystem) -> None:
    for name in ("a", "b"):
        bench.start(Counter, name)
    answers = [bench.ask("a", AskFor(whom="b", number=1)), bench.ask("b", AskFor(whom="a", number=1))]
    bench.settle()
    assert [answer.result() for answer in answers] == [Sum(number=1), Sum(number=1)]


def test_an_actor_can_ask_itself(bench: InMemorySystem) -> None:
    bench.start(Counter, "a")
    answer = bench.ask("a", AskFor(whom="a", number=3))
    bench.settle()
    assert answer.result() == Sum(number=3)


def test_an_error_nobody_catches_crashes_the_actor(bench: InMemorySystem) -> None:
    bench.start(Counter, "counter")
    bench.tell("counter", Fail(is_async=False))
    with pytest.raises(KeyError, match="broken"):
        bench.settle()
    assert not bench.tell("counter", Add(number=1)), "it is gone"


def test_an_error_after_an_await_crashes_the_actor_too(bench: InMemorySystem) -> None:
    bench.start(Counter, "counter")
    bench.tell("counter", Fail(is_async=True))
    bench.settle()
    with pytest.raises(KeyError, match="broken later"):
        bench.advance(1.0)


def test_an_error_in_an_asked_actor_is_no_answer_but_its_death(bench: InMemorySystem) -> None:
    bench.start(Counter, "counter")
    answer = bench.ask("counter", Fail(is_async=False))
    with pytest.raises(KeyError):
        bench.settle()
    bench.advance(2 * LIVENESS_CHECK_S)
    with pytest.raises(ActorDied):
        answer.result()


# ---- start and stop ----


class SlowStarter(Counter):
    """Asks another actor before it is ready."""

    async def on_start(self) -> None:  # type: ignore[override]  # a base may be quicker
        await self.sleep(2.0)
        await self.ask("counter", Add(number=1))
        super().on_start()


def test_nothing_is_served_before_an_async_start_is_through_and_nothing_is_lost(
    bench: InMemorySystem,
) -> None:
    bench.start(Counter, "counter")
    slow = bench.start(SlowStarter, "slow")
    answers = [bench.ask("slow", Add(number=number)) for number in (1, 2)]
    bench.advance(1.0)
    assert not any(answer.is_done for answer in answers)
    assert bench.board.get(slow.identity.slot, "ready") == 0
    bench.advance(1.0)
    assert [answer.result() for answer in answers] == [Sum(number=1), Sum(number=3)]
    assert bench.board.get(slow.identity.slot, "ready") == 1
    assert bench.board.get(slow.identity.slot, "messages") == 3, "an answer and two asks, each counted once"


def test_an_ask_whose_deadline_passed_during_the_start_is_not_worked_on(bench: InMemorySystem) -> None:
    bench.start(Counter, "counter")
    slow = bench.start(SlowStarter, "slow")
    answer = bench.ask("slow", Add(number=1), deadline_s=1.0)
    bench.advance(3.0)
    assert slow.sum == 0
    with pytest.raises(AskTimeout):
        answer.result()


def test_told_to_stop_it_lets_go_of_what_it_holds_and_ends_normally(bench: InMemorySystem) -> None:
    let_go: list[str] = []

    class Holder(Counter):
        async def on_stop(self) -> None:
            await self.sleep(1.0)
            let_go.append("all")

    holder = bench.start(Holder, "holder")
    bench.tell("holder", Stop())
    bench.tell("holder", Stop())
    bench.advance(0.5)
    assert bench.runtimes["holder"].exit_code is None
    assert bench.board.get(holder.identity.slot, "ready") == 0
    bench.advance(0.5)
    assert bench.runtimes["holder"].exit_code == 0
    assert let_go == ["all"], "a second Stop changes nothing"


def test_an_actor_can_end_by_itself(bench: InMemorySystem) -> None:
    counter = bench.start(Counter, "counter")
    counter.stop()
    bench.settle()
    assert bench.runtimes["counter"].exit_code == 0


def test_a_handler_is_inherited_and_can_be_overridden(bench: InMemorySystem) -> None:
    class Doubling(Counter):
        @receives(Add)
        def add_twice(self, call: Add, sender: Sender) -> Sum:
            self.sum += 2 * call.number
            return Sum(number=self.sum)

    bench.start(Doubling, "doubling")
    bench.start(Counter, "counter")
    answers = [bench.ask(name, Add(number=3)) for name in ("doubling", "counter")]
    bench.settle()
    assert [answer.result() for answer in answers] == [Sum(number=6), Sum(number=3)]


def test_a_handler_sees_until_when_its_sender_waits(bench: InMemorySystem) -> None:
    waits_until_s = []

    class Answering(Counter):
        @receives(Add)
        def add(self, call: Add, sender: Sender) -> Sum:
            waits_until_s.append(sender.waits_until_s)
            return Sum(number=call.number)

    bench.start(Answering, "answering")
    bench.ask("answering", Add(number=1), deadline_s=7.0)
    bench.tell("answering", Add(number=2))
    bench.settle()
    assert waits_until_s == [pytest.approx(bench.clock.monotonic_s() + 7.0, abs=0.01), math.inf]


# ---- time ----


def test_timers_run_in_the_order_of_their_moments_and_not_before(bench: InMemorySystem) -> None:
    counter = bench.start(Counter, "counter")
    rang: list[tuple[str, float]] = []
    for name, after_s in (("late", 3.0), ("soon", 1.0), ("also soon", 1.0), ("never yet", 9.0)):
        counter.after(after_s, lambda name=name: rang.append((name, bench.clock.monotonic_s())))
    bench.advance(5.0)
    assert rang == [("soon", 1.0), ("also soon", 1.0), ("late", 3.0)]


def test_every_is_timed_from_the_end_of_the_last(bench: InMemorySystem) -> None:
    counter = bench.start(Counter, "counter")
    started: list[float] = []

    async def two_seconds_long() -> None:
        started.append(bench.clock.monotonic_s())
        await counter.sleep(2.0)

    counter.every(1.0, two_seconds_long)
    bench.advance(8.0)
    assert started == [1.0, 4.0, 7.0]


def test_a_flood_of_mail_does_not_keep_timers_waiting(bench: InMemorySystem) -> None:
    counter = bench.start(Counter, "counter")
    rang: list[int] = []
    counter.after(0.0, lambda: rang.append(counter.sum))
    for _ in range(500):
        bench.tell("counter", Add(number=1))
    bench.turn("counter")
    assert rang == [MAIL_PER_TURN]
    bench.settle()
    assert counter.sum == 500


# ---- work in a thread ----


def test_the_mailbox_is_answered_while_work_is_done_in_a_thread(bench: InMemorySystem) -> None:
    counter = bench.start(Counter, "counter")
    working = bench.ask("counter", Work(name="update", deadline_s=60.0))
    quick = bench.ask("counter", Add(number=1))
    bench.settle()
    assert quick.result() == Sum(number=1)
    assert not working.is_done
    counter.gate.set()
    bench.finish_work("counter", lambda: working.is_done)
    assert working.result() == Sum(number=1)


def test_the_board_shows_the_oldest_work_and_none_once_it_is_done(bench: InMemorySystem) -> None:
    counter = bench.start(Counter, "counter")
    slot = counter.identity.slot
    first, second = threading.Event(), threading.Event()
    counter.in_thread(first.wait, name="update", deadline_s=60.0)
    counter.in_thread(second.wait, name="checkpoint", deadline_s=60.0)
    assert bench.board.vitals(slot).work == "update"
    assert bench.board.vitals(slot).work_s is not None
    first.set()
    bench.finish_work("counter", lambda: bench.board.vitals(slot).work != "update")
    assert bench.board.vitals(slot).work == "checkpoint"
    second.set()
    bench.finish_work("counter", lambda: bench.board.vitals(slot).work != "checkpoint")
    assert bench.board.vitals(slot).work == ""
    assert bench.board.vitals(slot).work_s is None


def test_work_past_its_deadline_crashes_the_actor_and_names_the_work(bench: InMemorySystem) -> None:
    counter = bench.start(Counter, "counter")
    bench.tell("counter", Work(name="update", deadline_s=30.0))
    bench.advance(29.0)
    with pytest.raises(WorkOverdue, match=r"'update' is not done after 30.0 s, its deadline$"):
        bench.advance(1.0)
    counter.gate.set()


def test_work_past_its_deadline_names_the_setting_of_the_deadline(bench: InMemorySystem) -> None:
    counter = bench.start(Counter, "counter")
    bench.tell("counter", Work(name="update", deadline_s=30.0, setting="training.update_deadline_s"))
    remedy = "its deadline; if it was only slow, raise training.update_deadline_s$"
    with pytest.raises(WorkOverdue, match=remedy):
        bench.advance(30.0)
    counter.gate.set()


@pytest.mark.parametrize("frozen_s", [15.0, 3600.0], ids=["ends before the deadline", "ends after it"])
def test_the_deadline_of_work_leaves_out_the_time_in_which_the_process_was_suspended(
    bench: InMemorySystem, frozen_s: float
) -> None:
    counter = bench.start(Counter, "counter")
    bench.tell("counter", Work(name="update", deadline_s=30.0))
    bench.advance(10.0)
    bench.clock.advance(frozen_s)  # no actor had a turn
    bench.advance(19.0)
    with pytest.raises(WorkOverdue, match=r"'update' is not done after 30.0 s, its deadline"):
        bench.advance(1.5)
    counter.gate.set()


def test_work_whose_whole_deadline_passes_in_a_suspension_has_its_deadline_after_it(
    bench: InMemorySystem,
) -> None:
    counter = bench.start(Counter, "counter")
    bench.tell("counter", Work(name="update", deadline_s=0.5))
    bench.settle()
    bench.clock.advance(3600.0)
    bench.advance(0.4)
    with pytest.raises(WorkOverdue):
        bench.advance(0.2)
    counter.gate.set()


def test_work_done_in_time_is_forgotten_by_its_deadline(bench: InMemorySystem) -> None:
    counter = bench.start(Counter, "counter")
    counter.gate.set()
    answer = bench.ask("counter", Work(name="update", deadline_s=1.0))
    bench.finish_work("counter", lambda: answer.is_done)
    bench.advance(2.0)
    assert answer.result() == Sum(number=0)


def test_an_error_in_work_is_raised_where_it_is_awaited(bench: InMemorySystem) -> None:
    counter = bench.start(Counter, "counter")
    caught: list[str] = []

    def breaks() -> None:
        raise ValueError("no disk")

    async def tries() -> None:
        try:
            await counter.in_thread(breaks, name="save", deadline_s=60.0)
        except ValueError as error:
            caught.append(str(error))

    counter.run(tries())
    bench.finish_work("counter", lambda: bool(caught))
    assert caught == ["no disk"]


def test_a_coroutine_on_the_actors_loop_is_awaited_like_any_other(bench: InMemorySystem) -> None:
    counter = bench.start(Counter, "counter")
    results: list[object] = []

    async def on_loop() -> int:
        return 42

    async def fails_on_loop() -> int:
        raise ValueError("no page")

    async def waits() -> None:
        results.append(await counter.in_loop(on_loop()))
        try:
            await counter.in_loop(fails_on_loop())
        except ValueError as error:
            results.append(str(error))

    counter.run(waits())
    bench.finish_work("counter", lambda: len(results) == 2)
    assert results == [42, "no page"]


# ---- vitals ----


def test_vitals_tell_what_an_actor_is_handling_while_it_hangs(bench: InMemorySystem) -> None:
    seen: list[tuple[str, bool]] = []

    class Looks(Actor):
        @receives(Add)
        def add(self, call: Add, sender: Sender) -> None:
            vitals = self.board.vitals(self.identity.slot)
            seen.append((vitals.handler, vitals.busy_s is not None))

    looks = bench.start(Looks, "looks")
    bench.tell("looks", Add(number=1))
    bench.settle()
    assert seen == [("Add", True)]
    assert bench.board.vitals(looks.identity.slot).busy_s is None


def test_an_actor_publishes_its_gauges_and_its_readiness(bench: InMemorySystem) -> None:
    counter = bench.start(Counter, "counter")
    counter.set_gauges({0: 7, 2: 3})
    counter.set_ready(False)
    vitals = bench.board.vitals(counter.identity.slot)
    assert (vitals.gauges, vitals.ready) == ((7, 0, 3, 0), False)
    assert vitals.state is ActorState.RUNNING


def test_the_answer_to_one_who_died_meanwhile_goes_nowhere_and_harms_nobody(bench: InMemorySystem) -> None:
    counter = bench.start(Counter, "counter")
    other = bench.start(Counter, "other")
    lost: Future[Sum] = other.ask("counter", AddLater(number=1, after_s=1.0))
    bench.settle()
    bench.end("other")
    bench.advance(2.0)
    assert counter.sum == 1
    assert not lost.is_done


# ---- errors nobody awaits ----


def breaks() -> None:
    raise ValueError("no disk")


async def breaks_in_loop() -> None:
    raise ValueError("no page")


@pytest.mark.parametrize("is_dropped_before", [True, False])
def test_work_that_fails_and_is_awaited_by_nobody_crashes_the_actor(
    bench: InMemorySystem, is_dropped_before: bool
) -> None:
    counter = bench.start(Counter, "counter")
    held = [counter.in_thread(breaks, name="save", deadline_s=60.0)]
    if is_dropped_before:
        held.clear()
    else:
        bench.finish_work("counter", lambda: held[0].is_done)
        assert bench.is_alive("counter"), "it may still be looked at"
        held.clear()
    with pytest.raises(ValueError, match="no disk"):
        bench.finish_work("counter", lambda: not bench.is_alive("counter"))
    assert bench.row("counter").last_error == "ValueError: no disk"


def test_a_coroutine_on_the_loop_that_fails_unawaited_crashes_the_actor(bench: InMemorySystem) -> None:
    counter = bench.start(Counter, "counter")
    counter.in_loop(breaks_in_loop())
    with pytest.raises(ValueError, match="no page"):
        bench.finish_work("counter", lambda: not bench.is_alive("counter"))


@pytest.mark.parametrize("given", [breaks, None, 7])
def test_what_is_no_coroutine_is_refused_where_it_is_given_to_the_loop(
    bench: InMemorySystem, given: Any
) -> None:
    counter = bench.start(Counter, "counter")
    with pytest.raises(
        ActorError, match=r"'counter' called in_loop with .*; the call takes a coroutine, which"
    ):
        counter.in_loop(given)


@pytest.mark.parametrize("end", [SystemExit, KeyboardInterrupt])
def test_a_coroutine_that_exits_ends_neither_the_loop_nor_the_wait_for_it(
    bench: InMemorySystem, end: type[BaseException]
) -> None:
    counter = bench.start(Counter, "counter")
    caught: list[object] = []

    async def exits() -> None:
        raise end(3)

    async def answers() -> int:
        return 1

    async def waits() -> None:
        try:
            await counter.in_loop(exits())
        except end as error:
            caught.append(error.args)
        caught.append(await counter.in_loop(answers()))

    counter.run(waits())
    bench.finish_work("counter", lambda: len(caught) == 2)
    assert caught == [(3,), 1]


def test_work_that_fails_before_it_is_awaited_is_the_awaiters_to_handle(bench: InMemorySystem) -> None:
    counter = bench.start(Counter, "counter")
    caught: list[str] = []

    async def first_one_then_the_other() -> None:
        slow = counter.in_thread(counter.gate.wait, name="slow", deadline_s=60.0)
        quick = counter.in_thread(breaks, name="quick", deadline_s=60.0)
        await slow
        try:
            await quick
        except ValueError as error:
            caught.append(str(error))

    counter.run(first_one_then_the_other())
    bench.finish_work("counter", lambda: bench.row("counter").work == "slow")
    counter.gate.set()
    bench.finish_work("counter", lambda: bool(caught))
    assert caught == ["no disk"]
    assert bench.is_alive("counter")


def test_a_cancelled_coroutine_that_nobody_awaits_was_meant_to_end(bench: InMemorySystem) -> None:
    counter = bench.start(Counter, "counter")
    ended = threading.Event()

    async def cancels_itself() -> None:
        ended.set()
        raise asyncio.CancelledError

    async def answers() -> int:
        return 1

    counter.in_loop(cancels_itself())
    after = counter.in_loop(answers())
    bench.finish_work("counter", lambda: after.is_done)
    assert ended.is_set()
    assert bench.is_alive("counter")


def test_an_actor_that_lets_go_cancels_its_coroutines_and_waits_for_their_ends(tmp_path: Path) -> None:
    began, ends = threading.Event(), []

    async def waits() -> None:
        try:
            began.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ends.append("ended")

    with InMemorySystem(tmp_path) as bench:
        bench.start(Counter, "counter").in_loop(waits())
        assert began.wait(10.0)
    assert ends == ["ended"]


def test_an_ask_that_fails_and_that_nobody_looks_at_harms_nobody(bench: InMemorySystem) -> None:
    counter = bench.start(Counter, "counter")
    counter.ask("ghost", Add(number=1))
    counter.ask("counter", Unknown())
    bench.advance(10.0)
    assert bench.is_alive("counter")


# ---- ending from within ----


class Leaving(Counter):
    """Ends in the handler of Add; says what it took before."""

    finish = False

    @receives(Add)
    async def leave(self, call: Add, sender: Sender) -> Sum:
        self.stop(finish=self.finish)
        if self.finish:
            await self.sleep(1.0)
        self.sum += call.number
        return Sum(number=self.sum)


class LeavingLater(Leaving):
    finish = True


@pytest.mark.parametrize("actor", [Leaving, LeavingLater])
def test_a_handler_that_stops_its_actor_is_answered_first(
    bench: InMemorySystem, actor: type[Counter]
) -> None:
    bench.start(actor, "counter")
    answer = bench.ask("counter", Add(number=2))
    bench.advance(2.0)
    assert answer.result() == Sum(number=2)
    assert bench.runtimes["counter"].exit_code == 0


def test_after_the_handler_that_stops_its_actor_no_mail_is_taken(bench: InMemorySystem) -> None:
    bench.start(Leaving, "counter")
    first, second = bench.ask("counter", Add(number=1)), bench.ask("counter", Add(number=1))
    bench.advance(1.0)
    assert first.result() == Sum(number=1)
    with pytest.raises(ActorDied):
        second.result()


class LeavingAtOnce(Counter):
    def on_start(self) -> None:
        super().on_start()
        self.stop()


def test_an_actor_that_stops_in_on_start_is_never_ready(bench: InMemorySystem) -> None:
    bench.board.claim("counter", "asker")
    with contextlib.suppress(AssertionError):  # the bench has no actor to give back
        bench.start(LeavingAtOnce, "counter", parent="asker")
    assert bench.runtimes["counter"].exit_code == 0
    assert not bench.row("counter").ready


# ---- deadlines that messages bring along ----


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Ponder:
    """Takes longer than most."""

    answer_within_s: ClassVar[float] = 60.0


class Pondering(Actor):
    @receives(Ponder)
    async def ponder(self, call: Ponder, sender: Sender) -> Sum:
        await self.sleep(50.0)
        return Sum(number=42)


def test_an_ask_without_a_deadline_has_that_of_its_message(bench: InMemorySystem) -> None:
    bench.start(Pondering, "pondering")
    patient, hasty = bench.ask("pondering", Ponder()), bench.ask("pondering", Ponder(), deadline_s=1.0)
    bench.advance(55.0)
    assert patient.result() == Sum(number=42)
    with pytest.raises(AskTimeout):
        hasty.result()
