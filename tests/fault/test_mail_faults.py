"""Mail between processes when receivers stop and die: senders live on, bounded, and know what was lost."""

import os
import signal
import socket
from collections.abc import Iterator
from dataclasses import dataclass

import psutil
import pytest

from actors.actor import Actor, Sender, receives
from actors.board import Board
from actors.codec import Envelope, MessageKind, UndecodedMessage, encode, message
from actors.errors import Refused
from supervision.child_spec import ChildSpec
from tests.fault.actors_under_test import WORKER_LIMITS, Echo, Running, eventually, running, worker

BIG = 60_000
MEGABYTE = 2**20


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Flood:
    """Tell somebody numbered notes; answered by Flooded."""

    to: str
    first: int
    notes: int
    text_bytes: int


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Flooded:
    taken: int


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    number: int
    text: str


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class WhatCame:
    """Answered by Came."""


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Came:
    numbers: list[int]


class Correspondent(Actor):
    """Writes as much as it is asked to, and remembers what came, in the order it came."""

    def on_start(self) -> None:
        self._came: list[int] = []

    @receives(Flood)
    def flood(self, call: Flood, sender: Sender) -> Flooded:
        text = "x" * call.text_bytes
        numbers = range(call.first, call.first + call.notes)
        return Flooded(taken=sum(self.tell(call.to, Note(number=number, text=text)) for number in numbers))

    @receives(Note)
    def note(self, note: Note, sender: Sender) -> None:
        self._came.append(note.number)

    @receives(WhatCame)
    def what_came(self, call: WhatCame, sender: Sender) -> Came:
        return Came(numbers=self._came)

    @receives(Echo)
    def echo(self, call: Echo, sender: Sender) -> Echo:
        return call


def correspondent(id_: str) -> ChildSpec:
    return ChildSpec(id=id_, actor=f"{__name__}:Correspondent", **WORKER_LIMITS)


@pytest.fixture
def system() -> Iterator[Running]:
    with running(correspondent("ann"), correspondent("bob")) as system:
        system.await_up("ann", "bob")
        yield system


def rss(system: Running, name: str) -> int:
    return int(psutil.Process(system.pid(name)).memory_info().rss)


def test_a_stopped_receiver_bounds_its_senders_memory_and_gets_what_was_taken_in_order(
    system: Running,
) -> None:
    probe = system.probe
    bob = system.pid("bob")
    os.kill(bob, signal.SIGSTOP)
    try:
        before = rss(system, "ann")
        taken = 0
        for batch in range(6):
            answer = probe.ask("ann", Flood(to="bob", first=100 * batch, notes=100, text_bytes=BIG))
            taken += answer.taken
            assert probe.ask("ann", Echo()) == Echo(), (
                "whoever writes to a stopped actor answers everybody else"
            )
        assert taken * BIG < 10 * MEGABYTE
        assert rss(system, "ann") - before < 8 * MEGABYTE
        eventually(
            lambda: system.row("ann").unsent == 600 - taken, "all that was refused is counted", system.explain
        )
    finally:
        os.kill(bob, signal.SIGCONT)
    came = probe.ask("bob", WhatCame()).numbers
    eventually(
        lambda: len(probe.ask("bob", WhatCame()).numbers) == taken,
        "all that was taken came",
        lambda: str(came),
    )
    assert probe.ask("ann", Flood(to="bob", first=1000, notes=1, text_bytes=10)).taken == 1
    eventually(lambda: 1000 in probe.ask("bob", WhatCame()).numbers, "mail flows again", system.explain)
    came = probe.ask("bob", WhatCame()).numbers
    assert came == sorted(came)
    assert came[:5] == [0, 1, 2, 3, 4]


def test_what_waited_for_a_receiver_that_was_killed_is_counted_and_never_reaches_the_next(
    system: Running,
) -> None:
    probe = system.probe
    old = system.row("bob")
    os.kill(old.pid, signal.SIGSTOP)
    taken = probe.ask("ann", Flood(to="bob", first=0, notes=100, text_bytes=BIG)).taken
    os.kill(old.pid, signal.SIGKILL)
    system.await_new("bob", old)
    assert probe.ask("bob", WhatCame()).numbers == []
    assert probe.ask("ann", Flood(to="bob", first=500, notes=3, text_bytes=10)).taken == 3
    eventually(
        lambda: probe.ask("bob", WhatCame()).numbers == [500, 501, 502], "new mail comes", system.explain
    )
    assert 100 - taken < system.row("ann").unsent <= 100


def test_a_captured_stop_is_good_for_one_incarnation_and_one_time(system: Running) -> None:
    """Recorded by whoever can read the key; another run's is refused with the key it was signed with."""
    probe = system.probe
    key = (system.system.run_dir / "key").read_bytes()
    row = system.row("bob")
    envelope = Envelope(
        kind=MessageKind.TELL,
        id=1,
        to="bob",
        to_incarnation=row.incarnation,
        sender="somebody",
        sender_incarnation=1,
        deadline_unix_ms=0,
        message=Note(number=7, text=""),
        sequence=1,
    )
    captured = encode(envelope, key)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as replaying:
        replaying.connect(f"{system.mail_dir}/{row.slot}")
        for _ in range(3):
            replaying.send(captured)
        eventually(
            lambda: system.row("bob").refused >= row.refused + 2, "both copies are refused", system.explain
        )
    assert probe.ask("bob", WhatCame()).numbers == [7]
    old = system.kill("bob")
    new = system.await_new("bob", old)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as replaying:
        replaying.connect(f"{system.mail_dir}/{row.slot}")
        replaying.send(captured)
        eventually(lambda: system.row("bob").refused > new.refused, "it is refused", system.explain)
    assert probe.ask("bob", WhatCame()).numbers == []


def test_an_ask_that_is_not_understood_is_refused_with_the_reason_and_harms_nobody(system: Running) -> None:
    with pytest.raises(
        Refused, match=r"'bob' does not understand the message: unknown message type 'a.newer.Message'"
    ):
        ask_sealed(system, UndecodedMessage("a.newer.Message", b"\x80"))
    with pytest.raises(Refused, match=r"'bob' does not understand the message: .*Note.*missing required"):
        ask_sealed(system, UndecodedMessage(f"{__name__}.Note", b"\x80"))
    assert system.probe.ask("bob", Echo()) == Echo()


def ask_sealed(system: Running, sealed: UndecodedMessage) -> object:
    """Ask with a message as only a newer version of this code could make it."""
    return system.probe.ask("bob", sealed)


def test_every_start_has_a_key_of_its_own() -> None:
    keys = set()
    for _ in range(2):
        with running(worker("ann")) as system:
            key = system.system.run_dir / "key"
            assert key.stat().st_mode & 0o777 == 0o600
            keys.add(key.read_bytes())
    assert len(keys) == 2


def test_restarts_leave_one_socket_per_name(system: Running) -> None:
    for _ in range(5):
        system.await_new("bob", system.kill("bob"))
    board = Board(system.system.run_dir / "board")
    names = {str(row.slot) for row in board.rows()}
    board.close()
    eventually(
        lambda: {path.name for path in system.mail_dir.iterdir()} <= names,
        "nothing but one inbox for each row of the board",
        lambda: str(sorted(system.mail_dir.iterdir())),
    )
