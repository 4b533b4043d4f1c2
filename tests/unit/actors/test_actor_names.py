"""Mail that reaches an actor under the name of another one."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from actors.actor import Actor, Sender, receives
from actors.codec import Envelope, MessageKind, message
from actors.errors import ActorDied
from actors.testing import InMemorySystem


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    pass


class Worker(Actor):
    """Notes who greets it."""

    def on_start(self) -> None:
        self.senders: list[str] = []

    @receives(Hello)
    def hello(self, call: Hello, sender: Sender) -> Hello:
        self.senders.append(sender.name)
        return call


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[InMemorySystem]:
    with InMemorySystem(tmp_path) as bench:
        bench.start(Worker, "env")
        yield bench


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
