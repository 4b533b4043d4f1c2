"""An actor is its slot and its incarnation; what it is called may change while it runs."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from actors.actor import Actor, Sender, receives
from actors.asks import LIVENESS_CHECK_S
from actors.codec import Envelope, MessageKind, message
from actors.errors import ActorDied
from actors.testing import InMemorySystem


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    after_s: float = 0.0


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class AskThem:
    whom: str


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class IAm:
    incarnation: int


class Worker(Actor):
    """Says which incarnation it is, at once or later; asks others as told."""

    def on_start(self) -> None:
        self.senders: list[str] = []

    @receives(Hello)
    async def hello(self, call: Hello, sender: Sender) -> IAm:
        self.senders.append(sender.name)
        await self.sleep(call.after_s)
        return IAm(incarnation=self.identity.incarnation)

    @receives(AskThem)
    async def ask_them(self, call: AskThem, sender: Sender) -> IAm:
        answer: IAm = await self.ask(call.whom, Hello())
        return answer


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[InMemorySystem]:
    with InMemorySystem(tmp_path) as bench:
        bench.start(Worker, "spare")
        bench.start(Worker, "env")
        yield bench


def swap(bench: InMemorySystem) -> None:
    """The spare takes over the name, as a supervisor does it."""
    old, spare = bench.board.find("env"), bench.board.find("spare")
    assert old is not None
    assert spare is not None
    bench.board.set(spare, name="env")
    bench.board.set(old, name="env~retired")


def test_a_spare_that_took_over_a_name_gets_its_mail_and_the_retired_one_none(bench: InMemorySystem) -> None:
    old, spare = bench.actor("env"), bench.actor("spare")
    swap(bench)
    bench.tell("env", Hello())
    bench.settle()
    assert (old.senders, spare.senders) == ([], ["asker"])


def test_an_actor_that_was_renamed_while_it_was_asked_may_still_answer(bench: InMemorySystem) -> None:
    answer = bench.ask("env", Hello(after_s=2.0))
    bench.advance(1.0)
    swap(bench)
    bench.advance(1.5)
    assert answer.result() == IAm(incarnation=1)


def test_a_renamed_actor_that_ends_before_it_answers_ends_the_ask(bench: InMemorySystem) -> None:
    answer = bench.ask("env", Hello(after_s=60.0), deadline_s=3600.0)
    bench.settle()
    swap(bench)
    bench.advance(1.0)
    assert not answer.is_done
    bench.kill("env~retired")
    bench.advance(2 * LIVENESS_CHECK_S)
    with pytest.raises(ActorDied, match="'env' ended before it answered"):
        answer.result()


def test_a_spare_is_answered_under_the_name_it_took_over(bench: InMemorySystem) -> None:
    other = bench.start(Worker, "other")
    swap(bench)
    answer = bench.ask("env", AskThem(whom="other"))
    bench.settle()
    assert answer.result() == IAm(incarnation=1)
    assert other.senders == ["env"]


def foreign(bench: InMemorySystem, kind: MessageKind) -> Envelope:
    """What a row whose route leads to the worker `env` lets arrive there."""
    asker = bench.board.find("asker")
    return Envelope(
        kind=kind,
        id=7,
        to="faraway",
        to_incarnation=0,
        sender="asker",
        sender_incarnation=bench.board.get(asker or 0, "incarnation"),
        deadline_unix_ms=0,
        message=Hello(),
    )


def test_mail_for_another_name_is_refused_and_counted(bench: InMemorySystem) -> None:
    env = bench.actor("env")
    refusals: list[str] = []
    env._Actor__mailbox._answer = lambda envelope, kind, content: refusals.append(content.text)
    env._Actor__mailbox.take(foreign(bench, MessageKind.ASK))
    bench.turn("env")
    assert refusals == ["the message is for 'faraway', but reached 'env'"]
    assert bench.row("env").refused == 1


def test_a_bridge_takes_mail_for_other_names_and_forwards_it_with_its_sender(bench: InMemorySystem) -> None:
    class Bridge(Worker):
        def on_foreign(self, envelope: Envelope) -> None:
            there = Envelope(**{**{f: getattr(envelope, f) for f in envelope.__slots__}, "to": "env"})
            assert self.forward(there) == 1

    bridge = bench.start(Bridge, "bridge")
    for kind in (MessageKind.TELL, MessageKind.ASK):
        bridge._Actor__mailbox.take(foreign(bench, kind))
    bench.settle()
    assert bench.actor("env").senders == ["asker", "asker"]


def test_forwarding_to_nobody_says_so(bench: InMemorySystem) -> None:
    with pytest.raises(ActorDied, match="'faraway'"):
        bench.actor("env").forward(foreign(bench, MessageKind.TELL))
