"""What an actor survives and says: answers mail does not carry, too much at once, too late, unreadable."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from actors.actor import Actor, Sender, Stop, receives
from actors.codec import Envelope, MessageKind, UndecodedMessage, message
from actors.errors import ActorError, AskTimeout, Refused
from actors.future import Future
from actors.mailbox import MAX_OPEN_HANDLERS, REASON_CHARACTERS
from actors.system_messages import ChildReady, Preempted
from actors.testing import InMemorySystem
from actors.timers import LONGEST_S


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Give:
    what: str


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    text: Any


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    pass


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class GoOn:
    pass


ANSWERS: dict[str, Any] = {
    "large": Text(text="x" * 70_000),
    "no message": 7,
    "half a letter": Text(text="\ud800"),
    "a number too large": Text(text=2**80),
    "what nobody packs": Text(text=object()),
}


class Giver(Actor):
    """Answers with what it is asked for, and keeps who waits waiting."""

    def on_start(self) -> None:
        self.gate: Future[None] = Future()

    @receives(Give)
    def give(self, call: Give, sender: Sender) -> Any:
        return ANSWERS.get(call.what, Text(text=call.what))

    @receives(Wait)
    async def wait(self, call: Wait, sender: Sender) -> Text:
        await self.gate
        return Text(text="waited")

    @receives(GoOn)
    def go_on(self, call: GoOn, sender: Sender) -> Text:
        return Text(text="went on")


class Parent(Giver):
    """Keeps what its children tell it."""

    def on_start(self) -> None:
        super().on_start()
        self.news: list[object] = []

    @receives(ChildReady)
    @receives(Preempted)
    def hear(self, news: ChildReady | Preempted, sender: Sender) -> None:
        self.news.append(news)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[InMemorySystem]:
    with InMemorySystem(tmp_path) as bench:
        yield bench


# ---- answers ----


@pytest.mark.parametrize(
    ("what", "says"),
    [
        (
            "large",
            r"'giver' cannot send its answer: .*Text to 'asker' has 70\d+ bytes, mail carries at most 65536",
        ),
        ("no message", r"cannot send its answer: <class 'int'> is not a message"),
        ("half a letter", r"Text cannot be packed: .*surrogates not allowed"),
        ("a number too large", r"cannot send its answer: .*Text cannot be packed"),
        ("what nobody packs", r"cannot send its answer: .*object"),
    ],
)
def test_an_answer_that_mail_does_not_carry_is_a_refusal_and_the_actor_lives(
    bench: InMemorySystem, what: str, says: str
) -> None:
    giver = bench.start(Giver, "giver")
    answer = bench.ask("giver", Give(what=what))
    bench.settle()
    with pytest.raises(Refused, match=says):
        answer.result()
    assert bench.is_alive("giver")
    assert bench.board.get(giver.identity.slot, "unsent") == 1
    next_answer = bench.ask("giver", Give(what="small"))
    bench.settle()
    assert next_answer.result() == Text(text="small")


@pytest.mark.parametrize("content", [None, GoOn()])
def test_a_refusal_without_a_readable_reason_is_a_refusal(bench: InMemorySystem, content: Any) -> None:
    giver = bench.start(Giver, "giver")
    asker = bench.start(Giver, "other")
    answer = asker.ask("giver", Wait())
    (id_,) = asker._Actor__asks._pending  # type: ignore[attr-defined]
    forged = Envelope(
        kind=MessageKind.REFUSAL,
        id=id_,
        to="other",
        to_incarnation=asker.identity.incarnation,
        sender="giver",
        sender_incarnation=giver.identity.incarnation,
        deadline_unix_ms=0,
        message=content,
    )
    giver.forward(forged)
    bench.settle()
    with pytest.raises(Refused, match="'giver' refused the message without a readable reason"):
        answer.result()


def test_a_reason_that_quotes_too_much_is_cut_and_arrives(bench: InMemorySystem) -> None:
    bench.start(Giver, "giver")
    answer = bench.ask("giver", UndecodedMessage("x" * 60_000, b"\xc0"))
    bench.settle()
    with pytest.raises(Refused, match="unknown message type 'xxx") as refused:
        answer.result()
    assert len(str(refused.value)) == REASON_CHARACTERS


# ---- too much, too late ----


def fill(bench: InMemorySystem) -> list[Future[Any]]:
    asks = []
    for _ in range(MAX_OPEN_HANDLERS // 100):
        asks += [bench.ask("giver", Wait()) for _ in range(100)]
        bench.settle()
    return asks


def test_an_actor_with_too_much_under_way_refuses_more_until_it_has_room(bench: InMemorySystem) -> None:
    giver = bench.start(Giver, "giver")
    asks = fill(bench)
    refused = bench.ask("giver", Wait())
    bench.tell("giver", GoOn())
    bench.settle()
    with pytest.raises(Refused, match="'giver' has 1000 messages under way and takes no more now"):
        refused.result()
    assert bench.board.get(giver.identity.slot, "refused") == 2
    giver.gate.succeed(None)
    bench.settle()
    assert {ask.result().text for ask in asks} == {"waited"}
    again = bench.ask("giver", GoOn())
    bench.settle()
    assert again.result() == Text(text="went on")


def test_an_actor_with_too_much_under_way_says_so_once_a_turn_in_its_log(bench: InMemorySystem) -> None:
    giver = bench.start(Giver, "giver")
    fill(bench)
    lines: list[str] = []

    class Log:
        def warning(self, event: str, **fields: Any) -> None:
            lines.append(event)

    giver.log = Log()
    for _ in range(10):
        bench.tell("giver", GoOn())
    giver.turn()
    assert lines == ["message_turned_away"]


def test_an_actor_with_too_much_under_way_gets_answers_links_and_can_be_stopped(
    bench: InMemorySystem,
) -> None:
    giver = bench.start(Giver, "giver")
    other = bench.start(Giver, "other")
    fill(bench)
    answer = giver.ask("other", GoOn())
    other.link("giver")
    bench.settle()
    assert answer.result() == Text(text="went on")
    assert bench.board.get(giver.identity.slot, "refused") == 0
    bench.tell("giver", Stop())
    bench.settle()
    assert not bench.is_alive("giver")


@pytest.mark.parametrize("news", [ChildReady(incarnation=1), Preempted(incarnation=1)])
def test_an_actor_with_too_much_under_way_takes_what_a_child_tells_only_once(
    bench: InMemorySystem, news: object
) -> None:
    parent = bench.start(Parent, "giver")
    fill(bench)
    bench.tell("giver", news)
    bench.settle()
    assert parent.news == [news]
    assert bench.board.get(parent.identity.slot, "refused") == 0


def test_an_ask_that_came_too_late_is_refused_and_counted(bench: InMemorySystem) -> None:
    giver = bench.start(Giver, "giver")
    other = bench.start(Giver, "other")
    answer = other.ask("giver", GoOn(), deadline_s=1.0)
    bench.clock.advance(1.5)
    giver.turn()
    assert bench.board.get(giver.identity.slot, "refused") == 1
    other.turn()
    with pytest.raises(Refused, match="'giver' did not begin the message before its deadline"):
        answer.result()


# ---- deadlines that are none ----


@pytest.mark.parametrize("seconds", [-0.001, float("inf"), float("-inf"), float("nan"), 2 * LONGEST_S])
@pytest.mark.parametrize("call", ["ask", "sleep", "after", "every", "in_thread"])
def test_a_deadline_that_is_none_is_an_error_where_it_is_given(
    bench: InMemorySystem, call: str, seconds: float
) -> None:
    giver = bench.start(Giver, "giver")
    calls: dict[str, Any] = {
        "ask": lambda: giver.ask("giver", GoOn(), deadline_s=seconds),
        "sleep": lambda: giver.sleep(seconds),
        "after": lambda: giver.after(seconds, bool),
        "every": lambda: giver.every(seconds, bool),
        "in_thread": lambda: giver.in_thread(bool, name="work", deadline_s=seconds),
    }
    with pytest.raises(
        ActorError, match=rf"'giver' called .* with {seconds!r}; the call takes 0 to 1e\+10 seconds"
    ):
        calls[call]()


def test_the_longest_deadline_is_one_and_so_is_none_at_all(bench: InMemorySystem) -> None:
    giver = bench.start(Giver, "giver")
    longest = giver.ask("giver", GoOn(), deadline_s=LONGEST_S)
    shortest = giver.ask("giver", Wait(), deadline_s=0.0)
    bench.advance(0.1)
    assert longest.result() == Text(text="went on")
    with pytest.raises(AskTimeout):
        shortest.result()


# ---- long handlers ----


def test_a_long_handler_that_gets_on_restarts_the_clock_held_against_it(bench: InMemorySystem) -> None:
    giver = bench.start(Giver, "giver")
    slot = giver.identity.slot
    bench.board.set(slot, handler="Give", busy_since_ns=bench.board.now_ns())
    bench.clock.advance(9.0)
    assert bench.board.vitals(slot).busy_s == 9.0
    giver.still_working()
    vitals = bench.board.vitals(slot)
    assert (vitals.busy_s, vitals.beat_age_s, vitals.handler) == (0.0, 0.0, "Give")
